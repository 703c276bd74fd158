"""Join sum + maximise of two big tables against DuckDB and Polars (streaming): same rows, same answers.

    python benchmarks/operators.py            # both cases, all systems, 50 million rows a table
    python benchmarks/operators.py --scale 0.02 --repeat 1

Each joins T1(a, e, k) with T2(b, e, k) on (e, k), adds the values and takes the maximum over e for each (a, b, k).
e has 8 values. At scale 1 both make 200 million joined rows:

* case A, a small second table: 1,024 values of k; T2 is complete, 8 · 4 = 32 rows for each k. T1 has 25 million pairs
  (a, k) with 2 of the 8 values of e each: 50 million rows, each of which meets 4 rows of T2. Result: 100 million rows.
* case B, two big tables: 1,562,500 values of k, 12.5 million values of (e, k). For each of those T1 has 4 of the 8
  values of a and T2 has 4 of the 8 values of b, at random: 50 million rows each, 4 · 4 joined rows a key. Result: some
  90 million rows (64 · (1 − (3/4)^8) a value of k).

Rows are shuffled. oocbe gets them as packed keys (one 64-bit word) and 32-bit values and sorts them inside the measured
time; the others get three 32-bit columns and a 32-bit value, as an in-memory table of their own, made before the clock
starts. Each system runs in a process of its own. Memory is the peak resident set of that process while the query runs:
input, working memory and result. The answers are checked by the number of result rows, the sum of
their values and a sum over rows of a hash of the full row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ELIMINATED = 8
SYSTEMS = ("oocbe", "duckdb", "polars")
HASH = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
"""Odd multipliers of a, b and k: (a·m1 + b·m2 + k·m3) mod 2^31, times the value, summed in 64 bits."""

Columns = dict[str, NDArray[np.int32]]


def make_case(case: str, scale: float, seed: int = 1) -> tuple[Columns, Columns]:
    """Columns of T1 and T2, rows shuffled."""
    rng = np.random.default_rng(seed)
    if case == "A":
        pairs, groups = int(25_000_000 * scale), 1024
        pair = rng.permutation(pairs)
        first = rng.integers(0, ELIMINATED, pairs)
        second = (first + rng.integers(1, ELIMINATED, pairs)) % ELIMINATED
        t1 = {
            "a": np.concatenate([pair // groups, pair // groups]),
            "e": np.concatenate([first, second]),
            "k": np.concatenate([pair % groups, pair % groups]),
        }
        grid = np.arange(groups * ELIMINATED * 4)
        t2 = {"b": grid % 4, "e": grid // 4 % ELIMINATED, "k": grid // (4 * ELIMINATED)}
    else:
        keys = int(1_562_500 * scale) * ELIMINATED
        t1, t2 = ({name: four_of_eight(rng, keys), **key_columns(keys)} for name in "ab")
    return shuffled(t1, rng), shuffled(t2, rng)


def four_of_eight(rng: np.random.Generator, keys: int) -> NDArray[np.int8]:
    """For each key four different values below eight, at random: the positions of the four least of eight numbers."""
    return np.argsort(rng.random((keys, 8), dtype=np.float32), axis=1)[:, :4].astype(np.int8).ravel()


def key_columns(keys: int) -> dict[str, NDArray[np.int64]]:
    key = np.repeat(np.arange(keys), 4)
    return {"e": key % ELIMINATED, "k": key // ELIMINATED}


def shuffled(columns: dict[str, NDArray[np.integer]], rng: np.random.Generator) -> Columns:
    order = rng.permutation(len(columns["k"]))
    table = {name: column.astype(np.int32)[order] for name, column in columns.items()}
    table["v"] = rng.integers(0, 1000, len(order), dtype=np.int32)
    return table


def load(folder: Path, table: str) -> Columns:
    return {path.stem.split("_")[1]: np.load(path) for path in sorted(folder.glob(f"{table}_*.npy"))}


def run_oocbe(folder: Path) -> dict[str, float]:
    from oocbe.algebra.operators import join_maximise
    from oocbe.tables.layout import Layout
    from oocbe.tables.table import Table

    def table(name: str, own: str) -> Table:
        columns = load(folder, name)
        top = 1 + max(int(np.load(folder / f"{t}_k.npy", mmap_mode="r").max()) for t in ("t1", "t2"))
        layout = Layout((own, "e", "k"), (1 + int(columns[own].max()), ELIMINATED, top))
        keys = np.zeros((1, len(columns["v"])), dtype=np.uint64)
        for variable in layout.scope:
            keys[0] |= columns[variable].astype(np.uint64) << np.uint64(layout.field(variable).shift)
        return Table(layout, keys, columns["v"])

    def part(t: Table, rows: int) -> Table:
        return Table(t.layout, t.keys[:, :rows].copy(), t.values[:rows].copy())

    t1, t2 = table("t1", "a"), table("t2", "b")
    join_maximise(part(t1, 1000), part(t2, 1000), "e")  # compiled code is loaded before the clock starts
    start = start_clock()
    result = join_maximise(t1, t2, "e")
    seconds = time.perf_counter() - start
    memory = peak_bytes()
    sums = np.zeros(2, dtype=np.int64)
    for low in range(0, result.rows, 1 << 20):
        rows = slice(low, low + (1 << 20))
        hashed = np.zeros(len(result.values[rows]), dtype=np.uint64)
        for variable, multiplier in zip("abk", HASH, strict=True):
            f = result.layout.field(variable)
            hashed += ((result.keys[f.word, rows] >> np.uint64(f.shift)) & np.uint64(f.mask)) * np.uint64(multiplier)
        values = result.values[rows].astype(np.int64)
        sums += [values.sum(), ((hashed % np.uint64(1 << 31)).astype(np.int64) % 1009 * values).sum()]
    return {"seconds": seconds, "bytes": memory, "rows": result.rows, "sum": int(sums[0]), "hash": int(sums[1])}


def run_duckdb(folder: Path) -> dict[str, float]:
    import duckdb

    base = duckdb.connect()
    for name in ("t1", "t2"):
        columns = load(folder, name)
        base.register("source", columns)
        base.execute(f"create table {name} as select * from source")
        base.unregister("source")
        del columns
    base.execute("set preserve_insertion_order = false")
    start = start_clock()
    base.execute(
        "create table result as select a, b, t1.k as k, max(t1.v + t2.v) as v "
        "from t1 join t2 on t1.e = t2.e and t1.k = t2.k group by a, b, t1.k"
    )
    seconds = time.perf_counter() - start
    memory = peak_bytes()
    m1, m2, m3 = HASH
    rows, total, hashed = base.execute(
        f"select count(*), sum(v), sum((a::bigint * {m1} + b::bigint * {m2} + k::bigint * {m3}) % (1::bigint << 31) "
        "% 1009 * v) from result"
    ).fetchone()
    return {"seconds": seconds, "bytes": memory, "rows": rows, "sum": int(total), "hash": int(hashed)}


def run_polars(folder: Path) -> dict[str, float]:
    import polars as pl

    t1, t2 = pl.DataFrame(load(folder, "t1")), pl.DataFrame(load(folder, "t2"))
    start = start_clock()
    result = (
        t1.lazy()
        .join(t2.lazy(), on=["e", "k"])
        .group_by("a", "b", "k")
        .agg((pl.col("v") + pl.col("v_right")).max().alias("v"))
        .collect(engine="streaming")
    )
    seconds = time.perf_counter() - start
    memory = peak_bytes()
    wide = [pl.col(c).cast(pl.Int64) * m for c, m in zip("abk", HASH, strict=True)]
    hashed = (wide[0] + wide[1] + wide[2]) % (1 << 31) % 1009 * pl.col("v")
    sums = result.lazy().select(pl.col("v").cast(pl.Int64).sum(), hashed.sum().alias("h")).collect(engine="streaming")
    return {"seconds": seconds, "bytes": memory, "rows": result.height, "sum": sums["v"][0], "hash": sums["h"][0]}


def start_clock() -> float:
    """Forget the peak of memory so far (where the system can), then the time."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return time.perf_counter()


def peak_bytes() -> int:
    """Peak resident set since :func:`start_clock`, or of the whole process where that is not to be had."""
    from oocbe.runtime.process_memory import peak_memory  # after a peer's query

    return peak_memory()


def measure(case: str, system: str, folder: Path, repeat: int) -> dict[str, float]:
    """Best time of several processes, and that process's memory."""
    command = [sys.executable, __file__, "--child", system, "--folder", str(folder)]
    runs = []
    for _ in range(repeat):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{system} failed on case {case} (exit code {done.returncode}):\n{done.stderr}")
        runs.append(json.loads(done.stdout))
    return min(runs, key=lambda r: r["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the 50 million rows (default 1)")
    parser.add_argument("--cases", default="AB", help="which of the cases A and B (default AB)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated (default all three)")
    parser.add_argument("--repeat", type=int, default=2, help="processes a system, the best one counts (default 2)")
    parser.add_argument("--folder", type=Path, help="where to put the input (default: a temporary folder)")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(globals()[f"run_{options.child}"](options.folder)))
        return
    import tempfile

    print(f"{'case':5}{'system':8}{'seconds':>9}{'GiB':>7}{'result rows':>14}{'times as fast':>15}{'memory':>8}")
    for case in options.cases:
        with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
            folder = Path(temporary)
            for name, table in zip(("t1", "t2"), make_case(case, options.scale), strict=True):
                for column, array in table.items():
                    np.save(folder / f"{name}_{column}.npy", array)
            report(case, {s: measure(case, s, folder, options.repeat) for s in options.systems.split(",")})


def report(case: str, results: dict[str, dict[str, float]]) -> None:
    answers = {(r["rows"], r["sum"], r["hash"]) for r in results.values()}
    if len(answers) != 1:
        raise SystemExit(f"case {case}: the answers differ: {results}")
    ours = results.get("oocbe")
    for system, r in results.items():
        line = f"{case:5}{system:8}{r['seconds']:9.2f}{r['bytes'] / 2**30:7.2f}{r['rows']:14,}"
        if ours and system != "oocbe":
            line += f"{r['seconds'] / ours['seconds']:14.1f}x{ours['bytes'] / r['bytes']:8.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
