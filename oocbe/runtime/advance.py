"""Progress of this process within work in pieces, such as large buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Advance:
    """Progress of the current work; read by the thread of the progress display."""

    def __init__(self) -> None:
        self._text = ""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Clears the progress at the end of the block."""
        try:
            yield
        finally:
            self._text = ""

    def tell(self, what: str, share: float, rows: int) -> None:
        """Set the finished share of some work, and its rows so far."""
        self._text = f"{what}: {share:.0%} joined, {rows:,} rows so far"

    def __str__(self) -> str:
        return self._text


advance = Advance()
"""The one instance of this process."""
