"""Several cases answered one by one, where making or sweeping over a tree's rows would take longer."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.costs import elimination_seconds
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.query_elimination.answer import QueryAnswer
from oocbe.junction_trees.query_elimination.factors import WrittenFactors
from oocbe.runtime.deadline import check_deadline


def answer_cases(
    factors: WrittenFactors, cases: Cases, targets: Sequence[int], most_seconds: float, memory: int, backend: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    None as soon as the estimated time of the remaining cases exceeds the rest of ``most_seconds``.

    Parameters
    ----------
    memory : limit in bytes. backend : ``cpu``, or ``cuda`` for large cliques.

    Raises
    ------
    TimeLimitError : the deadline passed.
    """
    if len(cases) * elimination_seconds(len(factors.factors)) > most_seconds:
        return None  # before the first case
    sizes = factors.sizes
    ends = np.cumsum([0, *(sizes[v] for v in targets)])
    found = np.zeros((len(cases), int(ends[-1])))
    logarithms = np.full(len(cases), -np.inf)
    end = time.perf_counter() + most_seconds
    for number in range(len(cases)):
        check_deadline()
        known = known_of_case(sizes, cases, number)
        if known is None:
            continue
        answer = QueryAnswer(factors, known)
        left = len(cases) - number
        if left * answer.seconds(targets, memory) > end - time.perf_counter():
            return None
        own = answer.posteriors(targets, backend)
        logarithms[number] = answer.log_evidence(backend)
        for v, first, last in zip(targets, ends, ends[1:], strict=False):
            found[number, first:last] = own[v]
    return found, logarithms


def known_of_case(sizes: Sequence[int], cases: Cases, number: int) -> dict[int, NDArray[np.float64]] | None:
    """By variable, the likelihood of its values in a case; None if it makes all values impossible."""
    known = {}
    for v in np.flatnonzero(cases.observed[number] != UNOBSERVED).tolist():
        known[v] = np.eye(sizes[v])[cases.observed[number, v]]
    for v, given in cases.likelihoods.items():
        known[v] = known.get(v, 1.0) * given[number]
    return known if all(own.any() for own in known.values()) else None
