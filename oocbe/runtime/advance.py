"""How far this process is with what it makes in pieces: large buckets, which would show nothing until they are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Advance:
    """What is made now, as far as it tells; read by whoever draws progress, on a thread of its own."""

    def __init__(self) -> None:
        self._text = ""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """At the end of the block nothing is made any more."""
        try:
            yield
        finally:
            self._text = ""

    def tell(self, what: str, share: float, rows: int) -> None:
        """So large a share of something is done, and so many rows came of it."""
        self._text = f"{what}: {share:.0%} joined, {rows:,} rows so far"

    def __str__(self) -> str:
        return self._text


advance = Advance()
"""Of this process."""
