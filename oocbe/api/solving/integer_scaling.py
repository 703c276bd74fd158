"""Sums of floats that are whole numbers of one step, as sums of integers.

Costs come as floats from arrays and files that have none but 0, 2.5 and 100.0. Sums of integers need no allowance for
rounding: a bound of 2.0001 proves 3 there and not 2.0001, linear programs are rounded up, penalties are told from
constraints, and tables hold numbers of 32 bits. Where all values are multiples of 2**-20 and their sums stay small,
floats add up exactly, and both problems are one and the same.
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
    problem : with integers, each so many steps. step : the greatest number of which all values are multiples.
    options : for it, with differences of values and upper bounds counted in steps. ub : in the options for floats.
    """

    problem: Problem
    step: float
    options: SolveOptions
    ub: int | float | None

    @classmethod
    def of(cls, problem: Problem, options: SolveOptions) -> IntegerScaling | None:
        """None for products, integers, floats without such a step or whose sums are rounded, and where time is up."""
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
        """Who is to be told about the integers, so that the observer hears of floats."""
        return _TellingFloats(observer, self.step)

    def in_floats(self, result: Result) -> Result:
        """The result of the floats from that of the integers."""
        value, bound = (None if number is None else number * self.step for number in (result.value, result.bound))
        return replace(result, value=value, bound=self.ub if result.status == "nothing-better" else bound)


def _steps(values: Any, step: float) -> NDArray[np.int64]:
    """How often a step goes into values that are multiples of it."""
    return np.asarray(np.asarray(values, dtype=np.float64) / step).astype(np.int64)


def _least_from(bound: float, step: float) -> int:
    """The least number of steps that comes to a bound: less than it is less than the bound. All sums are smaller in
    size than :data:`EXACT_SUM`."""
    return math.ceil(max(-EXACT_SUM, min(bound, EXACT_SUM)) / step)


class _TellingFloats(ForwardingObserver):
    """Tells an observer of floats what is told about steps."""

    def __init__(self, told: ForwardingObserver, step: float) -> None:
        super().__init__(told)
        self._step = step

    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        """Passed on as floats."""
        own = [None if number is None else number * self._step for number in (lower, value)]
        self._told.bounds_changed(own[0], own[1], why, assignment)
