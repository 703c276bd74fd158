"""A problem's factors reduced by the evidence of a case: without observed variables and impossible values."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.junction_trees.dense_factors import MOST_CELLS, DenseFactor, adds_up_to_one, dense_factor
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP
from oocbe.runtime.deadline import check_deadline

MOST_NUMBERS = 1 << 26
"""Limit of the numbers of all dense factors together, half a GiB; they are cached as long as the problem exists."""


@dataclass(frozen=True, eq=False)
class CaseFactors:
    """The factors of a problem under a case's evidence.

    kept : int64, by variable, the possible values, ascending.
    factors : over variables with two or more kept values; an axis for each variable, restricted to kept values.
    sums_to_one : by factor, a variable over which it sums to 1 for all values of the others, or None. If a factor has
        several such variables, they are matched so that each variable belongs to at most one factor.
    logarithm : of the constant divided out of the factors. order : as of :class:`WrittenFactors`.
    """

    kept: tuple[NDArray[np.int64], ...]
    factors: tuple[DenseFactor, ...]
    sums_to_one: tuple[int | None, ...]
    logarithm: float
    order: tuple[int, ...] = ()

    @property
    def hidden(self) -> list[int]:
        """Variables with two or more kept values."""
        return [v for v, values in enumerate(self.kept) if len(values) > 1]


@dataclass(frozen=True, eq=False)
class WrittenFactors:
    """All factors of a problem as dense arrays, with properties reused for factors that evidence does not change.

    sizes : of the domains. factors : including the constant, a factor without variables.
    ends : by factor, its least and its greatest weight. sums : by factor, variables over which it sums to 1.
    order : of all variables, at which a search for orders begins; empty: none is known.
    """

    sizes: tuple[int, ...]
    factors: tuple[DenseFactor, ...]
    ends: tuple[tuple[float, float], ...]
    sums: tuple[tuple[int, ...], ...]
    order: tuple[int, ...] = ()


_WRITTEN_OUT: WeakKeyDictionary[Problem, WrittenFactors | None] = WeakKeyDictionary()
"""Cache of the dense factors of problems."""


def written_out(problem: Problem) -> WrittenFactors | None:
    """All factors of a problem of weights as dense arrays; None if one of them, or all together, are too large.

    Also None if the weights of a factor exceed the range of float64; trees use logarithms for these.
    """
    if problem not in _WRITTEN_OUT:
        _WRITTEN_OUT[problem] = _written_out(problem)
    return _WRITTEN_OUT[problem]


def _written_out(problem: Problem) -> WrittenFactors | None:
    clean = without_zeros(problem)
    parts: list[Function | Constraint] = [*clean.functions, *clean.constraints]
    cells = [math.prod(clean.sizes[v] for v in part.scope) for part in parts]
    if clean.linear_constraints or max(cells, default=0) > MOST_CELLS or sum(cells) > MOST_NUMBERS:
        return None
    factors: list[DenseFactor] = []
    for part in parts:
        factor = dense_factor(clean, part)
        if factor is None:
            return None
        factors.append(factor)
    constant = clean.constant if clean.semiring == LOG_SUM_EXP else math.log(clean.constant)
    factors.append(DenseFactor((), np.ones(()), constant))
    ends = [(float(f.weights.min()), float(f.weights.max())) for f in factors]
    sums = [_sums(f.scope, f) for f in factors]
    return WrittenFactors(tuple(problem.sizes), tuple(factors), tuple(ends), tuple(sums))


def _sums(among: Sequence[int], factor: DenseFactor) -> tuple[int, ...]:
    """Those of some variables over which a factor sums to 1."""
    axes = ((factor.scope.index(v), v) for v in among if v in factor.scope)
    return tuple(v for axis, v in axes if adds_up_to_one(factor.weights, axis, factor.logarithm))


def factors_of_case(written: WrittenFactors, known: Mapping[int, NDArray[np.float64]]) -> CaseFactors | None:
    """Factors after evidence, float64 (domain size,) by variable and not all 0; None if all weights are 0."""
    check_deadline()
    kept = [np.arange(size) for size in written.sizes]
    alive = {}
    logarithm = 0.0
    own = list(written.factors)
    for v, likelihood in known.items():
        greatest = float(likelihood.max())
        logarithm += math.log(greatest)
        alive[v] = likelihood > 0
        if (likelihood[alive[v]] != greatest).any():
            own.append(DenseFactor((v,), likelihood / greatest, 0.0))
    has_zeros = [least == 0 for least, _ in written.ends] + [True] * (len(own) - len(written.factors))
    arrays = _supported([f.weights for f in own], [f.scope for f in own], has_zeros, kept, alive)
    if arrays is None:
        return None
    found: list[DenseFactor] = []
    sums: list[tuple[int, ...]] = []
    for number, (factor, array) in enumerate(zip(own, arrays, strict=True)):
        is_same = array is factor.weights
        if is_same and number < len(written.ends):
            least, greatest = written.ends[number]
        else:
            least, greatest = float(array.min()), float(array.max())
        if least == greatest:  # a constant factor
            logarithm += factor.logarithm + math.log(least)
            continue
        if not is_same:
            scope = tuple(v for v in factor.scope if len(kept[v]) > 1)
            factor = DenseFactor(scope, array.reshape([len(kept[v]) for v in scope]), factor.logarithm)
        found.append(factor)
        before = written.sums[number] if number < len(written.sums) else ()
        sums.append(before if is_same else _sums(before, factor))
    return CaseFactors(tuple(kept), tuple(found), tuple(_chosen(sums)), logarithm, written.order)


def _chosen(choices: Sequence[Sequence[int]]) -> list[int | None]:
    """One of each factor's variables, or None, and no variable twice; factors with the fewest choices come first."""
    found: list[int | None] = [None] * len(choices)
    taken: set[int] = set()
    for number in sorted(range(len(choices)), key=lambda number: len(choices[number])):
        free = [v for v in choices[number] if v not in taken]
        if free:
            found[number] = free[-1]
            taken.add(free[-1])
    return found


def _supported(
    arrays: list[NDArray[np.float64]],
    scopes: Sequence[tuple[int, ...]],
    has_zeros: Sequence[bool],
    kept: list[NDArray[np.int64]],
    alive: Mapping[int, NDArray[np.bool_]],
) -> list[NDArray[np.float64]] | None:
    """Remove values until each has support in every factor (arc consistency); None if a domain becomes empty.
    Factors without zeros (``has_zeros``) are skipped. ``kept``, of each variable, is overwritten. ``alive`` has, by
    observed variable, a mask of the possible values."""
    uses: list[list[int]] = [[] for _ in kept]
    for number, scope in enumerate(scopes):
        for v in scope:
            uses[v].append(number)
    waiting = deque(number for number, own in enumerate(has_zeros) if own)
    is_waiting = list(has_zeros)

    def take(v: int, left: NDArray[np.bool_]) -> bool:
        kept[v] = kept[v][left]
        for number in uses[v]:
            arrays[number] = arrays[number].compress(left, axis=scopes[number].index(v))
            if has_zeros[number] and not is_waiting[number]:
                is_waiting[number] = True
                waiting.append(number)
        return len(kept[v]) > 0

    for v, possible in alive.items():
        if not possible.all() and not take(v, possible):
            return None
    while waiting:
        number = waiting.popleft()
        is_waiting[number] = False
        positive: NDArray[np.bool_] = np.asarray(arrays[number] > 0)
        if positive.all():
            continue
        for axis, v in enumerate(scopes[number]):
            left: NDArray[np.bool_] = np.asarray(positive.any(axis=tuple(a for a in range(positive.ndim) if a != axis)))
            if left.all():
                continue
            if not take(v, left):
                return None
            positive = positive.compress(left, axis=axis)
        if not positive.any():
            return None
    return arrays
