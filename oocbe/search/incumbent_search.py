"""Incumbent search on a thread of its own, during bounds and elimination.

It runs in slices of growing length, each from the best assignment so far with another seed, so that the current
incumbent can be read at any time. The compiled search releases the interpreter lock.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oocbe.errors import OocbeError
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, unlimited

if TYPE_CHECKING:
    from oocbe.bounds.incumbent import Incumbent
    from oocbe.search.shared_bounds import SharedBounds

FIRST_SLICE_SECONDS = 0.1
"""Length of the first slice; each is twice as long as the one before, up to :data:`LONGEST_SLICE_SECONDS`."""

BESIDE_ROWS_SECONDS = 0.25
"""Time of the incumbent search beside the first beam and depth-first searches, in seconds. They soon find better
assignments, and it would take as much of the processor as they do."""

LAST_SECONDS, LAST_ITERATIONS = 0.2, 10_000
"""Limits of :meth:`IncumbentSearch.search_a_moment`: seconds, including the problem's layout, and iterations."""

LAST_TUPLES = 20_000
"""Maximum tuples of a problem whose first assignment and bound take less than the grace period of a signal."""

LONGEST_SLICE_SECONDS = 2.0
"""Maximum length of a slice, in seconds, so that incumbents are taken in time."""


def beside_elimination(
    problem: Callable[[], Problem], options: SolveOptions
) -> AbstractContextManager[IncumbentSearch | None]:
    """The incumbent search beside elimination without bounds, if a time limit may end that early; otherwise none.

    problem : returns the problem in min-sum.
    """
    if options.time_limit is None or options.incumbent_seconds <= 0:
        return nullcontext()
    return IncumbentSearch(problem(), options.incumbent_seconds, options.seed)


def offer_first(known: SharedBounds) -> None:
    """Offer a first assignment and bound of a small problem, for a solve that a signal ends at its start."""
    problem = known.problem
    tuples = sum(len(f.tuples) for f in problem.functions) + sum(len(c.tuples) for c in problem.constraints)
    if tuples > LAST_TUPLES:
        return
    from oocbe.bounds.constant_bound import constant_source
    from oocbe.bounds.incumbent import first_incumbent

    with unlimited(), suppress(OocbeError):  # the signal has ended all limits
        if known.lower is None:
            known.raise_lower(constant_source(problem).root, "constant")
        if known.value is None and (found := first_incumbent(problem)) is not None:
            known.offer(found.value, found.assignment, found.method)


class IncumbentSearch:
    """Incumbent search until stopped; a context manager that joins its thread.

    Parameters
    ----------
    problem : in min-sum. seconds : total search time, extended by :meth:`extend`. seed : of random choices.
    first : part of these seconds before :meth:`go_on`.
    """

    def __init__(self, problem: Problem, seconds: float, seed: int, first: float = math.inf) -> None:
        self._problem = problem
        self._left = min(seconds, first)
        self._later = seconds - self._left
        self._seed = seed
        self._best: Incumbent | None = None
        self._stopped = threading.Event()
        with unlimited():
            self._deadline = Deadline(math.inf)  # the caller's deadline belongs to its own thread
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._is_idle = True
        self._thread = threading.Thread(target=self._run, name="oocbe-incumbents", daemon=True)
        if seconds > 0:
            self._is_idle = False
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._deadline.interrupt()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def best(self) -> Incumbent | None:
        """The best assignment so far, or None.

        None for a problem that the search does not support.

        Raises
        ------
        BaseException : the search failed with a programming error.
        """
        if self._error is not None and not isinstance(self._error, OocbeError):
            raise self._error
        return self._best

    def extend(self, seconds: float, start: Sequence[int] | None = None) -> None:
        """Extend the search by ``seconds``."""
        with self._changed:
            if self._thread.ident is None or self._stopped.is_set():
                return
            self._left += seconds
            self._is_idle = False
            self._changed.notify_all()

    def go_on(self) -> None:
        """Release the seconds reserved for later."""
        later, self._later = self._later, 0.0
        if later > 0:
            self.extend(later)

    def wait(self, seconds: float) -> None:
        """Wait until the search time is used up, at most ``seconds``."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle, timeout=min(seconds, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        with self._deadline:
            self._search()

    def _search(self) -> None:
        length, number = FIRST_SLICE_SECONDS, 0
        try:
            from oocbe.bounds.incumbent import find_incumbent  # loaded late: an easy solve does not need its loops

            while True:
                with self._changed:
                    if self._left <= 0:
                        self._is_idle = True
                        self._changed.notify_all()
                    self._changed.wait_for(lambda: self._left > 0 or self._stopped.is_set())
                    share = min(length, self._left)
                    self._left -= share
                if self._stopped.is_set():
                    return
                start = None if self._best is None else self._best.assignment
                seed = self._seed + number
                found = find_incumbent(self._problem, share, seed, start, self._stopped.is_set)
                if found is not None and (self._best is None or found.value < self._best.value):
                    self._best = found
                number += 1
                length = min(2 * length, LONGEST_SLICE_SECONDS)
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_idle = True
                self._changed.notify_all()

    def search_a_moment(self) -> None:
        """Search briefly after the time limit if no search could start: an assignment justifies the small delay."""
        from oocbe.bounds.incumbent import find_incumbent

        with suppress(OocbeError), Deadline(LAST_SECONDS):  # local search does not support every problem
            found = find_incumbent(self._problem, math.inf, self._seed, iterations=LAST_ITERATIONS)
            with self._changed:  # the search thread may have found one meanwhile
                if found is not None and (self._best is None or found.value < self._best.value):
                    self._best = found
