"""The bound ``constant``: each function outside a message costs at least its minimum.

It is available for every problem in the min-sum semiring. Functions over one variable are kept value by value, as they
are additive already. All other bounds start from these terms
(:class:`oocbe.elimination.row_pruning.row_bounds.BoundTerms`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import SingleValues, removed_values
from oocbe.elimination.row_pruning.row_bounds import BoundSource, BoundTerms, FixedPoint
from oocbe.kernels.cpu.buckets.outside_terms import SOFT
from oocbe.model.problem import Problem


def minimum_terms(problem: Problem, fixed_point: FixedPoint, larger: Sequence[int] | None = None) -> BoundTerms:
    """Soft terms: functions over one variable as they are, others by their minimum.

    The problem's constant is a term without variables. Zero terms are left out, as are terms of functions that permit
    no tuple: every bound holds for these.

    larger : numbers of the functions over two or more variables with a term; None: all.
    """
    single = SingleValues.of_functions(problem)
    entries = _entries(single, fixed_point)
    says_something = np.zeros(len(single.numbers), dtype=np.bool_)
    if len(entries):
        says_something = np.maximum.reduceat(entries != 0, single.starts[:-1])
    arity = np.fromiter((len(f.scope) for f in problem.functions), dtype=np.int64, count=len(problem.functions))
    least = problem.least_values
    minima = fixed_point.down(np.where(least == np.inf, 0, least))
    has_term = arity != 1
    if larger is not None:
        has_term = arity == 0
        has_term[list(larger)] = True
    others = np.flatnonzero((minima != 0) & has_term)
    # The scope is listed, with entries of 0: the term is outside a message exactly when its function is.
    scopes = [problem.functions[number].scope for number in others.tolist()]
    members = np.fromiter(itertools.chain.from_iterable(scopes), dtype=np.int64, count=int(arity[others].sum()))
    singles = int(says_something.sum())
    lengths = np.concatenate([[0], np.ones(singles, dtype=np.int64), arity[others]])
    nothing = np.zeros(max(problem.sizes, default=0) if len(members) else 0, dtype=np.int64)
    return BoundTerms(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([single.variables[says_something], members]),
        np.concatenate([single.starts[:-1][says_something], np.full(len(members), len(entries))]),
        np.concatenate([entries, nothing]),
        np.concatenate([[fixed_point.down(problem.constant)], np.zeros(singles, dtype=np.int64), minima[others]]),
        np.full(len(lengths), SOFT, dtype=np.uint8),
    )


def _entries(single: SingleValues, fixed_point: FixedPoint) -> NDArray[np.int64]:
    """Costs of unary functions in fixed point; forbidden values get the function's maximum; 0 if all are forbidden."""
    costs, permitted, begins = single.costs, single.permitted, single.starts[:-1]
    if not len(costs):
        return np.zeros(0, dtype=np.int64)
    lowest = np.iinfo(np.int64).min if costs.dtype.kind == "i" else -np.inf
    largest = np.maximum.reduceat(np.where(permitted, costs, lowest), begins)
    largest[~np.logical_or.reduceat(permitted, begins)] = 0
    return fixed_point.down(np.where(permitted, costs, np.repeat(largest, np.diff(single.starts))))


def constant_source(problem: Problem) -> BoundSource:
    """The source named ``constant``, for any problem in the min-sum semiring."""
    fixed_point = FixedPoint.of(problem)
    removed, is_empty = removed_values(problem)
    if is_empty or (problem.least_values == np.inf).any():
        removed[:] = 1
    terms = minimum_terms(problem, fixed_point)
    source = BoundSource("constant", "", problem, fixed_point, terms, removed)
    source.why = f"the functions' minima add up to {source.root}"
    return source
