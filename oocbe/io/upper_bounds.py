"""Upper bounds of problems that are written to formats without one."""

from __future__ import annotations

import math

from oocbe.errors import UnsupportedError
from oocbe.model.problem import Problem


def refuse_upper_bound(problem: Problem, format_name: str) -> None:
    """Raise :class:`UnsupportedError` where a problem has an upper bound that its sums may reach."""
    bound = problem.upper_bound
    if bound is None or math.isinf(bound):
        return
    most = problem.constant
    for f in problem.functions:
        listed = [f.values.max().item()] if len(f.values) else []
        most += max([*listed, *([] if f.default is None else [f.default])], default=0)
    if most >= bound:
        raise UnsupportedError(
            f"{problem.name}: the upper bound {bound} may bind, and {format_name} has none; in Python, "
            "problem.below(None) has none"
        )
