"""Conditional probabilities of a belief network from cases, by expectation-maximisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.formats import read
from oocbe.formats.bif import conditionals
from oocbe.formats.networks import problem_of
from oocbe.junction_trees.case_sweeps import expected_counts, functions_of
from oocbe.junction_trees.compiled import LEAST_WEIGHT, CompiledTree, assembled
from oocbe.junction_trees.evidence import Likelihoods, case_of, cases_of
from oocbe.junction_trees.tree import JunctionTree
from oocbe.junction_trees.weights import log_of
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.model.settings.option_values import parse_integer, parse_number


def fit_tables(
    network: Problem | str | Path,
    cases: Any,
    *,
    rounds: int = 100,
    tolerance: float = 1e-6,
    prior: float = 0.0,
    likelihood: Likelihoods | None = None,
    **settings: Any,
) -> tuple[Problem, NDArray[np.float64]]:
    """Fit the conditional probabilities of a belief network to cases with missing values.

    Expectation-maximisation (Dempster, Laird and Rubin 1977; Lauritzen 1995) from the network's own tables, by the
    expected counts of a junction tree. A variable that no case observes needs tables that are not uniform.

    Parameters
    ----------
    network : of max-product or sum-product, its path, or of pyAgrum or pgmpy; its functions are conditional
        probabilities, one of each variable.
    cases : as for :meth:`oocbe.JunctionTree.batch`: for example a data frame, where NaN and null are unobserved.
    rounds : most rounds. tolerance : a round that changes the log-likelihood by no more than this part is the last.
    prior : at least 0, added to each expected count. With 0, what is impossible stays so, and parents' values
        without a case keep their probabilities.
    likelihood : as for ``batch``. settings : of :class:`oocbe.JunctionTree`, such as ``memory``.

    Returns
    -------
    The network with the fitted tables, an axis for each parent and the child's last; and the log-likelihood of all
    cases under the tables before each round, and at last under those returned, float64 (rounds + 1,).

    Raises
    ------
    UnsupportedError : no belief network. UsageError : invalid cases or settings, or an impossible case. Others: as for
        a junction tree.
    """
    rounds = parse_integer("rounds", rounds)
    tolerance, prior = parse_number("tolerance", tolerance, 0), parse_number("prior", prior, 0)
    network = read(network) if isinstance(network, str | Path) else problem_of(network)
    scopes, tables = zip(*conditionals(network), strict=True)
    known, course, tree = cases_of(network, cases, likelihood), list[float](), None

    def fitted() -> Problem:
        functions = (Function.from_array(s, t, infeasible=0.0) for s, t in zip(scopes, tables, strict=True))
        return replace(network, functions=tuple(functions))

    while True:
        if tree is None:
            tree = JunctionTree(fitted(), **settings)._tree
            settings["order"] = [network.variables[v].name for v in tree.order]
        counts, logarithms = expected_counts(tree, known)
        for number in np.flatnonzero(logarithms == -np.inf)[:1].tolist():
            raise UsageError(f"{network.name}: {case_of(number)} is impossible in round {len(course)}; give a prior")
        course.append(float(logarithms.sum()))
        if len(course) > rounds or (len(course) > 1 and abs(course[-1] - course[-2]) <= tolerance * abs(course[-1])):
            return fitted(), np.array(course)
        found = [own.reshape(t.shape) + prior for own, t in zip(counts, tables, strict=True)]
        sums = [np.broadcast_to(own.sum(axis=-1, keepdims=True), own.shape) for own in found]
        pairs = zip(found, sums, tables, strict=True)
        before, tables = tables, tuple(np.divide(own, s, out=t.copy(), where=s > 0) for own, s, t in pairs)
        has_rows = not any(np.any(t[old == 0]) for t, old in zip(tables, before, strict=True))
        tree = _reweighted(tree, tables, settings.get("space") == "log") if has_rows else None


def _reweighted(tree: Any, tables: Sequence[NDArray[np.float64]], is_log: bool) -> CompiledTree | None:
    """A tree with other probabilities, 0 where it has no rows; its problem keeps the old ones. None: make it anew."""
    if not isinstance(tree, CompiledTree) or tree.problem.semiring != SUM_PRODUCT:
        return None
    factors = [log_of(table) for table in tables]
    numbers, scopes, weights = functions_of(tree), [f.scope for f in tree.problem.functions], []
    for clique, own in enumerate(tree.rows):
        parts = (factors[f][tuple(tree.values(clique, v) for v in scopes[f])] for f in numbers.get(clique, ()))
        weights.append(sum(parts, np.zeros(own.rows)))
    is_log = is_log or min(w.min(initial=0.0, where=w > -np.inf) for w in weights) < math.log(LEAST_WEIGHT)
    rows = [replace(r, weights=w if is_log else np.exp(w)) for r, w in zip(tree.rows, weights, strict=True)]
    return assembled(tree.problem, tree.order, tree.cliques, rows, 0.0, is_log)
