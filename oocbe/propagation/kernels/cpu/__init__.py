"""Loops of propagation: rows of linear constraints, rows of tables, bit sets of rows."""
