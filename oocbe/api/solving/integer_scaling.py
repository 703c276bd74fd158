"""Sums of floats that are integer multiples of one step, as sums of integers.

Costs are often floats such as 0, 2.5 and 100.0. Sums of integers need no tolerance for rounding: a bound of 2.0001
proves 3 instead of 2.0001, bounds of linear programs are rounded up, penalties are distinguished from constraints, and
tables have numbers of 32 bits. If all values are multiples of 2**-20 and their sums are small, float sums are exact,
and both problems are equivalent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.observer import ForwardingObserver
from oocbe.elimination.preparation.ranges import EXACT_SUM, FRACTION, are_fractions
from oocbe.elimination.row_pruning.dominance import applies_to
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.settings.options import SolveOptions


@dataclass(frozen=True)
class IntegerScaling:
    """A problem of floats as one of integers.

    Attributes
    ----------
    problem : with integers, in units of the step. step : the greatest common divisor of all values.
    options : for it, with differences of values and upper bounds in steps. ub : of the options for floats.
    """

    problem: Problem
    step: float
    options: SolveOptions
    ub: int | float | None

    @classmethod
    def of(cls, problem: Problem, options: SolveOptions) -> IntegerScaling | None:
        """None for products, integers, floats without such a step or with rounded sums, and after the time limit."""
        if not applies_to(problem.semiring) or not are_fractions(problem):
            return None
        common = abs(int(problem.constant / FRACTION))
        for f in problem.functions:
            common = math.gcd(common, int(np.gcd.reduce(_steps(f.values, FRACTION))), int((f.default or 0) / FRACTION))
        step = FRACTION * (common or 1)
        top, ub, gap = problem.upper_bound, options.ub, options.gap
        try:
            functions = [
                Function(
                    f.scope, f.tuples, _steps(f.values, step), None if f.default is None else int(f.default / step)
                )
                for f in problem.functions
            ]
            made = replace(
                problem,
                functions=tuple(functions),
                constant=int(problem.constant / step),
                upper_bound=None if top is None else _least_from(top, step),
            )
        except TimeLimitError:
            return None
        given = replace(
            options,
            ub=None if ub is None else _least_from(ub, step),
            gap=replace(gap, absolute=gap.absolute / step),
        )
        return cls(made, step, given, ub)

    def telling(self, observer: ForwardingObserver) -> ForwardingObserver:
        """An observer of the integer problem that converts to floats for the given observer."""
        return _TellingFloats(observer, self.step)

    def in_floats(self, result: Result) -> Result:
        """The result of the float problem from that of the integer problem."""
        value, bound = (None if number is None else number * self.step for number in (result.value, result.bound))
        return replace(result, value=value, bound=self.ub if result.status == "nothing-better" else bound)


def _steps(values: Any, step: float) -> NDArray[np.int64]:
    """Values in units of a step, of which they are multiples."""
    return np.asarray(np.asarray(values, dtype=np.float64) / step).astype(np.int64)


def _least_from(bound: float, step: float) -> int:
    """The least number of steps that reaches a bound: fewer steps are less than the bound. All sums are smaller in
    magnitude than :data:`EXACT_SUM`."""
    return math.ceil(max(-EXACT_SUM, min(bound, EXACT_SUM)) / step)


class _TellingFloats(ForwardingObserver):
    """Forwards events of the integer problem to an observer of floats."""

    def __init__(self, target: ForwardingObserver, step: float) -> None:
        super().__init__(target)
        self._step = step

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Forward the event as floats."""
        own = [None if number is None else number * self._step for number in (lower, value)]
        self._target.bounds_changed(own[0], own[1], why, assignment)
