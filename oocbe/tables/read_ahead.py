"""Read-ahead: the operating system reads the next files of a table while the current rows are decoded.

A thread that alternates between reading and decoding leaves the disk idle, and disks reach full speed only with several
requests at a time. During sequential reads of chunks, the next ones are therefore announced to the system
(``posix_fadvise``), which reads them into its file cache without additional threads or memory of this process.
"""

from __future__ import annotations

from threading import Lock

from oocbe.model.settings.tuning import tuning


class ReadAhead:
    """Determines the chunks to announce, from those being read; thread-safe.

    Reads count as sequential if they begin near the end of the previous one (threads overtake one another) or at the
    first chunk. Other reads announce nothing.

    Parameters
    ----------
    chunks : of the table. chunk_bytes : average bytes of one on disk.
    """

    def __init__(self, chunks: int, chunk_bytes: int) -> None:
        self._chunks = chunks
        self._ahead = max(1, tuning().ahead_bytes // max(1, chunk_bytes))
        self._reached = self._asked = 0
        self._lock = Lock()

    def after(self, first: int, last: int) -> range:
        """Chunks to announce before chunks ``first`` to ``last`` (excluded) are read."""
        with self._lock:
            if first == 0:
                self._reached = self._asked = 0
            elif abs(first - self._reached) > tuning().overtaking_reads * (last - first):
                self._reached = self._asked = last
                return range(0)
            self._reached = max(self._reached, last)
            begin = max(self._asked, first)
            self._asked = max(self._asked, min(self._chunks, last + self._ahead))
            return range(begin, self._asked)
