"""Upper and lower bounds of problems that are written to formats without them."""

from __future__ import annotations

from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem


def refuse_bounds(problem: Problem, format_name: str) -> None:
    """Raise :class:`UnsupportedError` where a problem has an upper or lower bound that its sums may reach."""
    for side, bound, sign in (("upper", problem.upper_bound, 1), ("lower", problem.lower_bound, -1)):
        if bound is None:
            continue
        most = sign * problem.constant
        for f in problem.functions:
            listed = [*(sign * f.values).tolist(), *([] if f.default is None else [sign * f.default])]
            most += max(listed, default=0)
        if most >= sign * bound:
            raise UnsupportedError(
                f"{problem.name}: the {side} bound {bound} may bind, and {format_name} has none; in Python, "
                "problem.below(None) has none"
            )
