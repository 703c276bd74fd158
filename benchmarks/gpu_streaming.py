"""Join sum + maximise of tables in main memory that are larger than the device memory allowed, against the bus.

    python benchmarks/gpu_streaming.py [--rows 1e9] [--own 10] [--domain 5] [--filled 0.9] [--share 8] [--pinned]
        [--kept] [--packed] [--gpus 1 2] [--trace FILE]

Two sorted tables over (e, own variable, k), a random 9 of 10 of their rows kept, are made on the device and brought to
main memory; e is eliminated. ``--own`` is the number of values of the own variables: with 50, the result has 5.5 times
as many rows as both tables. ``--domain`` is the number of values of e, ``--filled`` the share of rows that are kept:
with many values and a small share, few rows of a large group meet. The device may use 1 / share of the inputs' bytes.
Reported: bytes in and out, what the bus carries both ways at once (measured in the same run), and the share of the
run's time that the larger direction alone would take. Some groups are checked against every combination of their rows.
``--trace`` adds runs that write a trace. ``--packed`` measures the same tables packed as well, beside the bus of their
own bytes and of the rows' bytes. ``--kept`` adds runs whose results take memory that is kept for them
(:func:`oocbe.result_memory`), filled and free again before. ``--gpus`` repeats all runs with at most so many GPUs, in
turn; the bus is that of all of them at once.
"""

from __future__ import annotations

import argparse
import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import cupy as cp
import cupyx
import numpy as np

import oocbe
from oocbe.algebra.operators import join_maximise
from oocbe.kernels.cuda.gpus import on_gpus
from oocbe.kernels.cuda.transfer.pinned import is_pinned
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.machine import DEVICE_MEMORY_VARIABLE, use_gpus
from oocbe.runtime.process_memory import peak_memory
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.table import Table

CHUNK_ROWS = 50 << 20
CHECKED_ROWS = 10_000


def bus_bandwidth(gpus: int) -> float:
    """Bytes a second each way, both ways and on so many GPUs at once, between pinned memory and the devices."""
    count, size = 8, 256 << 20
    copies = []
    for gpu in range(gpus):
        with cp.cuda.Device(gpu):
            pinned = [cupyx.empty_pinned(size, np.uint8) for _ in range(4)]
            device = [cp.empty(size, np.uint8) for _ in range(4)]
            copies.append((gpu, pinned, device, [cp.cuda.Stream(non_blocking=True) for _ in range(2)]))
    best = 0.0
    for _ in range(3):
        begin = time.perf_counter()
        for turn, (gpu, pinned, device, streams) in product(range(count), copies):
            inward, outward = turn % 2, 2 + turn % 2
            with cp.cuda.Device(gpu):
                cp.cuda.runtime.memcpyAsync(
                    device[inward].data.ptr, pinned[inward].ctypes.data, size, 1, streams[0].ptr
                )
                cp.cuda.runtime.memcpyAsync(
                    pinned[outward].ctypes.data, device[outward].data.ptr, size, 2, streams[1].ptr
                )
        for gpu, *_ in copies:
            cp.cuda.Device(gpu).synchronize()
        best = max(best, gpus * count * size / (time.perf_counter() - begin))
    return best


def make_table(own: str, count: int, domain: int, groups: int, filled: float, seed: int, pinned: bool) -> Table:
    """A sorted table in main memory: a share of the complete one's rows, values by chance; count : of own values."""
    layout = Layout(("e", own, "k"), (domain, count, groups))
    shifts = [np.uint64(layout.field(name).shift) for name in layout.scope]
    group_rows = domain * count
    most, chunk = int(groups * group_rows * filled * 1.02) + 1000, max(1, CHUNK_ROWS // group_rows)
    empty: Any = cupyx.empty_pinned if pinned else np.empty
    keys, values = empty(most, np.uint64), empty(most, np.int32)
    generator = cp.random.default_rng(seed)
    rows = 0
    for first in range(0, groups, chunk):
        index = cp.flatnonzero(generator.random(min(chunk, groups - first) * group_rows) < filled).astype(np.uint64)
        key = index % np.uint64(domain) << shifts[0] | index // np.uint64(domain) % np.uint64(count) << shifts[1]
        key |= (index // np.uint64(group_rows) + np.uint64(first)) << shifts[2]
        value = generator.integers(0, 1 << 20, len(key), dtype=np.int32)
        key.get(out=keys[rows : rows + len(key)])
        value.get(out=values[rows : rows + len(key)])
        rows += len(key)
    cp.get_default_memory_pool().free_all_blocks()
    return Table(layout, keys[np.newaxis, :rows], values[:rows], MAX_SUM, is_sorted=True)


def check(f: Table, g: Table, result: Table, groups: int) -> None:
    """Some groups, of about :data:`CHECKED_ROWS` rows, by every combination of their rows."""
    rng = np.random.default_rng(5)
    for group in rng.integers(0, groups, max(1, CHECKED_ROWS * groups // f.rows)).tolist():
        best: dict[tuple[int, int], int] = {}
        parts = []
        for table in (f, g):
            shift = np.uint64(table.layout.field("k").shift)
            low, high = np.searchsorted(table.keys[0], np.array([group, group + 1], dtype=np.uint64) << shift)
            part = Table(table.layout, table.keys[:, low:high].copy(), table.values[low:high], MAX_SUM, is_sorted=True)
            parts.append(part.to_dict())
        by_e: dict[int, list[tuple[int, int]]] = {}
        for (e, b, _), value in parts[1].items():
            by_e.setdefault(e, []).append((b, value))
        for (e, a, _), value1 in parts[0].items():
            for b, value2 in by_e.get(e, []):
                best[b, a] = max(best.get((b, a), -1), value1 + value2)
        shift = np.uint64(result.layout.field("k").shift)
        low, high = np.searchsorted(result.keys[0], np.array([group, group + 1], dtype=np.uint64) << shift)
        part = Table(result.layout, result.keys[:, low:high].copy(), result.values[low:high], MAX_SUM, is_sorted=True)
        places = [result.layout.place(name) for name in ("b", "a")]
        assert {tuple(key[p] for p in places): value for key, value in part.to_dict().items()} == best, group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e9, help="of each table")
    parser.add_argument("--own", type=int, default=10, help="values of the variable that a table does not share")
    parser.add_argument("--domain", type=int, default=5, help="values of the eliminated variable")
    parser.add_argument("--filled", type=float, default=0.9, help="share of the complete tables' rows")
    parser.add_argument(
        "--share", type=float, default=8, help="the device may use so small a part of the inputs' bytes"
    )
    parser.add_argument("--pinned", action="store_true", help="inputs in pinned memory")
    parser.add_argument("--kept", action="store_true", help="results in memory kept for them, too")
    parser.add_argument("--packed", action="store_true", help="the same tables packed as well")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--gpus", type=int, nargs="+", default=[None], help="numbers of GPUs")
    parser.add_argument("--trace", type=Path, help="write a trace of one more run")
    arguments = parser.parse_args()
    groups = max(1, int(arguments.rows / (arguments.domain * arguments.own * arguments.filled)))
    buses = {count: bus_bandwidth(count or 1) for count in arguments.gpus}
    sizes = arguments.own, arguments.domain, groups, arguments.filled
    f, g = (make_table(name, *sizes, seed, arguments.pinned) for name, seed in (("a", 1), ("b", 2)))
    cp.get_default_memory_pool().free_all_blocks()
    limit = int((f.nbytes + g.nbytes) / arguments.share)
    os.environ[DEVICE_MEMORY_VARIABLE] = str(limit)
    on_gpus(range(max(count or 1 for count in arguments.gpus)), lambda _: None, lambda: None)  # short work starts none
    row_bytes = 0

    def measure(kind: str, own_f: Any, own_g: Any) -> int:
        """Runs in turn with each number of GPUs; the bytes of the result."""
        nonlocal row_bytes
        for turn, count in product(range(arguments.repeat), arguments.gpus):
            with use_gpus(count):
                result, seconds = timed(own_f, own_g)
            row_bytes = row_bytes or max(f.nbytes + g.nbytes, result.nbytes)
            name = kind if count is None else f"{kind}, {count} GPUs"
            report(name, own_f, own_g, result, buses[count], row_bytes, seconds, limit)
            if "kept" in kind:
                assert is_pinned(result.keys[0] if isinstance(result, Table) else result.columns[0].words)
            if turn == 0:
                check(f, g, result if isinstance(result, Table) else result.to_table(), groups)
            result_bytes = int(result.nbytes)
            del result
        traced(arguments.trace, kind, own_f, own_g)
        return result_bytes

    kinds = [("rows", f, g)]
    if arguments.packed:
        begin = time.perf_counter()
        kinds.append(("packed", *(packed(table, arguments.pinned) for table in (f, g))))
        print(f"packed in {time.perf_counter() - begin:.1f} s", flush=True)
    for kind, own_f, own_g in kinds:
        result_bytes = measure(kind, own_f, own_g)
        if arguments.kept:
            begin = time.perf_counter()
            with oocbe.result_memory(int(1.05 * result_bytes) + (64 << 20)):
                print(f"memory for results kept in {time.perf_counter() - begin:.1f} s", flush=True)
                measure(f"{kind}, kept", own_f, own_g)


def timed(f: Any, g: Any) -> tuple[Any, float]:
    """The result of one run, and its seconds."""
    begin = time.perf_counter()
    result = join_maximise(f, g, "e", backend="cuda")
    return result, time.perf_counter() - begin


def traced(path: Path | None, kind: str, f: Any, g: Any) -> None:
    """One more run, with a trace beside ``path``."""
    if path:
        about = f"join_maximise of {f.rows + g.rows:,} rows through the device: {kind}"
        name = f"{path.name.split('.')[0]}-{kind.replace(', ', '-')}.json.gz"
        with oocbe.trace(path.with_name(name), about=about):
            join_maximise(f, g, "e", backend="cuda")


def packed(table: Table, pinned: bool) -> PackedTable:
    """The table packed, in pinned memory or not."""
    made = PackedTable.pack(table)
    if pinned:
        for column in made.columns:
            words = cupyx.empty_pinned(len(column.words), np.uint64)
            words[:] = column.words
            object.__setattr__(column, "words", words)
    return made


def report(kind: str, f: Any, g: Any, result: Any, bus: float, row_bytes: int, seconds: float, limit: int) -> None:
    """One line: sizes, rates, and the share of the bus of the bytes themselves and of those that rows have."""
    bytes_in = f.nbytes + g.nbytes
    peak = peak_memory()
    pool = cp.get_default_memory_pool()
    print(
        f"{kind}: {f.rows:,} + {g.rows:,} -> {result.rows:,} rows; "
        f"in {bytes_in / 1e9:.2f} GB, out {result.nbytes / 1e9:.2f} GB; "
        f"bus {bus / 1e9:.1f} GB/s each way; took {seconds:.3f} s: "
        f"{max(bytes_in, result.nbytes) / bus / seconds:.0%} of the bus, as rows {row_bytes / bus / seconds:.0%}; "
        f"device pool {pool.total_bytes() / 1e9:.2f} of {limit / 1e9:.2f} GB, resident peak {peak / 1e9:.1f} GB",
        flush=True,
    )


if __name__ == "__main__":
    main()
