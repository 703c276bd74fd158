"""Operators out of core against DuckDB with the same memory limit: same rows, same answers.

    python benchmarks/out_of_core.py                      # tables of 4 GiB together, 256 MiB
    python benchmarks/out_of_core.py --gib 0.5 --folder /scratch
    python benchmarks/out_of_core.py --duckdb-memory 256MiB,1GiB,2GiB     # until DuckDB ends with one of them

T1(a, e, k) and T2(b, e, k) are joined on (e, k), values added, and the maximum over e is taken for each (a, b, k). For
each of the values of (e, k), e below 8, each table has 4 of the 8 values of a or b at random: 16 joined rows a value
of (e, k), some 57 result rows a value of k. Values of (e, k) are visited in steps of
the golden section and rows shuffled in stretches of a million, so that neither table is sorted by anything. Half of the
bytes (12 a row: an 8-byte key and a 4-byte value) are T1's.

oocbe reads stored tables and writes one, with ``memory`` as its limit; DuckDB reads tables of its own database file,
three columns of 32 bits and a value of 32, and writes a table there, with ``memory_limit``. Neither is asked to keep an
order. Both input tables are written before the clock starts; the system's file cache is at the disposal of both. Each
runs in a process of its own. CPU seconds are those of all its threads: they say more where other work takes cores. Peak
memory is the process' resident set above what it was before the query. The answers are checked by the number of rows,
the sum of values, and a sum over rows of a hash of the row.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
from measuring import describe_run, print_table
from operators import ELIMINATED, HASH, peak_bytes, start_clock

STRETCH = 1 << 18
"""Values of (e, k) made at a time: 2^20 rows."""

SYSTEMS = ("oocbe", "duckdb")


def stretches(seed: int, keys: int) -> Iterator[dict[str, np.ndarray]]:
    """Columns own, e, k and v, some rows at a time; keys are visited in a scattered order."""
    rng = np.random.default_rng(seed)
    step = next(s for s in range(int(keys * 0.618) | 1, 2 * keys, 2) if np.gcd(s, keys) == 1)
    for start in range(0, keys, STRETCH):
        key = np.arange(start, min(start + STRETCH, keys)) * step % keys
        own = np.argsort(rng.random((len(key), 8), dtype=np.float32), axis=1)[:, :4].ravel()
        key = np.repeat(key, 4)
        order = rng.permutation(len(own))
        columns = {"own": own, "e": key % ELIMINATED, "k": key // ELIMINATED}
        made = {name: column.astype(np.int32)[order] for name, column in columns.items()}
        made["v"] = rng.integers(0, 1000, len(own), dtype=np.int32)
        yield made


def make_inputs(folder: Path, keys: int) -> None:
    """Both tables for both systems."""
    import duckdb

    from oocbe.tables.layout import Layout
    from oocbe.tables.stored import StoredTable

    base = duckdb.connect(str(folder / "base.duckdb"))
    base.execute("set memory_limit='2GiB'")
    base.execute("set preserve_insertion_order = true")
    for seed, (name, own) in enumerate((("t1", "a"), ("t2", "b"))):
        layout = Layout((own, "e", "k"), (8, ELIMINATED, -(-keys // ELIMINATED)))
        base.execute(f"create table {name} ({own} integer, e integer, k integer, v integer)")
        with StoredTable.create(folder / name, layout, np.int32) as writer:
            for columns in stretches(seed, keys):
                packed = np.zeros((1, len(columns["v"])), dtype=np.uint64)
                for variable, column in zip(layout.scope, ("own", "e", "k"), strict=True):
                    packed[0] |= columns[column].astype(np.uint64) << np.uint64(layout.field(variable).shift)
                writer.append(packed, columns["v"])
                base.register("source", columns)
                base.execute(f"insert into {name} select own, e, k, v from source")
                base.unregister("source")
    base.close()


def run_oocbe(folder: Path, memory: str, operators: str, trace: str | None = None) -> dict[str, float]:
    import oocbe

    t1, t2 = (oocbe.StoredTable.open(folder / name) for name in ("t1", "t2"))
    small = [t.read(0, 50_000) for t in (t1, t2)]
    for name in ("fused", "joined"):  # compiled code is loaded before the clock starts
        run_operators(small, folder, memory, name, "warm ")
    before, cpu, begin = peak_bytes(), time.process_time(), start_clock()
    with oocbe.trace(trace) if trace else nullcontext():
        result = run_operators([t1, t2], folder, memory, operators)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    memory_used = peak_bytes() - before
    rows, sums = result.rows, np.zeros(2, dtype=np.int64)
    for chunk in result.chunks():
        hashed = np.zeros(chunk.rows, dtype=np.uint64)
        for variable, multiplier in zip("abk", HASH, strict=True):
            f = chunk.layout.field(variable)
            hashed += ((chunk.keys[f.word] >> np.uint64(f.shift)) & np.uint64(f.mask)) * np.uint64(multiplier)
        values = chunk.values.astype(np.int64)
        sums += [values.sum(), ((hashed % np.uint64(1 << 31)).astype(np.int64) % 1009 * values).sum()]
    checks = {"sum": int(sums[0]), "hash": int(sums[1])}
    return {"seconds": seconds, "cpu": cpu, "bytes": memory_used, "rows": rows, **checks}


def run_operators(tables, folder: Path, memory: str, operators: str, prefix: str = ""):
    """The fused operator, or the two one after the other."""
    import oocbe

    settings = {"memory": memory, "scratch": folder}
    if operators == "fused":
        return oocbe.join_maximise(*tables, "e", output=folder / f"{prefix}fused", **settings)
    joined = oocbe.join_sum(*tables, output=folder / f"{prefix}joined", **settings)
    return oocbe.maximise(joined, "e", output=folder / f"{prefix}maximised", **settings)


def run_duckdb(folder: Path, memory: str, operators: str, threads: int | None = None) -> dict[str, float]:
    import duckdb

    base = duckdb.connect(str(folder / "base.duckdb"))
    for setting in (
        f"memory_limit='{memory}'", "preserve_insertion_order=false", f"temp_directory='{folder}/spill'",
        *([] if threads is None else [f"threads={threads}"]),
    ):  # fmt: skip
        base.execute(f"set {setting}")
    base.execute("select count(*) from (select a, max(v) from t1 where k < 100 group by a)").fetchone()
    before, cpu, begin = peak_bytes(), time.process_time(), start_clock()
    base.execute(
        "create or replace table result as select a, b, t1.k as k, max(t1.v + t2.v) as v "
        "from t1 join t2 on t1.e = t2.e and t1.k = t2.k group by a, b, t1.k"
    )
    base.execute("checkpoint")
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    memory_used = peak_bytes() - before
    m1, m2, m3 = HASH
    rows, total, hashed = base.execute(
        f"select count(*), sum(v), sum((a::bigint * {m1} + b::bigint * {m2} + k::bigint * {m3}) % (1::bigint << 31) "
        "% 1009 * v) from result"
    ).fetchone()
    checks = {"sum": int(total), "hash": int(hashed)}
    return {"seconds": seconds, "cpu": cpu, "bytes": memory_used, "rows": rows, **checks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0, help="bytes of both tables together (default 4 GiB)")
    parser.add_argument("--memory", default="256MiB", help="limit for both (default 256MiB)")
    parser.add_argument("--operators", choices=("fused", "joined"), default="fused", help="one step, or two")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated (default both)")
    parser.add_argument("--folder", type=Path, help="where to put everything (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=3600, help="time limit for each system")
    parser.add_argument(
        "--duckdb-memory", help="comma-separated limits for DuckDB, tried in turn until it ends (default: --memory)"
    )
    parser.add_argument("--duckdb-threads", type=int, help="fewer threads need less memory (default: DuckDB's own)")
    parser.add_argument("--trace", help="write a trace of oocbe's run")
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        more = (options.trace,) if options.child == "oocbe" else (options.duckdb_threads,)
        print(json.dumps(globals()[f"run_{options.child}"](options.folder, options.memory, options.operators, *more)))
        return
    keys = int(options.gib * 2**30 / 12 / 2 / 4) // ELIMINATED * ELIMINATED
    folder = Path(tempfile.mkdtemp(prefix="oocbe-benchmark-", dir=options.folder))
    try:
        make_inputs(folder, keys)
        lines = [["system", "limit", "seconds", "CPU seconds", "MiB above start", "result rows", "times as fast"]]
        results: dict[str, dict[str, float]] = {}
        limits = {"oocbe": [options.memory], "duckdb": (options.duckdb_memory or options.memory).split(",")}
        for system, limit in ((s, limit) for s in options.systems.split(",") for limit in limits[s]):
            if system in results:
                continue
            command = [
                sys.executable, __file__, "--child", system, "--folder", str(folder), "--memory", limit,
                "--operators", options.operators,
                *([] if options.trace is None else ["--trace", options.trace]),
                *([] if options.duckdb_threads is None else ["--duckdb-threads", str(options.duckdb_threads)]),
            ]  # fmt: skip
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds, check=False)
            except subprocess.TimeoutExpired:
                lines.append([system, limit, f"over {options.seconds:g}", "", "", "", ""])
                continue
            if done.returncode != 0:
                reason = next((line for line in done.stderr.splitlines() if "Error:" in line), "no reason given")
                lines.append([system, limit, f"failed: {reason[:160]}", "", "", "", ""])
                continue
            r = results[system] = json.loads(done.stdout)
            times = f"{r['seconds'] / results['oocbe']['seconds']:.1f}" if "oocbe" in results else ""
            numbers = [f"{r['seconds']:.1f}", f"{r['cpu']:.1f}", f"{r['bytes'] / 2**20:.0f}", f"{r['rows']:,}"]
            lines.append([system, limit, *numbers, times])
        print_table(lines)
        if len({(r["rows"], r["sum"], r["hash"]) for r in results.values()}) > 1:
            raise SystemExit(f"the answers differ: {results}")
    finally:
        shutil.rmtree(folder)
    print(f"\n{4 * keys:,} rows a table, memory {options.memory}; {describe_run(['duckdb'])}")


if __name__ == "__main__":
    main()
