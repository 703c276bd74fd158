"""Cost function networks in toulbar2's ``cfn`` format, the writing side (:mod:`oocbe.formats.cfn` describes the
format)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats.cost_tables import plain_names, tables_of
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM

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
    rows = []
    for row, cost in zip(tuples.tolist(), costs, strict=True):
        values = [_value(problem, v, value) for v, value in zip(scope, row, strict=True)]
        rows.append(f"{', '.join(values)}, {numbers.text(cost)}")
    listed = ",\n".join(rows)
    return f'"f{number}": {{"scope": [{names}], "defaultcost": {numbers.text(default)}, "costs": [\n{listed}]}}'


def _value(problem: Problem, v: int, value: int) -> str:
    """A value by its label: numbers would be taken for labels where these are numbers themselves."""
    variable = problem.variables[v]
    return str(value) if variable.labels is None else _quoted(variable.labels[value])


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
    bound = None if own is None else sign * own
    if bound is None:
        total = max(sign * problem.constant, 0) + sum(max(high, 0) for _, high in ends)
        bound = total + _margin(total if problem.is_integral else float(total))
    saved = min(sign * problem.constant, 0) + sum(min(low, 0) for low, _ in ends)
    if problem.is_integral:
        bound = math.ceil(bound)
        return _Numbers(sign * bound, sign * max(0, bound - int(saved)), None)
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


def _margin(total: int | float) -> int | float:
    """Distance of the limit from a sum: 1, or more than the rounding of floats of this size, added in any order."""
    return 1 if isinstance(total, int) else max(1.0, abs(total) * 1e-6)
