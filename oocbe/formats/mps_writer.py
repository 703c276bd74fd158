"""Linear systems in the free MPS format, the writing side (:mod:`oocbe.formats.mps` has the other)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.plain_names import plain_names
from oocbe.model.linear_system import LinearSystem

OBJECTIVE = "objective"
"""What the objective's row is called, with ``'`` behind where a row is called so."""


_BLANK = re.compile(r"\s")
"""What ends a name in the free format."""

_REFUSED = re.compile(r"[*$]")
"""What begins a comment."""


def render(system: LinearSystem) -> str:
    """The file's text: what is read from it is this system, its numbers to the last digit.

    Blanks in names, which the free format ends at, become ``_`` (:mod:`oocbe.formats.plain_names`).

    Raises
    ------
    UnsupportedError : numbers that are no doubles.
    """
    if system.is_exact:
        raise UnsupportedError(f"{system.name}: has integers of 2^53 and beyond, and the mps format is read as doubles")
    system = _with_exact_ranges(system)
    rows = plain_names(map(system.row_name, range(system.rows)), _BLANK, _REFUSED)
    names = plain_names(system.names, _BLANK, _REFUSED)
    objective = OBJECTIVE
    while objective in rows:
        objective += "'"
    return "\n".join(_lines(system, rows, names, objective)) + "\n"


def _lines(system: LinearSystem, rows: list[str], names: list[str], objective: str) -> Iterator[str]:
    yield f"NAME {system.name}"
    if system.maximises:
        yield "OBJSENSE\n MAX"
    yield f"ROWS\n N {objective}"
    sides = list(zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True))
    for name, (low, high) in zip(rows, sides, strict=True):
        yield f" {_kind(low, high)} {name}"
    yield "COLUMNS"
    yield from _columns(system, rows, names, objective)
    yield "RHS"
    if system.constant:
        yield f" RHS {objective} {-system.constant!r}"
    for name, (low, high) in zip(rows, sides, strict=True):
        side = low if _kind(low, high) == "G" else high
        if math.isfinite(side) and side:
            yield f" RHS {name} {side!r}"
    yield "RANGES"
    for name, (low, high) in zip(rows, sides, strict=True):
        if math.isfinite(low) and math.isfinite(high) and low != high:
            yield f" RANGES {name} {high - low!r}"
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


def _with_exact_ranges(system: LinearSystem) -> LinearSystem:
    """The system with two rows for each whose sides no range leads to."""
    sides = zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True)
    is_split = np.array([not _kind(low, high) for low, high in sides], dtype=bool)
    if not is_split.any():
        return system
    owners = np.repeat(np.arange(system.rows), 1 + is_split)
    is_second = np.diff(owners, prepend=-1) == 0
    is_first = is_split[owners] & ~is_second
    lengths = np.diff(system.starts)[owners]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    entries = np.repeat(system.starts[owners] - starts[:-1], lengths) + np.arange(starts[-1])
    names = [
        system.row_name(row) + "_up" * second for row, second in zip(owners.tolist(), is_second.tolist(), strict=True)
    ]
    return replace(
        system,
        starts=starts,
        columns=system.columns[entries],
        coefficients=system.coefficients[entries],
        row_lower=np.where(is_second, -np.inf, system.row_lower[owners]),
        row_upper=np.where(is_first, np.inf, system.row_upper[owners]),
        row_names=tuple(names),
    )


def _columns(system: LinearSystem, rows: list[str], names: list[str], objective: str) -> Iterator[str]:
    order = np.argsort(system.columns, kind="stable")
    owners = np.repeat(np.arange(system.rows), np.diff(system.starts))[order].tolist()
    coefficients = system.coefficients[order].tolist()
    starts = system.rows_of_variables[0].tolist()
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
            yield f" {name} {rows[owners[entry]]} {coefficients[entry]!r}"
    if is_integral:
        yield " MARKER 'MARKER' 'INTEND'"
