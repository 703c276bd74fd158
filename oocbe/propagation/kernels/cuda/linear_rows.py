"""Bound propagation on the device: the launches of :file:`linear_rows.cu`, and of :file:`linear_probes.cu`.

Rows are cut into *tiles*, blocks of neighbours as in CSR-adaptive products: a block of threads has a tile's terms in
shared memory, where a thread adds up a short row and a warp a longer one; a row that is longer than a tile has a block
for itself. Bounds lie lower beside upper, twice: those before a round, and those that get better. Where they are too
many for the second cache they lie in the order in which rows first mention their variables, so that neighbouring rows
read some of them side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import C_TYPES, Definition, cooperative_kernel, kernel, launch, or_null, packed
from oocbe.kernels.cuda.transfer.memory import device_room, with_retry
from oocbe.kernels.interface import host_array
from oocbe.propagation.kernels.cpu.linear_rows import LinearRows, Rounding, tile_rows
from oocbe.runtime.deadline import current_flag

SOURCE = "linear_rows"
"""Name of the CUDA source."""

THREADS = 128
"""Threads of a block."""

PIECE = 1 << 26
"""Entries that are brought to the device at a time, whose columns are 8 bytes wide until they are there."""

VARIABLES_A_BLOCK = 32 * THREADS
"""Variables that a block looks at at a time where it looks for those that have changed."""

BLOCKS_A_MULTIPROCESSOR = 16
"""Blocks that look for variables that have changed; more find nothing to do."""

NEAR_BLOCKS, FAR_BLOCKS = 8, 5
"""Blocks of a multiprocessor that registers are shared among, where the second cache holds the bounds of all variables,
and where they come from memory: on an H200 8 blocks made rounds 1.19 times as fast as 5 with 1 million variables, and
0.82 times with 25 million."""

PAIR_BYTES = 16
"""Bytes of a variable's bounds."""

LAUNCH_ENTRIES = 1 << 33
"""Entries of all rounds of a launch at most where the loop is on the device: some tenths of a second, after which the
deadline is looked at."""

MOST_LAUNCH_ROUNDS = 1024
"""Rounds of a launch at most."""

DeviceArray = Any
"""An array in the device's memory."""

INTEGER = np.uint32(1 << 31)
"""The bit that marks the column of an integer variable."""


@dataclass(frozen=True, eq=False)
class Reached:
    """State after the last round.

    lower, upper : float64 (variables,); where a round showed infeasibility, those before it.
    changes : how many bounds changed in each round; that which showed infeasibility is not counted.
    is_fixpoint : whether the last round changed nothing; where not, a round showed infeasibility, all rounds that were
        allowed are over, or the deadline has come.
    is_inexact : whether sums of integers reached 2^53.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    changes: tuple[int, ...]
    is_fixpoint: bool
    is_inexact: bool


class DeviceRows:
    """A linear system in the memory of CuPy's current device, for any number of propagations.

    Takes 12 bytes an entry (8 where all coefficients are float32 numbers), 25 a row and 33 a variable.

    rows : with at least one row; at most 2^31 variables.
    renumbers : whether variables may have other numbers on the device than here.
    """

    @with_retry
    def __init__(self, rows: LinearRows, renumbers: bool = True) -> None:
        module = cupy()
        tiles = np.empty(len(rows.starts), dtype=np.int64)
        self._tile_count = int(tile_rows(rows.starts, tiles))
        firsts = tiles[: self._tile_count + 1]
        entries, self._variables = len(rows.columns), len(rows.integral)
        self._entries = entries
        dtype = np.dtype(np.float32 if _are_floats(rows.coefficients) else np.float64)
        is_near = PAIR_BYTES * self._variables <= _cached_bytes()
        self.definitions: dict[str, Definition] = {
            "COEFFICIENT": C_TYPES[dtype],
            "RESIDENT_BLOCKS": NEAR_BLOCKS if is_near else FAR_BLOCKS,
        }
        columns, coefficients = module.empty(entries, dtype=np.uint32), module.empty(entries, dtype=dtype)
        integers = module.asarray(rows.integral).astype(np.uint32) * INTEGER
        for begin in range(0, entries, PIECE):
            piece = slice(begin, min(begin + PIECE, entries))
            there = module.asarray(rows.columns[piece])
            columns[piece] = there.astype(np.uint32) | integers[there]
            coefficients[piece] = module.asarray(rows.coefficients[piece].astype(dtype))
        self._order = self._renumbered(columns) if renumbers and not is_near else None
        self._arrays = {
            "starts": module.asarray(rows.starts),
            "columns": columns,
            "coefficients": coefficients,
            "row_lower": module.asarray(rows.row_lower),
            "row_upper": module.asarray(rows.row_upper),
            "kinds": module.asarray(rows.kinds),
            "tiles": module.asarray(firsts),
            "tile_starts": module.asarray(rows.starts[firsts]),
        }
        self.struct = packed(SOURCE, "Rows", **self._arrays, tile_count=self._tile_count, variables=self._variables)

    @with_retry
    def propagate(
        self,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        rounding: Rounding,
        rounds: int,
        *,
        is_loop_on_device: bool = False,
    ) -> Reached:
        """Propagate all rows at once, round after round, until nothing changes.

        lower, upper : float64 (variables,), bounds to begin with; not changed. No zero is a negative one.
        rounding : how new bounds are taken. rounds : at most.
        is_loop_on_device : whether the device goes from round to round by itself, in one cooperative launch; otherwise
            what a round reports is read before the next one is launched.
        """
        run = self.rounds_from(lower, upper, rounding)
        changes: list[int] = []
        stop = current_flag()
        ended = is_contradiction = False
        while not ended and len(changes) < rounds and stop[0] == 0:
            left = rounds - len(changes)
            if is_loop_on_device:
                most = min(left, MOST_LAUNCH_ROUNDS, max(1, LAUNCH_ENTRIES // max(1, self._entries)))
                made, is_contradiction = run.on_device(most)
                changes.extend(made)
            else:
                made_changes, is_contradiction = run.round()
                changes.append(made_changes)
            if is_contradiction:
                changes.pop()
            ended = is_contradiction or (bool(changes) and changes[-1] == 0)
        is_fixpoint = ended and not is_contradiction
        return Reached(*run.bounds(), tuple(changes), is_fixpoint, run.is_inexact())

    def _renumbered(self, columns: DeviceArray) -> DeviceArray:
        """Number variables as rows first mention them; returns the old number of each, int64 (variables,)."""
        module = cupy()
        blocks = BLOCKS_A_MULTIPROCESSOR * multiprocessors(module.cuda.runtime.getDevice())
        definitions = dict(self.definitions, OUTWARD=1)
        first = module.arange(self._entries, self._entries + self._variables, dtype=np.uint64)
        launch(kernel(SOURCE, "first_mentions", **definitions), blocks, THREADS, columns, self._entries, first)
        order = module.argsort(first)
        places = module.empty(self._variables, dtype=np.uint32)
        places[order] = module.arange(self._variables, dtype=np.uint32)
        launch(kernel(SOURCE, "renumber", **definitions), blocks, THREADS, columns, self._entries, places)
        return order

    def rounds_from(self, lower: NDArray[np.float64], upper: NDArray[np.float64], rounding: Rounding) -> Rounds:
        """Rounds that begin with some bounds; arguments as for :meth:`propagate`."""
        bounds = np.stack([lower, upper], axis=1)
        return Rounds(self.struct, self._tile_count, bounds, rounding, self.definitions, self._order)


class Rounds:
    """Rounds of one propagation, one at a time or many; made by :meth:`DeviceRows.rounds_from`, and not beyond it."""

    def __init__(
        self,
        struct: NDArray[np.uint64],
        tile_count: int,
        bounds: NDArray[np.float64],
        rounding: Rounding,
        definitions: dict[str, Definition],
        order: DeviceArray | None,
    ) -> None:
        module = cupy()
        self._struct, self._tile_count, self._order = struct, tile_count, order
        self._bounds = module.asarray(bounds)
        if order is not None:
            self._bounds = self._bounds[order]
        self._next = self._bounds.copy()
        self._changed = module.zeros(-(-len(bounds) // 32), dtype=np.uint32)
        self._report = module.zeros(3, dtype=np.int64)
        self._tolerance, self._progress = np.float64(rounding.tolerance), np.float64(rounding.progress)
        self._definitions = dict(definitions, OUTWARD=int(rounding.outward))
        self._changes = 0
        most = BLOCKS_A_MULTIPROCESSOR * multiprocessors(cupy().cuda.runtime.getDevice())
        self._blocks = max(1, min(most, -(-len(bounds) // VARIABLES_A_BLOCK)))

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper bounds so far, float64 (variables,) each."""
        there = self._bounds
        if self._order is not None:
            there = cupy().empty_like(there)
            there[self._order] = self._bounds
        found = host_array(there)
        return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])

    def is_inexact(self) -> bool:
        """Whether sums of integers reached 2^53."""
        return bool(host_array(self._report)[2])

    def round(self) -> tuple[int, bool]:
        """Make a round; how many bounds changed, and whether it showed infeasibility: its bounds are not taken then."""
        state = self._bounds, self._next, self._changed
        self._launch("propagate_rows", self._tile_count, *state, self._report, self._tolerance, self._progress)
        self._launch("count_changes", self._blocks, *state, self._report, self._tolerance)
        total, is_contradiction, _ = host_array(self._report).tolist()
        made, self._changes = total - self._changes, total
        if made and not is_contradiction:
            self._launch("take_changes", self._blocks, *state)
        return made, bool(is_contradiction)

    def on_device(self, most: int) -> tuple[list[int], bool]:
        """Make rounds in one launch, ``most`` at most; how many bounds changed in each, and as for :meth:`round`."""
        module = cupy()
        rounds, arrived = module.zeros(most + 1, dtype=np.int64), module.zeros(1, dtype=np.uint32)
        function, blocks = cooperative_kernel(SOURCE, "propagate_all", THREADS, **self._definitions)
        launch(
            function, max(1, min(blocks, max(self._tile_count, self._blocks))), THREADS, self._struct, self._bounds,
            self._next, self._changed, self._report, self._tolerance, self._progress, most, rounds[1:], rounds, arrived,
            self._changes,
        )  # fmt: skip
        made, *changes = host_array(rounds).tolist()
        total, is_contradiction, _ = host_array(self._report).tolist()
        self._changes = total
        return changes[:made], bool(is_contradiction)

    def _launch(self, name: str, blocks: int, *arguments: Any) -> None:
        launch(kernel(SOURCE, name, **self._definitions), blocks, THREADS, self._struct, *arguments)


def _are_floats(coefficients: NDArray[np.float64]) -> bool:
    """Whether all coefficients are float32 numbers."""
    for begin in range(0, len(coefficients), PIECE):
        piece = coefficients[begin : begin + PIECE]
        with np.errstate(over="ignore", under="ignore"):
            if not (piece.astype(np.float32) == piece).all():
                return False
    return True


def _cached_bytes() -> int:
    """Bytes of the second cache of the current device."""
    return int(cupy().cuda.Device().attributes["L2CacheSize"])


PROBE_SOURCE = "linear_probes"
"""Name of the CUDA source."""

PROBE_THREADS = 512
"""Threads of a block, as in the source."""

RESIDENT_BLOCKS = 2
"""Blocks of a multiprocessor, as in the source."""

GROUP = 32
"""Probes of a block."""

WORD_BYTES = 8
"""Bytes that a group has for what its probes fix of a variable."""

WAITING_BYTES = 12
"""Bytes that a block has for a row: the probes that it waits for, and places in two queues."""

SHARE_OF_MEMORY = 2
"""Largest part of the free memory for the state of all groups of a launch."""


class _Root(NamedTuple):
    """Bounds that probes begin with.

    lower, upper : the host's. bounds : float64 (variables, 2). activities : float64 (rows, 2), of rows that are exact.
    places : int32 (variables,), of those with a pair of bounds a probe, -1 for others; None where there are none.
    wide_variables : uint32, these variables.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    bounds: Any
    activities: Any
    places: Any
    wide_variables: Any


class DeviceProbes:
    """A linear system on CuPy's device: at least 1 and below 2^30 rows, 2^31 variables, 2^32 entries."""

    @with_retry
    def __init__(self, rows: LinearRows) -> None:
        self._rows = DeviceRows(rows, renumbers=False)
        module = cupy()
        self._count, self._variables = len(rows.kinds), len(rows.integral)
        self._is_integral = rows.integral.astype(np.bool_)
        self._uses = (module.asarray(rows.row_starts.astype(np.uint32)), module.asarray(rows.rows_of.astype(np.uint32)))
        self._definitions: dict[str, Definition] = {"COEFFICIENT": self._rows.definitions["COEFFICIENT"], "OUTWARD": 1}
        self._blocks = RESIDENT_BLOCKS * multiprocessors(module.cuda.runtime.getDevice())
        self._root: _Root | None = None
        launch(
            kernel(PROBE_SOURCE, "flag_uses", **self._definitions), -(-self._count * GROUP // PROBE_THREADS),
            PROBE_THREADS, self._rows.struct, self._count, *self._uses,
        )  # fmt: skip

    def propagate(
        self,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        variables: NDArray[np.int64],
        values: NDArray[np.float64],
        rounding: Rounding,
        rounds: int,
    ) -> NDArray[np.bool_]:
        """Contradictions among some assignments, each propagated by itself from the same bounds: bool (probes,).

        lower, upper : float64 (variables,), a fixpoint; no zero is a negative one. They stay on the device until other
            arrays come, and must not be changed. variables, values : (probes,), at least one. rounding : outward.
            rounds : at most; what was found until then holds.
        Raises ResourceError: the device's memory ran out.
        """
        others = (values != lower[variables]) & (values != upper[variables])
        root = self._root_of(lower, upper, np.unique(variables[others]))
        a_group = self._variables * WORD_BYTES + len(root.wide_variables) * GROUP * PAIR_BYTES
        room = device_room() // SHARE_OF_MEMORY - self._blocks * self._count * WAITING_BYTES
        most = max(1, room // max(1, a_group)) * GROUP
        parts = []
        for low in range(0, len(variables), most):
            some = slice(low, low + most)
            parts.append(self._part(root, variables[some], values[some], rounding, rounds))
        return np.concatenate(parts)

    @with_retry
    def _root_of(self, lower: NDArray[np.float64], upper: NDArray[np.float64], others: NDArray[np.int64]) -> _Root:
        """Bounds on the device. others : variables that probes give other values than these bounds."""
        known = self._root
        if known is not None and known.lower is lower and known.upper is upper and not len(others):
            return known
        module = cupy()
        is_narrow = (lower == upper) | (self._is_integral & (upper == lower + 1))
        is_narrow[others] = False
        wide = np.flatnonzero(~is_narrow)
        places: Any = None
        if len(wide):
            places = np.full(self._variables, -1, dtype=np.int32)
            places[wide] = np.arange(len(wide))
            places = module.asarray(places)
        bounds = module.asarray(np.stack([lower, upper], axis=1))
        activities = module.empty((self._count, 2), dtype=np.float64)
        launch(
            kernel(PROBE_SOURCE, "sum_rows", **self._definitions), -(-self._count // PROBE_THREADS), PROBE_THREADS,
            self._rows.struct, self._count, bounds, or_null(places), activities,
        )  # fmt: skip
        made = _Root(lower, upper, bounds, activities, places, module.asarray(wide.astype(np.uint32)))
        self._root = None if len(others) else made
        return made

    @with_retry
    def _part(
        self, root: _Root, variables: NDArray[np.int64], values: NDArray[np.float64], rounding: Rounding, rounds: int
    ) -> NDArray[np.bool_]:
        """Probes for which there is memory at once."""
        module = cupy()
        count, wide_count = len(variables), len(root.wide_variables)
        groups = -(-count // GROUP)
        blocks = min(groups, self._blocks)
        arrays = {
            "uses": self._uses[0],
            "rows_of": self._uses[1],
            "root": root.bounds,
            "activities": root.activities,
            "wide": root.places,
            "wide_variables": root.wide_variables,
            "probe_variables": module.asarray(variables.astype(np.uint32)),
            "probe_values": module.asarray(values),
            "fixed": module.zeros((groups, self._variables), dtype=np.uint64),
            "pairs": module.empty((groups, wide_count, GROUP, 2), dtype=np.float64),
            "waiting": module.zeros((blocks, self._count), dtype=np.uint32),
            "queues": module.empty((blocks, 2, self._count), dtype=np.uint32),
            "failed": module.empty(groups, dtype=np.uint32),
        }
        matrix = packed(
            PROBE_SOURCE, "Matrix", **arrays, rows=self._count, wide_count=wide_count, groups=groups, probes=count
        )
        definitions = dict(self._definitions, OUTWARD=int(rounding.outward))
        launch(
            kernel(PROBE_SOURCE, "propagate_probes", **definitions), blocks, PROBE_THREADS, self._rows.struct, matrix,
            np.float64(rounding.progress), rounds,
        )  # fmt: skip
        failed = host_array(arrays["failed"])
        return np.unpackbits(failed.view(np.uint8), bitorder="little")[:count].view(np.bool_)
