"""What only tables can answer: counts, the k best assignments, partition functions, marginals.

All of them need every feasible row, so nothing is pruned that could change an answer: hard constraints filter every
join, as always, but no row is dropped because another one is as good.
"""
