"""What bounds for all rows of a message must hold to: every assignment that counts, valued exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .brute_force import exact, truth_of
from .descriptions import Description, description_of
from .outcome import Exact, Tally

if TYPE_CHECKING:
    from oocbe.model.problem import Problem

UNIT = 2**1074
"""Every float is a multiple of 1 / UNIT: floats are compared as integers that count these, integers as they are."""

Row = tuple[int, ...]


@dataclass(frozen=True)
class Assignments:
    """Assignments of a problem that count.

    Attributes
    ----------
    description : of the problem. unit : numbers are counted in 1 / unit.
    rows : each assignment, its value, and what each of the problem's functions is worth, exactly.
    """

    description: Description
    unit: int
    rows: list[tuple[Row, int, list[int]]]

    @classmethod
    def of(cls, description: Description) -> Assignments:
        """All feasible assignments."""
        truth = truth_of(description)
        unit = 1 if truth.integral else UNIT
        lookups = [
            (f["scope"], {tuple(t): v for t, v in zip(f["tuples"], f["values"], strict=True)}, f["default"])
            for f in description["functions"]
        ]
        rows = []
        for assignment, value in truth.rows:
            parts = [known.get(tuple(assignment[v] for v in scope), default) for scope, known, default in lookups]
            rows.append((assignment, counted(value, unit), [counted(part, unit) for part in parts]))
        return cls(description, unit, rows)

    @property
    def best(self) -> int | None:
        """The least value; None of none."""
        return min((value for _, value, _ in self.rows), default=None)

    def below(self, threshold: float | None) -> Assignments:
        """Those with a value strictly below a threshold; None: all."""
        if threshold is None:
            return self
        limit = counted(threshold, self.unit)
        return replace(self, rows=[row for row in self.rows if row[1] < limit])

    def value_of(self, assignment: Sequence[int]) -> int | None:
        """What an assignment is worth; None where it does not count."""
        return next((value for found, value, _ in self.rows if found == tuple(assignment)), None)

    def better_than(self, assignment: Sequence[int]) -> Assignments:
        """Those strictly better than one."""
        limit = self.value_of(assignment)
        return replace(self, rows=[row for row in self.rows if limit is not None and row[1] < limit])

    def threshold_at(self, place: str, part: float) -> int | float | None:
        """A threshold by where it lies among the values, or None for none."""
        if place == "none" or not self.rows:
            return None
        values = sorted(value for _, value, _ in self.rows)
        low, high = values[0], values[-1]
        away = int(8000 * part) * self.unit // 1000 + 1
        chosen = {
            "optimum": low,
            "above": next((value for value in values if value > low), low + self.unit),
            "middle": values[int(part * len(values))],
            "below": low - away,
            "far": high + away,
        }[place]
        if self.unit == 1:
            return chosen
        try:
            return chosen / self.unit  # rounded correctly
        except OverflowError:
            return None


def counted(number: Exact | float, unit: int) -> int:
    """A number in 1 / ``unit``."""
    found = exact(number) * unit
    assert found == int(found)
    return int(found)


def at_most(bound: float, value: int, unit: int) -> bool:
    """Whether a bound, perhaps infinite, is not above a value."""
    return bound < 0 if isinstance(bound, float) and math.isinf(bound) else counted(bound, unit) <= value


def check_root(source: Any, own: Assignments, threshold: float | None, tally: Tally) -> None:
    """The root bound, and the values that nothing below some limits has. own : that the source speaks of."""
    best = own.best
    if best is not None:
        tally.holds(f"{source.name}: the root", at_most(source.root, best, own.unit), best / own.unit, source.root)
    limits = [] if threshold is None else [threshold]
    limits += [own.threshold_at(place, 0.3) for place in ("above", "middle")]
    for limit in limits:
        if limit is None:
            continue
        left = own.below(limit)
        gone = {(int(v), int(value)) for v, value in source.fixed_values(limit)}
        for assignment, value, _ in left.rows:
            lost = gone.intersection(enumerate(assignment))
            tally.holds(f"{source.name}: fixed values", not lost, f"{assignment} {value / own.unit}", lost)


def check_messages(source: Any, problem: Problem, own: Assignments, case: Description, tally: Tally) -> None:
    """Rows of a few messages: by the source, and by what it leaves of the problem below a limit."""
    order = case["order"]
    for length in case["eliminated"]:
        check_message(source, problem, own, order[:length], _separator(problem, order[:length]), tally)
    limit = problem.upper_bound
    if limit is None or source.assignment is not None or source.root >= limit:
        return
    from oocbe.elimination.reformulation import Stack
    from oocbe.search.bounded import Scope

    scope = Scope(Stack(problem), source).below(limit)
    if scope is None:
        tally.holds(f"{source.name}: nothing is left", not own.rows, own.rows[:1], "nothing")
        return
    wanted = {assignment for assignment, _, _ in own.rows}
    lifted = {a: scope.stack.lift(a) for a in itertools.product(*map(range, scope.problem.sizes))}
    lost = wanted - set(lifted.values())
    tally.holds(f"{source.name}: what is left", not lost, "all that counts", lost)
    left = Assignments.of({**description_of(scope.problem), "upper_bound": None})
    finer = own.unit // left.unit  # what is left may be integers where the whole is not
    rows = [(a, v * finer, [p * finer for p in parts]) for a, v, parts in left.rows if lifted[a] in wanted]
    left = replace(left, unit=own.unit, rows=rows)
    inside = [scope.variables.index(v) for v in order if v in scope.variables]
    for length in case["eliminated"]:
        gone = inside[: min(length, len(inside))]
        check_message(scope.source, scope.problem, left, gone, _separator(scope.problem, gone), tally)


def check_message(
    source: Any, problem: Problem, own: Assignments, gone: Sequence[int], separator: Sequence[int], tally: Tally
) -> None:
    """No row's bound is above what any assignment costs that counts and extends the row.

    gone : the variables eliminated. separator : variables of the message.
    """
    bound = source.for_message(sum(1 << v for v in gone), separator)
    scopes = [f.scope for f in problem.functions]
    inside = [number for number, scope in enumerate(scopes) if set(scope) & set(gone)]
    least: dict[Row, int] = {}
    rows = []
    for assignment, value, parts in own.rows:
        row = tuple(assignment[v] for v in separator)
        worth = sum(parts[number] for number in inside)
        least[row] = min(least.get(row, worth), worth)
        rows.append((assignment, value, row))
    outside = _outside(bound, problem, gone, own.unit)
    scale = int(bound.scale)
    for assignment, value, row in rows:
        found = least[row] * scale + outside(assignment)
        tally.holds(
            f"{source.name}: a row's bound",
            found <= value * scale,
            f"at most {value / own.unit}",
            f"{found / (own.unit * scale)} for {row} of {separator}, completed to {assignment}",
        )


def _outside(bound: Any, problem: Problem, gone: Sequence[int], unit: int) -> Callable[[Row], int]:
    """What a bound adds to the value of a row of an assignment, in 1 / unit."""
    constant = counted(bound.constant, unit)
    tables = {v: [counted(entry, unit) for entry in table.tolist()] for v, table in bound.tables.items()}
    prices = {number: counted(price, unit) for number, price in bound.prices.items()}

    def added(assignment: Row) -> int:
        total = constant + sum(table[assignment[v]] for v, table in tables.items())
        for number, price in prices.items():
            linear = problem.linear_constraints[number]
            for v, own in zip(linear.scope, linear.coefficients, strict=True):
                if v in gone:
                    total += price * (int(own[assignment[v]]) - int(own.min()))
        return total

    return added


def _separator(problem: Problem, gone: Sequence[int]) -> list[int]:
    """Variables that parts over eliminated ones are over besides."""
    found: set[int] = set()
    for part in (*problem.functions, *problem.constraints, *problem.linear_constraints):
        if set(part.scope) & set(gone):
            found.update(part.scope)
    return sorted(found - set(gone))
