"""Cut tables in memory that are sorted by the same variables into pieces that fit together.

Where two tables have some variables in their most significant places, in the same order, a range of those variables'
values is a range of rows of each, found by bisection: nothing is sorted or read through to cut them. Results of such
pieces, laid end to end, are in the order of the variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.row_numbers import key_number
from oocbe.tables.moves import field_masks
from oocbe.tables.packed import PackedKeys, PackedTable
from oocbe.tables.table import Table


def leads_with(table: Table | PackedTable, names: Sequence[str]) -> bool:
    """Whether a table is sorted with some variables, the least significant first, in its most significant places."""
    return table.is_sorted and table.scope[len(table.scope) - len(names) :] == tuple(names)


class TableKeys:
    """Keys of a table in memory one at a time, as :class:`oocbe.tables.packed.PackedKeys`."""

    def __init__(self, table: Table) -> None:
        self._keys = table.keys

    def number(self, row: int) -> int:
        """Key of a row as one number, word 0 least significant."""
        return key_number(self._keys, row)

    def narrowed(self, mask: int, wanted: int, low: int, high: int) -> tuple[int, int]:
        """The rows to look at: all, as nothing is known of them without looking."""
        return low, high

    @property
    def look_bytes(self) -> int:
        """What a thread that looks reads from disk and keeps."""
        return 0

    def forget(self) -> None:
        """Nothing is kept."""


Keys = TableKeys | PackedKeys
T = TypeVar("T")

CALLS_A_THREAD = 2
"""Groups of looks that a thread gets, where they wait for the disk."""


@dataclass(frozen=True)
class Cut:
    """A range of rows of each table."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(self.high) - sum(self.low)


class SortedCuts:
    """Cuts of tables that lead with the same variables.

    Parameters
    ----------
    tables : of which the first one is cut where its rows are even.
    common : variables in the most significant places of all, the least significant first; a piece has all rows of some
        of their values, in all tables but the first.
    unit : most significant variables of the first table, ``common`` included, whose rows stay together.
    """

    def __init__(self, tables: Sequence[Table | PackedTable], common: Sequence[str], unit: Sequence[str]) -> None:
        self._tables = tables
        self._keys = [PackedKeys(t) if isinstance(t, PackedTable) else TableKeys(t) for t in tables]
        self._common = tuple(common)
        self._masks = [_mask(field_masks(t.layout, common)) for t in tables]
        self._unit = _mask(field_masks(tables[0].layout, unit))

    def whole(self) -> Cut:
        """All rows."""
        return Cut(tuple(0 for _ in self._tables), tuple(t.rows for t in self._tables))

    def halves(self, cut: Cut) -> list[Cut]:
        """The cut in two; itself alone where its rows of the first table all stay together."""
        first = self._keys[0]
        low, high = cut.low[0], cut.high[0]
        wanted = self._key(0, (low + high) // 2) & self._unit
        middle = _first_not_below(first, self._unit, wanted, low, high)
        if middle == low:
            middle = _first_above(first, self._unit, wanted, low, high)
        if middle == high:
            return [cut]
        return [self._between(cut, low, middle), self._between(cut, middle, high)]

    def fitting(self, cut: Cut, rows: int, room: int | None = None) -> list[Cut]:
        """The cut in pieces of at most so many rows, where they can be cut, alike in size; empty ones are left out.

        room : bytes of main memory for what is read to find them, of one thread at least; None: no limit.

        Raises
        ------
        CorruptDataError : a chunk is missing or damaged.
        """
        parts = self._even(cut, -(-cut.rows // max(1, rows)), room)
        found = self._each(self._fitting, [(part, rows) for part in parts], room)
        return [piece for pieces in found for piece in pieces]

    def _fitting(self, cut: Cut, rows: int) -> list[Cut]:
        """What :meth:`fitting` returns, by halves."""
        todo, done = [cut], []
        while todo:
            here = todo.pop()
            # A little more than asked for is better than two pieces of half the size.
            parts = [here] if here.rows <= rows + rows // 50 else self.halves(here)
            if len(parts) == 1:
                if all(high > low for low, high in zip(here.low, here.high, strict=True)):
                    done.append(here)
            else:
                todo += reversed(parts)
        return done

    def _even(self, cut: Cut, count: int, room: int | None) -> list[Cut]:
        """The cut in so many parts of the first table's rows, or fewer where those stay together."""
        low, high = cut.low[0], cut.high[0]
        if count <= 1 or low == high:
            return [cut]
        rows = [low + (high - low) * number // count for number in range(count)]
        edges = {edge[0][0]: edge for edge in self._each(self._edge_before, [(cut, row) for row in rows], room)}
        starts = [start for start, _ in edges.values()]
        stops = [*[stop for _, stop in edges.values()][1:], self._stops(cut, high)]
        return [Cut(*part) for part in zip(starts, stops, strict=True)]

    def _edge_before(self, cut: Cut, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where a part of a cut begins, and where the one before it ends, next to a row of the first table.

        No more rows of that table lie between than have to stay together.
        """
        place = _first_not_below(self._keys[0], self._unit, self._key(0, row) & self._unit, cut.low[0], row)
        return self._starts(cut, place), self._stops(cut, place)

    def _each(self, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], room: int | None) -> list[T]:
        """What a function gives for each tuple of arguments; several at a time where the disk is waited for."""
        look_bytes = sum(keys.look_bytes for keys in self._keys)
        if not look_bytes:
            return [function(*arguments) for arguments in calls]
        most = thread_count() if room is None else max(1, room // look_bytes)
        count = CALLS_A_THREAD * thread_count() if most >= thread_count() else most
        # Neighbours look at the same chunks, which each thread reads for itself.
        size = -(-len(calls) // count)
        stopped = Event()
        groups = [(function, calls[first : first + size], stopped) for first in range(0, len(calls), size)]
        try:
            return [found for several in run_all(_one_by_one, groups, stopped.set) for found in several]
        finally:
            for keys in self._keys:
                keys.forget()

    def _between(self, cut: Cut, low: int, high: int) -> Cut:
        """The part of a cut with some rows of the first table, and what belongs to them of the others."""
        return Cut(self._starts(cut, low), self._stops(cut, high))

    def _starts(self, cut: Cut, low: int) -> tuple[int, ...]:
        """Where a part of a cut begins that has rows of the first table from ``low`` on."""
        return low, *(
            _first_not_below(keys, mask, self._translated(low, number), first, last)
            for number, keys, mask, first, last in self._others(cut)
        )

    def _stops(self, cut: Cut, high: int) -> tuple[int, ...]:
        """Where a part of a cut ends that has rows of the first table up to ``high``, which is left out."""
        if high == cut.low[0]:
            return cut.low
        return high, *(
            _first_above(keys, mask, self._translated(high - 1, number), first, last)
            for number, keys, mask, first, last in self._others(cut)
        )

    def _others(self, cut: Cut) -> Iterator[tuple[int, Keys, int, int, int]]:
        """Number, keys, mask of the common variables, and rows in a cut, of all tables but the first."""
        parts = zip(self._keys, self._masks, cut.low, cut.high, strict=True)
        return islice(((number, *part) for number, part in enumerate(parts)), 1, None)

    def _translated(self, row: int, number: int) -> int:
        """The common variables' values in a row of the first table, as another table's key has them."""
        first, other = self._tables[0].layout, self._tables[number].layout
        key = self._key(0, row)
        made = 0
        for name in self._common:
            source, target = first.field(name), other.field(name)
            value = key >> (64 * source.word + source.shift) & ((1 << source.bits) - 1)
            made |= value << (64 * target.word + target.shift)
        return made

    def _key(self, number: int, row: int) -> int:
        return self._keys[number].number(row)


def _one_by_one(function: Callable[..., T], calls: Sequence[tuple[Any, ...]], stopped: Event) -> list[T]:
    """What a function gives for each tuple of arguments, as far as nothing has failed elsewhere; an error stops all."""
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


def _mask(words: NDArray[np.uint64]) -> int:
    return sum(int(word) << 64 * place for place, word in enumerate(words))


def _first_not_below(keys: Keys, mask: int, wanted: int, low: int, high: int) -> int:
    low, high = keys.narrowed(mask, wanted, low, high)
    while low < high:
        middle = (low + high) // 2
        if keys.number(middle) & mask < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _first_above(keys: Keys, mask: int, wanted: int, low: int, high: int) -> int:
    return _first_not_below(keys, mask, wanted + 1, low, high)
