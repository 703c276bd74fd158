"""The events of a solve: bounds and incumbents over time, orders tried, rows of each bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.elimination.observer import Observer
from oocbe.elimination.reformulation import Number
from oocbe.errors import OocbeError
from oocbe.execution.cluster.workers import read_by_workers, read_since
from oocbe.model.problem import Problem
from oocbe.model.results.progress_curve import BucketDone, ConstraintUse, KnownAt, Removed
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import Stopwatch
from oocbe.runtime.deadline import Deadline, unlimited

if TYPE_CHECKING:
    from oocbe.elimination.orders.order import OrderChoice
    from oocbe.elimination.plan.plan import Plan


MOST_POINTS = 2_000
"""Maximum number of points of the curve; beyond it, every second one is removed."""

PLAN_SECONDS = 0.1
"""Time limit, in seconds, to find an order after a search that needed none."""


class History:
    """Records the events of a solve, and forwards them.

    target : the receiving observer; None: there is none, and no plan is made for it.
    begin : start of the solve, from ``time.perf_counter``. problem : as given.
    """

    def __init__(self, target: Observer | None, begin: float, problem: Problem) -> None:
        self._target, self._begin, self._problem = target, begin, problem
        self._bound: Number = None
        self._value: Number = None
        self._assignment: tuple[int, ...] | None = None
        self._watch = Stopwatch()
        self._read_before = read_by_workers()
        self._known: list[KnownAt] = []
        self._buckets: list[BucketDone] = []
        self._width = self._orders = 0

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
        if target is not None and getattr(target.started, "__func__", None) is not Observer.started:
            target.started(plan())
        names = [problem.variables[v].name for v in choice.order]

        def bucket_done(number: int, rows: int, size: int) -> None:
            self._buckets.append(BucketDone(names[number - 1], rows, size))
            if target is not None:
                target.bucket_done(number, len(names), names[number - 1], rows, size)

        return bucket_done

    def bounds_changed(self, bound: Number, value: Number, why: str, assignment: tuple[int, ...] | None) -> None:
        """Record and forward the event, if a bound or value is better than those of all strategies before."""
        is_better = False
        if value is not None and self._is_less(value, self._value):
            self._value, self._assignment, is_better = value, assignment, True
        if bound is not None and (self._bound is None or self._is_less(self._bound, bound)):
            self._bound, is_better = bound, True
        if is_better:
            self._add(self._bound, self._value)
            if self._target is not None:
                self._target.bounds_changed(self._bound, self._value, why, self._assignment)

    def _is_less(self, a: int | float, b: Number) -> bool:
        """Whether a value is better than another; a bound is better than those that are less in this sense."""
        return b is None or (a > b if self._problem.sense == "max" else a < b)

    def _with_best(self, result: Result) -> Result:
        """An unproven result with a better bound or assignment that was reported before."""
        if result.status not in UNPROVEN:
            return result
        if self._assignment is not None and self._value is not None and self._is_less(self._value, result.value):
            value = self._problem.evaluate(self._assignment)
            if value is not None and self._is_less(value, result.value):
                result = replace(result, value=value, assignment=self._assignment)
        bound, value = result.bound, result.value
        if self._bound is not None and (bound is None or self._is_less(bound, self._bound)):
            bound = self._bound if value is None or self._is_less(self._bound, value) else value
        return replace(result, bound=bound)

    def _add(self, bound: Number, value: Number) -> None:
        if self._known and self._known[-1][1:] == (bound, value):
            return
        if len(self._known) >= MOST_POINTS:
            del self._known[1::2]
        self._known.append(KnownAt(round(time.perf_counter() - self._begin, 6), bound, value))

    def attach_history(self, result: Result, left: Problem, options: SolveOptions) -> Result:
        """The whole problem's result with the recorded history, which ends here; ``left``: the propagated problem."""
        result, problem = self._with_best(result), self._problem
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
            anytime=tuple(self._course(result)),
            buckets=tuple(self._buckets),
            orders_tried=self._orders,
            read_by_workers=read_since(self._read_before),
            linear=tuple(ConstraintUse(c.name, int(c.consumption(assignment or ())), c.capacity) for c in linear),
            propagation=Removed(sum(problem.sizes), sum(problem.sizes) - sum(left.sizes) - fixed, fixed),
            schedule=None if problem.day is None or assignment is None else problem.day.schedule(assignment),
        )
        if self._target is not None:
            self._target.finished(result)
        return result

    def _course(self, result: Result) -> Iterator[KnownAt]:
        """Bounds and incumbents over time, in values of the problem and the result.

        Values outside the problem's bounds are omitted. A bound beyond the value of an assignment, by rounding, is
        replaced by that value, and one beyond ``options.ub`` by that if nothing is better.
        """
        last = result.bound if result.status == "nothing-better" else result.value
        choose = min if result.sense == "min" else max
        lower, upper = self._problem.lower_bound, self._problem.upper_bound
        before: tuple[Number, Number] = None, None
        for seconds, bound, value in self._known:
            if value is not None and ((lower is not None and value <= lower) or (upper is not None and value >= upper)):
                value = None
            if bound is not None:
                bound = choose(x for x in (bound, value, last) if x is not None)
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
    import numpy as np

    from oocbe.elimination.orders.order import heuristic, is_order_file, read_order
    from oocbe.elimination.orders.primal_graph import PrimalGraph

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
