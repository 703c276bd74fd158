"""The memory budget of one operation on tables: named reservations, and a clear error when it is exhausted.

Parts of an operation *reserve* bytes before they take memory, under a name that the error shows. A reservation is an
agreement, not an allocation: a piece of work reserves the maximum of its rows, sorting and result, and is cut small
enough for that beforehand (:mod:`oocbe.runtime.pieces`).

Messages of an elimination are counted by :mod:`oocbe.elimination.buckets.held_messages`; their size is decided about
before their computation (:mod:`oocbe.elimination.engine.decision`).

The budget covers rows, indices and buffers of the operation. It does not cover the interpreter, compiled code and
loaded libraries, some 150 to 200 MiB regardless of the size of the tables, and the system's file cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from oocbe.errors import ResourceError
from oocbe.model.settings.machine import default_memory_limit
from oocbe.tables.table import format_bytes


class Budget:
    """Limit of the bytes in use at a time.

    Parameters
    ----------
    limit : bytes; None: 80 % of the memory of the control group or the machine.
    kind : of memory, for error messages.
    """

    def __init__(self, limit: int | None = None, kind: str = "host") -> None:
        self.limit = default_memory_limit() if limit is None else limit
        self.kind = kind
        self.peak = 0
        self._used: dict[str, int] = {}
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Bytes reserved now."""
        return sum(self._used.values())

    @contextmanager
    def reserve(self, owner: str, nbytes: int) -> Iterator[None]:
        """Reserve some bytes within the block.

        Raises
        ------
        ResourceError : not enough are left; the message has the requested, used and limit bytes, and all reservations.
        """
        self._take(owner, nbytes)
        try:
            yield
        finally:
            with self._lock:
                self._used[owner] = self._used.get(owner, 0) - nbytes  # the owner may be missing by now
                if not self._used[owner]:
                    del self._used[owner]

    def _take(self, owner: str, nbytes: int) -> None:
        with self._lock:
            used = self.used
            if used + nbytes > self.limit:
                holders = ", ".join(f"{name} {format_bytes(held)}" for name, held in self._used.items())
                raise ResourceError(
                    f"{owner} needs {format_bytes(nbytes)} of {self.kind} memory; {format_bytes(used)} of the limit of "
                    f"{format_bytes(self.limit)} are in use{f' ({holders})' if holders else ''}; raise the limit, or "
                    "lower the number of streams or the rows a chunk"
                )
            self._used[owner] = self._used.get(owner, 0) + nbytes
            self.peak = max(self.peak, used + nbytes)
