"""What bounds of single rows must hold to, along a walk over rows, with passes and values drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from .bound_checks import Assignments, Row, counted
from .descriptions import Description
from .outcome import Tally

if TYPE_CHECKING:
    from oocbe.bounds.row_reduction import Reduction
    from oocbe.bounds.row_tables import ScopeTables
    from oocbe.model.problem import Problem

KEPT_ROWS = 8
"""Of a level: their children are bounded next."""


def check_row_bounds(
    problem: Problem, every: Assignments, threshold: float | None, case: Description, tally: Tally
) -> None:
    """Bounds of rows of a problem, and of what reduction leaves of it. every : feasible assignment."""
    from oocbe.bounds.row_reduction import reduced
    from oocbe.bounds.row_tables import ScopeTables

    tables = ScopeTables.of(problem)
    if tables is None or not problem.sizes:
        return
    if threshold is None and (threshold := every.threshold_at("far", case["part"])) is None:
        return
    check_walk(tables, {a: value for a, value, _ in every.rows}, every.unit, threshold, case["order"], case, tally)
    made = reduced(tables)
    left = _reduced_values(made, every)
    order = [made.variables.index(v) for v in case["order"] if v in made.variables]
    check_walk(made.tables, left, every.unit, threshold, order, case, tally)
    for assignment, value in left.items() if tables.is_integral else ():
        whole = every.value_of(made.complete(assignment))
        tally.same("a reduced assignment completed", value, whole)


def _reduced_values(made: Reduction, every: Assignments) -> dict[Row, int]:
    """The least value of the assignments that each of those left stands for."""
    from oocbe.bounds.row_reduction import Removal

    kept = [np.arange(size) for size in made.sizes]
    for step in made.steps:
        if isinstance(step, Removal):
            kept[step.variable] = kept[step.variable][step.kept]
    number = [{int(value): place for place, value in enumerate(kept[v])} for v in made.variables]
    found: dict[Row, int] = {}
    for assignment, value, _ in every.rows:
        row = [places.get(assignment[v]) for v, places in zip(made.variables, number, strict=True)]
        if None not in row:
            key = tuple(place for place in row if place is not None)
            found[key] = min(found.get(key, value), value)
    return found


def check_walk(
    tables: ScopeTables,
    values: dict[Row, int],
    unit: int,
    threshold: float,
    order: Sequence[int],
    case: Description,
    tally: Tally,
) -> None:
    """No row that is ruled out, nor bound, nor value removed, is better than the best completion.

    values : of feasible assignments, in 1 / unit.
    """
    from oocbe.kernels.cpu.projection import REMOVED
    from oocbe.search.depth_tree import Root, blank_node, laid_out
    from oocbe.search.kernels.cpu.depth_first import AFTER, DECISION, IS, MOST_ROUNDS, VALUE, VARIABLE, restore

    random = Random(f"{case['chance']} {len(values)}")
    root, limit, linear = Root(tables, threshold), counted(threshold, unit), laid_out(tables)
    # Without dominated values, whose removal leaves one of several best completions.
    node = blank_node(root, np.zeros(len(root.network.function_start) - 1, dtype=np.int64))
    node = node._replace(margin=np.full_like(node.margin, -1))
    if random.randint(0, 1):
        root.ascend(linear, node)
    first = root.network.value_start.tolist()

    def bounded(rows: list[Row], assigned: Sequence[int]) -> tuple[Any, list[int]]:
        """State and bound of the node of each row."""
        states, bounds = [], []
        for row in rows:
            path = np.zeros((len(row), AFTER + 1), dtype=np.int64)
            path[:, VARIABLE], path[:, VALUE], path[:, DECISION] = assigned, row, IS
            node.state[:], node.stale[:] = root.state, root.stale
            work = (root.need, random.randint(0, 4), random.randint(1, 3), MOST_ROUNDS)
            bounds.append(int(restore(root.network, linear, node, root.bound, *work, path)))
            states.append(node.state.copy())
        return np.array(states), bounds

    def best_of(variables: Sequence[int]) -> dict[Row, int]:
        found: dict[Row, int] = {}
        for assignment, value in values.items():
            key = tuple(assignment[v] for v in variables)
            found[key] = min(found.get(key, value), value)
        return found

    def check(states: Any, bounds: list[int], rows: list[Row], assigned: Sequence[int]) -> None:
        best, live = best_of(assigned), states[:, : first[-1]] != REMOVED
        more: dict[int, dict[Row, int]] = {}  # of variables that have lost a value: there may be a hundred others
        for row, bound, own in zip(rows, bounds, live, strict=True):
            value = best.get(row)
            if value is None or value >= limit:
                continue
            tally.holds("a row ruled out", bound < root.need, value / unit, f"{row} of {assigned}")
            claimed = root.unscale(bound)
            tally.holds("a row's own bound", counted(claimed, unit) <= value, value / unit, f"{claimed} of {row}")
            kept = all(own[first[v] + place] for v, place in zip(assigned, row, strict=True))
            tally.holds("a row's own values", kept, row, assigned)
            for v in set(range(len(tables.problem.sizes))).difference(assigned):
                for place in np.flatnonzero(~own[first[v] : first[v + 1]]).tolist():
                    if v not in more:
                        more[v] = best_of((*assigned, v))
                    lost = more[v].get((*row, place))
                    is_right = lost is None or lost >= limit
                    tally.holds("a value removed", is_right, f"{lost} at {row} of {assigned}", f"{v}={place}")

    rows: list[Row] = [()]
    bounds = [root.bound]
    check(root.state[None], bounds, rows, ())
    for place, v in enumerate(order):
        kept = [number for number, bound in enumerate(bounds) if bound < root.need]
        kept = sorted(random.sample(kept, min(KEPT_ROWS, len(kept))))
        if not kept:
            return
        rows = [(*rows[p], x) for p in kept for x in range(tables.problem.sizes[v])]
        states, bounds = bounded(rows, order[: place + 1])
        check(states, bounds, rows, order[: place + 1])
