"""Kernels for a whole bucket: all tables and lookups joined level by level."""
