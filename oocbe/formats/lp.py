r"""Linear and mixed-integer programs in the LP format of CPLEX, and their writers to it and to MPS.

A file has sections, each begun by its keyword: the objective after ``minimize`` or ``maximize``, rows after ``subject
to``, then ``bounds``, ``general`` and ``binary`` variables, and ``end``; a ``\`` starts a comment. Variables are
numbered as they occur. By default a variable is real and at least 0; a binary one stays within its bounds, too.
Keywords are not names. A number without a point or exponent is an exact integer of any size.

It is read here and not by HiGHS, which takes files without an error that it does not understand: it forgets one of
two coefficients of a variable in the objective, the 1 of ``x + 1 <= 7``, and takes a file without an objective for
an empty program (HiGHS 1.15). Quadratic parts, indicators, semicontinuous variables, special ordered sets and general
constraints raise :class:`~oocbe.errors.UnsupportedError`.

Systems are also written in the free MPS format (:mod:`oocbe.formats.mps` reads it). Numbers are written to the last
digit, unlike by HiGHS, which writes 15. Names that readers do not take get ``_`` for what is wrong in them
(:mod:`oocbe.formats.cost_tables`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.cost_tables import plain_names
from oocbe.formats.text import MOST_DIGITS, Lexer, Text
from oocbe.model.linear_system import INFINITE, LinearSystem, as_numbers, needs_integers
from oocbe.runtime.deadline import check_deadline

_TOKENS = re.compile(
    r"\s+|\\[^\n]*|(?P<mark><=|=<|>=|=>|->|[<>=:+\-*/^\[\]])"
    r"|(?P<word>[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|[^\s\d.<>=:+\-*/^\[\]\\](?:[^\s<>=:+\-*/^\[\]\\]|\[[^\s\[\]\\]*\])*)"
)
"""Tokens, and what lies between them. Brackets that stand in a name, as in Gurobi's ``x[a,b]``, are part of it."""

_SENSES = {
    **dict.fromkeys(("min", "minimize", "minimise", "minimum"), False),
    **dict.fromkeys(("max", "maximize", "maximise", "maximum"), True),
}
"""Words that a file begins with: whether the objective is to be large."""

_SECTIONS = {
    **dict.fromkeys(("subject", "such", "st", "s.t.", "st."), "rows"),
    **dict.fromkeys(("bounds", "bound"), "bounds"),
    **dict.fromkeys(("general", "generals", "gen", "integer", "integers", "int"), "integers"),
    **dict.fromkeys(("binary", "binaries", "bin"), "binaries"),
    "end": "end",
    **dict.fromkeys(("semi", "semis", "sin"), "semicontinuous variables"),
    **dict.fromkeys(("sos", "sos1", "sos2"), "special ordered sets"),
    "lazy": "lazy constraints",
    "user": "user cuts",
    "multi": "several objectives",
    "pwlobj": "a piecewise linear objective",
}
"""Section that each keyword begins; a section that is not read here by its name in messages."""

_SECOND_WORDS = ("continuous", "constraints", "cuts", "objectives")
"""Second words of the keywords of sections that are not read."""

_READ = ("rows", "bounds", "integers", "binaries", "end")

RESERVED = {*_SENSES, *_SECTIONS, "to", "that", "free", "inf", "infinity"}
"""Words that are no names."""

_INFINITIES = ("inf", "infinity")
_RELATIONS = {"<": "<=", "<=": "<=", "=<": "<=", ">": ">=", ">=": ">=", "=>": ">=", "=": "="}
_MARKS = "<=>=<"
"""Relations, each a part of this."""

_TURNED = {"<=": ">=", ">=": "<=", "=": "="}

Number = int | float


def parse(text: Text) -> LinearSystem:
    """Read a program; FormatError with the line where it is malformed, UnsupportedError where it is not linear."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: Text) -> None:
        self._text = text
        self._lexer = Lexer(text, _TOKENS)
        self._variables: dict[str, int] = {}
        self._rows: list[tuple[dict[int, Number], Number, Number]] = []
        self._row_names: list[str] = []
        self._lower: dict[int, Number] = {}
        self._upper: dict[int, Number] = {}
        self._integral: set[int] = set()
        self._binary: set[int] = set()

    def read(self) -> LinearSystem:
        """Read all sections."""
        lexer = self._lexer
        maximises = _SENSES.get(lexer.next_word.lower())
        if maximises is None:
            raise lexer.expected("minimize or maximize")
        lexer.place += 1
        self._name("objective")
        objective, constant = self._sum()
        section = self._section("a sign or a section such as 'subject to'")
        while section != "end":
            while self._keyword() is None:
                if lexer.ended:
                    raise lexer.error("the file ends, expected 'end'")
                if section == "rows":
                    self._row()
                elif section == "bounds":
                    self._bound()
                else:
                    v = self._variable("a variable or a section")
                    self._integral.add(v)
                    if section == "binaries":
                        self._binary.add(v)
            section = self._section("a section")
        if not lexer.ended:
            raise lexer.expected("nothing after 'end'")
        return self._system(objective, constant, maximises)

    def _keyword(self) -> str | None:
        """The section whose keyword is next, where it is one and no row's name."""
        return None if self._lexer.sees(":", 1) else _SECTIONS.get(self._lexer.next_word.lower())

    def _section(self, what: str) -> str:
        found = self._keyword()
        if found is None:
            raise self._lexer.expected(what)
        begin = self._lexer.place
        word = self._lexer.word("a section").lower()
        second = {"subject": "to", "such": "that"}.get(word)
        if second is not None:
            if self._lexer.next_word.lower() != second:
                raise self._lexer.expected(f"{second!r} after {word!r}")
            self._lexer.place += 1
        elif word in ("general", "gen") and self._lexer.next_word.lower() == "constraints":
            found = "general constraints"
        if found in _READ:
            return found
        self._lexer.accept("-")  # semi-continuous
        if self._lexer.next_word.lower() in _SECOND_WORDS:
            self._lexer.place += 1
        if self._keyword() is None and not self._lexer.ended:
            raise self._unsupported(found, begin)
        return self._section("a section")  # HiGHS writes sections with nothing in them

    def _name(self, default: str) -> str:
        lexer = self._lexer
        if not (lexer.sees_word() and lexer.sees(":", 1)):
            return default
        name = lexer.word("a name")
        lexer.take(":", "':'")
        return name

    def _row(self) -> None:
        lexer = self._lexer
        check_deadline()
        name = self._name(f"row {len(self._rows)}")
        low, high = -math.inf, math.inf
        place = lexer.place
        left = self._side()
        has_left = left is not None and lexer.sees(_MARKS)
        if left is not None and has_left:
            low, high = self._sides(_TURNED[self._relation()], left)
        else:
            lexer.place = place
        begin = lexer.place
        terms, constant = self._sum()
        if has_left and not terms:  # a number on either side, or a row without entries of PuLP
            low, high = low - constant, high - constant
        elif constant or (lexer.place == begin and not lexer.sees(_MARKS)):
            raise lexer.error("found a row that is no sum of variables, expected constants on its right side", begin)
        if not has_left or lexer.sees(_MARKS):
            relation = self._relation()
            right = self._side()
            if right is None:
                raise lexer.expected("the right side, a number")
            if lexer.sees("->") and not lexer.sees("-"):  # a mark is looked for in a string of them
                raise self._unsupported("indicator constraints")
            a, b = self._sides(relation, right)
            low, high = max(low, a), min(high, b)
        self._rows.append((terms, low, high))
        self._row_names.append(name)

    def _sides(self, relation: str, side: Number) -> tuple[Number, Number]:
        return (-math.inf if relation == "<=" else side), (math.inf if relation == ">=" else side)

    def _relation(self) -> str:
        mark = self._lexer.take(_MARKS, "a sign or a relation: <=, >= or =")
        if mark in "<>":
            self._lexer.accept("=")  # behind a blank
        return _RELATIONS[mark]

    def _sum(self) -> tuple[dict[int, Number], Number]:
        """Coefficients of variables and the constant, up to what can be neither."""
        lexer = self._lexer
        terms: dict[int, Number] = {}
        constant: Number = 0
        is_first = True
        while lexer.sees("+-") or lexer.sees("[") or (is_first and lexer.sees_word() and self._keyword() is None):
            sign = self._signs()
            if lexer.sees("["):
                raise self._unsupported("quadratic parts")
            is_first = False
            begin = lexer.place
            coefficient = self._number()
            if lexer.sees_word() and self._keyword() is None and not self._sees_number():
                v = self._variable("a variable")
                terms[v] = self._added(terms.get(v, 0), sign * (1 if coefficient is None else coefficient), begin)
            elif coefficient is None:
                raise lexer.expected("a number or a variable")
            else:
                constant = self._added(constant, sign * coefficient, begin)
            if lexer.sees("*/^"):
                raise lexer.expected("a sign, as terms are numbers and variables")
        return terms, constant

    def _added(self, one: Number, other: Number, place: int) -> Number:
        if isinstance(one, int) and isinstance(other, int):
            return one + other
        exact = Fraction(repr(one)) + Fraction(repr(other))  # of decimals, as the file has them: 0.1 + 0.2 is 0.3
        total = float(exact)
        if Fraction(repr(total)) != exact:
            raise self._lexer.error(
                f"found {one!r} and {other!r} of one variable, whose sum is no double; add them up", place
            )
        return total

    def _signs(self) -> int:
        sign = 1
        while self._lexer.sees("+-"):
            sign *= -1 if self._lexer.take("+-", "a sign") == "-" else 1
        return sign

    def _sees_number(self) -> bool:
        return self._lexer.next_word[:1].isdecimal() or self._lexer.next_word.startswith(".")

    def _number(self) -> Number | None:
        if not self._sees_number():
            return None
        word = self._lexer.next_word
        if word.isdecimal():
            if len(word) > MOST_DIGITS:
                raise self._lexer.expected(f"an integer of at most {MOST_DIGITS} digits")
            self._lexer.place += 1
            return int(word)
        return self._lexer.number("a number")

    def _side(self) -> Number | None:
        """Take a number with its sign, infinities too, where there is one alone."""
        lexer = self._lexer
        begin = lexer.place
        sign = self._signs()
        value: Number | None = self._number()
        if value is None and lexer.next_word.lower() in _INFINITIES:
            lexer.place += 1
            value = math.inf
        if value is None:
            lexer.place = begin
            return None
        return sign * (math.inf if value >= INFINITE and isinstance(value, float) else value)

    def _variable(self, what: str) -> int:
        lexer = self._lexer
        if self._sees_number() or lexer.next_word.lower() in RESERVED:
            raise lexer.expected(what)
        return self._variables.setdefault(lexer.word(what), len(self._variables))

    def _bound(self) -> None:
        lexer = self._lexer
        begin = lexer.place
        left = self._side()
        if left is not None:
            relation = _TURNED[self._relation()]
            v = self._variable("a variable")
            self._set(v, relation, left, begin)
            if not lexer.sees(_MARKS):
                return
        else:
            v = self._variable("a bound: a number, a variable, or a section")
            if lexer.next_word.lower() == "free":
                lexer.place += 1
                self._lower[v], self._upper[v] = -math.inf, math.inf
                return
        begin = lexer.place
        relation = self._relation()
        right = self._side()
        if right is None:
            raise lexer.expected("a number")
        self._set(v, relation, right, begin)

    def _set(self, v: int, relation: str, value: Number, place: int) -> None:
        low, high = self._sides(relation, value)
        if low == math.inf or high == -math.inf:
            raise self._lexer.error("found a bound that leaves no value, expected a finite one", place)
        if relation != "<=":
            self._lower[v] = low
        if relation != ">=":
            self._upper[v] = high

    def _system(self, objective: dict[int, Number], constant: Number, maximises: bool) -> LinearSystem:
        count = len(self._variables)
        lower = [self._lower.get(v, 0) for v in range(count)]
        upper = [self._upper.get(v, math.inf) for v in range(count)]
        for v in self._binary:
            lower[v], upper[v] = max(lower[v], 0), min(upper[v], 1)
        costs = [objective.get(v, 0) for v in range(count)]
        return LinearSystem.from_rows(
            self._rows,
            lower,
            upper,
            np.array([v in self._integral for v in range(count)], dtype=bool),
            names=tuple(self._variables),
            row_names=tuple(self._row_names),
            objective=as_numbers(costs, needs_integers(costs)),
            constant=constant,
            maximises=maximises,
            name=self._text.stem,
        )

    def _unsupported(self, what: str, place: int | None = None) -> UnsupportedError:
        return self._lexer.unsupported(f"{what} are not supported", self._lexer.place if place is None else place)


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
    system: LinearSystem, is_split: Callable[[float, float], bool], no_names: tuple[re.Pattern[str], re.Pattern[str]]
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
