"""Trees with rows on disk, limited by the disk instead of the memory, and the format of all saved trees.

    order ──▶ cliques ──▶ pieces of rows, in segments ──▶ sweeps, piece by piece
    (compiled)            (rows, folder)                  (sweep, messages)

A clique's rows are made and swept over in *pieces*, each a part of a file with a checksum of its own. The rows of a
clique without zeros are all assignments in order; only their weights are stored, as the maps follow from row numbers.
Pieces are collected in *segments*: a file that is synced to disk, then a record of its pieces and of the point at which
to resume. A killed process thus loses at most one segment's work.

Unlike rows in memory, those on disk are not filtered by their parents' rows: some belong to no full assignment. They
do not affect answers, and keeping them saves a pass over the disk.
"""
