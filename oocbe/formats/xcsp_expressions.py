"""Expressions in the functional notation of XCSP, such as ``eq(add(x,y),3)``: parsed, bounded, evaluated in bulk.

Truth is 1 and falsehood 0, as in ``add(eq(x,1),eq(y,1))``. Division is towards zero, a remainder has the dividend's
sign; what could divide by zero, or leave 64 bits on the way, is not evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.runtime.deadline import check_deadline

LARGEST = 2**62
"""Integers within an expression stay below this size."""

DEEPEST = 64
"""Calls within one another at most."""

CONSTANT, VARIABLE = "constant", "variable"
"""Operators of expressions without arguments."""

CELL = "[]"
"""The operator whose value is that of its other arguments, constants, which the first one chooses, counted from 0."""

_TOKEN = re.compile(r"\s*([A-Za-z_]+\s*\(|[(),]|[^\s(),]+)")

Integers = NDArray[np.int64]


class UnsupportedConstraint(Exception):  # noqa: N818  (no error: what is raised for a constraint that is left out)
    """A part of a constraint that is not supported; the message names it."""


class Malformed(ValueError):  # noqa: N818  (becomes a FormatError, which knows the line)
    """A text that is no expression; the message names the text found and the one expected."""


@dataclass(frozen=True)
class Expression:
    """An operator, of :data:`OPERATORS`, :data:`CONSTANT` or :data:`VARIABLE`, its value or index, and arguments."""

    operator: str
    value: int = 0
    arguments: tuple[Expression, ...] = ()

    @cached_property
    def scope(self) -> tuple[int, ...]:
        """Variables, in the order in which they first appear."""
        if self.operator == VARIABLE:
            return (self.value,)
        return tuple(dict.fromkeys(v for part in self.arguments for v in part.scope))

    @cached_property
    def template(self) -> Expression:
        """The same with its variables numbered as they come in :attr:`scope`: what calls alike share."""
        return self._renumbered({v: place for place, v in enumerate(self.scope)})

    def _renumbered(self, place: dict[int, int]) -> Expression:
        if self.operator == CONSTANT:
            return self
        if self.operator == VARIABLE:
            return variable(place[self.value])
        return Expression(self.operator, 0, tuple(part._renumbered(place) for part in self.arguments))


def constant(value: int) -> Expression:
    """An integer."""
    return Expression(CONSTANT, value)


@lru_cache(maxsize=1 << 16)
def variable(index: int) -> Expression:
    """A variable; lists name the same ones over and over, and an expression never changes."""
    return Expression(VARIABLE, index)


def call(operator: str, *arguments: Expression) -> Expression:
    """An operator's value."""
    return Expression(operator, 0, arguments)


def _towards_zero(parts: list[Integers]) -> Integers:
    dividend, divisor = parts
    found: Integers = np.abs(dividend) // np.abs(divisor) * np.sign(dividend) * np.sign(divisor)
    return found


def _all_equal(parts: list[Integers]) -> NDArray[np.bool_]:
    return reduce(np.logical_and, [parts[0] == part for part in parts[1:]])


def _cell(parts: list[Integers]) -> Integers:
    cells = np.array(parts[1:], dtype=np.int64)
    return cells[np.clip(parts[0], 0, len(cells) - 1)]


def _folded(function: Callable[[Any, Any], Any]) -> Callable[[list[Integers]], Any]:
    return lambda parts: reduce(function, parts)


def _of_truths(function: Callable[[Any, Any], Any]) -> Callable[[list[Integers]], Any]:
    return lambda parts: reduce(function, [part != 0 for part in parts])


MANY = 10**6
"""Arguments at most, where an operator takes any number."""

OPERATORS: dict[str, tuple[int, int, Callable[[list[Integers]], Any]]] = {
    "neg": (1, 1, lambda parts: -parts[0]),
    "abs": (1, 1, lambda parts: np.abs(parts[0])),
    "sqr": (1, 1, lambda parts: parts[0] * parts[0]),
    "add": (1, MANY, _folded(np.add)),
    "sub": (2, 2, _folded(np.subtract)),
    "mul": (1, MANY, _folded(np.multiply)),
    "div": (2, 2, _towards_zero),
    "mod": (2, 2, _folded(np.fmod)),
    "pow": (2, 2, _folded(np.power)),
    "dist": (2, 2, lambda parts: np.abs(parts[0] - parts[1])),
    "min": (1, MANY, _folded(np.minimum)),
    "max": (1, MANY, _folded(np.maximum)),
    "if": (3, 3, lambda parts: np.where(parts[0] != 0, parts[1], parts[2])),
    CELL: (2, MANY, _cell),
    "lt": (2, 2, _folded(np.less)),
    "le": (2, 2, _folded(np.less_equal)),
    "gt": (2, 2, _folded(np.greater)),
    "ge": (2, 2, _folded(np.greater_equal)),
    "eq": (2, MANY, _all_equal),
    "ne": (2, 2, _folded(np.not_equal)),
    "in": (1, MANY, lambda parts: reduce(np.logical_or, [parts[0] == own for own in parts[1:]], parts[0] != parts[0])),
    "notin": (
        1,
        MANY,
        lambda parts: reduce(np.logical_and, [parts[0] != own for own in parts[1:]], parts[0] == parts[0]),
    ),
    "not": (1, 1, lambda parts: parts[0] == 0),
    "and": (1, MANY, _of_truths(np.logical_and)),
    "or": (1, MANY, _of_truths(np.logical_or)),
    "xor": (1, MANY, _of_truths(np.logical_xor)),
    "iff": (2, MANY, lambda parts: _all_equal([(part != 0).astype(np.int64) for part in parts])),
    "imp": (2, 2, lambda parts: (parts[0] == 0) | (parts[1] != 0)),
}
"""Operators: least and greatest number of arguments, and what arrays of the arguments' values give."""

ARITHMETIC = frozenset(
    ["neg", "abs", "sqr", "add", "sub", "mul", "div", "mod", "pow", "dist", "min", "max", "if", CELL]
)
"""Operators whose values are not truths."""


def parse(text: str, leaf: Callable[[str], Sequence[Expression]]) -> Expression:
    """Read an expression; Malformed where it is none, UnsupportedConstraint where an operator is not known.

    leaf : what a word stands for that is no call; several expressions only among arguments.
    """
    tokens = _TOKEN.findall(text)
    found, place = _parse(tokens, 0, leaf, 0)
    if place != len(tokens) or len(found) != 1:
        raise Malformed(f"found {text.strip()[:40]!r}, expected an expression such as eq(x,add(y,1))")
    return found[0]


def _parse(
    tokens: list[str], place: int, leaf: Callable[[str], Sequence[Expression]], depth: int
) -> tuple[Sequence[Expression], int]:
    """The expression that begins at a token, and the token after it."""
    token = tokens[place] if place < len(tokens) else ""
    if not token or token in "(),":
        raise Malformed(f"found {token or 'the end'!r} in an expression, expected a number, a variable or a call")
    if not token.endswith("("):
        return leaf(token), place + 1
    if depth > DEEPEST:
        raise Malformed(f"found calls {depth} deep, expected at most {DEEPEST}")
    operator = token[:-1].strip()
    place += 1
    arguments: list[Expression] = []
    while place < len(tokens) and tokens[place] != ")":
        if arguments:
            if tokens[place] != ",":
                raise Malformed(f"found {tokens[place]!r} in {operator}, expected ',' or ')'")
            place += 1
        more, place = _parse(tokens, place, leaf, depth + 1)
        arguments += more
    if place >= len(tokens):
        raise Malformed(f"found no ')' at the end of {operator}, expected one")
    if operator == "set":
        return arguments, place + 1
    if operator not in OPERATORS:
        raise UnsupportedConstraint(f"the operator {operator[:40]}")
    least, most, _ = OPERATORS[operator]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} or more"
        raise Malformed(f"found {len(arguments)} arguments of {operator}, expected {wanted}")
    return (Expression(operator, 0, tuple(arguments)),), place + 1


def bounds_of(expression: Expression, bounds: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Least and greatest value, or beyond, from variables' bounds; UnsupportedConstraint: a step leaves 64 bits."""
    if expression.operator == CONSTANT:
        found = (expression.value, expression.value)
    elif expression.operator == VARIABLE:
        found = bounds[expression.value]
    else:
        parts = [bounds_of(part, bounds) for part in expression.arguments]
        found = _bounds_of_call(expression.operator, parts)
    if max(-found[0], found[1]) >= LARGEST:
        raise UnsupportedConstraint("numbers of more than 64 bits")
    return found


def _bounds_of_call(operator: str, parts: list[tuple[int, int]]) -> tuple[int, int]:
    if operator not in ARITHMETIC:
        return 0, 1
    low, high = parts[0]
    size = max(abs(low), abs(high))
    if operator == "neg":
        return -high, -low
    if operator == "abs":
        return 0, size
    if operator == "sqr":
        return 0, size * size
    if operator == "add":
        return sum(own[0] for own in parts), sum(own[1] for own in parts)
    if operator == "mul":
        return reduce(_product_bounds, parts)
    if operator == "min":
        return min(own[0] for own in parts), min(own[1] for own in parts)
    if operator == "max":
        return max(own[0] for own in parts), max(own[1] for own in parts)
    if operator == CELL:
        return min(own[0] for own in parts[1:]), max(own[1] for own in parts[1:])
    if operator == "if":
        return min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
    other_low, other_high = parts[1]
    if operator in ("sub", "dist"):
        less, more = low - other_high, high - other_low
        return (less, more) if operator == "sub" else (0, max(-less, more))
    if operator in ("div", "mod"):
        return -size, size
    if other_low < 0 or other_high * size.bit_length() > LARGEST.bit_length() * 2:
        raise UnsupportedConstraint("a power of more than 64 bits, or with a negative exponent")
    return -(size**other_high) if low < 0 else 0, max(1, size**other_high)


def _product_bounds(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    corners = [a * b for a in one for b in other]
    if max(map(abs, corners)) >= LARGEST:
        raise UnsupportedConstraint("numbers of more than 64 bits")
    return min(corners), max(corners)


def evaluate(expression: Expression, columns: Sequence[Integers]) -> Integers:
    """Values for arrays, which broadcast, after :func:`bounds_of`; UnsupportedConstraint: a divisor may be 0."""
    if expression.operator == CONSTANT:
        return np.array(expression.value, dtype=np.int64)
    if expression.operator == VARIABLE:
        return columns[expression.value]
    check_deadline()
    parts = [evaluate(part, columns) for part in expression.arguments]
    if expression.operator in ("div", "mod") and not parts[1].all():
        raise UnsupportedConstraint("a division that may be by zero")
    found: Integers = np.asarray(OPERATORS[expression.operator][2](parts)).astype(np.int64, copy=False)
    return found
