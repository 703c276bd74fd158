"""A search by rows that each have a bound of their own: bounded dynamic programming with a beam that widens.

A few walks (:mod:`oocbe.search.beam_pass`) below thresholds a little above the proven bound come first:
where that is tight, nearly all values are ruled out at once and what is left is the optimum. Then walks below the
incumbent follow, each wider than the one before: they find better and better assignments, which narrow the next walk,
and the first one from which the beam takes nothing is the proof (*complete anytime beam search*: Zhang 1998).

The search works in slices of time, beside others. It is for problems whose functions can be written out, and in which
rows are few for what their bounds rule out; what it expects to take is said after each walk.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from oocbe.bounds.row_ascent import RowAscent
from oocbe.bounds.row_reduction import Reduction
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import Deadline
from oocbe.search.beam_pass import BeamPass, BeamPassResult, WeightedPrimalGraph
from oocbe.search.shared_bounds import SharedBounds

NARROW_WIDTH = 16
"""Rows kept in walks below thresholds near the proven bound."""

FEW_EXPECTED = 2e5
"""Where so many rows would be tried without a beam, the same walk is made again with a wider one."""

RESTARTS = 4
"""How often thresholds begin anew, close above the proven bound, because that has risen at the root."""

STATE_COPIES = 8
"""Of the states of as many rows as a walk's beam is wide, while they are made: the parents', twice as many that are
kept until the best are chosen, those laid end to end, and the best."""

FIRST_WIDTH, WIDER = 16, 16
"""Rows kept in the first walk below the incumbent, and by what factor each next one is wider."""

THRESHOLD_FACTOR = 8
"""How much further from the proven bound the next threshold lies."""

PARTS = 8
"""Where values are no integers, the first threshold lies at this part (an eighth) of the gap."""

ROW_PASSES, FEW_PASSES = 4, 2
"""Passes for each row: in wide walks, and in narrow ones, which say in less time as much about what is to come. On
CELAR6-SUB2 two passes in all walks try 160,000 rows, four 96,000, and take a little longer for all."""

HOPELESS_SECONDS, FEW_RULED_OUT = 1e6, 0.15
"""A walk with a beam that finds nothing says that rows are hopeless where without the beam it is expected to take so
many seconds, and bounds rule out less than this part of the rows: they know little of the rows then, and take time."""

ROOT_PASSES, LITTLE, MOST_ROUNDS = 10, 0.01, 40
"""Passes at the root at a time; the progress in them, relative to all so far, below which they end; and how often they
are repeated at most."""


def ascend_root(ascent: RowAscent) -> Generator[None, None, None]:
    """Raise the bound of the row that assigns nothing, as far as passes over all variables bring it, some at a time."""
    level = ascent.level(range(len(ascent.tables.problem.sizes)))
    for _ in range(MOST_ROUNDS):
        before = ascent.bound
        ascent.ascend(level, ROOT_PASSES)
        yield
        if ascent.bound >= ascent.need or ascent.bound - before <= LITTLE * ascent.bound:
            break


class RowSearch:
    """One search of one min-sum problem.

    Parameters
    ----------
    reduction : what is searched, and the way back. known : filled in. memory : bytes that the rows of a walk may take.
    backend : where rows are bounded, as of :class:`~oocbe.bounds.row_ascent.RowAscent`.

    Attributes
    ----------
    rows, ruled_out, largest : rows tried, those that their bounds ruled out, and most rows kept at a time.
    seconds, walking : taken, and those of them that walks took which are at an end.
    expected : seconds that a walk below the incumbent would take without a beam, reckoned from the last one with a
        beam: many times too much, as that keeps the rows that have the most descendants. None before.
    lower : the bound that rows have proven.
    is_over : whether there is nothing more to do: the problem is closed, or memory ends it.
    is_hopeless : whether walks have shown last that bounds rule out few of many rows, along all orders tried.
    """

    def __init__(self, reduction: Reduction, known: SharedBounds, memory: int, backend: str = "cpu") -> None:
        self._reduction = reduction
        self._tables, self._known, self._memory = reduction.tables, known, memory
        self._backend = backend
        self.rows = self.ruled_out = self.largest = 0
        self.seconds = self.walking = 0.0
        self.expected: float | None = None
        self.lower: int | float | None = None
        self.is_over = self.is_hopeless = False
        self._walk_at_work: BeamPass | None = None
        self._ties: WeightedPrimalGraph | None = None
        self._width: int | None = None
        self._orders = [True, False]
        self._steps = self._rounds()
        self._pace, self._waited, self._stopped_at = 0.0, 0.0, working_time()

    def work(self, seconds: float, deadline: Deadline) -> None:
        """Go on for so many seconds, a step at least.

        Raises
        ------
        TimeLimitError : the deadline came.
        """
        begin = working_time()
        self._waited += begin - self._stopped_at
        try:
            while not self.is_over:
                deadline.check()
                next(self._steps)
                if working_time() - begin >= seconds:
                    break
        except StopIteration:
            self.is_over = True
        except MemoryError:  # others may still find the optimum: what has been proven stays
            self.is_over = True
            self._steps.close()
        finally:
            self._stopped_at = working_time()
            self.seconds += self._stopped_at - begin

    @property
    def held(self) -> int:
        """Bytes of the rows that a walk holds which is not at its end."""
        return 0 if self._walk_at_work is None else self._walk_at_work.nbytes

    def give_up_walk(self) -> None:
        """Forget the rows of the walk at work; what was proven stays, and the next one is as wide."""
        self._steps.close()
        self._walk_at_work = None
        self._steps = self._rounds()

    def _prove(self, bound: int | float, why: str) -> None:
        """Take a proven bound."""
        self.lower = bound if self.lower is None else max(self.lower, bound)
        self._known.raise_lower(bound, why)

    @property
    def summary(self) -> str:
        """What rows and bounds did, for a result."""
        part = self.ruled_out / self.rows if self.rows else 0.0
        return (
            f"rows with bounds of their own: {self.rows:,} tried, {part:.0%} of them ruled out by their bounds, "
            f"{self.largest:,} kept at most, in {self.seconds:.3g} s, over {self._reduction.summary}"
        )

    def _rounds(self) -> Generator[None, None, None]:
        """Walks, until the problem is closed."""
        known = self._known
        step = known.grid.step
        distance: int | float = step
        width, restarts = NARROW_WIDTH, RESTARTS
        while self._width is None and not known.is_closed:
            lower = self._tables.least if known.lower is None else known.lower
            upper = known.upper_bound
            distance = distance or (upper - lower) / PARTS
            threshold = min(lower + distance, upper)
            ascent = yield from self._root(threshold)
            self._prove(ascent.unscale(ascent.bound), "dual ascent")
            if ascent.bound >= ascent.need:
                distance *= THRESHOLD_FACTOR
                continue
            if step and restarts and known.lower is not None and lower < known.lower < threshold - step:
                distance, restarts = step, restarts - 1  # the root has risen: it may be tight there
                continue
            if self._ties is None:
                self._ties = WeightedPrimalGraph(self._tables, max(upper - lower, step) or 1.0)
                yield
            walked = yield from self._walk(BeamPass(ascent, self._ties, width, _passes(width), is_narrow=True))
            self.is_hopeless = self._is_vain(walked)
            if walked.cut is None:
                distance, width = distance * THRESHOLD_FACTOR, NARROW_WIDTH
            elif walked.expected > FEW_EXPECTED or width > NARROW_WIDTH:
                break
            else:
                width *= WIDER  # the same again
        if self._ties is not None:
            yield from self._widening(self._ties)

    def _widening(self, ties: WeightedPrimalGraph) -> Generator[None, None, None]:
        """Wider and wider walks below the incumbent."""
        known = self._known
        width = self._width = self._width or FIRST_WIDTH
        expected: dict[bool, float] = {}
        while not known.is_closed:
            are_vain = True
            for is_narrow in self._orders:
                ascent = yield from self._root(known.upper_bound)
                self._prove(ascent.unscale(ascent.bound), "dual ascent")
                if ascent.bound >= ascent.need:
                    return
                room = self._memory // (STATE_COPIES * ascent.state.nbytes)
                beam = min(width, max(1, room))
                walked = yield from self._walk(BeamPass(ascent, ties, beam, _passes(beam), is_narrow))
                if known.is_closed or (walked.cut is not None and width > room):
                    return
                are_vain = are_vain and self._is_vain(walked)
                if walked.value is not None and width > FIRST_WIDTH:
                    # What is left below the better assignment is much less: a narrow look says how much.
                    ascent = yield from self._root(known.upper_bound)
                    if ascent.bound < ascent.need:
                        walked = yield from self._walk(BeamPass(ascent, ties, FIRST_WIDTH, FEW_PASSES, is_narrow))
                expected[is_narrow] = walked.expected * self._pace
            self._orders = [min(expected, key=lambda is_narrow: expected[is_narrow])]
            self.expected = expected[self._orders[0]]
            self.is_hopeless = are_vain
            width *= WIDER
            self._width = width

    def _is_vain(self, walked: BeamPassResult) -> bool:
        """Whether the walk at an end has found nothing, and shown bounds that rule out few of many rows."""
        if walked.value is not None or walked.cut is None or walked.ruled_out >= FEW_RULED_OUT * walked.tried:
            return False
        return walked.expected * self._pace > HOPELESS_SECONDS

    def _root(self, threshold: int | float) -> Generator[None, None, RowAscent]:
        """An ascent below a threshold, as far as passes over all variables bring it."""
        ascent = RowAscent(self._tables, threshold, self._backend)
        yield from ascend_root(ascent)
        return ascent

    def _walk(self, walk: BeamPass) -> Generator[None, None, BeamPassResult]:
        """Walk, and tell what that has found."""
        known, threshold = self._known, walk.threshold
        begin = working_time() - self._waited
        self._walk_at_work = walk
        walked = yield from walk.steps()
        self._walk_at_work = None
        taken = working_time() - self._waited - begin
        self.walking += taken
        self._pace = taken / max(1, walked.tried)
        self.rows += walked.tried
        self.ruled_out += walked.ruled_out
        self.largest = max(self.largest, walked.largest)
        if walked.value is not None and walked.assignment is not None:
            assignment = self._reduction.complete(walked.assignment)
            known.offer(walked.value, assignment, "rows with bounds of their own")
        lower = threshold if walked.value is None else walked.value
        if walked.cut is not None:
            lower = min(lower, walked.cut)
        if math.isfinite(lower):
            self._prove(lower, "rows with bounds of their own")
        return walked


def _passes(width: int) -> int:
    """Passes for each row of a walk with such a beam."""
    return FEW_PASSES if width <= FIRST_WIDTH else ROW_PASSES
