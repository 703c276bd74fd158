"""Junction trees: a problem compiled once, queried many times.

    order ──▶ cliques ──▶ rows that are not zero ──▶ arrays ──▶ sweeps
    (elimination.orders)  (cliques)  (weights, support)  (arrays)   (programs, sweeping)

Bucket elimination answers one query. A junction tree serves many: it stores the maximal cliques of an elimination
order, connected as a tree in which the cliques of each variable form a subtree. Messages from all leaves to a root and
back calibrate it: each clique then holds the posterior of its variables given all evidence
(Lauritzen and Spiegelhalter 1988; Jensen, Lauritzen and Olesen 1990).

Cliques store only rows of nonzero weight (:mod:`oocbe.junction_trees.support`), often a small share of the cells of
the cliques: 0.76 % for water, 36 % for munin2. Maps from each row to its row of every message are stored with the rows,
so that a sweep only multiplies and adds, without searching.

Compiling and sweeping are separate: :class:`oocbe.junction_trees.compiled.CompiledTree` is immutable, a
:class:`oocbe.junction_trees.query_engine.Calibration` holds one case, and :mod:`oocbe.junction_trees.batches` sweeps
over blocks of cases. :class:`oocbe.junction_trees.tree.JunctionTree` is their public interface.
"""
