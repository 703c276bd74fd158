"""Loops that drop rows, or compute the bounds for the test."""
