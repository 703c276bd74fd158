"""The history in a solve's result: bounds and incumbents over time, orders tried, rows of each bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from oocbe.elimination.observer import ForwardingObserver, Observer
from oocbe.elimination.orders.order import heuristic, is_order_file
from oocbe.elimination.orders.order_file import read_order
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.errors import OocbeError
from oocbe.execution.cluster.workers import read_by_workers, read_since
from oocbe.model.results.progress_curve import BucketDone, Consumption, KnownAt, Removed
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.deadline import Deadline, unlimited

if TYPE_CHECKING:
    from oocbe.elimination.orders.order_choice import OrderChoice
    from oocbe.elimination.plan.plan import Plan
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.settings.options import SolveOptions
    from oocbe.propagation.value_removal import ReducedProblem

MOST_POINTS = 2_000
"""Maximum number of points of the curve; beyond it, every second one is removed."""


PLAN_SECONDS = 0.1
"""Time limit, in seconds, to find an order after a search that needed none."""


class History(ForwardingObserver):
    """Records the events of a solve, and forwards them.

    Parameters
    ----------
    target : the receiving observer; None: there is none, and no plan is made for it.
    begin : start of the solve, from ``time.perf_counter``.
    """

    def __init__(self, target: Observer | None, begin: float) -> None:
        super().__init__(_Nobody() if target is None else target)
        self._is_heard = target is not None
        self._begin = begin
        self._watch = Stopwatch()
        self._read_before = read_by_workers()
        self._known: list[KnownAt] = []
        self._buckets: list[BucketDone] = []
        self._width = 0
        self._orders = 0

    @property
    def wants_plans(self) -> bool:
        """Whether there is a receiving observer."""
        return self._is_heard

    def order_chosen(self, choice: OrderChoice, begins: bool) -> None:
        """Record the width of an order that is likely to be used, or that an elimination uses."""
        self._width = max((len(separator) for separator in choice.separators), default=0)
        if begins:
            self._orders += 1
            self._buckets.clear()

    def started(self, plan: Plan) -> None:
        """Forward the event."""
        self._target.started(plan)

    def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
        """Record and forward the event."""
        self._buckets.append(BucketDone(variable, rows, bytes))
        self._target.bucket_done(number, total, variable, rows, bytes)

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Record and forward the event."""
        self._add(lower, value)
        self._target.bounds_changed(lower, value, why, assignment)

    def _add(self, bound: int | float | None, value: int | float | None) -> None:
        if self._known and self._known[-1][1:] == (bound, value):
            return
        if len(self._known) >= MOST_POINTS:
            del self._known[1::2]
        self._known.append(KnownAt(round(time.perf_counter() - self._begin, 6), bound, value))

    def attach_history(self, result: Result, problem: Problem, left: ReducedProblem, options: SolveOptions) -> Result:
        """The result with the recorded history, converted to the values and names of the original problem.

        Parameters
        ----------
        result : of the whole problem. problem : as given. left : the propagated problem.
        """
        if (result.bound, result.value) != (None, None):
            self._add(result.bound, result.value)
        assignment = result.assignment
        linear = () if assignment is None else problem.linear_constraints
        compiled = self._watch.compiled
        return replace(
            result,
            seconds={**result.seconds, **({"compiling": compiled} if compiled > 0 else {})},
            width=self.width_of(result, left.problem or left.original, options),
            notes=(*problem.notes_of_optimum, *result.notes),
            anytime=tuple(self._course(result, problem)),
            buckets=tuple(self._buckets),
            orders_tried=self._orders,
            read_by_workers=read_since(self._read_before),
            linear=tuple(Consumption(c.name, int(c.consumption(assignment or ())), c.capacity) for c in linear),
            propagation=Removed(
                sum(problem.sizes),
                left.removed,
                len(problem.variables) - len(left.variables),
            ),
            schedule=None if problem.day is None or assignment is None else problem.day.schedule(assignment),
        )

    def _course(self, result: Result, problem: Problem) -> Iterator[KnownAt]:
        """Bounds and incumbents over time, in values of the problem and the result.

        Values outside the problem's bounds are omitted. A bound beyond the value of an assignment, by rounding, is
        replaced by that value.
        """
        choose = min if result.sense == "min" else max
        lower, upper = problem.lower_bound, problem.upper_bound
        before: tuple[int | float | None, int | float | None] = None, None
        for seconds, bound, value in self._known:
            if value is not None and ((lower is not None and value <= lower) or (upper is not None and value >= upper)):
                value = None
            if bound is not None:
                bound = choose(x for x in (bound, value, result.value) if x is not None)
            if before != (bound, value):
                yield KnownAt(seconds, bound, value)
            before = bound, value

    def width_of(self, result: Result, left: Problem, options: SolveOptions) -> int:
        """The width of the result if an elimination ended, else that of the plan; see the base class."""
        if result.order:
            return result.width
        is_planned = not self._width and result.status != "interrupted"
        return max(result.width, _planned_width(left, options) if is_planned else self._width)


def _planned_width(left: Problem, options: SolveOptions) -> int:
    """Width of a quickly found order, after a search without one; 0 if none is found in time.

    It is the requested order, or else one greedy order, as comparing the rows of several takes much longer.
    """
    try:
        with unlimited(), Deadline(PLAN_SECONDS):
            graph = PrimalGraph(left)
            if is_order_file(options.order):
                order = np.array(read_order(left, options.order), dtype=np.int64)
            else:
                name = "min-fill" if options.order == "auto" else options.order
                order = heuristic(name, options.order_seconds)(graph, options.seed & 0x7FFFFFFF)
            return graph.separators(order).width
    except OocbeError:  # such as too many variables for an order; the answer remains valid
        return 0


class _Nobody(Observer):
    """An observer that ignores all events."""
