"""What was known about an optimum when, and what each bucket's message took: the story of a solve in numbers."""

from __future__ import annotations

from typing import NamedTuple


class KnownAt(NamedTuple):
    """What was known of the optimum so many seconds after the problem was read; None where nothing was."""

    seconds: float
    bound: int | float | None
    value: int | float | None


class BucketDone(NamedTuple):
    """A bucket of the last elimination that ran: its variable, and rows and bytes of its message."""

    variable: str
    rows: int
    bytes: int


class Consumption(NamedTuple):
    """What an assignment takes of a linear constraint's capacity."""

    name: str
    used: int
    capacity: int


class Removed(NamedTuple):
    """What propagation took from a problem before orders were searched for."""

    values: int
    values_removed: int
    variables_fixed: int
