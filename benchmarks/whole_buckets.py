"""Whole buckets (messages, functions and constraints) by the bucket's walk and by the public operators.

    python benchmarks/whole_buckets.py             # synthetic problems, and SPOT5 instances where they are to be had

The companion of ``elimination_layout.py``, which joins messages only. Here each bucket that receives at least two
messages is computed as bucket elimination does it (one walk that looks functions and covered constraints up, over
messages that arrive sorted), and once more with :func:`oocbe.join_sum` for one table after the other, every constraint
dropping rows as soon as the scope covers it, and :func:`oocbe.maximise` at the end. Both must give the same rows. A
bucket in which the operators could pass ``--row-limit`` rows on the way is left out and counted: the walk writes none
of these rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from elimination_layout import (
    MEMORY,
    SYNTHETIC,
    CountingBackend,
    check_equal,
    count_sorts,
    load_problem,
    real_instances,
)
from measuring import describe_run, print_table

from oocbe.algebra.filters import drop_forbidden
from oocbe.algebra.operators import join_sum, maximise
from oocbe.elimination.buckets.buckets import Bucket, members_of
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.factors import FactorPool, PackedFactor
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.model.problem import Problem
from oocbe.tables.layout import Schema
from oocbe.tables.table import Table


@dataclass(frozen=True)
class PlainConstraint:
    """A constraint as the operators take it: a table of what it permits, or tuples that it forbids."""

    sizes: dict[str, int]
    permitted: Table
    forbidden: np.ndarray


class WholeBucket:
    """A bucket with everything in it, and the two ways to compute its message."""

    def __init__(self, prepared: Prepared, bucket: Bucket, builder: ProgramBuilder, row_limit: int) -> None:
        self._prepared = prepared
        self._bucket = bucket
        self._builder = builder
        self._row_limit = row_limit
        self._layout = prepared.layout(bucket.separator)
        self.tables = [m.table() for m in bucket.messages]
        members = bucket.scope_members()
        scopes = [members_of(m.scope) for m in bucket.messages]
        self._covered = [
            c
            for c in prepared.constraints.factors
            if c.members & ~members == 0 and all(c.members & ~scope for scope in scopes)
        ]
        self._functions = [self._table(f, prepared.functions)[0] for f in bucket.functions]
        self._constraints = [self._constraint(c) for c in self._covered]

    def walk(self) -> Table:
        """As bucket elimination does it, dominance aside."""
        prepared, bucket = self._prepared, self._bucket
        size = prepared.problem.sizes[bucket.variable]
        scope = BucketScope(bucket.variable, size, bucket.separator, self._layout)
        messages = [(m.scope, t.layout) for m, t in zip(bucket.messages, self.tables, strict=True)]
        rows = max(t.rows for t in self.tables)
        program = self._builder.build(scope, messages, self._covered, bucket.functions, rows)
        like = Schema(self._layout, prepared.dtype, prepared.semiring)
        return join_and_eliminate(program, like, self.tables, self._row_limit)

    def operators(self, backend: CountingBackend) -> Table:
        """One table after the other; TooManyRowsError where more than the limit would be written on the way."""
        waiting = list(self._constraints)

        def drop_covered(table: Table) -> Table:
            for c in [c for c in waiting if all(name in table.layout for name in c.sizes)]:
                waiting.remove(c)
                table = drop_forbidden(table, c.sizes, c.forbidden, backend=backend)
            return table

        def join(table: Table, other: Table) -> Table:
            free = [
                size for name, size in zip(other.scope, other.layout.sizes, strict=True) if name not in table.layout
            ]
            if table.rows * min(other.rows, int(np.prod(free, dtype=float))) > self._row_limit:
                raise TooManyRowsError(len(table.scope), self._row_limit)
            return drop_covered(join_sum(table, other, backend=backend))

        result = drop_covered(self.tables[0])
        for table in self.tables[1:]:
            result = join(result, table)
        while waiting:
            result = join(result, waiting.pop(0).permitted)
        for table in self._functions:
            result = join(result, table)
        return maximise(result, self._prepared.problem.variables[self._bucket.variable].name, backend=backend)

    def _table(self, factor: PackedFactor, pool: FactorPool) -> tuple[Table, np.ndarray, np.ndarray]:
        """A packed factor's entries as a table of them all; the value indices, and the entries."""
        layout = self._prepared.layout(factor.scope)
        tuples = np.indices(layout.sizes[::-1]).reshape(len(layout.sizes), -1)[::-1].T
        keys = layout.pack(tuples)
        entries = pool.entries[factor.offset + keys[0].astype(np.int64)]
        values = entries.astype(self._prepared.dtype)
        return Table(layout, keys, values, self._prepared.semiring, is_sorted=True), tuples, entries

    def _constraint(self, factor: PackedFactor) -> PlainConstraint:
        table, tuples, entries = self._table(factor, self._prepared.constraints)
        kept = entries != 0
        values = np.full(int(kept.sum()), self._prepared.semiring.one, dtype=self._prepared.dtype)
        keys = np.ascontiguousarray(table.keys[:, kept])
        permitted = Table(table.layout, keys, values, table.semiring, is_sorted=True)
        return PlainConstraint(dict(zip(table.scope, table.layout.sizes, strict=True)), permitted, tuples[~kept])


@dataclass
class Totals:
    """Sums over the buckets of one problem."""

    buckets: int = 0
    skipped: int = 0
    rows: int = 0
    walk: float = 0.0
    operators: float = 0.0
    walk_sorts: int = 0
    operator_sorts: int = 0
    sorting: float = 0.0


def measure(problem: Problem, repeat: int, least: int, row_limit: int) -> Totals:
    """Solve, then compute every bucket of two messages or more again; the best of ``repeat`` times counts."""
    prepared = prepare(problem, problem.semiring, search_orders(problem, "auto", 0.5, 0)[0].order)
    totals = Totals()
    with MessageStore(MEMORY) as store:
        outcome = Forward(prepared, True, store).run()
        builder = ProgramBuilder(problem.sizes, prepared.constraints, prepared.functions, prepared.semiring)
        for bucket in outcome.buckets:
            if len(bucket.messages) < 2 or sum(m.rows for m in bucket.messages) < least:
                continue
            whole = WholeBucket(prepared, bucket, builder, row_limit)
            try:
                expected = whole.walk()
                check_equal(expected, whole.operators(CountingBackend()), "whole bucket")
            except TooManyRowsError:
                totals.skipped += 1
                continue
            totals.buckets += 1
            totals.rows += sum(t.rows for t in whole.tables)
            seconds, sorts = _best(whole.walk, repeat)
            totals.walk += seconds
            totals.walk_sorts += sorts
            backend = CountingBackend()
            seconds, sorts = _best(lambda w=whole, b=backend: w.operators(b), repeat)
            totals.operators += seconds
            totals.operator_sorts += sorts
            totals.sorting += backend.seconds / repeat
    return totals


def _best(run: Callable[[], Table], repeat: int) -> tuple[float, int]:
    """Least seconds, and sorts of one run."""
    runs = []
    for _ in range(repeat):
        with count_sorts() as sorts:
            begin = time.perf_counter()
            run()
            runs.append((time.perf_counter() - begin, len(sorts)))
    return min(runs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ",".join([*SYNTHETIC, *real_instances()])
    parser.add_argument("--problems", default=default, help=f"by commas, also SPOT5 numbers (default {default})")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the best counts (default 3)")
    parser.add_argument(
        "--least", type=int, default=1000, help="rows of messages of a bucket that counts (default 1000)"
    )
    parser.add_argument("--row-limit", type=int, default=20_000_000, help="rows on the way (default 20 million)")
    parser.add_argument("--markdown", action="store_true", help="print rows for RESULTS.md")
    options = parser.parse_args(arguments)
    head = ["problem", "buckets", "too large", "input rows", "walk", "operators", "of which sorts"]
    table = [[*head, "operators / walk", "sorts of the walk", "of the operators"]]
    for name in options.problems.split(","):
        t = measure(load_problem(name), options.repeat, options.least, options.row_limit)
        cells = [name, f"{t.buckets}", f"{t.skipped}", f"{t.rows:,}", f"{t.walk:.4f}", f"{t.operators:.4f}"]
        cells += [f"{t.sorting:.4f}", f"{t.operators / (t.walk or float('nan')):.2f}"]
        table.append([*cells, f"{t.walk_sorts}", f"{t.operator_sorts}"])
    print_table(table, options.markdown)
    print(f"\nSeconds, best of {options.repeat}. {describe_run()}")


if __name__ == "__main__":
    main()
