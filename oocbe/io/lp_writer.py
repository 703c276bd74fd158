"""Linear systems in the LP format, the writing side (:mod:`oocbe.io.lp` has the other)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from oocbe.errors import UnsupportedError
from oocbe.io.lp import RESERVED
from oocbe.model.linear_system import LinearSystem

_NAME = re.compile(r"[A-DF-Za-df-z_][A-Za-z0-9_.#$%&~']*|[Ee][A-DF-Za-df-z_][A-Za-z0-9_.#$%&~']*")
"""Names that every reader takes: ``e1`` may be a number's exponent."""


def render(system: LinearSystem) -> str:
    """The file's text, numbers to the last digit; a row with two sides is two rows, one without is left out.

    Raises
    ------
    UnsupportedError : names that no reader of the format takes, or numbers that are no doubles.
    """
    if system.is_exact:
        raise UnsupportedError(f"{system.name}: has integers of 2^53 and beyond, and the lp format is read as doubles")
    if not system.names:
        raise UnsupportedError(f"{system.name}: no variables, and so no sum that the lp format could hold")
    for name in system.names:
        if not _NAME.fullmatch(name) or name.lower() in RESERVED:
            raise UnsupportedError(
                f"{system.name}: the lp format takes {name!r} for something else than a name; write it as .mps"
            )
    return "\n".join(_lines(system)) + "\n"


def _lines(system: LinearSystem) -> Iterator[str]:
    yield "maximize" if system.maximises else "minimize"
    costs = system.objective.tolist() or [0.0] * system.variables
    constant = f" {float(system.constant):+}" if system.constant else ""
    # All variables, those that cost nothing too: that keeps their order, and such as are in no row.
    yield f" objective: {_sum(costs, system.names)}{constant}"
    yield "subject to"
    starts = system.starts.tolist()
    for row, (low, high) in enumerate(zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True)):
        span = slice(starts[row], starts[row + 1])
        terms = _sum(system.coefficients[span].tolist(), [system.names[v] for v in system.columns[span].tolist()])
        if not terms:
            terms = f"0.0 {system.names[0]}"
        sides = [("=", low)] if low == high else [(">=", low), ("<=", high)]
        for relation, side in sides:
            if math.isfinite(side):
                yield f" r{row}{'u' if relation == '<=' else ''}: {terms} {relation} {side!r}"
    yield "bounds"
    for name, low, high in zip(system.names, system.lower.tolist(), system.upper.tolist(), strict=True):
        yield f" {_bound(low)} <= {name} <= {_bound(high)}"
    integers = [name for name, integral in zip(system.names, system.integral.tolist(), strict=True) if integral]
    if integers:
        yield "general"
        yield from (f" {name}" for name in integers)
    yield "end"


def _sum(coefficients: list[float], names: list[str] | tuple[str, ...]) -> str:
    return " ".join(f"{float(a):+} {name}" for a, name in zip(coefficients, names, strict=True))


def _bound(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else '+'}inf"
