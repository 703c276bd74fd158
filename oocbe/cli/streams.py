"""Standard input, output and error that may be closed, full, or without a reader.

A closed stream is replaced by the null device, so that no file opened later gets its number and the printed output.
A failure to write output is an error that names the stream. A failure to write progress and notes on standard error is
ignored: the answer does not depend on them.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("stdin", "stdout", "stderr")
"""Python's names of the streams, by number."""


class _Stream(io.FileIO):
    """Standard output or error, named in the errors of what is written there."""

    def __init__(self, number: int, name: str, is_needed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._name, self._is_needed = name, is_needed

    def write(self, data: object) -> int:
        """Write bytes; on an optional stream, only a missing reader is an error."""
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if not self._is_needed and not isinstance(error, BrokenPipeError):
                return len(data)  # type: ignore[arg-type]
            error.filename = self._name
            raise


def prepare() -> None:
    """Occupy the numbers of closed streams, and replace Python's streams by ones with names in their errors."""
    for number, name in enumerate(NAMES):
        stream = getattr(sys, name)
        if stream is None:
            with suppress(OSError):
                os.fstat(number)  # the number is in use already
                continue
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    for number, (name, title, is_needed) in enumerate(
        (("stdout", "standard output", True), ("stderr", "standard error", False)), start=1
    ):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and isinstance(
            getattr(stream.buffer, "raw", stream.buffer), io.FileIO
        ):
            raw: Any = _Stream(number, title, is_needed)
            if hasattr(stream.buffer, "raw"):  # else output is unbuffered (python -u)
                raw = io.BufferedWriter(raw)
            made = io.TextIOWrapper(
                raw, stream.encoding, stream.errors, None, stream.line_buffering, stream.write_through
            )
            setattr(sys, name, made)
