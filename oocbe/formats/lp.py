r"""Linear and mixed-integer programs in the LP format of CPLEX, the reading side.

A file has sections, each begun by its keyword: the objective after ``minimize`` or ``maximize``, rows after ``subject
to``, then ``bounds``, ``general`` and ``binary`` variables, and ``end``; a ``\`` starts a comment. Variables are
numbered as they occur. By default a variable is real and at least 0; a binary one stays within its bounds, too.
Keywords are not names. A number without a point or exponent is an exact integer of any size.

It is read here and not by HiGHS, which takes files without an error that it does not understand: it forgets one of
two coefficients of a variable in the objective, the 1 of ``x + 1 <= 7``, and takes a file without an objective for
an empty program (HiGHS 1.15). Quadratic parts, indicators, semicontinuous variables, special ordered sets and general
constraints raise :class:`~oocbe.errors.UnsupportedError`.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.lexer import MOST_DIGITS, Lexer
from oocbe.formats.text import Text
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
        found = _SECTIONS.get(self._lexer.next_word.lower())
        if found is None:
            return None
        self._lexer.place += 1
        is_name = self._lexer.sees(":")
        self._lexer.place -= 1
        return None if is_name else found

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
        if not lexer.sees_word():
            return default
        name = lexer.word("a name")
        if lexer.accept(":"):
            return name
        lexer.place -= 1
        return default

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
