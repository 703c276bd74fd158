"""Checks before a solve, and of every assignment that it returns: the problem itself evaluates it again.

Elimination finds the optimum's value in the forward pass and its assignment in the backward pass, through messages that
were stored, scaled, pruned and lifted from smaller problems. :meth:`oocbe.model.problem.Problem.evaluate` shares none
of that. So a mistake anywhere between ends as an error instead of a wrong answer.

Integers have to agree exactly, and so have floats whose sums are exact. Other sums of the same floats in another order
differ by rounding: by :func:`oocbe.elimination.preparation.ranges.rounding_margin` at most. Products may differ by
:data:`PRODUCT_TOLERANCE` of themselves, and are compared with their powers of two taken out, so that the order of
factors makes none of them overflow.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from oocbe.elimination.engine.consumption import left_out, why_left_out
from oocbe.elimination.preparation.ranges import rounding_margin, split
from oocbe.errors import InternalError, UnsupportedError, UsageError
from oocbe.model.problem import Problem, violations_of
from oocbe.model.semiring import MIN_SUM, Combination, Semiring
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


PRODUCT_TOLERANCE = 2.0**-36
"""Relative difference of two products of the same floats: 2**-53 for each of at most 2**17 multiplications."""

ROUNDINGS = 2.0**-51
"""Relative tolerance per term for sums or products of more terms."""


def check_solution(problem: Problem, value: int | float | None, assignment: Sequence[int] | None, source: str) -> None:
    """Raise :class:`InternalError` unless an assignment is feasible and has the stated value.

    problem : as it was given. value : claimed. assignment : one value index a variable; None claims nothing.
    source : what found it, for the message.
    """
    if assignment is None:
        return
    found = value_of_assignment(problem, assignment)
    if found is None:
        broken = "; ".join(violations_of(problem.below(None), assignment)[:3])
        raise InternalError(
            f"{problem.name}: {source} gave an assignment with the value {value} that is infeasible: {broken}"
        )
    if value is None or not _agree(problem, value, found):
        raise InternalError(
            f"{problem.name}: {source} gave an assignment with the value {value}, and the problem itself evaluates it "
            f"to {found}"
        )


def value_of_assignment(problem: Problem, assignment: Sequence[int]) -> int | float | None:
    """Value of an assignment, regardless of the upper or lower bound; None if it violates a constraint.

    Products of floats cannot overflow or underflow on the way; what float64 cannot hold in the end is infinite or 0.
    """
    value = problem.evaluate(assignment)
    if value is None:
        value = problem.below(None).evaluate(assignment)
    if value is None or problem.is_integral or problem.semiring.combination is Combination.ADD:
        return value
    mantissa, exponent = split(float(problem.constant))
    for f in problem.functions:
        factor = f.value_at(assignment)
        assert factor is not None
        mantissa, more = split(mantissa * split(float(factor))[0])
        exponent += more + split(float(factor))[1]
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return math.copysign(math.inf, mantissa)


def _agree(problem: Problem, value: int | float, found: int | float) -> bool:
    if value == found:
        return True
    if problem.is_integral:
        return False
    terms = (1 + len(problem.functions)) * ROUNDINGS
    if problem.semiring.combination is Combination.MULTIPLY:
        relative = max(PRODUCT_TOLERANCE, terms)
        # Beside the smallest normal number, digits are lost in rounding to the fixed steps of those below it.
        return math.isclose(value, found, rel_tol=relative, abs_tol=relative * sys.float_info.min)
    margin = rounding_margin(problem)
    # Sums beyond the range of float64 are infinite or not a number, and cannot be compared.
    return margin > 0 and not abs(value - found) > max(margin, margin * terms / PRODUCT_TOLERANCE)
