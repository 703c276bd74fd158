"""The protocol of solvers that share the time of one solve in slices (as OR-tools' ``sat/subsolver.h``).

A sub-solver takes bounds from :class:`~oocbe.search.shared_bounds.SharedBounds` at the start of each step, and adds its
own. It never calls another solver of its problem: :mod:`oocbe.search.portfolio` alone decides which runs next.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from oocbe.errors import TimeLimitError
from oocbe.model.results.progress_curve import SolverShare
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.shared_bounds import SharedBounds


class Progress(NamedTuple):
    """Seconds of one call of :meth:`SubSolver.work`, and whether it improved the lower bound or the incumbent."""

    seconds: float
    is_better: bool


class SubSolver(ABC):
    """A solver of one min-sum problem, or of a piece of it, that runs in time slices.

    Parameters
    ----------
    known : updated.

    Attributes
    ----------
    seconds : time spent. is_over : whether it has ended: the problem is closed, or nothing is left to try.
    lower : lower bound proven by this solver alone, or None. nodes : number of nodes (rows) created.
    steps, raised, found : number of calls of :meth:`work`, of those that raised the lower bound, and of those that
        found a better assignment. closed : by how much they reduced the distance between both.
    is_coarse : whether a step takes up the time that it is given; one step is then a call of :meth:`work`.
    """

    nodes: int = 0
    is_coarse = False

    def __init__(self, known: SharedBounds) -> None:
        self._known = known
        self.seconds = 0.0
        self.is_over = False
        self.steps = self.raised = self.found = 0
        self.closed = 0.0
        self.lower: int | float | None = None
        self._begin_of_work: float | None = None

    @abstractmethod
    def _step(self, seconds: float, deadline: Deadline) -> None:
        """Run one indivisible piece of work, of about ``seconds`` or less."""

    def work(self, seconds: float, deadline: Deadline) -> Progress:
        """Run for ``seconds``, at least one step. A solver without memory is over.

        Raises TimeLimitError: the deadline came; the solver can continue later.
        """
        known = self._known
        before, distance, begin = (known.lower, known.value), known.distance, working_time()
        self._begin_of_work = begin
        try:
            while not self.is_over:
                deadline.check()
                self._step(seconds - (working_time() - begin), deadline)
                left = seconds - (working_time() - begin)
                if left <= 0.0 or self.cost > left or self.is_coarse:
                    break
        except TimeLimitError:
            raise
        except MemoryError:  # other solvers may still find the optimum: proven bounds stay
            self.is_over = True
        except BaseException:
            self.is_over = True  # the state may be inconsistent
            raise
        finally:
            taken, self._begin_of_work = working_time() - begin, None
            self.seconds += taken
            self.steps += 1
            self.raised += before[0] != known.lower
            self.found += before[1] != known.value
            if distance < math.inf:
                self.closed += float(distance - known.distance)
        return Progress(taken, before != (known.lower, known.value))

    @property
    def worked(self) -> float:
        """Time spent so far, including that of a running call of :meth:`work`."""
        return self.seconds + (0.0 if self._begin_of_work is None else working_time() - self._begin_of_work)

    @property
    def is_available(self) -> bool:
        """Whether the next step may run now."""
        return not self.is_over

    @property
    def expected(self) -> float:
        """Estimated total seconds until the solver proves the optimum; infinite without an estimate."""
        return math.inf

    @property
    def cost(self) -> float:
        """Estimated seconds of the next step if that is longer than a slice; infinite if it is out of reach."""
        return 0.0

    def report(self, statistics: Statistics) -> None:
        """Add the resources used to ``statistics``."""
        statistics.total_rows += self.nodes

    @property
    def summary(self) -> str:
        """Summary for the result; empty if the solver has done nothing."""
        return ""

    def _prove(self, lower: int | float, why: str) -> None:
        """Report a lower bound on the optimum."""
        self.lower = lower if self.lower is None else max(self.lower, lower)
        self._known.raise_lower(lower, why)


@dataclass
class Statistics:
    """Resources used by a bounded solve.

    seconds : by phase. attempts : abandoned runs.
    order, width, total_rows, dtype : of the last finished run; fixed variables come first in the order.
    largest_rows : of any finished run.
    bounds : the bound used, a sentence. stopped : why the search ended before the proof, a sentence, or empty.
    solvers : what each solver took and gained.
    spoiled : the best assignment without the linear constraints that elimination left out violates one of them.
    """

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("order", "bounds", "forward", "backward"), 0.0)
    )
    attempts: int = 0
    order: tuple[int, ...] = ()
    width: int = 0
    total_rows: int = 0
    dtype: str = ""
    largest_rows: int = 0
    bounds: str = ""
    stopped: str = ""
    solvers: tuple[SolverShare, ...] = ()
    spoiled: bool = False
