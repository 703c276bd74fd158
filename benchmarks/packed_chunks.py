"""Stored tables with packed chunks against columns in zstd: bytes a row, and rows a second to write and to read.

    python benchmarks/packed_chunks.py            # 16 million rows of each kind
    python benchmarks/packed_chunks.py --rows 1000000 --folder /scratch

Kinds of tables, keys of 40 bits and int32 values from 0 to 999: sorted keys, one in ten of all; keys grouped by their
low bits, such as a join writes; keys in no order. Reading is from the page cache, so that decoding and checking are
what is measured; writing includes bringing every file to disk, which takes most of its time: bytes decide.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import describe_run, print_table

from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable

BITS = 40


def keys_of(kind: str, rows: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    keys = np.cumsum(rng.geometric(0.1, rows)).astype(np.uint64) & np.uint64((1 << BITS) - 1)
    if kind == "grouped":
        return ((keys << np.uint64(16)) | (keys >> np.uint64(BITS - 16))) & np.uint64((1 << BITS) - 1)
    return rng.permutation(keys) if kind == "shuffled" else keys


def measure(kind: str, codec: str, rows: int, folder: Path) -> list[str]:
    path = folder / f"{kind}-{codec}"
    keys, values = keys_of(kind, rows)[np.newaxis], np.random.default_rng(2).integers(0, 1000, rows, dtype=np.int32)
    begin = time.perf_counter()
    with StoredTable.create(path, Layout(("x",), (1 << BITS,)), np.int32, codec=codec) as writer:
        for start in range(0, rows, 1 << 22):
            writer.append(keys[:, start : start + (1 << 22)], values[start : start + (1 << 22)])
    written = time.perf_counter() - begin
    table = StoredTable.open(path)
    out_keys, out_values = np.zeros((1, 1 << 22), dtype=np.uint64), np.zeros(1 << 22, dtype=np.int32)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        for start in range(0, rows, 1 << 22):
            count = min(1 << 22, rows - start)
            table.read_into(start, out_keys[:, :count], out_values[:count])
        seconds.append(time.perf_counter() - begin)
        assert np.array_equal(out_values[:count], values[start:])
    result = [kind, codec, f"{table.stored_bytes / rows:.2f}", f"{rows / written / 1e6:.0f}"]
    shutil.rmtree(path)
    return [*result, f"{rows / min(seconds) / 1e6:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--folder", type=Path, help="where to put the tables (default: a temporary folder)")
    options = parser.parse_args()
    lines = [["keys", "codec", "bytes a row", "million rows/s written", "million rows/s read"]]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for kind in ("sorted", "grouped", "shuffled"):
            measure(kind, "packed", 5000, Path(folder))  # compiled code is loaded before the clock starts
            lines += [measure(kind, codec, options.rows, Path(folder)) for codec in ("packed", "zstd")]
    print_table(lines)
    print(f"\n{options.rows:,} rows of 12 bytes; {describe_run(['zarr', 'numcodecs'])}")


if __name__ == "__main__":
    main()
