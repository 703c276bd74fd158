"""The course of a solve: bound and value over time, size of each bucket's message, effect of propagation."""

from __future__ import annotations

from typing import NamedTuple


class KnownAt(NamedTuple):
    """Bound and value of the optimum ``seconds`` after reading the problem; None: not yet known."""

    seconds: float
    bound: int | float | None
    value: int | float | None


class SolverShare(NamedTuple):
    """What one solver of a search with bounds took and gained.

    Attributes
    ----------
    name : of the solver, such as ``depth`` or ``bounds``. seconds, steps : its time, and how often it had a turn.
    raised, found : number of steps that raised the bound, and that found a better assignment.
    closed : share of the gap that its steps closed, between 0 and 1, of all that was ever open.
    """

    name: str
    seconds: float
    steps: int
    raised: int
    found: int
    closed: float


class BucketDone(NamedTuple):
    """A bucket of the last elimination: its variable, and rows and bytes of its message."""

    variable: str
    rows: int
    bytes: int


class Consumption(NamedTuple):
    """Consumption of a linear constraint's capacity by an assignment."""

    name: str
    used: int
    capacity: int


class PresolveStep(NamedTuple):
    """An entry of the presolve stack, with its removals; a negative number is an increase.

    Attributes
    ----------
    name : of the entry, such as ``propagation``. variables, values : removed variables, and values of all variables.
    functions, rows : removed functions and constraints, and listed rows of both.
    """

    name: str
    variables: int
    values: int
    functions: int
    rows: int

    def __str__(self) -> str:
        numbers = zip(self._fields[1:], self[1:], strict=True)
        return self.name + (f" ({removed})" if (removed := ", ".join(f"{n:,} {of}" for of, n in numbers if n)) else "")


class Removed(NamedTuple):
    """Reduction of a problem by propagation before the search for orders."""

    values: int
    values_removed: int
    variables_fixed: int
