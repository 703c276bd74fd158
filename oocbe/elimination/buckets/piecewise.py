"""A bucket whose message is computed through the disk: joined in pieces, pruned by dominance, scaled, published.

1. The join yields pieces in the order of their keys (:mod:`oocbe.elimination.engine.bucket_stream`). The first few
   stay in memory: if there are no more, the message is small, and is finished and kept like any other.
2. Otherwise the pieces are written to a stored table. Without further processing, that table is the message.
3. Dominance compares rows across the whole message, and scaling needs its largest value. For these the rows are
   written to a scratch table first; the surviving rows are then read from it and written as the message.

A message is published as a whole. A killed process's partial files are removed, and the bucket is joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import NO_LIMIT, BucketEngine
from oocbe.elimination.engine.bucket_stream import BucketJoin, BucketPiece, BucketStream, PieceRoom
from oocbe.elimination.engine.substitutions import DominanceStream, Substitutions
from oocbe.elimination.preparation.scaling import Extent, check_scaled, exponent_of, rescale, scaled_by
from oocbe.elimination.row_pruning.dominance import SubstitutionDominance
from oocbe.errors import DiskError
from oocbe.execution.cluster.workers import Workers
from oocbe.execution.sources import ChunkCache
from oocbe.model.results.numerals import format_bytes
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.advance import advance
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table


@dataclass(frozen=True)
class BucketFinalizer:
    """Post-processing of the rows of a join.

    where : name of the bucket, for error messages. may_cancel : whether terms of a sum may have both signs.
    dominance : drops dominated rows, or None. separator, subtree : of the message, as passed to dominance.
    """

    where: str
    may_cancel: bool
    dominance: SubstitutionDominance | None
    separator: tuple[int, ...]
    subtree: NDArray[np.uint8]


class PiecewiseBucket:
    """Computes one bucket's message through the disk.

    store : keeps the message. engine : computes the pieces.
    finish : post-processing of their rows. row_cap, step_limit : as for the forward pass.
    cache : of chunks, for the tables of the bucket.
    """

    def __init__(
        self, store: MessageStore, engine: BucketEngine, finish: BucketFinalizer, row_cap: int | None, step_limit: int
    ) -> None:
        self._store, self._engine, self._finish = store, engine, finish
        self._limits = (NO_LIMIT if row_cap is None else row_cap, step_limit)
        store.make_room(int(store.memory_limit * tuning().freed_share))
        self._room = max(1, store.free)
        self.cache = ChunkCache(int(self._room * tuning().small_share))

    def publish(self, place: int, join: BucketJoin) -> tuple[Message, int]:
        """Join, finish and publish the message of the bucket at ``place``; returns it and the exponent of its scaling.

        Raises TooManyRowsError: more rows than the cap; DiskError: the disk, or its permitted share, is full;
        ResourceError: a memory allocation failed even for the smallest piece; ClusterError: workers cannot continue;
        TimeLimitError: the engine's deadline passed; CorruptDataError: a table on disk is damaged.
        """
        with advance.shown():
            if self._engine.workers is not None:
                return self._publish_by(self._engine.workers, place, join)
            return self._publish_in_pieces(place, join)

    def _publish_in_pieces(self, place: int, join: BucketJoin) -> tuple[Message, int]:
        engine, store, extent = self._engine, self._store, Extent()
        room = PieceRoom(self._room, engine.wanted_streams, engine.piece_rows)
        stream = BucketStream(BucketPiece.whole(join), engine, room, *self._limits)
        before = store.budget.used

        def tables(made: Iterable[Table]) -> Iterator[Table]:
            for rows in made:
                extent.passing(rows.values)
                yield rows
                self._forecast(place, join.name, stream.done, stream.made, stream.pieces, store.budget.used - before)

        with closing(stream.tables()) as made:
            table, rest = self._first(tables(made), join)
            if table is not None:
                return self._publish_held(place, *self._finished(table))
            if not self._is_unfinished(join):
                return self._publish(place, join, rest, 0)
            with store.new_table() as path:
                scratch = store.stored(path, join.head(), rest)

        def finished(exponent: int, substitutions: Substitutions | None, sign: int) -> tuple[Message, int]:
            left = scratch.chunks()
            if substitutions is not None:
                cache = ChunkCache(int(self._room * tuning().half_share))
                left = DominanceStream(scratch, substitutions, sign, cache, engine.streams, engine.deadline).tables()
            with closing(left):
                table, rest = self._first((scaled_by(table, exponent) for table in left), join)
                if table is not None:
                    return self._publish_held(place, table, exponent)
                return self._publish(place, join, rest, exponent)

        return self._finish_scratch(join, scratch, extent, finished)

    def _publish_by(self, workers: Workers, place: int, join: BucketJoin) -> tuple[Message, int]:
        """The message of a bucket joined by workers."""
        from oocbe.elimination.buckets.segmented import SegmentedBucket  # not at every start

        store, finish = self._store, self._finish
        before = store.budget.used

        def forecast(done: float, rows: int, parts: int) -> None:
            self._forecast(place, join.name, done, rows, parts, store.budget.used - before)

        segmented = SegmentedBucket(store, self._engine, workers, *self._limits, forecast)
        if not self._is_unfinished(join):
            with store.new_table(place) as path:
                return store.publish_written(place, finish.separator, segmented.join(path, join)[0], 0), 0
        with store.new_table() as path:
            scratch, extent = segmented.join(path, join)

        def finished(exponent: int, substitutions: Substitutions | None, sign: int) -> tuple[Message, int]:
            with store.new_table(place) as path:
                table = segmented.finish(path, scratch, finish.where, exponent, substitutions, sign)
                return store.publish_written(place, finish.separator, table, exponent), exponent

        return self._finish_scratch(join, scratch, extent, finished, place)

    def _finish_scratch(
        self,
        join: BucketJoin,
        scratch: StoredTable,
        extent: Extent,
        finished: Callable[[int, Substitutions | None, int], tuple[Message, int]],
        place: int | None = None,
    ) -> tuple[Message, int]:
        """Publish the scaled and undominated rows of a scratch table, which is removed.

        finished : does it, given the exponent, and the substitutions, if any, with their sign. place : of the bucket,
            if few rows are to be finished in memory.
        """
        finish = self._finish
        try:
            if place is not None and scratch.rows <= self._most_held(join):
                return self._publish_held(place, *self._finished(scratch.to_table()))
            exponent = exponent_of(join.semiring, join.dtype, extent.largest)
            least, greatest = float(extent.least), float(extent.greatest)
            if exponent_of(join.semiring, join.dtype, 2.0) != 0:
                check_scaled(finish.where, least, greatest, exponent, finish.may_cancel)
            return finished(exponent, *self._substitutions(scratch.layout, greatest - least))
        finally:
            self._store.remove_scratch(scratch)

    def _substitutions(self, layout: Layout, spread: float) -> tuple[Substitutions | None, int]:
        """Substitutions that may dominate rows with values of this spread, None if there are none; and their sign."""
        finish = self._finish
        if finish.dominance is None:
            return None, 1
        found = finish.dominance.substitutions(layout, spread, finish.separator, finish.subtree)
        return found if found.variables else None, finish.dominance.sign

    def _forecast(self, place: int, name: str, done: float, rows: int, pieces: int, written: int) -> None:
        """Show the progress of a join, and stop it early (DiskError) if all of it would exceed the disk by far."""
        advance.tell(name, done, rows)
        check_forecast(self._store.budget, f"bucket {place + 1}", pieces, done, rows, written)

    def _publish_held(self, place: int, table: Table, exponent: int) -> tuple[Message, int]:
        return self._store.publish(place, self._finish.separator, table, exponent), exponent

    def _publish(self, place: int, join: BucketJoin, tables: Iterable[Table], exponent: int) -> tuple[Message, int]:
        with self._store.new_table(place) as path:
            stored = self._store.stored(path, join.head(), tables)
            return self._store.publish_written(place, self._finish.separator, stored, exponent), exponent

    def _first(self, tables: Iterator[Table], join: BucketJoin) -> tuple[Table | None, Iterator[Table]]:
        """All rows as one table if they are few; else None and an iterator over all tables."""
        most = self._most_held(join)
        head: list[Table] = []
        rows = 0
        for table in tables:
            head.append(table)
            rows += table.rows
            if rows > most:
                return None, chain(head, tables)
        if len(head) == 1:
            return head[0], iter(())
        none = join.head()
        keys = np.concatenate([none.keys, *(t.keys for t in head)], axis=1)
        values = np.concatenate([none.values, *(t.values for t in head)])
        return Table(none.layout, keys, values, none.semiring, is_sorted=True), iter(())

    def _most_held(self, join: BucketJoin) -> int:
        """Rows of a message that is small enough to stay in memory."""
        most = int(self._room * tuning().held_share) // join.head().row_bytes
        return most if self._engine.piece_rows is None else min(most, self._engine.piece_rows)

    def _finished(self, table: Table) -> tuple[Table, int]:
        """A message in memory, scaled and without dominated rows."""
        finish = self._finish
        if finish.dominance is not None:
            table = finish.dominance.drop_dominated(table, finish.separator, finish.subtree, self._engine)
        return rescale(table, finish.where, finish.may_cancel) if table.rows else (table, 0)

    def _is_unfinished(self, join: BucketJoin) -> bool:
        """Whether the rows need post-processing of the whole message."""
        if exponent_of(join.semiring, join.dtype, 2.0) != 0:
            return True
        return self._substitutions(join.scope.layout, np.inf)[0] is not None


def check_forecast(budget: DiskBudget, what: str, pieces: int, done: float, made: int, written: int) -> None:
    """Stop early if the forecast of written bytes exceeds the disk by far.

    what : name of the bucket. pieces : finished pieces. done : their approximate share of the bucket.
    made, written : their rows and bytes.
    Raises DiskError: the forecast exceeds the disk by far.
    """
    numbers = tuning()
    if pieces < numbers.forecast_pieces or done <= 0:
        return
    # A limit takes precedence over the disk's size: users may set it above the free space.
    wanted, allowed = written / done, budget.allowed
    if wanted > numbers.margin * (written + allowed):
        raise DiskError(
            f"{what} was stopped by its forecast: {pieces:,} pieces, about {100 * done:.3g} % of it, came to "
            f"{made:,} rows, {format_bytes(written)} on disk; all would come to some {made / done:,.0f} rows, "
            f"{format_bytes(int(wanted))}, where {format_bytes(allowed)} are left ({budget.sizes()}). Choose a folder "
            "on a larger disk, bound the problem (--bounds, --ub), or raise --max-disk to go on all the same",
            is_full=True,
        )
