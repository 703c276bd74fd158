"""Loops for the CPU."""
