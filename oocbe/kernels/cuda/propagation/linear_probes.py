"""Probes of a linear system on the device: the launches of :file:`linear_probes.cu`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.arrays import host_arrays
from oocbe.kernels.cpu.propagation.linear_rows import LinearRows, Rounding
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import cooperative_kernel, launch
from oocbe.kernels.cuda.propagation.linear_rows import PAIR_BYTES, DeviceRows
from oocbe.kernels.cuda.structs import packed
from oocbe.kernels.cuda.transfer.memory import device_room, with_retry

SOURCE = "linear_probes"
"""Name of the CUDA source."""

THREADS = 256
"""Threads of a block, as in the source."""

GROUP = 32
"""Probes of a warp."""

SHARE_OF_MEMORY = 2
"""The bounds of all probes take at most this part of the memory that is free."""


@dataclass(frozen=True, eq=False)
class ProbesOutcome:
    """What probes lead to: arrays as of :class:`oocbe.kernels.cpu.propagation.linear_probes.Probes`.

    Attributes
    ----------
    failed : bool (probes,). implied : uint32 (2, variables, words). entries : non-zeros times probes looked at.
    rounds : that were made.
    """

    failed: NDArray[np.bool_]
    implied: NDArray[np.uint32]
    entries: int
    rounds: int


class DeviceProbes:
    """A linear system in the memory of CuPy's current device, for any number of probes.

    Parameters
    ----------
    rows : with at least one row; at most 2^31 variables.
    """

    @with_retry
    def __init__(self, rows: LinearRows) -> None:
        self._rows = DeviceRows(rows)
        module = cupy()
        self._count, self._variables = len(rows.kinds), len(rows.integral)
        self._integral = module.asarray(rows.integral)
        self._uses = module.asarray(rows.row_starts), module.asarray(rows.rows_of)

    def most(self) -> int:
        """Probes that there is memory for at once, a multiple of 32 and at least 32."""
        room = device_room() // SHARE_OF_MEMORY // max(1, self._variables * PAIR_BYTES + self._count // (GROUP // 2))
        return max(GROUP, room // GROUP * GROUP)

    @with_retry
    def propagate(
        self,
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        variables: NDArray[np.int64],
        values: NDArray[np.float64],
        rounding: Rounding,
        rounds: int,
        *,
        has_implied: bool = True,
    ) -> ProbesOutcome:
        """Propagate each of some assignments by itself, from the same bounds; waits for what they lead to.

        Parameters
        ----------
        lower, upper : float64 (variables,), a fixpoint; no zero is a negative one. variables, values : (probes,), at
            least one. rounding : outward. rounds : at most; what was found until then holds.
        has_implied : whether what they fix is told.
        """
        module = cupy()
        count = len(variables)
        groups = -(-count // GROUP)
        stride = -(-self._count // GROUP) * GROUP
        shape = (2, self._variables, groups if has_implied else 0)
        implied, failed = module.empty(shape, dtype=np.uint32), module.zeros(groups, dtype=np.uint32)
        report = module.zeros(4, dtype=np.uint64)
        bounds = np.stack([lower, upper], axis=1)
        arrays = {
            "row_starts": self._uses[0],
            "rows_of": self._uses[1],
            "root": module.asarray(bounds),
            "probe_variables": module.asarray(variables),
            "probe_values": module.asarray(values),
            "bounds": module.empty((self._variables, groups * GROUP, 2), dtype=np.float64),
            "waiting": module.zeros((2, groups, stride), dtype=np.uint8),
            "failed": failed,
            "implied": implied if has_implied else None,
            "report": report,
            "arrived": module.zeros(1, dtype=np.uint32),
        }
        matrix = packed(
            SOURCE, "Matrix", **arrays, rows=self._count, row_stride=stride, probes=groups * GROUP, count=count
        )
        definitions = {"COEFFICIENT": self._rows.definitions["COEFFICIENT"], "OUTWARD": int(rounding.outward)}
        function, blocks = cooperative_kernel(SOURCE, "propagate_probes", THREADS, **definitions)
        launch(
            function, blocks, THREADS, self._rows.struct, matrix, self._integral, np.float64(rounding.progress), rounds
        )
        bits, found, told = host_arrays([failed, implied, report])
        flags = np.unpackbits(bits.view(np.uint8), bitorder="little")[:count].view(np.bool_)
        return ProbesOutcome(flags, found, int(told[2]), int(told[3]))
