"""Loops over a whole bucket: all tables and lookups walked together."""
