"""Linear systems in the LP format, the writing side (:mod:`oocbe.formats.lp` has the other)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from oocbe.errors import UnsupportedError
from oocbe.formats.lp import RESERVED
from oocbe.formats.plain_names import plain_names
from oocbe.model.linear_system import LinearSystem

_MARKS = re.compile(r"[^A-Za-z0-9_.#$%&~'!(),?@`{}]")
"""What not every reader takes in a name; HiGHS takes no brackets."""

_REFUSED = re.compile(rf"[^A-Za-z_]|[Ee][0-9.]|(?i:inf|nan|(?:{'|'.join(map(re.escape, sorted(RESERVED)))})\Z)")
"""What no name begins with, or is: ``e1`` may be a number's exponent, and HiGHS reads a number in ``info``."""


def render(system: LinearSystem) -> str:
    """The file's text, numbers to the last digit; a row with two sides is two rows, one without is left out.

    Names that readers do not take get ``_`` for what is wrong in them (:mod:`oocbe.formats.plain_names`).

    Raises
    ------
    UnsupportedError : numbers that are no doubles, or no variables.
    """
    if system.is_exact:
        raise UnsupportedError(f"{system.name}: has integers of 2^53 and beyond, and the lp format is read as doubles")
    if not system.names:
        raise UnsupportedError(f"{system.name}: no variables, and so no sum that the lp format could hold")
    names = plain_names(system.names, _MARKS, _REFUSED)
    return "\n".join(_lines(system, names)) + "\n"


def _lines(system: LinearSystem, names: list[str]) -> Iterator[str]:
    yield "maximize" if system.maximises else "minimize"
    costs = system.objective.tolist() or [0.0] * system.variables
    constant = f" {float(system.constant):+}" if system.constant else ""
    # All variables, those that cost nothing too: that keeps their order, and such as are in no row.
    yield f" objective: {_sum(costs, names)}{constant}"
    yield "subject to"
    labels = plain_names((label for label, _, _ in _sides(system)), _MARKS, _REFUSED)
    starts = system.starts.tolist()
    for label, (_, row, side) in zip(labels, _sides(system), strict=True):
        span = slice(starts[row], starts[row + 1])
        terms = _sum(system.coefficients[span].tolist(), [names[v] for v in system.columns[span].tolist()])
        yield f" {label}: {terms or f'0.0 {names[0]}'} {side}"
    yield "bounds"
    for name, low, high in zip(names, system.lower.tolist(), system.upper.tolist(), strict=True):
        yield f" {_bound(low)} <= {name} <= {_bound(high)}"
    integers = [name for name, integral in zip(names, system.integral.tolist(), strict=True) if integral]
    if integers:
        yield "general"
        yield from (f" {name}" for name in integers)
    yield "end"


def _sides(system: LinearSystem) -> Iterator[tuple[str, int, str]]:
    """A label, the row's number, and a relation with its side, for each finite one."""
    for row, (low, high) in enumerate(zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True)):
        name = system.row_name(row)
        if low == high:
            yield name, row, f"= {low!r}"
            continue
        is_range = math.isfinite(low) and math.isfinite(high)
        if math.isfinite(low):
            yield f"{name}_lo" if is_range else name, row, f">= {low!r}"
        if math.isfinite(high):
            yield f"{name}_up" if is_range else name, row, f"<= {high!r}"


def _sum(coefficients: list[float], names: list[str]) -> str:
    return " ".join(f"{float(a):+} {name}" for a, name in zip(coefficients, names, strict=True))


def _bound(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else '+'}inf"
