"""Cost function networks in toulbar2's JSON format (``.cfn``), read.

An object with the ``problem`` (``name`` and ``mustbe``), the ``variables`` and the ``functions``, in this order::

    {problem: {name: pair, mustbe: "<10.5"}, variables: {x: [a b], y: 2},
     functions: {f: {scope: [x y], costs: [0.5 1 2 10.5]}}}

Quotes, commas, colons and the tags within objects may be left out, braces and brackets stand for each other, a line
that begins with ``#`` is a comment, and so is what follows ``//``. ``<10.5`` minimises, and assignments that cost 10.5
or more in all are infeasible; ``>0`` maximises (a max-sum problem), and those worth 0 or less are infeasible. What
single costs forbid by that, and how many decimals costs have, says :mod:`oocbe.formats.cfn_globals`; ``inf`` forbids.

Where toulbar2 (1.4) reads other than what the format's definition says, this reader keeps to the definition: toulbar2
takes a limit such as ``<-0.5``, between -1 and 0, for 0.5; of a complete table over more than three variables it
counts the least cost twice, and mistakes tuples once ``inf`` has forbidden a value; it forgets a function that shares
the costs of one before it (refused here), and stops at the exponent of ``<1e3``.

Read are functions with a list of ``costs``: all of them in lexicographic order, or tuples each with its cost and a
``defaultcost`` for the others; or with the name of a later function whose costs are shared. A function with a ``type``
is one of many variables by its meaning: what decomposes exactly (:mod:`oocbe.formats.cfn_globals`) is read where costs
are minimised; other types, and interval variables, raise :class:`~oocbe.errors.UnsupportedError`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.cfn_globals import (
    FORBIDDEN,
    LARGEST_INTEGER,
    Cost,
    GlobalCall,
    Precision,
    check_supported,
    decomposed,
    read_parameters,
    room,
    split,
)
from oocbe.formats.global_costs import ListedCosts
from oocbe.formats.lexer import Lexer, parse_number
from oocbe.formats.text import LARGEST_DOMAIN, LARGEST_TABLE, Text
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import tuples_at
from oocbe.model.semiring import MAX_SUM, MIN_SUM

OPEN, CLOSE = "{[", "}]"
"""Brackets of objects and lists."""

TOKENS = re.compile(
    r'(?m:^#[^\n]*)|//[^\n]*|[\s,:]+|"(?P<quoted>[^"\n]*)"|(?P<mark>[{}\[\]])|(?P<word>(?:(?!//)[^\s,:{}\[\]"])+)'
)
"""Comments and separators, a quoted name, a bracket, or a word."""

_NUMBERED = re.compile("v(0|[1-9][0-9]{0,8})")
"""toulbar2's name of a value without a name."""


@dataclass
class _Listed:
    """The costs of a function, to the precision of the file.
    ``tuples`` is (rows, arity) with ``default``; None: all tuples, in lexicographic order. ``costs`` is (rows,),
    infinite where forbidden. ``default`` is the cost of tuples that are not listed; None: all are."""

    tuples: NDArray[np.int64] | None
    costs: list[Cost]
    default: Cost | None


@dataclass
class _Named:
    """A function as it is read, its costs perhaps those of a later one."""

    name: str
    scope: tuple[int, ...]
    place: int
    listed: _Listed | None
    shared: str = ""


@dataclass
class _CfnReader:
    lexer: Lexer
    variables: list[Variable] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    unnamed: dict[str, int] = field(default_factory=dict)
    labels: list[dict[str, int]] = field(default_factory=list)
    functions: list[_Named] = field(default_factory=list)
    calls: list[GlobalCall] = field(default_factory=list)
    path: str = ""
    precision: Precision = field(default_factory=lambda: Precision("0"))


def parse(text: Text) -> Problem:
    """Read a problem; FormatError with the line where it is malformed, UnsupportedError for what is left out."""
    lexer = Lexer(text, TOKENS)
    reader = _CfnReader(lexer, path=text.path)
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
    reader.precision = Precision(mustbe[1:])
    lexer.take(CLOSE, "'}' after mustbe")
    _tag(lexer, "variables")
    _read_variables(reader)
    _tag(lexer, "functions")
    _read_functions(reader)
    lexer.take(CLOSE, "'}' at the end")
    if not lexer.ended:
        raise lexer.expected("the end of the file")
    return _Builder(reader, mustbe[0] == "<").problem(name)


def _tag(lexer: Lexer, name: str) -> bool:
    """Pass over the name of a field, which may be left out; whether it is there."""
    is_there = lexer.sees_word((name,))
    lexer.place += is_there
    return is_there


def _read_variables(reader: _CfnReader) -> None:
    lexer = reader.lexer
    lexer.take(OPEN, "'{' and the variables")
    while not lexer.accept(CLOSE):
        place = lexer.place
        name = str(len(reader.variables))
        if lexer.sees_word() and (lexer.sees_string or not _is_number(lexer)):
            name = lexer.word("a variable's name")
        else:
            reader.unnamed[f"x{name}"] = len(reader.variables)
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
                raise lexer.unsupported(
                    f"variable {name!r} has an interval domain (size {size}); only enumerated domains are supported"
                )
            if size == 0:
                raise lexer.error(f"found the domain size 0 of variable {name!r}, expected at least 1", lexer.place - 1)
        reader.index[name] = len(reader.variables)
        reader.variables.append(Variable(name, size, None if labels is None else tuple(labels)))
        reader.labels.append({label: value for value, label in enumerate(labels or ())})


def _is_number(lexer: Lexer) -> bool:
    return parse_number(lexer.next_word) is not None


def _read_functions(reader: _CfnReader) -> None:
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
        if _tag(lexer, "type") or _sees_type(lexer):
            if len(set(scope)) < len(scope):
                raise lexer.error(f"found a variable twice in the scope of {title}, expected each once")
            kind = lexer.word("the type of a function")
            line = lexer.line(lexer.place - 1)
            check_supported(reader.path, line, title, kind)
            _tag(lexer, "params")
            parameters = read_parameters(lexer, OPEN, CLOSE, title)
            reader.calls.append(GlobalCall(reader.path, line, title, kind, tuple(scope), parameters))
            lexer.take(CLOSE, f"'}}' at the end of {title}")
            continue
        is_default = _tag(lexer, "defaultcost")
        default = _cost(reader, "a default cost") if is_default or _is_number(lexer) else None
        _tag(lexer, "costs")
        if lexer.sees_word():
            if default is not None:
                raise lexer.error(f"found a default cost of {title}, which shares its costs: expected none")
            reader.functions.append(_Named(name, tuple(scope), place, None, lexer.word("a function")))
        else:
            lexer.take(OPEN, f"'[' and the costs of {title}")
            listed = _read_costs(reader, title, scope, default)
            reader.functions.append(_Named(name, tuple(scope), place, listed))
        lexer.take(CLOSE, f"'}}' at the end of {title}")


def _sees_type(lexer: Lexer) -> bool:
    """Whether a type follows whose tag was left out: a word, and a bracket with its parameters."""
    if not lexer.sees_word() or lexer.next_word in ("costs", "defaultcost") or _is_number(lexer):
        return False
    lexer.place += 1
    is_type = lexer.sees(OPEN)
    lexer.place -= 1
    return is_type


def _read_costs(reader: _CfnReader, title: str, scope: list[int], default: Cost | None) -> _Listed:
    lexer = reader.lexer
    sizes = [reader.variables[v].size for v in scope]
    costs: list[Cost] = []
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
        costs.append(_cost(reader, f"a cost of {title}"))
        if len(costs) > LARGEST_TABLE:
            raise lexer.unsupported(f"{title} lists more than {LARGEST_TABLE:,} costs")
    if default is not None and scope:
        return _Listed(np.array(tuples, dtype=np.int64).reshape(len(tuples), len(scope)), costs, default)
    if default is not None and not costs:
        costs = [default]
    if len(costs) != math.prod(sizes):
        raise lexer.error(f"found {len(costs)} costs of {title}, expected {math.prod(sizes)}", lexer.place - 1)
    return _Listed(None, costs, None)


def _cost(reader: _CfnReader, what: str) -> Cost:
    lexer = reader.lexer
    place = lexer.place
    if lexer.next_word != FORBIDDEN:
        lexer.number(what)
    lexer.place = place
    return reader.precision.cost(lexer.word(what))


def _variable(reader: _CfnReader) -> int:
    """A variable by name, or by its number, which toulbar2 gives a name such as x3 where the file gives none."""
    lexer = reader.lexer
    name = lexer.word("a variable, or ']'")
    if name in reader.index:
        return reader.index[name]
    if name in reader.unnamed:
        return reader.unnamed[name]
    lexer.place -= 1
    if not name.isdecimal() or not name.isascii():
        raise lexer.expected("a variable that was declared before")
    return lexer.integer("the number of a variable", 0, len(reader.variables) - 1)


def _value(reader: _CfnReader, v: int) -> int:
    """A value of a variable by name, or by its number, or as v3 where the file gives no names."""
    lexer, variable = reader.lexer, reader.variables[v]
    label = lexer.word(f"a value of variable {variable.name!r}, or ']'")
    if label in reader.labels[v]:
        return reader.labels[v][label]
    lexer.place -= 1
    if variable.labels is None and _NUMBERED.fullmatch(label) and int(label[1:]) < variable.size:
        lexer.place += 1
        return int(label[1:])
    return lexer.integer(f"a value of variable {variable.name!r}", 0, variable.size - 1)


class _Builder:
    def __init__(self, reader: _CfnReader, minimises: bool) -> None:
        self._reader = reader
        self._sign = 1 if minimises else -1
        self._listed = [f.listed or self._shared(f) for f in reader.functions]
        self._bound = reader.precision.bound(minimises)
        numbers = chain([self._bound], *((*p.costs, p.default or 0) for p in self._listed))
        is_integral = reader.precision.is_whole and all(isinstance(n, int) or n == math.inf for n in numbers)
        self._number: type[Any] = int if is_integral else float

    def _shared(self, f: _Named) -> _Listed:
        lexer, variables = self._reader.lexer, self._reader.variables
        named = [g for g in self._reader.functions if g.name == f.shared and g.listed and g.place > f.place]
        if len(named) != 1:
            what = "two functions of this name" if named else "expected a function that follows, with costs of its own"
            raise lexer.error(f"found the costs of {f.shared!r}, {what}", f.place)
        sizes = [[variables[v].size for v in g.scope] for g in (f, named[0])]
        if sizes[0] != sizes[1]:
            raise lexer.error(f"found domain sizes {sizes[0]}, expected those of {f.shared!r}, {sizes[1]}", f.place)
        assert named[0].listed is not None
        return named[0].listed

    def problem(self, name: str) -> Problem:
        """The problem, with what its functions cost and forbid below the limit."""
        constant: Cost = 0
        tables: list[ListedCosts] = []
        for f, listed in zip(self._reader.functions, self._listed, strict=True):
            table = self._table(f.scope, listed)
            if f.scope:
                tables.append(table)
            else:
                constant += table.costs[0]
        bound = self._sign * self._bound
        variables = self._reader.variables
        precision = self._reader.precision
        whole = decomposed(self._reader.calls, self._sign, precision, room(bound, constant, tables), variables)
        for made in whole.tables:
            largest = max(abs(cost) for cost in (0, made.default, *made.costs) if cost < math.inf)
            if precision.is_whole and largest >= LARGEST_INTEGER:
                raise UnsupportedError(
                    f"{self._reader.path}: a function with a type costs up to {largest:.3g}, beyond the integers of 62 "
                    "bits; scale the costs down"
                )
            default, *costs = (
                math.inf if cost >= whole.top else cost if precision.is_whole else cost / precision.scale
                for cost in (made.default, *made.costs)
            )
            if made.scope:
                tables.append(replace(made, costs=costs, default=default))
            else:
                constant += default
        functions, constraints = split(tables, bound, constant, self._sign, self._number)
        if constant == math.inf:
            constant = 0
            constraints.append(Constraint((), np.zeros((0, 0), dtype=np.int64), allowed=True))
        return Problem(
            (*variables, *map(Variable, whole.names, whole.sizes[len(variables) :])),
            tuple(functions),
            tuple(constraints),
            tuple(whole.linear),
            constant=self._number(self._sign * constant) + 0,  # not -0.0
            semiring=MIN_SUM if self._sign > 0 else MAX_SUM,
            upper_bound=self._bound if self._sign > 0 else None,
            lower_bound=self._bound if self._sign < 0 else None,
            name=name,
        )

    def _table(self, scope: tuple[int, ...], listed: _Listed) -> ListedCosts:
        shape = tuple(self._reader.variables[v].size for v in scope)
        size = math.prod(shape)
        tuples = listed.tuples
        if tuples is None:
            tuples = tuples_at(np.arange(size, dtype=np.int64), shape)
        costs = listed.costs if self._sign > 0 else [-c if c < math.inf else c for c in listed.costs]
        default = math.inf if listed.default is None else listed.default
        default = self._sign * default if default < math.inf else default
        if len(set(scope)) < len(scope):  # only tuples with one value of a variable say anything
            first = [scope.index(v) for v in scope]
            places = sorted(set(first))
            keep = (tuples == tuples[:, first]).all(axis=1)
            costs = [cost for cost, kept in zip(costs, keep.tolist(), strict=True) if kept]
            tuples, scope = tuples[np.ix_(keep, places)], tuple(scope[k] for k in places)
            size = math.prod(shape[k] for k in places)
        return ListedCosts(scope, size, tuples, costs, default)
