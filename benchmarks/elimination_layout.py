"""What the elimination-order layout saves inside bucket elimination: joins of messages with and without sorting.

    python benchmarks/elimination_layout.py        # synthetic problems, and SPOT5 instances where they are to be had
    python benchmarks/elimination_layout.py --problems grid,505 --repeat 1

A problem is solved once and its messages are kept. Then each bucket that receives exactly two messages is joined and
its variable eliminated again, in three ways that must give the same rows:

* *layout*: the bucket's own walk over messages that arrived sorted, as bucket elimination does it;
* *sort + layout*: the same, but rows arrive in no order (shuffled before the clock starts), so both messages are
  sorted first; this is what the walk would cost if messages did not come out sorted;
* *shared*: :func:`oocbe.join_maximise`, which moves the shared variables to the front and sorts by them.

Only messages are joined: constraints and functions of the bucket, which the walk would look up as it goes and the
public operator knows nothing of, are left out everywhere. Two messages a bucket, so that no way has to write out an
intermediate table. A bucket whose result without constraints passes ``--row-limit`` rows is left out; so is one below
``--least`` input rows, where a call's fixed cost is all there is to see. Sorts are counted, in the joins and in the
whole forward pass. The three ways differ in more than sorting: the shared one has a kernel for exactly two tables, the
walk takes any number and filters on the way, so *sort + layout* is what tells the worth of arriving sorted.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
from measuring import data_folder, describe_run, print_table

from oocbe.algebra.inputs import arrange
from oocbe.algebra.operators import join_maximise
from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.formats import read
from oocbe.kernels.cpu.backend import CpuBackend
from oocbe.model.problem import Problem
from oocbe.stress import Spot5Settings, grid_network, random_network, spot5_day
from oocbe.tables.layout import Schema
from oocbe.tables.table import Table

SYNTHETIC: dict[str, Callable[[], Problem]] = {
    "grid": lambda: grid_network(9, 4, 0.3, 1),
    "random": lambda: random_network(18, 8, 0.25, 0.5, 1),
    "day": lambda: spot5_day(Spot5Settings(photographs=150, window=20.0, seed=1)),
}
MEMORY = 8 << 30
WAYS = ("layout", "sort + layout", "shared")


def real_instances() -> list[str]:
    """Numbers of the SPOT5 instances that are taken by default and are there."""
    return [name for name in ("505", "42") if (data_folder() / "spot5" / f"{name}.spot").is_file()]


def load_problem(name: str) -> Problem:
    """A synthetic problem by its name, or a SPOT5 instance by its number."""
    return SYNTHETIC[name]() if name in SYNTHETIC else read(data_folder() / "spot5" / f"{name}.spot")


class CountingBackend(CpuBackend):
    """The CPU's kernels, with the number of sorts and the time in them."""

    sorts = 0
    seconds = 0.0

    def sort_rows(self, *arguments: Any, **named: Any) -> Any:
        """Sort, and note it."""
        begin = time.perf_counter()
        result = CpuBackend.sort_rows(*arguments, **named)
        self.seconds += time.perf_counter() - begin
        self.sorts += 1
        return result


@contextlib.contextmanager
def count_sorts() -> Iterator[list[str]]:
    """Every sort of rows or by NumPy within the block, by name, as the list grows."""
    found: list[str] = []
    with contextlib.ExitStack() as stack:
        for owner, name in ((CpuBackend, "sort_rows"), (np, "sort"), (np, "argsort"), (np, "lexsort"), (np, "unique")):
            original = getattr(owner, name)

            def counted(*arguments: Any, _name: str = name, _original: Any = original, **named: Any) -> Any:
                found.append(_name)
                return _original(*arguments, **named)

            stack.enter_context(
                mock.patch.object(owner, name, staticmethod(counted) if owner is CpuBackend else counted)
            )
        yield found


@dataclass
class Totals:
    """Sums over the buckets of one problem; seconds and sorts by way."""

    buckets: int = 0
    skipped: int = 0
    rows: int = 0
    result_rows: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAYS, 0.0))
    sorting: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WAYS, 0.0))
    sorts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WAYS, 0))
    forward_sorts: int = 0


class BucketJoin:
    """One bucket's two messages and the three ways to join them."""

    def __init__(self, prepared: Prepared, bucket: Bucket, builder: ProgramBuilder, row_limit: int) -> None:
        self._prepared = prepared
        self._variable = bucket.variable
        self._scopes = [m.scope for m in bucket.messages]
        self.tables = [m.table() for m in bucket.messages]
        others = {v for scope in self._scopes for v in scope} - {bucket.variable}
        self._separator = tuple(sorted(others, key=prepared.position.__getitem__))
        self._builder = builder
        self._row_limit = row_limit
        rng = np.random.default_rng(bucket.variable)
        self._shuffled = [_shuffled(t, rng) for t in self.tables]

    def run(self, way: str, backend: CountingBackend) -> Table:
        """Join and eliminate."""
        if way == "shared":
            name = self._prepared.problem.variables[self._variable].name
            return join_maximise(*self.tables, name, backend=backend)
        return self._walk(self.tables if way == "layout" else [_sorted(t, backend) for t in self._shuffled])

    def _walk(self, tables: Sequence[Table]) -> Table:
        prepared, layout = self._prepared, self._prepared.layout(self._separator)
        scope = BucketScope(self._variable, prepared.problem.sizes[self._variable], self._separator, layout)
        messages = [(scope, t.layout) for scope, t in zip(self._scopes, tables, strict=True)]
        program = self._builder.build(scope, messages, [], [], max(t.rows for t in tables))
        like = Schema(layout, prepared.dtype, prepared.semiring)
        return join_and_eliminate(program, like, tables, self._row_limit)


def _shuffled(table: Table, rng: np.random.Generator) -> Table:
    order = rng.permutation(table.rows)
    return Table(table.layout, np.ascontiguousarray(table.keys[:, order]), table.values[order], table.semiring)


def _sorted(table: Table, backend: CountingBackend) -> Table:
    rows = arrange(table, table.scope, table.scope, table.values.dtype, backend)
    return Table(table.layout, rows.keys, rows.values, table.semiring, is_sorted=True)


def check_equal(expected: Table, found: Table, what: str) -> None:
    """SystemExit unless both tables have the same rows; layouts and orders may differ."""
    rows = arrange(found, expected.scope, expected.scope, expected.values.dtype, CpuBackend())
    if not (np.array_equal(rows.keys, expected.keys) and np.array_equal(rows.values, expected.values)):
        raise SystemExit(f"{what}: the ways to join give different rows")


def measure(problem: Problem, repeat: int, least: int, row_limit: int) -> Totals:
    """Solve, then join again every bucket of two messages; the best of ``repeat`` times counts."""
    order = search_orders(problem, "auto", 0.5, 0)[0].order
    prepared = prepare(problem, problem.semiring, order)
    totals = Totals()
    with MessageStore(MEMORY) as store:
        with count_sorts() as sorts:
            outcome = Forward(prepared, True, store).run()
        totals.forward_sorts = len(sorts)
        builder = ProgramBuilder(problem.sizes, prepared.constraints, prepared.functions, prepared.semiring)
        for bucket in outcome.buckets:
            if len(bucket.messages) != 2 or sum(m.rows for m in bucket.messages) < least:
                continue
            join = BucketJoin(prepared, bucket, builder, row_limit)
            try:
                expected = join.run("layout", CountingBackend())
            except TooManyRowsError:
                totals.skipped += 1
                continue
            totals.buckets += 1
            totals.rows += sum(t.rows for t in join.tables)
            totals.result_rows += expected.rows
            for way in WAYS:
                _add_best(totals, way, join, expected, repeat)
    return totals


def _add_best(totals: Totals, way: str, join: BucketJoin, expected: Table, repeat: int) -> None:
    runs = []
    for _ in range(repeat):
        backend = CountingBackend()
        with count_sorts() as sorts:
            begin = time.perf_counter()
            result = join.run(way, backend)
            seconds = time.perf_counter() - begin
        check_equal(expected, result, way)
        runs.append((seconds, backend.seconds, len(sorts)))
    seconds, sorting, sorts_made = min(runs)
    totals.seconds[way] += seconds
    totals.sorting[way] += sorting
    totals.sorts[way] += sorts_made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ",".join([*SYNTHETIC, *real_instances()])
    parser.add_argument("--problems", default=default, help=f"by commas, also SPOT5 numbers (default {default})")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument("--least", type=int, default=1000, help="input rows of a bucket that counts (default 1000)")
    parser.add_argument("--row-limit", type=int, default=20_000_000, help="rows of a result (default 20 million)")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    options = parser.parse_args()
    head = ["problem", "buckets", "too large", "input rows", "result rows", *WAYS, "of which sorts"]
    table = [[*head, "sort + layout / layout", "shared / layout", "sorts", "in forward pass"]]
    for name in options.problems.split(","):
        problem = load_problem(name)
        measure(problem, 1, options.least, options.row_limit)  # loads compiled code
        t = measure(problem, options.repeat, options.least, options.row_limit)
        base = t.seconds["layout"] or float("nan")
        cells = [name, f"{t.buckets}", f"{t.skipped}", f"{t.rows:,}", f"{t.result_rows:,}"]
        cells += [f"{t.seconds[way]:.4f}" for way in WAYS]
        cells.append(" / ".join(f"{t.sorting[way]:.4f}" for way in WAYS[1:]))
        cells += [f"{t.seconds[way] / base:.2f}" for way in WAYS[1:]]
        table.append([*cells, " / ".join(str(t.sorts[way]) for way in WAYS), f"{t.forward_sorts}"])
    print_table(table, options.markdown)
    print(f"\nSeconds, best of {options.repeat}; sorts in the order of the ways. {describe_run()}")


if __name__ == "__main__":
    main()
