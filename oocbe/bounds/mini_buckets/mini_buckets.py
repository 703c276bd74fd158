"""Mini-bucket elimination MBE(z): a bound on the optimum if exact elimination does not fit (Dechter and Rish 2003).

A bucket over too many variables is divided into mini-buckets of at most z variables, and its variable is eliminated
from each separately::

    min_x (f(x, a) + g(x, b))   is at least   min_x f(x, a) + min_x g(x, b)

Each mini-bucket sends its message to the bucket of its first variable. The sum of the last messages is a lower bound on
the optimum; it is exact if no bucket was divided, so for z above the induced width. The number of rows is at most that
of the assignments of z variables, and usually far smaller: messages are incomplete tables, and every mini-bucket
applies all hard constraints over its variables, from any bucket. So bounds are better than those of complete tables.

All computations are in min-sum; other semirings are converted first
(:mod:`oocbe.bounds.mini_buckets.mini_buckets_bound`). The engine of exact elimination joins the buckets, on either
backend, with messages on disk when memory is short.

Costs are shifted between the mini-buckets of a bucket in complete tables
(:mod:`oocbe.bounds.mini_buckets.mini_buckets_complete`): in rows, of which many are missing, shifts lowered bounds as
often as they raised them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.mini_buckets.mini_buckets_partition import FactorGroup, by_content, by_scope, parts_of
from oocbe.elimination.buckets.buckets import Bucket, fill_buckets
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import INCOMPLETE
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.tables.complete import CompleteTable
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table

ULP = 2.0**-52
"""Upper bound on the rounding error of a float64 sum, relative to the sum of its terms' magnitudes."""


@dataclass
class MiniBucketPass:
    """Outcome of the forward pass with mini-buckets.

    buckets : one a variable, in elimination order, with all their factors (up to the first one proven infeasible).
    bound : lower bound on the optimum, rounded down by the error bound of floating-point sums; None if infeasible.
    value : the bound before rounding.
    split : number of divided buckets. mini_buckets : total number of mini-buckets.
    width : variables of the largest message.
    largest_rows, total_rows : rows of the largest message, and of all.
    """

    buckets: list[Bucket]
    bound: int | float | None
    value: int | float | None = None
    split: int = 0
    mini_buckets: int = 0
    width: int = 0
    largest_rows: int = 0
    total_rows: int = 0


class MiniBuckets:
    """The forward pass with mini-buckets over a prepared min-sum problem.

    prepared : the problem, without carried consumption in its rows.
    z : maximum number of variables of a mini-bucket, including the eliminated one.
    store : of the messages. engine : computes the mini-buckets.
    partition : ``scope`` or ``content``. seed : of the samples of the latter.
    tables : form of the messages (:mod:`oocbe.elimination.buckets.forms`); with ``content`` all are incomplete.
    """

    def __init__(
        self,
        prepared: Prepared,
        z: int,
        store: MessageStore,
        engine: BucketEngine,
        partition: str = "scope",
        seed: int = 0,
        tables: str = INCOMPLETE,
    ) -> None:
        self._prepared = prepared
        self._z = z
        self._store = store
        self._by_content = partition == "content"
        self._seed = seed
        form = INCOMPLETE if self._by_content else tables
        self._forward = Forward(prepared, dominance=False, store=store, engine=engine, tables=form)
        self._bounds: dict[int, float] = {}
        self._nothing = np.zeros(len(prepared.problem.variables), dtype=np.uint8)
        self._is_exact = prepared.dtype.kind == "i"
        functions = prepared.problem.functions
        terms = [abs(prepared.problem.constant), *(_magnitude_of(f.values) for f in functions)]
        # Constants are added up before elimination, and values may be rounded logarithms.
        self._error = (len(functions) + 2) * ULP * sum(terms)

    def run(self, bucket_done: Callable[[int, int, int], None] | None = None) -> MiniBucketPass:
        """Eliminate every variable; ``bucket_done`` is called with a bucket's number (from 1), and rows and bytes sent.

        Raises ResourceError: a message would not fit the memory limit, or the disk is full; TimeLimitError: the
        engine's deadline came.
        """
        prepared = self._prepared
        buckets = fill_buckets(prepared, self._store)
        total: int | float = prepared.constant
        done = MiniBucketPass([*buckets], None)
        if prepared.is_infeasible:
            return done
        for number, bucket in enumerate(done.buckets):
            minis = [Bucket(bucket.variable, (), p.functions, p.constraints, p.messages) for p in self._divide(bucket)]
            done.mini_buckets += len(minis)
            done.split += len(minis) > 1
            tables = self._messages(minis)
            if any(t.rows == 0 for t in tables):
                del done.buckets[number + 1 :]
                return done
            for mini, table in zip(minis, tables, strict=True):
                done.largest_rows = max(done.largest_rows, table.rows)
                done.width = max(done.width, len(mini.separator))
                if mini.separator:
                    target = buckets[prepared.position[mini.separator[0]]]
                    message = self._store.add(mini.separator, table)
                    self._bounds[id(message)] = self._magnitude(mini)
                    target.messages.append(message)
                else:
                    total = total + prepared.semiring.reduce(to_host(table).values).item()
            for received in bucket.messages:
                self._store.joined(received)
            rows = sum(t.rows for t in tables)
            done.total_rows += rows
            if bucket_done is not None:
                bucket_done(number + 1, rows, sum(t.nbytes for t in tables))
        done.value = total
        done.bound = total if self._is_exact else total - self._error - abs(total) * ULP * len(done.buckets)
        return done

    def _divide(self, bucket: Bucket) -> list[FactorGroup]:
        parts = parts_of(bucket, bucket.constraints)
        if self._by_content:
            return by_content(parts, self._z, self._prepared, bucket.variable, self._seed)
        return by_scope(parts, self._z)

    def _messages(self, minis: list[Bucket]) -> Sequence[Table | CompleteTable]:
        """Messages of the mini-buckets of one bucket, whose separators are set."""
        if not self._is_exact:
            magnitude = sum(self._magnitude(mini) for mini in minis)
            self._error += sum(len(m.functions) + len(m.messages) + 1 for m in minis) * ULP * magnitude
        return [self._forward.cheapest_message(mini, self._nothing) for mini in minis]

    def _magnitude(self, mini: Bucket) -> float:
        """Bound on the absolute value of every sum of floats in a mini-bucket; 0 for integers, which need none."""
        if self._is_exact:
            return 0
        entries = self._prepared.functions.entries
        bound: float = 0
        for f in mini.functions:
            bound += _magnitude_of(entries[f.offset : f.offset + (1 << f.bits)])
        for m in mini.messages:
            known = self._bounds.get(id(m))
            bound += _magnitude_of(to_host(m.table()).values) if known is None else known
        return bound


def _magnitude_of(values: NDArray[Any]) -> float:
    """Largest absolute value."""
    return float(np.abs(values).max(initial=0))
