"""The operators' sort on the device beside the library that it calls, for :file:`gpu_kernels.py --sorts`.

Rows are a uint64 key word and an int32 or int64 value, sorted by all 64 bits of the key, or by 32 of them. The peers
are ``cuda.compute.radix_sort`` of the Python package ``cuda-cccl``, called directly, and CUB's pair sort as nvcc
compiles it, where there is one. They sort into buffers that are there before, with temporary memory that is there
before; ours takes its results from CuPy's pool each time, as operators do. All are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy as cp
import numpy as np

from oocbe.kernels import backend_named

KERNELS = backend_named("cuda")
ROUNDS = 3
"""Times that all sorts are timed in turn; the medians are compared."""

Sort = Callable[[], tuple[Any, Any]]
"""Sorts keys (1, rows) and values, and returns both."""


def cccl_sort(keys: Any, values: Any, bits: int) -> Sort | None:
    """The sort of the Python package ``cuda-cccl``; None where it cannot be loaded, which is said once."""
    try:
        from cuda.compute import SortOrder, make_radix_sort
    except (ImportError, RuntimeError, OSError) as error:
        _say_once(f"cuda.cccl is left out: {type(error).__name__}: {error}")
        return None
    out_keys, out_values = cp.empty_like(keys), cp.empty_like(values)
    arrays = {"d_in_keys": keys[0], "d_out_keys": out_keys[0], "d_in_values": values, "d_out_values": out_values}
    sort = make_radix_sort(**arrays, order=SortOrder.ASCENDING)
    given = {**arrays, "num_items": len(values), "begin_bit": 0, "end_bit": bits}
    temporary = cp.empty(sort(temp_storage=None, **given), dtype=np.uint8)

    def run() -> tuple[Any, Any]:
        sort(temp_storage=temporary, **given)
        return out_keys, out_values

    return run


_said: set[str] = set()


def _say_once(what: str) -> None:
    if what not in _said:
        print(what)
        _said.add(what)


def measure(
    sizes: Sequence[int],
    seconds_of: Callable[[Sort], float],
    cub_sort: Callable[[Any, Any, int], Sort | None],
) -> None:
    """Print a line for each size, value and number of bits: milliseconds, and ours as a share of each peer's speed.

    seconds_of : times a sort. cub_sort : CUB's, of int32 values only; None where it cannot be compiled.
    """
    print(f"{'rows':>13}{'bits':>6}{'value':>7}{'ours ms':>10}{'cccl ms':>10}{'cub ms':>10}{'of cccl':>9}{'of cub':>8}")
    for rows in sizes:
        keys = cp.random.default_rng(1).integers(0, 1 << 63, rows, dtype=np.uint64)
        keys = ((keys << np.uint64(1)) | (keys >> np.uint64(62)))[np.newaxis]  # all 64 bits vary
        for dtype in (np.int32, np.int64):
            values = cp.arange(rows, dtype=dtype)
            for bits in (64, 32):
                _compare(keys, values, bits, seconds_of, cub_sort)
            del values
        del keys
        cp.get_default_memory_pool().free_all_blocks()


def _compare(
    keys: Any,
    values: Any,
    bits: int,
    seconds_of: Callable[[Sort], float],
    cub_sort: Callable[[Any, Any, int], Sort | None],
) -> None:
    sorts: list[Sort | None] = [
        lambda: KERNELS.sort_rows(keys, values, [(0, 0, bits)]),
        cccl_sort(keys, values, bits),
        cub_sort(keys, values, bits) if values.dtype == np.int32 else None,
    ]
    own = KERNELS.sort_rows(keys, values, [(0, 0, bits)])
    for sort in filter(None, sorts[1:]):
        found = sort()
        assert all(bool((a == b).all()) for a, b in zip(found, own, strict=True)), "the sorts differ"
    del own
    times = [[0.0 if sort is None else seconds_of(sort) * 1e3 for sort in sorts] for _ in range(ROUNDS)]
    medians = np.median(times, axis=0).tolist()
    shown = [f"{ms:10.3f}" if ms else f"{'-':>10}" for ms in medians]
    shares = [f"{ms / medians[0]:.0%}" if ms else "-" for ms in medians[1:]]
    print(
        f"{len(values):13,}{bits:6}{values.dtype.name:>7}{''.join(shown)}{shares[0]:>9}{shares[1]:>8}",
        flush=True,
    )
