"""Mini-buckets beside a search with bounds: better and better bounds on both sides, for a part of the time.

Where a linear program or a dual ascent leaves a gap, as on dense networks of costs, mini-bucket elimination often has
the better bound; and its backward pass gives an assignment. z grows as long as all passes together stay within a part
of the time that the search has taken.
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
"""Part of that time after which a single pass is given up; it is tried again where there is time for much more."""

LEAST_Z, FIRST_COST = 3, 0.1
"""The first z, and the estimated seconds of its pass, including the order search."""

GROWTH = 8.0
"""Estimated time of the next pass relative to the last one, and of a retry relative to the abandoned pass."""


class MiniBucketRounds:
    """Passes of growing z over one min-sum problem.

    Parameters
    ----------
    problem, options : what is solved. deadline : of the search; TimeLimitError where it comes in a pass.

    Attributes
    ----------
    seconds : that all passes have taken.
    """

    def __init__(self, problem: Problem, options: SolveOptions, deadline: Deadline) -> None:
        self._problem, self._deadline = problem, deadline
        # Mini-buckets are joined in memory as a whole: pieces are for other buckets.
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
            # Loaded here, as an easy solve ends before, and before a pass has its deadline.
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
            except OocbeError:  # no room for more, or a problem that mini-buckets cannot take
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
        # Without a bound nothing is below the problem's upper bound.
        known.raise_lower(known.upper_bound if found.bound is None else found.bound, why)
