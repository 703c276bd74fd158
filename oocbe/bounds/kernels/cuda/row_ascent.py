"""Dual ascent for rows on the device: the launches of :file:`row_ascent.cu`.

States stay in device memory; only bounds are copied to the host. Bounds and states are bit-identical to those of
:mod:`oocbe.bounds.kernels.cpu.row_ascent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.row_ascent import Level
from oocbe.bounds.kernels.cuda.row_layout import Near, RowArrays, laid_out
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
