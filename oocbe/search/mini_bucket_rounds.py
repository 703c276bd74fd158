"""Mini-bucket bounds beside a bounded search, on both sides, with growing z and a share of the time.

If a linear program or dual ascent leaves a gap, as on dense networks of costs, mini-bucket elimination often has the
better bound; its backward pass gives an assignment. z grows while all passes together stay within a share of the
elapsed time.
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

if TYPE_CHECKING:
    from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

TIME_SHARE = 0.2
"""Target time of all passes together, relative to the elapsed search time."""

LONGEST_SHARE = 0.5
"""Share of that time after which a single pass is abandoned; it is repeated when much more time is available."""

LEAST_Z, FIRST_COST = 3, 0.1
"""The first z, and the estimated seconds of its pass, including the order search."""

GROWTH = 8.0
"""Estimated time of the next pass relative to the last one, and of a retry relative to the abandoned pass."""


class MiniBucketRounds:
    """Passes of growing z over one min-sum problem.

    Parameters
    ----------
    problem, options : the problem and its settings. deadline : of the search; TimeLimitError if it comes during a pass.

    Attributes
    ----------
    seconds : total time of all passes.
    """

    def __init__(self, problem: Problem, options: SolveOptions, deadline: Deadline) -> None:
        self._problem, self._deadline = problem, deadline
        # Mini-buckets are joined in memory, not in pieces.
        whole = replace(options, piece_rows=None, streams=None)
        self._options = replace(whole, order_seconds=0.0, incumbent_seconds=0.0, semiring=None)
        self._begin = working_time()
        self.seconds, self._next_cost = 0.0, FIRST_COST
        self._z, self._is_again = LEAST_Z, False
        self._bounding: Bounding | None = None
        self._is_open = options.bounds == "auto"

    def improve(self, known: SharedBounds) -> None:
        """Run the passes that fit the time, and report their bounds."""
        while self._is_open:
            begin = working_time()
            elapsed = begin - self._begin
            if self.seconds + self._next_cost > TIME_SHARE * elapsed:
                return
            # Loaded late, as easy solves do not need it, and before the deadline of a pass starts.
            from oocbe.bounds.mini_buckets.mini_buckets_bound import Bounding

            share = TIME_SHARE * elapsed - self.seconds if self._is_again else LONGEST_SHARE * elapsed
            try:
                with Deadline(min(self._deadline.remaining, share)) as deadline:
                    if self._bounding is None:
                        self._bounding = Bounding(self._problem, self._options, "scope", False, None)
                    self._pass(self._bounding, known, deadline)
                self._z, self._is_again = self._z + 1, False
            except TimeLimitError:
                self._is_again = True
                self._deadline.check()
            except OocbeError:  # memory exhausted, or an unsupported problem
                self._is_open = False
                self._deadline.check()
            finally:
                taken = working_time() - begin
                self.seconds += taken
            self._next_cost = GROWTH * taken

    def _pass(self, bounding: Bounding, known: SharedBounds, deadline: Deadline) -> None:
        found = bounding.with_z(self._z, deadline)
        self._is_open = found.split_buckets > 0
        why = f"mini-buckets with z = {self._z}"
        if found.assignment is not None:
            value = self._problem.evaluate(found.assignment)
            assert value is not None
            known.offer(value, found.assignment, why)
        # Without a bound, no assignment is below the problem's upper bound.
        known.raise_lower(known.upper_bound if found.bound is None else found.bound, why)
