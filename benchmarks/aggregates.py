"""Aggregates of joins of several tables, with many rows of either side for each key, beside DuckDB and Polars.

    python benchmarks/aggregates.py                                  # 100 million joined rows a shape
    python benchmarks/aggregates.py --joined 1e9 --shapes chain,star --systems oocbe,duckdb
    python benchmarks/aggregates.py --markdown                       # rows for RESULTS.md

Each shape is a join of tables with integer keys, whose domains are chosen so that the join has about ``--joined`` rows.
The query is the greatest sum of the tables' values for each value of one key. Each system reads the same Parquet files
in a process of its own: processor seconds, imports included. The answers are compared. A system that takes longer than
``--seconds`` is stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from measuring import describe_run, print_table, run_child

SHAPES = {
    "pair": ("ab", "bc"),
    "chain": ("ab", "bc", "cd"),
    "star": ("xa", "xb", "xc"),
    "triangle": ("ab", "bc", "ca"),
    "cycle": ("ab", "bc", "cd", "da"),
}
"""Keys of the tables, one letter each; the groups are those of the first key."""

SYSTEMS = ("oocbe", "duckdb", "polars")

ROWS = {"pair": 1_000_000, "chain": 300_000, "star": 100_000, "triangle": 1_000_000, "cycle": 200_000}
"""Rows of a table."""


def domain_of(shape: str, rows: int, joined: float) -> int:
    """Values of each key so that the join of tables with random rows has about so many rows."""
    scopes = SHAPES[shape]
    conditions = sum(map(len, scopes)) - len(set("".join(scopes)))
    return max(2, round((float(rows) ** len(scopes) / joined) ** (1 / conditions)))


def make(folder: Path, shape: str, rows: int, joined: float) -> None:
    """Write the tables of a shape."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    numbers, domain = np.random.default_rng(1), domain_of(shape, rows, joined)
    for place, scope in enumerate(SHAPES[shape]):
        columns = {name: numbers.integers(0, domain, rows) for name in scope}
        columns["gain"] = numbers.integers(0, 1000, rows)
        parquet.write_table(arrow.table(columns), folder / f"{place}.parquet")


def run_oocbe(files: list[str], shape: str) -> list[int]:
    import oocbe

    best = oocbe.aggregate(*files, group_by=[SHAPES[shape][0][0]], values="gain")
    return [int(value) for _, value in sorted(best.to_dict().items())]


def run_duckdb(files: list[str], shape: str) -> list[int]:
    import duckdb

    scopes = SHAPES[shape]
    first = {name: place for place, scope in reversed(list(enumerate(scopes))) for name in scope}
    conditions = [f"t{p}.{n} = t{first[n]}.{n}" for p, scope in enumerate(scopes) for n in scope if first[n] != p]
    tables = ", ".join(f"read_parquet('{file}') t{place}" for place, file in enumerate(files))
    total = " + ".join(f"t{place}.gain" for place in range(len(files)))
    query = f"select t0.{scopes[0][0]} k, max({total}) from {tables} where {' and '.join(conditions)} group by k"
    return [int(value) for _, value in sorted(duckdb.sql(query).fetchall())]


def run_polars(files: list[str], shape: str) -> list[int]:
    import polars

    scopes = SHAPES[shape]
    frames = [polars.scan_parquet(file).rename({"gain": f"gain{place}"}) for place, file in enumerate(files)]

    def join(one: Any, other: Any) -> Any:
        names = one.collect_schema().names()
        return one.join(other, on=[name for name in other.collect_schema().names() if name in names])

    total = polars.sum_horizontal([f"gain{place}" for place in range(len(files))]).max().alias("best")
    made = reduce(join, frames).group_by(scopes[0][0]).agg(total).sort(scopes[0][0]).collect(engine="streaming")
    return [int(value) for value in made["best"]]


def child(system: str, shape: str, folder: str) -> None:
    """Run one system; print its processor seconds and a digest of its answer."""
    files = [str(Path(folder) / f"{place}.parquet") for place in range(len(SHAPES[shape]))]
    best = {"oocbe": run_oocbe, "duckdb": run_duckdb, "polars": run_polars}[system](files, shape)
    print(json.dumps({"seconds": time.process_time(), "answer": [len(best), sum(best), hash(tuple(best))]}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:5])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joined", type=float, default=1e8, help="rows of the join (default 1e8)")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"which of {', '.join(SHAPES)} (default: all)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"which of {', '.join(SYSTEMS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=120.0, help="wall seconds of a process (default 120)")
    parser.add_argument("--markdown", action="store_true", help="a table for RESULTS.md")
    options = parser.parse_args()
    systems = options.systems.split(",")
    rows = []
    for shape in options.shapes.split(","):
        seconds, answers, ends = dict[str, float](), dict[str, list[int]](), dict[str, str]()
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), shape, ROWS[shape], options.joined)
            for system in systems:
                try:
                    found = run_child(__file__, [system, shape, folder], options.seconds)
                except subprocess.TimeoutExpired:
                    ends[system] = f"over {options.seconds:.0f}"
                    continue
                except RuntimeError as error:
                    print(f"{shape}, {system}: {error}", file=sys.stderr)
                    ends[system] = "failed"
                    continue
                seconds[system], answers[system] = found["seconds"], found["answer"]
        if any(answer != next(iter(answers.values())) for answer in answers.values()):
            raise SystemExit(f"{shape}: the answers differ: {answers}")
        times = [f"{seconds[s]:.2f}" if s in seconds else ends[s] for s in systems]
        ours = seconds.get(systems[0])
        ratios = [f"{seconds[s] / ours:.1f}" if ours and s in seconds else "" for s in systems[1:]]
        rows.append([shape, f"{ROWS[shape]:,}", f"{domain_of(shape, ROWS[shape], options.joined):,}", *times, *ratios])
    head = ["shape", "rows of a table", "values of a key", *systems, *(f"{s} / {systems[0]}" for s in systems[1:])]
    print_table([head, *rows], options.markdown)
    print(describe_run(("duckdb", "polars", "pyarrow")))


if __name__ == "__main__":
    main()
