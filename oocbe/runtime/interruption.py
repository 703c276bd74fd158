"""Ctrl-C, SIGTERM and SIGHUP as a request to wind down: results so far are returned, and requested files are written.

Within :func:`listening` the first signal raises nothing: it sets the flag of every
:class:`oocbe.runtime.deadline.Deadline` of the thread, and work ends as at a time limit. Work still running after
:data:`GRACE_SECONDS` does not check its deadline; it is then interrupted by an exception. A second signal raises at
once.

Python calls signal handlers between two steps of the main thread, which may stay in a compiled loop for long. Therefore
another thread receives signals, too, as bytes on a pipe (``signal.set_wakeup_fd``).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType
from typing import BinaryIO, NoReturn, Protocol

from oocbe.errors import OocbeError, RequestedEndError, interruption_in

GRACE_SECONDS = 0.4
"""Seconds after a request within which work that checks its deadline has ended. Including the final writing, this stays
below one second, the patience of users and batch systems."""

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals to end a process: from Ctrl-C, a batch system, and a closed terminal."""

Raised = Mapping[int, Callable[[], BaseException]]
"""Exception factories by signal number, for signals that are not treated as requests."""

_of_thread = threading.local()


class HasFlag(Protocol):
    """Target of a request to end: a deadline."""

    def interrupt(self) -> None:
        """Make the loops that poll the flag return now."""


class Interruption:
    """State of received signals, and the deadlines to interrupt.

    number : of the signal that requested the end; None: no signal. is_deferred : whether :meth:`defer` was called.
    is_answered : whether the command is printing its answer.
    is_overdue : whether an exception was raised because work had not ended in time.
    is_closed, late : whether the block is ending, and the signal that arrived since then.
    """

    def __init__(self, raised: Raised) -> None:
        self.number: int | None = None
        self.is_deferred = self.is_overdue = self.is_answered = self.is_closed = False
        self.late: int | None = None
        self._raised = raised
        self._arrivals = self._works = 0
        self._unheeded: int | None = None
        self._is_insisting = False
        self._insisting: threading.Timer | None = None
        self._deadlines: dict[int, weakref.ref[HasFlag]] = {}
        self._timer: threading.Timer | None = None
        self._is_hurrying = False
        self._lock = threading.RLock()  # a handler may run while the main thread holds it

    @property
    def is_requested(self) -> bool:
        """Whether a signal to end has arrived."""
        return self.number is not None

    @property
    def reason(self) -> str:
        """Text that names the signal."""
        is_ctrl_c = self.number in (None, signal.SIGINT)
        return f"interrupted by {'Ctrl-C' if is_ctrl_c else signal.Signals(self.number or 0).name}"

    def caused(self, error: BaseException) -> bool:
        """Whether an error ends the work at the request of a first signal; a second one ends more than the work."""
        is_torn_out = self.is_overdue and not isinstance(self.behind(error), Exception)
        if not is_torn_out and not isinstance(error, RequestedEndError):
            return False
        self.heed()  # the work has ended: a suppressed exception is not raised again
        return True

    @contextmanager
    def suppressed(self) -> Iterator[None]:
        """Suppress an exception in the block that ends the work at the request of a first signal."""
        try:
            yield
        except BaseException as error:
            if not self.caused(error):
                raise

    def behind(self, error: BaseException) -> BaseException:
        """The interruption behind an error, or the error itself.

        Modules written in C, and compilers, may replace an exception raised during their work by one of their own.
        Errors that occur after an interruption was raised, and before it was handled, also count as the interruption.
        """
        found = interruption_in(error)
        if self._unheeded is not None and isinstance(found, Exception) and not isinstance(found, OocbeError):
            return self._raised[self._unheeded]()
        return found

    def heed(self) -> None:
        """Record that the raised exception was handled."""
        with self._lock:
            self._unheeded = None
            if self._insisting is not None:
                self._insisting.cancel()

    def watch(self, deadline: HasFlag) -> None:
        """Register a deadline, whose flag a request sets; at once if a request has arrived already."""
        key = id(deadline)
        self._deadlines[key] = weakref.ref(deadline, lambda _: self._deadlines.pop(key, None))
        if self.is_requested:
            deadline.interrupt()

    def defer(self) -> None:
        """From now on signals interrupt only code within :meth:`at_work`: output is in progress."""
        self.is_deferred = True
        self._take_unheeded()

    def close(self) -> None:
        """From now on signals raise nothing, which would leave handlers in place; :attr:`late` keeps the last one."""
        self.is_closed = True
        self.heed()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within the block the first signal is a request, with a grace period of :data:`GRACE_SECONDS`."""
        self._works += 1
        try:
            self._take_unheeded()
            if self.is_requested:
                self._allow_grace()
            yield
        finally:
            with self._lock:
                self._works -= 1
                if self._works == 0 and self._timer is not None:
                    self._timer.cancel()
                    self._timer = None

    def arrived(self, number: int, frame: FrameType | None = None) -> None:
        """Python's handler of a signal: records a request, or raises."""
        if self.is_closed:
            self.late = number
            return
        with self._lock:
            is_hurrying, self._is_hurrying = self._is_hurrying, False
            is_insisting, self._is_insisting = self._is_insisting, False
        if is_insisting and self._unheeded is not None and not _is_unwinding():
            self._raise(number)
        if is_insisting and not is_hurrying:
            return
        if is_hurrying and self._works == 0:
            return  # the work has just ended
        if not is_hurrying:
            self._arrivals += 1
        if self._arrivals > 1:
            self.is_overdue = False  # do not wait for partial results any more
        if is_hurrying or self._arrivals > 1 or not self._can_wait:
            self._raise(number)
        self.request(number)

    def request(self, number: int) -> None:
        """Request the end of all work within :meth:`at_work`; on any thread. Only the first request counts."""
        if self.is_requested or not self._can_wait:
            return
        self.number = number
        for reference in list(self._deadlines.values()):
            deadline = reference()
            if deadline is not None:
                deadline.interrupt()
        if self._works:
            self._allow_grace()

    def arrive_again(self, number: int) -> None:
        """Resend a signal whose exception was lost, distinguished from a second signal of the user."""
        with self._lock:
            self._is_hurrying = self.is_overdue
        send(number)

    def _raise(self, number: int) -> NoReturn:
        """Raise, and repeat until handled: some modules suppress all exceptions during their import."""
        with self._lock:
            self._unheeded = number
            if self._insisting is not None:
                self._insisting.cancel()
            self._insisting = threading.Timer(GRACE_SECONDS, self._insist, (number,))
            self._insisting.daemon = True
            self._insisting.start()
        raise self._raised[number]()

    def _insist(self, number: int) -> None:
        with self._lock:
            if self._unheeded is None:
                return
            is_on_its_way = self._is_hurrying
            self._is_insisting = True
        if not is_on_its_way:  # one signal serves both: a second one would count as the user's
            send(number)

    def _take_unheeded(self) -> None:
        """Convert a signal with a suppressed exception to a request."""
        if self._unheeded is not None:
            number = self._unheeded
            self.heed()
            self.request(number)

    @property
    def _can_wait(self) -> bool:
        return self._works > 0 or self.is_deferred

    def _allow_grace(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(GRACE_SECONDS, self._hurry)
                self._timer.daemon = True
                self._timer.start()

    def _hurry(self) -> None:
        """Raise within the running work."""
        with self._lock:
            if self._timer is None or self.number is None:
                return
            is_on_its_way = self._is_insisting
            self.is_overdue = self._is_hurrying = True
        if not is_on_its_way:
            send(self.number)


def current() -> Interruption | None:
    """The interruption state of this thread; None outside :func:`listening`."""
    found: Interruption | None = getattr(_of_thread, "interruption", None)
    return found


def is_requested() -> bool:
    """Whether a signal has requested the end of this thread's work."""
    found = current()
    return found is not None and found.is_requested


@contextmanager
def listening() -> Iterator[Interruption]:
    """Within the block a first Ctrl-C is a request to end; other signals only within an outer block of :func:`heard`.

    No effect on threads other than the main one, or if the program has a handler of its own, whose exceptions end the
    work anywhere.
    """
    outer = current()
    if outer is not None:
        with outer.at_work():
            yield outer
        return
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with heard({signal.SIGINT: KeyboardInterrupt} if is_default else {}) as made, made.at_work():
        yield made


@contextmanager
def heard(raised: Raised) -> Iterator[Interruption]:
    """Within the block these signals are requests during :meth:`~Interruption.at_work`, and raise otherwise."""
    made = Interruption(raised)
    if threading.current_thread() is not threading.main_thread():
        raised = {}
    before = {}
    _of_thread.interruption = made
    try:
        with _told_at_once(made) if raised else nullcontext():
            try:
                for number in raised:
                    before[number] = signal.signal(number, made.arrived)
                yield made
            finally:
                try:
                    made.close()
                finally:
                    made.heed()
                    for number, handler in before.items():
                        signal.signal(number, handler)
    finally:
        _of_thread.interruption = None
    if made.late is not None:
        send(made.late)  # to the handler from before


def _is_unwinding() -> bool:
    """Whether the current code runs during the propagation of an interruption."""
    error = sys.exc_info()[1]
    return error is not None and not isinstance(interruption_in(error), Exception)


def send(number: int) -> None:
    """Send a signal to the main thread, and wake it up."""
    main = threading.main_thread().ident
    assert main is not None  # it has begun
    signal.pthread_kill(main, number)


@contextmanager
def _told_at_once(interruption: Interruption) -> Iterator[None]:
    """Within the block a thread receives signals on arrival, wherever the main thread is."""
    reading, theirs = os.pipe()
    os.set_blocking(theirs, False)
    ours = os.fdopen(reading, "rb", buffering=0)
    before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ours, interruption), name="oocbe-signals", daemon=True)
    try:
        if before == -1:
            listener.start()
        else:  # owned by an event loop, which needs it to wake up
            signal.set_wakeup_fd(before)
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        os.close(theirs)
        if listener.ident is not None:
            listener.join()
        ours.close()


def _listen(ours: BinaryIO, interruption: Interruption) -> None:
    with suppress(OSError, ValueError):  # closed before this thread began: a signal came while it was started
        while numbers := ours.read(64):
            interruption.request(numbers[0])
