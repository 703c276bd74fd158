"""Loops that find and judge elimination orders."""
