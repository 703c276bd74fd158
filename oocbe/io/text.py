"""Tokens of a text file, parsed in bulk, with the line of each at hand for error messages.

The formats read here are streams of numbers separated by white space, up to tens of megabytes. Splitting into Python
objects would dominate the reading, so tokens are kept as offsets into the bytes and integers are parsed for the whole
file at once, digit place by digit place. Only a token that is asked for and is not what it should be becomes a string:
in the error message.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError
from oocbe.io.files import without_compression
from oocbe.system.deadline import look

SHORT_DIGITS = 18
"""Every number of so many decimal digits fits an int64."""

SHOWN_CHARACTERS = 40
"""Characters that are shown of an offending token: a binary file may hold one of megabytes."""

UNDERFLOW_LENGTH = 300
"""A decimal fraction without an exponent must be longer than this to round to zero."""

_SPACES = np.zeros(256, dtype=bool)
"""Which bytes separate tokens."""

_SPACES[list(b" \t\n\r\v\f")] = True
_CONTROL = np.zeros(256, dtype=bool)
"""Which bytes no text has: control characters that are no spaces."""

_CONTROL[:32] = True
_CONTROL[127] = True
_CONTROL &= ~_SPACES

_COMMENTS = re.compile(rb"#[^\n]*")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What editors of Windows write in front of UTF-8; it says nothing."""


class Text:
    """The tokens of one file.

    Parameters
    ----------
    path : for messages.
    data : the file's (decompressed) bytes; :class:`~oocbe.errors.FormatError` if they hold control characters.

    Attributes
    ----------
    starts, ends : int64 (tokens,), offsets of the first byte of each token and of the byte after its last.
    """

    def __init__(self, path: str | Path, data: bytes) -> None:
        self.path = str(path)
        self._data = data = data.removeprefix(BYTE_ORDER_MARK)
        self._codes: NDArray[np.uint8] = np.frombuffer(data, dtype=np.uint8)
        control = _CONTROL[self._codes]
        if control.any():
            offset = int(np.argmax(control))
            line = data.count(b"\n", 0, offset) + 1
            raise FormatError(path, line, f"found the byte 0x{data[offset]:02x}: binary data, expected text")
        look()
        inside = np.zeros(len(data) + 2, dtype=np.int8)
        inside[1:-1] = ~_SPACES[self._codes]
        change = np.diff(inside)
        look()
        self.starts: NDArray[np.int64] = np.flatnonzero(change == 1)
        self.ends: NDArray[np.int64] = np.flatnonzero(change == -1)

    @property
    def data(self) -> bytes:
        """The file's (decompressed) bytes."""
        return self._data

    def __len__(self) -> int:
        return len(self.starts)

    def without_comments(self) -> Text:
        """The same without what follows a ``#`` on a line; lines stay."""
        return Text(self.path, _COMMENTS.sub(b"", self.data)) if b"#" in self.data else self

    @property
    def stem(self) -> str:
        """The file's name without suffixes: what a problem is called whose format has no name."""
        return without_compression(self.path).stem

    def line(self, token: int) -> int:
        """1-based line of a token; past the last one, the last line that has any."""
        if len(self) == 0:
            return 1
        return self.line_of(int(self.starts[min(token, len(self) - 1)]))

    def line_of(self, offset: int) -> int:
        """1-based line of a byte; lines are counted once, whatever is asked."""
        return int(np.searchsorted(self._newlines, offset)) + 1

    def error(self, token: int, message: str) -> FormatError:
        """The error to raise about a token."""
        return FormatError(self.path, self.line(token), message)

    def raw(self, token: int) -> bytes:
        """Bytes of a token that exists."""
        return self._data[self.starts[token] : self.ends[token]]

    def shown(self, token: int) -> str:
        """A token for a message, quoted and cut to a reasonable length."""
        text = self.raw(token)[: SHOWN_CHARACTERS + 1].decode("utf-8", errors="backslashreplace")
        return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")

    def word(self, token: int, what: str) -> str:
        """A token as a string; FormatError where the file has ended."""
        self._need(token, 1, what)
        return self.raw(token).decode("utf-8", errors="replace")

    def is_integer(self, token: int) -> bool:
        """Whether a token exists and is an integer of 64 bits."""
        return token < len(self) and bool(self._integers[1][token])

    def integer(self, token: int, what: str, low: int | None = None, high: int | None = None) -> int:
        """A token as an integer within ``low`` .. ``high`` (None: unbounded); FormatError otherwise."""
        self._need(token, 1, what)
        values, good = self._integers
        if not good[token]:
            raise self.error(token, f"found {self.shown(token)}, expected {what}, an integer")
        value = int(values[token])
        if (low is not None and value < low) or (high is not None and value > high):
            if high is None:
                bounds = f"at least {low}"
            else:
                bounds = f"at most {high}" if low is None else f"between {low} and {high}"
            raise self.error(token, f"found {value}, expected {what}, {bounds}")
        return value

    def integers(self, first: int, count: int, what: str) -> NDArray[np.int64]:
        """``count`` tokens from ``first`` on as int64 (count,), a view: do not write to it."""
        look()
        self._need(first, count, what)
        values, good = self._integers
        if not good[first : first + count].all():
            bad = first + int(np.argmin(good[first : first + count]))
            raise self.error(bad, f"found {self.shown(bad)}, expected {what}, an integer")
        return values[first : first + count]

    def floats(self, first: int, count: int, what: str) -> NDArray[np.float64]:
        """``count`` tokens from ``first`` on as finite float64 (count,).

        A number that is not zero but too small for a double is refused: it would silently change from possible to
        impossible.
        """
        look()
        self._need(first, count, what)
        if count == 0:
            return np.empty(0, dtype=np.float64)
        part = self._data[self.starts[first] : self.ends[first + count - 1]]
        words = part.split()
        try:
            values = np.array([float(word) for word in words], dtype=np.float64)
        except ValueError:
            values = np.array([_float_or_nan(word) for word in words], dtype=np.float64)
        # Python's float() takes 1_000, no file format does.
        suspect = ~np.isfinite(values) if b"_" not in part else ~np.isfinite(values) | [b"_" in word for word in words]
        if suspect.any():
            bad = first + int(np.argmax(suspect))
            raise self.error(bad, f"found {self.shown(bad)}, expected {what}, a finite number")
        if b"e" in part or b"E" in part or (self.ends - self.starts).max() > UNDERFLOW_LENGTH:
            for place in np.flatnonzero(values == 0.0).tolist():
                if words[place].lower().partition(b"e")[0].strip(b"+-0."):
                    bad = first + place
                    raise self.error(
                        bad, f"found {self.shown(bad)}, expected {what}, zero or large enough for a double"
                    )
        return values

    def expect_end(self, token: int, what: str) -> None:
        """FormatError unless ``token`` is past the last one; ``what`` says what is complete."""
        if token < len(self):
            raise self.error(token, f"found {self.shown(token)} after {what}, expected the end of the file")

    @cached_property
    def rows(self) -> list[tuple[int, int]]:
        """First token and token past the last of every line that is not blank."""
        lines = np.searchsorted(self._newlines, self.starts)
        first = np.flatnonzero(np.diff(lines, prepend=-1))
        return list(zip(first.tolist(), np.append(first[1:], len(self)).tolist(), strict=True))

    def _need(self, first: int, count: int, what: str) -> None:
        if first + count > len(self):
            missing = "" if count == 1 else f" ({count} numbers, {max(0, len(self) - first)} left)"
            raise self.error(len(self), f"the file ends, expected {what}{missing}")

    @cached_property
    def _newlines(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._codes == ord("\n"))

    @cached_property
    def _integers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Value of each token, and whether it is an integer of 64 bits at all."""
        codes, starts = self._codes, self.starts
        if len(starts) == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        signs = codes[starts]
        signed = (signs == ord("-")) | (signs == ord("+"))
        look()
        digits = codes - np.uint8(ord("0"))  # wraps for bytes below "0", which are then no digits either
        strange = (digits > 9) & ~_SPACES[codes]
        strange[starts[signed]] = False
        first = starts + signed
        lengths = self.ends - first
        good = ~np.logical_or.reduceat(strange, starts) & (lengths > 0)
        values = np.zeros(len(starts), dtype=np.int64)
        active = np.flatnonzero(good & (lengths <= SHORT_DIGITS))
        for place in range(SHORT_DIGITS):
            look()
            active = active[lengths[active] > place]
            if len(active) == 0:
                break
            values[active] = values[active] * 10 + digits[first[active] + place]
        np.negative(values, out=values, where=signs == ord("-"))
        for token in np.flatnonzero(good & (lengths > SHORT_DIGITS)).tolist():
            value = _integer_or_none(self.raw(token))
            good[token] = value is not None
            values[token] = value or 0
        return values, good


def _float_or_nan(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")


def _integer_or_none(word: bytes) -> int | None:
    try:
        value = int(word)
    except ValueError:  # more digits than Python converts
        return None
    return value if -(2**63) <= value < 2**63 else None
