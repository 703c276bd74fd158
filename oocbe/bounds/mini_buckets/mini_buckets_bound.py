"""Bounds on an optimum from both sides: mini-bucket elimination for one or several z, in any selecting semiring.

Maximisation is negated and products become sums of logarithms, so mini-buckets only minimise costs; results are
converted back to the problem's semiring.

The backward pass gives a greedy assignment. As in the exact one, variables are assigned against the elimination order,
each to the cheapest value of its bucket (its functions and messages). The messages are bounds only, so the assignment
need not be optimal. If constraints forbid every value of a variable, earlier choices are undone one by one (depth
first, the next best value each time; Kask and Dechter 2001). Backtracking has a step limit, and stops at the deadline:
afterwards only a pass without dead ends gives an assignment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.estimators import constant_source
from oocbe.bounds.incumbent import find_incumbent
from oocbe.bounds.mini_buckets.mini_buckets import (
    PARTITIONS,
    ULP,
    MiniBucketPass,
    MiniBuckets,
    MiniBucketShape,
    largest_fitting,
)
from oocbe.bounds.mini_buckets.mini_buckets_complete import best_of_rising, fits, shifted
from oocbe.bounds.row_tables import ScopeTables
from oocbe.elimination.buckets.assignment import values_of
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, memory_warning, message_memory
from oocbe.elimination.engine.consumption import is_tabulated
from oocbe.elimination.engine.factors import elements_of
from oocbe.elimination.narrow.narrow_problem import is_small, narrow_problem
from oocbe.elimination.observer import Observer, bucket_callback
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.orders.separators import Separators
from oocbe.elimination.preparation.logarithms import Logarithms
from oocbe.elimination.preparation.prepare import prepare, scopes_of
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.elimination.reformulation import Negation, reduce_arity
from oocbe.elimination.solution_check import check_solution
from oocbe.errors import RequestedEndError, ResourceError, TimeLimitError, UnsupportedError, UsageError
from oocbe.model.parts import LinearConstraint
from oocbe.model.problem import Problem
from oocbe.model.results.bound_result import BoundOfZ, BoundResult
from oocbe.model.semiring import MIN_SUM, Combination
from oocbe.model.settings.option_values import INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, current, unlimited
from oocbe.runtime.interruption import listening
from oocbe.runtime.process_memory import peak_memory
from oocbe.tables.layout import bits_for

AUTO = "auto"
"""In place of a z, or of a method of division: chosen automatically."""

PROBES = 16
"""Number of random probes per separator for the prediction of message rows."""


def bound(
    problem: Problem,
    options: SolveOptions,
    z: Sequence[int | str] = (AUTO,),
    partition: str = AUTO,
    cost_shifting: bool = False,
    observer: Observer | None = None,
) -> BoundResult:
    """Bound a problem's optimum from both sides by mini-bucket elimination.

    problem : the problem; ``options.semiring`` overrides its semiring, which must select.
    options : order, seed, memory, backend and limits; bounds and dominance are ignored.
    z : maximum number of variables of a mini-bucket, including the eliminated one (see
        :mod:`oocbe.bounds.mini_buckets.mini_buckets`). Several run one after the other; a z that cannot
        improve on earlier ones is skipped and noted. ``auto``: the largest z with messages predicted to fit the memory
        limit; with cost shifting in complete tables, the z with the best bound, tried upwards while the bound improves.
    partition : ``scope``, ``content``, or ``auto``: content for cost shifting in complete tables, else scope.
    cost_shifting : whether costs are shifted between mini-buckets, in complete tables where these fit.
    observer : called after every bucket (:meth:`oocbe.elimination.observer.Observer.bucket_done`).

    Returns for each z a bound and, where the backward pass found one, an assignment with its value. If the time limit
    is reached before the first z is done, z is 0, and the bound is the sum of the functions' minima. A signal gives the
    status ``interrupted`` and the entries that were done, or had proven a bound.
    Raises UsageError: an unknown partition, a z below 1, one of the options ``ub``, ``resume``, ``workdir``,
    ``piece_rows`` and ``streams``, or cost shifting in incomplete tables; UnsupportedError: a semiring that does not
    select, or negative factors; ResourceError: messages do not fit the memory limit with any given z; ValueRangeError:
    sums may overflow 64-bit integers.
    """
    begin = time.perf_counter()
    _check_options(options, z, partition)
    if cost_shifting and options.tables == INCOMPLETE:
        raise UsageError("tables: costs are shifted in complete tables; leave 'incomplete' out")
    semiring = options.semiring or problem.semiring
    problem = reduce_arity(problem.in_semiring(semiring))
    entries: list[BoundOfZ] = []
    notes: list[str] = []
    run = Bounding(problem, options, partition, cost_shifting, observer)
    with listening() as interruption, Deadline(options.time_limit) as deadline:
        order_end, is_cut_short = begin, False
        try:
            try:
                run.prepare(deadline)
            finally:
                order_end = time.perf_counter()
            _bound_with_each(run, z, deadline, entries, notes)
        except BaseException as error:
            if interruption.caused(error):
                is_cut_short = True
                notes.append(interruption.reason)
            elif isinstance(error, TimeLimitError):
                with unlimited():
                    entries.append(run.of_minima())
                notes.append(f"the bound is the sum of the functions' minima: {error}")
            else:
                raise
    return BoundResult(
        problem=problem.name,
        semiring=semiring.name,
        sense=problem.sense,
        variables=problem.variables,
        entries=tuple(entries),
        width=run.width,
        order=run.order,
        partition=run.partition,
        cost_shifting=cost_shifting,
        dtype=value_dtype(run.target, MIN_SUM).name,
        backend="cuda" if run.uses_device else "cpu",
        seconds={"order": order_end - begin, "total": time.perf_counter() - begin},
        peak_memory_bytes=peak_memory(),
        notes=(*problem.notes_of_optimum, *(() if run is None else run.notes), *notes),
        interrupted=is_cut_short,
    )


def _bound_with_each(
    run: Bounding, z: Sequence[int | str], deadline: Deadline, entries: list[BoundOfZ], notes: list[str]
) -> None:
    """Append the result of each z to the entries, and the reasons for missing results to the notes.
    Raises ResourceError if none fits, TimeLimitError if the time limit was reached before the first one was done."""
    beyond: list[tuple[int, ResourceError]] = []
    for number, wanted in enumerate(z):
        idle = _why_idle(wanted, entries, [limit for limit, _ in beyond])
        if idle:
            notes.append(f"z = {wanted} was skipped: {idle}")
            continue
        try:
            entries.append(run.automatic(deadline, notes) if wanted == AUTO else run.with_z(int(wanted), deadline))
            deadline.check_requested()  # an interrupted pass has an entry with its proven bound
        except TimeLimitError as error:
            if not entries or isinstance(error, RequestedEndError):
                raise
            notes += [f"z = {left}: {error}" for left in z[number:]]
            return
        except ResourceError as error:
            if wanted == AUTO:
                raise
            beyond.append((int(wanted), error))
            notes.append(f"z = {wanted} did not fit: {error}")
    if beyond and not entries:
        raise beyond[0][1]


def _why_idle(wanted: int | str, entries: Sequence[BoundOfZ], beyond: Sequence[int]) -> str:
    """Why a z cannot improve on earlier runs (``entries``), as others ``beyond`` memory or disk; empty if it may."""
    for entry in entries:
        if entry.status == "infeasible":
            return f"z = {entry.z} has shown that nothing is feasible"
        if entry.split_buckets == 0 and (wanted == AUTO or int(wanted) > entry.z):
            return f"z = {entry.z} divides no bucket, so larger ones change nothing"
        if entry.z == wanted:
            return "it has been run"
    too_large = [limit for limit in beyond if wanted != AUTO and int(wanted) >= limit]
    return f"z = {too_large[0]} did not fit, and it takes no less" if too_large else ""


_Passes = tuple[MiniBucketPass, tuple[int, ...] | None, str | None, float]
"""Result of a forward pass, an assignment, its method, and the end time of the forward pass."""


@dataclass
class Bounding:
    """One problem and its order, bounded with one z after the other; parameters and errors as for :func:`bound`."""

    problem: Problem
    options: SolveOptions
    partition: str
    shifting: bool
    observer: Observer | None
    order: tuple[int, ...] = ()
    width: int = 0
    uses_device: bool = False

    def __post_init__(self) -> None:
        problem, semiring = self.problem, self.problem.semiring
        if not semiring.selects:
            raise UnsupportedError(
                f"{problem.name}: mini-buckets bound an optimum, and the {semiring} semiring has none; the tasks logz "
                "and count compute sums exactly"
            )
        self.is_product = semiring.combination is Combination.MULTIPLY
        self.minimised = Logarithms.of(problem) if self.is_product else Negation.of(problem)
        self.target = self.minimised.problem
        self.relaxed = [c for c in problem.linear_constraints if c.can_bind and not is_tabulated(problem, c)]
        self.notes = [
            f"{c.name} over {len(c.scope)} variables is left out of the bound, and holds for the assignments"
            for c in self.relaxed
        ]
        self.memory = message_memory(self.options)
        self.notes += filter(None, [memory_warning(self.options)])

    def prepare(self, deadline: Deadline | None = None) -> Bounding:
        """Find an order, and build complete tables where costs are shifted in them; returns itself."""
        options = self.options
        left = math.inf if deadline is None else deadline.remaining
        search = (self.target, options.order, min(options.order_seconds, left), options.seed)
        # Bounds of a small problem gain more from the best order than its elimination in one loop saves.
        self.narrow = narrow = None if is_small(self.target) else narrow_problem(self.target, options)
        choice = narrow.choice if narrow else search_orders(*search, deadline=deadline)[0]
        self.order = choice.order
        self.width = narrow.width if narrow else max(map(len, choice.separators), default=0)
        self.tables = ScopeTables.of(self.target) if self.shifting else None
        if self.partition == AUTO:
            self.partition = "scope" if self.tables is None else "content"
        return self

    def of_minima(self) -> BoundOfZ:
        """The bound of each function's minimum, without messages or an assignment, as z = 0."""
        begin, count = time.perf_counter(), len(self.target.functions)
        done = MiniBucketPass([], constant_source(self.target).root, split=count, mini_buckets=count)
        return self._entry(0, done, None, None, begin, time.perf_counter())

    def with_z(self, z: int, deadline: Deadline) -> BoundOfZ:
        """Forward and backward pass for one z."""
        begin = time.perf_counter()
        done, assignment, method, forward_end = (
            self._at_once(z) or self._in_complete_tables(z, deadline) or self._by_rows(z, deadline)
        )
        return self._entry(z, done, assignment, method, begin, forward_end)

    def _entry(
        self,
        z: int,
        done: MiniBucketPass,
        assignment: tuple[int, ...] | None,
        method: str | None,
        begin: float,
        forward_end: float,
    ) -> BoundOfZ:
        """The outcome of a forward pass that began and ended at these times, and of a backward pass until now."""
        target = self.target
        lower = self._below(done.bound)
        end = time.perf_counter()
        value = None if assignment is None else self.problem.evaluate(assignment)
        cost = None if assignment is None else target.evaluate(assignment)
        log_value = -cost if self.is_product and cost is not None else None
        # The bound of a pass without divided buckets is the optimum, and its greedy assignment attains it.
        exact = done.split == 0 and not self.relaxed
        status = "bounded"
        if lower is None:
            status = "infeasible"
        elif assignment is not None and exact and method == "greedy":
            check_solution(target, done.value, assignment, f"mini-buckets with z = {z}")
            status = "optimal"
        elif assignment is not None and cost == lower:
            status = "optimal"
        if lower is not None and self.is_product:
            lower -= (len(target.functions) + 2) * ULP  # covers the rounding of products computed elsewhere
        own, _ = self.minimised.bounds(lower, None)
        log_bound = None if lower is None or not self.is_product else -lower
        return BoundOfZ(
            z=z,
            status=status,
            bound=own,
            incumbent=value,
            log_bound=log_bound,
            log_incumbent=log_value,
            assignment=assignment,
            method=method if assignment is not None else None,
            exact=exact,
            split_buckets=done.split,
            mini_buckets=done.mini_buckets,
            width=done.width,
            largest_message_rows=done.largest_rows,
            total_rows=done.total_rows,
            seconds={"forward": forward_end - begin, "backward": end - forward_end, "total": end - begin},
        )

    def _at_once(self, z: int) -> _Passes | None:
        """Elimination in one loop, which gives the optimum; None if the problem is not narrow, or if buckets are to be
        divided. Raises TimeLimitError if the deadline of the enclosing block came."""
        narrow = self.narrow
        if narrow is None or z <= self.width:
            return None
        found, assignment = narrow.solve()
        bound = None if found.value is None else found.value - narrow.rounding
        numbers = (0, len(narrow.order), found.width, found.largest_rows, found.total_rows)
        return MiniBucketPass([], bound, found.value, *numbers), assignment, "greedy", time.perf_counter()

    def _by_rows(self, z: int, deadline: Deadline) -> _Passes:
        options, target = self.options, self.target
        engine = engine_for(options, deadline)
        self.uses_device = engine.uses_device
        prepared = prepare(target, MIN_SUM, self.order, carries=False)
        with MessageStore(self.memory, chunk_rows=options.chunk_rows, max_disk=options.max_disk) as store:
            settings = (self.partition, options.seed, options.tables)
            done = MiniBuckets(prepared, z, store, engine, *settings).run(self._bucket_done())
            forward_end = time.perf_counter()
            buckets = {b.variable: b for b in done.buckets}
            found = self._assigned(
                done.bound, lambda v, chosen: values_of(prepared, buckets[v], chosen, (v,)), deadline
            )
        if self.shifting and done.split:
            self.notes.append(f"z = {z}: no costs were shifted, as complete tables do not fit; a lower z may be better")
        return done, *found, forward_end

    def _in_complete_tables(self, z: int, deadline: Deadline) -> _Passes | None:
        """Both passes in complete tables; None without cost shifting in complete tables, or if these do not fit."""
        if self.tables is None or not self._fits(z):
            return None
        settings = (self.memory, self.options.seed, self.partition != "scope", deadline, self._bucket_done())
        found = shifted(self.tables, self.order, z, *settings)
        forward_end, done = time.perf_counter(), found.done
        if done.bound is not None and done.split == 0:
            return None  # no bucket was divided: exact elimination is better
        self.notes.append(f"z = {z}: {found.summary}")
        return done, *self._assigned(done.bound, found.graph.costs, deadline), forward_end

    def _fits(self, z: int) -> bool:
        return self.tables is not None and fits(self.tables, self.order, z, self.memory)

    def _rank(self, entry: BoundOfZ) -> float:
        """An entry's bound for minimisation; infinite if infeasible."""
        if entry.claimed_bound is None:
            return math.inf
        return entry.claimed_bound if self.target is self.problem else -entry.claimed_bound

    def _below(self, bound: int | float | None) -> int | float | None:
        """The bound if it is below the upper bound; None if no assignment counts."""
        limit = self.target.upper_bound
        return None if bound is None or (limit is not None and bound >= limit) else bound

    def _assigned(
        self, bound: int | float | None, rate: Rate, deadline: Deadline
    ) -> tuple[tuple[int, ...] | None, str | None]:
        """An assignment and its method; none if no assignment counts."""
        if self._below(bound) is None:
            return None, None
        assignment = greedy_assignment(self.order, rate, self.relaxed)
        if assignment is None or self.target.evaluate(assignment) is None:
            return self._searched(deadline)
        return assignment, "greedy"

    def automatic(self, deadline: Deadline, notes: list[str]) -> BoundOfZ:
        """The z chosen for ``auto`` (:func:`bound`); smaller if messages do not fit."""
        if self.narrow is not None:
            return self.with_z(self.width + 1, deadline)
        scopes = scopes_of(self.target)
        z = largest_fitting(scopes, self.order, self.width, self.memory, self._predicted_bytes)
        least = max((len(s) for s in scopes), default=1)
        if z <= self.width and self._fits(least):
            entries: dict[int, BoundOfZ] = {}

            def run(z: int) -> tuple[float, float]:
                entries[z] = self.with_z(z, deadline)
                return self._rank(entries[z]), entries[z].seconds["total"]

            return entries[best_of_rising(run, self._fits, least, deadline)]
        while True:
            try:
                return self.with_z(z, deadline)
            except ResourceError as error:
                if z <= least:
                    raise
                notes.append(f"z = {z} did not fit: {error}")
                z -= 1

    @cached_property
    def _graph(self) -> PrimalGraph:
        return PrimalGraph(self.target)

    def _predicted_bytes(self, shape: MiniBucketShape) -> float:
        """Bytes of all messages and of the working copies of the largest."""
        target, separators = self.target, shape.separators
        if not separators:
            return 0.0
        sizes, sets = target.sizes, [elements_of(members) for members in separators]
        rows = self._graph.predict(Separators.of(sets), PROBES, self.options.seed)
        key_bits = [sum(bits_for(sizes[v]) for v in members) for members in sets]
        value_bytes = value_dtype(target, MIN_SUM).itemsize
        sent: list[float] = [
            r * (8 * (-(-b // 64)) + value_bytes) for r, b in zip(rows.tolist(), key_bits, strict=True)
        ]
        return sum(sent) + tuning().row_copies * max(sent)

    def _searched(self, deadline: Deadline) -> tuple[tuple[int, ...] | None, str | None]:
        """An assignment from local search, after the backward pass found none."""
        seconds = min(self.options.incumbent_seconds, deadline.remaining)
        if seconds <= 0:
            return None, None
        found = find_incumbent(self.target, seconds, self.options.seed)
        return (None, None) if found is None else (found.assignment, found.method)

    def _bucket_done(self) -> Callable[[int, int, int], None] | None:
        return None if self.observer is None else bucket_callback(self.observer, self.problem, self.order)


def _check_options(options: SolveOptions, z: Sequence[int | str], partition: str) -> None:
    """Raise :class:`UsageError` for options that :func:`bound` rejects."""
    if partition not in (AUTO, *PARTITIONS):
        raise UsageError(f"partition: {partition!r} is none of {AUTO}, {', '.join(PARTITIONS)}")
    if not z:
        raise UsageError("z: give at least one number, or auto")
    for wanted in z:
        if wanted != AUTO and (not hasattr(wanted, "__index__") or int(wanted) < 1):
            raise UsageError(f"z: {wanted!r} is neither {AUTO} nor a number of variables, at least 1")
    idle = "mini-buckets have no use for it; leave it out"
    whole = "mini-buckets are not joined in pieces; leave it out (a lower z takes less memory)"
    for name, why in (("ub", idle), ("workdir", idle), ("piece_rows", whole), ("streams", whole)):
        if getattr(options, name) is not None:
            raise UsageError(f"{name}: {why}")
    if options.resume:
        raise UsageError("resume: a run of mini-buckets is not kept, so there is nothing to resume")


STEPS, STEPS_A_VARIABLE = 2000, 20
"""Limit of assignments before the search gives up: many times that of a pass without dead ends."""

Rate = Callable[[int, dict[int, int]], "tuple[NDArray[Any], NDArray[np.bool_]]"]
"""Costs of a variable's bucket, one for each of its values, given values of all later ones, and which are feasible."""


def greedy_assignment(
    variables: Sequence[int], rate: Rate, relaxed: Sequence[LinearConstraint]
) -> tuple[int, ...] | None:
    """A value index for each variable with a bucket; None if the search gave up.

    variables : in elimination order; those without a bucket are left out. rate : see :data:`Rate`.
    relaxed : linear constraints that no table contains.
    """
    chosen: dict[int, int] = {}
    capacity = _Capacity(relaxed)
    candidates: list[list[int]] = []
    places = list(reversed(variables))
    deadline = current()
    for _ in range(STEPS + STEPS_A_VARIABLE * len(places)):
        depth = len(chosen)
        if depth == len(places):
            return tuple(chosen[v] for v in sorted(chosen))
        if len(candidates) == depth:
            v = places[depth]
            costs, feasible = rate(v, chosen)
            rated = [(costs[x], x) for x in np.flatnonzero(feasible).tolist() if capacity.allows(v, x)]
            candidates.append([value for _, value in sorted(rated, reverse=True)])
        while not candidates[-1]:
            candidates.pop()
            if not candidates or (deadline is not None and deadline.passed):
                return None
            variable = places[len(candidates) - 1]
            capacity.use(variable, chosen.pop(variable), -1)
        variable = places[len(candidates) - 1]
        chosen[variable] = candidates[-1].pop()
        capacity.use(variable, chosen[variable])
    return None


class _Capacity:
    """Remaining capacity of each linear constraint, with all open variables at their least consumption."""

    def __init__(self, constraints: Sequence[LinearConstraint]) -> None:
        self._left: list[int] = []
        self._extra: dict[int, list[tuple[int, list[int]]]] = {}
        for number, c in enumerate(constraints):
            self._left.append(c.capacity - c.least)
            for v, a, low in zip(c.scope, c.coefficients, c.ends[0], strict=True):
                self._extra.setdefault(v, []).append((number, [x - low for x in a.tolist()]))

    def allows(self, variable: int, value: int) -> bool:
        return all(extra[value] <= self._left[number] for number, extra in self._extra.get(variable, ()))

    def use(self, variable: int, value: int, times: int = 1) -> None:
        for number, extra in self._extra.get(variable, ()):
            self._left[number] -= times * extra[value]
