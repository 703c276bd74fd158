"""Junction trees: a problem compiled once, queried many times.

    order ──▶ cliques ──▶ rows that are not zero ──▶ arrays ──▶ sweeps
    (elimination.orders)  (cliques)  (weights, support)  (arrays)   (programs, sweeping)

Bucket elimination answers one question and is done. A junction tree keeps what it did: the cliques of an elimination
order, maximal ones only, with a tree between them such that the cliques of each variable are connected. Messages from
all leaves to a root and back calibrate it: each clique then knows the posterior of its variables, whatever was observed
anywhere (Lauritzen and Spiegelhalter 1988; Jensen, Lauritzen and Olesen 1990).

Cliques keep the rows alone that can have a weight (:mod:`oocbe.junction_trees.support`). Of the cells of a network's
cliques that is often a small part: 0.76 % of water's, 36 % of munin2's. With the rows come the maps from each to its
row of every message, so that a sweep multiplies and adds and searches nothing.

Compiling and sweeping are apart: :class:`oocbe.junction_trees.compiled.CompiledTree` never changes, a
:class:`oocbe.junction_trees.calibration.Calibration` holds one case, and :mod:`oocbe.junction_trees.batches` sweeps
over blocks of cases. :class:`oocbe.junction_trees.tree.JunctionTree` is what users see of them.
"""
