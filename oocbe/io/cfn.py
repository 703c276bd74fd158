"""Cost function networks in toulbar2's JSON format (``.cfn``), read.

An object with the ``problem`` (``name`` and ``mustbe``), the ``variables`` and the ``functions``, in this order::

    {problem: {name: pair, mustbe: "<10.5"}, variables: {x: [a b], y: 2},
     functions: {f: {scope: [x y], costs: [0.5 1 2 10.5]}}}

Quotes, commas, colons and the tags within objects may be left out, braces and brackets stand for each other, and a line
that begins with ``#`` is a comment. ``<10.5`` minimises, and what costs 10.5 or more is infeasible; ``>0`` maximises (a
max-sum problem), and what is worth 0 or less is infeasible. Costs are taken as they are printed: integers exactly,
decimals as float64 (toulbar2 itself keeps as many decimals as ``mustbe`` has).

Read are functions with a list of ``costs``: all of them in lexicographic order, or tuples each with its cost and a
``defaultcost`` for the others; or with the name of a later function whose costs are shared. A function with a ``type``
is one of many variables by its meaning: what decomposes exactly (:mod:`oocbe.io.cfn_globals`) is read where costs are
minimised; other types, and interval variables, raise :class:`~oocbe.errors.UnsupportedError`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, UnsupportedError
from oocbe.io.cfn_globals import GlobalCall, decomposed, read_parameters
from oocbe.io.lexer import Lexer, parse_number
from oocbe.io.text import Text
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import tuples_at
from oocbe.model.semiring import MAX_SUM, MIN_SUM

LARGEST_DOMAIN = 2**24
"""Values of a variable; more are damage, and arrays of this size are still affordable."""

LARGEST_TABLE = 2**27
"""Costs listed of one function; a larger table would be a text of gigabytes."""

OPEN, CLOSE = "{[", "}]"
"""Brackets of objects and lists."""

TOKENS = re.compile(r'(?m:^#[^\n]*)|[\s,:]+|"(?P<quoted>[^"\n]*)"|(?P<mark>[{}\[\]])|(?P<word>[^\s,:{}\[\]"]+)')
"""Comments and separators, a quoted name, a bracket, or a word."""


@dataclass
class _Listed:
    """The costs of a function: numbers as they are printed.

    Attributes
    ----------
    tuples : (rows, arity) with ``default``; None: all tuples, in lexicographic order.
    costs : (rows,). default : of tuples that are not listed.
    """

    tuples: NDArray[np.int64] | None
    costs: list[str]
    default: str | None


@dataclass
class _Named:
    """A function as it is read, its costs perhaps those of a later one."""

    name: str
    scope: tuple[int, ...]
    place: int
    listed: _Listed | None
    shared: str = ""


@dataclass
class _Reader:
    """A cursor and what has been read so far."""

    lexer: Lexer
    variables: list[Variable] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    labels: list[dict[str, int]] = field(default_factory=list)
    functions: list[_Named] = field(default_factory=list)
    calls: list[GlobalCall] = field(default_factory=list)
    path: str = ""


def parse(text: Text) -> Problem:
    """Read a problem; FormatError with the line where it is malformed, UnsupportedError for what is left out."""
    lexer = Lexer(text, TOKENS)
    reader = _Reader(lexer, path=text.path)
    lexer.take(OPEN, "'{' and the problem")
    _tag(lexer, "problem")
    lexer.take(OPEN, "'{' and the problem's name")
    _tag(lexer, "name")
    name = lexer.word("the problem's name")
    _tag(lexer, "mustbe")
    place = lexer.place
    mustbe = lexer.word("mustbe: '<' or '>' and a number")
    limit = parse_number(mustbe[1:])
    if mustbe[:1] not in ("<", ">") or limit is None:
        raise lexer.error(f"found {lexer.shown(place)}, expected mustbe: '<' or '>' and a number", place)
    lexer.take(CLOSE, "'}' after mustbe")
    _tag(lexer, "variables")
    _read_variables(reader)
    _tag(lexer, "functions")
    _read_functions(reader)
    lexer.take(CLOSE, "'}' at the end")
    if not lexer.ended:
        raise lexer.expected("the end of the file")
    return _Builder(reader, mustbe[0] == "<", mustbe[1:]).problem(name, place)


def _tag(lexer: Lexer, name: str) -> None:
    """Pass over the name of a field, which may be left out."""
    if lexer.sees_word((name,)):
        lexer.place += 1


def _read_variables(reader: _Reader) -> None:
    lexer = reader.lexer
    lexer.take(OPEN, "'{' and the variables")
    while not lexer.accept(CLOSE):
        place = lexer.place
        name = str(len(reader.variables))
        if lexer.sees_word() and not _is_size(lexer):
            name = lexer.word("a variable's name")
        if name in reader.index:
            raise lexer.error(f"found variable {name!r} a second time, expected each once", place)
        labels: list[str] | None = None
        if lexer.accept(OPEN):
            labels = []
            while not lexer.accept(CLOSE):
                labels.append(lexer.word(f"a value of variable {name!r}, or ']'"))
            size = len(labels)
            if len(set(labels)) != size or size == 0:
                what = "no value" if size == 0 else "a value twice"
                raise lexer.error(f"found {what} of variable {name!r}, expected different ones", lexer.place - 1)
        else:
            size = lexer.integer(f"the domain of variable {name!r}", -LARGEST_DOMAIN, LARGEST_DOMAIN)
            if size < 0:
                raise UnsupportedError(
                    f"{_where(lexer)}: variable {name!r} has an interval domain (size {size}); only enumerated domains "
                    "are supported"
                )
            if size == 0:
                raise lexer.error(f"found the domain size 0 of variable {name!r}, expected at least 1", lexer.place - 1)
        reader.index[name] = len(reader.variables)
        reader.variables.append(Variable(name, size, None if labels is None else tuple(labels)))
        reader.labels.append({label: value for value, label in enumerate(labels or ())})


def _is_size(lexer: Lexer) -> bool:
    if lexer.sees_string:
        return False  # a name, though it be that of a number
    place = lexer.place
    number = parse_number(lexer.word("a variable"))
    lexer.place = place
    return number is not None


def _read_functions(reader: _Reader) -> None:
    lexer = reader.lexer
    lexer.take(OPEN, "'{' and the functions")
    while not lexer.accept(CLOSE):
        place = lexer.place
        name = "" if lexer.sees(OPEN) else lexer.word("a function's name, or '}'")
        title = f"function {name!r}" if name else f"function {len(reader.functions)}"
        lexer.take(OPEN, f"'{{' and {title}")
        _tag(lexer, "scope")
        lexer.take(OPEN, f"'[' and the scope of {title}")
        scope: list[int] = []
        while not lexer.accept(CLOSE):
            scope.append(_variable(reader))
            if scope[-1] in scope[:-1]:
                raise lexer.error(f"found a variable twice in the scope of {title}", lexer.place - 1)
        if lexer.sees_word(("type",)):
            lexer.place += 1
            kind = lexer.word("the type of a function")
            line = lexer.line(lexer.place - 1)
            _tag(lexer, "params")
            parameters = read_parameters(lexer, OPEN, CLOSE, title)
            reader.calls.append(GlobalCall(reader.path, line, title, kind, tuple(scope), parameters))
            lexer.take(CLOSE, f"'}}' at the end of {title}")
            continue
        _tag(lexer, "defaultcost")
        default = lexer.word("a default cost") if lexer.sees_word() and _is_size(lexer) else None
        _tag(lexer, "costs")
        if lexer.sees_word():
            reader.functions.append(_Named(name, tuple(scope), place, None, lexer.word("a function")))
        else:
            lexer.take(OPEN, f"'[' and the costs of {title}")
            listed = _read_costs(reader, title, scope, default)
            reader.functions.append(_Named(name, tuple(scope), place, listed))
        lexer.take(CLOSE, f"'}}' at the end of {title}")


def _read_costs(reader: _Reader, title: str, scope: list[int], default: str | None) -> _Listed:
    """The costs up to their closing bracket; checked, but kept as they are printed."""
    lexer = reader.lexer
    sizes = [reader.variables[v].size for v in scope]
    costs: list[str] = []
    tuples: list[list[int]] = []
    seen: set[tuple[int, ...]] = set()
    while not lexer.accept(CLOSE):
        if default is not None and scope:
            place = lexer.place
            row = [_value(reader, v) for v in scope]
            if tuple(row) in seen:
                raise lexer.error(f"found a tuple of {title} a second time, expected each once", place)
            seen.add(tuple(row))
            tuples.append(row)
        place = lexer.place
        lexer.number(f"a cost of {title}")
        costs.append(_token(lexer, place))
        if len(costs) > LARGEST_TABLE:
            raise UnsupportedError(f"{_where(lexer)}: {title} lists more than {LARGEST_TABLE:,} costs")
    if default is not None and scope:
        return _Listed(np.array(tuples, dtype=np.int64).reshape(len(tuples), len(scope)), costs, default)
    if default is not None and not costs:
        costs = [default]
    if len(costs) != math.prod(sizes):
        raise lexer.error(f"found {len(costs)} costs of {title}, expected {math.prod(sizes)}", lexer.place - 1)
    return _Listed(None, costs, None)


def _token(lexer: Lexer, place: int) -> str:
    after = lexer.place
    lexer.place = place
    token = lexer.word("a cost")
    lexer.place = after
    return token


def _variable(reader: _Reader) -> int:
    """A variable by name, or by its number."""
    lexer = reader.lexer
    name = lexer.word("a variable, or ']'")
    if name in reader.index:
        return reader.index[name]
    lexer.place -= 1
    if not name.isdecimal() or not name.isascii():
        raise lexer.expected("a variable that was declared before")
    return lexer.integer("the number of a variable", 0, len(reader.variables) - 1)


def _value(reader: _Reader, v: int) -> int:
    """A value of a variable by name, or by its number."""
    lexer, variable = reader.lexer, reader.variables[v]
    label = lexer.word(f"a value of variable {variable.name!r}, or ']'")
    if label in reader.labels[v]:
        return reader.labels[v][label]
    lexer.place -= 1
    return lexer.integer(f"a value of variable {variable.name!r}", 0, variable.size - 1)


def _where(lexer: Lexer) -> str:
    error: FormatError = lexer.error("", lexer.place - 1)
    return f"{error.path}, line {error.line}"


class _Builder:
    """Makes the problem once it is known whether every number is an integer."""

    def __init__(self, reader: _Reader, minimises: bool, limit: str) -> None:
        self._reader = reader
        self._minimises = minimises
        named = {f.name: f for f in reader.functions if f.name}
        for f in reader.functions:
            if f.listed is None:
                later = named.get(f.shared)
                if later is None or later.listed is None or later.place < f.place:
                    raise reader.lexer.error(
                        f"found the costs of {f.shared!r}, expected a function that follows", f.place
                    )
                sizes = [[reader.variables[v].size for v in g.scope] for g in (f, later)]
                if sizes[0] != sizes[1]:
                    raise reader.lexer.error(
                        f"found domain sizes {sizes[0]}, expected those of {f.shared!r}, {sizes[1]}", f.place
                    )
        self._listed = [f.listed or named[f.shared].listed for f in reader.functions]
        texts = [limit, *(c for p in self._listed if p for c in (*p.costs, *([p.default] if p.default else [])))]
        self._is_integral = all(_integer(t) is not None for t in texts)
        self._limit = self._number(limit)

    def _number(self, text: str) -> int | float:
        value = _integer(text) if self._is_integral else None
        return float(text) if value is None else value

    def problem(self, name: str, mustbe_place: int) -> Problem:
        """The problem; ``mustbe_place`` is where the limit was read."""
        constant: int | float = 0 if self._is_integral else 0.0
        functions: list[Function] = []
        constraints: list[Constraint] = []
        for f, listed in zip(self._reader.functions, self._listed, strict=True):
            assert listed is not None
            costs = np.array(
                [self._number(c) for c in listed.costs], dtype=np.int64 if self._is_integral else np.float64
            )
            if not f.scope:
                if self._is_hard(costs)[0]:
                    constraints.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
                else:
                    constant += costs[0].item()
                continue
            shape = tuple(self._reader.variables[v].size for v in f.scope)
            default = None if listed.default is None else self._number(listed.default)
            tuples = listed.tuples
            if tuples is None:
                tuples = tuples_at(np.arange(math.prod(shape), dtype=np.int64), shape)
            self._add(f.scope, tuples, costs, default, listed.tuples is None, functions, constraints)
        whole = decomposed(self._reader.calls, self._minimises, self._limit, self._reader.variables)
        for table in whole.tables:
            default, *own = (min(cost, self._limit) for cost in (table.default, *table.costs))
            if table.scope:
                costs = np.array(own, dtype=np.int64 if self._is_integral else np.float64)
                self._add(table.scope, table.tuples, costs, default, False, functions, constraints)
            else:
                constant += default
        if not self._minimises:
            self._check_limit(constant, functions, mustbe_place)
        return Problem(
            (*self._reader.variables, *map(Variable, whole.names, whole.sizes[len(self._reader.variables) :])),
            tuple(functions),
            tuple(constraints),
            tuple(whole.linear),
            constant=constant,
            semiring=MIN_SUM if self._minimises else MAX_SUM,
            upper_bound=self._limit if self._minimises else None,
            name=name,
        )

    def _is_hard(self, costs: NDArray[Any]) -> NDArray[np.bool_]:
        hard: NDArray[np.bool_] = costs >= self._limit if self._minimises else costs <= self._limit
        return hard

    def _add(
        self,
        scope: tuple[int, ...],
        tuples: NDArray[np.int64],
        costs: NDArray[Any],
        default: int | float | None,
        is_complete: bool,
        functions: list[Function],
        constraints: list[Constraint],
    ) -> None:
        """Split one function into what it forbids and what it costs; a part that says nothing is left out."""
        hard = self._is_hard(costs)
        soft = ~hard
        if is_complete or (default is not None and self._is_hard(np.array([default]))[0]):
            if costs[soft].any():
                functions.append(Function(scope, tuples[soft], costs[soft], None))
            elif not is_complete or hard.any():
                constraints.append(Constraint(scope, tuples[soft], allowed=True))
            return
        if hard.any():
            constraints.append(Constraint(scope, tuples[hard]))
        if default or costs[soft].any():
            functions.append(Function(scope, tuples[soft], costs[soft], default))

    def _check_limit(self, constant: float, functions: list[Function], place: int) -> None:
        """Refuse a lower limit on a sum to maximise that an assignment may fail to pass."""
        least = constant
        for f in functions:
            entries = f.values.tolist() if f.default is None else [*f.values.tolist(), f.default]
            least += min(entries, default=0)
        if least <= self._limit:
            lexer = self._reader.lexer
            error = lexer.error("", place)
            raise UnsupportedError(
                f"{error.path}, line {error.line}: only sums above {self._limit} count, and some may be {least}: a "
                f"limit that can bind is supported for costs to minimise only; lower it below {least}, if every single "
                "function's values stay above it"
            )


def _integer(text: str) -> int | None:
    """A number that is an integer below 2^62, of any number of digits (of which Python converts so many only)."""
    digits = text.lstrip("+-")
    significant = digits.lstrip("0") or "0"
    if not digits.isdecimal() or not text.isascii() or len(significant) > 19 or int(significant) >= 2**62:
        return None
    return -int(significant) if text.startswith("-") else int(significant)
