"""A bucket whose message is computed through the disk: joined in pieces, pruned by dominance, scaled, published.

1. The join yields pieces in the order of their keys (:mod:`oocbe.elimination.engine.bucket_stream`). The first few
   stay in memory: if there are no more, the message is small, and is finished and kept like any other.
2. Otherwise the pieces are written to a stored table. Without further processing, that table is the message.
3. Dominance compares rows across the whole message, and scaling needs its largest value. For these the rows are
   written to a scratch table first; the surviving rows are then read from it and written as the message.

A message is published as a whole. A killed process's partial files are removed, and the bucket is joined again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path

import numpy as np

from oocbe.elimination.buckets.bucket_finalizer import BucketFinalizer
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_cuts import BucketJoin, BucketPiece
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.bucket_join import NO_LIMIT
from oocbe.elimination.engine.bucket_stream import BucketStream, PieceRoom
from oocbe.elimination.engine.dominance_stream import DominanceStream
from oocbe.elimination.preparation.scaling import check_scaled, exponent_of, rescale, scaled_by
from oocbe.errors import DiskError
from oocbe.execution.cluster.workers import Workers
from oocbe.execution.sources import ChunkCache
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.advance import advance
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table, format_bytes


class PiecewiseBucket:
    """Computes one bucket's message through the disk.

    Parameters
    ----------
    store : keeps the message. engine : computes the pieces.
    finish : post-processing of their rows. row_cap, step_limit : as for the forward pass.

    Attributes
    ----------
    cache : of chunks, for the tables of the bucket.
    """

    def __init__(
        self, store: MessageStore, engine: BucketEngine, finish: BucketFinalizer, row_cap: int | None, step_limit: int
    ) -> None:
        self._store, self._engine, self._finish = store, engine, finish
        self._limits = (NO_LIMIT if row_cap is None else row_cap, step_limit)
        store.make_room(int(store.memory_limit * tuning().wanted_share))
        self._room = max(1, store.free)
        self.cache = ChunkCache(int(self._room * tuning().cache_share))

    def publish(self, place: int, join: BucketJoin) -> tuple[Message, int]:
        """:meth:`_publish_in_pieces` with a progress display."""
        with advance.shown():
            return self._publish_in_pieces(place, join)

    def _publish_in_pieces(self, place: int, join: BucketJoin) -> tuple[Message, int]:
        """Join, finish and publish the message of the bucket at ``place``; returns it and the exponent of its scaling.

        Raises
        ------
        TooManyRowsError : more rows than the cap. DiskError : the disk, or its permitted share, is full.
        ResourceError : a memory allocation failed even for the smallest piece.
        TimeLimitError : the engine's deadline passed. CorruptDataError : a table on disk is damaged.
        """
        engine = self._engine
        if engine.workers is not None:
            return self._publish_by(engine.workers, place, join)
        whole = BucketPiece.whole(join)
        stream = BucketStream(whole, engine, PieceRoom(self._room, engine.streams, engine.piece_rows), *self._limits)
        with closing(stream.tables()) as made:
            rows = _Observed(map(self._finish.values, made))
            table, rest = self._first(self._within_disk(place, join.name, stream, rows.tables()), join)
            if table is not None:
                table, exponent = self._finished(table)
                return self._store.publish(place, self._finish.separator, table, exponent), exponent
            if not self._is_unfinished(join):
                return self._publish(place, join, rest, 0), 0
            with self._store.new_table() as path:
                scratch = self._written(path, join, rest)
        try:
            with closing(self._rest_of(scratch, rows)) as left:
                exponent = exponent_of(join.semiring, join.dtype, rows.largest)
                if exponent_of(join.semiring, join.dtype, 2.0) != 0:
                    extremes = float(rows.least), float(rows.greatest)
                    check_scaled(self._finish.where, *extremes, exponent, self._finish.may_cancel)
                scaled = (scaled_by(table, exponent) for table in left)
                table, rest = self._first(scaled, join)
                if table is not None:
                    return self._store.publish(place, self._finish.separator, table, exponent), exponent
                return self._publish(place, join, rest, exponent), exponent
        finally:
            self._store.remove_scratch(scratch)

    def _publish_by(self, workers: Workers, place: int, join: BucketJoin) -> tuple[Message, int]:
        """The message of a bucket joined by workers; arguments and errors as for :meth:`publish`, and ClusterError."""
        from oocbe.elimination.buckets.segmented import SegmentedBucket  # not at every start

        store, finish = self._store, self._finish
        before = store.budget.used

        def forecast(done: float, rows: int, parts: int) -> None:
            advance.tell(join.name, done, rows)
            check_forecast(store.budget, f"bucket {place + 1}", parts, done, rows, store.budget.used - before)

        segmented = SegmentedBucket(store, self._engine, workers, finish, *self._limits, forecast)
        if not self._is_unfinished(join):
            with store.new_table(place) as path:
                table = segmented.join(path, join).table
                return store.publish_written(place, finish.separator, table, 0), 0
        with store.new_table() as path:
            joined = segmented.join(path, join)
        scratch = joined.table
        try:
            if scratch.rows <= self._most_held(join):
                table_in_memory, exponent = self._finished(scratch.to_table())
                return store.publish(place, finish.separator, table_in_memory, exponent), exponent
            exponent = exponent_of(join.semiring, join.dtype, max(abs(joined.least), abs(joined.greatest)))
            if exponent_of(join.semiring, join.dtype, 2.0) != 0:
                check_scaled(finish.where, float(joined.least), float(joined.greatest), exponent, finish.may_cancel)
            dominance, found = finish.dominance, None
            if dominance is not None:
                spread = float(joined.greatest) - float(joined.least)
                found = dominance.substitutions(scratch.layout, spread, finish.separator, finish.subtree)
            sign = 1 if dominance is None else dominance.sign
            substitutions = found if found is not None and found.variables else None
            with store.new_table(place) as path:
                table = segmented.finish(path, scratch, finish.where, exponent, substitutions, sign)
                return store.publish_written(place, finish.separator, table, exponent), exponent
        finally:
            store.remove_scratch(scratch)

    def _within_disk(self, place: int, name: str, stream: BucketStream, tables: Iterator[Table]) -> Iterator[Table]:
        """Tables written to disk one by one, while the forecast of their total size fits the disk.

        DiskError : by the rows joined and written so far, the total exceeds the disk by far.
        """
        budget = self._store.budget
        before = budget.used
        for table in tables:
            yield table
            written = budget.used - before
            advance.tell(name, stream.done, stream.made)
            check_forecast(budget, f"bucket {place + 1}", stream.pieces, stream.done, stream.made, written)

    def _publish(self, place: int, join: BucketJoin, tables: Iterable[Table], exponent: int) -> Message:
        with self._store.new_table(place) as path:
            stored = self._written(path, join, tables)
            return self._store.publish_written(place, self._finish.separator, stored, exponent)

    def _written(self, path: Path, join: BucketJoin, tables: Iterable[Table]) -> StoredTable:
        """Write tables as they are computed, concatenated into one on disk."""
        with self._store.row_writer(path, join.head()) as writer:
            for table in tables:
                writer.append(table.keys, table.values)
        return StoredTable.open(path)

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
        return _laid_end_to_end(join.head(), head), iter(())

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
        finish = self._finish
        if exponent_of(join.semiring, join.dtype, 2.0) != 0:
            return True
        if finish.dominance is None:
            return False
        layout = join.scope.layout
        return bool(finish.dominance.substitutions(layout, np.inf, finish.separator, finish.subtree).variables)

    def _rest_of(self, table: StoredTable, rows: _Observed) -> Generator[Table, None, None]:
        """Undominated rows of a table on disk."""
        finish, engine = self._finish, self._engine
        if finish.dominance is not None:
            spread = float(rows.greatest) - float(rows.least)
            found = finish.dominance.substitutions(table.layout, spread, finish.separator, finish.subtree)
            if found.variables:
                cache = ChunkCache(int(self._room * tuning().chunks_share))
                sign = finish.dominance.sign
                stream = DominanceStream(table, found, sign, cache, engine.streams, engine.deadline)
                yield from stream.tables()
                return
        yield from table.chunks()


class _Observed:
    """Iterates over tables and records their least and greatest value."""

    def __init__(self, tables: Iterator[Table]) -> None:
        self._tables = tables
        self.least: float = np.inf
        self.greatest: float = -np.inf

    @property
    def largest(self) -> float:
        """Largest absolute value."""
        return max(abs(self.least), abs(self.greatest))

    def tables(self) -> Generator[Table, None, None]:
        """The tables; can be iterated once."""
        for table in self._tables:
            self.least = min(self.least, table.values.min().item())
            self.greatest = max(self.greatest, table.values.max().item())
            yield table


def check_forecast(budget: DiskBudget, what: str, pieces: int, done: float, made: int, written: int) -> None:
    """Stop early if the forecast of written bytes exceeds the disk by far.

    Parameters
    ----------
    what : name of the bucket. pieces : finished pieces. done : their approximate share of the bucket.
    made, written : their rows and bytes.

    Raises
    ------
    DiskError : the forecast exceeds the disk by far.
    """
    numbers = tuning()
    if pieces < numbers.forecast_pieces or done <= 0:
        return
    # A limit takes precedence over the disk's size: users may set it above the free space.
    wanted, allowed = written / done, budget.allowed
    if wanted > numbers.forecast_times * (written + allowed):
        raise DiskError(
            f"{what} was stopped by its forecast: {pieces:,} pieces, about {100 * done:.3g} % of it, came to "
            f"{made:,} rows, {format_bytes(written)} on disk; all would come to some {made / done:,.0f} rows, "
            f"{format_bytes(int(wanted))}, where {format_bytes(allowed)} are left ({budget.sizes()}). Choose a folder "
            "on a larger disk, bound the problem (--bounds, --ub), or raise --max-disk to go on all the same",
            is_full=True,
        )


def _laid_end_to_end(head: Table, tables: list[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    parts = [head, *tables]
    keys, values = np.concatenate([t.keys for t in parts], axis=1), np.concatenate([t.values for t in parts])
    return Table(head.layout, keys, values, head.semiring, is_sorted=True)
