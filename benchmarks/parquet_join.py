"""Two Parquet files joined and maximised into a third, within a memory limit: oocbe's six lines against DuckDB's query.

    PYTHONPATH=. python benchmarks/parquet_join.py                                       # 5 million rows a file, 1 GiB
    PYTHONPATH=. python benchmarks/parquet_join.py --scale 1 --memory 2GiB --repeat 2

The tables are those of ``operators.py`` (cases A and B, 50 million rows at scale 1), written as Parquet in shuffled
order. Each system reads both files, joins on (e, k), adds the values, takes the maximum over e for each (a, b, k) and
writes a Parquet file, in a process of its own, from start to end: processor time and wall time, compiling included
where the cache has not what is needed. The answers are compared by DuckDB: as many rows, and none different.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.operators import make_case

SYSTEMS = ("oocbe", "duckdb")


def run_oocbe(folder: Path, memory: str) -> None:
    import oocbe

    files = [folder / "t1.parquet", folder / "t2.parquet"]
    domains = oocbe.common_domains(*files, values="v")
    one, two = (
        oocbe.StoredTable.from_parquet(f, f.with_suffix(".table"), "v", domains=domains, memory=memory) for f in files
    )
    joined = oocbe.join_maximise(one, two, "e", output=folder / "joined", memory=memory, scratch=folder)
    joined.to_parquet(folder / "oocbe.parquet", "v", memory=memory)


def run_duckdb(folder: Path, memory: str) -> None:
    import duckdb

    base = duckdb.connect(config={"memory_limit": memory, "temp_directory": str(folder / "spill")})
    base.execute("set preserve_insertion_order = false")
    base.execute(
        "copy (select a, b, t1.k as k, max(t1.v + t2.v) as v from read_parquet(?) t1 join read_parquet(?) t2 "
        f"on t1.e = t2.e and t1.k = t2.k group by a, b, t1.k) to '{folder / 'duckdb.parquet'}' (format parquet)",
        [str(folder / "t1.parquet"), str(folder / "t2.parquet")],
    )


def measure(system: str, folder: Path, memory: str) -> dict[str, float]:
    """Wall and processor time of one process, and the most memory that it held."""
    script = (
        "import json, sys, time; from pathlib import Path; from benchmarks import operators, parquet_join\n"
        f"parquet_join.run_{system}(Path(sys.argv[1]), sys.argv[2])\n"
        "print(json.dumps([time.process_time(), operators.peak_bytes()]))"
    )
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), memory], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{system} failed:\n{done.stderr}")
    processor, peak = json.loads(done.stdout.splitlines()[-1])  # DuckDB draws a bar before it
    return {"seconds": seconds, "processor": processor, "bytes": peak}


def differing_rows(folder: Path) -> int:
    """Rows that are in one result only."""
    import duckdb

    ours, theirs = (f"(select a, b, k, v from '{folder / s}.parquet')" for s in SYSTEMS)
    rows: int = duckdb.execute(
        f"select count(*) from {ours} o full join {theirs} t on o.a = t.a and o.b = t.b and o.k = t.k "
        "where o.v is distinct from t.v"
    ).fetchall()[0][0]
    return rows


def main() -> None:
    import pyarrow
    import pyarrow.parquet

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1, help="part of the 50 million rows (default 0.1)")
    parser.add_argument("--cases", default="AB", help="which of the cases A and B (default AB)")
    parser.add_argument("--memory", default="1GiB", help="limit of either system (default 1GiB)")
    parser.add_argument("--repeat", type=int, default=1, help="processes a system, the best one counts (default 1)")
    parser.add_argument("--folder", type=Path, help="where to put all files (default: a temporary folder)")
    options = parser.parse_args()
    print(f"{'case':5}{'system':8}{'seconds':>9}{'processor':>11}{'peak GiB':>10}")
    for case in options.cases:
        with tempfile.TemporaryDirectory(dir=options.folder) as inputs:
            folder = Path(inputs)
            for name, table in zip(("t1", "t2"), make_case(case, options.scale), strict=True):
                pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{name}.parquet")
            for system in SYSTEMS:
                runs = []
                for _ in range(options.repeat):
                    for made in ("joined", "t1.table", "t2.table", "spill"):
                        shutil.rmtree(folder / made, ignore_errors=True)
                    (folder / f"{system}.parquet").unlink(missing_ok=True)
                    runs.append(measure(system, folder, options.memory))
                best = min(runs, key=lambda run: run["seconds"])
                peak = best["bytes"] / 2**30
                print(f"{case:5}{system:8}{best['seconds']:9.2f}{best['processor']:11.2f}{peak:10.2f}", flush=True)
            wrong = differing_rows(folder)
            if wrong:
                raise SystemExit(f"case {case}: {wrong:,} rows differ")


if __name__ == "__main__":
    main()
