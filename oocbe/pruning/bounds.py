"""Which sources of bounds a problem gets: a few relaxations, each in a share of the time, the best at the root first.

``constant`` is always there. ``local-polytope`` suits problems with costs over two or more variables, ``lp`` those with
conflicts between values. Both are run where both apply; the linear program then starts from what the dual ascent
left of the costs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.problem import Problem
from oocbe.pruning.constant_bound import constant_source, minimum_terms
from oocbe.pruning.estimators import AdditiveSource, Terms
from oocbe.pruning.fixed_point import FixedPoint
from oocbe.pruning.forbidden import MOST_LITERALS, Forbidden, forbidden_sets
from oocbe.pruning.local_polytope import DualAscent
from oocbe.pruning.row_bounds import BoundSource
from oocbe.semiring import MIN_SUM

ASCENT_SHARE = 0.3
"""Share of the time for dual ascent where a linear program follows."""


def bound_sources(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    upper_bound: int | float | None = None,
    order: Sequence[int] | None = None,
    improve: bool = False,
) -> list[BoundSource]:
    """Sources of bounds for the rows of a problem's messages, the one with the best root bound first.

    Parameters
    ----------
    problem : in the min-sum semiring.
    seconds : for all sources together, not counting what it takes to write the problem out as relaxations.
    seed : of the choices between equals.
    upper_bound : only assignments strictly below it count (an incumbent's value); None: the problem's own.
    improve : let sources look for assignments, too. Where one has an ``assignment``, all that it says holds for
        assignments strictly better than that one: the caller must take it as incumbent.
    order : variables in an order along which costs are shifted, such as the reverse elimination order; None: as given.

    Returns
    -------
    list : at least the source ``constant``. Where a root bound reaches the upper bound, nothing counts: the list then
        ends there.

    Raises
    ------
    UnsupportedError : the semiring is not min-sum.
    """
    if problem.semiring != MIN_SUM:
        raise UnsupportedError(
            f"{problem.name}: bounds on rows exist for the min-sum semiring only, not for {problem.semiring}; "
            "negate the costs of a max-sum problem, or solve it without bounds"
        )
    limits = [b for b in (problem.upper_bound, upper_bound) if b is not None]
    limit = min(limits, default=None)
    problem = replace(problem, upper_bound=limit)
    sources = [constant_source(problem)]
    if sources[0].root == math.inf:
        return [*sources]
    deadline = time.perf_counter() + seconds
    forbidden = None
    if sum(problem.sizes) <= MOST_LITERALS:
        forbidden = forbidden_sets(problem)
        if forbidden.is_empty:
            sources[0].removed[:] = 1
            return [constant_source(problem)]
    has_rows = forbidden is not None and _has_rows(problem, forbidden)
    removed = sources[0].removed if forbidden is None else forbidden.removed | sources[0].removed
    fixed_point = sources[0].fixed_point
    base: Terms | None = minimum_terms(problem, fixed_point)
    if any(len(f.scope) >= 2 for f in problem.functions):
        share = seconds * (ASCENT_SHARE if has_rows else 1)
        found = _ascended(problem, fixed_point, removed, share, order, True)
        if found is not None:
            sources.append(found)
            removed = found.removed
        soft = _ascended(problem, fixed_point, removed, share, order, False) if has_rows else None
        base = soft.terms if soft is not None else base
    if has_rows and forbidden is not None and base is not None:
        forbidden = replace(forbidden, removed=removed)
        linear = _linear(
            problem, forbidden, fixed_point, base, deadline - time.perf_counter(), seed, improve, sources[0]
        )
        if linear is not None:
            sources.append(linear)
    sources.sort(key=lambda source: source.root, reverse=True)
    return [*sources]


def _has_rows(problem: Problem, forbidden: Forbidden) -> bool:
    """Whether values of different variables exclude one another, so that a linear program says more than minima."""
    own = int(sum(n * (n - 1) for n in problem.sizes))
    is_linear = any(c.can_bind and c.scope for c in problem.linear_constraints)
    return int(forbidden.pairs.sum()) > own or bool(forbidden.larger) or is_linear


def _ascended(
    problem: Problem,
    fixed_point: FixedPoint,
    removed: NDArray[np.uint8],
    seconds: float,
    order: Sequence[int] | None,
    with_constraints: bool,
) -> AdditiveSource | None:
    """The source named ``local-polytope``; None where its sums leave 64-bit integers."""
    ascent = DualAscent(problem, fixed_point, removed, with_constraints, order)
    ascent.run(seconds)
    try:
        terms = ascent.terms()
        source = AdditiveSource("local-polytope", "", problem, fixed_point, terms, ascent.removed)
    except ValueRangeError:
        return None
    source.why = f"{ascent.passes} passes of dual ascent over the functions give {source.root} at the root"
    return source


def _linear(
    problem: Problem,
    forbidden: Forbidden,
    fixed_point: FixedPoint,
    base: Terms,
    seconds: float,
    seed: int,
    improve: bool,
    constant: AdditiveSource,
) -> AdditiveSource | None:
    """The source named ``lp``; None where its sums leave 64-bit integers, or, said with ``constant``, without HiGHS."""
    try:
        # Only here: loading it takes half a second, and fails beside another copy of the solver's library (as in
        # OR-Tools) in the same process.
        from oocbe.pruning.relaxation import Relaxation
    except ImportError as error:
        constant.why += f"; there is no linear program, as highspy cannot be loaded: {error}"
        return None
    relaxation = Relaxation(problem, forbidden, fixed_point, base, seed)
    relaxation.tighten(seconds, problem.upper_bound, improve)
    try:
        source = relaxation.source("lp", "")
    except ValueRangeError:
        return None
    source.assignment = relaxation.rounding.assignment
    cuts = relaxation.cuts
    source.why = (
        f"a linear program, tightened by {cuts['clique']} cliques and {cuts['local']} local cuts in "
        f"{relaxation.rounds} rounds, gives {source.root} at the root"
        + (f"; rounding it gave an assignment worth {relaxation.rounding.value}" if source.assignment else "")
    )
    return source
