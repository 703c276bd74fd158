"""Selection of bound sources for a problem: several relaxations share the time; the best root bound comes first.

``constant`` is always present. ``local-polytope`` suits problems with costs over two or more variables, ``lp`` those
with conflicts between values. If both apply, both run, and the linear program starts from the costs that dual ascent
reparametrised.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.costly_tuples import CostlyTuples, drop_tuples_above_bound
from oocbe.bounds.estimators import constant_source, minimum_terms
from oocbe.bounds.forbidden import MOST_LITERALS, Forbidden, forbidden_sets
from oocbe.bounds.local_polytope import DualAscent
from oocbe.elimination.row_pruning.fixed_point import FixedPoint
from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.errors import TimeLimitError, UnsupportedError, ValueRangeError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.runtime.compilation import working_time
from oocbe.runtime.interruption import is_requested
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning

ASCENT_SHARE = 0.3
"""Share of the time for dual ascent if a linear program follows."""


@spanning(ELIMINATION, "bounds")
def bound_sources(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    upper_bound: int | float | None = None,
    improve: bool = False,
) -> list[BoundSource]:
    """Sources of bounds for the rows of a problem's messages, the one with the best root bound first.

    Parameters
    ----------
    problem : in the min-sum semiring.
    seconds : time limit of all sources together; building the relaxations is not counted.
    seed : of tie-breaking.
    upper_bound : only assignments strictly below it count (an incumbent's value); None: the problem's own.
    improve : let sources look for assignments, too. The bounds of a source with an ``assignment`` are valid only for
        assignments strictly better than that one: the caller must take it as incumbent.

    Returns
    -------
    list : at least the source ``constant``. If a root bound reaches the upper bound, no assignment counts, and the list
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
    problem = problem.below(limit)
    constant = constant_source(problem)
    if constant.root == math.inf:
        return [constant]
    found = [constant]
    # The sources found so far are valid when time runs out.
    with suppress(TimeLimitError):
        _improve(problem, constant, found, seconds, seed, improve)
    found.sort(key=lambda source: source.root, reverse=True)
    return [*found]


def _improve(
    problem: Problem,
    constant: BoundSource,
    found: list[BoundSource],
    seconds: float,
    seed: int,
    improve: bool,
) -> None:
    """Append bounds better than the constant, or replace it if the problem is infeasible.

    Raises
    ------
    TimeLimitError : the deadline came before all sources were tried.
    """
    deadline = working_time() + seconds
    removed = constant.removed
    conflicts: list[Conflicts] = []
    if sum(problem.sizes) <= MOST_LITERALS:
        conflicts = conflicts_of(problem, constant.fixed_point)
        if conflicts[-1].forbidden.is_empty:
            removed[:] = 1
            found[:] = [constant_source(problem)]
            return
        removed = removed | conflicts[-1].forbidden.removed
        conflicts = [c for c in conflicts if _has_rows(problem, c.forbidden)]
    else:
        constant.why += (
            f"; there is no linear program, as {sum(problem.sizes):,} values of variables are more than the "
            f"{MOST_LITERALS:,} whose conflicts it can take"
        )
    if any(len(f.scope) >= 2 for f in problem.functions):
        share = (deadline - working_time()) * (ASCENT_SHARE if conflicts else 1)
        ascended = _ascended(problem, constant.fixed_point, removed, share, True)
        if ascended is not None:
            found.append(ascended)
            removed = ascended.removed
    for number, c in enumerate(conflicts):
        if is_requested():
            break
        left = (deadline - working_time()) / (len(conflicts) - number)
        linear = _linear(problem, c, constant, removed, left, seed, improve)
        if linear is not None:
            found.append(linear)
            if linear.root >= max(source.root for source in found):
                break


@dataclass(frozen=True)
class Conflicts:
    """Forbidden sets that include costly tuples, and the problem with these tuples capped.

    Attributes
    ----------
    capped : the problem; costly tuples cost no more than the costliest other tuple. costly : these tuples.
    forbidden : sets of literals that assignments cannot contain, and the costly tuples.
    """

    capped: Problem
    costly: CostlyTuples
    forbidden: Forbidden


def conflicts_of(problem: Problem, fixed_point: FixedPoint) -> list[Conflicts]:
    """Inputs of the linear programs: with costly tuples as conflicts, if there are any, and without."""
    plain = Conflicts(problem, CostlyTuples(), forbidden_sets(problem))
    capped, costly = drop_tuples_above_bound(problem, fixed_point)
    return [Conflicts(capped, costly, forbidden_sets(problem, costly.sets)), plain] if costly.sets else [plain]


def _has_rows(problem: Problem, forbidden: Forbidden) -> bool:
    """Whether values of different variables conflict: otherwise a linear program adds nothing to the minima."""
    is_linear = any(c.can_bind and c.scope for c in problem.linear_constraints)
    return bool(forbidden.between.any()) or bool(forbidden.larger) or is_linear


def _ascended(
    problem: Problem,
    fixed_point: FixedPoint,
    removed: NDArray[np.uint8],
    seconds: float,
    with_constraints: bool,
) -> BoundSource | None:
    """The source named ``local-polytope``; None if its sums overflow 64-bit integers."""
    ascent = DualAscent(problem, fixed_point, removed, with_constraints)
    ascent.run(seconds)
    try:
        terms = ascent.terms()
        source = BoundSource("local-polytope", "", problem, fixed_point, terms, ascent.removed)
    except ValueRangeError:
        return None
    source.why = f"{ascent.passes} passes of dual ascent over the functions give {source.root} at the root"
    return source


def _linear(
    problem: Problem,
    conflicts: Conflicts,
    constant: BoundSource,
    removed: NDArray[np.uint8],
    seconds: float,
    seed: int,
    improve: bool,
) -> BoundSource | None:
    """The source named ``lp``; None if its sums overflow 64-bit integers, or without HiGHS (see ``constant.why``)."""
    try:
        # Imported late: loading takes half a second, and fails in a process that holds another copy of the solver's
        # library (as in OR-Tools).
        from oocbe.bounds.relaxation import Relaxation
    except ImportError as error:
        constant.why += f"; there is no linear program, as highspy cannot be loaded: {error}"
        return None
    begin = working_time()
    fixed_point = constant.fixed_point
    base = minimum_terms(conflicts.capped, fixed_point)
    if any(len(f.scope) >= 2 for f in problem.functions):
        soft = _ascended(conflicts.capped, fixed_point, removed, seconds * ASCENT_SHARE, False)
        base = base if soft is None else soft.terms
        removed = removed if soft is None else soft.removed
    forbidden = replace(conflicts.forbidden, removed=conflicts.forbidden.removed | removed)
    try:
        relaxation = Relaxation(problem, forbidden, fixed_point, base, seed, conflicts.costly)
        with suppress(TimeLimitError):  # the bound of the last complete round is valid
            relaxation.tighten(seconds - (working_time() - begin), problem.upper_bound, improve)
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
