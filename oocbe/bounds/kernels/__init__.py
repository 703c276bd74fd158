"""Compiled loops of bounds."""
