"""Synthetic tables of any number of rows, whose joins and marginalisations are known without a second engine.

A table has an *own* variable, a variable ``e`` to eliminate, and *group* variables, which tables of one family share.
Groups are numbered by *rank*; the group of rank r has c(r) own values 0 … c(r) − 1 (written as ``own · stride + r mod
stride``, so that tables are as sparse as wished), and an own value has those half of the values of e that have its
parity. c is constant over classes of ranks: one or two for groups of equal size, and for a Zipf distribution (exponent
1) one for each power of two, ranks 2^i − 1 to 2^(i+1) − 2 having half as many rows as those before. So sums over groups
are sums over a few classes, and the table's n-th row is found in no time, which lets threads write chunks in any order.

The value of a row is ``mixed(rank) + (own + rank) mod c + mixed(rank, e)``: terms that look random, and one that runs
through all own values, whose maximum over those of one parity is known. So each row of a result can be checked by
itself; that none is missing or there twice is seen from the number of rows and the sums of their numbers and of the
squares of these (:mod:`oocbe.stress.segments`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UsageError
from oocbe.kernels.cpu.threads import run_all, thread_count
from oocbe.model.semiring import MAX_SUM
from oocbe.stress.kernels.cpu.synthetic import fill_in_order, fill_rows
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.writer import CHUNK_ROWS

MOST_GROUPS, MOST_SCATTERED = 1 << 46, 1 << 31
"""Groups of a table: numbers of those of a scattered one are multiplied with one another in 64 bits."""


@dataclass(frozen=True)
class SyntheticTable:
    """Parameters of a synthetic table.

    rows : wanted; the table's own :attr:`rows_made` is as near as its groups allow.
    groups : combinations of the group variables that occur.
    variables : of the table, at least 3. domain : values of e, even; the group variables take what the groups need.
    density : share of the own variable's values that the largest group has.
    sizes : of the groups, ``uniform`` or ``zipf``.
    is_sorted : rows in the order of their keys; otherwise scattered.
    own : name of the own variable. seed : of the values; tables to be joined have different ones.
    Raises UsageError: settings that fit together in no table.
    """

    rows: int
    groups: int
    variables: int = 3
    domain: int = 8
    density: float = 0.25
    sizes: str = "uniform"
    is_sorted: bool = False
    own: str = "a"
    seed: int = 0

    def __post_init__(self) -> None:
        most = MOST_GROUPS if self.is_sorted else MOST_SCATTERED
        if not 1 <= self.groups <= most or self.rows < self.groups * self.domain // 2:
            raise UsageError(
                f"{self.rows:,} rows do not fit in {self.groups:,} groups (at most {most:,}), each of which has "
                f"{self.domain // 2} rows at least; give fewer groups or more rows"
            )
        if self.variables < 3 or self.domain < 2 or self.domain % 2:
            raise UsageError("a synthetic table has at least 3 variables, and e an even number of values")
        if not 0 < self.density <= 1:
            raise UsageError(f"density: {self.density} is not above 0 and at most 1")
        if self.sizes not in ("uniform", "zipf"):
            raise UsageError(f"sizes: {self.sizes!r} is neither uniform nor zipf")
        if self.rows >= 1 << 48:
            raise UsageError(f"{self.rows:,} rows are more than a table can have")

    @cached_property
    def classes(self) -> NDArray[np.int64]:
        """First rank, own values of each group and pairs before, for each class; int64 (classes, 3)."""
        pairs = self.rows // (self.domain // 2)
        if self.sizes == "uniform":
            small, more = divmod(pairs, self.groups)
            counts = [(0, small + 1), (more, small)] if more else [(0, small)]
        else:
            low, high = 1, pairs  # the largest group size that gives no more than the wanted rows
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if _zipf_pairs(middle, self.groups) <= pairs else (low, middle - 1)
            counts = [(2**i - 1, max(1, low >> i)) for i in range(self.groups.bit_length())]
            counts = [(first, count) for first, count in counts if first < self.groups]
        found, before = [], 0
        for (first, count), last in zip(counts, [*(f for f, _ in counts[1:]), self.groups], strict=True):
            found.append([first, count, before])
            before += count * (last - first)
        return np.array(found, dtype=np.int64)

    @property
    def rows_made(self) -> int:
        """Rows that the table has."""
        first, count, before = (int(x) for x in self.classes[-1])
        return (before + (self.groups - first) * count) * (self.domain // 2)

    @property
    def stride(self) -> int:
        """Distance of own values."""
        return max(1, round(1 / self.density))

    @cached_property
    def layout(self) -> Layout:
        """The variable e lowest, then the own variable, then the group variables."""
        many = self.variables - 2
        size = next(
            s for s in range(max(1, int(self.groups ** (1 / many)) - 1), self.groups + 1) if s**many >= self.groups
        )
        names = ["k"] if many == 1 else [f"k{i}" for i in range(many)]
        sizes = (self.domain, int(self.classes[:, 1].max()) * self.stride, *[size] * many)
        return Layout(("e", self.own, *names), sizes)

    @cached_property
    def settings(self) -> NDArray[np.int64]:
        """Seed, half of e's values, stride, groups, step, shift and inverse step of the groups' scattering."""
        step = 1 if self.is_sorted else coprime(self.groups)
        shift = 0 if self.is_sorted else self.groups // 3
        back = pow(step, -1, self.groups) if self.groups > 1 else 0
        return np.array([self.seed, self.domain // 2, self.stride, self.groups, step, shift, back], dtype=np.int64)

    def chunks(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Keys and values in the table's order, made by all threads, as many chunks at a time as there are threads.

        The rows of a scattered table, and their order, depend on ``chunk_rows``, but not on the number of threads.
        """
        return self.some_chunks(0, self.chunk_count(chunk_rows), chunk_rows)

    def chunk_count(self, chunk_rows: int) -> int:
        """Chunks of so many rows that the table has."""
        return -(-self.rows_made // chunk_rows)

    def some_chunks(
        self, begin: int, end: int, chunk_rows: int
    ) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Chunks of :meth:`chunks` with numbers from ``begin`` to before ``end``."""
        rows, threads = self.rows_made, thread_count()
        chunks = self.chunk_count(chunk_rows)
        for first in range(begin, end, threads):
            made, calls = [], []
            for chunk in range(first, min(first + threads, end)):
                start = chunk * chunk_rows
                count = min(chunk_rows, rows - start) if self.is_sorted else (rows - chunk + chunks - 1) // chunks
                keys, values = np.empty((self.layout.words, count), dtype=np.uint64), np.empty(count, dtype=np.int64)
                made.append((keys, values))
                where = (start,) if self.is_sorted else (chunk, chunks, coprime(count))
                calls.append((keys, values, *where, self.classes, self.fields, self.settings))
            run_all(fill_in_order if self.is_sorted else fill_rows, calls)
            yield from made

    @cached_property
    def fields(self) -> NDArray[np.int64]:
        """Fields of the own variable, of e and of the group variables, as :func:`field_rows` gives them."""
        return field_rows(self.layout, (self.own, "e", *self.layout.scope[2:]))

    def first_row(self, rank: int) -> int:
        """First row of the group of a rank in a sorted table; the number of rows for the rank behind the last."""
        number = int(np.searchsorted(self.classes[:, 0], rank, side="right")) - 1
        first, count, before = self.classes[number].tolist()
        return int((before + (rank - first) * count) * (self.domain // 2))

    def rank_from(self, row: int) -> int:
        """First rank of a sorted table without a row before a given row; the number of groups behind the last row."""
        pair = -(-row // (self.domain // 2))
        number = int(np.searchsorted(self.classes[:, 2], pair, side="right")) - 1
        first, count, before = self.classes[number].tolist()
        return min(self.groups, int(first - (before - pair) // count))

    def value_dtype(self, wanted: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype wanted of the values, or int64 where it does not hold them."""
        return np.dtype(np.int64) if wanted.kind == "i" and 2 * self.greatest > np.iinfo(wanted).max else wanted

    @property
    def greatest(self) -> int:
        """Upper bound of the values."""
        return 2000 + int(self.classes[:, 1].max())

    def write(self, path: str | Path, dtype: np.dtype[Any] | None = None, chunk_rows: int = CHUNK_ROWS) -> StoredTable:
        """Write the table, max-sum, chunk by chunk; ``dtype`` of the values: int32 where None."""
        dtype = self.value_dtype(np.dtype(np.int32) if dtype is None else dtype)
        with StoredTable.create(path, self.layout, dtype, MAX_SUM, chunk_rows=chunk_rows) as writer:
            for keys, values in self.chunks(chunk_rows):
                writer.append(keys, values.astype(dtype))
        return StoredTable.open(path)


def coprime(count: int) -> int:
    """A number near the golden section of another one, without a common factor."""
    if count < 3:
        return 1
    return next(s for s in range(int(count * 0.618) + 1, 2 * count) if gcd(s, count) == 1) % count


def field_rows(layout: Layout, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Word, shift, mask and domain size of variables, int64 (variables, 4), as the loops take them."""
    places = [(layout.field(name), layout.sizes[layout.place(name)]) for name in names]
    return np.array([[f.word, f.shift, f.mask, size] for f, size in places], dtype=np.int64)


def _zipf_pairs(largest: int, groups: int) -> int:
    """Pairs of all groups, the largest of which has so many."""
    total = 0
    for i in range(groups.bit_length()):
        first, last = 2**i - 1, min(2 ** (i + 1) - 1, groups)
        total += max(0, last - first) * max(1, largest >> i)
    return total
