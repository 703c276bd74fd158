"""Fused join + maximise on the device against the unfused pair, for :file:`gpu_kernels.py --fused`.

Both tables are over (e, own variable, k) and sorted, as bucket elimination has them; e is eliminated, k says the group.
"Unfused" is the join by gather on (e, k), the sort of its rows and the maximum of each group: the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from oocbe.algebra.inputs import arrange, match
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.kernels import backend_named
from oocbe.model.semiring import MAX_SUM
from oocbe.tables.layout import Layout
from oocbe.tables.table import Table

KERNELS = backend_named("cuda")
LARGEST_RESULT = 2_000_000_000
GROUPS = (10_000, 100_000, 1_000_000, 10_000_000)


CASES = (2, "even"), (8, "even"), (8, "power law"), (1 << 20, "one large")
"""Values of the eliminated variable, and sizes of groups; one large: half of the rows are in one group."""


def table(own: str, own_size: int, domain: int, groups: int, rows: int, sizes: str, seed: int) -> Table:
    """A sorted table of about so many rows on the device; domain, sizes : see :data:`CASES`."""
    generator = cp.random.default_rng(seed)
    layout = Layout(("e", own, "k"), (domain, own_size, groups))
    e_field, own_field, k_field = (layout.field(name) for name in layout.scope)
    uniform = generator.random(rows)
    k = ((uniform**2 if sizes == "power law" else uniform) * groups).astype(np.uint64)
    if sizes == "one large":
        k[: rows // 2] = 0
    e = generator.integers(0, domain, rows, dtype=np.uint64)
    keys = generator.integers(0, own_size, rows, dtype=np.uint64) << np.uint64(own_field.shift)
    keys |= e << np.uint64(e_field.shift)
    keys |= k << np.uint64(k_field.shift)
    del uniform, k, e
    keys = KERNELS.sort_rows(keys[np.newaxis], cp.zeros(rows, np.int32), [(0, 0, layout.bits)], own=True)[0]
    first = KERNELS.group_starts(keys, np.array([0xFFFFFFFFFFFFFFFF], dtype=np.uint64))[:-1]
    keys = cp.ascontiguousarray(keys[:, first])
    values = generator.integers(0, 1 << 20, keys.shape[1], dtype=np.int32)
    return Table(layout, keys, values, MAX_SUM, is_sorted=True)


def joined_rows(f: Table, g: Table) -> int:
    """Rows of the join of two tables on (e, k)."""
    first = arrange(f, ("e", "k", f.scope[1]), ("e", "k"), f.values.dtype, KERNELS)
    second = arrange(g, ("e", "k", g.scope[1]), ("e", "k"), g.values.dtype, KERNELS)
    return match(first, second, ("e", "k"), KERNELS).joined_rows


def measure(sizes: list[int], seconds_of: Callable[[Callable[[], Any]], float]) -> None:
    """Print one line a case; results are compared where the joined rows fit in memory."""
    names = ("rows of one", "of the other", "groups", "domain", "sizes", "joined rows", "result rows", "ms")
    print("".join(f"{name:>14}" for name in (*names, "10^9 joined/s", "unfused")))
    for rows in sizes:
        for groups in GROUPS:
            if groups * 10 > rows:
                continue
            for domain, sizes in CASES:
                measure_case(rows, groups, domain, sizes, seconds_of)


def measure_case(rows: int, groups: int, domain: int, sizes: str, seconds_of: Any) -> None:
    # Runs hold about half of their values. Two such tables of 10^8 rows in 10^4 groups make more rows than fit on the
    # device: then the second table is smaller.
    own = max(2, 2 * rows // (groups * domain))
    own_inner = max(2, min(own, LARGEST_RESULT // (groups * own)))
    f = table("a", own, domain, groups, rows, sizes, 1)
    g = table("b", own_inner, domain, groups, min(rows, groups * domain * own_inner // 2), sizes, 2)
    joined = joined_rows(f, g)
    result = join_maximise(f, g, "e", backend=KERNELS)
    rows_out = result.rows
    compared = ""
    seconds = seconds_of(lambda: join_maximise(f, g, "e", backend=KERNELS))
    if joined * 60 < cp.cuda.runtime.memGetInfo()[1] // 2:
        unfused = maximise(join_sum(f, g, backend=KERNELS), "e", backend=KERNELS)
        assert (unfused.rows, int(unfused.values.sum(dtype=np.int64))) == (
            rows_out,
            int(result.values.sum(dtype=np.int64)),
        )
        del unfused, result
        slow = seconds_of(lambda: maximise(join_sum(f, g, backend=KERNELS), "e", backend=KERNELS))
        compared = f"{slow / seconds:.1f} x"
    numbers = f.rows, g.rows, groups, domain, joined, rows_out
    print("".join(f"{number:14,}" for number in numbers[:4]), f"{sizes:>13}", end="")
    print("".join(f"{number:14,}" for number in numbers[4:]), end="")
    print(f"{seconds * 1e3:14.2f}{joined / seconds / 1e9:14.1f}{compared:>14}", flush=True)
    cp.get_default_memory_pool().free_all_blocks()
