"""Cost function networks in toulbar2's ``cfn`` format, the writing side (:mod:`oocbe.io.cfn` describes the format)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.io.plain_names import plain_names
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM

MOST_CELLS = 2**20
"""Assignments of a linear constraint up to which it is written out: the format has it in no form that is read back."""

MOST_DIGITS = 17
"""Digits of a cost, together with its decimals, that toulbar2 surely holds."""


_MARKS = re.compile(r"[\s\x00-\x1f\x7f\"\\{}\[\],:]")
"""What toulbar2 ends a name at, in quotes as well, or takes for something else."""

_NUMBER = re.compile(r"[\d+.-]")
"""What a name begins with that toulbar2 takes for a number, and refuses."""


def render(problem: Problem) -> str:
    """The problem as a cfn, with the names of variables and values; integers stay integers, floats keep all digits.

    Names that toulbar2 would not read are changed: marks in them and numbers at their beginning become ``_`` and get
    one in front.

    Raises
    ------
    UnsupportedError : neither costs to minimise nor values to maximise by sums, an upper bound that single costs pass
        although others make up for it, or a linear constraint over too much.
    """
    if problem.semiring not in (MIN_SUM, MAX_SUM):
        raise UnsupportedError(
            f"{problem.name}: the cfn format holds costs to add and optimise, not a {problem.semiring} problem; "
            "write products as uai, which toulbar2 reads as well"
        )
    problem = _with_plain_names(problem)
    minimises = problem.semiring == MIN_SUM
    limit = _limit(problem) if minimises else _floor(problem)
    variables = []
    for v, variable in enumerate(problem.variables):
        labels = variable.labels
        domain = str(variable.size) if labels is None else f"[{', '.join(_quoted(label) for label in labels)}]"
        # toulbar2 takes a number in the place of a name for a domain size, be it in quotes or not.
        variables.append(domain if variable.name == str(v) else f"{_quoted(variable.name)}: {domain}")
    parts: list[tuple[tuple[int, ...], NDArray[np.int64], list[Any], Any]] = [
        (f.scope, f.tuples, f.values.tolist(), limit if f.default is None else f.default) for f in problem.functions
    ]
    for c in problem.constraints:
        listed, default = (0, limit) if c.allowed else (limit, 0)
        parts += [(c.scope, c.tuples, [listed] * len(c.tuples), default)]
    for linear in problem.linear_constraints:
        if math.prod(len(own) for own in linear.coefficients) > MOST_CELLS:
            raise UnsupportedError(
                f"{problem.name}: {linear.name} is over more than {MOST_CELLS:,} assignments, which the cfn format "
                "would have to list; write it as .wcsp"
            )
        wrong = np.argwhere(~linear.to_array())
        parts.append((linear.scope, wrong, [limit] * len(wrong), 0))
    if problem.constant:
        parts.append(((), np.zeros((0, 0), dtype=np.int64), [], problem.constant))
    mustbe = f"{'<' if minimises else '>'}{_with_decimals(limit, problem)}"
    lines = ["{", f'"problem": {{"name": {_quoted(_plain([problem.name or "problem"])[0])}, "mustbe": "{mustbe}"}},']
    lines += ['"variables": {', ",\n".join(variables), "},", '"functions": {']
    bodies = [_body(problem, number, *part) for number, part in enumerate(parts)]
    return "\n".join([*lines, ",\n".join(bodies), "}", "}"]) + "\n"


def _body(
    problem: Problem, number: int, scope: tuple[int, ...], tuples: NDArray[np.int64], costs: list[Any], default: Any
) -> str:
    names = ", ".join(str(v) if (own := problem.variables[v].name) == str(v) else _quoted(own) for v in scope)
    if not scope:
        only = costs[0] if costs else default
        return f'"f{number}": {{"scope": [], "costs": [{_number(only)}]}}'
    rows = []
    for row, cost in zip(tuples.tolist(), costs, strict=True):
        values = [_value(problem, v, value) for v, value in zip(scope, row, strict=True)]
        rows.append(f"{', '.join(values)}, {_number(cost)}")
    listed = ",\n".join(rows)
    return f'"f{number}": {{"scope": [{names}], "defaultcost": {_number(default)}, "costs": [\n{listed}]}}'


def _value(problem: Problem, v: int, value: int) -> str:
    """A value by its label: numbers would be taken for labels where these are numbers themselves."""
    variable = problem.variables[v]
    return str(value) if variable.labels is None else _quoted(variable.labels[value])


def _number(value: int | float) -> str:
    """All digits, without an exponent, which not every reader takes."""
    return str(value) if isinstance(value, int) else format(Decimal(repr(float(value))), "f")


def _with_decimals(limit: int | float, problem: Problem) -> str:
    """The limit with as many decimals as costs have: toulbar2 rounds all costs to those that it finds here.

    No more than its 64-bit integers can hold together with the digits before the point.
    """
    text = _number(limit)
    if problem.is_integral:
        return text
    numbers = {float(problem.constant), *(float(f.default) for f in problem.functions if f.default is not None)}
    numbers.update(*(f.values.astype(np.float64).tolist() for f in problem.functions))
    wanted = max(len(_number(number).partition(".")[2]) for number in numbers)
    before, _, decimals = text.partition(".")
    room = MOST_DIGITS - len(before.lstrip("-"))
    return f"{before}.{decimals.ljust(min(wanted, room), '0')}" if max(wanted, len(decimals)) and room > 0 else text


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


def _ends(function: Function) -> tuple[int | float, int | float]:
    """Least and greatest value of a function."""
    listed = [function.values.min().item(), function.values.max().item()] if len(function.values) else []
    listed += [] if function.default is None else [function.default]
    return min(listed, default=0), max(listed, default=0)


def _limit(problem: Problem) -> int | float:
    """What costs must stay below: the upper bound, or more than any assignment and any single function costs."""
    ends = [_ends(f) for f in problem.functions]
    if problem.upper_bound is not None and not math.isinf(problem.upper_bound):
        limit = problem.upper_bound
        if any(high >= limit for _, high in ends) and (problem.constant < 0 or any(low < 0 for low, _ in ends)):
            raise UnsupportedError(
                f"{problem.name}: a single cost reaches the upper bound {limit}, and others below 0 may make up for "
                "it; in the cfn format it would be forbidden"
            )
        return math.ceil(limit) if problem.is_integral else limit
    total = max(problem.constant, 0) + sum(max(high, 0) for _, high in ends)
    return total + _margin(total)


def _floor(problem: Problem) -> int | float:
    """What sums must stay above: less than any assignment's value, and than that of any single function."""
    total = min(problem.constant, 0) + sum(min(_ends(f)[0], 0) for f in problem.functions)
    return total - _margin(total)


def _margin(total: int | float) -> int | float:
    """How far from a sum the limit is: 1, or what floats as large as this one, added in any order, cannot miss."""
    return 1 if isinstance(total, int) else max(1.0, abs(total) * 1e-6)
