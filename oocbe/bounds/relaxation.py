"""The linear programming bound: cliques, larger forbidden sets, linear constraints, and rounds of cuts.

Each round solves the relaxation and adds inequalities that its point violates. The final multipliers determine the
quality of the bound, not its validity: they are rounded, and the bound is computed from them in integers
(:mod:`oocbe.elimination.row_pruning.row_bounds`).

Assignments come from fractional points: literals are taken greedily, the largest first, unless they are forbidden. Near
the optimum of a tight relaxation nearly all literals are 0 or 1, and greedy choices often settle the rest.

Local cuts are valid inequalities over small sets of literals: rank cuts and their weighted relatives. A *ball* of
conflicting literals is grown around a fractional literal. The inequality over the ball that the point violates most is
found in floating point (:func:`oocbe.bounds.kernels.cpu.local_cuts.separate`). Its weights are rounded to integers, and
its right-hand side is their exact maximum over the ball's feasible sets, so it is valid for any weights. Other literals
are lifted into it, one by one, each with its largest valid weight (Padberg 1973).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.cliques import bit_matrix, covering_cliques, violated_cliques
from oocbe.bounds.forbidden import CostlyTuples, Forbidden, Row, propagated
from oocbe.bounds.kernels.cpu.local_cuts import grow_neighbourhood, lift, pack_subproblem, separate
from oocbe.bounds.linear_program import LinearProgram
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import LARGEST, BoundSource, BoundTerms, FixedPoint
from oocbe.errors import ValueRangeError
from oocbe.kernels.cpu.buckets.outside_terms import CONSUMED, HARD, LITERAL
from oocbe.model.problem import Problem
from oocbe.runtime.compilation import working_time
from oocbe.runtime.interruption import is_requested

WORD = 64
"""Maximum number of literals of an inequality: a set of them is one machine word."""

ITERATIONS = 400
"""Iteration limit of the simplex method for one ball."""

NODE_LIMIT = 20_000
"""Node limit of one exact maximisation. A ball that needs more is given up."""

LARGEST_DENOMINATOR = 60
"""Largest denominator tried for exact weights; other weights are rounded to :data:`FALLBACK_DENOMINATOR`."""

FALLBACK_DENOMINATOR = 720
"""Denominator of weights without a simpler exact fraction: 720 has many divisors."""

LIFTED = 40
"""Maximum number of literals lifted into an inequality; those with most conflicts come first."""

LARGEST_ROOM = 2**40
"""Largest number of a linear constraint in local cuts; larger constraints enter the program as rows only."""

LEAST_BALL_VIOLATION = 1e-3
"""Minimum violation relative to the right-hand side."""

NEAR = 1e-6
"""Distance from 0 or 1 up to which a literal counts as integral."""


_Sets = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Sets of literals, and the sets with each literal, both as CSR."""


@dataclass(frozen=True)
class _Ball:
    """Literals and the forbidden sets over them, as :func:`oocbe.bounds.kernels.cpu.local_cuts.heaviest` takes them."""

    literals: NDArray[np.int64]
    adjacent: NDArray[np.uint64]
    start: NDArray[np.int64]
    hyper: NDArray[np.uint64]
    use: NDArray[np.int64]

    @property
    def sets(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Restrictions on sets of the literals, in the order of the compiled code's arguments."""
        return self.adjacent, self.start, self.hyper, self.use


def linked(
    pairs: NDArray[np.bool_],
    larger: Sequence[NDArray[np.int64]],
    is_positive: NDArray[np.bool_],
    is_less: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Positive literals with a chain of forbidden sets of such ones to a fractional one: no ball has another.

    pairs, larger : of :class:`Forbidden`. is_positive, is_less : bool (literals,), above 0, and below 1.
    """
    groups = [sets[is_positive[sets].all(axis=1)] for sets in larger]
    is_linked, new = np.zeros_like(is_positive), is_positive & is_less
    while new.any():
        is_linked |= new
        new = np.asarray(pairs[new].any(axis=0))
        for sets in groups:
            new[sets[is_linked[sets].any(axis=1)]] = True
        new &= is_positive & ~is_linked
    return np.flatnonzero(is_linked)


class LocalCuts:
    """Separation of violated inequalities over balls of literals; ``seed``: of tie-breaking between literals."""

    def __init__(self, problem: Problem, forbidden: Forbidden, seed: int) -> None:
        self._pairs = forbidden.pairs
        self._sets = forbidden.larger
        self._use, self._room = _resources(problem, forbidden)
        self._random = np.random.default_rng(seed)
        self._is_bound: NDArray[np.bool_] = np.asarray(forbidden.between.any(axis=1))
        for sets in self._sets:
            self._is_bound[sets] = True
        self._is_bound |= (self._use > 0).any(axis=0)
        self._place = np.full(len(forbidden.owner), -1, dtype=np.int64)
        self._flat = _flat(self._sets, len(forbidden.owner))

    def find(self, point: NDArray[np.float64], size: int, deadline: float) -> list[Row]:
        """Violated inequalities at a point.

        point : float64 (literals,). size : maximum literals of a ball, at most 64. deadline : on the performance
            counter.
        """
        support = linked(self._pairs, self._sets, (point > NEAR) & self._is_bound, point < 1 - NEAR)
        weight = point[support]
        seeds = np.flatnonzero(weight < 1 - NEAR)
        if len(seeds) == 0:
            return []
        place = np.full(len(point), -1, dtype=np.int64)
        place[support] = np.arange(len(support))
        placed = (place[sets] for sets in self._sets)
        links = self._links(support, [p[(p >= 0).all(axis=1)] for p in placed])
        found: dict[tuple[bytes, bytes, int], Row] = {}
        uses = np.zeros(len(support), dtype=np.int64)
        for start in self._random.permutation(seeds).tolist():
            if working_time() > deadline or is_requested():
                break
            if uses[start] >= 2:
                continue
            ball, noise = np.empty(size, dtype=np.int64), 1 + 0.3 * self._random.random(len(weight))
            ball = ball[: grow_neighbourhood(start, links, np.sqrt(weight), noise, ball)]
            row = self._cut(support[ball], point)
            if row is not None:
                found[row.key()] = row
                uses[np.isin(support, row.literals)] += 1
        return list(found.values())

    def _links(self, support: NDArray[np.int64], sets: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Strength of links between literals of the support, float64 (support, support); sets : within it, by place."""
        links = self._pairs[np.ix_(support, support)].astype(np.float64)
        for group in sets:
            for one, other in itertools.permutations(range(group.shape[1]), 2):
                np.add.at(links, (group[:, one], group[:, other]), 0.5)
        return np.minimum(links, 1.0)

    def _cut(self, ball: NDArray[np.int64], point: NDArray[np.float64]) -> Row | None:
        """The most violated inequality over a ball, lifted; None if there is none."""
        if len(ball) < 3:
            return None
        packed = self._packed(ball)
        weights = np.empty(len(ball))
        if separate(point[ball], *packed.sets, self._room, ITERATIONS, NODE_LIMIT, weights) < LEAST_BALL_VIOLATION:
            return None
        integers = integral(weights)
        keep = integers > 0
        ball, integers = ball[keep], integers[keep]
        packed = self._with_candidates(ball, integers)
        ball = packed.literals
        full = np.zeros(len(ball), dtype=np.int64)
        full[: len(integers)] = integers
        limit = int(lift(full, len(integers), *packed.sets, self._room, NODE_LIMIT))
        if limit <= 0 or float(full @ point[ball]) <= limit * (1 + LEAST_BALL_VIOLATION):
            return None
        divisor = math.gcd(*full.tolist())
        keep = full > 0
        order = np.argsort(ball[keep])
        return Row(ball[keep][order], full[keep][order] // divisor, limit // divisor, "local")

    def _with_candidates(self, ball: NDArray[np.int64], integers: NDArray[np.int64]) -> _Ball:
        """The ball, followed by candidates for lifting."""
        conflict = self._pairs[ball].T.astype(np.int64) @ integers
        conflict[ball] = 0
        room = min(WORD - len(ball), LIFTED)
        others = np.argsort(-conflict, kind="stable")[:room]
        return self._packed(np.concatenate([ball, others[conflict[others] > 0]]))

    def _packed(self, members: NDArray[np.int64]) -> _Ball:
        """Literals and the forbidden sets over them."""
        start = np.empty(len(members) + 1, dtype=np.int64)
        adjacent, hyper = pack_subproblem(members, self._pairs, *self._flat, self._place, start)
        return _Ball(members, adjacent, start, hyper, np.ascontiguousarray(self._use[:, members]))


def _flat(sets: Sequence[NDArray[np.int64]], literals: int) -> _Sets:
    """Sets of several sizes as CSR, and the sets with each literal as CSR."""
    none = np.zeros(0, dtype=np.int64)
    lengths = np.concatenate([none, *(np.full(len(group), group.shape[1]) for group in sets)])
    members = np.concatenate([none, *(group.ravel() for group in sets)])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    uses = np.bincount(members, minlength=literals)
    return starts_of(lengths), members, starts_of(uses), owner[np.argsort(members, kind="stable")]


def _resources(problem: Problem, forbidden: Forbidden) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Linear constraints as resources: int64 (constraints, literals) and (constraints,), all at least 0.

    The least coefficients of all variables are subtracted from the capacity. A constraint that these already violate is
    left out of local cuts and stays a row.
    """
    count = int(forbidden.first[-1])
    use: list[NDArray[np.int64]] = []
    room: list[int] = []
    for c in problem.linear_constraints:
        if not c.can_bind:
            continue
        left = c.capacity - c.least
        widest = max((high - low for low, high in zip(*c.ends, strict=True)), default=0)
        if not 0 <= left < LARGEST_ROOM or widest > LARGEST_ROOM:
            continue
        taken = np.zeros(count, dtype=np.int64)
        for v, own in zip(c.scope, c.coefficients, strict=True):
            taken[forbidden.first[v] : forbidden.first[v + 1]] = own - own.min()
        use.append(taken)
        room.append(left)
    return np.array(use, dtype=np.int64).reshape(len(use), count), np.array(room, dtype=np.int64)


def integral(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Weights as integers: multiplied by the least exact denominator, or rounded to a fine one."""
    for factor in range(1, LARGEST_DENOMINATOR + 1):
        scaled = weights * factor
        nearest = np.rint(scaled)
        if np.abs(scaled - nearest).max() < 1e-5 * factor:
            return np.maximum(0, nearest).astype(np.int64)
    return np.maximum(0, np.rint(weights * FALLBACK_DENOMINATOR)).astype(np.int64)


def sets_as_rows(sets: Sequence[NDArray[np.int64]], owner: NDArray[np.int64]) -> list[Row]:
    """Rows that exclude the larger forbidden sets; sets that differ in one variable's value share a row."""
    rows = []
    for group in sets:
        merged: list[tuple[tuple[int, ...], ...]]
        merged = [tuple((literal,) for literal in members) for members in group.tolist()]
        for axis in range(group.shape[1]):
            together: dict[tuple[int, tuple[tuple[int, ...], ...]], set[int]] = {}
            for axes in merged:
                rest = (int(owner[axes[axis][0]]), axes[:axis] + axes[axis + 1 :])
                together.setdefault(rest, set()).update(axes[axis])
            merged = [(*rest[:axis], tuple(sorted(own)), *rest[axis:]) for (_, rest), own in together.items()]
        rows += [Row.of([v for axes in product for v in axes], group.shape[1] - 1, "set") for product in merged]
    return rows


BALLS = (20, 32, 48)
"""Literals of a ball. The next size is tried when the last one makes little progress."""

LEAST_VIOLATION = 1e-3
"""Minimum violation of a clique, or of a row set aside, for it to be added."""

BALLS_SHARE = 0.25
"""Share of the time that one round may spend on local cuts."""

IDLE_ROUNDS = 8
"""Rows without a multiplier for this many rounds are set aside, and recalled when violated."""

IDLE_NODES = 48
"""The same for the programs of nodes, which differ more than those of rounds."""

PATIENCE = 6
"""Rounds of little progress before the next ball size is tried; after the last size, before the search ends."""

CONTRADICTION_SCALE = 2**24
"""Scale of multipliers of at most 1 in an infeasibility proof."""

CLOSED = 1e-4
"""Margin of the solver's bound beyond the largest useful value at which cutting stops: an absolute amount for integer
costs; for floats, which have any magnitude, in the solver's units of cost."""

LITTLE = 2e-4
"""Little progress in a round, relative to the bound's distance from its start."""


def row_terms(
    rows: Sequence[Row], multipliers: NDArray[np.int64], forbidden: Forbidden, costly: CostlyTuples
) -> BoundTerms:
    """Terms of rows with non-negative multipliers in fixed point.

    Rows without a multiplier are left out, as are rows whose products with it would overflow 64-bit integers.
    """
    used = np.flatnonzero(multipliers > 0)
    used = used[[rows[i].largest * int(multipliers[i]) <= LARGEST for i in used.tolist()]]
    chosen = [rows[i] for i in used.tolist()]
    factor, depends = costly.payable(chosen, multipliers[used])
    lengths = np.array([len(r.literals) for r in chosen], dtype=np.int64)
    number = np.repeat(np.arange(len(chosen)), lengths)
    none = np.zeros(0, dtype=np.int64)
    literal = np.concatenate([r.literals for r in chosen]) if chosen else none
    value = (np.concatenate([r.coefficients for r in chosen]) if chosen else none) * factor[number]
    owner, first = forbidden.owner, forbidden.first
    uses, place = np.unique(number * (len(first) - 1) + owner[literal], return_inverse=True)
    variable = uses % (len(first) - 1) if len(uses) else none
    sizes = first[variable + 1] - first[variable]
    offset = np.cumsum(sizes) - sizes
    entries = np.zeros(int(sizes.sum()), dtype=np.int64)
    entries[offset[place] + literal - first[owner[literal]]] = value
    start = np.searchsorted(uses, np.arange(len(chosen) + 1) * (len(first) - 1))
    limits = np.array([r.right_hand_side for r in chosen], dtype=np.int64)
    kind = np.where(depends, LITERAL, HARD).astype(np.uint8)
    linear = [(term, r.number, int(factor[term])) for term, r in enumerate(chosen) if r.number >= 0]
    kind[[term for term, _, _ in linear]] = CONSUMED
    return BoundTerms(start, variable, offset, entries, -factor * limits, kind, tuple(linear))


_Multipliers = tuple[float, list[Row], NDArray[np.float64]]
"""A bound in floating point, rows, and their multipliers."""

Record = Callable[[list[Row], NDArray[np.float64], bool], None]
"""Called with the rows and multipliers of each conclusion, and whether it is infeasibility."""


class NodeBound(NamedTuple):
    """The program at a node of a search.

    estimate : its optimum in floating point, infinite if no assignment counts. source : the exact bound, None without
    an optimum, or if its sums overflow 64-bit integers. point : float64 (literals,), of the optimum, or None.
    is_empty : whether infeasibility is proven.
    """

    estimate: float
    source: BoundSource | None
    point: NDArray[np.float64] | None
    is_empty: bool = False

    def reaches(self, upper_bound: int | float) -> bool:
        """Whether no assignment at the node has a value below the upper bound."""
        return self.is_empty or (self.source is not None and self.source.root >= upper_bound)


class Relaxation:
    """The linear program of a problem, tightened in rounds.

    problem : in the min-sum semiring. forbidden : its forbidden sets. fixed_point : for multipliers.
    base : soft terms of the problem's functions; their sums over values are the costs of the linear program.
    seed : of tie-breaking.
    costly : tuples that are only costly but treated as forbidden in ``forbidden``, and capped in ``base``.
    record : called with the premises of each conclusion, in order, for a certificate; or None.
    removed : uint8 (literals,), 1 for values that no assignment that counts has. cuts : number of each kind.
    rounds : number so far. rounding : of the points. is_over : whether further rounds would gain nothing.
    """

    def __init__(
        self,
        problem: Problem,
        forbidden: Forbidden,
        fixed_point: FixedPoint,
        base: BoundTerms,
        seed: int,
        costly: CostlyTuples | None = None,
        record: Record | None = None,
    ) -> None:
        self._problem, self._record, self._forbidden = problem, record, forbidden
        self._fixed_point, self._base = fixed_point, base
        self._costly = costly or CostlyTuples()
        self._grid = problem.value_grid
        self.removed = forbidden.removed.copy()
        self.cuts = {"clique": 0, "local": 0}
        self.rounds = 0
        self.is_over = False
        self._level = self._patience = 0
        self._start: float | None = None
        self._upper_bound: int | float | None = None
        base_source = BoundSource("base", "", problem, fixed_point, base, self.removed)
        costs = base_source.reduced_costs()[1] / float(fixed_point.scale)
        pairs = forbidden.pairs
        degree = pairs.sum(axis=1)
        for sets in forbidden.larger:
            degree = degree + np.bincount(sets.ravel(), minlength=len(degree))
        degree = np.where(self.removed > 0, np.iinfo(np.int64).max, degree)
        default = np.array(
            [begin + np.argmin(degree[begin:end]) for begin, end in itertools.pairwise(forbidden.first.tolist())],
            dtype=np.int64,
        )
        self.rounding = PointRounding(problem, forbidden, costs)
        self._program = LinearProgram(costs, forbidden.owner, default, self.removed)
        self._closed = CLOSED if self._grid.step else CLOSED * self._program.unit
        # Values of a variable exclude one another even without any other conflict. A default without conflicts is left
        # out of the cliques; otherwise each variable would be a redundant clique.
        is_idle = np.zeros(len(degree), dtype=bool)
        is_idle[default] = ~forbidden.between[default].any(axis=1)
        self._adjacent = bit_matrix(pairs)
        self._adjacent[is_idle] = 0
        self._adjacent &= ~bit_matrix(is_idle[None])
        self._program.add([Row.of(c, 1, "clique") for c in covering_cliques(self._adjacent)])
        # A clique of all values of a variable is trivial after the substitution of the default; the row without the
        # default is not: at most one of the other literals is true.
        others_of = [np.arange(begin, end) for begin, end in itertools.pairwise(forbidden.first.tolist())]
        others_of = [o[o != d] for o, d in zip(others_of, default.tolist(), strict=True) if not is_idle[d]]
        self._program.add([Row.of(o, 1, "clique") for o in others_of if len(o) > 1])
        self._program.add(sets_as_rows(forbidden.larger, forbidden.owner))
        numbered = [(n, c) for n, c in enumerate(problem.linear_constraints) if c.can_bind and c.scope]
        self._program.add([Row.of_linear(c, n, forbidden.first) for n, c in numbered])
        self._local = LocalCuts(problem, forbidden, seed)
        self._best: _Multipliers | None = None

    def tighten(self, seconds: float, upper_bound: int | float | None, improve: bool = False) -> None:
        """Solve and cut until the time limit, until no value below ``upper_bound`` is left, or no cut is found.

        With an upper bound, values whose reduced cost lifts the bound to it are removed. With ``improve``, assignments
        found by rounding lower it: the bound is then valid for assignments better than ``rounding.value``. A further
        call continues with the rows of the last one.
        """
        deadline = working_time() + seconds
        limits = [value for value in (upper_bound, self.rounding.value if improve else None) if value is not None]
        self._upper_bound = min(limits, default=None)
        self._program.restrict(self.removed)
        if not self.is_over and self._solve(deadline):
            self._cut(deadline, improve)
        self._tell()

    def node(self, removed: NDArray[np.uint8], seconds: float, iterations: int | None = None) -> NodeBound:
        """The bound of a node of a search: without more literals, by the rows so far.

        removed : uint8 (literals,), 1 for literals excluded at the node. seconds : limit. iterations : limit of the
        simplex method, None: none; below it the bound is an estimate.
        """
        program, source, deadline = self._program, None, working_time() + seconds
        program.restrict(removed)
        if program.solve(seconds, iterations):
            with suppress(ValueRangeError):
                source = self._source_of(program.rows, program.multipliers(), removed)
            if iterations is None:
                program.drop_idle(IDLE_NODES)
            return NodeBound(program.bound, source, program.point.copy())
        left = deadline - working_time()
        is_proven = program.is_infeasible and self._is_contradiction(program.contradiction(left), removed)
        return NodeBound(math.inf if is_proven else program.estimate, None, None, is_proven)

    def without(self, removed: NDArray[np.uint8], more: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Removed literals with more of them, and with those that conflicts exclude in consequence."""
        made = removed.copy()
        made[more] = 1
        return made if self._costly.sets else propagated(self._forbidden, made, self._forbidden.owner[more].tolist())

    def _cut(self, deadline: float, improve: bool) -> None:
        """Rounds of cuts, with growing ball sizes."""
        program, seconds = self._program, deadline - working_time()
        start = self._start = program.bound if self._start is None else self._start
        self._round(improve)
        while not (self._is_closed() or is_requested() or working_time() >= deadline):
            before = program.bound
            found = self.separate(min(deadline, working_time() + BALLS_SHARE * seconds))
            if not self._solve(deadline):
                return
            self._round(improve)
            # The bound may fall, by the solver's tolerance or after rows were set aside: that is no gain.
            if program.bound - before > LITTLE * max(0.0, program.bound - start) + 1e-9 * abs(start):
                self._patience = 0
                program.drop_idle(IDLE_ROUNDS)
                continue
            self._patience += 1
            if self._patience >= PATIENCE or not found:
                self._patience, self._level = 0, self._level + 1
                if self._remove_costly():
                    self._level = 0
                    if not self._solve(deadline):
                        return
                if self._level == len(BALLS):
                    self.is_over = True
                    return
        self.is_over = self._is_closed()

    def separate(self, deadline: float) -> int:
        """Add inequalities that the program's point violates; returns their number. They hold for all assignments.

        deadline : of the search for local cuts, on the performance counter.
        """
        program = self._program
        recalled = program.recall(LEAST_VIOLATION)
        cliques = violated_cliques(self._adjacent, program.point, LEAST_VIOLATION)
        added = program.add([Row.of(c, 1, "clique") for c in cliques])
        self.cuts["clique"] += added
        found = program.add(self._local.find(program.point, BALLS[min(self._level, len(BALLS) - 1)], deadline))
        self.cuts["local"] += found
        self.rounds += 1
        return recalled + added + found

    def _round(self, improve: bool) -> None:
        """Search for an assignment at the program's point; it becomes the upper bound."""
        if improve and self.rounding.round(self._program.point, self.removed):
            self._upper_bound = self.rounding.value

    def _is_closed(self) -> bool:
        """Whether the bound leaves no value below the upper bound."""
        if self._upper_bound is None:
            return False
        return self._program.bound > self._grid.largest_below(self._upper_bound) + self._closed

    def _tell(self) -> None:
        """Record the best multipliers."""
        if self._record is not None and self._best is not None:
            self._record(self._best[1], self._best[2], False)

    def _remove_costly(self) -> int:
        """Remove the values that no better assignment has, by the best multipliers; returns their number."""
        if self._upper_bound is None:
            return 0
        self._tell()
        first = self._forbidden.first
        removed = self.removed.copy()
        for v, value in self.source("", "").fixed_values(self._upper_bound):
            removed[int(first[v]) + value] = 1
        if not self._costly.sets:  # sets of costly tuples are possible
            removed = propagated(self._forbidden, removed)
        fresh = np.flatnonzero(removed & ~self.removed).tolist()
        self.removed = removed
        for literal in fresh:
            if not self._program.remove_value(literal):
                v = int(self._forbidden.owner[literal])
                others = np.arange(first[v], first[v + 1])
                others = others[others != literal]
                self._program.add([Row(others, np.full(len(others), -1, dtype=np.int64), -1, "taken")])
        return len(fresh)

    def _solve(self, deadline: float) -> bool:
        """Solve the program, and keep the multipliers of the best bound; False if no optimum was found.

        An infeasible program may prove that no assignment counts.
        """
        program = self._program
        if not program.solve(deadline - working_time()):
            if program.is_infeasible:
                found = program.contradiction(deadline - working_time())
                if self._is_contradiction(found, self.removed):
                    if self._record is not None:
                        self._record(list(program.rows), found, True)
                    self.removed[:] = self.is_over = True
            return False
        if self._best is None or program.bound >= self._best[0]:
            self._best = (program.bound, list(program.rows), program.multipliers())
        return True

    def _is_contradiction(self, found: NDArray[np.float64], removed: NDArray[np.uint8]) -> bool:
        """Whether rows with these multipliers prove infeasibility: hard terms of assignments that count are <= 0."""
        multipliers = np.rint(found * CONTRADICTION_SCALE).astype(np.int64)
        terms = row_terms(self._program.rows, multipliers, self._forbidden, self._costly)
        if (terms.kind == LITERAL).any():
            return False  # costly tuples are possible
        try:
            least, _ = BoundSource("", "", self._problem, self._fixed_point, terms, removed).reduced_costs()
        except ValueRangeError:
            return False
        return least > 0

    @property
    def bound(self) -> float:
        """The best optimum of the program, in floating point; -inf before the first one."""
        return -math.inf if self._best is None else self._best[0]

    @property
    def rows(self) -> list[Row]:
        """The rows of the best multipliers."""
        return [] if self._best is None else self._best[1]

    def source(self, name: str, why: str) -> BoundSource:
        """The bound of the best multipliers."""
        if self._best is None:
            return BoundSource(name, why, self._problem, self._fixed_point, self._base, self.removed)
        return self._source_of(*self._best[1:], self.removed, name, why)

    def _source_of(
        self,
        rows: Sequence[Row],
        multipliers: NDArray[np.float64],
        removed: NDArray[np.uint8],
        name: str = "",
        why: str = "",
    ) -> BoundSource:
        rounded = self._fixed_point.nearest(multipliers)
        terms = self._base.joined(row_terms(rows, rounded, self._forbidden, self._costly))
        return BoundSource(name, why, self._problem, self._fixed_point, terms, removed)


class PointRounding:
    """Rounding of points of one problem's relaxation; ``costs``: float64 (literals,), to break ties."""

    def __init__(self, problem: Problem, forbidden: Forbidden, costs: NDArray[np.float64]) -> None:
        self._problem = problem
        self._owner = forbidden.owner.tolist()
        self._first = forbidden.first.tolist()
        self._costs = costs
        self._pairs = forbidden.pairs
        self._sets_of: dict[int, list[tuple[int, ...]]] = {}
        for sets in forbidden.larger:
            for members in map(tuple, sets.tolist()):
                for literal in members:
                    self._sets_of.setdefault(literal, []).append(members)
        self._linear = [c for c in problem.linear_constraints if c.can_bind]
        self._takes: dict[int, list[tuple[int, int]]] = {}
        self._room = []
        for number, c in enumerate(self._linear):
            self._room.append(c.capacity - c.least)
            for v, own, least in zip(c.scope, c.coefficients, c.ends[0], strict=True):
                # A difference of two coefficients may need 65 bits.
                for value, amount in enumerate(own.tolist()):
                    if amount > least:
                        self._takes.setdefault(self._first[v] + value, []).append((number, amount - least))
        self.assignment: tuple[int, ...] | None = None
        self.value: int | float | None = None

    def round(self, point: NDArray[np.float64], removed: NDArray[np.uint8]) -> bool:
        """Round a point; returns whether the result is feasible and better than all earlier ones.

        point : float64 (literals,). removed : uint8 (literals,), 1 for excluded literals.
        """
        order = np.lexsort((self._costs, -np.round(point, 6))).tolist()
        blocked = removed > 0
        chosen = [-1] * len(self._problem.sizes)
        taken: set[int] = set()
        room = list(self._room)
        for literal in order:
            v = self._owner[literal]
            if chosen[v] >= 0 or blocked[literal]:
                continue
            if any(amount > room[number] for number, amount in self._takes.get(literal, ())):
                continue
            chosen[v] = literal - self._first[v]
            taken.add(literal)
            blocked |= self._pairs[literal]
            for number, amount in self._takes.get(literal, ()):
                room[number] -= amount
            for members in self._sets_of.get(literal, ()):
                missing = [other for other in members if other not in taken]
                if len(missing) == 1:
                    blocked[missing[0]] = True
        if min(chosen, default=0) < 0:
            return False
        value = self._problem.evaluate(chosen)
        if value is None or (self.value is not None and value >= self.value):
            return False
        self.assignment, self.value = tuple(chosen), value
        return True
