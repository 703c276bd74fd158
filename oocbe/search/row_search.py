"""Bounded dynamic programming over partial assignments, each with its own bound, with a beam that widens.

Each pass (:mod:`oocbe.search.beam_pass`) searches below the incumbent and is wider than the one before. Better
assignments tighten the next pass, and the first pass whose beam discards nothing is the proof (*complete anytime beam
search*: Zhang 1998).

The search runs in time slices, beside others. It suits problems whose functions can be tabulated and whose bounds
leave few nodes. It updates its time estimate after each pass.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from oocbe.bounds.row_ascent import RowAscent
from oocbe.bounds.row_reduction import Reduction
from oocbe.runtime.deadline import Deadline
from oocbe.search.beam_pass import BeamPass, BeamPassResult, WeightedPrimalGraph
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import Statistics, SubSolver

STATE_COPIES = 8
"""Memory of a beam pass, in states per node of the beam width: the parents, twice as many candidates, the concatenated
candidates, and the selected nodes."""

FIRST_WIDTH, WIDER = 16, 16
"""Beam width of the first pass, and the growth factor of later passes."""

ROW_PASSES, FEW_PASSES = 4, 2
"""Ascent passes per node in wide and in narrow beam passes. Narrow ones forecast as well in less time. On CELAR6-SUB2,
two passes everywhere try 160,000 nodes; four try 96,000 and take slightly longer in total."""

HOPELESS_SECONDS, FEW_RULED_OUT = 1e6, 0.15
"""A beam pass without an assignment marks the search hopeless if the estimate without a beam exceeds
HOPELESS_SECONDS and bounds rule out less than FEW_RULED_OUT of the nodes: such bounds are weak and take time."""

OVERESTIMATE = 1000.0
"""Factor by which :attr:`RowSearch.foreseen` is too high: the narrow pass of CELAR6-SUB2, with few ascent passes per
node, estimates 2,100 s; the whole takes 5."""

ROOT_PASSES, LITTLE, MOST_ROUNDS = 10, 0.01, 40
"""Ascent passes per round at the root; minimum progress of a round relative to the bound; maximum number of rounds."""


def ascend_root(ascent: RowAscent) -> Generator[None, None, None]:
    """Raise the bound of the empty assignment by passes over all variables until progress ends; yields each round."""
    level = ascent.level(range(len(ascent.tables.problem.sizes)))
    for _ in range(MOST_ROUNDS):
        before = ascent.bound
        ascent.ascend(level, ROOT_PASSES)
        yield
        if ascent.bound >= ascent.need or ascent.bound - before <= LITTLE * ascent.bound:
            break


class RowSearch(SubSolver):
    """Beam search of one min-sum problem.

    Parameters
    ----------
    reduction : the reduced problem and its postsolve. known : updated. memory : limit of a beam pass, in bytes.
    backend : device of the node bounds, as in :class:`~oocbe.bounds.row_ascent.RowAscent`.

    Attributes
    ----------
    nodes, ruled_out, largest : nodes tried, nodes ruled out by their bounds, and maximum nodes kept at a time.
    walking : seconds spent in completed passes.
    foreseen : estimated seconds of an exhaustive pass (no beam) below the incumbent, extrapolated from the last beam
        pass. A strong overestimate: the beam keeps the nodes with most descendants. None before the first pass.
    is_hopeless : whether the last passes showed, along all orders tried, that bounds rule out few of many nodes.
    """

    def __init__(self, reduction: Reduction, known: SharedBounds, memory: int, backend: str = "cpu") -> None:
        self._reduction = reduction
        super().__init__(known)
        self._tables, self._memory = reduction.tables, memory
        self._backend = backend
        self.ruled_out = self.largest = 0
        self.walking = 0.0
        self.foreseen: float | None = None
        self.is_hopeless = False
        self._walk_at_work: BeamPass | None = None
        self._ties: WeightedPrimalGraph | None = None
        self._width = FIRST_WIDTH
        self._orders = [True, False]
        self._steps = self._rounds()
        self._pace = 0.0

    def _step(self, seconds: float, deadline: Deadline) -> None:
        try:
            next(self._steps)
        except StopIteration:
            self.is_over = True
        except MemoryError:
            self._steps.close()
            raise

    @property
    def walk_bytes(self) -> int:
        """Bytes of the unfinished beam pass."""
        return 0 if self._walk_at_work is None else self._walk_at_work.nbytes

    @property
    def expected(self) -> float:
        """Estimated total seconds; infinite before the first beam pass."""
        return math.inf if self.foreseen is None else self.seconds + self.foreseen / OVERESTIMATE

    def report(self, statistics: Statistics) -> None:
        """Add the resources used to ``statistics``."""
        super().report(statistics)
        statistics.largest_rows = max(statistics.largest_rows, self.largest)

    def give_up_walk(self) -> None:
        """Drop the unfinished beam pass. Proven bounds stay; the next pass has the same width."""
        self._steps.close()
        self._walk_at_work = None
        self._steps = self._rounds()

    @property
    def summary(self) -> str:
        """Summary for the result."""
        part = self.ruled_out / self.nodes if self.nodes else 0.0
        return (
            f"rows with bounds of their own: {self.nodes:,} tried, {part:.0%} of them ruled out by their bounds, "
            f"{self.largest:,} kept at most, in {self.seconds:.3g} s, over {self._reduction.summary}"
        )

    def _rounds(self) -> Generator[None, None, None]:
        """Run wider and wider passes below the incumbent, until the problem is closed."""
        known = self._known
        expected: dict[bool, float] = {}
        while not known.is_closed:
            width, are_vain = self._width, True
            for is_narrow in self._orders:
                ascent = yield from self._root()
                if ascent is None:
                    return
                if self._ties is None:
                    unit = known.upper_bound - (self._tables.least if known.lower is None else known.lower)
                    self._ties = WeightedPrimalGraph(self._tables, max(unit, known.grid.step) or 1.0)
                    yield
                room = self._memory // (STATE_COPIES * ascent.state.nbytes)
                beam = min(width, max(1, room))
                walked = yield from self._walk(BeamPass(ascent, self._ties, beam, _passes(beam), is_narrow))
                if known.is_closed or (walked.cut is not None and width > room):
                    return
                are_vain = are_vain and self._is_vain(walked)
                if walked.value is not None and width > FIRST_WIDTH:
                    # Much less remains below the better incumbent: a narrow pass estimates how much.
                    ascent = yield from self._root()
                    if ascent is not None:
                        walked = yield from self._walk(BeamPass(ascent, self._ties, FIRST_WIDTH, FEW_PASSES, is_narrow))
                expected[is_narrow] = walked.expected * self._pace
            self._orders = [min(expected, key=lambda is_narrow: expected[is_narrow])]
            self.foreseen = expected[self._orders[0]]
            self.is_hopeless = are_vain
            self._width = width * WIDER

    def _is_vain(self, walked: BeamPassResult) -> bool:
        """Whether the finished pass found no assignment and its bounds ruled out few of many nodes."""
        if walked.value is not None or walked.cut is None or walked.ruled_out >= FEW_RULED_OUT * walked.tried:
            return False
        return walked.expected * self._pace > HOPELESS_SECONDS

    def _root(self) -> Generator[None, None, RowAscent | None]:
        """Dual ascent at the root below the incumbent, until progress ends; None if that is the proof."""
        ascent = RowAscent(self._tables, self._known.upper_bound, self._backend)
        yield from ascend_root(ascent)
        self._prove(ascent.unscale(ascent.bound), "dual ascent")
        return ascent if ascent.bound < ascent.need else None

    def _walk(self, walk: BeamPass) -> Generator[None, None, BeamPassResult]:
        """Run a beam pass and report its bound and assignment."""
        known, threshold = self._known, walk.threshold
        begin = self.worked
        self._walk_at_work = walk
        walked = yield from walk.steps()
        self._walk_at_work = None
        taken = self.worked - begin
        self.walking += taken
        self._pace = taken / max(1, walked.tried)
        self.nodes += walked.tried
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
    """Ascent passes per node at this beam width."""
    return FEW_PASSES if width <= FIRST_WIDTH else ROW_PASSES
