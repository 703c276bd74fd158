"""One case without rows: complete tables of what is relevant to it, made, swept over once, and thrown away.

    evidence ──▶ values that are left ──▶ barren variables go ──▶ groups of targets ──▶ cliques of complete tables
                 (factors)                (relevance)             (groups)              (complete_tree)

The rows of a tree are made for many cases. Of one case much is known before anything is computed: what is observed is
no variable any more, values without a weight go, and variables that nothing is asked about and nothing is observed
below are barren (Shachter 1986). What is left falls into components, and what one target needs is often a small part of
what all need together: targets are put into groups, each with a tree of its own, where these cost less than one tree.
A clique is joined and added up once, so that complete tables, of which a joined cell takes a nanosecond, are cheaper
than rows, which take a hundred until they are there, unless nearly all cells are zero.
"""
