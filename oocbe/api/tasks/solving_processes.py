"""Processes that each solve one problem at a time, until none is left, or a signal ends them.

They are spawned, as a process with threads cannot be forked safely, and import modules from the folder of this package,
never from the current folder. A task is sent only to a process that reads, because it may be larger than a pipe. If the
system kills a process, for memory or otherwise, only its task is lost. That task is repeated when no other is running,
and given up if its process ends again.

On Ctrl-C, and on other signals that a command handles, every running process is requested to end: its solve winds down
like that of one file, and its partial result is its outcome.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from oocbe.errors import EXIT_INTERRUPTED
from oocbe.model.results.failure import Failure, failure_of
from oocbe.runtime.interruption import END_SIGNALS, Interruption, current, heard
from oocbe.runtime.parents import serving_child
from oocbe.runtime.waiting import LOOK_UP_SECONDS

Task = TypeVar("Task")
Answer = TypeVar("Answer")

END_SECONDS = 10.0
"""Time limit of a process to end and remove its files before it is killed, in seconds."""

MOST_TRIES = 2
"""Number of lost processes after which a task is given up, because it may be the cause."""


@dataclass(eq=False)
class _Attempt(Generic[Task]):
    """A task, and the number of its lost processes."""

    task: Task
    lost: int = 0


@dataclass(eq=False)
class _Process(Generic[Task]):
    """One process and its task, which is sent as soon as the process reads."""

    process: subprocess.Popen[bytes]
    connection: Connection
    attempt: _Attempt[Task] | None
    is_ready: bool = False


@dataclass
class SolvingProcesses(Generic[Task, Answer]):
    """Processes that run tasks; a context manager that ends all of them.

    threads : of each. killed : answer for a task that is given up. failed : answer for one that could not be sent.
    """

    threads: int
    killed: Callable[[Task], Answer]
    failed: Callable[[Task, Failure], Answer]
    _processes: list[_Process[Task]] = field(default_factory=list, init=False, repr=False)

    def __enter__(self) -> SolvingProcesses[Task, Answer]:
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes; running ones remove their files first."""
        for process in self._processes:
            process.connection.close()
            process.process.terminate()
        self._processes, ended = [], self._processes
        _wait_for(process.process for process in ended)

    def answers(self, tasks: Iterable[Task], count: int) -> Generator[Answer, None, None]:
        """Answers in order of completion, by at most ``count`` processes.

        Raises KeyboardInterrupt: a signal arrived; all partial results have been yielded before.
        """
        left, again = deque(_Attempt(task) for task in tasks), deque[_Attempt[Task]]()
        for _ in range(min(count, len(left))):
            self._start(left.popleft())
        while self._processes or again:
            if not self._processes:
                self._start(again.popleft())
            with _listening() as interruption:
                ready = self._ready()
            if interruption.is_requested:
                yield from self._last_answers(interruption.number)
                raise KeyboardInterrupt(interruption.reason)
            for process in ready:
                yield from self._received(process, again)
                if process.attempt is None:
                    yield from self._next(process, left)

    def _start(self, attempt: _Attempt[Task]) -> None:
        self._processes.append(_Process(*serving_child("oocbe.api.tasks.many", self.threads), attempt))

    def _next(self, process: _Process[Task], left: deque[_Attempt[Task]]) -> Iterator[Answer]:
        """Assign the next task to an idle process, or to a new one in its place; without a task the process ends."""
        if process not in self._processes:
            if left:
                self._start(left.popleft())
            return
        while left and process.attempt is None:
            process.attempt = left.popleft()
            yield from self._send(process)
        if process.attempt is None:
            self._end(process)

    def _end(self, process: _Process[Task]) -> None:
        self._processes.remove(process)
        process.connection.close()
        _wait_for([process.process])

    def _ready(self) -> list[_Process[Task]]:
        """Processes that have sent something, or have ended."""
        found = wait([process.connection for process in self._processes], LOOK_UP_SECONDS)
        return [process for process in self._processes if process.connection in found]

    def _received(self, process: _Process[Task], again: deque[_Attempt[Task]]) -> list[Answer]:
        """Handle a message of a process (ready to read, or an answer), or its end."""
        attempt = process.attempt
        assert attempt is not None
        try:
            content = process.connection.recv()
        except (EOFError, OSError):
            self._lose(process)
            attempt.lost += 1
            if attempt.lost < MOST_TRIES:
                again.append(attempt)
                return []
            return [self.killed(attempt.task)]
        if process.is_ready:
            process.attempt = None
            return [self.failed(attempt.task, content) if isinstance(content, Failure) else content]
        process.is_ready = True
        return self._send(process)

    def _send(self, process: _Process[Task]) -> list[Answer]:
        """Send a process its task; returns the answer for a task that cannot be sent."""
        assert process.attempt is not None
        task = process.attempt.task
        try:
            data = pickle.dumps(task)
        except Exception as error:
            process.attempt = None
            return [self.failed(task, failure_of(error))]
        with suppress(OSError):  # it has ended, which the next read detects
            process.connection.send_bytes(data)
        return []

    def _lose(self, process: _Process[Task]) -> None:
        self._processes.remove(process)
        process.connection.close()
        process.attempt = None
        process.process.kill()  # if it has closed its end and is still running
        process.process.wait()

    def _last_answers(self, number: int | None) -> Generator[Answer, None, None]:
        """Request all running processes to end; yields their partial results."""
        for process in list(self._processes):
            if process.is_ready:
                process.process.send_signal(number or signal.SIGINT)
            else:
                self._lose(process)
        end = time.monotonic() + END_SECONDS
        while self._processes and time.monotonic() < end:
            for process in self._ready():
                lost: deque[_Attempt[Task]] = deque()
                yield from self._received(process, lost)
                if process in self._processes:
                    self._end(process)


def _wait_for(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Wait for processes that were requested to end; kill those that do not."""
    end = time.monotonic() + END_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _listening() -> Iterator[Interruption]:
    """Within the block a first signal is a request. The signals are those of an outer block, or Ctrl-C."""
    outer = current()
    if outer is not None:
        yield outer
        return
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with heard({signal.SIGINT: KeyboardInterrupt} if is_default else {}) as made:
        made.defer()
        yield made


def serve(connection: Connection, solved: Callable[[Task], Answer]) -> None:
    """Main loop of such a process: report that it reads, and run tasks until the connection closes or a signal."""
    sys.unraisablehook = _unraisable
    with suppress(KeyboardInterrupt, OSError), heard(dict.fromkeys(END_SIGNALS, KeyboardInterrupt)) as interruption:
        connection.send(None)
        while not interruption.is_requested:
            try:
                data = connection.recv_bytes()
            except EOFError:
                return
            try:
                content: object = solved(pickle.loads(data))
            except Exception as error:  # the task cannot be read here
                content = failure_of(error)
            interruption.defer()  # send the answer whatever signal arrives now
            connection.send(content)
    os._exit(EXIT_INTERRUPTED)  # does not wait for threads


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Do not print an interruption that Python loses in a destructor, because it is raised again
    (:mod:`oocbe.runtime.interruption`)."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
