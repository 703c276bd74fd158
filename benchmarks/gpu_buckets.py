"""Bucket elimination on a CUDA device against the CPU backend of the same machine: whole solves, and buckets by size.

For each instance the order is chosen once; then the forward and backward pass run with each backend, compiled code
warm, and the best of the repeats counts. All backends must give the same value and the same number of rows. A second
table splits the buckets by the rows of their largest input and compares the join alone on both sides: where the device
becomes the faster one is what ``auto`` goes by (``device_work`` in oocbe/model/settings/tuning.py).

    python benchmarks/gpu_buckets.py [--instances FILE ...] [--order HEURISTIC] [--repeat 3] [--markdown]
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from measuring import EXAMPLE, data_folder, describe_run, print_table

from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine, is_on_device
from oocbe.elimination.orders.order import OrderChoice, search_orders
from oocbe.elimination.preparation.prepare import prepare
from oocbe.formats import read
from oocbe.kernels.cuda.device import cupy
from oocbe.model.problem import Problem
from oocbe.tables.table import Table

BACKENDS = ("cpu", "auto", "cuda")
DEFAULT = ("spot5/505.spot", "spot5/42.spot", "spot5/5.spot", "wcsp/mastermind/mastermind_03_08_03.wcsp")
MEMORY = 64 << 30


class TimedEngine(BucketEngine):
    """Notes the rows of each bucket's largest input and the seconds of its join and dominance."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.buckets: list[tuple[int, float]] = []

    def join(self, program, layout, tables, *arguments) -> Table:  # type: ignore[no-untyped-def]
        begin = time.perf_counter()
        message = super().join(program, layout, tables, *arguments)
        if is_on_device(message):
            cupy().cuda.Device().synchronize()
        self.buckets.append((max((t.rows for t in tables), default=0), time.perf_counter() - begin))
        return message


def run(problem: Problem, choice: OrderChoice, engine: BucketEngine) -> tuple[object, int, int, float]:
    """Value, largest message, all rows, and seconds of one forward and backward pass."""
    with MessageStore(MEMORY) as store:
        begin = time.perf_counter()
        prepared = prepare(problem, problem.semiring, choice.order)
        outcome = Forward(prepared, True, store, engine=engine).run()
        assignment = backward_pass(prepared, outcome.buckets)
        seconds = time.perf_counter() - begin
        if problem.evaluate(assignment) != outcome.value:
            raise AssertionError(f"{problem.name}: the assignment is not worth {outcome.value}")
        return outcome.value, outcome.largest_rows, outcome.total_rows, seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", nargs="+", default=None, help="files, or names below the data folder")
    parser.add_argument("--order", default="auto", help="heuristic whose best order is used")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    settings = parser.parse_args(arguments)
    warm_up = read(EXAMPLE)
    for backend in BACKENDS:
        run(warm_up, search_orders(warm_up, "min-fill", 0.0, 0)[0], BucketEngine(backend))
    rows = [
        ["instance", "value", "largest rows", "total rows", *(f"{b} s" for b in BACKENDS), "cpu / auto", "cpu / cuda"]
    ]
    sizes: dict[int, dict[str, list[float]]] = defaultdict(lambda: {"cpu": [], "cuda": []})
    for name in settings.instances or DEFAULT:
        path = Path(name) if Path(name).is_file() else data_folder() / name
        problem = read(path)
        choice = search_orders(problem, settings.order, 0.5, 1)[0]
        best: dict[str, float] = {}
        answers = set()
        for backend in BACKENDS:
            for turn in range(settings.repeat + 1):  # the first one compiles, and is not counted
                engine = TimedEngine(backend)
                *answer, seconds = run(problem, choice, engine)
                answers.add(tuple(answer))
                if turn:
                    best[backend] = min(seconds, best.get(backend, seconds))
            if backend in ("cpu", "cuda"):
                for inputs, seconds in engine.buckets:
                    sizes[len(str(inputs)) - 1][backend].append(seconds)
        if len(answers) != 1:
            raise AssertionError(f"{path}: the backends disagree: {answers}")
        value, largest, total = answers.pop()
        ratios = [f"{best['cpu'] / best[b]:.1f}" for b in ("auto", "cuda")]
        rows.append(
            [path.stem, str(value), f"{largest:,}", f"{total:,}", *(f"{best[b]:.3f}" for b in BACKENDS), *ratios]
        )
        print(f"{path.stem}: done", flush=True)
    print_table(rows, settings.markdown)
    print()
    table = [["rows of the largest input", "buckets", "cpu ms a bucket", "cuda ms a bucket", "cpu / cuda"]]
    for size in sorted(sizes):
        cpu, cuda = sizes[size]["cpu"], sizes[size]["cuda"]
        means = [sum(cpu) / len(cpu) * 1e3, sum(cuda) / len(cuda) * 1e3]
        bounds = f"{10**size:,} to {10 ** (size + 1) - 1:,}"
        table.append([bounds, str(len(cpu)), *(f"{m:.3f}" for m in means), f"{means[0] / means[1]:.2f}"])
    print_table(table, settings.markdown)
    properties = cupy().cuda.runtime.getDeviceProperties(0)
    print(f"{describe_run(('cupy-cuda13x', 'cupy-cuda12x'))}, {properties['name'].decode()}")


if __name__ == "__main__":
    main()
