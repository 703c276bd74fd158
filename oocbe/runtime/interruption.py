"""Ctrl-C, SIGTERM and SIGHUP as a request to wind down: what is known is returned, and requested files are written.

Within :func:`listening` the first signal raises nothing: it sets the flag of every
:class:`oocbe.runtime.deadline.Deadline` of the thread, and work ends as at a time limit. Work that has not ended after
:data:`GRACE_SECONDS` does not check its deadline; it is then interrupted by an exception. A second signal raises at
once.

Python calls handlers of signals between two steps of the main thread, which may be in a compiled loop for long. So
another thread listens, too: the system tells it when a signal arrives (``signal.set_wakeup_fd``).
"""

from __future__ import annotations

import signal
import sys
import threading
import weakref
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, Protocol

from oocbe.errors import OocbeError, RequestedEndError, interruption_in

if TYPE_CHECKING:
    import socket

GRACE_SECONDS = 0.4
"""Seconds after a request within which work that looks at its deadline has ended; together with what is written then,
less than the second that a person, or a batch system, waits patiently."""

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals to end a process: from Ctrl-C, a batch system, and a closed terminal."""

Raised = Mapping[int, Callable[[], BaseException]]
"""By number of a signal, makes what is raised where the signal is no request."""

_of_thread = threading.local()


class HasFlag(Protocol):
    """The target of a request to end: a deadline."""

    def interrupt(self) -> None:
        """Make the loops that look at the flag return now."""


class Interruption:
    """State of received signals, and the deadlines to interrupt.

    Attributes
    ----------
    number : of the signal that asked to end; None: none has.
    is_deferred : whether :meth:`defer` was called.
    is_answered : whether what the command was asked for is being printed.
    is_overdue : whether an exception was raised because work had not ended in time.
    """

    def __init__(self, raised: Raised) -> None:
        self.number: int | None = None
        self.is_deferred = self.is_overdue = self.is_answered = False
        self._raised = raised
        self._arrivals = self._works = 0
        self._unheeded: int | None = None
        self._is_insisting = False
        self._insisting: threading.Timer | None = None
        self._deadlines: dict[int, weakref.ref[HasFlag]] = {}
        self._timer: threading.Timer | None = None
        self._is_hurrying = False
        self._lock = threading.RLock()  # a handler may come while the main thread holds it

    @property
    def is_requested(self) -> bool:
        """Whether a signal has asked to end."""
        return self.number is not None

    @property
    def reason(self) -> str:
        """Text that names the signal."""
        is_ctrl_c = self.number in (None, signal.SIGINT)
        return f"interrupted by {'Ctrl-C' if is_ctrl_c else signal.Signals(self.number or 0).name}"

    def caused(self, error: BaseException) -> bool:
        """Whether an error ends work because a first signal asked it to: a second one ends more than that."""
        is_torn_out = self.is_overdue and not isinstance(self.behind(error), Exception)
        if not is_torn_out and not isinstance(error, RequestedEndError):
            return False
        self.heed()  # an exception that was swallowed on its way is not raised once more: the work has ended
        return True

    def behind(self, error: BaseException) -> BaseException:
        """The interruption that became this error, or the error itself.

        Modules written in C, and compilers, may answer an exception that arrives while they work with one of their own.
        So does anything that goes wrong before an interruption that was raised has arrived: it is on its way.
        """
        found = interruption_in(error)
        if self._unheeded is not None and isinstance(found, Exception) and not isinstance(found, OocbeError):
            return self._raised[self._unheeded]()
        return found

    def heed(self) -> None:
        """What was raised has arrived where it was to go."""
        with self._lock:
            self._unheeded = None
            if self._insisting is not None:
                self._insisting.cancel()

    def watch(self, deadline: HasFlag) -> None:
        """A request sets the flag of this deadline, too, from now on; at once where it has come already."""
        key = id(deadline)
        self._deadlines[key] = weakref.ref(deadline, lambda _: self._deadlines.pop(key, None))
        if self.is_requested:
            deadline.interrupt()

    def defer(self) -> None:
        """From now on nothing is torn out of what it does, unless it is :meth:`at_work`: output is under way."""
        self.is_deferred = True
        self._take_unheeded()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within the block the first signal is a request, and is given :data:`GRACE_SECONDS`."""
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
        """Python's handler of a signal: takes it for a request, or raises."""
        with self._lock:
            is_hurrying, self._is_hurrying = self._is_hurrying, False
            is_insisting, self._is_insisting = self._is_insisting, False
        if is_insisting and self._unheeded is not None and not _is_unwinding():
            self._raise(number)
        if is_insisting and not is_hurrying:
            return
        if is_hurrying and self._works == 0:
            return  # the work has ended just now
        if not is_hurrying:
            self._arrivals += 1
        if self._arrivals > 1:
            self.is_overdue = False  # what is known is not waited for any more
        if is_hurrying or self._arrivals > 1 or not self._can_wait:
            self._raise(number)
        self.request(number)

    def request(self, number: int) -> None:
        """Ask all that is at work to end; on any thread. Only the first request counts."""
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
        """Send a signal anew whose exception was lost on its way: to be told from a second one of the user's."""
        with self._lock:
            self._is_hurrying = self.is_overdue
        send(number)

    def _raise(self, number: int) -> NoReturn:
        """Raise, and see to it that this is heeded: there are modules that swallow whatever is raised as they load."""
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
        if not is_on_its_way:  # one signal stands for both: a second one would be taken for the user's
            send(number)

    def _take_unheeded(self) -> None:
        """Make a request of a signal whose exception was swallowed."""
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
        """Raise in the middle of the work."""
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
    """Whether a signal has asked the work of this thread to end."""
    found = current()
    return found is not None and found.is_requested


@contextmanager
def listening() -> Iterator[Interruption]:
    """Within the block a first Ctrl-C is a request to end; other signals where an outer block of :func:`heard` says so.

    Nothing is heard on other threads than the main one, nor where the program has a handler of its own: what that one
    raises ends the work wherever it is.
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
    """Within the block these signals are requests while something is :meth:`~Interruption.at_work`, else raise."""
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
                made.heed()
                for number, handler in before.items():
                    signal.signal(number, handler)
    finally:
        _of_thread.interruption = None


def _is_unwinding() -> bool:
    """Whether what runs now does so because an interruption is on its way."""
    error = sys.exc_info()[1]
    return error is not None and not isinstance(interruption_in(error), Exception)


def send(number: int) -> None:
    """A signal to the main thread, which wakes up for it where the system can do that."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, number)
    else:
        interrupt_main(signal.Signals(number))


@contextmanager
def _told_at_once(interruption: Interruption) -> Iterator[None]:
    """Within the block a thread hears of signals when they arrive, wherever the main thread is."""
    import socket  # not at every start

    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ours, interruption), name="oocbe-signals", daemon=True)
    try:
        if before == -1:
            listener.start()
        else:  # an event loop's, which needs it to wake up
            signal.set_wakeup_fd(before)
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        theirs.close()
        if listener.ident is not None:
            listener.join()
        ours.close()


def _listen(ours: socket.socket, interruption: Interruption) -> None:
    while numbers := ours.recv(64):
        interruption.request(numbers[0])
