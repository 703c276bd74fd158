"""Tokens of a text file, with the line of each at hand for error messages.

:class:`Text` parses them in bulk. Its formats are streams of numbers separated by white space, up to gigabytes.
Splitting into Python objects would dominate the reading, and offsets of all tokens take several times the file's size.
So tokens are found in one window of the bytes at a time, and its integers parsed at once, digit place by digit place.
Only a token that is needed and is not what it should be becomes a string: in the error message.

:class:`Lexer` reads formats with punctuation. A regular expression cuts them, with
braces, quoted names and comments into tokens for a recursive-descent parser. A token is two offsets and a kind until it
is needed: a Python object would take ten times its length.
"""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.files import without_compression
from oocbe.model.row_numbers import stretches_of
from oocbe.runtime.deadline import check_deadline, looked

SHORT_DIGITS = 18
"""Every number of so many decimal digits fits an int64."""

SHOWN_CHARACTERS = 40
"""Characters that are shown of an offending token: a binary file may hold one of megabytes."""

UNDERFLOW_LENGTH = 300
"""A decimal fraction without an exponent must be longer than this to round to zero."""

LARGEST_DOMAIN = 2**24
"""Values of a variable; larger domains are intervals or damage, and arrays of this size are still affordable."""

LARGEST_VARIABLE = 2**24
"""Number of a variable at most, in formats that number them; more are damage."""

LARGEST_TABLE = 2**27
"""Entries of one table at most; a larger one would be a text of gigabytes."""

_SPACES = np.zeros(256, dtype=bool)
"""Which bytes separate tokens."""

_SPACES[list(b" \t\n\r\v\f")] = True
_CONTROL = np.zeros(256, dtype=bool)
"""Which bytes no text has: control characters that are no spaces."""

_CONTROL[:32] = True
_CONTROL[127] = True
_CONTROL &= ~_SPACES

_COMMENTS = re.compile(rb"#[^\n]*")
_SPACE = re.compile(rb"[ \t\n\r\v\f]")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark that editors of Windows write in front of UTF-8; it has no meaning."""

WINDOW_BYTES = 2**20
"""Bytes whose tokens are known at a time: some 40 bytes are needed for each token of them."""

LOOK_STEP = 2**10
"""Lines, tokens, tags or events of a file after which its reading looks whether the time limit has come."""

DEEPEST = 64
"""Elements or nodes within one another at most."""

LONGEST_TOKEN = 2**20
"""Characters of a word or number at most: of one of gigabytes no copy is made to see that it is none."""


class _Window:
    """The tokens that begin within some of the file's bytes.

    ``first`` and ``past`` are the numbers of the first token, and of the one after the last. ``starts`` and ``ends``,
    int64 (tokens,), are offsets in the file of the first byte of each token and of the byte after its last.
    """

    def __init__(self, data: bytes, first: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._data, self.first, self.past = data, first, first + len(starts)
        self.starts, self.ends = starts, ends

    @cached_property
    def integers(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Value of each token, and whether it is an integer of 64 bits at all."""
        if len(self.starts) == 0:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        begin = int(self.starts[0])
        ends = np.minimum(self.ends, self.starts + LONGEST_TOKEN)  # which is no integer either
        codes, starts = np.frombuffer(self._data, np.uint8, int(ends[-1]) - begin, begin), self.starts - begin
        signs = codes[starts]
        signed = (signs == ord("-")) | (signs == ord("+"))
        digits = codes - np.uint8(ord("0"))  # wraps for bytes below "0", which are then no digits either
        strange = (digits > 9) & ~_SPACES[codes]
        strange[starts[signed]] = False
        first = starts + signed
        lengths = ends - begin - first
        good = lengths > 0
        if strange.any():
            good &= ~np.logical_or.reduceat(strange, starts)
        values = np.zeros(len(starts), dtype=np.int64)
        active = np.flatnonzero(good & (lengths <= SHORT_DIGITS))
        for place in range(SHORT_DIGITS):
            active = active[lengths[active] > place]
            if len(active) == 0:
                break
            values[active] = values[active] * 10 + digits[first[active] + place]
        np.negative(values, out=values, where=signs == ord("-"))
        for token in np.flatnonzero(good & (lengths > SHORT_DIGITS)).tolist():
            value = _integer_or_none(self._data[self.starts[token] : ends[token]])
            good[token] = value is not None
            values[token] = value or 0
        return values, good


class Text:
    """The tokens of one file.

    Of the whole file only the numbers of tokens and lines before each window are known; offsets and integers are found
    for one window at a time. So a token takes no memory beyond its bytes.

    path : for messages.
    data : the file's (decompressed) bytes; :class:`~oocbe.errors.FormatError` if they hold control characters.
    """

    def __init__(self, path: str | Path, data: bytes) -> None:
        self.path = str(path)
        self.data = data = data.removeprefix(BYTE_ORDER_MARK)
        self._tokens, self._lines = [0], [0]  # before each window, and in all
        after_space = True
        for begin in range(0, len(data), WINDOW_BYTES):
            check_deadline()
            codes = self._codes(begin)
            control = _CONTROL[codes]
            if control.any():
                offset = begin + int(np.argmax(control))
                line = self._lines[-1] + data.count(b"\n", begin, offset) + 1
                raise FormatError(path, line, f"found the byte 0x{data[offset]:02x}: binary data, expected text")
            spaces = _SPACES[codes]
            first = int(after_space and not spaces[0])
            self._tokens.append(self._tokens[-1] + first + int(np.count_nonzero(spaces[:-1] > spaces[1:])))
            self._lines.append(self._lines[-1] + data.count(b"\n", begin, begin + WINDOW_BYTES))
            after_space = bool(spaces[-1])
        self._window = _Window(data, 0, *np.empty((2, 0), dtype=np.int64))
        self._counted = 0, 0  # a byte and the number of lines before it

    def decoded(self) -> str:
        """The file as a string; FormatError where it is not UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"found the byte 0x{self.data[error.start]:02x}, expected UTF-8"
            raise FormatError(self.path, self.line_of(error.start), what) from None

    def __len__(self) -> int:
        return self._tokens[-1]

    def _codes(self, begin: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.data, np.uint8, min(WINDOW_BYTES, len(self.data) - begin), begin)

    def _at(self, token: int) -> _Window:
        """The window of a token that exists."""
        if not self._window.first <= token < self._window.past:
            check_deadline()
            self._window = self._window_at(bisect_right(self._tokens, token) - 1)
        return self._window

    def _window_at(self, number: int) -> _Window:
        begin = number * WINDOW_BYTES
        spaces = _SPACES[self._codes(begin)]
        starts = begin + 1 + np.flatnonzero(spaces[:-1] > spaces[1:])
        ends = begin + 1 + np.flatnonzero(spaces[:-1] < spaces[1:])
        if not spaces[0]:
            if begin == 0 or _SPACES[self.data[begin - 1]]:
                starts = np.append(begin, starts)
            else:
                ends = ends[1:]  # of a token that began before
        if len(ends) < len(starts):  # the last one goes on
            end = _SPACE.search(self.data, begin + len(spaces))
            ends = np.append(ends, len(self.data) if end is None else end.start())
        return _Window(self.data, self._tokens[number], starts, ends)

    def span(self, token: int) -> tuple[int, int]:
        """Offsets of the first byte of a token that exists and of the byte after its last."""
        window = self._at(token)
        place = token - window.first
        return int(window.starts[place]), int(window.ends[place])

    def without_comments(self) -> Text:
        """The same without what follows a ``#`` on a line; lines stay."""
        return Text(self.path, _COMMENTS.sub(b"", self.data)) if b"#" in self.data else self

    @property
    def stem(self) -> str:
        """The file's name without suffixes: what a problem is called whose format has no name."""
        return without_compression(self.path).stem.encode(errors="replace").decode()  # names may be any bytes

    def line(self, token: int) -> int:
        """1-based line of a token; past the last one, the last line that has any."""
        return 1 if len(self) == 0 else self.line_of(self.span(min(token, len(self) - 1))[0])

    def line_of(self, offset: int) -> int:
        """1-based line of a byte; only lines of its window, after the byte of the last call, are counted for it."""
        number = min(offset, len(self.data)) // WINDOW_BYTES
        begin, before = number * WINDOW_BYTES, self._lines[number]
        if begin <= self._counted[0] <= offset:
            begin, before = self._counted
        lines = before + self.data.count(b"\n", begin, offset)
        self._counted = offset, lines
        return lines + 1

    def error(self, token: int, message: str) -> FormatError:
        """The error to raise about a token."""
        return FormatError(self.path, self.line(token), message)

    def expected(self, what: str, token: int) -> FormatError:
        """The error to raise where a token that exists is not what it should be."""
        return self.error(token, f"found {self.shown(token)}, expected {what}")

    def no_integer(self, what: str, token: int) -> FormatError:
        """The error to raise where a token that exists is no integer of 64 bits."""
        is_large = re.fullmatch(rb"[+-]?\d+", self.raw(token)) is not None
        return self.expected(f"{what}, an integer{' of 64 bits' if is_large else ''}", token)

    def raw(self, token: int) -> bytes:
        """Bytes of a token that exists."""
        start, end = self.span(token)
        if end - start > LONGEST_TOKEN:
            raise self.expected(f"a word of at most {LONGEST_TOKEN:,} characters", token)
        return self.data[start:end]

    def between(self, first: int, last: int) -> bytes:
        """Bytes from the first of a token to the last of another; none if the latter does not exist."""
        return self.data[self.span(first)[0] : self.span(last)[1]] if last < len(self) else b""

    def shown(self, token: int) -> str:
        """A token for a message, quoted and cut to a reasonable length."""
        start, end = self.span(token)
        return shown(self.data[start : min(end, start + SHOWN_CHARACTERS + 1)])

    def word(self, token: int, what: str) -> str:
        """A token as a string; FormatError where the file has ended."""
        self._need(token, 1, what)
        return self.raw(token).decode("utf-8", errors="replace")

    def is_integer(self, token: int) -> bool:
        """Whether a token exists and is an integer of 64 bits."""
        if token >= len(self):
            return False
        window = self._at(token)
        return bool(window.integers[1][token - window.first])

    def integer(self, token: int, what: str, low: int | None = None, high: int | None = None) -> int:
        """A token as an integer within ``low`` .. ``high`` (None: unbounded); FormatError otherwise."""
        self._need(token, 1, what)
        window = self._at(token)
        values, good = window.integers
        if not good[token - window.first]:
            raise self.no_integer(what, token)
        value = int(values[token - window.first])
        if (low is not None and value < low) or (high is not None and value > high):
            if high is None:
                bounds = f"at least {low}"
            else:
                bounds = f"at most {high}" if low is None else f"between {low} and {high}"
            raise self.error(token, f"found {value}, expected {what}, {bounds}")
        return value

    def integers(self, first: int, count: int, what: str) -> NDArray[np.int64]:
        """``count`` tokens from ``first`` on as int64 (count,), perhaps a view: do not write to it."""
        self._need(first, count, what)
        found: NDArray[np.int64] | None = None
        for _, begin, wanted in stretches_of(self._tokens, first, count):
            tokens = slice(begin, begin + wanted.stop - wanted.start)
            window = self._at(first + wanted.start)
            values, good = window.integers[0][tokens], window.integers[1][tokens]
            if not good.all():
                raise self.no_integer(what, first + wanted.start + int(np.argmin(good)))
            if len(values) == count:
                return values
            found = np.empty(count, dtype=np.int64) if found is None else found
            found[wanted] = values
        return np.empty(0, dtype=np.int64) if found is None else found

    def floats(self, first: int, count: int, what: str) -> NDArray[np.float64]:
        """``count`` tokens from ``first`` on as finite float64 (count,).

        A number that is not zero but too small for a double is refused: it would change to impossible.
        """
        self._need(first, count, what)
        found = np.empty(count, dtype=np.float64)
        for _, begin, wanted in stretches_of(self._tokens, first, count):
            window = self._at(first + wanted.start)
            found[wanted] = self._floats_of(window, begin, begin + wanted.stop - wanted.start, what)
        return found

    def _floats_of(self, window: _Window, begin: int, end: int, what: str) -> NDArray[np.float64]:
        first = window.first + begin
        if window.ends[end - 1] - window.starts[end - 1] > LONGEST_TOKEN:
            raise self.expected(f"{what}, a finite number", first + end - begin - 1)
        part = self.data[window.starts[begin] : window.ends[end - 1]]
        words = part.split()
        try:
            values = np.array([float(word) for word in words], dtype=np.float64)
        except ValueError:
            values = np.array([_float_or_nan(word) for word in words], dtype=np.float64)
        # Python's float() takes 1_000, no file format does.
        suspect = ~np.isfinite(values) if b"_" not in part else ~np.isfinite(values) | [b"_" in word for word in words]
        if suspect.any():
            raise self.expected(f"{what}, a finite number", first + int(np.argmax(suspect)))
        if b"e" in part or b"E" in part or (window.ends[begin:end] - window.starts[begin:end]).max() > UNDERFLOW_LENGTH:
            for place in np.flatnonzero(values == 0.0).tolist():
                if words[place].lower().partition(b"e")[0].strip(b"+-0."):
                    raise self.expected(f"{what}, zero or large enough for a double", first + place)
        return values

    def expect_end(self, token: int, what: str) -> None:
        """FormatError unless ``token`` is past the last one; ``what`` says what is complete."""
        if token < len(self):
            raise self.error(token, f"found {self.shown(token)} after {what}, expected the end of the file")

    def rows(self) -> Iterator[tuple[int, int]]:
        """First token and token past the last of every line that is not blank."""
        first, last = 0, -1  # of the line at hand
        for number in range(len(self._tokens) - 1):
            check_deadline()
            window = self._window_at(number)
            begin = number * WINDOW_BYTES
            newlines = begin + np.flatnonzero(self._codes(begin) == ord("\n"))
            lines = self._lines[number] + np.searchsorted(newlines, window.starts)
            for place in np.flatnonzero(np.diff(lines, prepend=last)).tolist():
                if window.first + place > first:
                    yield first, window.first + place
                first = window.first + place
            last = lines[-1] if len(lines) else last
        if len(self) > first:
            yield first, len(self)

    def _need(self, first: int, count: int, what: str) -> None:
        if first + count > len(self):
            missing = "" if count == 1 else f" ({count} numbers, {max(0, len(self) - first)} left)"
            raise self.error(len(self), f"the file ends, expected {what}{missing}")


def shown(content: str | bytes) -> str:
    """A part of a file for a message, quoted and cut to a reasonable length."""
    text = content[: SHOWN_CHARACTERS + 1]
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


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


MOST_DIGITS = 80
"""Characters of an integer at most: one of megabytes would take hours to convert."""

_WORD, _MARK, _QUOTED = range(3)
_KINDS = {"mark": _MARK, "quoted": _QUOTED}
"""Kinds of tokens that are no words, by the group that matches them."""


class Lexer:
    """A cursor over the tokens of a file.

    text : the file. pattern : matches a token, or what lies between tokens (then no group of it takes part); its groups
        are ``quoted`` (a string without its quotes), ``mark`` (punctuation) and ``word`` (anything else).
    Raises FormatError: bytes that are not UTF-8, or that no token begins with.
    """

    def __init__(self, text: Text, pattern: re.Pattern[str]) -> None:
        self._text = text
        content = text.decoded()
        integer = "i" if len(content) < 2**31 else "q"
        self._starts, self._ends, self._kinds = array(integer), array(integer), bytearray()
        self._content = content
        end = 0
        for match in looked(pattern.finditer(content), LOOK_STEP):
            if match.start() != end:
                break
            end = match.end()
            if match.lastgroup is not None:
                start, past = match.span(match.lastgroup)
                self._starts.append(start)
                self._ends.append(past)
                self._kinds.append(_KINDS.get(match.lastgroup, _WORD))
        if end != len(content):
            line = content.count("\n", 0, end) + 1
            raise FormatError(text.path, line, f"found {shown(content[end:])}, which does not end, or begins no token")
        self.place = 0

    def __len__(self) -> int:
        """Characters of the file."""
        return len(self._content)

    @property
    def ended(self) -> bool:
        """Whether no token is left."""
        return self.place >= len(self._kinds)

    def line(self, place: int | None = None) -> int:
        """1-based line of a token (None: the next one); past the last, the file's last line with a token."""
        if not self._kinds:
            return 1
        wanted = self.place if place is None else place
        return self._content.count("\n", 0, self._starts[min(wanted, len(self._starts) - 1)]) + 1

    def error(self, message: str, place: int | None = None) -> FormatError:
        """The error to raise about a token (None: the next one)."""
        return FormatError(self._text.path, self.line(place), message)

    def unsupported(self, message: str, place: int | None = None) -> UnsupportedError:
        """The error to raise about a token (None: the one before the next) that is not supported."""
        return UnsupportedError(
            f"{self._text.path}, line {self.line(self.place - 1 if place is None else place)}: {message}"
        )

    def expected(self, what: str, place: int | None = None) -> FormatError:
        """The error to raise where a token (None: the next one) is not what it should be."""
        return self.error(f"found {self.shown(place)}, expected {what}", place)

    def shown(self, place: int | None = None) -> str:
        """A token (None: the next one) for a message."""
        wanted = self.place if place is None else place
        return "the end of the file" if wanted >= len(self._kinds) else shown(self._token(wanted))

    def _token(self, place: int) -> str:
        return self._content[self._starts[place] : self._ends[place]]

    def sees(self, mark: str, ahead: int = 0) -> bool:
        """Whether the next token, or one so many tokens behind it, is one of the given marks (a string of them)."""
        place = self.place + ahead
        return place < len(self._kinds) and self._kinds[place] == _MARK and self._token(place) in mark

    def sees_word(self, words: Collection[str] | None = None) -> bool:
        """Whether the next token is a word or string, and one of ``words`` where those are given."""
        if self.ended or self._kinds[self.place] == _MARK:
            return False
        return words is None or self._token(self.place) in words

    @property
    def next_word(self) -> str:
        """The next token where it is a word or string; nothing otherwise."""
        return self._token(self.place) if self.sees_word() else ""

    @property
    def sees_string(self) -> bool:
        """Whether the next token is a string in quotes."""
        return not self.ended and self._kinds[self.place] == _QUOTED

    def take(self, marks: str, what: str) -> str:
        """Take a mark that must be there."""
        if not self.sees(marks):
            raise self.expected(what)
        self.place += 1
        return self._token(self.place - 1)

    def accept(self, marks: str) -> bool:
        """Take a mark where it is there."""
        seen = self.sees(marks)
        self.place += seen
        return seen

    def word(self, what: str) -> str:
        """Take a word or string."""
        if not self.sees_word():
            raise self.expected(what)
        self.place += 1
        return self._token(self.place - 1)

    def keyword(self, words: Collection[str], what: str) -> str:
        """Take one of the given words."""
        if not self.sees_word(words):
            raise self.expected(what)
        return self.word(what)

    def integer(self, what: str, low: int, high: int) -> int:
        """Take an integer within limits."""
        text = self.word(f"{what}, an integer")
        try:
            value = int(text) if "_" not in text else None
        except ValueError:
            value = None
        if value is None:
            raise self.expected(f"{what}, an integer", self.place - 1)
        if not low <= value <= high:
            raise self.expected(f"{what}, between {low} and {high}", self.place - 1)
        return value

    def number(self, what: str, low: float = -math.inf) -> float:
        """Take a finite number, at least ``low``; one that is not zero but too small for a double is refused."""
        text = self.word(f"{what}, a number")
        value = parse_number(text)
        if value is None:
            raise self.expected(f"{what}, a finite number", self.place - 1)
        if value == 0 and text.lower().partition("e")[0].strip("+-0."):
            raise self.expected(f"{what}, zero or large enough for a double", self.place - 1)
        if value < low:
            raise self.error(f"found {value}, expected {what}, at least {low}", self.place - 1)
        return value


def parse_number(text: str) -> float | None:
    """A finite number, or None; Python's own extras (``1_000``, ``nan``) are none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None
