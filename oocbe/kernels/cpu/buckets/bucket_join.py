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

With a lower bound for each prefix of a key (:mod:`oocbe.elimination.row_pruning.row_bounds`), a prefix is pruned if no
completion can be below a threshold. The bound is the sum of the bound tables over the assigned variables, their minima
over the rest, and the least value among the matching rows of each table. A row is tested again with its own value when
it is written.

If rows carry the consumption of linear constraints (:mod:`oocbe.elimination.engine.consumption`), it is the lowest
field of every key, a leaf has several rows (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`), and bounds include a
*price* for a row's consumption. The flat arrays (:mod:`oocbe.kernels.cpu.buckets.join_arrays`) come from
:mod:`oocbe.elimination.engine.join_program`.

Here rows of leaves carry only a value, or a count of several limbs (:mod:`oocbe.tables.numbers`). Buckets of counts
have no functions: a feasible tuple counts as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.consumption_leaf import join_consumption_leaves
from oocbe.kernels.cpu.buckets.consumption_runs import DEEPEST, GIVEN_UP, LISTS, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import (
    BoundArrays,
    Frontier,
    JoinProgram,
    LeafArrays,
    LeafOutput,
    LeafPruning,
    LeafScratch,
    LookupArrays,
    RunArrays,
    SemiringCodes,
    SharedCounts,
    TableArrays,
    TrieArrays,
    WalkLists,
    WalkState,
)
from oocbe.kernels.cpu.buckets.limb_leaf import COUNT_LISTS, add_product, loaded, multiplied
from oocbe.kernels.cpu.buckets.walk_steps import bound_part, gather, group_end, least_value, rows_of_leaf, seek
from oocbe.kernels.cpu.jit import borrowing, inline
from oocbe.kernels.cpu.values import log_sum_exp

SCANNED_ROWS = 8
"""Maximum number of rows that are read to find a range's minimum; longer ranges keep the bound of the enclosing one."""

LOOK_UP_STEP = (1 << 14) - 1
"""Mask of the step number: a walk reads the stop flag every 16,384 steps."""

COMPLETE = 0
"""Code of a walk that reached the last item; otherwise ``GIVEN_UP`` or ``NO_ROOM``."""


@borrowing
def walk_on(
    tries: Any,
    runs: Any,
    lookups: Any,
    bounds: Any,
    items: Any,
    levels: Any,
    last: Any,
    step_limit: Any,
    row_limit: Any,
    shared: Any,
    state: Any,
    output: Any,
    progress: Any,
) -> Any:
    """Continue a walk until it ends or its output is full: (end code, items of output, progress).

    Values of rows are not read, except as prices, and leaves are output, not joined: so a compilation for each dtype of
    bounds serves all messages. All arguments but numbers are named tuples as plain tuples, because Numba takes three
    times as long to type named ones at a call.

    tries, runs, lookups, bounds, shared, state : of :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    items : (keys, low, high), the start of each walk: fields of ``Frontier``. last : one past the last item.
    levels : (first, last), of the items, and where the walk ends.
    row_limit, step_limit : of all walks together, compared with the shared counts now and then.
    output : ``Frontier``, overwritten.
    progress : (item, level, steps), of the previous call; initially the first item, the level before its own, and 0.
    """
    tables, program_runs, program_lookups = TrieArrays(*tries), RunArrays(*runs), LookupArrays(*lookups)
    bound, counts, now, into = BoundArrays(*bounds), SharedCounts(*shared), WalkState(*state), Frontier(*output)
    keys, key_base, table_rows, row_base = tables.keys, tables.key_base, tables.rows, tables.row_base
    priced, narrow, price_scale = tables.priced, tables.narrow, tables.price_scale
    run_word, run_shift, run_mask, run_size, part_start, part_table, part_word, part_shift = program_runs
    level_start, segment_start = program_lookups.level_start, program_lookups.segment_start
    segment_middle = program_lookups.segment_middle
    segments = (
        program_lookups.segment_word,
        program_lookups.segment_shift,
        program_lookups.segment_mask,
        program_lookups.segment_place,
    )
    base, bits, own_bits = program_lookups.base, program_lookups.bits, program_lookups.own_bits
    free, free_base = program_lookups.free, program_lookups.free_base
    entries, slack = bound.entries, bound.slack
    item_keys, item_low, item_high = items
    start_level, stop_level = levels
    made, stop = counts.made, counts.stop
    key, low, high, position, index = now.key, now.low, now.high, now.position, now.indices
    active, active_to, permitted_values = now.active, now.active_to, now.permitted_values
    reached, least, least_sum = now.reached, now.least, now.least_sum
    prunes = len(slack) > 0
    is_narrow = len(narrow) > 0
    capacity, words = into.keys.shape
    count_tables = len(key_base)
    first, level, steps = progress
    count = np.int64(0)
    given_up, no_room, complete = count + GIVEN_UP, count + NO_ROOM, count + COMPLETE

    for item in range(first, last):
        if level < start_level:
            for w in range(words):
                key[w] = item_keys[item, w]
            for t in range(count_tables):
                low[start_level, t] = item_low[item, t]
                high[start_level, t] = item_high[item, t]
            if prunes:
                reached[start_level] = entries[0]
                for above in range(start_level):
                    reached[start_level] += bound_part(key, bound, above)
                least_sum[start_level] = entries[0]
                for t in range(count_tables):
                    least[start_level, t] = tables.least[t]
                    least_sum[start_level] += tables.least[t]
            level = start_level
        arriving = True
        while level >= start_level:
            steps += 1
            if steps & LOOK_UP_STEP == 0:
                made[1] += LOOK_UP_STEP + 1
                if made[1] > step_limit or made[0] > row_limit or stop[0] != 0:
                    return given_up, count, (item, level, steps)
            if arriving:
                arriving = False
                if level == stop_level:
                    if count == capacity:
                        return no_room, count, (item, level, steps)
                    for t in range(count_tables):
                        into.low[count, t] = low[level, t]
                        into.high[count, t] = high[level, t]
                    for w in range(words):
                        into.keys[count, w] = key[w]
                    if prunes:
                        into.reached[count] = reached[level]
                    count += 1
                    level -= 1
                    continue

                for t in range(count_tables):
                    low[level + 1, t] = low[level, t]
                    high[level + 1, t] = high[level, t]
                    position[level, t] = low[level, t]
                    least[level + 1, t] = least[level, t]
                position[level, count_tables] = -1
                if part_start[level + 1] > part_start[level]:
                    # Compute index parts from above for this level's constraints; keep those that may forbid something.
                    filled = level_start[level]
                    for f in range(level_start[level], level_start[level + 1]):
                        above = gather(key, segments, segment_middle[f], segment_start[f + 1])
                        i = free_base[f] + (above >> own_bits[f])
                        if (free[i >> 6] >> U64(i & 63)) & U64(1) == U64(0):
                            index[filled] = above
                            active[filled] = f
                            filled += 1
                    active_to[level] = filled
                else:
                    for f in range(level_start[level], level_start[level + 1]):
                        index[f] = gather(key, segments, segment_start[f], segment_start[f + 1])

            part_from = part_start[level]
            parts = part_start[level + 1] - part_from
            mask = run_mask[level]
            field = U64(0)
            if parts == 0:
                x = position[level, count_tables] + 1
                size = run_size[level]
                while x < size:
                    if x & 63 == 0:
                        mask_stride = (size + 63) >> 6
                        values_left = ~U64(0)
                        for f in range(level_start[level], level_start[level + 1]):
                            values_left &= bits[base[f] + index[f] * mask_stride + (x >> 6)]
                        permitted_values[level] = values_left
                    if (permitted_values[level] >> U64(x & 63)) & U64(1):
                        break
                    x += 1
                position[level, count_tables] = x
                if x >= size:
                    level -= 1
                    continue
                field = U64(x)
            elif parts == 1:
                t = part_table[part_from]
                p = position[level, t]
                end = high[level, t]
                if p >= end:
                    level -= 1
                    continue
                offset = key_base[t] + part_word[part_from] * table_rows[t]
                shift = part_shift[part_from]
                field = (keys[offset + p] >> shift) & mask
                q = group_end(keys, offset, p, end, shift, mask, field)
                low[level + 1, t] = p
                high[level + 1, t] = q
                position[level, t] = q
            else:
                agreeing = 0
                exhausted = False
                part = part_from
                while agreeing < parts:
                    t = part_table[part]
                    p = position[level, t]
                    end = high[level, t]
                    if p < end:
                        offset = key_base[t] + part_word[part] * table_rows[t]
                        shift = part_shift[part]
                        here = (keys[offset + p] >> shift) & mask
                        if here < field:
                            p = seek(keys, offset, p, end, shift, mask, field)
                            position[level, t] = p
                            if p < end:
                                here = (keys[offset + p] >> shift) & mask
                        if p < end:
                            if agreeing == 0 or here > field:
                                field = here
                                agreeing = 1
                            else:
                                agreeing += 1
                    if p >= end:
                        exhausted = True
                        break
                    part += 1
                    if part == part_from + parts:
                        part = part_from
                if exhausted:
                    level -= 1
                    continue
                for part in range(part_from, part_from + parts):
                    t = part_table[part]
                    p = position[level, t]
                    offset = key_base[t] + part_word[part] * table_rows[t]
                    q = group_end(keys, offset, p, high[level, t], part_shift[part], mask, field)
                    low[level + 1, t] = p
                    high[level + 1, t] = q
                    position[level, t] = q

            w = run_word[level]
            shift = run_shift[level]
            key[w] = (key[w] & ~(mask << shift)) | (field << shift)
            permitted = True
            if parts > 0:
                for a in range(level_start[level], active_to[level]):
                    f = active[a]
                    i = index[a] | gather(key, segments, segment_start[f], segment_middle[f])
                    if (bits[base[f] + (i >> 6)] >> U64(i & 63)) & U64(1) == U64(0):
                        permitted = False
                        break
            if permitted and prunes:
                reached[level + 1] = reached[level] + bound_part(key, bound, level)
                least_sum[level + 1] = least_sum[level]
                for part in range(part_from, part_from + parts):
                    t = part_table[part]
                    if high[level + 1, t] - low[level + 1, t] <= SCANNED_ROWS:
                        begin, end = row_base[t] + low[level + 1, t], row_base[t] + high[level + 1, t]
                        if is_narrow:
                            smallest = entries[0] + least_value(narrow, begin, end)
                        else:
                            smallest = least_value(priced, begin, end)
                        least_sum[level + 1] += smallest - least[level, t]
                        least[level + 1, t] = smallest
                if reached[level + 1] + least_sum[level + 1] * price_scale >= slack[level + 1]:
                    permitted = False
            if permitted:
                level += 1
                arriving = True

    return complete, count, (last, level, steps)


U64 = np.uint64


@inline
def join_values(
    tables: Any, leaf: Any, semiring: Any, limbs: Any, here: Any, places: Any, product: Any, out: Any, at: Any
) -> Any:
    """Value of one leaf: (whether any value of the variable is feasible, the reduced value).

    tables, leaf, semiring, here : ``TableArrays``, two parts of a ``JoinProgram``, and ``LeafRows``, of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`.
    limbs : of the semiring; None for plain numbers. places : int64 (2, tables), overwritten.
    product, out, at : uint64 (2, limbs), overwritten, and flat values of rows, of the tables' dtype: a count is written
        to ``out[at : at + limbs]``.
    """
    keys, values, key_base, value_base = tables.keys, tables.values, tables.key_base, tables.value_base
    low, high, index, base = here.low, here.high, here.indices, here.base
    leaf_mask, leaf_size, leaf_masks, leaf_values = leaf.mask, leaf.size, leaf.masks, leaf.values
    combination, marginalisation = semiring.combination, semiring.marginalisation
    count_tables = len(key_base)
    pointer = places[0]
    block = -1
    allowed = U64(0)
    found = False
    total = values[0]
    candidates = leaf_size
    first_row = 0
    if count_tables > 0:
        first_row = low[0]
        candidates = high[0] - first_row
        for t in range(1, count_tables):
            pointer[t] = low[t]
    for candidate in range(candidates):
        x: Any = np.int64(candidate)
        if count_tables > 0:
            x = np.int64(keys[key_base[0] + first_row + candidate] & leaf_mask)
        if x >> 6 != block:
            block = x >> 6
            allowed = ~U64(0)
            for f in range(here.mask_from, here.mask_to):
                allowed &= leaf_masks[base[f] + index[f] * leaf.mask_words + block]
        if (allowed >> U64(x & 63)) & U64(1) == U64(0):
            continue
        value = semiring.one
        present = True
        if count_tables > 0:
            if limbs is None:
                value = values[value_base[0] + first_row + candidate]
            for t in range(1, count_tables):
                p = pointer[t]
                end = high[t]
                offset = key_base[t]
                while p < end and np.int64(keys[offset + p] & leaf_mask) < x:
                    p += 1
                pointer[t] = p
                if p == end or np.int64(keys[offset + p] & leaf_mask) != x:
                    present = False
                    break
                if limbs is None:
                    if combination == 0:
                        value += values[value_base[t] + p]
                    else:
                        value *= values[value_base[t] + p]
        if not present:
            continue
        if limbs is not None:
            filled = np.int64(1)
            product[0, 0] = U64(1)
            if count_tables > 0:
                first = value_base[0] + (first_row + candidate) * tables.limbs[0]
                filled = loaded(product, values, first, tables.limbs[0])
            for t in range(1, count_tables):
                first = value_base[t] + pointer[t] * tables.limbs[t]
                filled = multiplied(product, filled, values, first, tables.limbs[t])
            if not found:
                for i in range(limbs):
                    out[at + i] = 0
            add_product(product, filled, out, at)
            found = True
            continue
        for f in range(here.mask_to, here.function_to):
            looked_up = leaf_values[base[f] + index[f] * leaf_size + x]
            if combination == 0:
                value += looked_up
            else:
                value *= looked_up
        if not found:
            total = value
            found = True
        elif marginalisation == 0:
            total = min(total, value)
        elif marginalisation == 1:
            total = max(total, value)
        elif marginalisation == 2:
            total += value
        else:
            # In the dtype of the values: a float would turn integer totals into floats, too.
            total = values.dtype.type(log_sum_exp(total, value))
    return found, total


@borrowing
def join_value_leaves(
    tables: Any,
    lookups: Any,
    leaf: Any,
    semiring: Any,
    limbs: Any,
    pruning: Any,
    leaves: Any,
    filled: Any,
    scratch: Any,
    output: Any,
) -> Any:
    """Rows of the first ``filled`` leaves, at most one each; returns their number.

    All arguments but numbers are named tuples of :mod:`oocbe.kernels.cpu.buckets.join_arrays` as plain tuples.

    limbs : of the semiring, as an argument: for None, Numba removes the code for limbs; counts are not pruned.
    leaves : ``Frontier``. output : ``LeafOutput``, of sufficient capacity.
    """
    table_arrays, lookup, values = TableArrays(*tables), LookupArrays(*lookups), LeafArrays(*leaf)
    codes, bound, here = SemiringCodes(*semiring), LeafPruning(*pruning), Frontier(*leaves)
    work, rows = LeafScratch(*scratch), LeafOutput(*output)
    count = np.int64(0)
    for i in range(filled):
        key = here.keys[i]
        one = rows_of_leaf(lookup, here, i, work.indices)
        at = count if limbs is None else count * limbs
        found, total = join_values(table_arrays, values, codes, limbs, one, work.places, work.product, rows.values, at)
        if found and bound.prunes and here.reached[i] + total * bound.scale >= bound.slack:
            found = False
        if found:
            for w in range(len(key)):
                rows.keys[w, count] = key[w]
            if limbs is None:
                rows.values[count] = total
            count += 1
    return count


LEAF_ROOM = 256
"""Initial capacity, in rows, of the lists of a leaf with consumptions."""

FIRST_ITEMS = 256
"""Capacity of a walk's first frontier, enough for most buckets."""

FRONTIER_BYTES = 1 << 19
"""Bytes of the next frontiers: half of a common second-level cache, and thousands of items for the two calls."""


class MessageRows(NamedTuple):
    """Rows of a message.

    keys : uint64 (words, rows) arrays to concatenate; separator keys, ascending.
    values : value dtype (rows,) arrays to concatenate, flat: the limbs of counts. rows : their number.
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
