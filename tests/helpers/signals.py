"""A signal before each line of some modules in turn."""

from __future__ import annotations

import linecache
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def signalled_at_every_line(call: Callable[[], object], number: int, files: tuple[str, ...]) -> set[object]:
    """What a call returns where a signal arrives at a line of these files, and "heard" where the handler from before
    took one; after each call that handler is back."""
    ends: set[object] = set()

    def hear(*_: object) -> None:
        ends.add("heard")

    def lines_until(place: int) -> int:
        """Call with the signal before a line: how many lines there were."""
        lines = 0

        def at_line(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.endswith(files):
                return None
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if event == "line" and source != "try:":  # where Python has no instruction, and hears no signal
                lines += 1
                if lines == place:
                    signal.raise_signal(number)
            return at_line

        before = sys.gettrace()
        sys.settrace(at_line)
        try:
            ends.add(call())
        finally:
            sys.settrace(before)
        return lines

    handlers = {end: signal.signal(end, hear) for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    place = 1
    try:
        while lines_until(place) >= place:
            assert {signal.getsignal(end) for end in handlers} == {hear}, place
            place += 1
    finally:
        for end, handler in handlers.items():
            signal.signal(end, handler)
    assert place > 50
    return ends
