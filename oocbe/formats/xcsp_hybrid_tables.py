"""Hybrid tables of XCSP3 (``type="hybrid-1"`` and ``"hybrid-2"``): rows whose cells are conditions, written out.

A cell is an integer, a star, a set ``{1,3}``, a range ``1..3``, the complement of either (``∁{1,3}``), or a comparison
(``≠2``, ``≥c0``, ``c1+2``) with a number or with another column of the same row. Columns are counted from 0; a cell
without an operator is an equality.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from oocbe.errors import amount
from oocbe.formats.xcsp_expressions import Expression, Integers, bounds_of, call, constant, evaluate, variable
from oocbe.formats.xcsp_tables import MOST_ROWS, STAR
from oocbe.formats.xcsp_variables import read_integer, read_range
from oocbe.formats.xml import Element
from oocbe.runtime.deadline import check_deadline

_OPERATORS = {"=": "eq", "≠": "ne", "﹤": "lt", "≤": "le", "≥": "ge", "﹥": "gt"}
_COMPLEMENT = "∁"

_TUPLE = re.compile(r"\(([^()]*)\)\s*")
_CELL = re.compile(r"(?:\{[^{}]*\}|[^,{}])+")
_COMPARISON = re.compile(r"([=≠﹤≤≥﹥]?)(?:([+-]?[0-9]+)|c([0-9]{1,9})(?:([+-])(c?)([0-9]+))?)")


def is_hybrid(extension: Element) -> bool:
    """Whether the tuples of an ``<extension>`` hold conditions."""
    return extension.attributes.get("type", "").startswith("hybrid")


def read_hybrid_tuples(element: Element, domains: Sequence[Integers]) -> Integers:
    """Rows of values, int64 (rows, columns) with stars as :data:`STAR`, that a hybrid table allows.

    domains : values of each column, ascending. FormatError where a tuple is malformed, or the rows are more than
    :data:`MOST_ROWS`.
    """
    text = element.text.decode("utf-8", "replace").strip()
    found, place, count = [np.zeros((0, len(domains)), dtype=np.int64)], 0, 0
    while place < len(text):
        match = _TUPLE.match(text, place)
        cells = [] if match is None else [re.sub(r"\s", "", cell) for cell in _CELL.findall(match[1])]
        if match is None or len(cells) != len(domains):
            raise element.error(
                f"found {text[place : place + 40]!r}, expected a tuple of {amount(len(domains), 'cell')}"
            )
        check_deadline()
        rows = _rows_of_tuple(element, cells, domains, MOST_ROWS - count)
        found.append(rows)
        count += len(rows)
        place = match.end()
    return np.concatenate(found)


def _rows_of_tuple(element: Element, cells: Sequence[str], domains: Sequence[Integers], most: int) -> Integers:
    """The rows that one tuple stands for; columns that no condition names stay stars."""
    conditions = [_condition(element, cell, column, len(domains)) for column, cell in enumerate(cells)]
    columns = sorted({v for condition in conditions if condition is not None for v in condition.scope})
    values = {}
    for v in columns:
        own, condition = domains[v], conditions[v]
        if condition is not None and condition.scope == (v,):
            own = own[evaluate(condition.template, [own]) != 0]
        values[v] = own
    size = 1
    for own in values.values():
        size *= len(own)
    if size > most:
        raise element.error(f"found tuples that stand for {size:,} rows and more, expected at most {MOST_ROWS:,}")
    axes = dict(zip(columns, np.ix_(*values.values()) if columns else (), strict=True))
    holds = np.ones(tuple(map(len, values.values())), dtype=bool)
    for condition in conditions:
        if condition is not None and len(condition.scope) > 1 and size:
            bounds_of(condition.template, [(int(values[v][0]), int(values[v][-1])) for v in condition.scope])
            holds &= evaluate(condition.template, [axes[v] for v in condition.scope]) != 0
    chosen = np.argwhere(holds)
    rows = np.full((len(chosen), len(domains)), STAR, dtype=np.int64)
    for place, v in enumerate(columns):
        rows[:, v] = values[v][chosen[:, place]]
    return rows


def _condition(element: Element, cell: str, column: int, count: int) -> Expression | None:
    """What a cell demands of its column, a variable of that index; None for a star."""
    if cell == "*":
        return None
    own = variable(column)
    if (match := _COMPARISON.fullmatch(cell)) is not None:
        operator, number, other, sign, is_column, shift = match.groups()
        if number is not None:
            return call(_OPERATORS[operator or "="], own, constant(read_integer(element, number)))
        right = variable(int(other))
        if sign is not None:
            more = variable(int(shift)) if is_column else constant(read_integer(element, shift))
            right = call("add" if sign == "+" else "sub", right, more)
        if max(right.scope) >= count:
            raise element.error(f"found {cell[:40]!r}, expected columns from c0 to c{count - 1}")
        return call(_OPERATORS[operator or "="], own, right)
    inside = cell.removeprefix(_COMPLEMENT)
    is_set = inside.startswith("{") and inside.endswith("}")
    if not is_set and ".." not in inside:
        raise element.error(f"found the cell {cell[:40]!r}, expected a number, a star, a set, a range or a comparison")
    parts = [part for part in inside[1:-1].split(",") if part] if is_set else [inside]
    ranges = [read_range(element, part) for part in parts]
    within = [call("and", call("ge", own, constant(low)), call("le", own, constant(high))) for low, high in ranges]
    found = call("or", call("ne", own, own), *within)
    return found if inside == cell else call("not", found)
