"""What the modes of linear programs share: how HiGHS reads a file, how oocbe does, and that both mean the same.

Compared are bounds, sides, coefficients, the objective and what is integral; status and optimum of the file; all
assignments where these are few; and the same once more of what oocbe writes of the system.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ..outcome import NotAvailableError, Tally

MOST_ASSIGNMENTS = 2000

_NEEDED = ("rows", "columns", "endata", "min", "max", "minimize", "maximize", "minimum", "maximum", "end")
"""Lines without which no file is read, in small letters: another failure than the one that is to get smaller."""

NUMBERS = (
    "1",
    "2",
    "3",
    "1",
    "-1",
    "-2",
    "4",
    "0.5",
    "-0.1",
    "2.5",
    "1e1",
    "-3",
    "0.25",
    "1.5e-1",
    "7",
    ".5",
    "2.",
    "1E+0",
)


class Program(NamedTuple):
    """A program in numbers of its own: a row is a dictionary from the variable to the coefficient."""

    names: tuple[str, ...]
    rows: tuple[tuple[dict[int, float], float, float], ...]
    bounds: tuple[tuple[float, float], ...]
    integral: tuple[bool, ...]
    costs: tuple[float, ...]
    constant: float
    maximises: bool


def highs_of(path: Path) -> Any:
    """HiGHS with a file; None where it refuses that. NotAvailableError where it is not installed."""
    try:
        import highspy
    except ImportError as error:
        raise NotAvailableError("highspy is not installed") from error
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.0)):
        solver.setOptionValue(option, value)
    return None if solver.readModel(str(path)) == highspy.HighsStatus.kError else solver


def program_of_highs(solver: Any) -> tuple[Program, set[str]]:
    """What HiGHS has read, and the kinds of its variables."""
    import highspy

    lp = solver.getLp()
    matrix = lp.a_matrix_
    starts, indices, values = (list(a) for a in (matrix.start_, matrix.index_, matrix.value_))
    by_columns = matrix.format_ == highspy.MatrixFormat.kColwise
    terms: list[dict[int, float]] = [{} for _ in range(lp.num_row_)]
    for major in range(len(starts) - 1):
        for entry in range(starts[major], starts[major + 1]):
            row, column = (indices[entry], major) if by_columns else (major, indices[entry])
            terms[row][column] = terms[row].get(column, 0.0) + values[entry]
    kinds = [str(kind).rpartition(".")[2] for kind in lp.integrality_] or ["kContinuous"] * lp.num_col_
    program = Program(
        tuple(lp.col_names_),
        tuple(
            ({v: a for v, a in row.items() if a}, float(low), float(high))
            for row, low, high in zip(terms, lp.row_lower_, lp.row_upper_, strict=True)
        ),
        tuple((float(low), float(high)) for low, high in zip(lp.col_lower_, lp.col_upper_, strict=True)),
        tuple(kind == "kInteger" for kind in kinds),
        tuple(map(float, lp.col_cost_)),
        float(lp.offset_),
        lp.sense_ == highspy.ObjSense.kMaximize,
    )
    return program, set(kinds)


def program_of_system(system: Any) -> Program:
    """What oocbe has read, a LinearSystem."""
    starts, columns = system.starts.tolist(), system.columns.tolist()
    coefficients = system.coefficients.tolist()
    rows = []
    for row, (low, high) in enumerate(zip(system.row_lower.tolist(), system.row_upper.tolist(), strict=True)):
        entries = range(starts[row], starts[row + 1])
        rows.append(({columns[e]: float(coefficients[e]) for e in entries}, float(low), float(high)))
    return Program(
        system.names,
        tuple(rows),
        tuple((float(a), float(b)) for a, b in zip(system.lower.tolist(), system.upper.tolist(), strict=True)),
        tuple(system.integral.tolist()),
        tuple(map(float, system.objective.tolist() or [0] * system.variables)),
        float(system.constant),
        bool(system.maximises),
    )


def check_file(path: Path, twin: Path, folder: Path, tally: Tally, names: Mapping[str, str]) -> None:
    """Compare what HiGHS and oocbe make of a file; what HiGHS refuses need only not crash.

    twin : what HiGHS reads: the same, or something with other names that means the same.
    names : from a name in the twin to that in the file, where they differ.
    """
    from oocbe.errors import OocbeError, UnsupportedError
    from oocbe.formats import read_model, write

    solver = highs_of(twin)
    try:
        system = read_model(path)
    except OocbeError as error:
        # A bound of HiGHS after SC may make the variable an integer again.
        semi = b"SC" in path.read_bytes().split() or (
            solver is not None and program_of_highs(solver)[1] & {"kSemiContinuous", "kSemiInteger"}
        )
        named = isinstance(error, UnsupportedError) and "semicontinuous" in str(error)
        is_empty = solver is not None and not solver.getNumCol() and not solver.getNumRow()
        tally.refused(error, solver is None or is_empty or bool(semi and named))
        return
    if solver is None:
        return
    theirs, ours = program_of_highs(solver)[0], program_of_system(system)
    tally.same("names", tuple(names.get(name, name) for name in theirs.names), ours.names)
    for part in ("bounds", "integral", "costs", "constant", "maximises"):
        tally.same(part, getattr(theirs, part), getattr(ours, part))
    tally.same("rows", _plain(theirs), _plain(ours))
    _check_optimum(path, theirs, ours.names, solver, tally)
    for suffix in ("mps", "lp"):
        other = folder / f"written.{suffix}"
        if not system.names:
            continue
        write(system, other)
        again = highs_of(other)
        tally.holds(f"HiGHS reads the .{suffix} that oocbe writes", again is not None, "a program", "an error")
        found = program_of_highs(again)[0]
        for part in ("bounds", "integral", "costs", "constant", "maximises"):
            tally.same(f"{part} as .{suffix}", getattr(theirs, part), getattr(found, part))
        tally.same(f"sides as .{suffix}", _halves(theirs), _halves(found))
        tally.same(f"read back from .{suffix}", _halves(theirs), _halves(program_of_system(read_model(other))))


def _plain(program: Program) -> list[tuple[dict[int, float], float, float]]:
    """Rows; of an empty one whether it holds, as its sides may be written in several ways."""
    return [
        (_rounded(terms), low, high) if terms else ({}, 0.0, math.copysign(0.0, 1) if low <= 0 <= high else -1.0)
        for terms, low, high in program.rows
    ]


def _rounded(terms: dict[int, float]) -> dict[int, float]:
    """Coefficients to 12 digits: HiGHS adds those of a variable that is there twice as doubles, oocbe as decimals."""
    return {v: float(f"{a:.12g}") for v, a in terms.items()}


def _halves(program: Program) -> list[tuple[tuple[tuple[int, float], ...], float, bool]]:
    """Finite sides of all rows, each with its terms, in an order of their own."""
    sides = []
    for terms, low, high in program.rows:
        key = tuple(sorted(_rounded(terms).items()))
        sides += [(key, side, is_upper) for side, is_upper in ((low, False), (high, True)) if math.isfinite(side)]
    return sorted(sides)


def _check_optimum(path: Path, program: Program, names: tuple[str, ...], solver: Any, tally: Tally) -> None:
    """Status and optimum, where oocbe solves the file"""
    import oocbe
    from oocbe.api.facade import read_finite
    from oocbe.errors import UnsupportedError

    try:
        problem = read_finite(path)
    except UnsupportedError as error:
        is_open = not all(program.integral) or any(math.isinf(low) or math.isinf(high) for low, high in program.bounds)
        tally.refused(error, is_open)
        return
    result = oocbe.solve(path)
    own = None
    if result.status == "optimal":
        labels = result.to_json()["assignment"]
        own = _value(program, [int(labels[name]) for name in names])
        tally.holds("the assignment is feasible", own is not None, "a solution", labels)
        tally.near("value of the assignment", own, result.value, 1e-9 * (1 + abs(result.value)))
    else:
        tally.same("status", "infeasible", result.status)
    solver.run()
    if solver.modelStatusToString(solver.getModelStatus()) == "Optimal":
        # HiGHS 1.15 does not always round bounds such as 2.5 of an integer: its word counts where its point does.
        theirs = _value(program, [round(x) for x in solver.getSolution().col_value])
        sign = -1 if program.maximises else 1
        is_reached = theirs is None or (own is not None and sign * own <= sign * theirs)
        tally.holds("as good as the point of HiGHS", is_reached, theirs, own)
    _check_assignments(program, problem, tally)


def _exact(number: float) -> Fraction:
    return Fraction(repr(number))


def _value(program: Program, point: Sequence[int]) -> Fraction | None:
    """Value of a point, of decimals as they are written; None where something is violated."""
    if not all(low <= x <= high for x, (low, high) in zip(point, program.bounds, strict=True)):
        return None
    for terms, *sides in program.rows:
        total = sum((_exact(a) * point[v] for v, a in terms.items()), Fraction(0))
        low, high = (side if math.isinf(side) else _exact(side) for side in sides)
        if not low <= total <= high:
            return None
    costs = zip(program.costs, point, strict=True)
    return _exact(program.constant) + sum((_exact(c) * x for c, x in costs), Fraction(0))


def _check_assignments(program: Program, problem: Any, tally: Tally) -> None:
    """Every assignment is feasible for both, and has the same value."""
    if math.prod(problem.sizes) > MOST_ASSIGNMENTS or any(math.isinf(b) for pair in program.bounds for b in pair):
        return
    low = [math.ceil(a) for a, _ in program.bounds]
    spans = [range(a, math.floor(b) + 1) for a, (_, b) in zip(low, program.bounds, strict=True)]
    if not all(program.integral) or not all(spans):
        return
    for point in itertools.product(*spans):
        found, expected = _evaluated(problem, point), _value(program, point)
        tally.same(f"{point} is feasible", expected is not None, found is not None)
        if expected is not None:
            tally.near(f"value of {point}", expected, found, 1e-9 * (1 + abs(float(expected))))


def _evaluated(problem: Any, point: tuple[int, ...]) -> float | None:
    """Value of a point; None also where propagation has removed one of its values before."""
    places = [
        labels.index(str(x)) if str(x) in labels else None
        for labels, x in zip(
            [v.labels or tuple(map(str, range(v.size))) for v in problem.variables], point, strict=True
        )
    ]
    return None if None in places else problem.evaluate(places)


def smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The text without one line, or with one word less."""
    lines = case["text"].split("\n") if case["text"] else []
    free = [number for number, line in enumerate(lines) if line.strip().lower() not in _NEEDED]
    for number in free:
        yield {**case, "text": "\n".join(lines[:number] + lines[number + 1 :])}
    for number in free:
        line = lines[number]
        words = line.split()
        for place in range(len(words)):
            shorter = " ".join(words[:place] + words[place + 1 :])
            yield {**case, "text": "\n".join([*lines[:number], f" {shorter}", *lines[number + 1 :]])}


def written_by_highs(random: Random, suffix: str, folder: Path) -> str:
    """The text that HiGHS writes of a random program."""
    try:
        import highspy
        import numpy as np
    except ImportError as error:
        raise NotAvailableError("highspy is not installed") from error
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    infinity = highspy.kHighsInf
    count = random.randint(1, 5)
    numbers = [float(number) for number in NUMBERS]
    for v in range(count):
        low = random.choice((0.0, 0.0, 0.0, -2.0, 1.0, 0.5, -infinity if random.random() < 0.2 else 0.0))
        high = random.choice((1.0, 2.0, 3.0, max(low, 0.0), infinity if random.random() < 0.3 else 1.0))
        solver.addCol(random.choice((0.0, *numbers)), low, max(low, high), 0, [], [])
        if random.random() < 0.85:
            solver.changeColIntegrality(v, highspy.HighsVarType.kInteger)
        elif random.random() < 0.1 and math.isfinite(high):
            solver.changeColIntegrality(v, highspy.HighsVarType.kSemiContinuous)
        if random.random() < 0.3:
            solver.passColName(v, random.choice(("x", "y_", "col#", "a(1)")) + str(v))
    for _ in range(random.randint(0, 4)):
        members = random.sample(range(count), random.randint(0, count))
        low, high = random.choice(((-infinity, 3.0), (1.0, infinity), (2.0, 2.0), (-1.0, 4.0), (-infinity, infinity)))
        row = [random.choice(numbers) for _ in members]
        solver.addRow(low, high, len(members), np.array(members, dtype=np.int32), np.array(row))
    if random.random() < 0.3:
        solver.changeObjectiveOffset(random.choice(numbers))
    if random.random() < 0.4:
        solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    path = folder / f"by-highs.{suffix}"
    solver.writeModel(str(path))
    return path.read_text()
