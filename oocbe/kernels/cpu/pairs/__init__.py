"""Loops over one table or a pair of tables: sort, groups, join sum, marginalisation."""
