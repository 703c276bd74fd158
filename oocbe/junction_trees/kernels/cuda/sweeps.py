"""Sweeps over a junction tree on the device: the launches of :file:`tree_sweeps.cu`.

A tree is uploaded once. A block of cases is swept up and down in launches of one level each, all queued on one stream
without waiting. The results are posteriors of the targets, logarithms of evidence and bounds of the underflow error.
They equal those of :mod:`oocbe.junction_trees.kernels.cpu.sweeps` except for the order of summation.

On the CPU, one pass over a clique's rows adds each row to all messages. On the device, one thread sums each number of a
message, so that there are no concurrent additions and results do not depend on the scheduling of threads (the reduction
and scattering of Bistaffa, Farinelli and Bombieri's belief propagation, their algorithm 2, for cliques of rows):
upwards over neighbouring rows, downwards over a list of rows. Long sums are cut into *chunks* of at most :data:`CHUNK`
entries, which different threads sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.kernels.cpu.sweeps import list_values
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import kernel, launch, packed
from oocbe.kernels.cuda.transfer.memory import with_retry
from oocbe.kernels.interface import host_arrays

CHUNK = 128
"""Maximum number of entries that one thread sums."""

STRETCH_ROWS = 1 << 18
"""Maximum rows of the cliques whose probabilities are in memory at a time, unless one clique has more."""

VARIABLE, CHILD, CONSTANT_CHILD = 0, 1, 2
"""Kinds of edges that a sweep writes to, as in the source: of a variable; to a child with a message for each case; to a
child with the same message for all cases."""

Index = NDArray[np.int64]


class Chunks(NamedTuple):
    """Sums over consecutive stretches of entries, cut into chunks.

    first : int64 (chunks + 1,), where each one's entries begin.
    row, partial : int64 (chunks,), the row of its sum, and its number among the chunks of split sums; -1 if the sum has
        one chunk.
    split_row : int64 (splits,), row of each split sum. split_first : int64 (splits + 1,), first of its chunk numbers.
    sum_chunks, sum_splits : int64 (sums + 1,), chunks and splits before each sum.
    """

    first: Index
    row: Index
    partial: Index
    split_row: Index
    split_first: Index
    sum_chunks: Index
    sum_splits: Index


def chunks_of(lengths: Index, rows: Index) -> Chunks:
    """Chunks of sums with ``lengths`` entries each, int64 (sums,), for ``rows``."""
    counts = np.maximum(1, -(-lengths // CHUNK))
    sum_chunks, sum_splits = _before(counts), _before(counts > 1)
    of = np.repeat(np.arange(len(lengths)), counts)
    within = np.arange(len(of)) - sum_chunks[of]
    first = np.append(_before(lengths)[of] + CHUNK * within, lengths.sum())
    is_split = counts[of] > 1
    partial = np.where(is_split, np.cumsum(is_split) - 1, -1)
    split = counts > 1
    return Chunks(first, rows[of], partial, rows[split], _before(counts[split]), sum_chunks, sum_splits)


class TreeLayout(NamedTuple):
    """Device data of a tree in addition to its arrays.

    list_rows : int32, of the size of the maps: for each edge, numbers of rows within the clique, sorted by message row.
    up, down : sums of messages to parents, an entry for each row; and of messages over edges, an entry for each element
        of ``list_rows``.
    clique_chunks, clique_splits : int64 (cliques + 1,), of ``up``. edge_chunks, edge_splits : int64 (edges + 1,), of
        ``down``.
    """

    list_rows: NDArray[np.int32]
    up: Chunks
    down: Chunks
    clique_chunks: Index
    clique_splits: Index
    edge_chunks: Index
    edge_splits: Index


def tree_layout(tree: Any) -> TreeLayout:
    """The layout of a tree's arrays (:class:`oocbe.junction_trees.compiled.TreeArrays`); the tree must have cliques."""
    ends = np.delete(np.arange(len(tree.groups)), tree.group_start)
    up = chunks_of(tree.groups[ends] - tree.groups[ends - 1], np.arange(len(ends)))
    edge_slots = _before(tree.edge_rows)
    map_rows = np.diff(tree.edge_map, append=len(tree.maps))
    listed, ends = list_values(tree.maps + np.repeat(edge_slots[:-1], map_rows), int(edge_slots[-1]))
    listed -= np.repeat(tree.edge_map, map_rows).astype(np.int32)
    lengths = np.diff(ends)
    rows = np.arange(edge_slots[-1]) + np.repeat(tree.edge_message - edge_slots[:-1], tree.edge_rows)
    down = chunks_of(lengths, rows)
    return TreeLayout(
        listed,
        up,
        down,
        up.sum_chunks[tree.message_start],
        up.sum_splits[tree.message_start],
        down.sum_chunks[edge_slots],
        down.sum_splits[edge_slots],
    )


class Stretch(NamedTuple):
    """Steps of one launch, and their written edges, as ranges: first number, and one past the last."""

    first: int
    last: int
    first_write: int
    last_write: int


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a sweep one way: int64 ``arrays`` by the struct's member, and ``stretches`` in order of execution."""

    arrays: dict[str, Index]
    stretches: list[Stretch]

    def chunks(self, stretch: Stretch) -> int:
        """Chunks of sums up, or of products, of a stretch."""
        return int(self.arrays["chunks"][stretch.last] - self.arrays["chunks"][stretch.first])

    def write_chunks(self, stretch: Stretch) -> int:
        """Chunks of the sums over written edges."""
        return int(self.arrays["write_chunks"][stretch.last_write] - self.arrays["write_chunks"][stretch.first_write])

    def write_splits(self, stretch: Stretch) -> int:
        """Number of split sums among these."""
        return int(self.arrays["write_splits"][stretch.last_write] - self.arrays["write_splits"][stretch.first_write])


def steps_up(
    tree: Any, layout: TreeLayout, program: Any, parents: Sequence[int], collected: NDArray[np.bool_]
) -> Steps:
    """Messages to parents, level by level: a clique follows all its children.

    program : :class:`oocbe.junction_trees.compiled.Program`. parents : of each clique, -1 for a root.
    collected : bool (cliques,), whether a clique's message is computed.
    """
    height = np.zeros(len(parents), dtype=np.int64)
    for c in program.collected.tolist():
        if parents[c] >= 0:
            height[parents[c]] = max(height[parents[c]], height[c] + 1)
    order = np.argsort(height[program.collected], kind="stable")
    cliques = program.collected[order]
    starts, reads = _reordered(program.collect_start, program.collect_reads, order)
    arrays = _steps(tree, layout, cliques, starts, reads, collected)
    sender = tree.edge_sender[reads]
    arrays["read_sender"] = np.where(_is_constant(tree, reads, collected), ~sender, sender)
    bounds = _changes(height[cliques])
    return Steps(arrays, [Stretch(first, last, 0, 0) for first, last in pairwise(bounds)])


def steps_down(
    tree: Any, layout: TreeLayout, program: Any, parents: Sequence[int], collected: NDArray[np.bool_]
) -> tuple[Steps, int]:
    """Probabilities from the roots downwards, level by level, and the maximum rows of a stretch."""
    depth = np.zeros(len(parents), dtype=np.int64)
    for c in program.distributed.tolist():
        depth[c] = 0 if parents[c] < 0 else depth[parents[c]] + 1
    order = np.argsort(depth[program.distributed], kind="stable")
    cliques = program.distributed[order]
    starts, reads = _reordered(program.read_start, program.reads, order)
    arrays = _steps(tree, layout, cliques, starts, reads, collected)
    write_starts, writes = _reordered(program.write_start, program.writes, order)
    rows = (tree.row_start[cliques + 1] - tree.row_start[cliques]).tolist()
    stretches, place, most, held = [], np.zeros(len(cliques), dtype=np.int64), 0, 0
    first, levels = 0, depth[cliques].tolist()
    for n in range(len(cliques)):
        if n > first and (levels[n] != levels[first] or held + rows[n] > STRETCH_ROWS):
            stretches.append(Stretch(first, n, int(write_starts[first]), int(write_starts[n])))
            first, held = n, 0
        place[n] = held
        held += rows[n]
        most = max(most, held)
    if len(cliques):
        stretches.append(Stretch(first, len(cliques), int(write_starts[first]), len(writes)))
    step = np.repeat(np.arange(len(cliques)), np.diff(write_starts))
    sender = tree.edge_sender[writes]
    is_child = sender < len(parents)
    kinds = np.where(is_child, np.where(_is_constant(tree, writes, collected), CONSTANT_CHILD, CHILD), VARIABLE)
    writer = cliques[step]
    arrays |= {
        "belief": place - tree.row_start[cliques],
        "write_chunks": _before(layout.edge_chunks[writes + 1] - layout.edge_chunks[writes]),
        "write_chunk": layout.edge_chunks[writes],
        "write_splits": _before(layout.edge_splits[writes + 1] - layout.edge_splits[writes]),
        "write_split": layout.edge_splits[writes],
        "write_belief": place[step],
        "write_scale": np.where(collected[writer], writer, ~writer),
        "write_kind": kinds,
    }
    return Steps(arrays, stretches), most


def _steps(
    tree: Any, layout: TreeLayout, cliques: Index, starts: Index, reads: Index, collected: NDArray[np.bool_]
) -> dict[str, Index]:
    first_row = np.repeat(tree.row_start[cliques], np.diff(starts))
    message = tree.edge_message[reads]
    return {
        "clique": cliques,
        "chunks": _before(layout.clique_chunks[cliques + 1] - layout.clique_chunks[cliques]),
        "read_start": starts,
        "read_map": tree.edge_map[reads] - first_row,
        "read_message": np.where(_is_constant(tree, reads, collected), ~message, message),
    }


def _is_constant(tree: Any, edges: Index, collected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of the edges to children with the same message for all cases."""
    sender = tree.edge_sender[edges]
    is_child = sender < len(collected)
    found: NDArray[np.bool_] = is_child & ~collected[np.where(is_child, sender, 0)]
    return found


def _reordered(starts: Index, items: Index, order: Index) -> tuple[Index, Index]:
    """Concatenated lists in another order, and their starts."""
    counts = np.diff(starts)[order]
    begins = _before(counts)
    taken = np.arange(begins[-1]) + np.repeat(starts[:-1][order] - begins[:-1], counts)
    return begins, items[taken]


def _changes(levels: Index) -> list[int]:
    """Positions at which a sorted sequence changes, including its beginning and end."""
    if len(levels) == 0:
        return [0]
    return [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]


def _before(counts: Any) -> Index:
    """Exclusive prefix sums, and the total: int64 (numbers + 1,)."""
    found = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=found[1:])
    return found


SOURCE = "tree_sweeps"
"""Name of the CUDA source."""

THREADS = 128
"""Threads of a block of all kernels but one, as in the source."""

WARP = 32
"""Threads of a warp, which compute neighbouring cases."""

WARPS_A_CLIQUE = 16
"""Warps of a block that finishes a clique's message, as in the source."""

MOST_CASES = 4
"""Maximum number of cases per thread."""

ROW_BYTES, MAP_BYTES, SLOT_BYTES = 8, 8, 48
"""Device memory of a tree, in bytes: for a clique's row, its weight; for a map entry, the entry and its row in a list;
for a message row, of a clique or over an edge, the row and its chunk."""


def tree_bytes(tree: Any) -> int:
    """Approximate bytes of device memory of a tree; arrays as of :class:`DeviceTree`."""
    slots = int(tree.message_start[-1]) + int(tree.edge_rows.sum())
    return ROW_BYTES * len(tree.weights) + MAP_BYTES * len(tree.maps) + SLOT_BYTES * slots


def stride_of(cases: int) -> int:
    """Row stride of an array over so many cases: whole warps, with up to :data:`MOST_CASES` cases per thread."""
    tile = WARP * _cases_a_thread(cases)
    return -(-max(1, cases) // tile) * tile


def _cases_a_thread(cases: int) -> int:
    return MOST_CASES if cases > MOST_CASES // 2 * WARP else 2 if cases > WARP else 1


@dataclass(frozen=True, eq=False)
class SweepPlan:
    """A sweep's steps on the device.

    up, down : steps. collected : bool (cliques,), whose messages are computed for each case.
    belief_rows : maximum rows of the cliques whose probabilities are in memory at a time.
    up_struct, down_struct : kernel arguments. collected_there : device int64 (cliques,).
    held : device arrays that the structs point to.
    """

    up: Steps
    down: Steps
    collected: NDArray[np.bool_]
    belief_rows: int
    up_struct: NDArray[np.uint64]
    down_struct: NDArray[np.uint64]
    collected_there: Any
    held: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of a sweep, on the device.

    value_start : device int64 (targets + 1,), the values of each. row_first : device int64 (values + 1,), rows : device
        int64: the message rows to sum for each value. kinds : device int64 (targets,), of their edges.
    count, values : number of targets, and of their values.
    """

    value_start: Any
    row_first: Any
    rows: Any
    kinds: Any
    count: int
    values: int


class Block:
    """Device memory for the messages of some cases, not initialised; ``stride`` as for :func:`stride_of`."""

    @with_retry
    def __init__(self, tree: DeviceTree, belief_rows: int, cases: int, *, is_down: bool = True) -> None:
        self.stride = stride_of(cases)
        self.definitions = {"CASES": _cases_a_thread(cases)}
        rows = {
            "up": tree.message_rows,
            "down": tree.message_rows if is_down else 0,
            "partial": tree.partial_rows,
            "belief": belief_rows,
            **dict.fromkeys(("peaks", "losses", "logs", "scales"), tree.cliques),
        }
        arrays = {name: cupy().empty((max(1, count), self.stride), dtype=np.float64) for name, count in rows.items()}
        self.up, self.peaks, self.losses = arrays["up"], arrays["peaks"], arrays["losses"]
        self.logs, self.scales = arrays["logs"], arrays["scales"]
        self._arrays = arrays
        self.struct = packed(SOURCE, "Block", **arrays, stride=self.stride)

    @staticmethod
    def case_bytes(tree: DeviceTree, belief_rows: int) -> int:
        """Bytes per case."""
        return 8 * (2 * tree.message_rows + tree.partial_rows + belief_rows + 4 * tree.cliques)

    @with_retry
    def enter(self, observed: NDArray[np.int64], columns: Index, starts: Index) -> None:
        """Enter the observed values of some variables.

        observed : int64 (cases, variables of the problem), values, negative where a case does not observe a variable.
        columns : int64 (variables,), those to enter. starts : int64 (variables, 2), where the message rows of each
            begin and end.
        """
        if not len(columns):
            return
        there, columns_there, starts_there = map(cupy().asarray, (observed, columns, np.ascontiguousarray(starts)))
        launch(
            kernel(SOURCE, "enter", **self.definitions), -(-len(columns) * self.stride // THREADS), THREADS,
            self.struct, there, *observed.shape, columns_there, starts_there, len(columns),
        )  # fmt: skip

    @with_retry
    def multiply(self, first: int, numbers: NDArray[np.float64]) -> None:
        """Multiply the rows from ``first`` on by numbers, float64 (rows, cases)."""
        self.up[first : first + len(numbers), : numbers.shape[1]] *= cupy().asarray(np.ascontiguousarray(numbers))

    @with_retry
    def pick(self, first: int, weights: Any, columns: NDArray[np.int64]) -> None:
        """Set the rows from ``first`` on to columns of device weights, selected by case, int64 (cases,)."""
        picked = np.zeros(self.stride, dtype=np.int64)
        picked[: len(columns)] = columns
        self.up[first : first + len(weights)] = cupy().take(weights, cupy().asarray(picked), axis=1)


class DeviceTree:
    """A tree in the memory of CuPy's current device, for any number of sweeps in probabilities.

    tree : :class:`oocbe.junction_trees.compiled.TreeArrays`, with at least one row.
    parents : of each clique, -1 for a root. message_rows : rows of all messages, including variables and inputs.
    logarithm : natural logarithm of the factor divided out of all weights.
    everything : the program that sends all messages without evidence.
    """

    @with_retry
    def __init__(self, tree: Any, parents: Sequence[int], message_rows: int, logarithm: float, everything: Any) -> None:
        self.message_rows, self.cliques = message_rows, len(parents)
        self._tree, self._parents, self._logarithm = tree, list(parents), logarithm
        self._layout: TreeLayout = tree_layout(tree)
        self.partial_rows = max(_partial_rows(self._layout.up), _partial_rows(self._layout.down))
        roots = np.array([c for c, parent in enumerate(self._parents) if parent < 0], dtype=np.int64)
        self._roots = cupy().asarray(roots)
        self._held = {name: cupy().asarray(array) for name, array in self._host_arrays().items()}
        priors = dict.fromkeys(("prior", "prior_peaks", "prior_losses", "prior_logs", "prior_scales"))
        self._struct = packed(SOURCE, "Tree", **self._held, **priors, cliques=self.cliques)
        self._priors = self._made_priors(everything)
        self._struct = packed(SOURCE, "Tree", **self._held, **self._priors, cliques=self.cliques)

    def _host_arrays(self) -> dict[str, NDArray[Any]]:
        tree, layout = self._tree, self._layout
        arrays = {
            "weights": tree.weights,
            "maps": tree.maps,
            "list_rows": layout.list_rows,
            "message_start": tree.message_start,
            "norms": tree.norms,
            "clique_chunks": layout.clique_chunks,
            "clique_splits": layout.clique_splits,
        }
        for prefix, chunks in (("up", layout.up), ("down", layout.down)):
            for name in ("first", "row", "partial", "split_row", "split_first"):
                arrays[f"{prefix}_{name}"] = getattr(chunks, name)
        # CuPy has no address for an empty array; the kernels do not read these.
        return {name: array if array.size else np.zeros(1, dtype=array.dtype) for name, array in arrays.items()}

    def _made_priors(self, everything: Any) -> dict[str, Any]:
        plan = self.plan(everything)
        block = Block(self, 0, 1, is_down=False)
        block.up.fill(1.0)  # of variables and inputs
        self.collect(plan, block)
        arrays = {
            "prior": block.up,
            "prior_peaks": block.peaks,
            "prior_losses": block.losses,
            "prior_logs": block.logs,
            "prior_scales": block.scales,
        }
        return {name: cupy().ascontiguousarray(array[:, 0]) for name, array in arrays.items()}

    @with_retry
    def plan(self, program: Any) -> SweepPlan:
        """The steps of a program, :class:`oocbe.junction_trees.compiled.Program`."""
        collected = np.zeros(self.cliques, dtype=np.bool_)
        collected[program.collected] = True
        known = (self._tree, self._layout, program, self._parents)
        up = steps_up(*known, collected)
        down, belief_rows = steps_down(*known, collected)
        up_there, up_struct = _steps_struct(up)
        down_there, down_struct = _steps_struct(down)
        collected_there = cupy().asarray(collected.astype(np.int64))
        held = (up_there, down_there)
        return SweepPlan(up, down, collected, belief_rows, up_struct, down_struct, collected_there, held)

    @with_retry
    def targets(self, plan: SweepPlan, rows: Sequence[Sequence[Index]], children: Sequence[int]) -> Targets:
        """The targets of a sweep.

        rows : for each target, by value, the message rows to sum, int64.
        children : for each target, the clique whose separator has these rows; -1 if they are the variable's own.
        """
        kinds = [VARIABLE if c < 0 else CHILD if plan.collected[c] else CONSTANT_CHILD for c in children]
        lists = [own for values in rows for own in values]
        value_start = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        row_first = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *lists, np.zeros(1, dtype=np.int64)])
        starts, firsts, known, kinds_there = map(cupy().asarray, (value_start, row_first, flat, np.array([*kinds, 0])))
        return Targets(starts, firsts, known, kinds_there, len(kinds), int(value_start[-1]))

    def collect(self, plan: SweepPlan, block: Block) -> None:
        """Queue the messages to the roots."""
        function, finish = (kernel(SOURCE, name, **block.definitions) for name in ("collect", "settle"))
        structs = (self._struct, plan.up_struct, block.struct)
        for stretch in plan.up.stretches:
            steps = (stretch.first, stretch.last)
            launch(function, _blocks(plan.up.chunks(stretch), block), THREADS, *structs, *steps)
            blocks = (stretch.last - stretch.first) * (block.stride // WARP)
            launch(finish, blocks, WARP * WARPS_A_CLIQUE, *structs, *steps)

    @with_retry
    def answer(
        self, plan: SweepPlan, block: Block, targets: Targets, cases: int, negligible: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Sweep up and down over the entered evidence.

        cases : of the block. negligible : maximum error bound by underflow of a case that gets posteriors.
        Returns posteriors : float64 (cases, values of all targets), 0 if impossible or above ``negligible``.
        logarithms : float64 (cases,), of evidence; -inf if it is impossible. losses : float64 (cases,).
        """
        module = cupy()
        found = module.empty((2, block.stride), dtype=np.float64)
        out = module.empty((max(1, targets.values), block.stride), dtype=np.float64)
        self.collect(plan, block)
        launch(
            kernel(SOURCE, "weigh", **block.definitions), -(-block.stride // THREADS), THREADS,
            self._struct, block.struct, plan.collected_there, self._roots, len(self._roots),
            np.float64(self._logarithm), np.float64(negligible), found,
        )  # fmt: skip
        for stretch in plan.down.stretches:
            self._distribute(plan, block, stretch)
        blocks = -(-targets.count * (block.stride // WARP) // (THREADS // WARP))
        launch(
            kernel(SOURCE, "take", **block.definitions), blocks, THREADS, self._struct, block.struct,
            targets.value_start, targets.row_first, targets.rows, targets.kinds, targets.count, out,
        )  # fmt: skip
        turned = module.ascontiguousarray(out[: targets.values, :cases].T)
        posteriors, numbers = host_arrays([turned, found])
        return posteriors, numbers[0, :cases], numbers[1, :cases]

    def _distribute(self, plan: SweepPlan, block: Block, stretch: Stretch) -> None:
        down, structs = plan.down, (self._struct, plan.down_struct, block.struct)
        of_steps, of_writes = (stretch.first, stretch.last), (stretch.first_write, stretch.last_write)
        for name, parts, of in (
            ("believe", down.chunks(stretch), of_steps),
            ("add_up", down.write_chunks(stretch), of_writes),
            ("add_up_splits", down.write_splits(stretch), of_writes),
        ):
            launch(kernel(SOURCE, name, **block.definitions), _blocks(parts, block), THREADS, *structs, *of)


def _blocks(parts: int, block: Block) -> int:
    """Thread blocks for so many parts, with a warp for each part and tile of cases."""
    warps = parts * (block.stride // (WARP * block.definitions["CASES"]))
    return -(-warps // (THREADS // WARP))


def _partial_rows(chunks: Chunks) -> int:
    """Number of chunks of split sums."""
    return int(chunks.split_first[-1])


def _steps_struct(steps: Steps) -> tuple[Any, NDArray[np.uint64]]:
    """Steps on the device, concatenated, and the struct that points to them."""
    arrays = dict(steps.arrays)
    together = np.concatenate([*arrays.values(), np.zeros(1, dtype=np.int64)]).astype(np.int64, copy=False)
    there = cupy().asarray(together)
    places: dict[str, int | None] = dict.fromkeys(STEP_MEMBERS)
    place = int(there.data.ptr)
    for name, array in arrays.items():
        places[name] = place
        place += 8 * len(array)
    return there, packed(SOURCE, "Steps", **places)


STEP_MEMBERS = (
    "clique", "chunks", "read_start", "read_map", "read_message", "read_sender", "belief", "write_chunks",
    "write_chunk", "write_splits", "write_split", "write_belief", "write_scale", "write_kind",
)  # fmt: skip
"""Members of the source's struct of steps; those unused in a direction are null."""
