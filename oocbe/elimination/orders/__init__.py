"""Elimination orders: search, evaluation, improvement."""
