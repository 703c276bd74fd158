"""Numbers as text: integers of any size, and numbers without a JSON form."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Number = TypeVar("Number", int, float, int | float)
Made = TypeVar("Made")


def finite(value: Number | None) -> Number | None:
    """A number for JSON: None for infinities and NaN. Integers are finite, whatever their size."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def all_digits() -> Iterator[None]:
    """Within the block, integers of any size convert to and from text; Python's default limit is 4,300 digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


def whole_repr(made: type[Made]) -> type[Made]:
    """Class decorator, above ``@dataclass``: ``repr`` shows all digits of integers of any size."""
    limited: Callable[[object], str] = made.__repr__

    def unlimited(self: object) -> str:
        with all_digits():
            return limited(self)

    made.__repr__ = unlimited  # type: ignore[method-assign]
    return made


def digits(number: int) -> str:
    """All decimal digits of an integer of any size."""
    with all_digits():
        return str(number)
