"""Factors as dense arrays, and reduced by the evidence of a case: without observed variables and impossible values.

A variable that is no target and occurs in one factor only is *barren* if that factor sums to 1 over it for all values
of the other variables. Variable and factor can then be removed, and perhaps the factor's other variables
(Shachter 1986).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.preparation.prepare import without_zeros
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import LOG_SUM_EXP
from oocbe.runtime.deadline import check_deadline

MOST_CELLS = 1 << 20
"""Maximum number of cells of a factor that is made dense for a set of observed variables."""

ROUNDINGS = 4
"""Tolerance of the test that conditional probabilities sum to 1, in roundings of each number."""

LARGEST_LOGARITHM = 700.0
"""Largest logarithm whose exponential is computed; it is finite in float64."""


@dataclass(frozen=True, eq=False)
class DenseFactor:
    """A part as a dense array: float64 weights in [0, 1], an axis a variable, and the logarithm of their divisor."""

    scope: tuple[int, ...]
    weights: NDArray[np.float64]
    logarithm: float


LEAST_WEIGHT = 2.0**-1000
"""Smallest nonzero weight of a part relative to its greatest. Below it, a scaled weight may underflow to zero."""


def dense_factor(problem: Problem, part: Function | Constraint) -> DenseFactor | None:
    """A part's weights between 0 and 1 and their divisor's logarithm; None: some below :data:`LEAST_WEIGHT`."""
    if isinstance(part, Constraint):
        return DenseFactor(part.scope, part.to_array(problem.sizes).astype(np.float64), 0.0)
    values, feasible = part.to_array(problem.sizes)
    if not feasible.any():
        return DenseFactor(part.scope, np.zeros(values.shape), 0.0)
    if problem.semiring == LOG_SUM_EXP:
        greatest = float(values[feasible].max())
        weights, logarithm = np.where(feasible, np.exp(np.minimum(values - greatest, 0.0)), 0.0), greatest
    else:
        exponent = math.frexp(float(values[feasible].max()))[1]
        weights = np.where(feasible, np.ldexp(values.astype(np.float64), -exponent), 0.0)
        logarithm = exponent * math.log(2)
        feasible = feasible & (values != 0)
    if feasible.any() and weights[feasible].min() < LEAST_WEIGHT:
        return None
    return DenseFactor(part.scope, weights, logarithm)


def adds_up_to_one(weights: NDArray[np.float64], axis: int, logarithm: float) -> bool:
    """Whether weights, given with the logarithm of their scale, sum to 1 along an axis everywhere."""
    if abs(logarithm) > LARGEST_LOGARITHM:  # the greatest weight is between a half and 1
        return False
    sums = weights.sum(axis=axis) * math.exp(logarithm)
    margin = ROUNDINGS * weights.shape[axis] * float(np.finfo(np.float64).eps)
    return bool((np.abs(sums - 1.0) <= margin).all())


def relevant(
    scopes: Sequence[Collection[int]],
    factors: Iterable[int],
    asked: Collection[int],
    sums_to_one: Callable[[int, int], bool],
) -> tuple[set[int], list[int]]:
    """The factors that remain without barren variables, and these variables in order of their removal.

    scopes : variables of each factor. factors : numbers of the present factors. asked : variables to keep.
    sums_to_one : whether a factor, given by number, sums to 1 over a variable for all values of its others.
    """
    left = set(factors)
    uses: dict[int, set[int]] = {}
    for f in left:
        for v in scopes[f]:
            uses.setdefault(v, set()).add(f)
    gone: list[int] = []
    waiting = [v for v, own in uses.items() if len(own) == 1 and v not in asked]
    while waiting:
        v = waiting.pop()
        if len(uses[v]) != 1:
            continue
        (f,) = uses[v]
        if not sums_to_one(f, v):
            continue
        left.discard(f)
        gone.append(v)
        for u in scopes[f]:
            uses[u].discard(f)
            if u != v and len(uses[u]) == 1 and u not in asked:
                waiting.append(u)
    return left, gone


def components(scopes: Sequence[Collection[int]], factors: Iterable[int]) -> list[set[int]]:
    """Connected components of factors that share variables; each factor has a variable."""
    above: dict[int, int] = {}  # union-find: by variable, its parent; a root is its own

    def top(v: int) -> int:
        while above.setdefault(v, v) != v:
            above[v] = above[above[v]]
            v = above[v]
        return v

    known = sorted(factors)
    for f in known:
        first, *others = scopes[f]
        for v in others:
            above[top(v)] = top(first)
    found: dict[int, set[int]] = {}
    for f in known:
        found.setdefault(top(next(iter(scopes[f]))), set()).add(f)
    return list(found.values())


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
