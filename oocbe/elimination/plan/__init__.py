"""Predicted cost of a solve, before any computation."""
