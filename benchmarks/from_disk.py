"""Stored tables from disk, not from the system's cache, against the disk's own bandwidth measured in the same run.

    python benchmarks/from_disk.py --rows 1.6e8 --folder /scratch
    python benchmarks/from_disk.py --rows 1e9 --sorted --memory 8GiB --backend cuda --trace run.json.gz

Two synthetic tables over (e, own variable, k) are made. Then, several times, each time after their files were dropped
from the system's cache: the files are read as they are by eight threads (``disk``), their rows are read and decoded in
pieces (``rows``; with ``without reading ahead`` beside it), they are joined and e is maximised out (``operator``), and
they are read as they are once more while files of the result's sizes are written and forced to disk (``disk, reading
and writing``: what no operator can do without). Medians are reported, as stored bytes a second, read and written, and
as shares of the disk. Tables that are not sorted take scratch files besides, which do not count. The last run of the
operator is traced where ``--trace`` says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from measuring import describe_run, print_table

import oocbe
from oocbe.algebra.operators import join_maximise
from oocbe.execution.pipeline import run_in_order
from oocbe.execution.sources import Buffers, StoredRows
from oocbe.kernels.cpu.threads import thread_count
from oocbe.stress.tables import SyntheticTable
from oocbe.tables import disk
from oocbe.tables.stored import StoredTable

READERS = WRITERS = 8
OPERATOR, BOTH_WAYS = "operator", "disk, reading and writing"
PIECE_CHUNKS = 2


def files_of(folders: list[Path]) -> list[Path]:
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def drop_from_cache(folders: list[Path]) -> None:
    """Have the system forget the files' contents."""
    for path in files_of(folders):
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_raw(folders: list[Path]) -> None:
    def read(path: Path) -> None:
        buffer = bytearray(1 << 22)
        handle = os.open(path, os.O_RDONLY)
        while os.readv(handle, [buffer]):
            pass
        os.close(handle)

    with ThreadPoolExecutor(READERS) as pool:
        list(pool.map(read, files_of(folders)))


def read_and_write(folders: list[Path], sizes: list[int], content: bytes, target: Path) -> None:
    """Read all files while files of some sizes are written and forced to disk: what an operator cannot do without.

    Files are written as stored tables are, and forced to disk at the end, by several threads: the fastest of what was
    tried.
    """
    paths = [target / str(number) for number in range(len(sizes))]

    def write(number: int) -> None:
        disk.write_file(paths[number], memoryview(content)[: sizes[number]])

    with ThreadPoolExecutor(WRITERS) as pool:
        written = pool.map(write, range(len(sizes)))
        read_raw(folders)
        list(written)
        list(pool.map(disk.synchronise, paths))


class Piece:
    """Some rows of a table, read into a stream's buffers."""

    def __init__(self, source: StoredRows, start: int, stop: int, buffers: list[Buffers]) -> None:
        self.source, self.start, self.stop, self.buffers = source, start, stop, buffers

    def __call__(self, stream: int) -> Iterator[int]:
        yield self.buffers[stream].load("rows", self.source, self.start, self.stop).rows


def read_rows(folders: list[Path]) -> None:
    streams = max(2, thread_count())
    buffers = [Buffers() for _ in range(streams)]
    for folder in folders:
        table = StoredTable.open(folder)
        source = StoredRows(table)
        ranges = source.ranges(PIECE_CHUNKS * table.chunk_rows)
        assert sum(run_in_order((Piece(source, *r, buffers) for r in ranges), streams)) == table.rows


def without_reading_ahead(folders: list[Path]) -> None:
    ask, disk.will_need = disk.will_need, lambda path: None
    try:
        read_rows(folders)
    finally:
        disk.will_need = ask


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    begin, before = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begin, time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=4e7, help="of each table (default 4e7)")
    parser.add_argument("--sorted", action="store_true", help="tables in the order of their keys")
    parser.add_argument("--memory", default="1GiB", help="limit of the operator (default 1GiB)")
    parser.add_argument("--backend", default="cpu", help="cpu (default), cuda or auto")
    parser.add_argument("--streams", type=int, help="pieces at work at a time")
    parser.add_argument("--folder", type=Path, help="where to put everything (default: a temporary folder)")
    parser.add_argument("--repeat", type=int, default=5, help="of each measurement (default 5)")
    parser.add_argument("--skip-operator", action="store_true", help="measure reading alone")
    parser.add_argument("--skip-rows", action="store_true", help="do not measure reading of rows")
    parser.add_argument("--trace", type=Path, help="write a trace of the last run of the operator")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="oocbe-benchmark-", dir=options.folder))
    try:
        rows = int(options.rows)
        shape = {"rows": rows, "groups": max(1, rows // 32), "sizes": "uniform", "is_sorted": options.sorted}
        tables = [SyntheticTable(**shape, own=own, seed=i).write(folder / own) for i, own in enumerate("ab")]
        measure(options, folder, tables)
    finally:
        shutil.rmtree(folder)
    print(f"\n{describe_run()}")


def measure(options: argparse.Namespace, folder: Path, tables: list[StoredTable]) -> None:
    folders = [table.path for table in tables]
    stored = sum(table.stored_bytes for table in tables)

    def operate(turn: int) -> None:
        about = f"join_maximise of {sum(t.rows for t in tables):,} stored rows, memory {options.memory}"
        with oocbe.trace(options.trace, about) if turn + 1 == options.repeat and options.trace else nullcontext():
            join_maximise(
                *tables, "e", output=folder / "result", scratch=folder, memory=options.memory,
                backend=options.backend, streams=options.streams,
            )  # fmt: skip

    read_rows(folders)  # compiled code is loaded before the clock starts
    found: dict[str, list[tuple[float, float]]] = {}
    for turn in range(options.repeat):
        ways = {"disk": read_raw, "rows": read_rows, "rows, without reading ahead": without_reading_ahead}
        if options.skip_rows:
            ways = {"disk": read_raw}
        for name, way in ways.items():
            drop_from_cache(folders)
            found.setdefault(name, []).append(timed(lambda way=way: way(folders)))
        if not options.skip_operator:
            drop_from_cache(folders)
            found.setdefault(OPERATOR, []).append(timed(lambda turn=turn: operate(turn)))
            result = StoredTable.open(folder / "result")
            written, rows_out = result.stored_bytes, result.rows
            sizes = [path.stat().st_size for path in files_of([result.path])]
            shutil.rmtree(folder / "result")
            drop_from_cache(folders)
            (folder / "copies").mkdir()
            way = partial(read_and_write, folders, sizes, os.urandom(max(sizes)), folder / "copies")
            found.setdefault(BOTH_WAYS, []).append(timed(way))
            shutil.rmtree(folder / "copies")
    medians = {name: statistics.median(seconds for seconds, _ in times) for name, times in found.items()}
    lines = [["", "seconds", "processor s", "stored GB/s", "million rows/s", "share of the disk"]]
    rows = sum(table.rows for table in tables)
    for name, times in found.items():
        seconds, processor = (statistics.median(values) for values in zip(*times, strict=True))
        moved = stored + (written if name in (OPERATOR, BOTH_WAYS) else 0)
        rates = f"{moved / 1e9 / seconds:.2f}", f"{rows / 1e6 / seconds:.0f}"
        shares = [f"{medians['disk'] / seconds:.0%}"]
        if name == OPERATOR:
            shares.append(f"{medians[BOTH_WAYS] / seconds:.0%} of {BOTH_WAYS}")
        lines.append([name, f"{seconds:.2f}", f"{processor:.2f}", *rates, ", ".join(shares)])
    order = "sorted" if options.sorted else "not sorted"
    print(f"{rows:,} rows, {order}, {stored / 1e9:.2f} GB stored, {stored / rows:.2f} bytes a row", end="")
    print("" if options.skip_operator else f"; result {rows_out:,} rows, {written / 1e9:.2f} GB, {options.memory}")
    print_table(lines)


if __name__ == "__main__":
    main()
