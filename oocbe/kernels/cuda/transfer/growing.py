"""Memory that is pinned from its beginning on, ahead of the results that the device writes into it.

The system allocates fresh pages, and the driver pins them, at 40 to 50 GB/s each on 16 cores, and neither slows the bus
down if it is done in large steps. So a thread pins all that a column is expected to take in one step, and another one
has the pages of the next column allocated meanwhile. A column that outgrows the expectation gets further steps; in the
end they are pinned again as one.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context

from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.transfer.pinned import pin, touch, unpin
from oocbe.runtime.stretches import Bytes, Region, fresh_memory, rounded
from oocbe.runtime.waiting import wait_for

THREADS = 3
"""Threads that pin."""


class GrowingMemory:
    """A reservation of address space, whose first bytes are pinned.

    Parameters
    ----------
    nbytes : of the reservation, whole pages; pages are allocated on first use.

    Attributes
    ----------
    bounds : offsets of the steps that were pinned, and their end; at most one step after :meth:`unify`.
    used : bytes of the last result, set by its owner.
    """

    def __init__(self, nbytes: int) -> None:
        self._memory = fresh_memory(nbytes, getattr(mmap, "MAP_NORESERVE", 0))
        self.bounds = [0]
        self.used = 0

    def __len__(self) -> int:
        return len(self._memory)

    @property
    def pinned(self) -> int:
        """Pinned bytes."""
        return self.bounds[-1]

    def touch(self, low: int, high: int) -> None:
        """Have pages allocated."""
        touch(self._memory[low:high])

    def pin(self, high: int) -> None:
        """Pin the pages up to an offset; MemoryError."""
        pin(self._memory.ctypes.data + self.pinned, high - self.pinned)
        self.bounds.append(high)

    def unpin(self) -> None:
        """Undo all steps."""
        for low in self.bounds[:-1]:
            unpin(self._memory.ctypes.data + low)
        self.bounds = [0]

    def unify(self) -> None:
        """Pin all in one step, or nothing if the result has more: the driver refuses any library's copies across
        the end of a step."""
        high = self.pinned
        if self.used > high or len(self.bounds) > 2:
            self.unpin()
            if self.used <= high:
                with suppress(MemoryError):
                    self.pin(high)

    def lend(self, when_free: Callable[[], None]) -> Bytes:
        """All of it as an array; ``when_free`` is called after the deletion of the last array over it."""
        region = Region(self._memory, when_free)
        found = region.take(len(self._memory))
        assert found is not None
        region.close()
        return found


class Pinning:
    """Threads that pin the memories of a result's columns up to wanted sizes; :meth:`close` ends them."""

    def __init__(self, memories: Sequence[GrowingMemory]) -> None:
        self._memories = memories
        self._wanted = [memory.pinned for memory in memories]
        self._claimed = list(self._wanted)
        self._changed = threading.Condition()
        self._is_ended = False
        self._device = cupy().cuda.Device()
        self._threads: list[threading.Thread] = []

    def want(self, sizes: Sequence[int]) -> None:
        """Pin so many bytes of each memory, or more."""
        with self._changed:
            for number, (size, memory) in enumerate(zip(sizes, self._memories, strict=True)):
                self._wanted[number] = max(self._wanted[number], min(rounded(size), len(memory)))
            if not self._threads and self._wanted != self._claimed:
                for number in range(THREADS):
                    run = copy_context().run
                    name = f"oocbe-pin-{number}"
                    self._threads.append(threading.Thread(target=run, args=(self._run,), name=name, daemon=True))
                    self._threads[-1].start()
            self._changed.notify_all()

    def wait(self, sizes: Sequence[int]) -> None:
        """Wait until so many bytes of each memory are pinned, if they are wanted and the system pins them."""
        wanted = [min(size, most) for size, most in zip(sizes, self._wanted, strict=True)]

        def attempt(seconds: float) -> None:
            with self._changed:
                if not self._changed.wait_for(lambda: self._is_ended or self._has(wanted), seconds):
                    raise TimeoutError

        wait_for(attempt, TimeoutError)

    def close(self) -> None:
        """End the threads, wait for them, and pin each memory in one step. All copies have ended."""
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        for memory in self._memories:
            memory.unify()

    def _has(self, sizes: Sequence[int]) -> bool:
        return all(memory.pinned >= size for memory, size in zip(self._memories, sizes, strict=True))

    def _run(self) -> None:
        try:
            with self._device:
                while (step := self._next_step()) is not None:
                    memory, low, high = step
                    memory.touch(low, high)
                    if not self._is_turn(memory, low):
                        return
                    memory.pin(high)
                    with self._changed:
                        self._changed.notify_all()
        except Exception:  # results go through other memory, and a kernel's error shows there
            with self._changed:
                self._is_ended = True
                self._changed.notify_all()

    def _is_turn(self, memory: GrowingMemory, low: int) -> bool:
        """Wait until a memory is pinned up to an offset; False: it will not be."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended or memory.pinned == low)
            return not self._is_ended

    def _next_step(self) -> tuple[GrowingMemory, int, int] | None:
        """A step of the memory of which the smallest share is pinned; waits for one. None: there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ended or self._wanted != self._claimed)
            if self._is_ended:
                return None
            behind = [n for n, wanted in enumerate(self._wanted) if self._claimed[n] < wanted]
            number = min(behind, key=lambda n: self._claimed[n] / self._wanted[n])
            low = self._claimed[number]
            memory = self._memories[number]
            high = self._claimed[number] = self._wanted[number]
            return memory, low, high
