"""Compiled loops of counting."""
