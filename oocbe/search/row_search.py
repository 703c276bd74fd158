"""Bounded dynamic programming over partial assignments, each with its own bound, with a beam that widens.

Each pass searches below the incumbent and is wider than the one before. Better
assignments tighten the next pass, and the first pass whose beam discards nothing is the proof (*complete anytime beam
search*: Zhang 1998).

The search runs in time slices, beside others. It suits problems whose functions can be tabulated and whose bounds
leave few nodes. It updates its time estimate after each pass.

A pass is dynamic programming over the variables in assignment order. Nodes that agree on their separator are merged,
and each node is bounded. Rows are pruned by their bounds
(:mod:`oocbe.bounds.row_ascent`). If there are more rows than the beam *width*, those with the highest bounds are
dropped. A pass that drops nothing is a proof. Other passes still give an assignment, and the least bound of the dropped
rows is a lower bound on the optimum of their completions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.row_ascent import RowAscent
from oocbe.bounds.row_reduction import Reduction
from oocbe.bounds.row_tables import ScopeTable, ScopeTables
from oocbe.runtime.deadline import Deadline
from oocbe.search.shared_bounds import SharedBounds
from oocbe.search.subsolver import Statistics, SubSolver

RADIUS = 3
"""Distance in functions up to which a loss of values causes variables to be visited. On mastermind_03_08_03 1, 2 and 3
need 29,000, 14,000 and 4,000 rows; if all variables are adjacent, it makes no difference."""

CHOICE = 8
"""Nodes bounded per place in the beam: the most promising ones by their parents' bounds."""

FEWER = 0.9
"""The ascent's layout is rebuilt when only this share of the variables remains."""

_Block = tuple[Any, NDArray[np.int64], NDArray[np.int64]]
"""States, in host memory or on a device, bounds and numbers of rows."""

Steps = Generator[None, None, "BeamPassResult"]
"""A beam pass, in steps of some hundredths of a second."""


@dataclass(frozen=True)
class BeamPassResult:
    """Result of a beam pass.

    Attributes
    ----------
    value, assignment : the best assignment found below the threshold, or None.
    cut : lower bound on the value of assignments that the beam dropped; None if it dropped nothing.
    tried, ruled_out : number of bounded rows, and of those pruned by their bounds.
    expected : estimated rows of an exhaustive pass (no beam), extrapolated from the share dropped at each variable.
    largest : maximum number of rows kept at a time.
    """

    value: int | float | None
    assignment: tuple[int, ...] | None
    cut: int | float | None
    tried: int
    ruled_out: int
    expected: float
    largest: int


class WeightedPrimalGraph:
    """Primal graph with edge weights, and an order with a narrow frontier.

    Parameters
    ----------
    tables : of the problem.

    Attributes
    ----------
    parts : of each variable, the numbers of the tables over it. neighbours : of each variable.
    weight : float64 (tables,), average cost of a table beyond its minimum.
    rank : int64 (variables,), position of each in the order.
    """

    def __init__(self, tables: ScopeTables, dear: float) -> None:
        count = len(tables.problem.sizes)
        self.parts: list[list[int]] = [[] for _ in range(count)]
        around: list[set[int]] = [set() for _ in range(count)]
        self.weight = tables.weights(dear)
        for number, part in enumerate(tables.parts):
            for v in part.scope:
                self.parts[v].append(number)
                around[v].update(part.scope)
        self.neighbours = [sorted(others - {v}) for v, others in enumerate(around)]
        self.scopes = [part.scope for part in tables.parts]
        self.order = self._narrow_order()
        self.rank = np.empty(count, dtype=np.int64)
        self.rank[self.order] = np.arange(count)

    def _narrow_order(self) -> list[int]:
        """Greedy order: prefer variables that complete most others, have most assigned neighbours, and largest
        weights."""
        count = len(self.parts)
        left = [len(others) for others in self.neighbours]
        completes, assigned_near, tied = [0] * count, [0] * count, [0.0] * count
        strength = [sum(float(self.weight[p]) for p in parts) for parts in self.parts]
        done = [False] * count
        order: list[int] = []

        def key(v: int) -> tuple[Any, ...]:
            # A new component begins at its edge.
            return (-completes[v], not assigned_near[v], left[v] - assigned_near[v], -tied[v], -strength[v], v)

        heap = [key(v) for v in range(count)]
        heapq.heapify(heap)
        while heap:
            found = heapq.heappop(heap)
            v = found[-1]
            if done[v] or found != key(v):
                continue
            done[v] = True
            order.append(v)
            changed = set()
            for u in self.neighbours[v]:
                left[u] -= 1
                if not done[u]:
                    assigned_near[u] += 1
                    changed.add(u)
            for u in (v, *self.neighbours[v]):
                if done[u] and left[u] == 1:
                    last = next(w for w in self.neighbours[u] if not done[w])
                    completes[last] += 1
                    changed.add(last)
            for part in self.parts[v]:
                for u in self.scopes[part]:
                    if not done[u]:
                        tied[u] += float(self.weight[part])
            for u in changed:
                heapq.heappush(heap, key(u))
        return order


class BeamPass:
    """One beam pass below the threshold of an ascent.

    Parameters
    ----------
    ascent : bounds the rows. ties : of the same problem. width : maximum number of rows kept. passes : for each row.
    is_narrow : whether variables are assigned in the narrow order; otherwise the variable with the fewest remaining
        values relative to the weight of its edges to open variables comes next (Boussemart et al. 2004, dom/wdeg).
    """

    def __init__(self, ascent: RowAscent, ties: WeightedPrimalGraph, width: int, passes: int, is_narrow: bool) -> None:
        self._ascent, self._ties, self._width, self._passes, self._is_narrow = ascent, ties, width, passes, is_narrow
        self.threshold = ascent.threshold
        self._tables = ascent.tables
        sizes = self._tables.problem.sizes
        count = len(sizes)
        self._first = ascent.network.value_start
        self._open = np.ones(count, dtype=bool)
        self._left = np.array([len(others) for others in ties.neighbours], dtype=np.int64)
        self._open_places = [len(part.scope) for part in self._tables.parts]
        self._tied = np.zeros(count)
        for number, part in enumerate(self._tables.parts):
            self._tied[list(part.scope)] += ties.weight[number] * (len(part.scope) - 1)
        self._factors = np.random.default_rng(0).integers(1, 2**63, size=count, dtype=np.uint64) | np.uint64(1)
        dtype = np.int64 if self._tables.is_integral else np.float64
        self._kept: list[_Block] = []
        self._states: Any = ascent.state[None].copy()
        self._bounds = np.array([ascent.bound], dtype=np.int64)
        largest = max(sizes, default=1)
        self._assignments = np.zeros((1, count), dtype=np.uint8 if largest <= 256 else np.int64)
        self._costs: NDArray[Any] = np.full(1, self._tables.constant, dtype=dtype)
        self._cut: int | None = None
        self._tried = self._ruled_out = self._largest = 0
        self._expected, self._factor = 0.0, 1.0
        self._level = ascent.level(ties.order)

    @property
    def nbytes(self) -> int:
        """Bytes of the states of all nodes, including unfinished ones."""
        return int(self._states.nbytes + sum(block[0].nbytes for block in self._kept))

    def steps(self) -> Steps:
        """Run the pass; a step ends at each yield."""
        while len(self._costs) and self._open.any():
            order = self._level.order[self._open[self._level.order]]
            live = self._ascent.live(self._states)
            left, most = self._ascent.values_left(live, order)
            settled = order[most == 1]
            if len(settled):
                for v in settled.tolist():
                    self._assignments[:, v] = live[:, self._first[v] : self._first[v + 1]].argmax(axis=1)
                self._close(settled.tolist())
                continue
            v = self._next(order, left)
            parent, value = np.nonzero(live[:, self._first[v] : self._first[v + 1]])
            self._assignments = self._assignments[parent]
            self._assignments[:, v] = value
            self._costs = self._costs[parent]
            counts = self._close([v], are_bounded=False)
            yield from self._bound(v, *self._promising(v, parent[counts], value[counts]))
        return self._walked()

    def _next(self, order: NDArray[np.int64], left: NDArray[np.int64]) -> int:
        """The variable to assign among the open ones in ``order``; ``left`` : total remaining values of each over all
        rows."""
        if self._is_narrow:
            return int(order[0])
        return int(order[np.argmin(left / len(self._states) / (self._tied[order] + 1e-9))])

    def _close(self, variables: Sequence[int], are_bounded: bool = True) -> NDArray[np.bool_]:
        """Mark variables as assigned: add costs, drop forbidden rows, merge; returns a mask of surviving rows.

        are_bounded : whether the rows have states and bounds, which are filtered too.
        """
        ties, closed = self._ties, []
        for v in variables:
            self._open[v] = False
            for u in ties.neighbours[v]:
                self._left[u] -= 1
            for number in ties.parts[v]:
                self._open_places[number] -= 1
                if self._open_places[number] == 0:
                    closed.append(number)
                for u in ties.scopes[number]:
                    if u != v:
                        self._tied[u] -= ties.weight[number]
        counts = np.ones(len(self._costs), dtype=bool)
        for number in closed:
            part: ScopeTable = self._tables.parts[number]
            where = tuple(self._assignments[:, u] for u in part.scope)
            self._costs = self._costs + part.values[where]
            counts &= part.permitted[where]
        kept = np.flatnonzero(counts)
        kept = kept[self._merged(kept)]
        is_kept = np.zeros(len(counts), dtype=bool)
        is_kept[kept] = True
        self._assignments, self._costs = self._assignments[is_kept], self._costs[is_kept]
        if are_bounded:
            self._states, self._bounds = self._ascent.taken(self._states, kept), self._bounds[kept]
        open_count = int(self._open.sum())
        if 0 < open_count <= FEWER * len(self._level.order):
            self._level = self._ascent.level([v for v in ties.order if self._open[v]])
        return is_kept

    def _merged(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of the cheapest node for each assignment of the separator; all indices if no two nodes can agree."""
        assigned = ~self._open
        separator = np.flatnonzero(assigned & (self._left > 0))
        if len(rows) <= 1 or len(separator) == int(assigned.sum()):
            return np.arange(len(rows))
        keys = self._assignments[np.ix_(rows, separator)]
        hashes = (keys.astype(np.uint64) * self._factors[separator]).sum(axis=1, dtype=np.uint64)
        order = np.lexsort((self._costs[rows], hashes))
        is_first = np.ones(len(rows), dtype=bool)
        is_first[1:] = hashes[order[1:]] != hashes[order[:-1]]
        first = order[np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))]
        # Rows with equal hashes but different keys are kept.
        is_first |= (keys[order] != keys[first]).any(axis=1)
        return np.sort(order[is_first])

    def _promising(
        self, v: int, parent: NDArray[np.int64], value: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Select the nodes to bound; the others are ruled out by their parents' bounds or by the beam.

        Costs and assignments hold all new nodes before the call, and the selected ones after it.
        """
        low = self._bounds[parent] + self._ascent.costs(self._states, parent, v, value)
        kept = np.flatnonzero(low < self._ascent.need)
        self._expected += self._factor * len(kept)
        if len(kept) > CHOICE * self._width:
            order = np.argsort(low[kept], kind="stable")
            self._cut_at(int(low[kept[order[CHOICE * self._width]]]))
            self._factor *= len(kept) / (CHOICE * self._width)
            kept = np.sort(kept[order[: CHOICE * self._width]])
        self._assignments, self._costs = self._assignments[kept], self._costs[kept]
        return parent[kept], value[kept]

    def _cut_at(self, bound: int) -> None:
        """Record that the beam dropped a node with this bound."""
        self._cut = bound if self._cut is None else min(self._cut, bound)

    def _bound(self, v: int, parent: NDArray[np.int64], value: NDArray[np.int64]) -> Generator[None, None, None]:
        """Bound nodes block by block, and keep at most the beam width."""
        ascent = self._ascent
        self._states = ascent.placed(self._states, self._level, v, len(parent), self._width)
        block = ascent.block_of(self._states)
        kept = self._kept = [(self._states[:0], self._bounds[:0], parent[:0])]
        count = alive = 0
        for begin in range(0, len(parent), block):
            here = slice(begin, begin + block)
            found, found_bounds = ascent.rows(
                self._level, v, self._states, self._bounds, parent[here], value[here], self._passes, RADIUS
            )
            good = np.flatnonzero(found_bounds < ascent.need)
            kept.append((ascent.taken(found, good), found_bounds[good], begin + good))
            alive, count = alive + len(good), count + len(good)
            if count > 2 * self._width:
                kept[:] = [self._best_of(kept)]
                count = self._width
            yield
        states, bounds, rows = self._best_of(kept)
        kept.clear()
        self._tried += len(parent)
        self._ruled_out += len(parent) - alive
        self._factor *= alive / max(1, len(rows))
        self._largest = max(self._largest, len(rows))
        self._states, self._bounds = states, bounds
        self._assignments, self._costs = self._assignments[rows], self._costs[rows]

    def _best_of(self, kept: list[_Block]) -> _Block:
        """The nodes of some blocks with the lowest bounds, at most the beam width, in their order."""
        states = self._ascent.joined([block[0] for block in kept if len(block[0])] or [kept[0][0]])
        bounds, rows = (np.concatenate([block[i] for block in kept]) for i in (1, 2))
        if len(rows) <= self._width:
            return states, bounds, rows
        order = np.argsort(bounds, kind="stable")
        self._cut_at(int(bounds[order[self._width]]))
        best = np.sort(order[: self._width])
        return self._ascent.taken(states, best), bounds[best], rows[best]

    def _walked(self) -> BeamPassResult:
        ascent = self._ascent
        value: int | float | None = None
        assignment = None
        if len(self._costs):
            best = int(self._costs.argmin())
            if self._costs[best] < ascent.threshold:
                value, assignment = self._costs[best].item(), tuple(self._assignments[best].tolist())
        cut = None if self._cut is None else ascent.unscale(self._cut)
        return BeamPassResult(value, assignment, cut, self._tried, self._ruled_out, self._expected, self._largest)


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
