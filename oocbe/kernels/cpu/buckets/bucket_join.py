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

With a lower bound for each prefix of a key (:mod:`oocbe.elimination.engine.bound_arrays`), a prefix is pruned if no
completion can be below a threshold. The bound is the sum of the bound tables over the assigned variables, their minima
over the rest, and the least value among the matching rows of each table. A row is tested again with its own value when
it is written.

If rows carry the consumption of linear constraints (:mod:`oocbe.elimination.engine.consumption`), it is the lowest
field of every key, a leaf has several rows (:mod:`oocbe.kernels.cpu.buckets.consumption_leaf`), and bounds include a
*price* for a row's consumption. The flat arrays (:mod:`oocbe.kernels.cpu.buckets.join_arrays`) come from
:mod:`oocbe.elimination.engine.join_program`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oocbe.kernels.cpu.buckets.consumption_runs import DEEPEST, LISTS, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import (
    BoundArrays,
    ConsumptionArrays,
    JoinProgram,
    LeafArrays,
    LookupArrays,
    RunArrays,
    SemiringCodes,
    SharedCounts,
    TableArrays,
    WalkLists,
    WalkOutput,
    WalkStart,
    WalkState,
)
from oocbe.kernels.cpu.buckets.limb_leaf import COUNT_LISTS
from oocbe.kernels.cpu.buckets.walk_loop import COMPLETE, walk_on
from oocbe.kernels.cpu.buckets.walk_steps import grown, values_a_row
from oocbe.kernels.cpu.jit import jit

LEAF_ROOM = 256
"""Initial capacity, in rows, of the lists of a leaf with consumptions."""


@jit
def walk(tables: Any, program: Any, consumption: Any, start: Any, row_limit: Any, step_limit: Any, shared: Any) -> Any:
    """Walk the tries from given items down to a level.

    Returns the fields of :class:`oocbe.kernels.cpu.buckets.walk_steps.Frontier`. All allocations are here; the loop
    (:mod:`oocbe.kernels.cpu.buckets.walk_loop`) returns when its capacity is exhausted.

    Parameters
    ----------
    tables, program, start, shared : ``TableArrays``, ``JoinProgram``, ``WalkStart`` and ``SharedCounts`` of
        :mod:`oocbe.kernels.cpu.buckets.join_arrays`, as plain tuples (of plain tuples), because Numba takes three times
        as long to type named-tuple arguments. The program lacks its last field:
    consumption : that field, ``ConsumptionArrays`` as a plain tuple, or None if rows carry none. Numba then removes the
        consumption code before compilation, which takes less than half as long.
    row_limit : maximum number of rows, or partial walks; beyond it the walk is given up. step_limit : approximate
        maximum number of steps, each of which sets or leaves one field of a key: with a bound, many steps may give few
        rows.
    """
    table_arrays, walk_start, counts = TableArrays(*tables), WalkStart(*start), SharedCounts(*shared)
    runs, lookups, leaf, semiring, bounds = program
    carried: Any
    if consumption is None:
        carried = None
    else:
        carried = ConsumptionArrays(*consumption)
    join_program = JoinProgram(
        RunArrays(*runs),
        LookupArrays(*lookups),
        LeafArrays(*leaf),
        SemiringCodes(*semiring),
        BoundArrays(*bounds),
        carried,
    )
    words = walk_start.keys.shape[0]
    count_tables = len(table_arrays.key_base)
    levels = len(join_program.runs.word)
    at_leaves = walk_start.stop_level == levels
    lookup_count = max(1, join_program.lookups.level_start[levels + 2])
    limbs = join_program.semiring.limbs
    items = values_a_row(limbs)
    value_type, bound_type = table_arrays.values.dtype, join_program.bounds.entries.dtype
    state = WalkState(
        np.zeros(words, dtype=np.uint64),
        np.zeros((levels + 1, count_tables), dtype=np.int64),
        np.zeros((levels + 1, count_tables), dtype=np.int64),
        np.zeros((levels + 1, count_tables + 1), dtype=np.int64),
        np.zeros((2, count_tables), dtype=np.int64),
        np.zeros(lookup_count, dtype=np.int64),
        np.zeros(lookup_count, dtype=np.int64),
        np.zeros(levels + 1, dtype=np.int64),
        np.zeros(levels + 1, dtype=np.uint64),
        np.zeros(levels + 1, dtype=bound_type),
        np.zeros((levels + 1, count_tables), dtype=bound_type),
        np.zeros(levels + 1, dtype=bound_type),
        np.zeros((2, items), dtype=np.uint64),
    )
    leaf_room = 1
    if consumption is not None and at_leaves:
        leaf_room = LEAF_ROOM
    amount_lists = LISTS if limbs is None else COUNT_LISTS
    amounts = np.empty((amount_lists, leaf_room), dtype=np.int64)
    worths = np.empty((LISTS, leaf_room * items), dtype=value_type)
    run_ends = np.zeros(DEEPEST + 1, dtype=np.int64)

    capacity = max(64, (walk_start.last - walk_start.first) * 2, leaf_room)
    keys = np.empty((words, capacity), dtype=np.uint64)
    values = np.empty((1, capacity * items if at_leaves else 0), dtype=value_type)
    low = np.empty((count_tables, 0 if at_leaves else capacity), dtype=np.int64)
    high = np.empty((count_tables, 0 if at_leaves else capacity), dtype=np.int64)

    zero = np.int64(0)  # not literals, which would add a second type to parameters
    progress = (zero + walk_start.first, zero + walk_start.level - 1, zero, zero, zero)
    limits = (row_limit, step_limit)
    while True:
        lists, output = WalkLists(amounts, worths, run_ends), WalkOutput(keys, values[0], low, high)
        end, needed, progress = walk_on(
            table_arrays, join_program, carried, walk_start, *limits, counts, state, lists, output, progress, limbs
        )
        _, _, _, count, pruned = progress
        if end != NO_ROOM:
            return keys, values[0], low, high, count, end == COMPLETE, pruned
        if needed > leaf_room:
            leaf_room = 2 * needed
            amounts = np.empty((amount_lists, leaf_room), dtype=np.int64)
            worths = np.empty((LISTS, leaf_room * items), dtype=value_type)
        capacity = count + max(count, 2 * leaf_room)
        keys = grown(keys, count, capacity)
        if at_leaves:
            values = grown(values, count * items, capacity * items)
        else:
            low = grown(low, count, capacity)
            high = grown(high, count, capacity)
