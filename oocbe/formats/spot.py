"""SPOT5 daily management instances (Bensana, Lemaître and Verfaillie, 1999).

A file has the number of photographs and a line for each (``id weight number_of_values`` and as many pairs of a value
and its consumption of the on-board recorder), then the number of constraints and a line for each (``arity ids…`` and
the forbidden tuples of values, one after the other). Fields after the last pair of a photograph (in instances over
several orbits two numbers: a group of one weight, and the place in it) do not change the problem; the first is
printed with the schedule. In those instances, whose photographs consume, the last constraint is a single number that
stands for the recorder's capacity: 90,000 in every published file. The optima in the literature are those of 200
units, a photograph taking its consumption divided by 451, rounded; 90,000 in the files' figures would be a little less.
So this number means 200 units, as it does where a file with consumptions has none, and any other is refused: nothing
says how it would be scaled.

A photograph may always be left out: that is value 0 of its variable, labelled ``0``, and costs its weight. A forbidden
tuple binds only when all its photographs are taken.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.text import Text
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.photographs import ImagingDay, Photograph
from oocbe.model.problem import Problem, lists_all
from oocbe.model.semiring import MIN_SUM

RECORDER_CAPACITY = 200
"""Capacity of the recorder in units, as it was published with the instances."""

WRITTEN_CAPACITY = 90_000
"""The number in the capacity's place of all published files."""

CONSUMPTION_UNIT = 451
"""One unit of the capacity, in the files' unit of consumption."""

MOST_CONSUMPTION = 10**12
"""Largest consumption: far beyond any instance, and far below where sums would leave 64 bits."""

LARGEST_LOOKUP = 2**22
"""Entries of a table from photograph and value to value index."""

LEFT_OUT = "0"
"""The value of a photograph that is not taken."""


class _Photographs:
    """The first part of a file: photographs, and the numbering of ids and values."""

    def __init__(self) -> None:
        self.listed: list[Photograph] = []
        self.index_of: dict[int, int] = {}
        self.value_of: list[dict[int, int]] = []
        self.use_recorder = False  # whether any takes room on the recorder, be it too little for a unit


def parse(text: Text) -> Problem:
    """Read an instance; FormatError with the line where it is malformed."""
    rows = list(text.rows())
    photographs = _read_photographs(text, rows)
    listed = tuple(photographs.listed)
    constraints = _read_constraints(text, rows, photographs, 1 + len(listed))
    variables = tuple(Variable(p.name, len(p.values), p.values) for p in listed)
    weights = tuple(
        Function((v,), np.zeros((1, 1), dtype=np.int64), np.array([p.weight], dtype=np.int64), 0)
        for v, p in enumerate(listed)
    )
    consumers = tuple(v for v, p in enumerate(listed) if any(p.memory))
    linear: tuple[LinearConstraint, ...] = ()
    if consumers:
        coefficients = tuple(np.array(listed[v].memory, dtype=np.int64) for v in consumers)
        linear = (LinearConstraint(consumers, coefficients, RECORDER_CAPACITY, "recorder capacity"),)
    day = ImagingDay(listed, RECORDER_CAPACITY if linear else None)
    return Problem(variables, weights, tuple(constraints), linear, name=text.stem, day=day)


def _lonely_count(text: Text, rows: list[tuple[int, int]], row: int, what: str) -> int:
    """The count that heads a section, on a line of its own."""
    if row >= len(rows):
        raise text.error(len(text), f"the file ends, expected {what}")
    first, end = rows[row]
    if end - first != 1:
        raise text.error(first, f"found {end - first} fields, expected {what} on a line of its own")
    return text.integer(first, what, low=0)


def _read_photographs(text: Text, rows: list[tuple[int, int]]) -> _Photographs:
    count = _lonely_count(text, rows, 0, "the number of photographs")
    found = _Photographs()
    if 1 + count > len(rows):
        raise text.error(len(text), f"the file ends after {len(rows) - 1} photographs, expected {count}")
    for first, end in rows[1 : 1 + count]:
        if end - first < 3:
            raise text.error(first, f"found {end - first} fields, expected a photograph: id, weight, number of values")
        identifier = text.integer(first, "a photograph's id", low=0)
        if identifier in found.index_of:
            raise text.error(first, f"found photograph {identifier} a second time, expected each id once")
        size = text.integer(first + 2, "a photograph's number of values", low=1)
        if first + 3 + 2 * size > end:
            fields = end - first - 3
            raise text.error(first, f"found {fields} fields for {size} values, expected {2 * size}: value, consumption")
        value_of: dict[int, int] = {}
        consumption = [0]
        for pair in range(first + 3, first + 3 + 2 * size, 2):
            label = text.integer(pair, "a value, positive as 0 means left out", low=1)
            if label in value_of:
                raise text.error(pair, f"found value {label} a second time, expected each value once")
            value_of[label] = len(value_of) + 1
            used = _read_consumption(text, pair + 1)
            found.use_recorder |= used > 0
            consumption.append(round(used / CONSUMPTION_UNIT))
        group = text.raw(first + 3 + 2 * size) if first + 3 + 2 * size < end else b""
        weight = text.integer(first + 1, "a photograph's weight", low=0)
        named, labels = group.decode() if group.isdigit() else None, (LEFT_OUT, *map(str, value_of))
        found.index_of[identifier] = len(found.listed)
        found.listed.append(Photograph(str(identifier), weight, named, labels, tuple(consumption)))
        found.value_of.append(value_of)
    return found


def _read_consumption(text: Text, token: int) -> float:
    """A value's consumption of the recorder's capacity, in the files' unit."""
    if text.raw(token) == b"0":  # all of a single-orbit file; worth the short cut
        return 0.0
    used = float(text.floats(token, 1, "a recorder consumption")[0])
    if not 0 <= used < MOST_CONSUMPTION:
        raise text.expected(f"a recorder consumption, 0 to {MOST_CONSUMPTION:,}", token)
    return used


def _check_capacity(text: Text, token: int) -> None:
    """Refuse any capacity but the published files'."""
    written = text.integer(token, "the last constraint, the recorder's capacity", low=0)
    if written != WRITTEN_CAPACITY:
        raise text.error(
            token,
            f"found a recorder capacity of {written}, expected {WRITTEN_CAPACITY}, which stands for "
            f"{RECORDER_CAPACITY} units of {CONSUMPTION_UNIT} in all published files: the scale of another one is "
            "unknown; give another capacity as a knapsack constraint of a wcsp file",
        )


def _read_constraints(
    text: Text, rows: list[tuple[int, int]], photographs: _Photographs, heading: int
) -> list[Constraint]:
    count = _lonely_count(text, rows, heading, "the number of constraints")
    begin = heading + 1
    if begin + count > len(rows):
        raise text.error(len(text), f"the file ends after {len(rows) - begin} constraints, expected {count}")
    if begin + count < len(rows):
        text.expect_end(rows[begin + count][0], f"the {count} constraints")
    body = rows[begin : begin + count]
    if body and body[-1][1] - body[-1][0] == 1 and photographs.use_recorder:
        _check_capacity(text, body.pop()[0])
    if not body:
        return []
    origin = body[0][0]
    fields = text.integers(origin, body[-1][1] - origin, "a constraint's field")
    constraints = _constraints_at_once(fields, np.array(body, dtype=np.int64) - origin, photographs)
    if constraints is not None:
        return constraints
    return [
        _read_constraint(text, photographs, first, fields[first - origin : end - origin].tolist())
        for first, end in body
    ]


def _constraints_at_once(
    fields: NDArray[np.int64], rows: NDArray[np.int64], photographs: _Photographs
) -> list[Constraint] | None:
    """All constraints, or None where anything is wrong: reading one by one then finds what and where.

    Lines of one arity and length are looked up together, which takes half the time of one by one for a large file.
    """
    ids = np.array(sorted(photographs.index_of), dtype=np.int64)
    labels = np.array(sorted({label for known in photographs.value_of for label in known}), dtype=np.int64)
    if len(ids) * len(labels) > LARGEST_LOOKUP or len(ids) == 0:
        return None
    index_of = np.array([photographs.index_of[i] for i in ids.tolist()])
    value_of = np.zeros((len(ids), len(labels)), dtype=np.int64)  # 0, left out, is no value of a tuple
    for v, known in enumerate(photographs.value_of):
        value_of[v, np.searchsorted(labels, list(known))] = list(known.values())
    starts, lengths = rows[:, 0], rows[:, 1] - rows[:, 0]
    arities = fields[starts]
    if (arities < 1).any() or (lengths - 1 <= arities).any() or ((lengths - 1) % arities).any():
        return None
    constraints: list[Constraint | None] = [None] * len(rows)
    for arity, length in set(zip(arities.tolist(), lengths.tolist(), strict=True)):
        group = np.flatnonzero((arities == arity) & (lengths == length))
        lines = fields[starts[group, None] + np.arange(length)]
        places = np.minimum(np.searchsorted(ids, lines[:, 1 : 1 + arity]), len(ids) - 1)
        ranks = np.minimum(np.searchsorted(labels, lines[:, 1 + arity :]), len(labels) - 1)
        if (ids[places] != lines[:, 1 : 1 + arity]).any() or (labels[ranks] != lines[:, 1 + arity :]).any():
            return None
        scopes = index_of[places]
        tuples = value_of[scopes[:, None, :], ranks.reshape(len(group), -1, arity)]
        if not tuples.all() or _repeats(scopes) or (1 + len(labels)) ** arity >= 2**62:
            return None
        if _repeats(tuples @ (1 + len(labels)) ** np.arange(arity, dtype=np.int64)):
            return None
        for number, scope, listed in zip(group.tolist(), map(tuple, scopes.tolist()), tuples, strict=True):
            constraints[number] = Constraint(scope, listed)
    return [c for c in constraints if c is not None]


def _repeats(rows: NDArray[np.int64]) -> bool:
    ordered = np.sort(rows, axis=1)
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())


def _read_constraint(text: Text, photographs: _Photographs, first: int, fields: list[int]) -> Constraint:
    """One constraint from its line's numbers; ``first`` is its first token, for messages."""
    arity = fields[0]
    if arity < 1:
        raise text.error(first, f"found {arity}, expected a constraint's number of photographs, at least 1")
    if len(fields) <= 1 + arity or (len(fields) - 1) % arity:
        rest = max(0, len(fields) - 1 - arity)
        raise text.error(
            first, f"found {rest} values after {arity} photographs, expected one or more tuples of {arity}"
        )
    index_of = photographs.index_of
    try:
        scope = tuple([index_of[i] for i in fields[1 : 1 + arity]])
    except KeyError as unknown:
        raise text.error(first, f"found photograph {unknown}, expected one of those listed above") from None
    if len(set(scope)) != arity:
        raise text.error(first, f"found a photograph twice in {fields[1 : 1 + arity]}, expected different ones")
    known = [photographs.value_of[v] for v in scope]
    labels = fields[1 + arity :]
    try:
        values = [value_of[label] for value_of, label in zip(cycle(known), labels, strict=False)]
    except KeyError as unknown:
        raise text.error(first, f"found {unknown} in a tuple, expected a value of its photograph") from None
    if len(values) > arity:
        rows = [tuple(values[place : place + arity]) for place in range(0, len(values), arity)]
        if len(set(rows)) != len(rows):
            repeated = arity * next(i for i, row in enumerate(rows) if row in rows[:i])
            again = tuple(labels[repeated : repeated + arity])
            raise text.error(first, f"found tuple {again} a second time, expected each tuple once")
    return Constraint(scope, np.array(values, dtype=np.int64).reshape(-1, arity))


def render(problem: Problem) -> str:
    """The file's text; :class:`oocbe.errors.UnsupportedError` for a problem that the format cannot express."""
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
    costs = [np.zeros(size, dtype=np.int64) for size in problem.sizes]
    complete = lists_all(problem.functions, problem.sizes)
    for number, f in enumerate(problem.functions):
        if len(f.scope) != 1 or not f.is_integral or (f.default is None and not complete[number]):
            raise _unsupported(problem, f"only whole costs of single photographs, not function {number}")
        costs[f.scope[0]] += f.to_array(problem.sizes)[0].astype(np.int64)
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
    codes = {int(label) for label in labels} if usable else set()
    return dict(zip(taken, map(int, labels) if len(codes) == len(taken) else range(1, variable.size), strict=True))


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
    scope = constraint.scope
    tuples = np.argwhere(~constraint.to_array(problem.sizes)) if constraint.allowed else constraint.tuples
    if len(tuples) == 0:
        return None
    if not scope or any(int(value) not in values[v] for row in tuples for v, value in zip(scope, row, strict=True)):
        names = ", ".join(problem.variables[v].name for v in scope)
        raise _unsupported(problem, f"only constraints on photographs that are taken, not that over ({names})")
    codes = [str(values[v][int(value)]) for row in tuples for v, value in zip(scope, row, strict=True)]
    return " ".join([str(len(scope)), *map(str, scope), *codes])
