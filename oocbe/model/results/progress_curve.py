"""The course of a solve: bound and value over time, size of each bucket's message, effect of propagation, rows read."""

from __future__ import annotations

from typing import NamedTuple


class KnownAt(NamedTuple):
    """Bound and value of the optimum ``seconds`` after reading the problem; None: not yet known."""

    seconds: float
    bound: int | float | None
    value: int | float | None


class SolverShare(NamedTuple):
    """Time and gain of one solver of a search with bounds.

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


class ConstraintUse(NamedTuple):
    """Consumption of a linear constraint's capacity by an assignment."""

    name: str
    used: int
    capacity: int


class PresolveStep(NamedTuple):
    """An entry of the presolve stack, with its removals; a negative number is an increase.

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


_UNITS = ((10**9, "billion "), (10**6, "million "), (10**3, "thousand "))
"""Units for displaying row counts, and their names."""


class RowsRead(NamedTuple):
    """Rows read by workers, repeated reads too, and those of them that another worker of the cluster had written."""

    rows: int = 0
    changed_owner: int = 0

    def and_also(self, other: RowsRead) -> RowsRead:
        """Sum of both."""
        return RowsRead(self.rows + other.rows, self.changed_owner + other.changed_owner)

    def without(self, other: RowsRead) -> RowsRead:
        """Difference to an earlier count."""
        return RowsRead(self.rows - other.rows, self.changed_owner - other.changed_owner)

    @property
    def summary(self) -> str:
        """Both numbers for display; empty if nothing was read."""
        if not self.rows:
            return ""
        size, unit = next(((size, unit) for size, unit in _UNITS if self.rows >= size), (1, ""))
        changed, rows = (f"{count / size:.1f}" if size > 1 else f"{count}" for count in (self.changed_owner, self.rows))
        share = self.changed_owner / self.rows
        return f"{changed} of {rows} {unit}rows read by workers had been written by another one ({share:.0%})"


NOTHING_READ = RowsRead()
"""No rows."""
