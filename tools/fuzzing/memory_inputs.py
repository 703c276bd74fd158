"""Inputs large enough for a small memory limit to bind: problems as text, tables as arrays."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from .memory_formats import OTHERS

Numbers = np.random.Generator


def _joined(rows: np.ndarray[Any, Any]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in rows.tolist())


def large_wcsp(numbers: Numbers, size: int) -> str:
    """A few functions of many tuples each: about so many bytes."""
    domain, arity = int(numbers.integers(20, 200)), int(numbers.integers(2, 4))
    count = max(1, min(domain**arity, size // (arity * 3 + 5)))
    functions = max(1, size // (count * (arity * 3 + 5)))
    variables = arity + functions - 1
    lines = [f"p {variables} {domain} {functions} 1000000", " ".join([str(domain)] * variables)]
    for f in range(functions):
        cells = np.sort(numbers.choice(domain**arity, count, replace=False))
        columns = np.array(np.unravel_index(cells, (domain,) * arity))
        rows = np.vstack([columns, numbers.integers(0, 1000, count)]).T
        default = numbers.choice([0, 1000000])
        lines += [f"{arity} {' '.join(str(f + i) for i in range(arity))} {default} {count}", _joined(rows)]
    return "\n".join(lines) + "\n"


def wide_wcsp(numbers: Numbers, size: int) -> str:
    """A grid whose messages have up to about so many rows."""
    domain = int(numbers.integers(2, 9))
    side = max(2, round(np.log(max(size / 16, 4)) / np.log(domain)))
    pairs = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    pairs += [(r * side + c, r * side + c + side) for r in range(side - 1) for c in range(side)]
    lines = [f"p {side * side} {domain} {len(pairs)} 100000", " ".join([str(domain)] * (side * side))]
    tightness = numbers.choice([0.0, 0.3, 0.6])
    for a, b in pairs:
        cells = np.flatnonzero(numbers.random(domain * domain) < 0.8)
        costs = np.where(numbers.random(len(cells)) < tightness / 2, 100000, numbers.integers(0, 50, len(cells)))
        rows = np.vstack([cells // domain, cells % domain, costs]).T
        lines += [f"2 {a} {b} 0 {len(cells)}", _joined(rows)]
    return "\n".join(lines) + "\n"


def many_functions_wcsp(numbers: Numbers, size: int) -> str:
    """Many variables in small functions: about so many bytes."""
    functions = max(2, min(size, 2 << 20) // 60)
    variables = max(2, functions // int(numbers.integers(1, 4)))
    lines = [f"p {variables} 3 {functions} 1000000", " ".join(["3"] * variables)]
    span = int(numbers.integers(2, 6))
    first = numbers.integers(0, variables - 1, functions)
    second = np.minimum(first + numbers.integers(1, span, functions), variables - 1)
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        lines.append(f"2 {a} {b} 0 3\n0 0 {a % 7}\n1 1 {b % 5}\n2 2 1" if a != b else f"1 {a} 0 1\n0 3")
    return "\n".join(lines) + "\n"


def blanks_wcsp(numbers: Numbers, size: int) -> str:
    """A small problem behind many blanks, as compressed files may hold."""
    return "p 2 2 1 10\n2 2\n2 0 1 0 1\n0 0 5\n" + " " * (4 * size)


def cnf(numbers: Numbers, size: int) -> str:
    """Clauses over neighbouring variables."""
    clauses = max(2, size // 20)
    variables = max(4, clauses // int(numbers.integers(1, 4)))
    first = numbers.integers(1, variables - 2, clauses)
    signs = numbers.choice([-1, 1], (clauses, 3))
    rows = np.vstack([first, first + 1, first + 2]).T * signs
    return f"p cnf {variables} {clauses}\n" + "\n".join(f"{a} {b} {c} 0" for a, b, c in rows.tolist()) + "\n"


def uai(numbers: Numbers, size: int) -> str:
    """A Markov network: a chain of cliques, whose tables have about so many bytes in all."""
    domain, arity = int(numbers.integers(2, 6)), int(numbers.integers(2, 7))
    factors = max(1, size // (domain**arity * 6))
    variables = factors + arity - 1
    lines = ["MARKOV", str(variables), " ".join([str(domain)] * variables), str(factors)]
    lines += [f"{arity} " + " ".join(str(f + i) for i in range(arity)) for f in range(factors)]
    for _ in range(factors):
        values = numbers.integers(0, 100, domain**arity)
        lines += [str(len(values)), " ".join(f"0.{v:03d}" for v in values.tolist())]
    return "\n".join(lines) + "\n"


def bif(numbers: Numbers, size: int) -> str:
    """A belief network, each variable with some parents before it: about so many bytes."""
    states, parents = int(numbers.integers(2, 5)), int(numbers.integers(1, 4))
    count = max(parents + 1, size // (states ** (parents + 1) * 6 + 60))
    lines = ["network n { }"]
    labels = ", ".join(f"s{i}" for i in range(states))
    lines += [f"variable v{v} {{ type discrete [ {states} ] {{ {labels} }}; }}" for v in range(count)]
    rows = numbers.random((16, states)) + 0.01
    rows /= rows.sum(axis=1, keepdims=True)
    for v in range(count):
        own = [f"v{p}" for p in range(max(0, v - parents), v)]
        table = ", ".join(f"{x:.4g}" for row in range(states ** len(own)) for x in rows[row % 16])
        given = f" | {', '.join(own)}" if own else ""
        if own:
            given_rows = np.arange(states ** len(own)) % len(rows)
            table = ", ".join(f"{x:.4g}" for state in range(states) for x in rows[given_rows, state])
        lines.append(f"probability ( v{v}{given} ) {{ table {table}; }}")
    return "\n".join(lines) + "\n"


def cfn(numbers: Numbers, size: int) -> str:
    """Complete binary functions: about so many bytes."""
    domain = int(numbers.integers(5, 60))
    functions = max(1, size // (domain * domain * 4))
    names = ", ".join(f'"x{v}": {domain}' for v in range(functions + 1))
    texts = []
    for f in range(functions):
        costs = ",".join(map(str, numbers.integers(0, 999, domain * domain).tolist()))
        texts.append(f'"f{f}": {{"scope": ["x{f}", "x{f + 1}"], "costs": [{costs}]}}')
    head = f'{{"problem": {{"name": "p", "mustbe": "<100000000000"}}, "variables": {{{names}}}, "functions": {{'
    return head + ", ".join(texts) + "}}\n"


def mps(numbers: Numbers, size: int) -> str:
    """Rows over a few columns each: about so many bytes."""
    rows = max(1, size // 120)
    columns = rows + 2
    lines = ["NAME p", "ROWS", " N cost", *(f" L r{r}" for r in range(rows)), "COLUMNS"]
    for c in range(columns):
        own = [r for r in (c - 2, c - 1, c) if 0 <= r < rows]
        lines += [f" x{c} cost {c % 5 + 1}", *(f" x{c} r{r} {1 + (c + r) % 3}" for r in own)]
    lines += ["RHS", *(f" RHS r{r} {r % 6 + 1}" for r in range(rows))]
    lines += ["BOUNDS", *(f" UI B x{c} {1 + c % 3}" for c in range(columns)), "ENDATA"]
    return "\n".join(lines) + "\n"


PROBLEMS: dict[str, tuple[Callable[[Any, int], str], ...]] = {
    "wcsp": (large_wcsp, wide_wcsp, wide_wcsp, many_functions_wcsp, blanks_wcsp),
    "uai": (uai,),
    "bif": (bif,),
    "cnf": (cnf,),
    "cfn": (cfn,),
    "mps": (mps,),
    **OTHERS,
}
"""Who writes problems of a format."""


def write_problem(folder: Path, suffix: str, kind: int, seed: int, size: int, is_compressed: bool) -> Path:
    """A file with a problem of a format."""
    makers = PROBLEMS[suffix]
    data = makers[kind % len(makers)](np.random.default_rng(seed), size).encode()
    if is_compressed:
        data = gzip.compress(data, 1) if seed % 3 else lzma.compress(data, preset=0)
    path = folder / f"problem.{suffix}{('.gz' if seed % 3 else '.xz') if is_compressed else ''}"
    path.write_bytes(data)
    return path


def write_solution(folder: Path, problem: Path) -> Path:
    """An assignment of a .wcsp or .uai file: every variable has its first value."""
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(problem.suffix, open)
    with opened(problem, "rt") as file:
        words = file.readline().split() + file.readline().split()
    path = folder / "answer.sol"
    path.write_text("# oocbe solution, version 1\n" + "".join(f"{i} 0\n" for i in range(int(words[1]))))
    return path


def write_cases(folder: Path, suffix: str, count: int) -> Path:
    """So many cases of a network's first two variables."""
    names, values = (("v0", "v1"), ("s0", "s1")) if suffix in ("bif", "net") else (("0", "1"), ("0", "1"))
    values = ("a", "b") if suffix == "net" else values
    path = folder / "cases.csv"
    path.write_text("\n".join([",".join(names), *(f"{values[i % 2]}," for i in range(count))]) + "\n")
    return path


def write_trace(folder: Path, seed: int, size: int) -> Path:
    """A trace of about so many bytes, as ``--trace`` writes them."""
    numbers = np.random.default_rng(seed)
    lines = ['{"name": "oocbe", "ph": "M", "pid": 0, "args": {"version": 1, "about": "oocbe solve p.wcsp"}}']
    for number, lane in ((1, "elimination"), (7, "kernels")):
        lines.append(f'{{"name": "process_name", "ph": "M", "pid": {number}, "args": {{"name": "{lane}"}}}}')
        told = f'"ph": "M", "pid": {number}, "tid": 0, "args": {{"name": "{lane} 0"}}'
        lines.append(f'{{"name": "thread_name", {told}}}')
    begin = 0.0
    for number, spent in enumerate(numbers.integers(10, 1000, max(1, size // 260)).tolist()):
        span = f'"cat": "work", "ph": "X", "ts": {begin}, "dur": {spent}'
        bucket = f'"args": {{"variable": "{number}", "rows": {spent}, "bytes": {8 * spent}}}'
        lines.append(f'{{"name": "eliminate_complete", {span}, "pid": 7, "tid": 0}}')
        lines.append(f'{{"name": "bucket {number}", {span}, "pid": 1, "tid": 0, {bucket}}}')
        begin += spent
    ended = f'"seconds": {begin / 1e6}, "cpu_seconds": 1.0, "cores": 2, "error": null, "dropped": 0'
    lines.append(f'{{"name": "oocbe end", "ph": "M", "pid": 0, "args": {{{ended}, "dropped_from": null}}}}')
    path = folder / "run.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return path


def write_parquet(folder: Path, seed: int, rows: int) -> Path:
    """A Parquet file of three keys and a value, its rows in any order."""
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    numbers = np.random.default_rng(seed)
    labels = np.array([f"label {i}" for i in range(50)])
    columns = {
        "a": numbers.integers(0, 2**20, rows),
        "b": labels[numbers.integers(0, 50, rows)] if seed % 2 else numbers.integers(0, 50, rows),
        "c": np.arange(rows) % 1000,
        "cost": numbers.integers(0, 1000, rows),
    }
    path = folder / "table.parquet"
    packed = Random(seed).choice(("none", "snappy", "gzip", "zstd"))
    group = max(1, rows // Random(seed).choice((1, 3, 10)))
    parquet.write_table(arrow.table(columns), path, compression=packed, row_group_size=group)
    return path


def write_table(path: Path, names: list[str], sizes: dict[str, int], seed: int, rows: int, is_sorted: bool) -> None:
    """A stored table of about so many rows."""
    import oocbe

    numbers = np.random.default_rng(seed)
    shape = [sizes[name] for name in names]
    cells = int(np.prod([float(size) for size in shape]))
    few = 2 * rows > cells
    keys = np.flatnonzero(numbers.random(cells) < 0.7) if few else np.unique(numbers.integers(0, cells, rows))
    if not is_sorted:
        numbers.shuffle(keys)
    tuples = np.array(np.unravel_index(keys, shape)).T
    own, values = {name: sizes[name] for name in names}, numbers.integers(0, 999, len(keys))
    oocbe.StoredTable.save(path, oocbe.Table.from_rows(own, tuples, values, oocbe.MIN_SUM))
