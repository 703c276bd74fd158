"""Conversion of elimination's outcome to a result: scaling, infeasibility, linear constraints, notes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oocbe.elimination.engine.consumption import carried_in_rows, left_out, why_left_out
from oocbe.errors import amount
from oocbe.model.problem import Problem
from oocbe.model.results.result import LinearHandling, Result, Status
from oocbe.model.semiring import MIN_SUM, Combination, Semiring
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.elimination.buckets.assignment import Recomputation
    from oocbe.elimination.buckets.buckets import Bucket


@dataclass
class ForwardPass:
    """Outcome of the forward pass.

    buckets : in elimination order (up to the one that proved infeasibility).
    value : combined value of the problem, to be multiplied by 2 ** exponent; None if it is infeasible.
    exponent : nonzero only for floating-point products.
    largest_rows, total_rows : rows of the largest message, and of all. width : variables of the largest separator.
    recomputation : recomputes the values of forgotten messages; None if all are kept.
    """

    buckets: list[Bucket]
    value: int | float | None
    exponent: int = 0
    largest_rows: int = 0
    total_rows: int = 0
    width: int = 0
    recomputation: Recomputation | None = None


def blank_result(problem: Problem, options: SolveOptions, status: Status, backend: str, **more: Any) -> Result:
    """A result without a value, times and memory; ``more`` : other attributes."""
    counts = dict.fromkeys(("width", "largest_message_rows", "total_rows", "peak_memory_bytes"), 0)
    given: dict[str, Any] = {**counts, "value": None, "assignment": None, "order": (), "dtype": "", **more}
    return Result(
        status=status,
        variables=problem.variables,
        problem=problem.name,
        semiring=problem.semiring.name,
        sense=problem.sense,
        seconds={},
        dominance=options.dominance and problem.semiring.optimises_sums,
        backend=backend,
        **given,
    )


def result_of_elimination(
    problem: Problem,
    options: SolveOptions,
    outcome: ForwardPass,
    order: tuple[int, ...],
    dtype: str,
    assignment: tuple[int, ...] | None,
    backend: str,
    attempts: int = 0,
) -> Result:
    """The result, but for times and memory, of an order without bounds; ``attempts``: runs given up before."""
    semiring = problem.semiring
    value, notes = unscaled(outcome, semiring)
    if attempts:
        notes += (attempts_note(attempts),)
    bound = None
    status: Status = "optimal" if semiring.selects else "exact"
    top = problem.upper_bound if semiring == MIN_SUM else None
    if value is None or (top is not None and value >= top):
        status, value, assignment = ("infeasible" if options.ub is None else "nothing-better"), None, None
        bound = options.ub
    handling, note = linear_handling(problem, assignment)
    if note:
        notes += (note,)
    if handling == "relaxed":
        status, bound, value, assignment = "limit", value, None, None
    return blank_result(
        problem,
        options,
        status,
        backend,
        value=value,
        bound=bound,
        assignment=assignment,
        width=outcome.width,
        order=order,
        largest_message_rows=outcome.largest_rows,
        total_rows=outcome.total_rows,
        dtype=dtype,
        linear_constraints=handling,
        notes=notes,
    )


def outside_of_floats(logarithm: float) -> str:
    """The note of a value that float64 cannot hold."""
    return f"the value is outside the range of float64; its natural logarithm is {logarithm:.12g}"


def attempts_note(number: int) -> str:
    """The note of attempts that were given up."""
    return f"given up before this one: {amount(number, 'run')} with other orders or smaller row caps"


def linear_note(problem: Problem) -> str:
    """Why a bound and an assignment may not meet: constraints that elimination does not enforce."""
    why = why_left_out(left_out(problem))
    return f"the optimum without a constraint violates it, so bound and value may stay apart: {why}"


def unscaled(outcome: ForwardPass, semiring: Semiring) -> tuple[int | float | None, tuple[str, ...]]:
    """The value with its power of two multiplied in, and a note where float64 cannot hold that."""
    value = outcome.value
    if value is None and semiring.counts:
        return 0, ()
    if isinstance(value, float) and value == 0 and semiring.combination is Combination.MULTIPLY:
        return value, ("the value is 0: terms cancel, or products underflow float64, which cannot be told apart",)
    if value is None or outcome.exponent == 0:
        return value, ()
    try:
        scaled = math.ldexp(value, outcome.exponent)
    except OverflowError:
        scaled = math.inf
    logarithm = math.log(abs(value)) + outcome.exponent * math.log(2) if value else -math.inf
    if value and (scaled == 0 or math.isinf(scaled)):
        return scaled, (outside_of_floats(logarithm),)
    return scaled, ()


def linear_handling(problem: Problem, assignment: tuple[int, ...] | None) -> tuple[LinearHandling, str]:
    """The handling of the linear constraints, and a sentence about it.

    A linear constraint for which rows have no room is left out of elimination. The optimum of what remains is a bound,
    and where its assignment satisfies the constraint it is the optimum: the constraint is then shown not to bind. Where
    there is no assignment, because what remains is already infeasible or the semiring picks none (and so left no
    constraint out that can bind), "shown not to bind" means that the constraint was not needed for the proof.
    """
    if not problem.linear_constraints:
        return "none", ""
    loose = [c for c in problem.linear_constraints if not c.can_bind]
    relaxed = left_out(problem)
    if assignment is None:
        return ("shown not to bind" if loose or relaxed else "enforced"), ""
    for c in relaxed:
        if not c.permits(assignment):
            return "relaxed", (
                f"{c.name}: the optimum without it uses {c.usage(assignment)}, so the value is a bound only: "
                f"{why_left_out(relaxed)}"
            )
    if relaxed:
        c = relaxed[0]
        return "shown not to bind", (f"{c.name}: shown not to bind, the optimum without it uses {c.usage(assignment)}")
    if loose:
        return "shown not to bind", f"{loose[0].name}: cannot bind, whatever is chosen"
    return "enforced", usage_note(problem, assignment)


def usage_note(problem: Problem, assignment: tuple[int, ...]) -> str:
    """Consumption of each large linear constraint by an assignment; empty without such constraints."""
    large = [problem.linear_constraints[number] for number in carried_in_rows(problem)]
    return "; ".join(f"{c.name}: {c.usage(assignment)} are used" for c in large)
