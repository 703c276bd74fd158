"""Tokens of formats with punctuation, one after the other, with the line of each at hand for error messages.

Formats that are streams of numbers are read by :class:`oocbe.io.text.Text` alone. Those with braces, quoted names and
comments are cut into tokens here by a regular expression, and read by a recursive descent that asks for the next one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from oocbe.errors import FormatError
from oocbe.io.text import SHOWN_CHARACTERS, Text
from oocbe.system.deadline import look

LOOK_STEP = (1 << 12) - 1
"""Tokens, less one, after which reading looks whether the time limit has come; ones in the low bits."""


class Lexer:
    """A cursor over the tokens of a file.

    Parameters
    ----------
    text : the file. pattern : matches a token, or what lies between tokens (then no group of it takes part); its groups
        are ``quoted`` (a string without its quotes), ``mark`` (punctuation) and ``word`` (anything else).

    Raises
    ------
    FormatError : bytes that are not UTF-8, or that no token begins with.
    """

    def __init__(self, text: Text, pattern: re.Pattern[str]) -> None:
        self._text = text
        try:
            content = text.data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text.data.count(b"\n", 0, error.start) + 1
            raise FormatError(
                text.path, line, f"found the byte 0x{text.data[error.start]:02x}, expected UTF-8"
            ) from None
        self._tokens: list[str] = []
        self._offsets: list[int] = []
        self._is_mark: list[bool] = []
        self._content = content
        end = 0
        for match in pattern.finditer(content):
            if match.start() != end:
                break
            end = match.end()
            if len(self._tokens) & LOOK_STEP == 0:
                look()
            if match.lastgroup is not None:
                self._tokens.append(match[match.lastgroup])
                self._offsets.append(match.start())
                self._is_mark.append(match.lastgroup == "mark")
        if end != len(content):
            line = content.count("\n", 0, end) + 1
            raise FormatError(text.path, line, f"found {_shown(content[end:])}, which does not end, or begins no token")
        self.place = 0

    def __len__(self) -> int:
        """Characters of the file."""
        return len(self._content)

    @property
    def ended(self) -> bool:
        """Whether no token is left."""
        return self.place >= len(self._tokens)

    def line(self, place: int | None = None) -> int:
        """1-based line of a token (None: the next one); past the last, the file's last line with a token."""
        if not self._offsets:
            return 1
        wanted = self.place if place is None else place
        return self._content.count("\n", 0, self._offsets[min(wanted, len(self._offsets) - 1)]) + 1

    def error(self, message: str, place: int | None = None) -> FormatError:
        """The error to raise about a token (None: the next one)."""
        return FormatError(self._text.path, self.line(place), message)

    def expected(self, what: str) -> FormatError:
        """The error to raise where the next token is not what it should be."""
        return self.error(f"found {self.shown()}, expected {what}")

    def shown(self, place: int | None = None) -> str:
        """A token (None: the next one) for a message."""
        wanted = self.place if place is None else place
        return "the end of the file" if wanted >= len(self._tokens) else _shown(self._tokens[wanted])

    def sees(self, mark: str) -> bool:
        """Whether the next token is one of the given marks (a string of single characters)."""
        return not self.ended and self._is_mark[self.place] and self._tokens[self.place] in mark

    def sees_word(self, words: Collection[str] | None = None) -> bool:
        """Whether the next token is a word or string, and one of ``words`` where those are given."""
        if self.ended or self._is_mark[self.place]:
            return False
        return words is None or self._tokens[self.place] in words

    @property
    def next_word(self) -> str:
        """The next token where it is a word or string; nothing otherwise."""
        return self._tokens[self.place] if self.sees_word() else ""

    @property
    def sees_string(self) -> bool:
        """Whether the next token is a string in quotes."""
        return self.sees_word() and self._content[self._offsets[self.place]] == '"'

    def take(self, marks: str, what: str) -> str:
        """Take a mark that must be there."""
        if not self.sees(marks):
            raise self.expected(what)
        self.place += 1
        return self._tokens[self.place - 1]

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
        return self._tokens[self.place - 1]

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
            self.place -= 1
            raise self.expected(f"{what}, an integer")
        if not low <= value <= high:
            self.place -= 1
            raise self.expected(f"{what}, between {low} and {high}")
        return value

    def number(self, what: str) -> float:
        """Take a finite number; one that is not zero but too small for a double is refused."""
        text = self.word(f"{what}, a number")
        value = parse_number(text)
        if value is None:
            self.place -= 1
            raise self.expected(f"{what}, a finite number")
        if value == 0 and text.lower().partition("e")[0].strip("+-0."):
            self.place -= 1
            raise self.expected(f"{what}, zero or large enough for a double")
        return value


def parse_number(text: str) -> float | None:
    """A finite number, or None; Python's own extras (``1_000``, ``nan``) are none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")
