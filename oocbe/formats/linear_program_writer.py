"""Linear systems in the free MPS format and in CPLEX's LP format, the writing side.

:mod:`oocbe.formats.mps` and :mod:`oocbe.formats.lp` read them. Numbers are written to the last digit, unlike by HiGHS,
which writes 15. Names that readers do not take get ``_`` for what is wrong in them (:mod:`oocbe.formats.cost_tables`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.cost_tables import plain_names
from oocbe.formats.lp import RESERVED
from oocbe.model.linear_system import LinearSystem

OBJECTIVE = "objective"
"""Name of the objective's row in MPS, with ``'`` appended where a row has that name."""

_MPS_NAMES = re.compile(r"\s"), re.compile(r"[*$]")
"""Characters that end a name in the free MPS format, and characters that begin a comment."""

_LP_NAMES = (
    re.compile(r"[^A-Za-z0-9_.#$%&~'!(),?@`{}]"),
    re.compile(rf"[^A-Za-z_]|[Ee][0-9.]|(?i:inf|nan|(?:{'|'.join(map(re.escape, sorted(RESERVED)))})\Z)"),
)
"""Characters that some readers of LP refuse in a name (HiGHS refuses brackets), and beginnings of no name: ``e1``
may be a number's exponent, and HiGHS reads a number in ``info``."""


class _Row(NamedTuple):
    """A row as it is written, or one side of it; ``number`` : of the system's row."""

    label: str
    number: int
    low: float
    high: float


def render_mps(system: LinearSystem) -> str:
    """The file in MPS; rows that no range gives exactly become two; UnsupportedError: numbers are no doubles."""
    _check_doubles(system, "mps")
    rows = _rows(system, lambda low, high: not _kind(low, high), _MPS_NAMES)
    return "\n".join(_mps_lines(system, rows, plain_names(system.names, *_MPS_NAMES))) + "\n"


def render_lp(system: LinearSystem) -> str:
    """The file in LP, a row a side; UnsupportedError: numbers that are no doubles, or no variables."""
    _check_doubles(system, "lp")
    if not system.names:
        raise UnsupportedError(f"{system.name}: no variables, and so no sum that the lp format could hold")
    rows = _rows(system, lambda low, high: low != high and math.isfinite(low) and math.isfinite(high), _LP_NAMES)
    return "\n".join(_lp_lines(system, rows, plain_names(system.names, *_LP_NAMES))) + "\n"


def _check_doubles(system: LinearSystem, format_name: str) -> None:
    if system.is_exact:
        raise UnsupportedError(
            f"{system.name}: has integers of 2^53 and beyond, and the {format_name} format is read as doubles"
        )


def _rows(
    system: LinearSystem,
    is_split: Callable[[float, float], bool],
    no_names: tuple[re.Pattern[str], re.Pattern[str]],
) -> list[_Row]:
    """The rows, those two of them for whose sides ``is_split`` holds, with labels that readers take."""
    rows = []
    for number, (low, high) in enumerate(zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True)):
        name = system.row_name(number)
        if is_split(low, high):
            rows += [_Row(f"{name}_lo", number, low, math.inf), _Row(f"{name}_up", number, -math.inf, high)]
        else:
            rows.append(_Row(name, number, low, high))
    labels = plain_names((row.label for row in rows), *no_names)
    return [row._replace(label=label) for label, row in zip(labels, rows, strict=True)]


def _mps_lines(system: LinearSystem, rows: list[_Row], names: list[str]) -> Iterator[str]:
    labels: list[list[str]] = [[] for _ in range(system.rows)]
    for row in rows:
        labels[row.number].append(row.label)
    objective = OBJECTIVE
    while any(objective in own for own in labels):
        objective += "'"
    yield f"NAME {system.name}"
    if system.maximises:
        yield "OBJSENSE\n MAX"
    yield f"ROWS\n N {objective}"
    yield from (f" {_kind(row.low, row.high)} {row.label}" for row in rows)
    yield "COLUMNS"
    yield from _mps_columns(system, labels, names, objective)
    yield "RHS"
    if system.constant:
        yield f" RHS {objective} {-system.constant!r}"
    for row in rows:
        side = row.low if _kind(row.low, row.high) == "G" else row.high
        if math.isfinite(side) and side:
            yield f" RHS {row.label} {side!r}"
    yield "RANGES"
    for row in rows:
        if math.isfinite(row.low) and math.isfinite(row.high) and row.low != row.high:
            yield f" RANGES {row.label} {row.high - row.low!r}"
    yield "BOUNDS"
    for name, low, high in zip(names, system.lower.tolist(), system.upper.tolist(), strict=True):
        yield f" {'MI' if math.isinf(low) else 'LO'} BOUND {name}" + ("" if math.isinf(low) else f" {low!r}")
        yield f" {'PL' if math.isinf(high) else 'UP'} BOUND {name}" + ("" if math.isinf(high) else f" {high!r}")
    yield "ENDATA"


def _kind(low: float, high: float) -> str:
    """A row's letter; empty where a range would not lead from one side to the other exactly."""
    if low == high:
        return "E"
    if math.isinf(low) or math.isinf(high):
        return "L" if math.isfinite(high) else "G" if math.isfinite(low) else "N"
    width = high - low
    if width < 0:
        return ""
    return "L" if high - width == low else "G" if low + width == high else ""


def _mps_columns(system: LinearSystem, labels: list[list[str]], names: list[str], objective: str) -> Iterator[str]:
    """``labels`` : of the rows that each row of the system is written as."""
    order = np.argsort(system.columns, kind="stable")
    starts, owners = (numbers.tolist() for numbers in system.rows_of_variables)
    coefficients = system.coefficients[order].tolist()
    costs = system.objective.tolist() or [0.0] * system.variables
    is_integral = False
    for v, name in enumerate(names):
        if bool(system.integral[v]) != is_integral:
            is_integral = not is_integral
            yield f" MARKER 'MARKER' 'INT{'ORG' if is_integral else 'END'}'"
        entries = range(starts[v], starts[v + 1])
        if costs[v] or not entries:
            yield f" {name} {objective} {float(costs[v])!r}"
        for entry in entries:
            yield from (f" {name} {label} {coefficients[entry]!r}" for label in labels[owners[entry]])
    if is_integral:
        yield " MARKER 'MARKER' 'INTEND'"


def _lp_lines(system: LinearSystem, rows: list[_Row], names: list[str]) -> Iterator[str]:
    yield "maximize" if system.maximises else "minimize"
    costs = system.objective.tolist() or [0.0] * system.variables
    constant = f" {float(system.constant):+}" if system.constant else ""
    # All variables, those that cost nothing too: that keeps their order, and such as are in no row.
    yield f" objective: {_sum(costs, names)}{constant}"
    yield "subject to"
    starts = system.starts.tolist()
    for label, number, low, high in rows:
        span = slice(starts[number], starts[number + 1])
        terms = _sum(system.coefficients[span].tolist(), [names[v] for v in system.columns[span].tolist()])
        if math.isfinite(low) or math.isfinite(high):
            side = f"= {low!r}" if low == high else f">= {low!r}" if math.isfinite(low) else f"<= {high!r}"
            yield f" {label}: {terms or f'0.0 {names[0]}'} {side}"
    yield "bounds"
    for name, low, high in zip(names, system.lower.tolist(), system.upper.tolist(), strict=True):
        yield f" {_bound(low)} <= {name} <= {_bound(high)}"
    integers = [name for name, integral in zip(names, system.integral.tolist(), strict=True) if integral]
    if integers:
        yield "general"
        yield from (f" {name}" for name in integers)
    yield "end"


def _sum(coefficients: list[float], names: list[str]) -> str:
    return " ".join(f"{float(a):+} {name}" for a, name in zip(coefficients, names, strict=True))


def _bound(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else '+'}inf"
