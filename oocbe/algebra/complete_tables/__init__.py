"""Buckets of complete tables of any size: cut into boxes of cells, joined and reduced, laid in another order."""
