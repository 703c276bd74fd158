"""Probes of a linear system on the device: the launches of :file:`linear_probes.cu`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.arrays import host_array
from oocbe.kernels.cuda.device import cupy, multiprocessors
from oocbe.kernels.cuda.modules import Definition, kernel, launch, or_null
from oocbe.kernels.cuda.structs import packed
from oocbe.kernels.cuda.transfer.memory import device_room, with_retry
from oocbe.propagation.kernels.cpu.linear_rows import LinearRows, Rounding
from oocbe.propagation.kernels.cuda.linear_rows import PAIR_BYTES, DeviceRows

SOURCE = "linear_probes"
"""Name of the CUDA source."""

THREADS = 512
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
        self._uses = (
            module.asarray(rows.row_starts.astype(np.uint32)),
            module.asarray(rows.rows_of.astype(np.uint32)),
        )
        self._definitions: dict[str, Definition] = {"COEFFICIENT": self._rows.definitions["COEFFICIENT"], "OUTWARD": 1}
        self._blocks = RESIDENT_BLOCKS * multiprocessors(module.cuda.runtime.getDevice())
        self._root: _Root | None = None
        launch(
            kernel(SOURCE, "flag_uses", **self._definitions), -(-self._count * GROUP // THREADS), THREADS,
            self._rows.struct, self._count, *self._uses,
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

        Parameters
        ----------
        lower, upper : float64 (variables,), a fixpoint; no zero is a negative one. They stay on the device until other
            arrays come, and must not be changed. variables, values : (probes,), at least one. rounding : outward.
            rounds : at most; what was found until then holds.

        Raises
        ------
        ResourceError : the device's memory ran out.
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
            kernel(SOURCE, "sum_rows", **self._definitions), -(-self._count // THREADS), THREADS, self._rows.struct,
            self._count, bounds, or_null(places), activities,
        )  # fmt: skip
        made = _Root(lower, upper, bounds, activities, places, module.asarray(wide.astype(np.uint32)))
        self._root = None if len(others) else made
        return made

    @with_retry
    def _part(
        self,
        root: _Root,
        variables: NDArray[np.int64],
        values: NDArray[np.float64],
        rounding: Rounding,
        rounds: int,
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
            SOURCE, "Matrix", **arrays, rows=self._count, wide_count=wide_count, groups=groups, probes=count
        )
        definitions = dict(self._definitions, OUTWARD=int(rounding.outward))
        launch(
            kernel(SOURCE, "propagate_probes", **definitions), blocks, THREADS, self._rows.struct, matrix,
            np.float64(rounding.progress), rounds,
        )  # fmt: skip
        failed = host_array(arrays["failed"])
        flags: NDArray[np.bool_] = np.unpackbits(failed.view(np.uint8), bitorder="little")[:count].view(np.bool_)
        return flags
