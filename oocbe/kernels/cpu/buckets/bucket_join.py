"""Join all tables and lookups of a bucket and eliminate its variable, in one pass and without a sort.

The inputs are implicit *tries*: every table is sorted by key, and all tables order their variables alike (by
elimination position, the eliminated variable in the least significant bits). So rows with a common prefix are adjacent.
The join descends from the most significant variable and narrows one row range a table at each step, as worst-case
optimal join algorithms do (Veldhuizen, *Leapfrog Triejoin*, ICDT 2014; Abo Khamis, Ngo, Rudra, *FAQ: Questions Asked
Frequently*, PODS 2016, for the elimination on top). Output rows are in ascending order.

Consecutive variables in the scopes of the same tables form a *run* and are processed in one step. A run without a table
enumerates the values of its one variable. After each step, hard constraints whose last variable is in the run are
tested in bit sets, so that a violating prefix is never extended. The part of a lookup's index from runs above is
computed once, on arrival at a level: an enumerating run then reads all permitted values at once, and constraints that
permit everything below (in SPOT5: of a photograph left out) are skipped until the walk leaves the level. At a *leaf*
(one assignment of the separator) the remaining rows differ in the eliminated variable only; they are combined with the
functions of the bucket, in dense arrays, and reduced to one value.

The walk reads no values of rows. It fills a *frontier* of leaves, and a loop for the kind of leaf joins them all; then
the walk continues. So each loop is small and compiled for few types, and no call is as short as a leaf.

With a lower bound for each prefix of a key (:mod:`oocbe.elimination.engine.row_bound`), a prefix is pruned if no
completion can be below a threshold. The bound is the sum of the bound tables over the assigned variables, their minima
over the rest, and the least value among the matching rows of each table. A row is tested again with its own value when
it is written.

If rows carry the consumption of linear constraints (:mod:`oocbe.elimination.engine.consumption`), it is the lowest
field of every key, a leaf has several rows (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`), and bounds include a
*price* for a row's consumption. The flat arrays (:mod:`oocbe.kernels.cpu.buckets.join_arrays`) come from
:mod:`oocbe.elimination.engine.join_program`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.consumption_leaf import join_consumption_leaves
from oocbe.kernels.cpu.buckets.consumption_runs import DEEPEST, GIVEN_UP, LISTS, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import (
    Frontier,
    JoinProgram,
    LeafOutput,
    LeafPruning,
    SharedCounts,
    TableArrays,
    TrieArrays,
    WalkLists,
    WalkState,
)
from oocbe.kernels.cpu.buckets.limb_leaf import COUNT_LISTS
from oocbe.kernels.cpu.buckets.value_leaf import join_value_leaves
from oocbe.kernels.cpu.buckets.walk_loop import COMPLETE, walk_on

LEAF_ROOM = 256
"""Initial capacity, in rows, of the lists of a leaf with consumptions."""

FIRST_ITEMS = 256
"""Capacity of a walk's first frontier, enough for most buckets."""

FRONTIER_BYTES = 1 << 19
"""Bytes of the next frontiers: half of a common second-level cache, and thousands of items for the two calls."""


class MessageRows(NamedTuple):
    """Rows of a message.

    keys : uint64 (words, rows) arrays to concatenate; separator keys, ascending.
    values : value dtype (rows,) arrays to concatenate, flat: the limbs of counts.
    rows : their number.
    complete : False if a limit was exceeded or ``stop`` was set, and the walk was given up.
    """

    keys: list[NDArray[np.uint64]]
    values: list[NDArray[Any]]
    rows: int
    complete: bool


class Walk(NamedTuple):
    """A walk of the tries from given items down to a level.

    tries, tables, program, shared : of :mod:`oocbe.kernels.cpu.buckets.join_arrays`; ``tries`` and ``tables`` describe
        the same tables. The numbers of rows are added to the shared counts.
    items : the start of each walk; those from ``first`` to ``last`` - 1 are walked.
    level, stop_level : of the items, and where the walk ends.
    row_limit : maximum number of rows, or partial walks; beyond it the walk is given up. step_limit : approximate
        maximum number of steps, each of which sets or leaves one field of a key: with a bound, many steps may give few
        rows.
    """

    tries: TrieArrays
    tables: TableArrays
    program: JoinProgram
    items: Frontier
    first: int
    last: int
    level: int
    stop_level: int
    row_limit: int
    step_limit: int
    shared: SharedCounts

    def partial_walks(self) -> tuple[Frontier, bool]:
        """All items of the stop level, and whether the walk was not given up."""
        parts: list[Frontier] = []
        for found, filled, end in self._frontiers():
            parts.append(found.first(filled))
            if sum(len(part.keys) for part in parts) > self.row_limit:
                end = GIVEN_UP
                break
        return Frontier.joined(parts), end == COMPLETE

    def rows(self) -> MessageRows:
        """Rows of the leaves; the stop level is the last one."""
        limbs = self.program.semiring.limbs or 1
        keys, values, rows = [], [], 0
        leaf_join = _LeafJoin(self)
        for leaves, filled, end in self._frontiers():
            for output, count, leaf_end in leaf_join.rows(leaves, filled):
                keys.append(output.keys[:, :count].copy())
                values.append(output.values[: count * limbs].copy())
                rows += count
                self.shared.made[0] += count
                if leaf_end == GIVEN_UP or rows > self.row_limit or self.shared.made[0] > self.row_limit:
                    end = GIVEN_UP
                    break
            if end == GIVEN_UP:
                break
        return MessageRows(keys, values, rows, end == COMPLETE)

    def _frontiers(self) -> Iterator[tuple[Frontier, int, int]]:
        """Items of the stop level: arrays that are overwritten later, number of items, end code of the walk so far."""
        words, tables, dtype = self.items.keys.shape[1], len(self.tries.rows), self.program.bounds.entries.dtype
        lookups = int(self.program.lookups.level_start[-1])
        state = tuple(WalkState.empty(words, self.program.levels, tables, lookups, dtype))
        of_program = (self.program.runs, self.program.lookups, self.program.bounds)
        tries, runs, lookup_arrays, bounds, items = map(tuple, (self.tries, *of_program, self.items[:3]))
        levels, shared = (self.level, self.stop_level), tuple(self.shared)
        capacity = max(FIRST_ITEMS, FRONTIER_BYTES // (8 * (words + 2 * tables + 1)))
        output = Frontier.empty(FIRST_ITEMS, words, tables, dtype)
        end, progress = NO_ROOM, (self.first, self.level - 1, 0)
        while end == NO_ROOM:
            end, filled, progress = walk_on(
                tries,
                runs,
                lookup_arrays,
                bounds,
                items,
                levels,
                self.last,
                self.step_limit,
                self.row_limit,
                shared,
                state,
                tuple(output),
                progress,
            )
            yield output, filled, end
            if end == NO_ROOM and len(output.keys) < capacity:
                output = Frontier.empty(capacity, words, tables, dtype)


class _LeafJoin:
    """Joins the leaves of a walk, with arrays that are used again."""

    def __init__(self, walk: Walk) -> None:
        program, bounds = walk.program, walk.program.bounds
        self._walk, self._limbs = walk, program.semiring.limbs
        self._dtype = walk.tables.values.dtype
        number = bounds.entries.dtype.type
        pruning = LeafPruning(program.prunes, number(bounds.slack[-1] if program.prunes else 0), number(bounds.scale))
        self._pruning = tuple(pruning)
        self._scratch = (
            np.zeros(max(1, int(program.lookups.level_start[-1])), dtype=np.int64),
            np.zeros((2, len(walk.tries.rows)), dtype=np.int64),
            np.zeros((2, self._limbs or 1), dtype=np.uint64),
        )
        self._arrays = (tuple(walk.tables), tuple(program.lookups), tuple(program.leaf))
        self._lists = self._new_lists(LEAF_ROOM) if program.consumes else None
        self._output = self._new_output(0)

    def rows(self, leaves: Frontier, filled: int) -> Iterator[tuple[LeafOutput, int, int]]:
        """Rows of the first ``filled`` leaves: arrays that are overwritten later, number of rows, end code."""
        if self._lists is not None:
            yield from self._consumption_rows(leaves, filled, self._lists)
            return
        if len(self._output.keys[0]) < filled:
            self._output = self._new_output(len(leaves.keys))
        given = (tuple(leaves), filled, self._scratch, tuple(self._output))
        codes = (tuple(self._walk.program.semiring), self._limbs, self._pruning)
        count = join_value_leaves(*self._arrays, *codes, *given)
        yield self._output, count, COMPLETE

    def _consumption_rows(
        self, leaves: Frontier, filled: int, lists: WalkLists
    ) -> Iterator[tuple[LeafOutput, int, int]]:
        program, walk = self._walk.program, self._walk
        codes = (tuple(program.semiring), self._limbs, tuple(program.consumption), self._pruning)
        limits = (walk.row_limit, walk.shared.stop)
        end, leaf = NO_ROOM, 0
        while end == NO_ROOM:
            room = lists.amounts.shape[1]
            if len(self._output.keys[0]) < 2 * room:
                self._output = self._new_output(2 * room)
            end, leaf, count, needed = join_consumption_leaves(
                *self._arrays,
                *codes,
                *limits,
                tuple(leaves),
                leaf,
                filled,
                tuple(lists),
                self._scratch,
                tuple(self._output),
            )
            yield self._output, count, end
            if needed > room:
                lists = self._lists = self._new_lists(2 * needed)

    def _new_output(self, rows: int) -> LeafOutput:
        words = self._walk.items.keys.shape[1]
        values = np.empty(rows * (self._limbs or 1), dtype=self._dtype)
        return LeafOutput(np.empty((words, rows), dtype=np.uint64), values)

    def _new_lists(self, room: int) -> WalkLists:
        amounts = np.empty((LISTS if self._limbs is None else COUNT_LISTS, room), dtype=np.int64)
        worths = np.empty((LISTS, room * (self._limbs or 1)), dtype=self._dtype)
        return WalkLists(amounts, worths, np.zeros(DEEPEST + 1, dtype=np.int64))
