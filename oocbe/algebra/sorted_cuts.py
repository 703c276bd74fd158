"""Cut tables in memory that are sorted by the same variables into pieces that fit together.

Where two tables have some variables in their most significant places, in the same order, a range of those variables'
values is a range of rows of each, found by bisection: nothing is sorted or read through to cut them. Results of such
pieces, laid end to end, are in the order of the variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar

from oocbe.execution.sources import InMemorySource
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.pieces import Indivisible, cut_to_fit
from oocbe.tables.layout import WORD_BITS
from oocbe.tables.packed import PackedKeys, PackedTable
from oocbe.tables.table import Table


def leads_with(table: Table | PackedTable, names: Sequence[str]) -> bool:
    """Whether a table is sorted with some variables, the least significant first, in its most significant places."""
    return table.is_sorted and table.scope[len(table.scope) - len(names) :] == tuple(names)


T = TypeVar("T")


@dataclass(frozen=True)
class RowRanges:
    """A range of rows of each table."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(self.high) - sum(self.low)

    @property
    def is_empty(self) -> bool:
        """Whether a table has no row in it."""
        return any(low >= high for low, high in zip(self.low, self.high, strict=True))


class SortedCuts:
    """Cuts of tables that lead with the same variables.

    tables : of which the first one is cut where its rows are even.
    common : variables in the most significant places of all, the least significant first; a piece has all rows of some
        of their values, in all tables but the first.
    unit : most significant variables of the first table, ``common`` included, whose rows stay together.
    """

    def __init__(self, tables: Sequence[Table | PackedTable], common: Sequence[str], unit: Sequence[str]) -> None:
        self._tables = tables
        self._keys = [PackedKeys(t) if isinstance(t, PackedTable) else InMemorySource(t) for t in tables]
        self._packed = [keys for keys in self._keys if isinstance(keys, PackedKeys)]
        self._common = tuple(common)
        self._steps = [_step(t, common) for t in tables]
        self._unit = _step(tables[0], unit)

    def whole(self) -> RowRanges:
        """All rows."""
        return RowRanges(tuple(0 for _ in self._tables), tuple(t.rows for t in self._tables))

    def halves(self, cut: RowRanges) -> tuple[RowRanges, ...] | Indivisible[RowRanges]:
        """The cut in two, where its rows of the first table do not all stay together."""
        low, high = cut.low[0], cut.high[0]
        wanted = self._unit_of((low + high) // 2)
        middle = self._keys[0].place(wanted, low, high)
        if middle == low:
            middle = self._keys[0].place(wanted + self._unit, low, high)
        if middle == high:
            tables = " and ".join(f"the table over {table.scope}" for table in self._tables)
            return Indivisible(cut, f"{cut.rows:,} rows of {tables} have to be in one piece")
        return self._between(cut, low, middle), self._between(cut, middle, high)

    def sample(self, rows: int) -> RowRanges | None:
        """A piece of some rows, from a third of the first table on; None where this gives none of a quarter to four
        times as many, as rows of a large group stay together."""
        cut = self.whole()
        first = cut.high[0] // 3
        last = min(cut.high[0] - 1, first + max(1, rows * cut.high[0] // cut.rows))
        low, high = (self._keys[0].place(self._unit_of(row), 0, cut.high[0]) for row in (first, last))
        part = self._between(cut, low, high)
        return None if part.is_empty or not rows <= 4 * part.rows <= 16 * rows else part

    def fitting(self, cut: RowRanges, rows: int, room: int | None = None) -> list[RowRanges]:
        """The cut in pieces of at most so many rows, where they can be cut, alike in size; empty ones are left out.

        room : bytes of main memory for what is read to find them, of one thread at least; None: no limit.

        Raises CorruptDataError: a chunk is missing or damaged.
        """
        parts = self._even(cut, -(-cut.rows // max(1, rows)), room)
        found = self._each(self._fitting, [(part, rows) for part in parts], room)
        return [piece for pieces in found for piece in pieces]

    def _fitting(self, cut: RowRanges, rows: int) -> list[RowRanges]:
        """:meth:`fitting` by halves."""
        # A little more than requested is better than two pieces of half the size.
        most = rows + rows // 50
        return [piece for piece in cut_to_fit(cut, self.halves, lambda part: part.rows <= most) if not piece.is_empty]

    def _even(self, cut: RowRanges, count: int, room: int | None) -> list[RowRanges]:
        """The cut in so many parts of the first table's rows, or fewer where those stay together."""
        low, high = cut.low[0], cut.high[0]
        if count <= 1 or low == high:
            return [cut]
        rows = [low + (high - low) * number // count for number in range(count)]
        edges = {edge[0][0]: edge for edge in self._each(self._edge_before, [(cut, row) for row in rows], room)}
        starts = [start for start, _ in edges.values()]
        stops = [*[stop for _, stop in edges.values()][1:], self._stops(cut, high)]
        return [RowRanges(*part) for part in zip(starts, stops, strict=True)]

    def _edge_before(self, cut: RowRanges, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Start of a cut's part and end of the one before, near a row: between are no more rows than stay together."""
        place = self._keys[0].place(self._unit_of(row), cut.low[0], row)
        return self._starts(cut, place), self._stops(cut, place)

    def _each(self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], room: int | None) -> list[T]:
        """Results of a function for each tuple of arguments; several calls at a time where they read from disk."""
        look_bytes = sum(keys.look_bytes for keys in self._packed)
        if not look_bytes:
            return [function(*arguments) for arguments in calls]
        most = thread_count() if room is None else max(1, room // look_bytes)
        count = tuning().under_way * thread_count() if most >= thread_count() else most
        # Neighbours look at the same chunks, which each thread reads for itself.
        size = -(-len(calls) // count)
        stopped = Event()
        groups = [(function, calls[first : first + size], stopped) for first in range(0, len(calls), size)]
        try:
            return [found for several in run_all(_one_by_one, groups, stopped.set) for found in several]
        finally:
            for keys in self._packed:
                keys.forget()

    def _between(self, cut: RowRanges, low: int, high: int) -> RowRanges:
        """The part of a cut with some rows of the first table, and what belongs to them of the others."""
        return RowRanges(self._starts(cut, low), self._stops(cut, high))

    def _starts(self, cut: RowRanges, low: int) -> tuple[int, ...]:
        """Start of the part of a cut that has rows of the first table from ``low`` on."""
        return low, *(
            self._keys[number].place(self._translated(low, number), cut.low[number], cut.high[number])
            for number in range(1, len(self._tables))
        )

    def _stops(self, cut: RowRanges, high: int) -> tuple[int, ...]:
        """End of the part of a cut that has rows of the first table before ``high``."""
        if high == cut.low[0]:
            return cut.low
        return high, *(
            self._keys[number].place(
                self._translated(high - 1, number) + self._steps[number], cut.low[number], cut.high[number]
            )
            for number in range(1, len(self._tables))
        )

    def _translated(self, row: int, number: int) -> int:
        """The common variables' values in a row of the first table, as another table's key has them."""
        first, other = self._tables[0].layout, self._tables[number].layout
        key = self._keys[0].key(row)
        made = 0
        for name in self._common:
            source, target = first.field(name), other.field(name)
            value = key >> (64 * source.word + source.shift) & ((1 << source.bits) - 1)
            made |= value << (64 * target.word + target.shift)
        return made

    def _unit_of(self, row: int) -> int:
        """Least key that has the values of the unit's variables in a row of the first table."""
        return self._keys[0].key(row) // self._unit * self._unit


def _one_by_one(function: Callable[..., T], calls: Sequence[tuple[Any, ...]], stopped: Event) -> list[T]:
    """Results of a function for each tuple of arguments, until a call fails in any thread; an error stops all."""
    found = []
    try:
        for arguments in calls:
            if stopped.is_set():
                break
            found.append(function(*arguments))
    except BaseException:
        stopped.set()
        raise
    return found


def _step(table: Table | PackedTable, names: Sequence[str]) -> int:
    """Distance of keys between neighbouring values of a table's most significant variables, the others 0."""
    field = table.layout.field(names[0])
    return 1 << WORD_BITS * field.word + field.shift
