"""Enforcement of linear constraints by elimination: small ones by lookup, large ones in the rows' keys.

Constraints that do not fit in keys are *left out*: the optimum without them is a bound, and if its assignment satisfies
them, it is the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.elimination.engine.consumption import MOST_BITS, carried
from oocbe.elimination.engine.factors import LOOKUP_BITS
from oocbe.model.parts import LinearConstraint
from oocbe.model.problem import Problem
from oocbe.tables.layout import bits_for

TABULATED_BITS = LOOKUP_BITS
"""Maximum index bits of linear constraints that are enforced as packed constraints."""


def is_tabulated(problem: Problem, linear: LinearConstraint) -> bool:
    """Whether a linear constraint is enforced as a packed constraint: it can bind and its scope is small."""
    return linear.can_bind and sum(bits_for(problem.sizes[v]) for v in linear.scope) <= TABULATED_BITS


def _large(problem: Problem) -> list[int]:
    """Linear constraints, by index, that can bind, can be satisfied by themselves, and are no packed constraints."""
    return [
        number
        for number, c in enumerate(problem.linear_constraints)
        if c.scope and c.can_bind and not is_tabulated(problem, c) and not c.is_impossible
    ]


def carried_in_rows(problem: Problem) -> tuple[int, ...]:
    """Linear constraints, by index, whose consumption is part of the rows' keys."""
    return carried(problem, _large(problem))


def left_out(problem: Problem) -> list[LinearConstraint]:
    """Linear constraints that can bind and that elimination does not enforce."""
    large = _large(problem)
    inside = carried(problem, large)
    return [problem.linear_constraints[number] for number in large if number not in inside]


def why_left_out(relaxed: Sequence[LinearConstraint]) -> str:
    """A sentence about the first of some constraints that are left out."""
    c = relaxed[0]
    return (
        f"{c.name}: elimination carries what rows consume of linear constraints in up to {MOST_BITS} bits of their "
        f"keys, and there is no room for a capacity of {c.capacity} over {len(c.scope)} variables; divide its "
        "coefficients and capacity by a common factor (rounding changes the problem), or leave it out"
    )
