"""Tables as runs: adjacent rows that differ in the eliminated variables only, as one entry (:file:`runs.cu`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.modules import C_TYPES, kernel, launch, or_null
from oocbe.kernels.cuda.packing.fields import packed_plans
from oocbe.kernels.cuda.pairs.selection import Marked
from oocbe.kernels.cuda.pairs.sort import sort_rows

THREADS = 256
"""Threads of a block, as in the source."""

MOST_RUNS = 1 << 32
"""Limit of the number of runs: a thread keeps their numbers in registers, in 32 bits each."""


@dataclass(frozen=True)
class Runs:
    """One table's runs.

    heads : the first row of each run, marked.
    starts : int64 (runs + 1,); None for dense values.
    sets : uint32 or uint64 (runs,), a bit for each occurring eliminated value; None if these have too many bits.
    eliminated : uint64 (rows,), eliminated values in one word, ascending within a run; None if there are sets.
    values : (rows,), ascending by eliminated value within a run; or dense, (runs, number of eliminated values),
        undefined for absent eliminated values.
    keys : uint64 (result words, runs), the run's part of the result's key.
    """

    heads: Marked
    starts: Any | None
    sets: Any | None
    eliminated: Any | None
    values: Any
    keys: Any

    def as_argument(self) -> NDArray[np.uint64]:
        """The source's struct ``Side``; valid while this object is alive."""
        arrays = self.starts, self.sets, self.eliminated, self.values, self.keys
        return np.array([*(0 if a is None else a.data.ptr for a in arrays), self.heads.count], dtype=np.uint64)


def find_runs(
    keys: Any,
    values: Any,
    heads: Marked,
    eliminated: NDArray[np.int64],
    plan: NDArray[np.int64],
    words: int,
    set_bits: int,
    dense: int,
) -> Runs:
    """Runs of a table in which each run's rows are adjacent.

    heads : the first rows of the runs, which differ from the previous row in another bit than the eliminated ones.
    eliminated, plan : moves of the eliminated values into one word, and of the others into the result's key.
    set_bits : 32 or 64, the width of a set of eliminated values; 0: they are listed instead.
    dense : number of eliminated values, for dense values; 0: values are not rearranged.
    """
    rows = keys.shape[1]
    if heads.count >= MOST_RUNS:
        raise UnsupportedError(
            f"{heads.count:,} rows without the eliminated variables; the cuda backend takes 2^32 - 1"
        )
    starts = None if dense else cupy().empty(heads.count + 1, dtype=np.int64)
    made = cupy().empty((heads.count, dense), dtype=values.dtype) if dense else None
    run_keys = cupy().empty((words, heads.count), dtype=np.uint64)
    sets = cupy().zeros(heads.count, dtype=f"u{set_bits // 8}") if set_bits else None
    unsorted = None if dense else cupy().zeros(1, dtype=np.uint32)
    values_plan = packed_plans(eliminated)[0]
    blocks = -(-rows // _rows_a_block(dense * values.dtype.itemsize))
    payload = C_TYPES[np.dtype(f"u{values.dtype.itemsize}")]
    function = kernel("runs", "write_runs", SET_BITS=set_bits or 32, DENSE=dense, PAYLOAD=payload)
    for number, (moves, count) in enumerate(packed_plans(plan)):
        launch(
            function, blocks, THREADS,
            keys, values, rows, heads.bits, heads.before, heads.count, *values_plan, moves, count, int(number > 0),
            words, *map(or_null, (starts, sets, made)), run_keys, or_null(unsorted),
        )  # fmt: skip
    if dense:
        return Runs(heads, None, sets, None, made, run_keys)
    listed = None if set_bits else _listed(keys, heads, values_plan, unsorted)[0]
    if unsorted is not None and int(unsorted[0]):
        both = _listed(keys, heads, values_plan, unsorted)
        bits = int((eliminated[:, 2] + eliminated[:, 4]).max())
        both, values = sort_rows(both, values, [(0, 0, bits), (1, 0, heads.count.bit_length())])
        listed = None if set_bits else both[0]
    return Runs(heads, starts, sets, listed, values, run_keys)


def _rows_a_block(record_bytes: int) -> int:
    """Rows of a block of write_runs, as in the source."""
    return THREADS * (4 if record_bytes <= 16 else 2 if record_bytes <= 32 else 1)


def _listed(keys: Any, heads: Marked, plan: tuple[NDArray[np.void], int], unsorted: Any) -> Any:
    """Eliminated value and run of each row, uint64 (2, rows)."""
    out = cupy().empty((2, heads.rows), dtype=np.uint64)
    marks = heads.bits, heads.before
    blocks = -(-heads.rows // THREADS)
    function = kernel("runs", "read_eliminated", SET_BITS=32, DENSE=0, PAYLOAD=C_TYPES[np.dtype(np.uint32)])
    launch(function, blocks, THREADS, keys, heads.rows, *marks, *plan, out, unsorted)
    return out
