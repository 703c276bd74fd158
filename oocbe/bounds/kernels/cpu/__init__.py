"""Loops that drop rows, or compute what they are held against."""
