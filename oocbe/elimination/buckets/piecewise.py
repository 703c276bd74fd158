"""A bucket whose message goes through the disk: joined in pieces, its dominated rows dropped, scaled, published.

1. The pieces of the join come in the order of their keys (:mod:`oocbe.bucket_engine.bucket_stream`). A few of them are
   kept in memory: where that is all, the message is small, and is finished and kept like any other.
2. Else they are written to a stored table. Where nothing remains to be done with them, that is the message.
3. Dominance compares rows across the whole message, and scaling needs its largest value. So for these the rows are
   written to a scratch table first; what is left of them is then read from there and written as the message.

A message is published as a whole. What a killed process leaves of one is removed, and the bucket is joined again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.bucket_engine.bucket_cuts import BucketJoin
from oocbe.bucket_engine.bucket_engine import BucketEngine
from oocbe.bucket_engine.bucket_join import NO_LIMIT
from oocbe.bucket_engine.bucket_stream import BucketStream, PieceRoom
from oocbe.bucket_engine.dominance_stream import DominanceStream
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation.scaling import check_scaled, exponent_of, rescale, scaled_by
from oocbe.errors import DiskError
from oocbe.pruning.dominance import SubstitutionDominance
from oocbe.settings.tuning import tuning
from oocbe.streaming.sources import ChunkCache
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table, format_bytes


@dataclass(frozen=True)
class Finish:
    """What is done with the rows of a join.

    Attributes
    ----------
    values : gives rows as the message has them, piece by piece.
    where : the bucket, for messages. may_cancel : whether terms of a sum may have both signs.
    dominance : drops dominated rows, or None. separator, subtree : of the message, as dominance takes them.
    """

    where: str
    may_cancel: bool
    values: Callable[[Table], Table]
    dominance: SubstitutionDominance | None
    separator: tuple[int, ...]
    subtree: NDArray[np.uint8]


class PiecewiseBucket:
    """One bucket's way through the disk.

    Parameters
    ----------
    store : where the message is kept. engine : computes the pieces.
    finish : what is done with their rows. row_cap, step_limit : as for the forward pass.

    Attributes
    ----------
    cache : of chunks, for the tables of the bucket.
    """

    def __init__(
        self, store: MessageStore, engine: BucketEngine, finish: Finish, row_cap: int | None, step_limit: int
    ) -> None:
        self._store, self._engine, self._finish = store, engine, finish
        self._limits = (NO_LIMIT if row_cap is None else row_cap, step_limit)
        store.make_room(int(store.memory_limit * tuning().wanted_share))
        self._room = max(1, store.free)
        self.cache = ChunkCache(int(self._room * tuning().cache_share))

    def publish(self, place: int, join: BucketJoin) -> tuple[Message, int]:
        """Join, finish and publish the message of the bucket at ``place``; the exponent of its scaling as well.

        Raises
        ------
        TooManyRowsError : more rows than the cap. DiskError : the disk, or what may be used of it, is full.
        ResourceError : memory could not be had even for the smallest piece.
        TimeLimitError : the engine's deadline came. CorruptDataError : a table on disk is damaged.
        """
        engine = self._engine
        stream = BucketStream(join, engine, PieceRoom(self._room, engine.streams, engine.piece_rows), *self._limits)
        with closing(stream.tables()) as made:
            rows = _Observed(map(self._finish.values, made))
            table, rest = self._first(self._within_disk(place, stream, rows.tables()), join)
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

    def _within_disk(self, place: int, stream: BucketStream, tables: Iterator[Table]) -> Iterator[Table]:
        """Tables that are written to disk one by one, as long as it looks as if there will be room for all of them.

        Raises
        ------
        DiskError : what has been joined and written so far shows that there will not, by far.
        """
        budget, numbers = self._store.budget, tuning()
        before = budget.used
        for table in tables:
            yield table
            written = budget.used - before
            if stream.pieces < numbers.forecast_pieces or stream.done == 0:
                continue
            # The limit, not the disk, where there is one: who knows better may raise it above what the disk has.
            wanted, allowed = written / stream.done, budget.allowed
            if wanted > numbers.forecast_times * (written + allowed):
                raise DiskError(
                    f"bucket {place + 1} was stopped by its forecast: {stream.pieces:,} pieces, about "
                    f"{100 * stream.done:.3g} % of it, came to {stream.made:,} rows, {format_bytes(written)} on disk; "
                    f"all would come to some {stream.forecast_rows:,.0f} rows, {format_bytes(int(wanted))}, where "
                    f"{format_bytes(allowed)} are left ({budget.sizes()}). Choose a folder on a larger disk, bound the "
                    "problem (--bounds, --ub), or raise --max-disk to go on all the same",
                    is_full=True,
                )

    def _publish(self, place: int, join: BucketJoin, tables: Iterable[Table], exponent: int) -> Message:
        with self._store.new_table(place) as path:
            stored = self._written(path, join, tables)
            return self._store.publish_written(place, self._finish.separator, stored, exponent)

    def _written(self, path: Path, join: BucketJoin, tables: Iterable[Table]) -> StoredTable:
        """Tables that are made and written one by one, as one on disk."""
        with self._store.row_writer(path, join.head()) as writer:
            for table in tables:
                writer.append(table.keys, table.values)
        return StoredTable.open(path)

    def _first(self, tables: Iterator[Table], join: BucketJoin) -> tuple[Table | None, Iterator[Table]]:
        """All rows as one table where they are few; else None and all of them."""
        most = int(self._room * tuning().held_share) // join.head().row_bytes
        if self._engine.piece_rows is not None:
            most = min(most, self._engine.piece_rows)
        head: list[Table] = []
        rows = 0
        for table in tables:
            head.append(table)
            rows += table.rows
            if rows > most:
                return None, chain(head, tables)
        return _laid_end_to_end(join.head(), head), iter(())

    def _finished(self, table: Table) -> tuple[Table, int]:
        """A message in memory without dominated rows, scaled."""
        finish = self._finish
        if finish.dominance is not None:
            table = finish.dominance.drop_dominated(table, finish.separator, finish.subtree, self._engine)
        return rescale(table, finish.where, finish.may_cancel) if table.rows else (table, 0)

    def _is_unfinished(self, join: BucketJoin) -> bool:
        """Whether something is to be done with the rows that takes all of them."""
        finish = self._finish
        if exponent_of(join.semiring, join.dtype, 2.0) != 0:
            return True
        if finish.dominance is None:
            return False
        layout = join.scope.layout
        return bool(finish.dominance.substitutions(layout, np.inf, finish.separator, finish.subtree).variables)

    def _rest_of(self, table: StoredTable, rows: _Observed) -> Generator[Table, None, None]:
        """Rows of a table on disk that are not dominated."""
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
    """Tables that pass by, and their least and greatest value."""

    def __init__(self, tables: Iterator[Table]) -> None:
        self._tables = tables
        self.least: float = np.inf
        self.greatest: float = -np.inf

    @property
    def largest(self) -> float:
        """Largest absolute value."""
        return max(abs(self.least), abs(self.greatest))

    def tables(self) -> Generator[Table, None, None]:
        """The tables, once."""
        for table in self._tables:
            self.least = min(self.least, table.values.min().item())
            self.greatest = max(self.greatest, table.values.max().item())
            yield table


def _laid_end_to_end(head: Table, tables: list[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    parts = [head, *tables]
    keys, values = np.concatenate([t.keys for t in parts], axis=1), np.concatenate([t.values for t in parts])
    return Table(head.layout, keys, values, head.semiring, is_sorted=True)
