"""Tokens of formats with punctuation, one after the other, with the line of each at hand for error messages.

:class:`oocbe.formats.text.Text` reads formats that are streams of numbers. Here, a regular expression cuts formats with
braces, quoted names and comments into tokens for a recursive-descent parser. A token is two offsets and a kind until it
is needed: a Python object would take ten times its length.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.text import LOOK_STEP, Text, shown
from oocbe.runtime.deadline import looked

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

    def sees(self, mark: str) -> bool:
        """Whether the next token is one of the given marks (a string of single characters)."""
        return not self.ended and self._kinds[self.place] == _MARK and self._token(self.place) in mark

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

    def number(self, what: str) -> float:
        """Take a finite number; one that is not zero but too small for a double is refused."""
        text = self.word(f"{what}, a number")
        value = parse_number(text)
        if value is None:
            raise self.expected(f"{what}, a finite number", self.place - 1)
        if value == 0 and text.lower().partition("e")[0].strip("+-0."):
            raise self.expected(f"{what}, zero or large enough for a double", self.place - 1)
        return value


def parse_number(text: str) -> float | None:
    """A finite number, or None; Python's own extras (``1_000``, ``nan``) are none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None
