"""Local search for assignments, as a solver in a portfolio, and on a thread of its own beside elimination."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oocbe.errors import OocbeError, TimeLimitError
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline, unlimited
from oocbe.runtime.memory import is_want_of_memory
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import SubSolver

if TYPE_CHECKING:
    from oocbe.bounds.incumbent import Incumbent, LocalSearch

LAST_SECONDS, LAST_ITERATIONS = 0.2, 10_000
"""Limits of :meth:`IncumbentSearch.search_a_moment`: seconds, including the layout, and iterations."""

LAST_TUPLES = 20_000
"""Maximum tuples of a problem whose first assignment and bound take less than the grace period of a signal."""


def offer_first(known: SharedBounds) -> None:
    """Offer a first assignment and bound of a small problem, for a solve that a signal ends at its start."""
    problem = known.problem
    tuples = sum(len(f.tuples) for f in problem.functions) + sum(len(c.tuples) for c in problem.constraints)
    if tuples > LAST_TUPLES:
        return
    from oocbe.bounds.estimators import constant_source
    from oocbe.bounds.incumbent import LocalSearch
    from oocbe.search.dive import offer_dive

    with unlimited(), suppress(OocbeError):  # the signal has ended all limits
        if known.lower is None:
            known.raise_lower(constant_source(problem).root, "constant")
        if known.value is None:
            offer_dive(known)
        if known.value is None and (found := LocalSearch(problem).run(1e-9, is_interpreted=True)) is not None:
            known.offer(found.value, found.assignment, found.method)


class IncumbentSearch(SubSolver):
    """Local search of one min-sum problem; it continues from better assignments of other solvers.

    Parameters
    ----------
    problem, options : the problem and its settings. known : updated.

    Attributes
    ----------
    budget : limit of its time, in seconds.
    """

    def __init__(self, problem: Problem, options: SolveOptions, known: SharedBounds) -> None:
        super().__init__(known)
        self._problem, self._seed, self.budget = problem, options.seed, options.incumbent_seconds
        self._search: LocalSearch | None = None

    @property
    def is_available(self) -> bool:
        """Whether the next step may run now."""
        return not self.is_over and self.seconds < self.budget

    def _step(self, seconds: float, deadline: Deadline) -> None:
        from oocbe.bounds.incumbent import LocalSearch  # loaded late: an easy solve does not need its loops

        known = self._known
        try:
            if self._search is None:
                self._search = LocalSearch(self._problem, self._seed)
            if known.value is not None and known.assignment is not None:
                self._search.take(known.value, known.assignment)
            found = self._search.run(max(0.0, seconds))
        except TimeLimitError:
            raise
        except OocbeError:  # local search does not support every problem
            self.is_over = True
            return
        self.is_over = self._search.is_infeasible
        if found is not None:
            known.offer(found.value, found.assignment, found.method)

    def search_a_moment(self) -> None:
        """Search briefly after the time limit if nothing is found: an assignment justifies the small delay."""
        from oocbe.bounds.incumbent import find_incumbent
        from oocbe.search.dive import MOST_SECONDS, offer_dive

        with suppress(OocbeError), Deadline(MOST_SECONDS):
            offer_dive(self._known)
        with suppress(OocbeError), Deadline(LAST_SECONDS):
            found = find_incumbent(self._problem, math.inf, self._seed, iterations=LAST_ITERATIONS)
            if found is not None:
                self._known.offer(found.value, found.assignment, found.method)


def beside_elimination(
    problem: Callable[[], Problem], options: SolveOptions
) -> AbstractContextManager[SearchBeside | None]:
    """Local search beside elimination without bounds, if a time limit may end that early; otherwise none.

    problem : returns the problem in min-sum.
    """
    if options.time_limit is None or options.incumbent_seconds <= 0:
        return nullcontext()
    return SearchBeside(problem(), options.incumbent_seconds, options.seed)


class SearchBeside:
    """Local search on a thread, within a block that joins the thread.

    The compiled search releases the interpreter lock. Parameters as of :func:`oocbe.bounds.incumbent.find_incumbent`.
    """

    def __init__(self, problem: Problem, seconds: float, seed: int) -> None:
        # Not on the thread: without memory, Python may wait for ever for a module that two threads import.
        from oocbe.bounds.incumbent import find_incumbent

        self._search = partial(find_incumbent, problem, seconds, seed)
        self._found: Incumbent | None = None
        self._error: BaseException | None = None
        with unlimited():
            self._deadline = Deadline(math.inf)  # the caller's deadline belongs to its own thread
        self._thread = threading.Thread(target=self._run, name="oocbe-incumbents", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadline.interrupt()
        self._thread.join()

    @property
    def best(self) -> Incumbent | None:
        """The best assignment, or None, also if the search lacked memory; ends the search.

        Raises BaseException: the search failed with a programming error.
        """
        self._deadline.interrupt()
        self._thread.join()
        error = self._error
        if error is not None and not isinstance(error, OocbeError) and not is_want_of_memory(error):
            raise error
        return self._found

    def _run(self) -> None:
        try:
            with self._deadline:
                self._found = self._search()
        except BaseException as error:
            self._error = error
