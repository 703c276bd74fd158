"""Mini-bucket bounds beside a bounded search, on both sides, with growing z.

If a linear program or dual ascent leaves a gap, as on dense networks of costs, mini-bucket elimination often has the
better bound; its backward pass gives an assignment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oocbe.errors import OocbeError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import SubSolver

if TYPE_CHECKING:
    from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

LEAST_Z, FIRST_COST = 3, 0.1
"""The first z, and the estimated seconds of its pass, including the order search."""

GROWTH = 8.0
"""Estimated time of the next pass relative to the last one; time limit of a pass, and estimated time of its
repetition, relative to its estimate."""


class MiniBucketRounds(SubSolver):
    """Passes of growing z over one min-sum problem.

    problem, options : the problem and its settings. known : updated.
    """

    def __init__(self, problem: Problem, options: SolveOptions, known: SharedBounds) -> None:
        super().__init__(known)
        self._problem = problem
        # Mini-buckets are joined in memory, not in pieces.
        whole = replace(options, piece_rows=None, streams=None)
        self._options = replace(whole, order_seconds=0.0, incumbent_seconds=0.0, semiring=None)
        self._next_cost, self._z = FIRST_COST, LEAST_Z
        self._bounding: Bounding | None = None

    @property
    def cost(self) -> float:
        """Estimated seconds of the next pass."""
        return self._next_cost

    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one pass; one that takes too long is repeated when much more time is available."""
        # Loaded late, as easy solves do not need it, and before the deadline of a pass starts.
        from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

        begin = working_time()
        try:
            with Deadline(min(deadline.remaining, GROWTH * self._next_cost)) as allowed:
                if self._bounding is None:
                    self._bounding = Bounding(self._problem, self._options, "scope", False, None).prepare()
                self._pass(self._bounding, allowed)
            self._z += 1
        except TimeLimitError:
            deadline.check()
        except OocbeError:  # memory exhausted, or an unsupported problem
            self.is_over = True
            deadline.check()
        self._next_cost = GROWTH * (working_time() - begin)

    def _pass(self, bounding: Bounding, deadline: Deadline) -> None:
        known, found = self._known, bounding.with_z(self._z, deadline)
        self.is_over = found.split_buckets == 0
        why = f"mini-buckets with z = {self._z}"
        if found.assignment is not None:
            value = self._problem.evaluate(found.assignment)
            assert value is not None
            known.offer(value, found.assignment, why)
        # Without a bound, no assignment is below the problem's upper bound.
        known.raise_lower(known.upper_bound if found.bound is None else found.bound, why)
