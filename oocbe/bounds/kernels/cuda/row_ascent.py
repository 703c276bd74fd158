"""Dual ascent for rows on the device: the launches of :file:`row_ascent.cu`.

States stay in device memory; only bounds are copied to the host. Bounds and states are bit-identical to those of
:mod:`oocbe.bounds.kernels.cpu.row_ascent`.
The layout of a block's rows is computed on the host: see ``Layout`` in :file:`row_ascent.cu`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.row_ascent import Level
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.kernels.arrays import host_array
from oocbe.kernels.cpu.projection import REMOVED, AscentNetwork
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import kernel, launch
from oocbe.kernels.cuda.structs import packed
from oocbe.kernels.cuda.transfer.memory import device_room, with_retry

SOURCE = "row_ascent"
"""Name of the CUDA source."""

WARP = 32
"""Threads of a warp."""

LARGE_DOMAIN = 16
"""Domain size from which a block bounds several rows: they read the same cells of tables."""

MANY_BLOCKS = 3
"""Minimum number of four-row blocks in a multiprocessor's shared memory: with fewer, it stalls on cells of tables.

On an H100, rows of CELAR6-SUB2 with 14 open variables are bounded at 1.5 million a second in single blocks of four
rows, at 2.2 million in three blocks of two."""

THREADS_A_MULTIPROCESSOR = 2048
"""Threads a multiprocessor for blocks whose slots are outside shared memory."""

ROOM_SHARE = 0.5
"""Share of the device's free memory for states: the rest is for messages of elimination."""

ALIGNMENT = 16
"""Alignment of a layout's arrays, in bytes."""


@dataclass(frozen=True)
class LaunchShape:
    """Launch configuration: rows and threads of a block, and whether slots are in shared memory."""

    rows: int
    threads: int
    in_shared: bool

    def shared_bytes(self, layout: RowArrays) -> int:
        """Shared memory of a block, in bytes."""
        n = layout.numbers
        words = n["units"] + n["owners"] + 5 + 1 + (n["full"] + n["fixed"] if self.in_shared else 0)
        values = int(layout.arrays["value_slot"][-1])
        rest = 4 * (-(-n["positions"] // 32)) + 2 * (values + n["positions"]) + self.rows * (n["positions"] + 1)
        return 4 * words * self.rows + 36 * n["degree"] + rest


def shape_for(layout: RowArrays, most_bytes: int) -> LaunchShape | None:
    """The shape for a layout with ``most_bytes`` shared memory a block; None if no block has room for a row."""
    units = layout.numbers["units"]
    threads = WARP if units <= 2 * WARP else 4 * WARP if units <= 8 * WARP else 8 * WARP
    is_large = int(np.diff(layout.arrays["value_slot"]).max(initial=0)) >= LARGE_DOMAIN
    choices = [(1, True, 1), (1, False, 1)]
    if is_large:
        choices = [(4, True, MANY_BLOCKS), (2, True, 1), (1, True, 1), (4, False, 1), (1, False, 1)]
    for rows, in_shared, blocks in choices:
        shape = LaunchShape(rows, threads, in_shared)
        if blocks * shape.shared_bytes(layout) <= most_bytes:
            return shape
    return None


class DeviceAscent:
    """Bounds rows of one network, below one threshold, on CuPy's current device.

    Parameters
    ----------
    network : its functions. need : rows with this bound are pruned.
    """

    def __init__(self, network: AscentNetwork, need: int) -> None:
        self._network, self._near, self._need = network, Near.of(network), need
        self._tables = cupy().asarray(network.tables if len(network.tables) else np.zeros(1, dtype=np.int32))
        self._most_bytes = int(cupy().cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
        self._key: tuple[Level, int] | None = None

    def can_bound(self, level: Level, v: int) -> bool:
        """Whether a block has room for a row of this layout."""
        self._lay_out(level, v)
        return self._shape is not None

    @with_retry
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
        shape: LaunchShape | None = None,
    ) -> tuple[Any, NDArray[np.int64]]:
        """States, on the device, and bounds of rows: each is a parent's row with a value of one more variable.

        States of rows whose bound reaches ``need`` are not written.

        Parameters
        ----------
        level : of the variables open after the assignment; all others but ``v`` have one value in each parent's row.
        v : the variable. parents : device int32 (parents, state). parent_bounds : int64 (parents,).
        parent, value : int64 (rows,). passes : maximum number of passes over changed variables.
        radius : distance in functions up to which a loss of values causes variables to be visited.
        shape : launch configuration; None: the best one for the layout.
        """
        self._lay_out(level, v)
        shape = shape or self._shape
        assert shape is not None
        module, count = cupy(), len(parent)
        given = np.concatenate([parent_bounds, parent, value]).astype(np.int32)
        bounds_before, parent_there, value_there = _split(module.asarray(given), len(parent_bounds), count, count)
        states = module.empty((count, parents.shape[1]), dtype=np.int32)
        bounds = module.empty(count, dtype=np.int32)
        numbers = dict(self._layout.numbers, need=self._need, passes=passes, radius=radius)
        signed = {name: np.int64(number) for name, number in numbers.items()}  # a Python int is packed as unsigned
        struct = packed(SOURCE, "Layout", **signed, **self._places, tables=self._tables)
        function = kernel(SOURCE, "bound_rows", ROWS=shape.rows, THREADS=shape.threads, IN_SHARED=int(shape.in_shared))
        shared_bytes = shape.shared_bytes(self._layout)
        if function.max_dynamic_shared_size_bytes < shared_bytes:
            function.max_dynamic_shared_size_bytes = self._most_bytes
        blocks, scratch = -(-count // shape.rows), 0
        if not shape.in_shared:
            blocks = min(
                blocks, THREADS_A_MULTIPROCESSOR // shape.threads * multiprocessors(module.cuda.runtime.getDevice())
            )
            slots = self._layout.numbers["full"] + self._layout.numbers["fixed"]
            scratch = module.empty(max(1, blocks * slots * shape.rows), dtype=np.int32)
        launch(
            function,
            blocks,
            shape.threads,
            struct,
            parents,
            bounds_before,
            parent_there,
            value_there,
            count,
            states,
            bounds,
            scratch,
            shared_bytes=shared_bytes,
        )
        return states, host_array(bounds).astype(np.int64)

    def _lay_out(self, level: Level, v: int) -> None:
        """Upload the layout of rows, unless it equals that of the last call."""
        if self._key is not None and self._key[0] is level and self._key[1] == v:
            return
        self._layout = laid_out(self._network, self._near, level, v)
        self._shape = shape_for(self._layout, self._most_bytes)
        places, end = {}, 0
        for name, array in self._layout.arrays.items():
            places[name] = end
            end += -(-max(1, array.nbytes) // ALIGNMENT) * ALIGNMENT
        together = np.zeros(end, dtype=np.uint8)
        for name, array in self._layout.arrays.items():
            together[places[name] : places[name] + array.nbytes] = array.reshape(-1).view(np.uint8)
        self._held = cupy().asarray(together)
        self._places = {name: int(self._held.data.ptr) + place for name, place in places.items()}
        self._key = (level, v)

    @staticmethod
    @with_retry
    def uploaded(states: NDArray[np.int32]) -> Any:
        """States in device memory."""
        return cupy().asarray(np.ascontiguousarray(states))

    @staticmethod
    @with_retry
    def taken(states: Any, rows: NDArray[np.int64]) -> Any:
        """Selected rows of the device's states."""
        return states[cupy().asarray(rows)]

    @staticmethod
    @with_retry
    def joined(parts: Sequence[Any]) -> Any:
        """Concatenated states on the device."""
        return cupy().concatenate(list(parts))

    @staticmethod
    @with_retry
    def numbers_at(states: Any, rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int32]:
        """One number of each selected state."""
        found: NDArray[np.int32] = host_array(states[cupy().asarray(rows), cupy().asarray(places)])
        return found

    @staticmethod
    @with_retry
    def live(states: Any, values: int) -> NDArray[np.bool_]:
        """Bool (rows, values), True for remaining values; a state begins with ``values`` values."""
        bits = host_array(cupy().packbits((states[:, :values] != int(REMOVED)).ravel()))
        return np.unpackbits(bits, count=len(states) * values).view(bool).reshape(len(states), values)

    @staticmethod
    def room() -> int:
        """Device memory available for states, in bytes."""
        return int(ROOM_SHARE * device_room())


def _split(array: Any, *lengths: int) -> list[Any]:
    """Consecutive parts of an array, of given lengths."""
    ends = np.cumsum(lengths).tolist()
    return [array[end - length : end] for end, length in zip(ends, lengths, strict=True)]


FULL_PAIR, FIXED_PAIR, TABLE = 0, 1, 2
"""Kinds of uses, as in the source."""


@dataclass(frozen=True)
class Near:
    """Pairs of variables with a common function: variable, neighbour, use of the variable in the function.

    Sorted by variable and neighbour.
    """

    variable: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    use: NDArray[np.int64]

    @classmethod
    def of(cls, network: AscentNetwork) -> Near:
        """The pairs of a network."""
        begin, count = network.function_start[network.function], np.diff(network.function_start)[network.function]
        use = np.repeat(np.arange(len(count)), count)
        other = np.repeat(begin, count) + _counted(count)
        use, other = use[use != other], other[use != other]
        variable, neighbour = network.variable[use], network.variable[other]
        order = np.lexsort((neighbour, variable))
        return cls(variable[order], neighbour[order], use[order])


@dataclass(frozen=True)
class RowArrays:
    """Arrays and numbers of the ``Layout`` of rows that assign one variable.

    Attributes
    ----------
    arrays : int32 or int64, by name, without the tables. numbers : by name, without arguments of the call.
    """

    arrays: dict[str, NDArray[Any]]
    numbers: dict[str, int]


def laid_out(network: AscentNetwork, near: Near, level: Level, v: int) -> RowArrays:
    """The layout of rows that assign variable ``v``; passes visit a level's variables.

    All other variables have one value left in each row.
    """
    sizes = np.diff(network.value_start)
    order, count = level.order, len(level.order)
    position = np.full(len(sizes), -1, dtype=np.int64)
    position[order] = np.arange(count)
    variable, function = network.variable, network.function
    is_full = position[variable] >= 0
    is_needed = np.zeros(len(network.function_start) - 1, dtype=bool)
    is_needed[function[is_full | (variable == v)]] = True

    # Slots: values, then uses of positions, then uses of fixed variables.
    value_slot = starts_of(sizes[order])
    full_uses = np.flatnonzero(is_full)
    message_slot = starts_of(sizes[variable[full_uses]]) + value_slot[-1]
    full = int(message_slot[-1])
    fixed_uses = np.flatnonzero(~is_full & is_needed[function])
    slot_of_use = np.full(len(variable), -1, dtype=np.int64)
    slot_of_use[full_uses] = message_slot[:-1]
    slot_of_use[fixed_uses] = full + np.arange(len(fixed_uses))
    source = np.concatenate(
        [
            _ranges(network.value_start[order], sizes[order]),
            _ranges(network.message_start[full_uses], sizes[variable[full_uses]]),
        ]
    )
    state = int(network.value_start[-1] + sizes[variable].sum())
    slot = np.full(state, -1, dtype=np.int64)
    slot[source] = np.arange(full)
    owners, fixed_owner = np.unique(variable[fixed_uses], return_inverse=True)
    if position[v] < 0 and v not in owners:
        owners = np.append(owners, v)
    owner = np.full(len(sizes), -1, dtype=np.int64)
    owner[owners] = np.arange(len(owners))
    given = owners[owners != v]

    # Uses: those of each position in their order, then those of the assigned variable.
    subjects = np.append(order, v)
    degree = np.diff(network.use_start)[subjects]
    uses = network.uses[_ranges(network.use_start[subjects], degree)]
    first_use = starts_of(degree)
    subject = np.repeat(np.arange(count + 1), degree)
    number = _counted(degree)
    entries, places, is_heavy = _entries(network, uses, subject == count, position, owner, slot_of_use)
    entries[:, 0] = number
    # Heavy uses first, as they take longest; the assigned variable's in any order.
    arranged = np.lexsort((number, ~is_heavy, subject))
    packed_use = slot_of_use[uses] << 2 | level.behind[uses].astype(np.int64) << 1 | level.ahead[uses]
    heavy = np.bincount(subject, is_heavy, minlength=count + 1)

    near_start, near_packed = _near(near, level, position, v)
    arrays = {
        "source": source,
        "slot": slot,
        "fixed_source": network.message_start[fixed_uses],
        "fixed_owner": fixed_owner,
        "digit_place": _ranges(network.value_start[given], sizes[given]),
        "digit_owner": np.repeat(owner[given], sizes[given]),
        "digit": _counted(sizes[given]),
        "value_slot": value_slot,
        "first_use": first_use,
        "use": packed_use,
        "heavy": heavy,
        "entry": entries[arranged],
        "place": places,
        "near_start": near_start,
        "near": near_packed,
    }
    arrays = {name: np.ascontiguousarray(array, dtype=np.int32) for name, array in arrays.items()}
    arrays["fraction"] = np.ascontiguousarray(level.fraction[order], dtype=np.int64)
    numbers = {
        "positions": count,
        "full": full,
        "fixed": len(fixed_uses),
        "owners": len(owners),
        "digits": len(arrays["digit"]),
        "state": state,
        "units": int(max((degree[:-1] * sizes[order]).max(initial=1), degree[-1])),
        "degree": int(degree[:-1].max(initial=1)),
        "assigned": int(position[v]),
        "assigned_owner": int(owner[v]),
        "assigned_start": int(network.value_start[v]),
        "assigned_size": int(sizes[v]),
    }
    return RowArrays(arrays, numbers)


def _entries(
    network: AscentNetwork,
    uses: NDArray[np.int64],
    is_last: NDArray[np.bool_],
    position: NDArray[np.int64],
    owner: NDArray[np.int64],
    slot_of_use: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Entries and places as in the source, and a mask of the entries with other positions in their functions."""
    sizes, variable = np.diff(network.value_start), network.variable
    function = network.function[uses]
    begin, arity = network.function_start[function], np.diff(network.function_start)[function]
    is_pair = arity == 2
    other = np.where(is_pair, 2 * begin + 1 - uses, uses)
    other_variable, own = variable[other], variable[uses]
    is_full = position[other_variable] >= 0
    # A table over two variables is stored in both orders: adjacent threads read adjacent cells.
    entries = np.zeros((len(uses), 8), dtype=np.int64)
    entries[:, 1] = np.where(is_pair, np.where(is_full, FULL_PAIR, FIXED_PAIR), TABLE)
    entries[:, 2] = network.table_start[np.where(is_pair & is_last, other, uses)]
    entries[:, 3] = slot_of_use[other]
    entries[:, 4] = np.where(is_full, position[other_variable], owner[other_variable])
    entries[:, 6] = np.where(is_last, sizes[other_variable], 1)
    entries[:, 7] = np.where(is_last, 1, sizes[own])
    is_heavy = is_full & is_pair
    large = np.flatnonzero(~is_pair)
    # In larger tables the last variable is the fastest.
    after = np.repeat(begin[large] + arity[large], arity[large])
    place_use = _ranges(begin[large], arity[large])
    stride = np.ones(len(place_use), dtype=np.int64)
    for i in range(1, int(arity[large].max(initial=1))):
        is_there = place_use + i < after
        stride[is_there] *= sizes[variable[place_use[is_there] + i]]
    is_own = place_use == np.repeat(uses[large], arity[large])
    entries[large, 6] = stride[is_own]
    place_use, stride = place_use[~is_own], stride[~is_own]
    place_variable = variable[place_use]
    is_position = position[place_variable] >= 0
    places = np.zeros((len(place_use), 4), dtype=np.int64)
    places[:, 0] = slot_of_use[place_use]
    places[:, 1] = np.where(is_position, position[place_variable], -1 - owner[place_variable])
    places[:, 2] = stride
    entries[large, 4] = starts_of(arity[large] - 1)[:-1]
    entries[large, 5] = arity[large] - 1
    is_heavy[large] = True
    return entries, places, is_heavy


def _near(near: Near, level: Level, position: NDArray[np.int64], v: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions near each position, and near the assigned variable, with the directions of common functions."""
    count = len(level.order)
    to = position[near.neighbour]
    flags = (level.behind[near.use].astype(np.int64) << 1) | level.ahead[near.use]
    parts = []
    for subject, is_subject in ((position[near.variable], position[near.variable] >= 0), (count, near.variable == v)):
        chosen = np.flatnonzero(is_subject & (to >= 0))
        parts.append((np.broadcast_to(subject, to.shape)[chosen], to[chosen], flags[chosen]))
    subject, to, flags = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((to, subject))
    subject, to, flags = subject[order], to[order], flags[order]
    is_first = np.ones(len(to), dtype=bool)
    is_first[1:] = (subject[1:] != subject[:-1]) | (to[1:] != to[:-1])
    first = np.flatnonzero(is_first)
    if len(first):
        flags = np.bitwise_or.reduceat(flags, first)
    start = np.searchsorted(subject[first], np.arange(count + 2))
    return start, to[first] << 2 | flags


def _counted(counts: NDArray[Any]) -> NDArray[np.int64]:
    """0, 1, … within each of some consecutive stretches."""
    starts = starts_of(counts)
    return np.arange(starts[-1]) - np.repeat(starts[:-1], counts)


def _ranges(first: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """Concatenated ranges of integers with given first elements and lengths."""
    found: NDArray[np.int64] = np.repeat(first, counts) + _counted(counts)
    return found
