"""Bounds on the rows of a message, and the interface of their sources.

A row s of a message has a value h(s), the least cost of the functions in the message's subtree. What the functions
outside can still add is bounded from below by ``constant + Σ tables[v][s_v]``, in fixed point. A row whose sum exceeds
what an assignment better than the incumbent can cost belongs to no such assignment and goes. An additive bound is
enough for that: it is a few lookups a row, and a reparametrisation (Cooper et al. 2010, *Soft arc consistency
revisited*; the reduced costs of a linear program) has just this form.

Only assignments that count are bounded: feasible ones, with a value below ``Problem.upper_bound`` where there is one.
So a solver that knows an incumbent puts its value there, and bounds may then use whatever follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocbe.model.problem import Problem


@dataclass(frozen=True)
class RowBound:
    """Lower bound on what lies outside a message, per row of it.

    For every row s with value h(s), and every full assignment that counts and extends s:
    ``h(s) * scale + constant + sum(tables[v][s_v]) + sum(prices[c] * (what the assignment takes of c in the eliminated
    variables)) <= scale * (value of the assignment)``, where the assignment's value
    includes ``Problem.constant``. With integer costs all of this is exact in int64 and cannot overflow. With
    floating-point costs ``scale`` is 1 and ``constant`` is lowered by more than the rounding errors of the sums.

    Attributes
    ----------
    scale : a cost c counts c * scale.
    constant : what does not depend on the row.
    tables : separator variable -> int64 (or float64) (domain size,); variables left out add nothing.
    prices : linear constraint (its index) -> what a row's bound rises with a unit that its eliminated variables take of
        the constraint's capacity, beyond the least coefficient of each; at least 0, and 0 for constraints left out.
        The bound holds without that, too.
    """

    scale: int
    constant: int | float
    tables: Mapping[int, NDArray[Any]] = field(default_factory=dict)
    prices: Mapping[int, int | float] = field(default_factory=dict)


class BoundSource(Protocol):
    """Something that bounds the rows of any message of one problem.

    Attributes
    ----------
    name : what the plan calls it. why : a sentence for the plan: what it is made of, and what it says at the root.
    root : lower bound on the value of every assignment that counts, rounded up to a value that the problem can have;
        infinite where nothing counts.
    assignment : an assignment met on the way, None where there is none. Everything that the source says then holds for
        assignments strictly better than this one.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def why(self) -> str: ...  # noqa: D102
    @property
    def root(self) -> int | float: ...  # noqa: D102
    @property
    def assignment(self) -> tuple[int, ...] | None: ...  # noqa: D102

    def for_message(self, eliminated: int, separator: Sequence[int]) -> RowBound:
        """Bound the rows of a message.

        Parameters
        ----------
        eliminated : bit set of the variables eliminated in the message's subtree, the bucket's own included.
        separator : the message's variables, in any order.
        """
        ...

    def fixed_values(self, upper_bound: int | float) -> list[tuple[int, int]]:
        """Pairs (variable, value) that no assignment with a value below ``upper_bound`` has."""
        ...


@dataclass(frozen=True)
class ValueGrid:
    """The values that assignments of a problem can have: ``offset + step * k`` for integers k; step 0: any number.

    A bound between two values of the grid may be rounded up, so that a row goes as soon as its bound exceeds
    ``largest_below(incumbent)``, often by much less than the incumbent itself.
    """

    step: int
    offset: int

    @classmethod
    def of(cls, problem: Problem) -> ValueGrid:
        """The coarsest grid that holds every sum of the problem's integer costs; no grid for floating-point costs."""
        if not problem.is_integral:
            return cls(0, 0)
        known = problem.extremes
        first = np.where(known.rows > 0, known.lows, known.defaults)
        return cls(problem.value_step or 1, sum(first.tolist(), int(problem.constant)))

    def round_up(self, bound: int | float) -> int | float:
        """The least value of the grid that is not below a bound."""
        if self.step == 0 or bound == math.inf:
            return bound
        return self.offset - (self.offset - math.ceil(bound)) // self.step * self.step

    def largest_below(self, value: int | float) -> int | float:
        """The largest value of the grid strictly below a value; without a grid, the next float below."""
        if self.step == 0 or value == math.inf:
            return math.nextafter(value, -math.inf)
        return self.offset + (math.ceil(value) - 1 - self.offset) // self.step * self.step
