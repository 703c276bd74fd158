"""Writing SPOT5 instances, for problems that have that form; see :mod:`oocbe.formats.spot` for the format.

A problem has it when each variable has one value that costs something (or, where nothing costs, value 0: left out),
no constraint mentions that value, and there are no costs on more than one variable. Photographs are numbered by their
place in the problem; values keep their labels where all of them are positive integers, else they count from 1. Where
photographs consume, the last constraint is the number that stands for the recorder's capacity, as in published files.
"""

from __future__ import annotations

import numpy as np

from oocbe.errors import UnsupportedError
from oocbe.formats.spot import CONSUMPTION_UNIT, MOST_CONSUMPTION, RECORDER_CAPACITY, WRITTEN_CAPACITY
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM


def render(problem: Problem) -> str:
    """The file's text; :class:`oocbe.errors.UnsupportedError` says what the format cannot express."""
    if problem.semiring != MIN_SUM or problem.constant != 0 or problem.upper_bound is not None:
        raise _unsupported(problem, "only min-sum problems without a constant and an upper bound")
    weights, left_out = _weights(problem)
    values = [_values(v, out) for v, out in zip(problem.variables, left_out, strict=True)]
    consumption = _consumption(problem, left_out)
    lines = [str(len(problem.variables))]
    for index, codes in enumerate(values):
        pairs = (f"{code} {consumption[index][value]}" for value, code in codes.items())
        lines.append(" ".join([str(index), str(weights[index]), str(len(codes)), *pairs]))
    constraints = [line for c in problem.constraints if (line := _constraint(problem, c, values)) is not None]
    if any(any(used) for used in consumption):
        constraints.append(str(WRITTEN_CAPACITY))
    lines += [str(len(constraints)), *constraints]
    return "\n".join(lines) + "\n"


def _unsupported(problem: Problem, reason: str) -> UnsupportedError:
    return UnsupportedError(f"{problem.name}: the spot format has {reason}; write it as wcsp instead")


def _weights(problem: Problem) -> tuple[list[int], list[int]]:
    """Weight of each photograph, and the value that leaves it out."""
    costs = [np.zeros(size, dtype=np.int64) for size in problem.sizes]
    for number, f in enumerate(problem.functions):
        dense, feasible = f.to_array(problem.sizes)
        if len(f.scope) != 1 or not f.is_integral or not feasible.all():
            raise _unsupported(problem, f"only whole costs of single photographs, not function {number}")
        costs[f.scope[0]] += dense.astype(np.int64)
    left_out = [int(c.argmax()) for c in costs]
    for variable, c in zip(problem.variables, costs, strict=True):
        if variable.size < 2 or np.count_nonzero(c) > 1 or c.min() < 0:
            raise _unsupported(problem, f"one value that costs something, at least one that does not: {variable.name}")
    return [int(c.max()) for c in costs], left_out


def _values(variable: Variable, left_out: int) -> dict[int, int]:
    """Value index to code in the file, for all values but the one that leaves the photograph out."""
    taken = [value for value in range(variable.size) if value != left_out]
    labels = [variable.label(value) for value in taken]
    usable = all(label.isascii() and label.isdigit() and len(label) <= 18 and int(label) > 0 for label in labels)
    codes = [int(label) for label in labels] if usable else list(range(1, variable.size))
    if len(set(codes)) < len(codes):
        codes = list(range(1, variable.size))
    return dict(zip(taken, codes, strict=True))


def _consumption(problem: Problem, left_out: list[int]) -> list[list[int]]:
    """Recorder consumption of each value of each variable, in the files' figures."""
    result = [[0] * size for size in problem.sizes]
    if len(problem.linear_constraints) > 1:
        raise _unsupported(problem, "one linear constraint at most")
    for linear in problem.linear_constraints:
        if linear.capacity != RECORDER_CAPACITY:
            raise _unsupported(problem, f"a recorder capacity of {RECORDER_CAPACITY} only, not {linear.name}")
        for v, coefficients in zip(linear.scope, linear.coefficients, strict=True):
            if coefficients.min() < 0 or coefficients[left_out[v]] != 0:
                name = problem.variables[v].name
                raise _unsupported(
                    problem, f"no consumption below 0 and none of what is left out: {linear.name}, {name}"
                )
            result[v] = [int(c) * CONSUMPTION_UNIT for c in coefficients]
            if max(result[v]) >= MOST_CONSUMPTION:
                raise _unsupported(problem, f"consumptions below {MOST_CONSUMPTION:,}, not {max(result[v]):,}")
    return result


def _constraint(problem: Problem, constraint: Constraint, values: list[dict[int, int]]) -> str | None:
    """A constraint's line, or None where it forbids nothing."""
    scope = constraint.scope
    tuples = np.argwhere(~constraint.to_array(problem.sizes)) if constraint.allowed else constraint.tuples
    if len(tuples) == 0:
        return None
    if not scope or any(int(value) not in values[v] for row in tuples for v, value in zip(scope, row, strict=True)):
        names = ", ".join(problem.variables[v].name for v in scope)
        raise _unsupported(problem, f"only constraints on photographs that are taken, not that over ({names})")
    codes = [str(values[v][int(value)]) for row in tuples for v, value in zip(scope, row, strict=True)]
    return " ".join([str(len(scope)), *map(str, scope), *codes])
