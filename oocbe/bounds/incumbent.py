"""Incumbents: feasible assignments found by tabu search with ejection.

An incumbent is an upper bound on the optimum, so rows that cannot beat it need not be stored. The search moves one
variable at a time to its cheapest value (Glover 1989). A variable with a conflict-free *safe* value gives way when a
constraint over it is violated (ejection, as in the tabu search by Vasquez and Hao 2001); other violated constraints
gain weight. See :mod:`oocbe.bounds.kernels.cpu.local_search`.

Results do not depend on the search's arithmetic: the problem evaluates each returned assignment. :func:`search_model`
converts it to the arrays of the search: strided lookups, safe values, slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.local_search import Factors, LocalSearchSettings, Model, SearchState, search
from oocbe.elimination.preparation.listed_factors import ListedFactor, harmful_slots, starts_of
from oocbe.errors import UnsupportedError
from oocbe.kernels.cpu.interpreter import interpreted
from oocbe.kernels.cpu.jit import is_ready
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import check_deadline, current, current_flag, looked


@dataclass(frozen=True)
class SearchModel:
    """A problem in the form of the local search.

    model, soft, hard : for the kernels of :mod:`oocbe.bounds.kernels.cpu.local_search`; all costs are minimised.
    constant : added to every value.
    is_infeasible : whether a factor without variables, or the unary constraints of a variable, forbid everything.
    """

    model: Model
    soft: Factors
    hard: Factors
    constant: float
    is_infeasible: bool


@dataclass
class _Collector:
    sizes: tuple[int, ...]
    sign: float
    start: NDArray[np.int64]
    unary: NDArray[np.float64]
    permitted: NDArray[np.uint8]
    constant: float = 0.0
    is_infeasible: bool = False
    soft: list[ListedFactor] = field(default_factory=list)
    hard: list[ListedFactor] = field(default_factory=list)

    def slots(self, v: int) -> slice:
        return slice(int(self.start[v]), int(self.start[v + 1]))

    def add_constraint(self, c: Constraint) -> None:
        if len(c.scope) > 1:
            listed, unlisted = (0.0, 1.0) if c.allowed else (1.0, 0.0)
            self.hard.append(ListedFactor(c.scope, c.tuples, np.full(len(c.tuples), listed), unlisted))
        elif c.scope:
            self.permitted[self.slots(c.scope[0])] &= c.to_array(self.sizes).astype(np.uint8)
        else:
            self.is_infeasible |= not c.permits(())

    def add_function(self, f: Function) -> None:
        if not f.scope:
            value = f.value_at(())
            self.is_infeasible |= value is None
            self.constant += self.sign * float(value or 0)
            return
        if len(f.scope) == 1:
            dense, feasible = f.to_array(self.sizes)
            self.unary[self.slots(f.scope[0])] += self.sign * np.where(feasible, dense, 0)
            self.permitted[self.slots(f.scope[0])] &= feasible.astype(np.uint8)
            return
        values = self.sign * f.values.astype(np.float64)
        default = self.sign * float(f.default or 0)
        if (len(values) and (values != default).any()) or default:
            self.soft.append(ListedFactor(f.scope, f.tuples, values, default, f.default is not None))
        if f.default is None:
            self.hard.append(ListedFactor(f.scope, f.tuples, np.zeros(len(values)), 1.0))

    def forbid_from(self, bound: float) -> None:
        """Turn values into hard constraints if they lift the sum to the bound with all other parts at their minima."""
        least = [
            min(float(p.values.min(initial=math.inf)), p.default if p.has_default else math.inf) for p in self.soft
        ]
        slack = bound - self.constant - sum(x for x in least if x < math.inf)
        for v in range(len(self.sizes)):
            costs = np.where(self.permitted[self.slots(v)] != 0, self.unary[self.slots(v)], np.inf)
            slack -= float(costs.min(initial=np.inf)) if np.isfinite(costs).any() else 0.0
        for part, low in zip(self.soft, least, strict=True):
            excluded = part.values - low >= slack
            default_excluded = part.has_default and part.default - low >= slack
            if slack > 0 and (excluded.any() or default_excluded):
                self.hard.append(
                    ListedFactor(part.scope, part.tuples, excluded.astype(np.float64), float(default_excluded))
                )
                part.values = np.where(excluded, low, part.values)
                part.default = low if default_excluded else part.default

    def promote(self, frugal: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Turn soft parts into hard ones if giving way is always cheaper; returns each variable's safe value, or -1.

        A value is safe if no hard part forbids a tuple with it, and no other value of its variable consumes less of any
        linear constraint: the slots ``frugal``. A variable gives way only at the cost of its unary values, so it must
        be in no soft part. If every penalty of a soft part exceeds the maximum cost of giving way for some member, no
        optimal assignment pays a penalty.
        """
        candidates = [p for p in self.soft if p.default == 0 and len(p.values) and (p.values >= 0).all()]
        are_candidates = set(map(id, candidates))  # constant-time lookup: there may be thousands of parts
        rest = [p for p in self.soft if id(p) not in are_candidates]
        while True:
            check_deadline()
            safe, loss = self._safe_values([*self.hard, *candidates], rest, frugal)
            kept: list[ListedFactor] = []
            demoted: list[ListedFactor] = []
            for part in candidates:
                penalty = part.values[part.values > 0].min(initial=math.inf)
                pays = any(safe[v] >= 0 and loss[v] < penalty for v in part.scope)
                (kept if pays else demoted).append(part)
            if not demoted:
                break
            candidates, rest = kept, rest + demoted
        self.hard += [ListedFactor(p.scope, p.tuples, (p.values > 0).astype(np.float64), 0.0) for p in candidates]
        self.soft = rest
        return safe

    def _safe_values(
        self, hard: Sequence[ListedFactor], soft: Sequence[ListedFactor], frugal: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The safe value of each variable, or -1, and the maximum cost of a move to it."""
        harmful = harmful_slots(hard, self.start, self.sizes)
        in_soft = {v for part in soft for v in part.scope}
        safe = np.full(len(self.sizes), -1, dtype=np.int64)
        loss = np.zeros(len(self.sizes))
        for v in looked(range(len(self.sizes))):
            own = self.slots(v)
            permitted = self.permitted[own] != 0
            values = np.flatnonzero(~harmful[own] & permitted & frugal[own])
            if len(values) and v not in in_soft:
                safe[v] = values[self.unary[own][values].argmin()]
                loss[v] = self.unary[own][safe[v]] - self.unary[own][permitted].min()
        return safe, loss


def search_model(problem: Problem) -> SearchModel:
    """Lay a problem out for local search; its semiring must add values and select the least or greatest sum."""
    sizes = problem.sizes
    start = starts_of(sizes)
    sign = -1.0 if problem.semiring.marginalisation is Marginalisation.MAX else 1.0
    slots = int(start[-1])
    parts = _Collector(sizes, sign, start, np.zeros(slots), np.ones(slots, dtype=np.uint8), sign * problem.constant)
    for c in looked(problem.constraints):
        parts.add_constraint(c)
    for f in looked(problem.functions):
        parts.add_function(f)
    for linear in looked(problem.linear_constraints):
        parts.is_infeasible |= linear.is_impossible
    if problem.upper_bound is not None and sign > 0:
        parts.forbid_from(float(problem.upper_bound))
    linears = _lay_out_linear(problem)
    frugal = np.ones(slots, dtype=bool)
    for v in looked(range(len(sizes))):
        own = parts.slots(v)
        for use in range(int(linears[0][v]), int(linears[0][v + 1])):
            consumption = linears[3][linears[2][use] : linears[2][use] + sizes[v]]
            frugal[own] &= consumption <= consumption[parts.permitted[own] != 0].min(initial=np.inf)
    safe = parts.promote(frugal)
    soft, hard = lay_out(sizes, parts.soft), lay_out(sizes, parts.hard)
    choices = [int(parts.permitted[parts.slots(v)].sum()) for v in range(len(sizes))]
    for v in range(len(sizes)):
        if all(first[v] == first[v + 1] for first in (soft.use_start, hard.use_start, linears[0])):
            costs = np.where(parts.permitted[parts.slots(v)] != 0, parts.unary[parts.slots(v)], np.inf)
            parts.permitted[parts.slots(v)] = np.arange(sizes[v]) == costs.argmin()
            safe[v] = costs.argmin()
    capacity = np.array([float(c.capacity) for c in problem.linear_constraints])
    model = Model(start, parts.unary, parts.permitted, safe, *linears, capacity)
    return SearchModel(model, soft, hard, parts.constant, parts.is_infeasible or min(choices, default=1) == 0)


def _lay_out_linear(
    problem: Problem,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """CSR over variables: linear constraints, and the start of a variable's coefficients."""
    uses: list[list[tuple[int, int]]] = [[] for _ in problem.sizes]
    coefficients: list[NDArray[np.float64]] = []
    end = 0
    for number, linear in enumerate(problem.linear_constraints):
        for v, own in zip(linear.scope, linear.coefficients, strict=True):
            uses[v].append((number, end))
            coefficients.append(own.astype(np.float64))
            end += len(own)
    return (
        starts_of([len(u) for u in uses]),
        np.array([number for own in uses for number, _ in own], dtype=np.int64),
        np.array([at for own in uses for _, at in own], dtype=np.int64),
        np.concatenate([*coefficients, np.zeros(0)]),
    )


LARGEST_DENSE = 1 << 20
"""Maximum entries of a factor in a dense table; larger factors are searched by key."""

DENSE_ENTRIES = 1 << 26
"""Maximum total entries of the dense tables of one kind; further factors are searched by key."""

TUPLES_AT_ONCE = 1 << 19
"""Tuples written into dense tables between two deadline checks (about 0.1 s)."""

LARGEST_INDEX = 1 << 62
"""Largest index of a tuple; larger factors get random strides, and an index is a hash of the tuple."""


def lay_out(sizes: tuple[int, ...], parts: Sequence[ListedFactor]) -> Factors:
    """Lookups of factors; dense factors of one scope are merged.

    Soft parts of one scope are added. Hard parts have entries of 0 or 1, and a nonzero sum forbids a tuple if any part
    forbids it.
    """
    number_of: dict[tuple[int, ...], int] = {}
    factors: list[tuple[int, ...]] = []
    dense_size: list[int] = []
    members: list[list[ListedFactor]] = []
    total = 0
    for part in looked(parts):
        scope = tuple(sorted(part.scope))
        number = number_of.get(scope)
        if number is None:
            number = len(factors)
            entries = math.prod([sizes[v] for v in scope])
            is_dense = entries <= LARGEST_DENSE and total + entries <= DENSE_ENTRIES
            total += entries if is_dense else 0
            factors.append(scope)
            dense_size.append(entries if is_dense else 0)
            members.append([])
            if is_dense:
                number_of[scope] = number
        members[number].append(part)
    strides = [_strides(sizes, scope, size > 0) for scope, size in zip(factors, dense_size, strict=True)]
    offsets = np.cumsum([0, *dense_size])[:-1].astype(np.int64) if factors else np.zeros(0, dtype=np.int64)
    table = np.zeros(max(1, total))
    _fill_tables(members, strides, offsets, dense_size, table)
    keys: list[NDArray[np.int64]] = []
    key_values: list[NDArray[np.float64]] = []
    default = np.zeros(len(factors))
    for number, own in looked(enumerate(members)):
        if dense_size[number] == 0:
            (part,) = own
            index = _index(part, factors[number], strides[number])
            order = np.argsort(index)
            keys.append(index[order])
            key_values.append(part.values[order])
            default[number] = part.default
            offsets[number] = -1
        else:
            keys.append(np.zeros(0, dtype=np.int64))
            key_values.append(np.zeros(0))
    lengths = [len(k) for k in keys]
    arity = [len(s) for s in factors]
    scope_array = np.array([v for s in factors for v in s], dtype=np.int64)
    stride_array = np.concatenate([*strides, np.zeros(0, dtype=np.int64)])
    by_variable = np.argsort(scope_array, kind="stable")
    owner = np.repeat(np.arange(len(factors)), arity).astype(np.int64)
    return Factors(
        use_start=starts_of(np.bincount(scope_array, minlength=len(sizes))),
        use_factor=owner[by_variable],
        use_stride=stride_array[by_variable],
        scope_start=starts_of(arity),
        scope=scope_array,
        stride=stride_array,
        offset=offsets,
        table=table,
        key_start=starts_of(lengths),
        keys=np.concatenate([*keys, np.zeros(0, dtype=np.int64)]),
        key_values=np.concatenate([*key_values, np.zeros(0)]),
        default=default,
    )


def _strides(sizes: tuple[int, ...], scope: tuple[int, ...], is_dense: bool) -> NDArray[np.int64]:
    if not is_dense and math.prod([sizes[v] for v in scope]) > LARGEST_INDEX:
        return np.random.default_rng(len(scope)).integers(1, 1 << 63, size=len(scope), dtype=np.int64) | 1
    strides = [1] * len(scope)
    for place in range(1, len(scope)):
        strides[place] = strides[place - 1] * sizes[scope[place - 1]]
    return np.array(strides, dtype=np.int64)


def _index(part: ListedFactor, scope: tuple[int, ...], strides: NDArray[np.int64]) -> NDArray[np.int64]:
    stride_of = dict(zip(scope, strides.tolist(), strict=True))
    own = np.array([stride_of[v] for v in part.scope], dtype=np.int64)
    index: NDArray[np.int64] = (part.tuples * own).sum(axis=1)
    return index


def _fill_tables(
    members: list[list[ListedFactor]],
    strides: list[NDArray[np.int64]],
    offsets: NDArray[np.int64],
    dense_size: list[int],
    table: NDArray[np.float64],
) -> None:
    """Write dense factors, all parts of one arity together: a problem may have tens of thousands of small ones."""
    by_arity: dict[int, list[tuple[int, ListedFactor]]] = {}
    for number, own in enumerate(members):
        if dense_size[number]:
            for part in own:
                by_arity.setdefault(len(part.scope), []).append((number, part))
                if part.default:
                    table[offsets[number] : offsets[number] + dense_size[number]] += part.default
    for group in looked(piece for same in by_arity.values() for piece in _pieces(same)):
        numbers = [number for number, _ in group]
        stride = np.array([strides[number] for number in numbers])
        given = np.array([part.scope for _, part in group])
        rank = np.argsort(np.argsort(given, axis=1), axis=1)
        width = stride.shape[1]  # no broadcast: NumPy's buffer for short rows is a segmentation fault at a limit
        own_stride = stride.take(rank + np.repeat(np.arange(len(group)) * width, width).reshape(rank.shape))
        rows = [len(part.tuples) for _, part in group]
        tuples = np.concatenate([part.tuples for _, part in group])
        index = np.repeat(offsets[numbers], rows) + (tuples * np.repeat(own_stride, rows, axis=0)).sum(axis=1)
        values = np.concatenate([part.values for _, part in group])
        np.add.at(table, index, values - np.repeat([part.default for _, part in group], rows))


def _pieces(parts: list[tuple[int, ListedFactor]]) -> Iterator[list[tuple[int, ListedFactor]]]:
    """Batches of consecutive parts with at most :data:`TUPLES_AT_ONCE` tuples, or one part."""
    first = tuples = 0
    for place, (_, part) in enumerate(parts):
        if tuples + len(part.tuples) > TUPLES_AT_ONCE and place > first:
            yield parts[first:place]
            first, tuples = place, 0
        tuples += len(part.tuples)
    yield parts[first:]


TENURE, LEAST_TENURE, TENURE_SHARE = 40, 10, 8
"""Tabu tenure of a value that a move leaves, in iterations: a minimum (at most doubled). If most variables cannot give
way, the tenure is the average domain size, within these limits: a variable with two values would be stuck for long.
In small problems it is at most an eighth of the number of slots."""

REST_SHARE, LONGEST_REST = 4, 10
"""A moved variable is fixed for up to a quarter as many iterations as there are variables, with a limit."""

PATIENCE, PATIENCE_A_SLOT = 100, 1.5
"""Iterations without improvement before a perturbation: a number per permitted slot, and a limit."""

KICK_SHARE = 2
"""A perturbation moves at most one in this many variables; small perturbations are as frequent as large ones."""

KEPT_VARIABLES = 64
"""Minimum number of variables for keeping best moves: among fewer, a move changes those of most others."""

KEPT_SHARE = 4
"""Estimate of an iteration that keeps best moves: it visits one in this many slots. Iterations took 1/7 to 2/3 of the
time."""

CHUNK_WORK = 10_000_000
"""Slots visited in one compiled call (some hundredths of a second). Signals and limits are checked between calls."""

INTERPRETED_WORK = 50_000
"""The same of an interpreted call, which takes about 0.1 s."""

LONGEST_CHUNK = 2000
"""Maximum number of iterations of one compiled call."""

MOST_RELIEVED = 8
"""Maximum number of linear constraints for which every move's price includes the capacity that its ejections free."""


@dataclass(frozen=True)
class Incumbent:
    """A feasible assignment, a value index a variable; its value by the problem itself; its method, for reports."""

    value: int | float
    assignment: tuple[int, ...]
    method: str


def find_incumbent(problem: Problem, seconds: float, seed: int = 0, iterations: int | None = None) -> Incumbent | None:
    """Search for a good feasible assignment.

    problem : in min-sum or max-sum.
    seconds : time limit, wall time, including set-up. A compiled call is never interrupted, and one call is made
        however long set-up took, unless the limit is 0.
    seed : of every random choice. With ``iterations`` and enough time, the result is a function of the seed.
    iterations : limit on the iterations of the search; None: no limit.
    Returns Incumbent or None : None if no feasible assignment was found, which proves nothing.
    Raises UnsupportedError: the semiring does not add values and select one sum.
    """
    begin = working_time()
    found = LocalSearch(problem, seed)
    left = max(seconds - (working_time() - begin), 1e-9) if seconds > 0 else 0.0
    return found.run(left, iterations)


class LocalSearch:
    """Tabu search of one problem, which can be continued; parameters and errors as of :func:`find_incumbent`.

    best : the best assignment so far, or None. is_infeasible : whether constraints of single variables forbid all.
    """

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        semiring = problem.semiring
        if semiring.combination is not Combination.ADD or not semiring.selects:
            raise UnsupportedError(
                f"{problem.name}: incumbents are searched for in min-sum and max-sum, not {semiring}"
            )
        self._problem, self._seed, self._calls = problem, seed, 0
        self._sign = -1 if semiring.marginalisation is Marginalisation.MAX else 1
        self.best: Incumbent | None = None
        self._model = search_model(problem)
        self.is_infeasible = self._model.is_infeasible
        if problem.variables and not self.is_infeasible:
            self._state, self._settings = _initial_state(self._model)
            slots = int(self._model.model.start[-1])
            looked_at = slots // KEPT_SHARE if self._settings.keeps else slots
            self._chunk = max(1, min(LONGEST_CHUNK, CHUNK_WORK // looked_at))
            self._interpreted_chunk = max(1, min(LONGEST_CHUNK, INTERPRETED_WORK // looked_at))

    def take(self, value: int | float, assignment: Sequence[int]) -> None:
        """Continue from an assignment found elsewhere if it is better."""
        if self.best is None or self._sign * value < self._sign * self.best.value:
            self.best = Incumbent(value, tuple(assignment), "given")
            if self._problem.variables and not self.is_infeasible:
                self._state.best[:] = assignment
                self._state.totals[1] = self._sign * value - self._model.constant

    def run(self, seconds: float, iterations: int | None = None, is_interpreted: bool = False) -> Incumbent | None:
        """Continue, at least by one call unless ``seconds`` is 0; returns the best assignment so far.

        Python interprets the calls while another process compiles the search, or always with ``is_interpreted``.
        """
        begin, deadline, sign = working_time(), current(), self._sign
        if not self._problem.variables:
            self.best = self.best or self._evaluated(())
        if not self._problem.variables or self.is_infeasible:
            return self.best
        found, state = self._model, self._state
        is_compiled = deadline is None and not is_interpreted  # without a limit the result is a function of the seed
        left, is_better, is_first = math.inf if iterations is None else iterations, False, True
        while left > 0:
            is_late = working_time() - begin >= seconds or (deadline is not None and deadline.passed)
            is_late = seconds <= 0 if is_first else is_late
            if is_late:
                break
            call_seed = np.random.SeedSequence((self._seed, self._calls)).generate_state(1)[0]
            arguments = (found.model, found.soft, found.hard, state, self._settings, call_seed)
            is_compiled = is_compiled or (not is_interpreted and is_ready(search, *arguments, 1, current_flag()))
            steps = int(min(self._chunk if is_compiled else self._interpreted_chunk, left))
            left -= steps
            with np.errstate(over="ignore", invalid="ignore"):  # as compiled
                is_better |= bool((search if is_compiled else interpreted(search))(*arguments, steps, current_flag()))
            self._calls, is_first = self._calls + 1, False
        candidate = self._evaluated(tuple(state.best.tolist())) if is_better else None
        if candidate is not None and (self.best is None or sign * candidate.value < sign * self.best.value):
            self.best = candidate
        return self.best

    def _evaluated(self, assignment: tuple[int, ...]) -> Incumbent | None:
        value = self._problem.evaluate(assignment)
        return None if value is None else Incumbent(value, assignment, "tabu search with ejection")


def _initial_state(found: SearchModel) -> tuple[SearchState, LocalSearchSettings]:
    """The initial state and the settings of the search."""
    model = found.model
    variables = len(model.start) - 1
    slots = int(model.start[-1])
    linear = len(model.capacity)
    costs = np.where(model.permitted != 0, model.unary, np.inf)
    values = np.empty(variables, dtype=np.int64)
    for v in range(variables):
        own = costs[model.start[v] : model.start[v + 1]]
        values[v] = model.safe[v] if model.safe[v] >= 0 else int(own.argmin())
    entries = (model.unary, found.soft.table, found.soft.key_values)
    spread = sum(float(np.ptp(e)) for e in entries if len(e))
    scale = spread if spread > 0 else 1.0
    hard, soft = len(found.hard.offset), len(found.soft.offset)
    state = SearchState(
        values=values,
        soft_index=np.zeros(soft, dtype=np.int64),
        hard_index=np.zeros(hard, dtype=np.int64),
        cost=np.zeros(slots),
        conflict=np.zeros(slots),
        relief=np.zeros((slots, linear if linear <= MOST_RELIEVED else 0)),
        weight=np.full(hard, scale / 4),
        violated=np.full(hard, -1, dtype=np.int64),
        violations=np.zeros(hard, dtype=np.int64),
        used=np.zeros(linear),
        multiplier=np.full(linear, scale / 50),
        tabu_until=np.zeros(slots, dtype=np.int64),
        change=np.zeros(slots),
        again=np.zeros(variables, dtype=np.int64),
        least=np.zeros((variables, 2)),
        ties=np.zeros(variables, dtype=np.int64),
        best=values.copy(),
        counts=np.zeros(3, dtype=np.int64),
        totals=np.full(3, np.inf),
    )
    gives_way = 2 * int((model.safe >= 0).sum()) >= variables
    tenure = TENURE if gives_way else min(TENURE, max(LEAST_TENURE, slots // variables))
    settings = LocalSearchSettings(
        tenure=min(tenure, max(1, slots // TENURE_SHARE)),
        rest=min(LONGEST_REST, max(1, variables // REST_SHARE)),
        patience=min(PATIENCE, int(PATIENCE_A_SLOT * model.permitted.sum())),
        kick=max(2, variables // KICK_SHARE),
        weight_step=scale / 8,
        keeps=int(linear == 0 and variables >= KEPT_VARIABLES),
    )
    return state, settings
