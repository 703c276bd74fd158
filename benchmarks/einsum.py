"""Contractions by ``oocbe.einsum`` beside opt_einsum with NumPy, sums of products of float64 on the CPU.

    python benchmarks/einsum.py                              # all contractions
    python benchmarks/einsum.py --names "chain,K4" --markdown

Each system contracts the same random arrays in a process of its own: processor seconds of the contraction, after a
first one of arrays with axes of 2 that loads what it needs, and peak memory of the process above that before it. Both
follow the path that opt_einsum finds. Where a contraction has a memory limit, the largest intermediate exceeds it:
oocbe has ``memory=``, which lets that go to disk; the address space of opt_einsum's process is limited to as much more
than it has, once with its path, and once with its ``memory_limit``, which avoids large intermediates. Results are
compared.

    python benchmarks/einsum.py --networks                   # networks of competitions, with memory limits

These are log Z of networks and counts of clauses, as in the collection einsum_benchmark: a tensor for each function or
clause. All systems follow the path of ``oocbe.einsum_path``; the third one is cotengra, which slices indices until an
intermediate is no larger than the limit.

    python benchmarks/einsum.py --gpu                        # operands in the memory of a GPU, beside CuPy
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measuring import data_folder, describe_run, print_table, run_child

from oocbe.runtime.process_memory import peak_memory


class Contraction(NamedTuple):
    """An expression whose indices have all the same size; ``memory`` : limit in MiB, 0 without."""

    expression: str
    size: int
    memory: int = 0


def ladder(length: int) -> str:
    """A grid of two rows, whose tensors share an index with each neighbour, of letters."""
    letters = [chr(0x4E00 + number) for number in range(3 * length)]
    top, low, rung = letters[:length], letters[length : 2 * length], letters[2 * length :]
    terms = [top[n] + (top[n - 1] if n else "") + rung[n] for n in range(length)]
    terms += [low[n] + (low[n - 1] if n else "") + rung[n] for n in range(length)]
    return ",".join(terms) + "->" + top[-1] + low[-1]


CONTRACTIONS = {
    "matrix product": Contraction("ij,jk->ik", 1000),
    "ring of four": Contraction("abi,bcj,cdk,dai->jk", 40),
    "triangle, batched": Contraction("abx,bcx,cax->x", 160),
    "ladder of 30": Contraction(ladder(30), 12),
    "K4": Contraction("abc,ade,bdf,cef->", 48),
    "K4, 128 MiB": Contraction("abc,ade,bdf,cef->", 80, 128),
    "K5, 64 MiB": Contraction("abcd,aefg,behi,cfhj,dgij->", 16, 64),
    "octahedron, 64 MiB": Contraction("abcd,aefg,behi,cfjk,dhjl,gikl->", 16, 64),
}

NETWORKS = {
    "uai2014/PR/Grids_11.uai.gz": 16,
    "uai2014/PR/Promedus_14.uai.gz": 16,
    "uai2014/PR/linkage_14.uai.gz": 48,
    "uai2014/PR/linkage_19.uai.gz": 48,
    "uai2014/PR/ObjectDetection_11.uai.gz": 64,
    "uai2014/PR/ObjectDetection_12.uai.gz": 64,
    "uai2014/PR/ObjectDetection_18.uai.gz": 64,
    "uai2014/PR/ObjectDetection_32.uai.gz": 64,
    "uai2014/PR/Promedus_19.uai.gz": 16,
    "mc2022/mc2022_track1_011.cnf.gz": 64,
}
"""Files of the data folder, and a limit in MiB below the largest intermediate."""


def tensors(path: Path) -> tuple[str, list[Any]]:
    """Expression and arrays of a network, with its evidence, or of clauses; all indices are summed out."""
    text = gzip.decompress(path.read_bytes()).decode()
    scopes: list[list[int]] = []
    arrays = []
    if path.name.endswith(".cnf.gz"):
        words = (word for line in text.splitlines() if line[:1] not in "cp" for word in line.split())
        clause: list[int] = []
        for literal in map(int, words):
            if literal:
                clause.append(literal)
                continue
            scopes.append([abs(x) for x in clause])
            arrays.append(np.ones((2,) * len(clause)))
            arrays[-1][tuple(int(x < 0) for x in clause)] = 0.0
            clause = []
    else:
        words = iter(text.split()[1:])
        sizes = [int(next(words)) for _ in range(int(next(words)))]
        scopes = [[int(next(words)) for _ in range(int(next(words)))] for _ in range(int(next(words)))]
        evidence = Path(str(path).removesuffix(".gz") + ".evid")
        seen = list(map(int, evidence.read_text().split())) if evidence.exists() else [0]
        known = dict(zip(seen[1::2], seen[2::2], strict=True))
        for number, scope in enumerate(scopes):
            values = np.array([float(next(words)) for _ in range(int(next(words)))])
            chosen = tuple(known.get(v, slice(None)) for v in scope)
            arrays.append(values.reshape([sizes[v] for v in scope])[chosen])
            scopes[number] = [v for v in scope if v not in known]
    return ",".join("".join(chr(0x4E00 + v) for v in scope) for scope in scopes) + "->", arrays


def network_child(system: str, name: str) -> None:
    """Contract a network once, and print seconds, peak memory, the result, and the number of slices."""
    import cotengra
    import opt_einsum

    import oocbe

    limit = NETWORKS[name] * 2**20
    expression, arrays = tensors(data_folder() / name)
    found = oocbe.einsum_path(expression, *arrays)
    path = [step.positions for step in found.steps]
    first = CONTRACTIONS["K4"].expression  # loads what the contraction needs
    if system == "oocbe":
        oocbe.einsum(first, *[np.ones((32,) * 3)] * 4, backend="cpu", memory="8MiB")
    else:
        opt_einsum.contract(first, *[np.ones((16,) * 3)] * 4)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = peak_memory()
    slices, begin = 1, time.process_time()
    if system == "oocbe":
        answer = oocbe.einsum(expression, *arrays, optimize=path, backend="cpu", memory=limit)
    elif system == "opt_einsum":
        most = pages * resource.getpagesize() + limit
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        answer = opt_einsum.contract(expression, *arrays, optimize=path)
    else:
        terms = [tuple(term) for term in expression.removesuffix("->").split(",")]
        sizes = {v: n for term, a in zip(terms, arrays, strict=True) for v, n in zip(term, a.shape, strict=True)}
        tree = cotengra.ContractionTree.from_path(terms, (), sizes, path=path).slice(target_size=limit // 8, seed=0)
        slices, begin = tree.nslices, time.process_time()
        answer = tree.contract(arrays)
    seconds = time.process_time() - begin
    peak = (peak_memory() - before) / 2**20
    answer = float(np.asarray(answer))
    print(json.dumps({"seconds": seconds, "peak": peak, "answer": answer, "slices": slices, "cells": found.largest}))


def networks(seconds: float, markdown: bool) -> None:
    """Print the table of all networks."""
    rows = [["network", "limit", "largest intermediate", "oocbe", "opt_einsum", "cotengra, sliced", "slices"]]
    for name, limit in NETWORKS.items():
        answers, shown, slices, cells = list[float](), list[str](), "", 0
        for system in ("oocbe", "opt_einsum", "cotengra"):
            try:
                found = run_child(__file__, [system, name], seconds)
            except subprocess.TimeoutExpired:
                shown.append(f"over {seconds:.0f} s")
            except RuntimeError as error:
                shown.append("out of memory" if "MemoryError" in str(error) else "failed")
                if shown[-1] == "failed":
                    print(f"{name}, {system}: {error}", file=sys.stderr)
            else:
                answers.append(found["answer"])
                shown.append(f"{found['seconds']:.2f} s, {found['peak']:,.0f} MiB")
                cells, slices = found["cells"], f"{found['slices']:,}" if system == "cotengra" else slices
        if not np.allclose(answers, answers[:1] or 0, rtol=1e-6, atol=0):
            raise SystemExit(f"{name}: the answers differ: {answers}")
        largest = f"{8 * cells / 2**20:,.0f} MiB" if cells else ""
        rows.append([Path(name).name.partition(".")[0], f"{limit} MiB", largest, *shown, slices])
    print_table(rows, markdown)
    print(describe_run(("opt_einsum", "cotengra")))


ON_GPU = {
    "matrix product": Contraction("ij,jk->ik", 4096),
    "triangle, batched": Contraction("abx,bcx,cax->x", 400),
    "ring of four": Contraction("abi,bcj,cdk,dai->jk", 160),
    "K4": Contraction("abc,ade,bdf,cef->", 96),
}
ALGEBRAS = ("max-plus", "min-plus", "log", "sum-product")
RUNS = 5


def on_gpu(markdown: bool) -> None:
    """Contractions of CuPy arrays. CuPy: its einsum along opt_einsum's path; outside sums of products, of a product of
    matrices, a slice of the eliminated index at a time."""
    import cupy
    import opt_einsum

    import oocbe

    def seconds_of(call: Callable[[], Any]) -> tuple[Any, float]:
        times = list[float]()
        for _ in range(RUNS + 1):
            cupy.cuda.Device().synchronize()
            begin = time.perf_counter()
            found = call()
            cupy.cuda.Device().synchronize()
            times.append(time.perf_counter() - begin)
        return found, min(times[1:])

    def sliced(one: Any, two: Any, reduce: Any) -> Any:
        total = one[:, :1] + two[:1]
        for k in range(1, one.shape[1]):
            reduce(total, one[:, k : k + 1] + two[k : k + 1], out=total)
        return total

    rows = []
    for name, (expression, size, _) in ON_GPU.items():
        terms = expression.partition("->")[0].split(",")
        for algebra in ALGEBRAS:
            for dtype in (np.float32, np.float64):
                generator = cupy.random.default_rng(0)
                arrays = [generator.random((size,) * len(term), dtype=dtype) for term in terms]
                path = opt_einsum.contract_path(expression, *arrays)[0]
                joined = oocbe.einsum_path(expression, *(a.shape for a in arrays), optimize=path).joined
                found, ours = seconds_of(
                    lambda a=arrays, p=path, e=expression, s=algebra: oocbe.einsum(e, *a, semiring=s, optimize=p)
                )
                shown = ["", ""]
                if algebra == "sum-product" or (name == "matrix product" and algebra != "log"):
                    reduce = {"max-plus": cupy.maximum, "min-plus": cupy.minimum}.get(algebra)
                    expected, theirs = seconds_of(
                        (lambda a=arrays, r=reduce: sliced(*a, r))
                        if reduce
                        else (lambda a=arrays, p=path, e=expression: opt_einsum.contract(e, *a, optimize=p))
                    )
                    if not cupy.allclose(found, expected, rtol=1e-3 if dtype == np.float32 else 1e-9):
                        raise SystemExit(f"{name}, {algebra}: the answers differ")
                    shown = [f"{1e3 * theirs:.2f}", f"{theirs / ours:.1f}"]
                rate = f"{joined / ours / 1e12:.2f}"
                rows.append([name, f"{size:,}", algebra, np.dtype(dtype).name, f"{1e3 * ours:.2f}", rate, *shown])
    head = ["contraction", "size of an index", "semiring", "dtype", "oocbe: ms", "10^12 combinations/s"]
    print_table([[*head, "CuPy: ms", "CuPy / oocbe"], *rows], markdown)
    print(describe_run(("cupy", "opt_einsum")))


SYSTEMS = ("oocbe", "opt_einsum", "memory_limit")


def child(system: str, name: str) -> None:
    """Contract once, and print seconds, peak memory and a sum of the result."""
    expression, size, memory = CONTRACTIONS[name]
    import opt_einsum

    terms = expression.partition("->")[0].split(",")

    def run(size: int, limit: int) -> Any:
        generator = np.random.default_rng(0)
        arrays = [generator.random((size,) * len(term)) for term in terms]
        cells = limit * 2**20 // 8 if limit and system == "memory_limit" else None
        path = opt_einsum.contract_path(expression, *arrays, memory_limit=cells)[0]
        begin = time.process_time()
        if system == "oocbe":
            import oocbe

            given = {"memory": f"{limit}MiB"} if limit else {}
            found = oocbe.einsum(expression, *arrays, optimize=path, backend="cpu", **given)
        else:
            found = opt_einsum.contract(expression, *arrays, optimize=path)
        return found, time.process_time() - begin

    run(2, 0)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = peak_memory()
    if memory and system != "oocbe":
        inputs = sum(8 * size ** len(term) for term in terms)
        most = pages * resource.getpagesize() + inputs + memory * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    found, seconds = run(size, memory)
    peak = (peak_memory() - before) / 2**20
    print(json.dumps({"seconds": seconds, "peak": peak, "answer": float(np.sum(found))}))


def largest(contraction: Contraction) -> int:
    """Cells of the largest intermediate of opt_einsum's path."""
    import opt_einsum

    shapes = [(contraction.size,) * len(term) for term in contraction.expression.partition("->")[0].split(",")]
    found = opt_einsum.contract_path(contraction.expression, *shapes, shapes=True)[1]
    return int(found.largest_intermediate)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        (network_child if sys.argv[3] in NETWORKS else child)(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", help=f"which, by their begin, separated by commas: {'; '.join(CONTRACTIONS)}")
    parser.add_argument("--seconds", type=float, default=120.0, help="wall seconds of a process (default 120)")
    parser.add_argument("--markdown", action="store_true", help="a table for RESULTS.md")
    parser.add_argument("--networks", action="store_true", help="networks of competitions with memory limits instead")
    parser.add_argument("--gpu", action="store_true", help="operands in the memory of a GPU, beside CuPy, instead")
    options = parser.parse_args()
    if options.gpu:
        on_gpu(options.markdown)
        return
    if options.networks:
        networks(options.seconds, options.markdown)
        return
    begins = tuple((options.names or "").split(","))
    rows = []
    for name, contraction in CONTRACTIONS.items():
        if not name.startswith(begins):
            continue
        answers, shown = list[float](), dict[str, str]()
        seconds: dict[str, float] = {}
        for system in SYSTEMS if contraction.memory else SYSTEMS[:2]:
            try:
                found = run_child(__file__, [system, name], options.seconds)
            except subprocess.TimeoutExpired:
                shown[system] = f"over {options.seconds:.0f} s"
            except RuntimeError as error:
                shown[system] = "out of memory" if "MemoryError" in str(error) else "failed"
                if shown[system] == "failed":
                    print(f"{name}, {system}: {error}", file=sys.stderr)
            else:
                answers.append(found["answer"])
                seconds[system] = found["seconds"]
                shown[system] = f"{found['seconds']:.2f} s, {found['peak']:,.0f} MiB"
        if not np.allclose(answers, answers[:1] or 0, rtol=1e-6):
            raise SystemExit(f"{name}: the answers differ: {answers}")
        theirs = min((s for system, s in seconds.items() if system != "oocbe"), default=None)
        ratio = f"{theirs / seconds['oocbe']:.2f}" if theirs is not None and "oocbe" in seconds else ""
        cells = f"{8 * largest(contraction) / 2**20:,.0f} MiB"
        rows.append([name, str(contraction.size), cells, *(shown.get(system, "") for system in SYSTEMS), ratio])
    head = ["contraction", "size of an index", "largest intermediate", "oocbe", "opt_einsum"]
    print_table([[*head, "with memory_limit", "opt_einsum / oocbe"], *rows], options.markdown)
    print(describe_run(("opt_einsum",)))


if __name__ == "__main__":
    main()
