"""Trace files: Chrome's trace event format as an array of events, one per line, gzipped if the name ends in ``.gz``.

Chrome (``chrome://tracing``) and Perfetto (https://ui.perfetto.dev) display them. Lanes are processes there, and their
rows are threads. The first line opens the array, each event begins with the separator required by the previous one, and
the last line closes the array, which the format does not require. Blocks of events are written and flushed immediately,
so that a process killed at any moment (``kill -9`` included) leaves a prefix accepted by viewers and
:func:`read_trace`: all but the last block, of about a second. A gzipped prefix lacks its trailer, an error for some
programs, but not for ``zcat`` and :func:`read_trace`.

The first event, ``oocbe``, contains the format's version; the last, ``oocbe end``, how the run ended, its duration and
the number of dropped spans.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from oocbe.errors import FormatError, UsageError
from oocbe.runtime.plain_files import opened
from oocbe.runtime.tracing.recorder import LANES, Detail, Recorder, Span, active, set_active
from oocbe.runtime.urls import refuse_url

VERSION = 1
"""Version of the trace's format."""

HEAD, END = "oocbe", "oocbe end"
"""Names of the first and the last record."""

LONGEST_LINE = 1 << 20
"""Maximum characters of a line; a file with a longer one is not a trace."""

WAIT = "wait"
"""Category of spans of waiting."""


class TraceFile:
    """A trace being written, with a text about the run in its first event; OSError: the file cannot be written."""

    def __init__(self, path: Path, about: dict[str, str] | None = None) -> None:
        self._began, self._cpu_before = time.perf_counter_ns(), time.process_time()
        self._file = cast(IO[bytes], gzip.open(path, "wb", 5) if path.suffix == ".gz" else path.open("wb"))  # noqa: SIM115
        self._known: set[tuple[str, int]] = set()
        head = {"name": HEAD, "ph": "M", "pid": 0, "args": {"version": VERSION, **(about or {})}}
        try:
            self._append(f"[\n{json.dumps(head)}")
        except OSError as error:
            error.filename = error.filename or str(path)
            with suppress(OSError):  # the buffered data cannot be written
                self._file.close()
            raise

    def write(self, spans: list[Span]) -> None:
        """Append some spans."""
        lines: list[str] = []
        for span in spans:
            process = LANES.index(span.lane) + 1
            if (span.lane, span.row) not in self._known:
                lines += self._names(span.lane, process, span.row)
            begin, took = (span.begin - self._began) / 1000, (span.end - span.begin) / 1000
            event: dict[str, object] = {
                "name": span.name,
                "cat": WAIT if span.is_wait else "work",
                "ph": "X",
                "ts": round(begin, 3),
                "dur": round(took, 3),
                "pid": process,
                "tid": span.row,
            }
            if span.details:
                event["args"] = span.details
            lines.append(json.dumps(event, default=lambda number: number.item()))  # NumPy's
        self._append("".join(f",\n{line}" for line in lines))

    def close(self, recorder: Recorder, error: BaseException | None) -> None:
        """Write the end of the run, and close the file."""
        try:
            if recorder.failure is None:
                dropped_from = recorder.dropped_from
                end = {
                    "seconds": (time.perf_counter_ns() - self._began) / 1e9,
                    "cpu_seconds": time.process_time() - self._cpu_before,
                    "cores": len(os.sched_getaffinity(0)),
                    "error": None if error is None else type(error).__name__,
                    "dropped": recorder.dropped,
                    "dropped_from": None if dropped_from is None else (dropped_from - self._began) / 1e9,
                }
                event = {"name": END, "ph": "M", "pid": 0, "args": end}
                self._append(f",\n{json.dumps(event)}\n]\n")
        finally:
            self._file.close()

    def _names(self, lane: str, process: int, row: int) -> Iterator[str]:
        """Events that name a row, and its lane with its first row."""
        if all(known != lane for known, _ in self._known):
            for name, content in (("process_name", {"name": lane}), ("process_sort_index", {"sort_index": process})):
                yield json.dumps({"name": name, "ph": "M", "pid": process, "args": content})
        self._known.add((lane, row))
        for name, text in (("thread_name", {"name": f"{lane} {row}"}), ("thread_sort_index", {"sort_index": row})):
            yield json.dumps({"name": name, "ph": "M", "pid": process, "tid": row, "args": text})

    def _append(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()


@dataclass
class Trace:
    """The content of a trace file.

    path : its file. spans : in the order of the file; times in nanoseconds since the beginning of the trace.
    seconds : from the trace's beginning to its end, or to the last span if the process was killed.
    cpu_seconds : of all threads of the process, or None. cores : available to the process.
    is_whole : whether the trace has its end. error : name of the exception that ended the run, or None.
    dropped : number of spans that were not recorded. dropped_from : seconds from which some are missing, or None.
    about : description of the run.
    """

    path: Path
    spans: list[Span] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float | None = None
    cores: int = 1
    is_whole: bool = False
    error: str | None = None
    dropped: int = 0
    dropped_from: float | None = None
    about: dict[str, str] = field(default_factory=dict)


def read_trace(path: str | Path) -> Trace:
    """Read a trace; one cut short by the kill of its process is read up to there.

    Raises FormatError: not a trace of oocbe, or damaged; the message has the line; OSError: it is unreadable.
    """
    trace = Trace(Path(path))
    for number, line in _lines(trace.path):
        try:
            _take(trace, json.loads(line.rstrip(b",\n")))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            if number > 2 and not line.endswith(b"\n"):
                break  # cut short
            raise FormatError(path, number, "not an event of a trace that oocbe wrote with --trace") from None
        if number == 2 and not trace.about:
            raise FormatError(path, number, "not a trace that oocbe wrote: its first event has no version")
    if not trace.about:
        raise FormatError(path, None, "not a trace of oocbe: it has no events")
    if not trace.is_whole:
        trace.seconds = max((span.end for span in trace.spans), default=0) / 1e9
    return trace


def _take(trace: Trace, event: dict[str, Any]) -> None:
    if event["ph"] == "X":
        lane = LANES[event["pid"] - 1] if event["pid"] > 0 else LANES[len(LANES)]
        begin = round(event["ts"] * 1000)
        end = begin + round(event["dur"] * 1000)
        details: dict[str, Detail] = event.get("args", {})
        trace.spans.append(Span(lane, event["tid"], str(event["name"]), begin, end, event["cat"] == WAIT, details))
    elif event["name"] == HEAD:
        if event["args"]["version"] != VERSION:
            raise ValueError
        trace.about = {key: str(value) for key, value in event["args"].items()}
    elif event["name"] == END:
        content = event["args"]
        trace.seconds, trace.error = float(content["seconds"]), content["error"]
        trace.cpu_seconds, trace.cores = float(content["cpu_seconds"]), int(content["cores"])
        trace.dropped, trace.dropped_from, trace.is_whole = content["dropped"], content["dropped_from"], True


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines with an event, and their numbers, up to the end of a truncated gzipped file."""
    with opened(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
        number = 0
        while True:
            number += 1
            try:
                line = file.readline(LONGEST_LINE)
            except EOFError:
                return
            except (zlib.error, gzip.BadGzipFile) as error:
                raise FormatError(path, None, f"not gzip, or damaged ({error})") from None
            if not line:
                return
            if number == 1 and line != b"[\n":
                raise FormatError(path, 1, "not a trace that oocbe wrote: an array of events has to begin here")
            if line.strip() not in (b"[", b"]"):
                yield number, line


@contextmanager
def trace(path: str | Path, about: str | None = None) -> Iterator[Recorder]:
    """Write a trace of all work of this process within the block.

    Parameters
    ----------
    path : the file, in the trace event format of Chrome and Perfetto (see :mod:`oocbe.runtime.tracing.trace_file`),
        gzipped if the name ends in ``.gz``; overwritten if it exists. ``oocbe trace FILE`` reads it.
    about : description of the run, stored in the trace.

    Yields
    ------
    Recorder : after the block, ``dropped`` is the number of spans beyond the limit, and ``failure`` the error that
        ended the writing early. Neither ends the block: the answer matters more.

    Raises
    ------
    UsageError : a trace is active already. OSError : the file cannot be created.
    """
    if active() is not None:
        raise UsageError(f"{path}: a trace is being written already; only one at a time can be")
    refuse_url(path, "a trace")
    file = TraceFile(Path(path), {} if about is None else {"about": about})
    recorder = Recorder(file.write)
    set_active(recorder)
    ended_by: BaseException | None = None
    try:
        yield recorder
    except BaseException as error:
        ended_by = error
        raise
    finally:
        set_active(None)
        recorder.close()
        try:
            file.close(recorder, ended_by)
        except OSError as error:
            recorder.failure = error
