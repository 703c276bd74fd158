"""Turns of threads that compute numbered pieces concurrently and pass their results on in order."""

from __future__ import annotations

import threading
from collections.abc import Callable


class StoppedError(Exception):
    """An earlier piece failed, so that this one's turn will not come."""


class Turns:
    """The order of pieces 0, 1, 2 and so on; each is computed by a thread between :meth:`begin` and :meth:`end`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._now = 0
        self._at_work: set[int] = set()
        self._failed: int | None = None

    def begin(self, number: int) -> None:
        """A piece is at work."""
        with self._changed:
            self._at_work.add(number)

    def wait(self, number: int) -> None:
        """Wait until all earlier pieces have ended; StoppedError if an earlier one failed."""
        self._wait(number, lambda: self._now == number)

    def be_alone(self, number: int) -> None:
        """Wait, in addition, until no other piece is at work: the others have ended, or wait themselves."""
        self._wait(number, lambda: self._now == number and not self._at_work)

    def _wait(self, number: int, comes: Callable[[], bool]) -> None:
        with self._changed:
            self._at_work.discard(number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_stopped(number) or comes())
            if self._is_stopped(number):
                raise StoppedError
            self._at_work.add(number)

    def end(self, number: int) -> None:
        """A piece has passed its results on, after waiting for its turn."""
        self.wait(number)
        with self._changed:
            self._at_work.discard(number)
            self._now = number + 1
            self._changed.notify_all()

    def fail(self, number: int) -> None:
        """A piece failed: later ones have no turn any more."""
        with self._changed:
            self._at_work.discard(number)
            self._failed = number if self._failed is None else min(number, self._failed)
            self._changed.notify_all()

    def _is_stopped(self, number: int) -> bool:
        return self._failed is not None and self._failed < number
