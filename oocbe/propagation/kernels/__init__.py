"""Compiled loops of propagation."""
