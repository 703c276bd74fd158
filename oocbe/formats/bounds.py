"""Upper and lower bounds of problems that are written to formats without them."""

from __future__ import annotations

from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem


def refuse_bounds(problem: Problem, format_name: str) -> None:
    """Raise :class:`UnsupportedError` where a problem has an upper or lower bound that its sums may reach."""
    if side := problem.reachable_bound:
        bound = problem.upper_bound if side == "upper" else problem.lower_bound
        raise UnsupportedError(
            f"{problem.name}: the {side} bound {bound} may bind, and {format_name} has none; write it as .cfn, "
            "or, in Python, problem.below(None) without it"
        )
