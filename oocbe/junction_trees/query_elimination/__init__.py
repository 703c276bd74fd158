"""One case without a compiled tree: dense tables of its relevant factors, swept over once and discarded.

    evidence ──▶ remaining values ──▶ relevant variables ──▶ groups of targets ──▶ cliques of dense tables
                 (factors)            (relevance)            (groups)              (complete_tree)

The rows of a tree serve many cases. A single case can be reduced first: observed variables and impossible values are
removed, and so are barren variables, which are no targets and have no evidence below them (Shachter 1986). The rest
falls into components, and one target often needs a small part of the factors that all targets need together: targets
are grouped, each group with a tree of its own, where these cost less than one tree.
A clique is joined and summed only once. Dense tables (a nanosecond per joined cell) are then cheaper than rows (100 ns
each to make), unless nearly all cells are zero.
"""
