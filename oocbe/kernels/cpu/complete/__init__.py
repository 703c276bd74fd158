"""Loops over complete tables."""
