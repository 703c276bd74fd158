"""The course of a solve: bound and value over time, size of each bucket's message, effect of propagation."""

from __future__ import annotations

from typing import NamedTuple


class KnownAt(NamedTuple):
    """Bound and value of the optimum ``seconds`` after reading the problem; None: not yet known."""

    seconds: float
    bound: int | float | None
    value: int | float | None


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


class Removed(NamedTuple):
    """Reduction of a problem by propagation before the search for orders."""

    values: int
    values_removed: int
    variables_fixed: int
