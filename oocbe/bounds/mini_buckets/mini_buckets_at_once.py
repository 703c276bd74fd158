"""The bound of a problem eliminated in one loop: no bucket is divided, so it is the optimum."""

from __future__ import annotations

from oocbe.bounds.mini_buckets.mini_buckets import MiniBucketPass
from oocbe.elimination.narrow.narrow_problem import NarrowProblem


def bounded_at_once(narrow: NarrowProblem) -> tuple[MiniBucketPass, tuple[int, ...] | None]:
    """Result of the forward pass, and an optimal assignment; None if the problem is infeasible.

    Raises
    ------
    TimeLimitError : the deadline of the enclosing block came.
    """
    found, assignment = narrow.solve()
    bound = None if found.value is None else found.value - narrow.rounding
    numbers = (0, len(narrow.order), found.width, found.largest_rows, found.total_rows)
    return MiniBucketPass([], bound, found.value, *numbers), assignment
