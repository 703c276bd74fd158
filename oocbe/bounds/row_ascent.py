"""Lower bounds for partial assignments, on the cost of all their completions. In this module, a *row* is one.

**What it is.** The functions are conditioned on the row, and sequential dual ascent moves costs between them and their
variables (Kolmogorov 2006, *Convergent tree-reweighted message passing*, for pairs; Kolmogorov 2015, *A new look at
reweighted message passing*, SRMP, for larger scopes). A few passes start from the state of the row's parent and visit
only variables whose costs have changed. The cost of the cheapest value of a variable is a cost of every completion and
is added to the row's *bound*. A value that lifts the bound to the threshold is removed, which may empty other domains.
Hard constraints are costs above any threshold, so this also propagates them. No row is created for a value removed in
its parent.

**Why it is valid.** Only costs move: a function loses what a variable gains (*equivalence-preserving transformations*;
Cooper, de Givry, Sanchez, Schiex, Zytnicki and Werner 2010, *Soft arc consistency revisited*). The sum is unchanged for
every assignment and all reduced costs are non-negative, so the bound, a part of the sum, never exceeds it. A row is its
parent with all values of one variable but one removed. Costs of its completions are unchanged, so the parent's moves
and bound stay valid, and the row starts from them. Numbers are integers in fixed point. Each cost is rounded down once
and capped at the threshold, and no later step rounds: rounding down only lowers costs, and a cost at the threshold
excludes an assignment by itself. For sums of floats the threshold is raised by the maximum rounding error.

**What it costs.** A pass visits each function over a changed variable, or one near it, once for each of its variables.
The memory of a row is its state: one number for each value of a variable, and for each value in each function over it.
A row depends on its parent only: the rows of a level are bounded in parallel.

**Related work.** Search does the same at each node, where it is called *soft arc consistency*: costs are moved until no
single move raises the bound (EDAC: de Givry, Heras, Zytnicki and Larrosa 2005, *Existential arc consistency: getting
closer to full arc consistency in weighted CSPs*), or no sequence of zero-cost moves does (VAC: Cooper et al. 2010).
Fixed points of dual ascent are equivalent to the latter (Werner 2007, *A linear programming approach to max-sum
problem*: both solve the dual of the local polytope up to such fixed points). Search keeps one state and undoes its
changes; here each row of a level has its own, so that equal rows can be merged.
AND/OR search uses *mini-bucket heuristics* (Kask and Dechter 2001, *A general scheme for automatic generation of search
heuristics from specification dependencies*; Marinescu and Dechter 2009, *AND/OR branch-and-bound search for
combinatorial optimization in graphical models*): tables computed once and read at each node. They are cheap and join
many variables, but ignore values removed in the row.
Dynamic programming that prunes states whose bound reaches an incumbent is *bounded dynamic programming* (Morin and
Marsten 1976, *Branch-and-bound strategies for dynamic programming*); :mod:`oocbe.search.row_search` uses the rows for
it. Koster, van Hoesel and Kolen (2002, *Solving partial constraint satisfaction problems with tree decomposition*) so
solved radio link frequency assignment: tables along a tree decomposition, without rows pruned by a bound or dominated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.row_ascent import Level, ascend_all, bound_rows, count_left
from oocbe.bounds.row_tables import ScaledCosts, ScopeTables
from oocbe.kernels.arrays import host_array, is_device_array
from oocbe.kernels.choice import backend_named, cuda_works
from oocbe.kernels.cpu.projection import REMOVED, AscentNetwork
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline

if TYPE_CHECKING:
    from oocbe.bounds.kernels.cuda.row_ascent import DeviceAscent

NEED_BITS = 26
"""The distance between the sum of all minima and the threshold is below 2**26 in fixed point: sums fit 32 bits."""

CALL_WORK, CALL_NUMBERS = 1 << 24, 1 << 22
"""Limits of one compiled call: cells per pass over one thread's rows, and numbers in all states. A call takes some
hundredths of a second; signals and limits are checked between calls."""

DEVICE_CALL_WORK, DEVICE_CALL_NUMBERS = 1 << 30, 1 << 27
"""The same limits for a call on a device."""

STAYS_PART = 1 / 16
"""Rows stay on a device while their number is at least this share of the number that moves rows there."""

SHARE_WORK = 1 << 17
"""Minimum cells per pass of one compiled call when several calls share the threads: some tenths of a millisecond,
against hundredths for the dispatch."""


class RowAscent:
    """Bounds for rows of one problem, below one threshold.

    States of rows are NumPy or CuPy arrays; rows are bounded on the device of their parents' states.

    Parameters
    ----------
    tables : of the problem. threshold : only assignments with a value strictly below it count; finite.
    backend : ``cpu``, ``cuda``, or ``auto``: a CUDA device, if there is one and rows are many.

    Attributes
    ----------
    scale : of costs; its cap for a lower threshold is the cutoff below that.
    need : cutoff; a row whose bound reaches it is ruled out. state, bound : of the empty assignment.
    """

    def __init__(self, tables: ScopeTables, threshold: int | float, backend: str = "cpu") -> None:
        self.tables, self.threshold, self._backend = tables, threshold, backend
        self._sizes = np.array(tables.problem.sizes, dtype=np.int64)
        room = NEED_BITS if tables.is_integral else NEED_BITS + 1
        self.scale = ScaledCosts.within(tables, tables.distance_below(threshold), np.dtype(np.int32), room)
        self.need = self.scale.cap
        self.network, self.state = self._laid_out()
        self._passes_a_call = max(1, int(CALL_WORK / max(1, tables.pass_work)))
        self.bound = self.need if self.need <= 0 or tables.is_impossible else 0

    def _laid_out(self) -> tuple[AscentNetwork, NDArray[np.int32]]:
        """The functions over two or more variables, and the initial state, before any reparametrisation."""
        layout = self.tables.layout
        check_deadline()
        costs = self.scale.down(layout.above, layout.permitted)
        single = len(layout.value)
        state = np.zeros(layout.length, dtype=np.int32)
        state[layout.value] = costs[:single]
        return layout.network._replace(tables=costs[single:]), state

    def level(self, open_variables: Sequence[int]) -> Level:
        """Data shared by all rows with these open variables; passes follow their order."""
        network = self.network
        order = np.array(open_variables, dtype=np.int64)
        rank = np.full(len(self._sizes), -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        own = rank[network.variable]
        ahead = behind = np.zeros(len(own), dtype=np.uint8)
        if len(own):
            first = network.function_start[:-1]
            latest = np.maximum.reduceat(own, first)
            earliest = np.minimum.reduceat(np.where(own < 0, len(order), own), first)
            ahead = ((latest[network.function] > own) & (own >= 0)).astype(np.uint8)
            behind = ((earliest[network.function] < own) & (own >= 0)).astype(np.uint8)
        count = len(self._sizes)
        both = [np.bincount(network.variable, weights, minlength=count) for weights in (ahead, behind)]
        parts = np.maximum(np.maximum(*both), 1).astype(np.int64)
        return Level(order, ahead, behind, (1 << 32) // parts)

    def ascend(self, level: Level, passes: int) -> None:
        """Raise the bound of the empty assignment.

        Raises
        ------
        TimeLimitError : the deadline of the enclosing block came.
        """
        while passes > 0 and self.bound < self.need:
            check_deadline()
            now = min(passes, self._passes_a_call)
            self.bound = int(ascend_all(self.network, level, self.state, self.bound, self.need, now))
            passes -= now

    def placed(self, states: Any, level: Level, v: int, rows: int, kept: int) -> Any:
        """States of parents on the device where their rows are bounded fastest, within memory limits.

        Parameters
        ----------
        states : on any device. level, v : as of :meth:`rows`. rows : number of rows to be bounded.
        kept : maximum number of states kept of them at a time.
        """
        is_there = is_device_array(states)
        if self._backend != "cuda":
            wanted = thread_count() * tuning().device_row_work * (STAYS_PART if is_there else 1)
            if self._backend == "cpu" or rows * self.tables.pass_work < wanted or not cuda_works(wanted=False):
                return host_array(states)
        device = self._on_device
        if not device.can_bound(level, v):
            return host_array(states)
        made = min(rows, self._device_block) + 2 * min(rows, 2 * kept) + (0 if is_there else len(states))
        if made * self.state.nbytes > device.room():
            return host_array(states)
        return states if is_there else device.uploaded(states)

    def block_of(self, states: Any) -> int:
        """Number of rows to bound in one call of some hundredths of a second."""
        if is_device_array(states):
            return self._device_block
        return max(1, min(CALL_NUMBERS // len(self.state), thread_count() * self._passes_a_call))

    @property
    def _device_block(self) -> int:
        work = int(DEVICE_CALL_WORK / max(1, self.tables.pass_work))
        return max(1, min(DEVICE_CALL_NUMBERS // len(self.state), work))

    @cached_property
    def _on_device(self) -> DeviceAscent:
        """
        Raises
        ------
        UsageError : there is no CUDA device.
        """
        backend_named("cuda")  # has the limit of the device's memory set
        from oocbe.bounds.kernels.cuda.row_ascent import DeviceAscent

        return DeviceAscent(self.network, self.need)

    def rows(
        self,
        level: Level,
        v: int,
        parents: Any,
        parent_bounds: NDArray[np.int64],
        parent: NDArray[np.int64],
        value: NDArray[np.int64],
        passes: int,
        radius: int,
    ) -> tuple[Any, NDArray[np.int64]]:
        """States and bounds of rows: each is a parent's row with a value of one more variable.

        States are on the parents' device; those of rows whose bound reaches ``need`` are undefined.

        Parameters
        ----------
        level : of the variables open after the assignment; in a device's parents all others but ``v`` have one value.
        v : the variable. parents : int32 (parents, state). parent_bounds : int64 (parents,).
        parent, value : int64 (rows,). passes : maximum number of passes over changed variables.
        radius : distance in functions up to which a loss of values causes variables to be visited.
        """
        if is_device_array(parents):
            return self._on_device.rows(level, v, parents, parent_bounds, parent, value, passes, radius)
        count = len(parent)
        states = np.empty((count, len(self.state)), dtype=np.int32)
        bounds = np.empty(count, dtype=np.int64)
        threads = thread_count()
        work = count * self.tables.pass_work
        pieces = max(1, min(8 * threads, count, int(work / SHARE_WORK))) if threads > 1 else 1
        cuts = [count * i // pieces for i in range(pieces + 1)]
        fixed = (
            self.network,
            level,
            v,
            parents,
            parent_bounds,
            parent,
            value,
            self.need,
            passes,
            radius,
            states,
            bounds,
        )
        run_all(bound_rows, [(*fixed, low, high) for low, high in pairwise(cuts)])
        return states, bounds

    def values_left(
        self, live: NDArray[np.bool_], variables: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of remaining values of some variables: totals over all rows, and maxima over rows.

        live : as of :meth:`live`.
        """
        together, most = np.zeros(len(variables), dtype=np.int64), np.zeros(len(variables), dtype=np.int64)
        count_left(self.network.value_start, live, variables, together, most)
        return together, most

    def live(self, states: Any) -> NDArray[np.bool_]:
        """Bool (rows, values), True for remaining values of all variables."""
        count = int(self.network.value_start[-1])
        if is_device_array(states):
            return self._on_device.live(states, count)
        is_live: NDArray[np.bool_] = states[:, :count] != REMOVED
        return is_live

    def costs(self, states: Any, rows: NDArray[np.int64], v: int, value: NDArray[np.int64]) -> NDArray[np.int32]:
        """Unary cost of a value of a variable in each of some rows, int32 (rows,)."""
        places = self.network.value_start[v] + value
        if is_device_array(states):
            return self._on_device.numbers_at(states, rows, places)
        found: NDArray[np.int32] = states[rows, places]
        return found

    def taken(self, states: Any, rows: NDArray[np.int64]) -> Any:
        """A selection of states, on their device."""
        return self._on_device.taken(states, rows) if is_device_array(states) else states[rows]

    def joined(self, parts: Sequence[Any]) -> Any:
        """Concatenated states, all on one device."""
        if len(parts) == 1:
            return parts[0]
        return self._on_device.joined(parts) if is_device_array(parts[0]) else np.concatenate(parts)

    def unscale(self, bound: int) -> int | float:
        """The least value of an assignment with this bound; the threshold if none is below it."""
        return min(self.scale.unscale(bound), self.threshold)


def load_loops() -> None:
    """Load or compile the loops, with a problem of two variables."""
    variables = (Variable("a", 2), Variable("b", 2))
    tables = ScopeTables.of(Problem(variables, (Function.from_array((0, 1), [[0, 1], [1, 0]]),)))
    assert tables is not None
    ascent = RowAscent(tables, 2)
    level = ascent.level((0, 1))
    ascent.ascend(level, 1)
    one = np.zeros(1, dtype=np.int64)
    ascent.rows(level, 0, ascent.state[None], one, one, one, 1, 1)
    ascent.values_left(ascent.live(ascent.state[None]), one)
