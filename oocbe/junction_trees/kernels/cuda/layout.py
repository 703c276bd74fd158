"""Device layout of a junction tree and of the steps of a sweep.

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

from oocbe.junction_trees.kernels.cpu.single_sweeps import list_values

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
    """The layout of a tree's arrays (:class:`oocbe.junction_trees.arrays.TreeArrays`); the tree must have cliques."""
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

    program : :class:`oocbe.junction_trees.arrays.Program`. parents : of each clique, -1 for a root.
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
