"""Local search for assignments, as a solver in a portfolio, and on a thread of its own beside elimination.

:func:`offer_dive` finds a first assignment without compiled loops: it removes values without support after each
decision. Local search rarely satisfies hundreds of hard tables, such as those of a pedigree, and the loops of
depth-first search take seconds to compile. NumPy propagates a table in some hundredths of a millisecond, and few
decisions fail.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.errors import OocbeError, TimeLimitError
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, check_deadline, looked, unlimited
from oocbe.runtime.memory import is_want_of_memory
from oocbe.search.subsolver import SharedBounds, SubSolver

if TYPE_CHECKING:
    from oocbe.bounds.incumbent import Incumbent, LocalSearch

MOST_FAILURES = 100
"""Maximum number of refuted decisions. Pedigrees, grids and set covers took less than ten."""

MOST_SECONDS = 0.3
"""Time limit of a dive, also after a signal, where no deadline holds: 12,600 clauses of three literals took 50 s."""


class Dive:
    """Depth-first search for a feasible assignment, the most constrained variable and its cheapest value first."""

    def __init__(self, tables: ScopeTables) -> None:
        self._tables, starts = tables, starts_of(tables.problem.sizes)
        self._state = np.zeros(int(starts[-1]))  # 0, or infinity for a removed value
        self._own = np.split(self._state, starts[1:-1])
        self._left = np.diff(starts)
        self._cells = [np.where(part.permitted, part.values - part.least, np.inf) for part in tables.parts]
        self._amounts = [np.concatenate(c.coefficients) for c in tables.linear]
        self._slots = [np.concatenate([np.arange(*starts[v : v + 2]) for v in c.scope]) for c in tables.linear]
        self._scopes = [*(part.scope for part in tables.parts), *(c.scope for c in tables.linear)]
        self._uses: list[list[int]] = [[] for _ in self._own]
        for number, scope in enumerate(self._scopes):
            for v in scope:
                self._uses[v].append(number)
        self._weight = np.array([len(uses) + 1e-9 for uses in self._uses]) + tables.influence
        self._least: list[dict[int, NDArray[np.float64]]] = [{} for _ in self._scopes]
        self._trail: list[tuple[int, NDArray[np.float64]]] = []
        self._end = time.monotonic() + MOST_SECONDS

    def run(self) -> tuple[int, ...] | None:
        """A feasible assignment; None if none was found. Raises TimeLimitError: the deadline came."""
        decisions: list[tuple[int, int, int]] = []
        failures, is_consistent = 0, self._propagate(range(len(self._scopes)))
        while is_consistent and (self._left > 1).any():
            v = int(np.where(self._left > 1, self._left / self._weight, np.inf).argmin())
            costs = self._own[v] + sum(self._least[number].get(v, 0.0) for number in self._uses[v])
            left = np.flatnonzero(self._own[v] == 0)  # costs may be older than these, and all infinite
            value = int(left[costs[left].argmin()])
            decisions.append((len(self._trail), v, value))
            self._keep(v, np.arange(len(costs)) == value)
            while not (is_consistent := self._propagate(self._uses[v])) and decisions and failures < MOST_FAILURES:
                mark, v, value = decisions.pop()
                failures += 1
                while len(self._trail) > mark:
                    changed, before = self._trail.pop()
                    self._own[changed][:], self._left[changed] = before, np.count_nonzero(before == 0)
                self._keep(v, np.arange(len(self._own[v])) != value)
        found = tuple(int(own.argmin()) for own in self._own)
        return found if is_consistent and self._tables.evaluate(found) is not None else None

    def _keep(self, v: int, kept: NDArray[np.bool_]) -> bool:
        """Remove the other values of a variable; returns whether it had any."""
        own = self._own[v]
        before, own[~kept] = own.copy(), np.inf
        left = np.count_nonzero(own == 0)
        if is_changed := bool(left < self._left[v]):
            self._trail.append((v, before))
            self._left[v] = left
        return is_changed

    def _propagate(self, numbers: Iterable[int]) -> bool:
        """Remove values without support, from some constraints on; whether each variable has a value left, in time."""
        waiting = dict.fromkeys(numbers)
        while waiting:
            check_deadline()
            number = next(iter(waiting))
            scope = self._scopes[number]
            changed = [v for v, kept in zip(scope, self._supported(number, scope), strict=True) if self._keep(v, kept)]
            if not self._left[list(scope)].all() or time.monotonic() > self._end:
                self._weight[list(scope)] += 1
                return False
            waiting |= dict.fromkeys(use for v in changed for use in self._uses[v])
            del waiting[number]
        return True

    def _supported(self, number: int, scope: tuple[int, ...]) -> list[NDArray[np.bool_]]:
        """For each variable of a constraint, the values that some tuple has, or that fit with the cheapest others."""
        if number < len(self._cells):
            cells, axes = self._cells[number], range(len(scope))
            for axis, v in enumerate(scope):
                cells = cells + self._own[v].reshape([-1 if other == axis else 1 for other in axes])
            least = [cells.min(axis=tuple(other for other in axes if other != axis)) for axis in axes]
            self._least[number] = dict(zip(scope, least, strict=True))
            return [own < np.inf for own in least]
        number -= len(self._cells)
        linear = self._tables.linear[number]
        starts = starts_of([len(column) for column in linear.coefficients])
        amounts = self._state[self._slots[number]] + self._amounts[number]
        low = np.minimum.reduceat(amounts, starts[:-1])
        return np.split(amounts - np.repeat(low, np.diff(starts)) <= linear.capacity - low.sum(), starts[1:-1])


def offer_dive(known: SharedBounds) -> None:
    """Offer the assignment of a dive, if it finds one. Raises TimeLimitError: the deadline came."""
    tables = ScopeTables.of(known.problem, keeps_linear=True)
    found = None if tables is None else Dive(tables).run()
    if found is not None and (value := known.problem.evaluate(found)) is not None:
        known.offer(value, found, "a dive")


def offer_greedy(known: SharedBounds) -> None:
    """Offer cheap values without conflicts among them, the variable with the most to save first.

    Each variable needs a value without any conflict, such as "none" of photographs and schedules. A value that takes
    more of a linear constraint than another is left out.

    known : of the problem; updated.
    Raises TimeLimitError: the deadline came.
    """
    problem = known.problem
    costs = [np.zeros(size) for size in problem.sizes]
    conflicts = [np.zeros(size, dtype=np.bool_) for size in problem.sizes]
    uses: list[list[tuple[int, Constraint]]] = [[] for _ in problem.sizes]
    for f in looked(problem.functions):
        if len(f.scope) == 1:
            values, feasible = f.to_array(problem.sizes)
            costs[f.scope[0]] += np.where(feasible, values, np.inf)
    for linear in problem.linear_constraints:
        for v, taken in zip(linear.scope, linear.coefficients, strict=True):
            costs[v][taken > taken.min()] = np.inf
    for c in looked(problem.constraints):
        for place, v in enumerate(c.scope):
            conflicts[v] |= c.allowed
            conflicts[v][c.tuples[:, place]] = True
            if len(c.scope) == 1:
                costs[v][c.tuples[:, 0]] = np.inf
            uses[v].append((place, c))
    safe = [np.where(own, np.inf, cost) for own, cost in zip(conflicts, costs, strict=True)]
    if any(cost.min() == np.inf for cost in safe):
        return
    saved = [least.min() - cost.min() for least, cost in zip(safe, costs, strict=True)]
    chosen = [0] * len(saved)
    for v in looked(np.argsort(saved, kind="stable")[::-1].tolist()):
        chosen[v] = int(costs[v].argmin())
        for place, c in uses[v] if conflicts[v][chosen[v]] else ():
            met = c.tuples[c.tuples[:, place] == chosen[v]]
            for other, u in enumerate(c.scope):
                costs[u][met[:, other]] = np.inf
    if (value := problem.evaluate(chosen)) is not None:
        known.offer(value, tuple(chosen), "a greedy choice")


LAST_SECONDS, LAST_ITERATIONS = 0.2, 10_000
"""Limits of :meth:`IncumbentSearch.search_a_moment`: seconds, including the layout, and iterations."""

LAST_TUPLES, MOST_TUPLES = 20_000, 1_000_000
"""Maximum tuples of a problem whose first assignment and bound, and whose greedy choice, take less than the grace
period of a signal."""


def offer_first(known: SharedBounds) -> None:
    """Offer a first assignment and bound of a small problem, for a solve that a signal ends at its start."""
    problem = known.problem
    tuples = sum(len(f.tuples) for f in problem.functions) + sum(len(c.tuples) for c in problem.constraints)
    if known.value is None and tuples <= MOST_TUPLES:
        with unlimited(), suppress(OocbeError):  # a deadline would have passed: the signal has ended all limits
            offer_greedy(known)
    if tuples > LAST_TUPLES:
        return
    from oocbe.bounds.estimators import constant_source
    from oocbe.bounds.incumbent import LocalSearch

    with unlimited(), suppress(OocbeError):
        if known.lower is None:
            known.raise_lower(constant_source(problem).root, "constant")
        if known.value is None:
            offer_dive(known)
        if known.value is None and (found := LocalSearch(problem).run(1e-9, is_interpreted=True)) is not None:
            known.offer(found.value, found.assignment, found.method)


class IncumbentSearch(SubSolver):
    """Local search of a min-sum problem for a ``budget`` of seconds, also from better assignments of other solvers."""

    def __init__(self, problem: Problem, options: SolveOptions, known: SharedBounds) -> None:
        super().__init__(known)
        self._problem, self._seed, self.budget = problem, options.seed, options.incumbent_seconds
        self._search: LocalSearch | None = None

    @property
    def is_available(self) -> bool:
        """Whether the next step may run now."""
        return not self.is_over and self.seconds < self.budget

    def _step(self, seconds: float, deadline: Deadline) -> None:
        from oocbe.bounds.incumbent import LocalSearch  # loaded late: an easy solve does not need its loops

        known = self._known
        try:
            if self._search is None:
                self._search = LocalSearch(self._problem, self._seed)
            if known.value is not None and known.assignment is not None:
                self._search.take(known.value, known.assignment)
            found = self._search.run(max(0.0, seconds))
        except TimeLimitError:
            raise
        except OocbeError:  # local search does not support every problem
            self.is_over = True
            return
        self.is_over = self._search.is_infeasible
        if found is not None:
            known.offer(found.value, found.assignment, found.method)

    def search_a_moment(self) -> None:
        """Search briefly after the time limit if nothing is found: an assignment justifies the small delay."""
        from oocbe.bounds.incumbent import find_incumbent

        with suppress(OocbeError), Deadline(MOST_SECONDS):
            offer_greedy(self._known)
        if self._known.value is None:
            with suppress(OocbeError), Deadline(MOST_SECONDS):
                offer_dive(self._known)
        with suppress(OocbeError), Deadline(LAST_SECONDS):
            found = find_incumbent(self._problem, math.inf, self._seed, iterations=LAST_ITERATIONS)
            if found is not None:
                self._known.offer(found.value, found.assignment, found.method)


MOST_DELAY, DELAY_SHARE = 0.5, 0.1
"""Delay of the search beside elimination: at most so many seconds, and at most this share of the time left. Without a
delay it took as much processor time as eliminations that end sooner, which do not need it."""


def beside_elimination(
    problem: Callable[[], Problem], options: SolveOptions, left: float
) -> AbstractContextManager[SearchBeside | None]:
    """Local search of the min-sum problem beside elimination without bounds that time may end early; else none.

    left : seconds until the time limit.
    """
    if options.time_limit is None or options.incumbent_seconds <= 0:
        return nullcontext()
    delay = min(MOST_DELAY, left * DELAY_SHARE)
    return SearchBeside(problem(), options.incumbent_seconds, options.seed, delay)


class SearchBeside:
    """Local search on a thread, within a block that joins the thread.

    The compiled search releases the interpreter lock. Parameters as of :func:`oocbe.bounds.incumbent.find_incumbent`.
    delay : seconds before the search begins.
    """

    def __init__(self, problem: Problem, seconds: float, seed: int, delay: float = 0.0) -> None:
        # Not on the thread: without memory, Python may wait for ever for a module that two threads import.
        from oocbe.bounds.incumbent import find_incumbent

        self._search: Callable[[float], Incumbent | None] = lambda seconds: find_incumbent(problem, seconds, seed)
        self._found: Incumbent | None = None
        self._error: BaseException | None = None
        self._seconds, self._is_ended = seconds, threading.Event()
        self._begin(seconds, delay)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_ended.set()
        self._deadline.interrupt()
        self._thread.join()

    @property
    def best(self) -> Incumbent | None:
        """End the search; the best assignment, None also if it lacked memory. Programming errors are raised."""
        self.__exit__()
        error = self._error
        if error is not None and not isinstance(error, OocbeError) and not is_want_of_memory(error):
            raise error
        return self._found

    def search_briefly(self) -> None:
        """End the search; without an assignment, search once more, on a thread without the caller's limits."""
        self.__exit__()
        if self._found is None and self._error is None:
            self._is_ended.clear()
            self._begin(min(LAST_SECONDS, self._seconds), delay=0.0)
            self._thread.start()
            self._thread.join()

    def _begin(self, seconds: float, delay: float) -> None:
        with unlimited():
            self._deadline = Deadline(math.inf)  # the caller's deadline belongs to its own thread
        self._thread = threading.Thread(target=self._run, args=(seconds, delay), name="oocbe-incumbents", daemon=True)

    def _run(self, seconds: float, delay: float) -> None:
        if self._is_ended.wait(delay):
            return
        try:
            with self._deadline:
                self._found = self._search(seconds)
        except BaseException as error:
            self._error = error
