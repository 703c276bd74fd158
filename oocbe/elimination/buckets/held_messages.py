"""Accounting of messages in memory: their sizes, and the order in which they are moved to disk.

A run's store moves messages accordingly (:mod:`oocbe.elimination.buckets.messages`); a plan simulates it with predicted
sizes (:mod:`oocbe.elimination.plan.bucket_forecast`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from oocbe.elimination.engine.decision import MainMemory


class Held(Protocol):
    """Interface of an accounted message."""

    @property
    def nbytes(self) -> int:
        """Bytes of its table."""

    @property
    def is_in_memory(self) -> bool:
        """Whether it is in memory, main memory or the device's."""

    @property
    def is_on_device(self) -> bool:
        """Whether it is in a device's memory."""


AnyHeld = TypeVar("AnyHeld", bound=Held)


class HeldMessages(Generic[AnyHeld]):
    """Messages in memory.

    Parameters
    ----------
    memory_limit : bytes of main memory that messages may take together.

    Attributes
    ----------
    in_memory : bytes of main memory taken by messages.
    waiting : messages that are not joined yet. queried : joined messages, queried only for single rows.
        Messages no longer in memory may still be listed.
    """

    def __init__(self, memory_limit: int) -> None:
        self.memory_limit = memory_limit
        self.in_memory = 0
        self.waiting: list[AnyHeld] = []
        self.queried: list[AnyHeld] = []

    @property
    def free(self) -> int:
        """Bytes of the limit that are free now."""
        return self.memory_limit - self.in_memory

    def room(self, besides: Sequence[AnyHeld]) -> MainMemory:
        """The memory as input of a decision; messages in ``besides`` are not movable."""

        def movable() -> Iterator[int]:
            for messages in (self.queried, self.waiting):
                there = [m for m in sorted(messages, key=lambda m: m.nbytes) if m.is_in_memory]
                yield from (m.nbytes for m in reversed(there) if not _stays(m, besides))

        return MainMemory(self.memory_limit, self.free, movable)

    def drop(self, message: AnyHeld) -> None:
        """Remove a message from the accounting, whose table has another owner, or is gone."""
        self.in_memory -= message.nbytes if message.is_in_memory and not message.is_on_device else 0
        for messages in (self.queried, self.waiting):
            messages[:] = [m for m in messages if m is not message]

    def move_out(self, wanted: int, besides: Sequence[AnyHeld], move: Callable[[AnyHeld, bool], None]) -> bool:
        """Move messages until ``wanted`` bytes of the limit are free; returns whether any was moved.

        Joined messages are moved first, then waiting ones except ``besides``; the largest first.

        move : moves a message out of main memory and reduces ``in_memory``; receives whether it has been joined.
        """
        moved = False
        if self.free >= wanted:
            return moved
        for messages in (self.queried, self.waiting):
            messages.sort(key=lambda m: m.nbytes)
            messages[:] = [m for m in messages if m.is_in_memory]
            kept = [m for m in messages if _stays(m, besides)]
            others = [m for m in messages if not any(m is other for other in kept)]
            while others and self.free < wanted:
                move(others.pop(), messages is self.queried)
                moved = True
            messages[:] = others + kept
        return moved


def _stays(message: AnyHeld, besides: Sequence[AnyHeld]) -> bool:
    return message.is_on_device or any(message is other for other in besides)
