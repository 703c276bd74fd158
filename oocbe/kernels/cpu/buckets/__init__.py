"""Loops over a whole bucket, with a joint traversal of all tables and lookups."""
