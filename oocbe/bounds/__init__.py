"""Pruning: rows that cannot be part of an answer are not stored, not moved and not computed."""
