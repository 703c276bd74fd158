"""Quadratic pseudo-Boolean optimisation in toulbar2's ``qpbo`` format, read and written.

``N M`` and then M lines ``i j w``: variables are numbered from 1, which are their names here. A coefficient w of i and
j counts twice, as the matrix is symmetric and only half of it is listed; one of i and i is linear, and pairs that are
listed again add up. A negative N says that values are 1 and -1, in this order, instead of 0 and 1; a negative M that
the sum is to be large. Integers stay integers, other numbers are float64 (toulbar2 itself rounds to seven decimals).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.cost_tables import refuse_bounds
from oocbe.formats.text import Text
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import looked

LARGEST_VARIABLE = 2**24
"""Number of a variable at most; more are damage."""

LOOK_STEP = 1 << 12
"""Lines after which reading looks whether the time limit has come."""

Terms = dict[tuple[int, ...], int | float]


def parse(text: Text) -> Problem:
    """Read a problem; FormatError with the line where it is malformed."""
    count = text.integer(0, "the number of variables", -LARGEST_VARIABLE, LARGEST_VARIABLE)
    entries = text.integer(1, "the number of coefficients")
    if len(text) - 2 < 3 * abs(entries):
        found = (len(text) - 2) // 3
        raise text.error(len(text), f"the file ends after {found} coefficients, expected {abs(entries)}")
    text.expect_end(2 + 3 * abs(entries), f"{abs(entries)} coefficients")
    terms: Terms = {}
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
    functions = [_function(scope, value, values) for scope, value in terms.items() if value]
    is_integral = all(isinstance(value, int) for value in terms.values())
    return Problem(
        tuple(Variable(str(v + 1), 2, labels) for v in range(abs(count))),
        tuple(functions),
        constant=0 if is_integral else 0.0,
        semiring=MAX_SUM if entries < 0 else MIN_SUM,
        name=text.stem,
    )


def _function(scope: tuple[int, ...], value: int | float, values: tuple[int, int]) -> Function:
    """A coefficient times the values of one or two variables; assignments that cost nothing are the default."""
    dense = np.array(values) if len(scope) == 1 else np.outer(values, values)
    tuples = np.argwhere(dense)
    return Function(scope, tuples, np.array([value * int(v) for v in dense[dense != 0]]), 0)


def render(problem: Problem) -> str:
    """The problem's sum over pairs of variables with two values each, as 0 and 1.

    Raises
    ------
    UnsupportedError : neither a sum to minimise nor one to maximise, constraints, other domains, functions of more than
        two variables, or a sum that is not zero where all variables are: the format has no constant.
    """
    if problem.semiring not in (MIN_SUM, MAX_SUM):
        raise UnsupportedError(
            f"{problem.name}: the qpbo format holds sums to optimise, not a {problem.semiring} problem; write "
            "products as uai"
        )
    if problem.constraints or problem.linear_constraints or any(map(_lacks, problem.functions)):
        raise UnsupportedError(
            f"{problem.name}: the qpbo format has no constraints; add their violations as costs first"
        )
    refuse_bounds(problem, "the qpbo format")
    wide = next((v.name for v in problem.variables if v.size != 2), None)
    if wide is not None:
        raise UnsupportedError(f"{problem.name}: variable {wide} has other than two values, as the qpbo format needs")
    constant = Fraction(problem.constant)
    terms: dict[tuple[int, ...], Fraction] = {}
    for f in problem.functions:
        if len(f.scope) > 2:
            raise UnsupportedError(
                f"{problem.name}: a function over {len(f.scope)} variables; the qpbo format has pairs"
            )
        dense = [Fraction(value) for value in f.to_array(problem.sizes)[0].ravel().tolist()]
        constant += dense[0]
        if len(f.scope) == 1:
            _add(terms, f.scope, dense[1] - dense[0])
        elif len(f.scope) == 2:
            low, high = sorted(f.scope)
            _add(terms, (f.scope[1],), dense[1] - dense[0])
            _add(terms, (f.scope[0],), dense[2] - dense[0])
            _add(terms, (low, high), dense[3] - dense[2] - dense[1] + dense[0])
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


def _lacks(f: Function) -> bool:
    """Whether some assignment of a function over variables of two values is infeasible."""
    return f.default is None and len(f.values) < 2 ** len(f.scope)


def _add(terms: dict[tuple[int, ...], Fraction], scope: tuple[int, ...], value: Fraction) -> None:
    terms[scope] = terms.get(scope, Fraction(0)) + value


def _number(problem: Problem, value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    if Fraction(float(value)) != value:
        raise UnsupportedError(f"{problem.name}: a coefficient of {float(value)!r} is no double; round the costs first")
    return repr(float(value))
