"""Elimination orders: found, judged, improved."""
