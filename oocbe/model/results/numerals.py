"""Results as text and JSON: integers of any size, numbers without a JSON form, records, the version of the layout.

The module loads quickly, for use by an interrupted start.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from oocbe.errors import EXIT_INFEASIBLE, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_NOTHING_BETTER, EXIT_OPTIMAL

if TYPE_CHECKING:
    from fractions import Fraction

    from oocbe.model.parts import Variable

Number = TypeVar("Number", int, float, int | float)


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


EXIT_CODES = {
    "infeasible": EXIT_INFEASIBLE,
    "nothing-better": EXIT_NOTHING_BETTER,
    "limit": EXIT_LIMIT,
    "interrupted": EXIT_INTERRUPTED,
}
"""Exit code of a command by the status of its result; 0 for other statuses."""


class Answer:
    """Common properties of results; ``result["rain"]`` has the label of a variable.

    problem : its name. status, value : of the result. variables : of the problem. assignment : value index of each
    variable, or None.
    """

    problem: str
    status: str
    value: Any
    variables: tuple[Variable, ...]
    assignment: tuple[int, ...] | None

    @property
    def exit_code(self) -> int:
        """Exit code of the command line for this result."""
        return EXIT_CODES.get(self.status, EXIT_OPTIMAL)

    @property
    def labels(self) -> dict[str, str] | None:
        """The assignment (of several, the best one): value label by variable name; None without one."""
        return labels_of(self.variables, self.assignment)

    def __getitem__(self, name: str) -> Any:
        """The label of a variable in the assignment; KeyError: an unknown name, or no assignment."""
        return (self.labels or {})[name]

    def __repr__(self) -> str:
        of = "" if self.value is None else f" {digits(self.value)}"
        return f"<{type(self).__name__} of {self.problem}: {self.status}{of}>"


@contextmanager
def all_digits() -> Iterator[None]:
    """Within the block, integers of any size convert to and from text; Python's default limit is 4,300 digits."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(limit)


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


def mebibytes(count: int) -> str:
    """Bytes of a process, to a tenth of a mebibyte."""
    return f"{count / 2**20:,.1f} MiB"


LARGEST_SHOWN_BITS = 70
"""Bits of a byte count above which it is shown as a power of two: beyond any memory, and possibly beyond floats."""


def format_bytes(count: float) -> str:
    """Readable byte count: 512 B, 1.5 KiB, 2.0 GiB; powers of two for numbers beyond any memory."""
    if isinstance(count, int) and count.bit_length() > LARGEST_SHOWN_BITS:
        return f"about 2^{count.bit_length() - 1} B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def digits(number: int | float | Fraction) -> str:
    """All digits of a number of any size."""
    with all_digits():
        return str(number)


SCHEMA_VERSION = 1
"""Version of the JSON layout; raised when a field is removed or its meaning changes, not when one is added."""

BOUND_SCHEMA_VERSION = 2
"""Version for ``oocbe bound``: version 1 had products, version 2 has their logarithms."""


def schema_version_of(command: str) -> int:
    """Layout version of a command."""
    return BOUND_SCHEMA_VERSION if command == "bound" else SCHEMA_VERSION
