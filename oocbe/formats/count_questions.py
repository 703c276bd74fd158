"""What comments of clauses and pseudo-Boolean constraints ask of a count: a projection, or weights.

Model counters read these where other programs see a comment: ``c t pmc``, ``c p show 1 2 0``, ``c p weight 1 0.4 0`` of
the model counting competition, ``c ind 1 2 0`` and ``cr 1 2`` of older counters, ``c max 1 2 0``, and ``c MUST MULTIPLY
BY 2**3 0`` of preprocessors; in OPB with ``*`` in the place of ``c``. A file that has them asks another question than
how many assignments there are. A projection on all variables asks just that.
"""

from __future__ import annotations

from collections.abc import Collection

from oocbe.formats.text import Text

_SETS = (b"show", b"ind", b"cr")
"""Directives that list variables, the only ones that count."""

_HEADERS = (b"cnf", b"wcnf")
"""What follows ``c p`` in a header that somebody made a comment."""

_ONE = (b"1", b"2**0")
"""Factors that change nothing."""


class CountQuestions:
    """The directives among a file's comments."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._found: dict[int, str] = {}
        self._sets: list[int] = []
        self._members: set[bytes] = set()

    def look(self, first: int, past: int) -> None:
        """Look at a comment, the tokens of a line."""
        words = [self._text.raw(token) for token in range(first, min(past, first + 3))]
        if words[0] != b"cr":
            words = words[1:]
        if not words:
            return
        name, argument = words[0], words[1] if len(words) > 1 else b""
        if name == b"p" and argument[:1].isalpha() and argument not in _HEADERS:
            what = f"{name.decode()} {argument.decode(errors='replace')}"
            self._add(first, past, what, argument, 3)
        elif name == b"t" and past - first == 3 and argument != b"mc":
            self._found[first] = f"the count of type {argument.decode(errors='replace')}"
        elif name in (b"ind", b"cr", b"max") and argument.lstrip(b"x-").isdigit():
            self._add(first, past, name.decode(), name, 1 if name == b"cr" else 2)
        elif name == b"MUST" and argument == b"MULTIPLY" and self._text.raw(min(past - 1, first + 4)) not in _ONE:
            self._found[first] = "a multiple of the count"

    def _add(self, first: int, past: int, what: str, name: bytes, skip: int) -> None:
        if name in _SETS:
            self._sets.append(first)
            self._members |= {
                self._text.raw(token).rstrip(b";").removeprefix(b"x") for token in range(first + skip, past)
            }
            self._found[first] = f"a count that is projected on some variables ({what!r})"
        else:
            weight = name.startswith(b"weight")
            self._found[first] = f"a weighted count ({what!r})" if weight else f"another question ({what!r})"

    def question(self, names: Collection[str]) -> str:
        """What the file asks for, and where; empty: the number of assignments (names: of all variables)."""
        if self._members.issuperset(name.encode() for name in names):
            for token in self._sets:
                self._found.pop(token, None)
        if not self._found:
            return ""
        first = min(self._found)
        return f"{self._text.path}, line {self._text.line(first)}: this comment requests {self._found[first]}"
