"""The history in a solve's result: bounds and incumbents over time, orders tried, rows of each bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from oocbe.elimination.observer import Observer
from oocbe.elimination.orders.order import heuristic, is_order_file
from oocbe.elimination.orders.order_finders import read_order
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.reformulation import Number
from oocbe.errors import OocbeError
from oocbe.execution.cluster.workers import read_by_workers, read_since
from oocbe.model.results.progress_curve import BucketDone, Consumption, KnownAt, Removed
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.deadline import Deadline, unlimited

if TYPE_CHECKING:
    from oocbe.elimination.orders.order import OrderChoice
    from oocbe.elimination.plan.plan import Plan
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.settings.options import SolveOptions

MOST_POINTS = 2_000
"""Maximum number of points of the curve; beyond it, every second one is removed."""

PLAN_SECONDS = 0.1
"""Time limit, in seconds, to find an order after a search that needed none."""


class History:
    """Records the events of a solve, and forwards them.

    target : the receiving observer; None: there is none, and no plan is made for it.
    begin : start of the solve, from ``time.perf_counter``.
    """

    def __init__(self, target: Observer | None, begin: float) -> None:
        self._target = target
        self._begin = begin
        self._watch = Stopwatch()
        self._read_before = read_by_workers()
        self._known: list[KnownAt] = []
        self._buckets: list[BucketDone] = []
        self._width = 0
        self._orders = 0

    def order_chosen(self, choice: OrderChoice) -> None:
        """Record the width of an order that is likely to be used."""
        self._width = max((len(separator) for separator in choice.separators), default=0)

    def begin(self, problem: Problem, choice: OrderChoice, plan: Callable[[], Plan]) -> Callable[[int, int, int], None]:
        """Record and forward that an order's elimination begins; returns the callback for its buckets.

        problem : the eliminated problem. plan : computes the plan; called only if an observer receives it.
        """
        self.order_chosen(choice)
        self._orders += 1
        self._buckets.clear()
        target = self._target
        if target is not None:
            target.started(plan())
        names = [problem.variables[v].name for v in choice.order]

        def bucket_done(number: int, rows: int, size: int) -> None:
            self._buckets.append(BucketDone(names[number - 1], rows, size))
            if target is not None:
                target.bucket_done(number, len(names), names[number - 1], rows, size)

        return bucket_done

    def bounds_changed(self, bound: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
        """Record and forward the event."""
        self._add(bound, value)
        if self._target is not None:
            self._target.bounds_changed(bound, value, why, assignment)

    def _add(self, bound: Number, value: Number) -> None:
        if self._known and self._known[-1][1:] == (bound, value):
            return
        if len(self._known) >= MOST_POINTS:
            del self._known[1::2]
        self._known.append(KnownAt(round(time.perf_counter() - self._begin, 6), bound, value))

    def attach_history(self, result: Result, problem: Problem, left: Problem, options: SolveOptions) -> Result:
        """The result with the recorded history; the event of the end.

        result : of the whole problem. problem : as given. left : the propagated problem.
        """
        if (result.bound, result.value) != (None, None):
            self._add(result.bound, result.value)
        assignment = result.assignment
        linear = () if assignment is None else problem.linear_constraints
        compiled = self._watch.compiled
        fixed = len(problem.variables) - len(left.variables)
        result = replace(
            result,
            seconds={**result.seconds, **({"compiling": compiled} if compiled > 0 else {})},
            width=self.width_of(result, left, options),
            notes=(*problem.notes_of_optimum, *result.notes),
            anytime=tuple(self._course(result, problem)),
            buckets=tuple(self._buckets),
            orders_tried=self._orders,
            read_by_workers=read_since(self._read_before),
            linear=tuple(Consumption(c.name, int(c.consumption(assignment or ())), c.capacity) for c in linear),
            propagation=Removed(sum(problem.sizes), sum(problem.sizes) - sum(left.sizes) - fixed, fixed),
            schedule=None if problem.day is None or assignment is None else problem.day.schedule(assignment),
        )
        if self._target is not None:
            self._target.finished(result)
        return result

    def _course(self, result: Result, problem: Problem) -> Iterator[KnownAt]:
        """Bounds and incumbents over time, in values of the problem and the result.

        Values outside the problem's bounds are omitted. A bound beyond the value of an assignment, by rounding, is
        replaced by that value.
        """
        choose = min if result.sense == "min" else max
        lower, upper = problem.lower_bound, problem.upper_bound
        before: tuple[Number, Number] = None, None
        for seconds, bound, value in self._known:
            if value is not None and ((lower is not None and value <= lower) or (upper is not None and value >= upper)):
                value = None
            if bound is not None:
                bound = choose(x for x in (bound, value, result.value) if x is not None)
            if before != (bound, value):
                yield KnownAt(seconds, bound, value)
            before = bound, value

    def width_of(self, result: Result, left: Problem, options: SolveOptions) -> int:
        """The width of the result if an elimination ended, else that of the plan."""
        if result.order:
            return result.width
        if not self._width and result.status != "interrupted":
            self._width = _planned_width(left, options)
        return max(result.width, self._width)


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
