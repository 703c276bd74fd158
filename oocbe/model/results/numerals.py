"""Results as text and JSON: integers of any size, numbers without a JSON form, records."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from oocbe.model.parts import Variable

Number = TypeVar("Number", int, float, int | float)
Made = TypeVar("Made")


def finite(value: Number | None) -> Number | None:
    """A number for JSON: None for infinities and NaN. Integers are finite, whatever their size."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_form(value: Any) -> Any:
    """A value as JSON types: records and mappings as objects, sequences as arrays, infinities and NaN as null."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: json_form(own) for name, own in value.items()}
    if isinstance(value, tuple | list):
        return [json_form(own) for own in value]
    return finite(value)


def content(record: object, names: str) -> dict[str, Any]:
    """Attributes of a record as JSON types, by name; ``names`` : separated by spaces.

    Attributes whose names end with ``seconds``, a number or a mapping of numbers, are rounded to microseconds.
    """
    found = {name: json_form(getattr(record, name)) for name in names.split()}
    return {name: _rounded(value) if name.endswith("seconds") else value for name, value in found.items()}


def _rounded(seconds: Any) -> Any:
    if isinstance(seconds, dict):
        return {phase: round(spent, 6) for phase, spent in seconds.items()}
    return round(seconds, 6)


def labels_of(variables: Sequence[Variable], assignment: Sequence[int] | None) -> dict[str, str] | None:
    """An assignment (value indices) as value label by variable name; None without one."""
    if assignment is None:
        return None
    return {v.name: v.label(value) for v, value in zip(variables, assignment, strict=True)}


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


def logarithm_of(number: int | float | Fraction, logarithm: Callable[[float], float] = math.log) -> float:
    """Logarithm of a number's absolute value, of any size; -inf of 0. ``logarithm`` : of a float or an integer."""
    if number == 0:
        return -math.inf
    if isinstance(number, float | int):
        return logarithm(abs(number))
    above, below = abs(number.numerator), number.denominator
    shift = above.bit_length() - below.bit_length()
    if abs(shift) < 1000:
        return logarithm(above / below)
    scaled = above / (below << shift) if shift > 0 else (above << -shift) / below
    return logarithm(scaled) + shift * logarithm(2)


def digits(number: int | float | Fraction) -> str:
    """All digits of a number of any size."""
    with all_digits():
        return str(number)
