"""Trees whose rows are on disk: as large as that is, whatever the memory.

    order ──▶ cliques ──▶ pieces of rows, in segments ──▶ sweeps, piece by piece
    (compiled)            (rows, folder)                  (sweep, messages)

A clique's rows are made and swept over in *pieces*, each a part of a file with a checksum of its own. Where a clique
covers no zero its rows are all assignments in order, and weights alone are stored: the maps follow from a row's number.
Pieces are collected in *segments*: a file that is forced to disk, then a record of its pieces, which says how to go on
behind the last of them. So a process that is killed loses one segment's work at most.

Unlike rows in memory, those on disk are not compared with their parents': rows that no full assignment has may stay.
They add nothing to any answer, and leaving them saves a pass over the disk.
"""
