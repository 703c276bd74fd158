"""Check of every assignment that a solve returns: the problem itself evaluates it again.

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

from oocbe.elimination.preparation.ranges import rounding_margin
from oocbe.elimination.preparation.scaling import split
from oocbe.errors import InternalError
from oocbe.model.problem import Problem, violations_of
from oocbe.model.semiring import Combination

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
