"""Pseudo-Boolean problems in the OPB and WBO formats: linear constraints and an objective over variables of 0 or 1.

An objective, if any, comes first (``min:`` or ``max:``); each constraint is terms, a relation (``>=``, ``<=`` or
``=``) and an integer, and both end with ``;``. A term is an integer and one or more literals: ``~x`` is 1 - x, and
several are a *product*, which gets a variable of its own here that is 1 where all of them are. What follows ``*`` at
the beginning of a line, or behind ``;``, is a comment; one before all else may say how many variables there are, ``x1``
to the last, also such as occur nowhere.
Integers have up to 255 bits. As in toulbar2, a sign alone is a coefficient of 1 or -1, and 1 may be left out.

WBO files begin with ``soft:`` in place of an objective; a constraint after a weight, as in ``[3] +1 x1 >= 1``, may then
be violated for that much; all together have to cost less than the number after ``soft:``, if there is one. A variable
``violated.3`` is 1 where the third soft constraint is violated, so that counts stay what they are; an equation has two,
for what is below and above its right-hand side.

Quadratic pseudo-Boolean optimisation in toulbar2's ``qpbo`` format, read and written: ``N M`` and then M lines
``i j w``. Variables are numbered from 1, which are their names here. A coefficient w of i and j counts twice, as the
matrix is symmetric and only half of it is listed; one of i and i is linear, and pairs that are listed again add up. A
negative N says that values are 1 and -1, in this order, instead of 0 and 1; a negative M that the sum is to be large.
Integers stay integers, other numbers are float64 (toulbar2 itself rounds to seven decimals).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from fractions import Fraction

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.cost_tables import refuse_bounds
from oocbe.formats.count_questions import CountQuestions
from oocbe.formats.text import LARGEST_VARIABLE, LOOK_STEP, MOST_DIGITS, Lexer, Text
from oocbe.model.linear_system import LinearSystem, as_numbers, needs_integers
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import looked

LARGEST_INTEGER = 2**255
"""Sizes of integers at most."""

_TOKENS = re.compile(
    r"(?:^|(?<=;))[ \t]*\*[^\n]*|\n|[^\S\n]+|(?P<mark>[;:]|>=|<=|=)"
    r"|(?P<word>[+-](?=[A-Za-z_~])|\[\s*[0-9]+\s*\]|[^\s;:<>=]+)",
    re.MULTILINE,
)
"""Tokens, and what lies between them."""

_HEADER = re.compile(rb"(?:\s*\*[^\n]*\n)*?\s*\*[^\n]*#variable=\s*([0-9]+)")
"""The comments up to the one with the number of variables."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_COEFFICIENT = re.compile(r"[+-]|[+-]?[0-9]+")
_WEIGHT = re.compile(r"\[\s*([0-9]+)\s*\]")
_LITERAL = re.compile(r"~?[A-Za-z_][^~*]*")
_NUMBERED = re.compile(r"x([1-9][0-9]*)")


def parse(text: Text) -> LinearSystem:
    """Read a problem; FormatError with the line where it is malformed."""
    return _OpbReader(text).read()


class _OpbReader:
    def __init__(self, text: Text) -> None:
        self._text = text
        self._lexer = Lexer(text, _TOKENS)
        self._variables: dict[str, int] = {}
        self._products: dict[tuple[str, ...], int] = {}
        self._rows: list[tuple[dict[int, int], int | float, int | float]] = []
        self._row_names: list[str] = []
        self._constraints = 0
        self._violations: dict[int, int] = {}  # variables, and what they cost
        self._soft = 0

    def read(self) -> LinearSystem:
        """Read the objective and all constraints."""
        promised = self._promised()
        objective: dict[int, int] = {}
        constant, maximises, is_first = 0, False, True
        most: int | None = None
        is_soft = self._lexer.sees_word(("soft",))
        if is_soft:
            most = self._most()
            is_first = False
        while not self._lexer.ended:
            if self._lexer.sees_word(("min", "max", "soft")):
                maximises = self._sense(is_first)
                objective, constant = self._sum()
                self._lexer.take(";", "a term or ';'")
            else:
                self._constraint(is_soft)
            is_first = False
        if most is not None:
            self._rows.append((self._violations, -math.inf, most))
            self._row_names.append("cost of what is violated")
        objective = self._violations if is_soft else objective
        self._add_promised(promised)
        questions = CountQuestions(self._text)
        for first, past in self._text.rows():
            if self._text.raw(first) == b"*":
                questions.look(first, past)
        numbers = {name.removeprefix("x"): name for name in self._variables if "*" not in name}
        question, counting = questions.question(numbers)
        count = len(self._variables)
        costs = [objective.get(v, 0) for v in range(count)]
        return LinearSystem.from_rows(
            self._rows,
            [0] * count,
            [1] * count,
            names=tuple(self._variables),
            row_names=tuple(self._row_names),
            objective=as_numbers(costs, needs_integers(costs)) if objective else np.zeros(0),
            constant=constant,
            maximises=maximises,
            name=self._text.stem,
            question=question,
            counting=counting,
        )

    def _promised(self) -> int:
        """Number of variables according to a comment at the beginning."""
        header = _HEADER.match(self._text.data)
        digits = header[1] if header else b"0"
        if header and (len(digits) > MOST_DIGITS or int(digits) > LARGEST_VARIABLE):
            where = f"{self._text.path}, line {self._text.line_of(header.end())}"
            raise UnsupportedError(
                f"{where}: {digits[:MOST_DIGITS].decode()} variables; at most {LARGEST_VARIABLE:,} are supported"
            )
        return int(digits)

    def _add_promised(self, promised: int) -> None:
        """Make variables that occur nowhere, on which a count of solutions depends, where all are called x1, x2, …"""
        made = {"*".join(literals) for literals in self._products}
        made |= {name for name, v in self._variables.items() if v in self._violations}
        numbers = [_NUMBERED.fullmatch(name) for name in self._variables if name not in made]
        if all(m is not None and len(m[1]) <= MOST_DIGITS and int(m[1]) <= promised for m in numbers):
            for number in range(1, promised + 1):
                self._variables.setdefault(f"x{number}", len(self._variables))

    def _sense(self, is_first: bool) -> bool:
        """Whether the objective that begins here is to be large."""
        word = self._lexer.word("an objective")
        self._lexer.take(":", f"':' after {word}")
        if not is_first or word == "soft":
            raise self._lexer.error(
                f"found {word}: after an objective, soft: or a constraint; expected it once, at the beginning"
            )
        return word == "max"

    def _most(self) -> int | None:
        """Largest allowed sum of violated weights, from the line that begins with ``soft``; None without a limit."""
        self._lexer.word("soft")
        self._lexer.take(":", "':' after soft")
        most = None if self._lexer.sees(";") else self._integer("what violations have to cost less than") - 1
        self._lexer.take(";", "';' after soft")
        return most

    def _constraint(self, is_soft: bool) -> None:
        weight = self._weight() if is_soft else 0
        terms, constant = self._sum()
        relation = self._lexer.take("<=>=", "a term or a relation: >=, <= or =")
        right = self._integer("the right-hand side") - constant
        self._lexer.take(";", "';' at the end of a constraint")
        self._constraints += 1
        if weight:
            self._soft += 1
            if relation in ("<=", "="):
                self._violable({v: -a for v, a in terms.items()}, -right, weight, ".above" if relation == "=" else "")
            if relation in (">=", "="):
                self._violable(terms, right, weight, ".below" if relation == "=" else "")
            return
        low = -math.inf if relation == "<=" else right
        self._rows.append((terms, low, math.inf if relation == ">=" else right))
        self._row_names.append(f"constraint {self._constraints}")

    def _weight(self) -> int:
        """Cost of violating the constraint that begins here; 0 for a hard constraint."""
        match = _WEIGHT.fullmatch(self._lexer.next_word)
        if match is None:
            return 0
        if len(match[1]) > MOST_DIGITS or not 0 < int(match[1]) <= LARGEST_INTEGER:
            raise self._lexer.expected("a weight above 0 of at most 255 bits")
        self._lexer.place += 1
        return int(match[1])

    def _violable(self, terms: dict[int, int], least: int, weight: int, side: str) -> None:
        """Terms add up to ``least``, or else a variable is 1, and costs the weight."""
        name = f"violated.{self._soft}{side}"
        if name in self._variables:
            raise self._lexer.error(f"found a variable {name}, expected another name: soft constraints take it")
        common = math.gcd(*terms.values()) or 1  # beside coefficients of the variable, nothing would divide them later
        terms, least = {v: a // common for v, a in terms.items()}, -(-least // common)
        made = self._variables[name] = len(self._variables)
        self._violations[made] = weight
        low, high = sum(min(a, 0) for a in terms.values()), sum(max(a, 0) for a in terms.values())
        self._rows.append(({**terms, made: least - low}, least, math.inf))
        self._rows.append(({**terms, made: high - least + 1}, -math.inf, high))
        self._row_names += [f"constraint {self._constraints}", f"violation of constraint {self._constraints}"]

    def _sum(self) -> tuple[dict[int, int], int]:
        """Coefficients of variables, and what negated ones add."""
        terms: dict[int, int] = {}
        constant = 0
        while self._lexer.sees_word():
            coefficient = self._coefficient()
            literals = [self._literal()]
            while self._lexer.sees_word() and not _COEFFICIENT.fullmatch(self._lexer.next_word):
                literals.append(self._literal())
            if len(set(literals)) == 1:
                name = literals[0]
                v = self._variables.setdefault(name.lstrip("~"), len(self._variables))
                if name.startswith("~"):
                    constant += coefficient
                    coefficient = -coefficient
            else:
                v = self._product(tuple(sorted(set(literals))))
            terms[v] = terms.get(v, 0) + coefficient
        return terms, constant

    def _coefficient(self) -> int:
        """Coefficient before literals: an integer, or a sign or nothing for 1."""
        sign = self._lexer.next_word
        if sign in ("+", "-"):
            self._lexer.place += 1
            return 1 if sign == "+" else -1
        return 1 if _LITERAL.fullmatch(sign) else self._integer("a coefficient")

    def _product(self, literals: tuple[str, ...]) -> int:
        """The variable that is 1 where all literals are; made where it is new, with the rows that say so."""
        known = self._products.get(literals)
        if known is not None:
            return known
        factors = [
            (self._variables.setdefault(name.lstrip("~"), len(self._variables)), name.startswith("~"))
            for name in literals
        ]
        made = self._products[literals] = self._variables["*".join(literals)] = len(self._variables)
        what = f"product {'*'.join(literals)}"
        together: dict[int, int] = {made: -1}
        negated = 0
        for v, is_negated in factors:
            # product <= literal
            self._rows.append(({made: 1, v: 1 if is_negated else -1}, -math.inf, int(is_negated)))
            together[v] = together.get(v, 0) + (-1 if is_negated else 1)
            negated += is_negated
        # the literals' sum is at most one less than their number, where the product is 0
        self._rows.append((together, -math.inf, len(literals) - 1 - negated))
        self._row_names += [what] * (len(factors) + 1)
        return made

    def _literal(self) -> str:
        place, name = self._lexer.place, self._lexer.word("a literal")
        if not _LITERAL.fullmatch(name):
            raise self._lexer.expected("a literal such as x1 or ~x1", place)
        if self._variables.get(name.lstrip("~")) in self._violations:
            before = f"another name than {name.lstrip('~')}: a soft constraint before has taken it"
            raise self._lexer.expected(before, place)
        return name

    def _integer(self, what: str) -> int:
        place, wanted = self._lexer.place, f"{what}, an integer"
        word = self._lexer.word(wanted)
        if word.startswith("["):
            wanted += ": weights of constraints are for files that begin with soft:"
        if not _INTEGER.fullmatch(word):
            raise self._lexer.expected(wanted, place)
        if len(word) > MOST_DIGITS or abs(int(word)) > LARGEST_INTEGER:
            raise self._lexer.expected(f"{what} of at most 255 bits", place)
        return int(word)


def parse_qpbo(text: Text) -> Problem:
    """Read a problem; FormatError with the line where it is malformed."""
    count = text.integer(0, "the number of variables", -LARGEST_VARIABLE, LARGEST_VARIABLE)
    entries = text.integer(1, "the number of coefficients")
    if len(text) - 2 < 3 * abs(entries):
        found = (len(text) - 2) // 3
        raise text.error(len(text), f"the file ends after {found} coefficients, expected {abs(entries)}")
    text.expect_end(2 + 3 * abs(entries), f"{abs(entries)} coefficients")
    terms: dict[tuple[int, ...], int | float] = {}
    for token in looked(range(2, 2 + 3 * abs(entries), 3), LOOK_STEP):
        i, j = (text.integer(token + k, "a variable", 1, abs(count)) - 1 for k in (0, 1))
        place = token + 2
        value = (
            text.integer(place, "a coefficient")
            if text.is_integer(place)
            else float(text.floats(place, 1, "a coefficient")[0])
        )
        scope = (i,) if i == j else (min(i, j), max(i, j))
        terms[scope] = terms.get(scope, 0) + value * len(scope)
        if not (
            -INT64.max <= terms[scope] <= INT64.max if isinstance(terms[scope], int) else math.isfinite(terms[scope])
        ):
            raise text.error(place, f"the coefficients of {i + 1} and {j + 1} add up to more than 64 bits hold")
    values = (1, -1) if count < 0 else (0, 1)
    labels = ("1", "-1") if count < 0 else None
    functions = [_of_coefficient(scope, value, values) for scope, value in terms.items() if value]
    is_integral = all(isinstance(value, int) for value in terms.values())
    return Problem(
        tuple(Variable(str(v + 1), 2, labels) for v in range(abs(count))),
        tuple(functions),
        constant=0 if is_integral else 0.0,
        semiring=MAX_SUM if entries < 0 else MIN_SUM,
        name=text.stem,
    )


def _of_coefficient(scope: tuple[int, ...], value: int | float, values: tuple[int, int]) -> Function:
    """A coefficient times the values of one or two variables; assignments that cost nothing are the default."""
    dense = np.array(values) if len(scope) == 1 else np.outer(values, values)
    tuples = np.argwhere(dense)
    return Function(scope, tuples, np.array([value * int(v) for v in dense[dense != 0]]), 0)


def render_qpbo(problem: Problem) -> str:
    """The problem's sum over pairs of variables with two values each, as 0 and 1.

    Raises UnsupportedError: neither a sum to minimise nor one to maximise, constraints, other domains, functions of
    more than two variables, or a sum that is not zero where all variables are: the format has no constant.
    """
    if problem.semiring not in (MIN_SUM, MAX_SUM):
        raise UnsupportedError(
            f"{problem.name}: the qpbo format holds sums to optimise, not a {problem.semiring} problem; write "
            "products as uai"
        )
    lacks = any(f.default is None and len(f.values) < 2 ** len(f.scope) for f in problem.functions)
    if problem.constraints or problem.linear_constraints or lacks:
        raise UnsupportedError(
            f"{problem.name}: the qpbo format has no constraints; add their violations as costs first"
        )
    refuse_bounds(problem, "the qpbo format")
    wide = next((v.name for v in problem.variables if v.size != 2), None)
    if wide is not None:
        raise UnsupportedError(f"{problem.name}: variable {wide} has other than two values, as the qpbo format needs")
    constant = Fraction(problem.constant)
    terms = defaultdict[tuple[int, ...], Fraction](Fraction)
    for f in problem.functions:
        if len(f.scope) > 2:
            raise UnsupportedError(
                f"{problem.name}: a function over {len(f.scope)} variables; the qpbo format has pairs"
            )
        dense = [Fraction(value) for value in f.to_array(problem.sizes)[0].ravel().tolist()]
        constant += dense[0]
        if len(f.scope) == 1:
            terms[f.scope] += dense[1] - dense[0]
        elif len(f.scope) == 2:
            low, high = sorted(f.scope)
            terms[f.scope[1],] += dense[1] - dense[0]
            terms[f.scope[0],] += dense[2] - dense[0]
            terms[low, high] += dense[3] - dense[2] - dense[1] + dense[0]
    if constant:
        raise UnsupportedError(
            f"{problem.name}: costs {float(constant):g} where all variables have their first value; the qpbo format "
            "has no constant: subtract it first, and add it to the optimum again"
        )
    lines = [
        f"{scope[0] + 1} {scope[-1] + 1} {_number(problem, value / len(scope))}"
        for scope, value in sorted(terms.items())
        if value
    ]
    if problem.semiring == MAX_SUM and problem.variables and not lines:
        lines = ["1 1 0"]  # the sense is the sign of the number of lines
    sign = "-" if problem.semiring == MAX_SUM else ""
    return "\n".join([f"{len(problem.variables)} {sign}{len(lines)}", *lines]) + "\n"


def _number(problem: Problem, value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    if Fraction(float(value)) != value:
        raise UnsupportedError(f"{problem.name}: a coefficient of {float(value)!r} is no double; round the costs first")
    return repr(float(value))
