"""Compiled loops that make synthetic tables."""
