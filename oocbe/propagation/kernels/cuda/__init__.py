"""Propagation on the device: rows of linear constraints, rows of tables."""
