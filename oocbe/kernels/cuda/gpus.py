"""Several GPUs of one process: a thread drives each of them, and all work on one list of pieces.

The GPUs that a process uses are the current one and the other visible ones, up to the limit of the option ``gpus``.
The start of a GPU's context takes :data:`START_SECONDS`; short work therefore takes GPUs that have been started.

If a GPU fails, because its memory is in use by another program or because it is lost, the remaining GPUs repeat the
attempt without it (:func:`by_gpus`). Results, up to the rounding of sums, do not depend on the number of GPUs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from queue import Empty, Queue
from threading import Condition, Lock, Thread
from typing import TypeVar

from oocbe.errors import DiskError, ResourceError, without_frames
from oocbe.kernels.cuda.device import cupy
from oocbe.kernels.cuda.transfer.memory import limit_bytes, set_limit
from oocbe.model.settings.machine import gpu_limit, use_gpus
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.waiting import LOOK_UP_SECONDS, StoppedError, wait_for

Result = TypeVar("Result")

START_SECONDS = 0.75
"""Time for the start of another GPU: its context, its modules and its memory, in seconds."""

MOST_FAILURES = 3
"""Successive calls for which a GPU has too little memory before it is no longer used for pieces, which are halved."""

_started: set[int] = set()
_lost: set[int] = set()
"""Numbers of GPUs that have worked for this process, and of those that have failed with an error of the device."""


class GpuError(Exception):
    """A GPU failed, but others may do its work.

    number : of the GPU. error : its error.
    """

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(f"GPU {number}: {error}")
        self.number, self.error = number, error


def gpus(seconds: float) -> list[int]:
    """Numbers of the GPUs for work that takes one of them so many seconds; the current one first."""
    runtime = cupy().cuda.runtime
    current, limit = int(runtime.getDevice()), gpu_limit()
    if limit == 1:
        return [current]
    numbers = [current, *(number for number in range(runtime.getDeviceCount()) if number != current)]
    found = [number for number in numbers if number not in _lost][:limit]
    is_long = seconds > 2 * START_SECONDS
    return [number for number in found if is_long or number == found[0] or number in _started] or [current]


def by_gpus(numbers: Sequence[int], attempt: Callable[[list[int]], Result]) -> Result:
    """Result of an attempt with some GPUs; after a :class:`GpuError` it is repeated without the failed one.

    Raises ResourceError: all of several GPUs failed. The error of a single one is propagated.
    """
    remaining, failures = list(numbers), []
    while True:
        try:
            return attempt(remaining)
        except GpuError as error:
            failure = error
        failures.append(str(failure))
        remaining.remove(failure.number)
        if len(numbers) == 1:
            raise failure.error
        without_frames(failure.error)  # they hold arrays of the failed attempt
        if not remaining:
            raise ResourceError(f"all GPUs failed: {'; '.join(failures)}") from failure.error
        logging.getLogger("oocbe").warning("%s; the other GPUs do its work", failure)


def on_gpus(numbers: Sequence[int], work: Callable[[int], None], stop: Callable[[], None]) -> None:
    """Call ``work`` with the position of each GPU in the list, as the current GPU of the calling thread.

    The first call is made by the caller's thread, the others by threads of their own, with the caller's limit of device
    memory.

    stop : called after the first error; the other calls should then raise :class:`StoppedError` soon.

    Raises GpuError: a GPU or its memory failed. Other errors of ``work`` are propagated, the first one.
    """
    limit = limit_bytes() if len(numbers) > 1 else None
    errors: list[tuple[int, BaseException]] = []

    def run(position: int) -> None:
        number = numbers[position]
        try:
            with working_on(number, limit):
                work(position)
        except StoppedError:
            pass
        except BaseException as error:
            errors.append((number, error))
            stop()

    threads = [
        Thread(target=copy_context().run, args=(run, position), name=f"oocbe-gpu-{numbers[position]}", daemon=True)
        for position in range(1, len(numbers))
    ]
    try:
        for thread in threads:
            thread.start()
        run(0)
        for thread in threads:
            while thread.is_alive():
                thread.join(LOOK_UP_SECONDS)
    except BaseException:
        stop()
        for thread in threads:
            thread.join()
        raise
    if errors:
        number, error = errors[0]
        del errors[:]
        if isinstance(error, Exception) and has_failed(number, error):
            raise GpuError(number, error)
        raise error


@contextmanager
def working_on(number: int, limit: int | None) -> Iterator[None]:
    """Within the block, a GPU is the current one of this thread; ``limit`` : of its memory in bytes, if it was not."""
    is_current = number == cupy().cuda.runtime.getDevice()
    with cupy().cuda.Device(number):
        if limit is not None and not is_current:
            set_limit(limit)
        _started.add(number)
        yield


def has_failed(number: int, error: Exception) -> bool:
    """Whether a GPU failed, so that others may do its work; after an error of the device it is not used again."""
    module = cupy().cuda
    if isinstance(error, (module.runtime.CUDARuntimeError, module.driver.CUDADriverError)):
        _lost.add(number)
        return True
    return isinstance(error, ResourceError | MemoryError) and not isinstance(error, DiskError)


class Turns:
    """The order in which threads pass on results of pieces: a thread waits until all earlier pieces are done."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._next = 0
        self._is_stopped = False

    def wait(self, number: int) -> None:
        """Wait until all pieces before ``number`` are done. Raises StoppedError: another thread has failed."""

        def attempt(seconds: float) -> None:
            with self._changed:
                if not self._changed.wait_for(lambda: self._is_stopped or self._next == number, seconds):
                    raise TimeoutError
                if self._is_stopped:
                    raise StoppedError

        wait_for(attempt, TimeoutError)

    def done(self) -> None:
        """The piece whose turn it is, is done."""
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End all waits."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()


class GpuPool:
    """GPUs for calls of threads, one on each at a time; ``most`` of them, None: the process's limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._lock = Lock()
        self._free: Queue[int] | None = None
        self._first = self._limit = 0
        self._failures: Counter[int] = Counter()

    def do(self, call: Callable[[], Result]) -> Result:
        """Result of a call with a free GPU as the current one.

        Another GPU than the first is not used again after an error of the device, or :data:`MOST_FAILURES` successive
        calls without enough memory; another one then repeats the call.

        Raises TimeLimitError, RequestedEndError: the current deadline passed. Errors of the call are propagated.
        """
        with self._lock:
            if self._free is None:
                with use_gpus(self._most):
                    numbers = gpus(inf)
                self._limit, self._first, self._free = limit_bytes(), numbers[0], Queue()
                for number in numbers:
                    self._free.put(number)
            free = self._free
        while True:
            number = wait_for(lambda seconds: free.get(timeout=seconds), Empty, check_deadline)
            try:
                with working_on(number, self._limit), use_gpus(1):
                    result = call()
                self._failures[number] = 0
            except Exception as error:
                if not self._is_given_up(number, error):
                    raise
                failure = GpuError(number, without_frames(error))
            else:
                return result
            finally:
                if self._failures[number] < MOST_FAILURES:
                    free.put(number)
            logging.getLogger("oocbe").warning("%s; the other GPUs do its work", failure)

    def _is_given_up(self, number: int, error: Exception) -> bool:
        """Whether a GPU is not used again after an error."""
        if number == self._first or not has_failed(number, error):
            return False
        self._failures[number] += MOST_FAILURES if number in _lost else 1
        return self._failures[number] >= MOST_FAILURES
