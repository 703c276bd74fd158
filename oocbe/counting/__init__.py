"""Exact counts of the models of clauses: preprocessing, and a search that caches components."""
