"""Checks before a solve: requests that cannot be enforced, or do not fit."""

from __future__ import annotations

from oocbe.elimination.engine.consumption import left_out, why_left_out
from oocbe.errors import UnsupportedError, UsageError
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM, Semiring
from oocbe.model.settings.options import SolveOptions


def checked(problem: Problem, semiring: Semiring, options: SolveOptions) -> Problem:
    """The problem with the upper bound of the options, refused if no step can enforce it."""
    if options.tables == "complete" and options.bounds not in ("auto", "none"):
        raise UsageError(
            f"bounds: {options.bounds} drops rows, which complete tables do not have; use --bounds none with --tables "
            "complete, or another form of tables"
        )
    if options.ub is not None and semiring != MIN_SUM:
        raise UsageError(f"ub: only the min-sum semiring has an upper bound, not {semiring}")
    if not semiring.selects:
        problem.refuse_question(f"the {semiring} semiring")
    for bound, side, expected in (
        (problem.upper_bound, "below its upper", "min-sum"),
        (problem.lower_bound, "above its lower", "max-sum"),
    ):
        if bound is not None and semiring.name != expected and problem.reachable_bound:
            raise UnsupportedError(
                f"{problem.name}: only assignments {side} bound of {bound} count, and the {semiring} semiring cannot "
                f"tell them apart; solve it in {expected}, or without the bound"
            )
    if options.ub is None or (problem.upper_bound is not None and problem.upper_bound <= options.ub):
        return problem
    return problem.below(options.ub)


def check_linear(problem: Problem, semiring: Semiring) -> None:
    """Refuse linear constraints that elimination leaves out, where every one must be enforced."""
    if not semiring.selects and (relaxed := left_out(problem)):
        raise UnsupportedError(
            f"{problem.name}: the {semiring} semiring needs every constraint enforced; {why_left_out(relaxed)}"
        )


def has_logarithms(problem: Problem) -> bool:
    """Whether no value is negative."""
    lowest = [min(float(f.values.min(initial=0)), f.default or 0) for f in problem.functions]
    return min([problem.constant, *lowest]) >= 0
