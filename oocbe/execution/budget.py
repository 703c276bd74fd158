"""The memory budget of one operation on tables: named reservations, and a clear error when it is exhausted.

Parts of an operation *reserve* bytes before they take memory, under a name that the error shows. A reservation is an
agreement, not an allocation: a piece of work reserves the maximum of its rows, sorting and result, and is cut small
enough for that beforehand (:mod:`oocbe.runtime.pieces`).

Messages of an elimination are counted by :mod:`oocbe.elimination.buckets.messages`; their size is decided about
before their computation (:mod:`oocbe.elimination.engine.decision`).

The budget covers rows, indices and buffers of the operation. It does not cover the interpreter, compiled code and
loaded libraries, some 150 to 200 MiB regardless of the size of the tables, and the system's file cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from oocbe.errors import ResourceError
from oocbe.model.results.numerals import format_bytes
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.tuning import tuning
from oocbe.tables.disk_budget import DiskBudget


class Budget:
    """Limit of the bytes in use at a time; None: 80 % of the memory of the control group or the machine."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = default_memory_limit() if limit is None else limit
        self.peak = 0
        self._used: dict[str, int] = {}
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Bytes reserved now."""
        return sum(self._used.values())

    @contextmanager
    def reserve(self, owner: str, nbytes: int) -> Iterator[None]:
        """Reserve bytes within the block; ResourceError, which lists all reservations: too few are left."""
        with self._lock:
            used = self.used
            if used + nbytes > self.limit:
                holders = ", ".join(f"{name} {format_bytes(held)}" for name, held in self._used.items())
                raise ResourceError(
                    f"{owner} needs {format_bytes(nbytes)} of host memory; {format_bytes(used)} of the limit of "
                    f"{format_bytes(self.limit)} are in use{f' ({holders})' if holders else ''}; raise the limit, or "
                    "lower the number of streams or the rows a chunk"
                )
            self._used[owner] = self._used.get(owner, 0) + nbytes
            self.peak = max(self.peak, used + nbytes)
        try:
            yield
        finally:
            with self._lock:
                self._used[owner] = self._used.get(owner, 0) - nbytes  # the owner may be missing by now
                if not self._used[owner]:
                    del self._used[owner]


@dataclass(frozen=True)
class MemoryPlan:
    """Resources of an out-of-core operation.

    budget : of its memory. disk : counts the bytes of scratch files, and has their folder.
    streams : number of concurrent pieces.
    piece_rows : most rows of each table in a piece, and of a result passed on; None: as many as fit.
    pieces, partition, nested : shares of the budget for the pieces in progress, for a partition before the first piece,
        and for one during pieces (:class:`oocbe.model.settings.tuning.Tuning`).
    """

    budget: Budget
    disk: DiskBudget
    streams: int
    piece_rows: int | None = None
    pieces: float = field(default_factory=lambda: tuning().pieces_share)
    partition: float = field(default_factory=lambda: tuning().freed_share)
    nested: float = field(default_factory=lambda: tuning().quarter_share)

    @property
    def piece_bytes(self) -> int:
        """Memory limit of one piece in bytes."""
        return int(self.budget.limit * self.pieces) // self.streams

    @property
    def chunk_bytes(self) -> int:
        """Bytes for the rows of a chunk that is being written."""
        return int(self.budget.limit * tuning().chunk_share)

    def fits(self, sizes: Sequence[tuple[int, int]]) -> bool:
        """Whether tables with these (rows, bytes a row) fit in a piece."""
        if self.piece_rows is not None and any(rows > self.piece_rows for rows, _ in sizes):
            return False
        return sum(rows * cost for rows, cost in sizes) <= self.piece_bytes

    def rows_of(self, cost: int, share: float = 1.0) -> int:
        """Rows at ``cost`` bytes each that fit in a share of a piece; ResourceError if none fits."""
        rows = int(self.piece_bytes * share) // cost
        if rows == 0:
            raise ResourceError(
                f"a row takes {format_bytes(cost)} of work space, a piece has {format_bytes(self.piece_bytes * share)} "
                f"(limit {format_bytes(self.budget.limit)}, {self.streams} streams); raise the limit"
            )
        return rows if self.piece_rows is None else min(rows, self.piece_rows)

    @contextmanager
    def partition_memory(self, cost: int, first: bool) -> Iterator[int]:
        """Reserve memory for a partition's runs, one a stream; yields the rows of a run at ``cost`` bytes a row."""
        share = self.partition if first else self.nested
        rows = min(int(self.budget.limit * share) // (cost * self.streams), self.piece_rows or tuning().most_run_rows)
        if rows == 0:
            raise ResourceError(
                f"a row takes {format_bytes(cost)} to partition, a stream has "
                f"{format_bytes(self.budget.limit * share / self.streams)} (limit {format_bytes(self.budget.limit)}, "
                f"{self.streams} streams); raise the limit"
            )
        with self.budget.reserve("partition", rows * cost * self.streams):
            yield rows

    def inside(self) -> MemoryPlan:
        """Plan for a nested operation during another one's pieces, with the share for nested partitions."""
        return replace(self, pieces=0.5 * self.nested, partition=0.5 * self.nested, nested=0.25 * self.nested)

    def halved(self) -> MemoryPlan:
        """Plan with pieces of half the size, after a failed allocation within the budget."""
        rows = None if self.piece_rows is None else max(1, self.piece_rows // 2)
        return replace(self, pieces=self.pieces / 2, nested=self.nested / 2, piece_rows=rows)
