"""Writing a trace of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oocbe.errors import UsageError
from oocbe.runtime.tracing.recorder import Recorder, active, set_active
from oocbe.runtime.tracing.trace_file import TraceFile


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
    file = TraceFile(Path(path), {} if about is None else {"about": about})
    recorder = Recorder(file)
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
