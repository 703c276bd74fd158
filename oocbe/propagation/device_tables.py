"""Tables propagated by a CUDA device, all together and to their fixpoint: Compact-Table in one launch.

Domains lie in host memory that the device reads and writes directly, so that other constraints, and a search, share
them. The device's state (remaining rows, and the values they were filtered for) has a slot for each level of a search;
backtracking selects an earlier slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from oocbe.kernels.cuda.transfer.memory import device_room
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.domains import Domains
from oocbe.propagation.kernels.cuda.compact_tables import (
    LARGEST_DOMAIN,
    CompactTables,
    filled_up,
    pinned,
    pinned_flags,
    upload_codes,
)
from oocbe.runtime.deadline import check_deadline

DeviceTable = tuple[tuple[int, ...], NDArray[Any], str]
"""Scope, rows as of :func:`~oocbe.propagation.tables.codes_of`, at least one, and the name of a constraint."""


def fits(scope: Sequence[int], codes: NDArray[Any], domains: Domains, taken: int) -> bool:
    """Whether the device can propagate a table beside others whose codes take ``taken`` bytes."""
    sizes = [int(domains.offsets[v + 1] - domains.offsets[v]) for v in scope]
    needed = bytes_of(codes) + taken
    is_small = 0 < len(codes) <= tuning().device_table_rows and max(sizes, default=0) <= LARGEST_DOMAIN
    return bool(scope) and is_small and tuning().device_tables_part * needed <= device_room()


def bytes_of(codes: NDArray[Any]) -> int:
    """Device memory for the codes of a table."""
    return int(filled_up(len(codes)) * codes.shape[1] * codes.itemsize)


class DeviceTables:
    """Tables of all feasible rows, short or not; a :class:`~oocbe.propagation.tables.Propagator`.

    tables : at least one; :func:`fits` is true of each. domains : moved to memory that the device can read.
    Raises UsageError: there is no CUDA device; ResourceError: its memory ran out.
    """

    is_idempotent = True

    def __init__(self, tables: Sequence[DeviceTable], domains: Domains) -> None:
        self.name = "a table constraint"
        self._names = [name for _, _, name in tables]
        self.scope = tuple(sorted({v for scope, _, _ in tables for v in scope}))
        self.cost = sum(codes.size for _, codes, _ in tables) // tuning().device_cells_at_once
        itemsize = max(codes.itemsize for _, codes, _ in tables)
        shared = {id(codes): codes for _, codes, _ in tables}
        uploaded = {key: upload_codes(codes, itemsize) for key, codes in shared.items()}
        domains.alive = pinned_flags(domains.alive)
        counts = pinned(domains.counts.dtype, len(domains.counts))
        counts[:] = domains.counts
        domains.counts = counts
        self._tables = CompactTables(
            [scope for scope, _, _ in tables],
            [uploaded[id(codes)] for _, codes, _ in tables],
            [len(codes) for _, codes, _ in tables],
            domains.offsets,
            domains.alive,
            domains.counts,
        )
        # A second round of one table removes nothing more.
        self._rounds = tuning().table_rounds if len(tables) > 1 else 1
        self._slot, self._has_slot, self._was_asked = 0, True, False
        self._levels: list[tuple[int, bool, bool]] = []

    @property
    def rows_left(self) -> int:
        """Remaining rows of all tables."""
        return int(self._tables.rows_left(self._slot).sum())

    def push(self) -> None:
        """Begin a level of a search; :meth:`pop` restores this state."""
        self._levels.append((self._slot, self._has_slot, self._was_asked))
        self._has_slot = False

    def pop(self) -> None:
        """Restore the state at the start of the last level."""
        self._slot, self._has_slot, self._was_asked = self._levels.pop()

    def filter(self, domains: Domains) -> list[int] | None:
        """Remove values without support, to the fixpoint; returns the variables that lost some, in any order."""
        source, target = self._slot, self._slot if self._has_slot else len(self._levels)
        asks_all = not self._was_asked
        self._slot, self._has_slot, self._was_asked = target, True, True
        found = self._tables.filter(source, target, self._rounds, asks_all)
        lost = found.lost
        while True:
            if found.failed_table is not None:
                self.name = self._names[found.failed_table]
                return None
            if found.failed_variable is not None:
                return [found.failed_variable]  # always the same one of those that have none
            if found.is_over:
                return lost
            check_deadline()
            found = self._tables.filter(target, target, self._rounds, False)
            lost = list({*lost, *found.lost})
