"""Cost function networks in toulbar2's JSON format (``.cfn``), read and written.

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
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Context, Decimal
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats.cfn_globals import (
    FORBIDDEN,
    LARGEST_INTEGER,
    MISREAD,
    SIGNATURES,
    GlobalCall,
    Precision,
    decomposed,
    read_parameters,
    room,
    split,
)
from oocbe.formats.cost_tables import plain_names, tables_of
from oocbe.formats.global_costs import Cost, ListedCosts
from oocbe.formats.text import LARGEST_DOMAIN, LARGEST_TABLE, Lexer, Text, parse_number
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
            if kind not in SIGNATURES:  # whose parameters may be of any form
                why = MISREAD.get(kind, f"those that are: {', '.join(SIGNATURES)}")
                raise lexer.unsupported(f"{title} is of type {kind!r}, which is not supported; {why}")
            _tag(lexer, "params")
            lexer.take(OPEN, f"'{{' and the parameters of {title}")
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
    return lexer.sees(OPEN, 1)


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


MOST_DIGITS = 17
"""Digits of a cost, together with its decimals, that toulbar2 surely holds."""

LARGEST_CHANGE, SMALLEST_CHANGE = 1e-6, 1e-9
"""Largest change of a cost by rounding, relative or absolute; larger changes are refused."""

_MARKS = re.compile(r"[\s\x00-\x1f\x7f\"\\{}\[\],:]")
"""Characters that end a name in toulbar2, in quotes as well, or that it misreads."""

_NUMBER = re.compile(r"[\d+.-]")
"""Beginnings of names that toulbar2 takes for numbers, and refuses."""


def render(problem: Problem) -> str:
    """The problem as a cfn, with the names of variables and values; integers stay integers, floats keep their
    decimals, of which toulbar2 holds so many that all numbers have at most 17 digits.

    Names that toulbar2 would not read are changed: marks in them and numbers at their beginning become ``_`` and get
    one in front.

    Raises UnsupportedError: neither costs to minimise nor values to maximise by sums, a linear constraint over too
    much, or a bound that toulbar2 misreads: a decimal between -1 and 0; ValueRangeError: costs that need more digits
    than toulbar2 holds.
    """
    if problem.semiring not in (MIN_SUM, MAX_SUM):
        raise UnsupportedError(
            f"{problem.name}: the cfn format holds costs to add and optimise, not a {problem.semiring} problem; "
            "write products as uai, which toulbar2 reads as well"
        )
    problem = _with_plain_names(problem)
    minimises = problem.semiring == MIN_SUM
    numbers = _numbers(problem)
    hard = numbers.hard
    variables = []
    for v, variable in enumerate(problem.variables):
        labels = variable.labels
        domain = str(variable.size) if labels is None else f"[{', '.join(_quoted(label) for label in labels)}]"
        # toulbar2 takes a number in the place of a name for a domain size, be it in quotes or not.
        variables.append(domain if variable.name == str(v) else f"{_quoted(variable.name)}: {domain}")
    parts: list[tuple[tuple[int, ...], NDArray[np.int64], list[Any], Any]] = []
    for t in tables_of(problem, "the cfn format"):
        costs = [hard] * len(t.tuples) if t.values is None else t.values.tolist()
        parts.append((t.scope, t.tuples, costs, hard if t.default is None else t.default))
    if problem.constant:
        parts.append(((), np.zeros((0, 0), dtype=np.int64), [], problem.constant))
    mustbe = f"{'<' if minimises else '>'}{numbers.text(numbers.limit)}"
    lines = ["{", f'"problem": {{"name": {_quoted(_plain([problem.name or "problem"])[0])}, "mustbe": "{mustbe}"}},']
    lines += ['"variables": {', ",\n".join(variables), "},", '"functions": {']
    bodies = [_body(problem, numbers, number, *part) for number, part in enumerate(parts)]
    return "\n".join([*lines, ",\n".join(bodies), "}", "}"]) + "\n"


def _body(
    problem: Problem,
    numbers: _Numbers,
    number: int,
    scope: tuple[int, ...],
    tuples: NDArray[np.int64],
    costs: list[Any],
    default: Any,
) -> str:
    names = ", ".join(str(v) if (own := problem.variables[v].name) == str(v) else _quoted(own) for v in scope)
    if not scope:
        only = costs[0] if costs else default
        return f'"f{number}": {{"scope": [], "costs": [{numbers.text(only)}]}}'
    rows, labels = [], [problem.variables[v].labels for v in scope]
    for row, cost in zip(tuples.tolist(), costs, strict=True):
        # Numbers would be taken for labels where these are numbers themselves.
        values = [str(x) if own is None else _quoted(own[x]) for own, x in zip(labels, row, strict=True)]
        rows.append(f"{', '.join(values)}, {numbers.text(cost)}")
    listed = ",\n".join(rows)
    return f'"f{number}": {{"scope": [{names}], "defaultcost": {numbers.text(default)}, "costs": [\n{listed}]}}'


def _quoted(name: str) -> str:
    return f'"{name}"'


def _with_plain_names(problem: Problem) -> Problem:
    """The problem with names that toulbar2 reads; labels that are but the values' numbers are left out."""
    names = _plain(v.name if v.name != str(place) else "" for place, v in enumerate(problem.variables))
    variables = []
    for place, (variable, name) in enumerate(zip(problem.variables, names, strict=True)):
        numbered = variable.labels is None or variable.labels == tuple(map(str, range(variable.size)))
        own = variable.name if variable.name == str(place) else name
        variables.append(Variable(own, variable.size, None if numbered else tuple(_plain(variable.labels or ()))))
    return replace(problem, variables=tuple(variables))


def _plain(names: Iterable[str]) -> list[str]:
    """Names without what toulbar2 does not read in them; those of different ones differ."""
    return plain_names(names, _MARKS, _NUMBER)


@dataclass(frozen=True)
class _Numbers:
    """Format of numbers. Sums must stay below, or above, ``limit``: the bound, or what no assignment reaches. ``hard``
    forbids a tuple, whatever else is below (above) zero. ``decimals`` is that of all numbers; None of integers."""

    limit: int | Decimal
    hard: int | float
    decimals: int | None

    def text(self, value: int | float | Decimal) -> str:
        """A number with so many decimals, rounded; without an exponent, which toulbar2 does not take."""
        if isinstance(value, int):
            return str(value)
        number = Decimal(repr(value)) if isinstance(value, float) else value
        return format(number, f".{self.decimals or 0}f")


def _numbers(problem: Problem) -> _Numbers:
    """The limit of a problem, what is hard, and as many decimals as costs have.

    toulbar2 cuts all decimals to those of the limit, which has no more than its 64-bit integers can hold together with
    the digits before the point.
    """
    sign = 1 if problem.semiring == MIN_SUM else -1
    own = problem.upper_bound if sign > 0 else problem.lower_bound
    extremes = zip(problem.extremes.least.tolist(), problem.extremes.greatest.tolist(), strict=True)
    ends = [sorted((sign * low, sign * high)) for low, high in extremes]
    saved = min(sign * problem.constant, 0) + sum(min(low, 0) for low, _ in ends)
    bound = math.inf if own is None else sign * own
    if bound - saved >= LARGEST_INTEGER:  # toulbar2 holds no such limit, but needs none above all sums
        total = max(sign * problem.constant, 0) + sum(max(high, 0) for _, high in ends)
        bound = min(bound, total + (1 if problem.is_integral else _margin(float(max(total, -saved)))))
    if problem.is_integral:
        bound = math.ceil(bound)
        hard: int | float = max(0, bound - int(saved))
        if max(abs(bound), hard, -saved) >= LARGEST_INTEGER:
            raise ValueRangeError(
                f"{problem.name}: costs add up to {hard:.3g}, and the cfn format holds integers of 62 bits; forbid "
                "tuples instead of giving them large costs"
            )
        return _Numbers(sign * bound, sign * hard, None)
    hard = sign * max(0.0, float(math.ceil(bound - saved + _margin(float(abs(bound) - saved)))))
    numbers = {float(problem.constant), *(float(f.default) for f in problem.functions if f.default is not None)}
    numbers.update(*(f.values.astype(np.float64).tolist() for f in problem.functions))
    wanted = max(len(format(Decimal(repr(number)), "f").partition(".")[2]) for number in numbers)
    decimals = max(0, min(wanted, MOST_DIGITS - len(str(math.ceil(max(abs(bound), abs(hard)))))))
    # Sums are multiples of the last place: those below the bound are below the next multiple, too.
    context = Context(prec=400, rounding=ROUND_CEILING)
    for number in numbers:
        if abs(float(format(number, f".{decimals}f")) - number) > max(LARGEST_CHANGE * abs(number), SMALLEST_CHANGE):
            raise ValueRangeError(
                f"{problem.name}: the cost {number} beside others as large as {hard:.3g} needs more digits than the "
                f"{MOST_DIGITS} that toulbar2 holds; forbid tuples instead of giving them large costs"
            )
    limit = sign * Decimal(repr(float(bound))).quantize(Decimal(1).scaleb(-decimals), context=context)
    if -1 < limit < 0:
        raise UnsupportedError(
            f"{problem.name}: toulbar2 takes a limit between -1 and 0, such as {limit}, for its absolute value; add 1 "
            "to the bound and to the constant"
        )
    return _Numbers(limit, hard, decimals)


def _margin(total: float) -> float:
    """Distance of the limit from sums: more than the rounding of floats of this size, added in any order."""
    return max(1.0, abs(total) * 1e-6)
