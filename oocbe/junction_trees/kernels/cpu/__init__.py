"""Compiled loops of junction trees: the rows of cliques, and sweeps over them."""
