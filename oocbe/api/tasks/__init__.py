"""Tasks that need tables: counts, the k best assignments, partition functions, marginals.

They need every feasible row: hard constraints filter every join, but rows are not pruned by dominance.
"""
