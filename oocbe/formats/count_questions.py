"""Comments of clauses and pseudo-Boolean constraints about a count: weights, or a projection.

Model counters read these where other programs see a comment. The format is that of the model counting competition
(version 1.2, 2025; Fichte, Hecher and Shaw):

* ``c t mc``, ``wmc``, ``pmc`` or ``pwmc`` (also ``wpmc``): the type of the count.
* ``c p weight LITERAL WEIGHT 0``: a decimal number, also with an exponent, or a fraction such as 3/10. If a literal has
  a weight w between 0 and 1, and its negation has none, the negation weighs 1 - w. Beyond this range, both need a
  weight. Variables without weights weigh 1.
* ``c p show 1 2 0``: variables of the projection, in one or several lines; ``c p show 0``: none.

Older spellings: ``c ind 1 2 0`` and ``cr 1 2`` for a projection, ``c weights 0.4 0.6 1 1`` of MiniC2D (weights of each
variable and of its negation), and lines ``w 1 0.4`` of Cachet, without ``c``. In Cachet, other variables weigh 1/2, and
a weight of -1 stands for a variable that weighs 1. In OPB, ``*`` is in the place of ``c``.

Weights that are complex numbers, ``c max 1 2 0``, ``c MUST MULTIPLY BY 2**3 0`` of preprocessors, other words behind
``c p``, and contradictions are refused by tasks that count, with their line. A projection on all variables is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from oocbe.formats.text import Text
from oocbe.model.count_question import CountQuestion

_SETS = (b"show", b"ind", b"cr")
"""Directives that list variables, the only ones that count."""

_HEADERS = (b"cnf", b"wcnf")
"""The words after ``c p`` in a header turned into a comment."""

_ONE = (b"1", b"2**0")
"""Factors that change nothing."""

_KINDS = {b"mc": "mc", b"wmc": "wmc", b"pmc": "pmc", b"pwmc": "pwmc", b"wpmc": "pwmc"}
"""Types of counts that are answered."""

_NUMBER = re.compile(rb"[+-]?([0-9]+/[0-9]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?)")
"""Weights; longer exponents would take hours to convert."""

_LONGEST = 4000
"""Characters of a weight at most: Python converts integers of up to 4,300 digits."""

_COMPLEX = re.compile(rb"[-+0-9./eE]*[0-9.][ij]")


class CountQuestions:
    """The directives among a file's comments."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._found: dict[int, str] = {}  # what a comment requests, by its first token
        self._refused: dict[int, str] = {}  # of these, what is not supported
        self._kind: tuple[int, str] | None = None
        self._shown: dict[bytes, int] = {}
        self._sets: list[int] = []
        self._weights: dict[tuple[bytes, bool], tuple[Fraction, int]] = {}
        self._is_cachet = True

    def look(self, first: int, past: int) -> None:
        """Look at a comment, the tokens of a line."""
        words = [self._text.raw(token) for token in range(first, min(past, first + 3))]
        if words[0] != b"cr":
            words = words[1:]
        if not words:
            return
        name, argument = words[0], words[1] if len(words) > 1 else b""
        if name == b"p" and argument == b"weight":
            self._weigh(first, first + 3, past)
        elif name == b"p" and argument[:1].isalpha() and argument not in _HEADERS:
            what = f"{name.decode()} {argument.decode(errors='replace')}"
            self._add(first, past, what, argument, 3)
        elif name == b"t" and past - first == 3:
            self._take_kind(first, argument)
        elif name in (b"ind", b"cr", b"max") and argument.lstrip(b"x-").isdigit():
            self._add(first, past, name.decode(), name, 1 if self._text.raw(first) == name else 2)
        elif name == b"weights" and _NUMBER.fullmatch(argument):
            self._weigh_all(first, past)
        elif name == b"MUST" and argument == b"MULTIPLY" and self._text.raw(min(past - 1, first + 4)) not in _ONE:
            self._refuse(first, "a multiple of the count")

    def look_at_weight(self, first: int, past: int) -> None:
        """Look at a line of Cachet, ``w LITERAL WEIGHT``."""
        is_cachet, words = self._is_cachet, [self._text.raw(token) for token in range(first + 1, past)]
        if words[1:2] == [b"-1"] and not words[0].startswith(b"-"):
            self._found[first] = "a weighted count ('w')"
            self._set(first, words[0], Fraction(1))
            self._set(first, b"-" + words[0], Fraction(1))
        else:
            self._weigh(first, first + 1, past)
        self._is_cachet = is_cachet

    def _take_kind(self, first: int, argument: bytes) -> None:
        kind = _KINDS.get(argument)
        if kind is None:
            self._refuse(first, f"the count of type {argument.decode(errors='replace')}")
        elif self._kind is not None and self._kind[1] != kind:
            self._refuse(first, f"the count of type {kind}, after type {self._kind[1]}")
        else:
            self._kind = first, kind
            if kind != "mc":
                self._found[first] = f"the count of type {kind}"

    def _add(self, first: int, past: int, what: str, name: bytes, skip: int) -> None:
        if name not in _SETS:
            self._refuse(first, f"another question ({what!r})")
            return
        self._sets.append(first)
        self._found[first] = f"a count that is projected on some variables ({what!r})"
        for token in range(first + skip, past):
            word = self._text.raw(token).rstrip(b";").removeprefix(b"x")
            if word not in (b"", b"0"):
                self._shown.setdefault(word, first)

    def _refuse(self, first: int, what: str) -> None:
        self._found[first] = self._refused[first] = what

    def _weigh(self, first: int, begin: int, past: int) -> None:
        """The weight of a literal, whose tokens begin at ``begin``."""
        self._is_cachet = False
        self._found[first] = f"a weighted count ({'w' if begin == first + 1 else 'p weight'!r})"
        words = [self._text.raw(token).rstrip(b";") for token in range(begin, past)]
        words = [word for word in words if word]
        if len(words) < 2 or words[2:] not in ([], [b"0"]):
            self._refuse(first, "a weighted count, expected a literal, its weight, and 0")
            return
        weight = self._number(first, words[1])
        if weight is not None:
            self._set(first, words[0], weight)

    def _weigh_all(self, first: int, past: int) -> None:
        """The weights of all variables and their negations, in turn."""
        self._is_cachet = False
        self._found[first] = "a weighted count ('weights')"
        for place, token in enumerate(range(first + 2, past)):
            weight = self._number(first, self._text.raw(token))
            if weight is not None:
                self._set(first, b"%b%d" % (b"-" if place % 2 else b"", place // 2 + 1), weight)

    def _number(self, first: int, word: bytes) -> Fraction | None:
        shown = word[:40].decode(errors="replace")
        if len(word) <= _LONGEST and _NUMBER.fullmatch(word):
            numerator, _, denominator = word.decode().partition("/")
            if not denominator or int(denominator):
                return Fraction(numerator) / int(denominator or 1)
        if _COMPLEX.fullmatch(word):
            self._refuse(first, f"a weighted count with the complex weight {shown}")
        else:
            self._refuse(first, f"a weighted count with the weight {shown}, expected a number such as 0.4, 4e-1 or 2/5")
        return None

    def _set(self, first: int, literal: bytes, weight: Fraction) -> None:
        is_true = not literal.startswith((b"-", b"~"))
        variable = literal.lstrip(b"+-~").removeprefix(b"x")
        known = self._weights.setdefault((variable, is_true), (weight, first))
        if known[0] != weight:
            self._refuse(first, f"another weight of the literal {literal.decode(errors='replace')}")

    def question(self, names: Mapping[str, str]) -> tuple[str, CountQuestion | None]:
        """Requests of the file beside the number of assignments, with their line; empty without any.

        names : of the variables, by their numbers in comments.
        Returns str : the first such comment. The weights and the projection; None: none, or not supported.
        """
        numbers = {number.encode(): name for number, name in names.items()}
        kind = None if self._kind is None else self._kind[1]
        is_partial = bool(self._sets) and not self._shown.keys() >= numbers.keys()
        if not is_partial:
            for token in self._sets:
                self._found.pop(token, None)
        places = [(word, first) for word, first in self._shown.items()]
        places += [(variable, first) for (variable, _), (_, first) in self._weights.items()]
        for word, first in places:
            if word not in numbers:
                self._refuse(first, f"a count about {word.decode(errors='replace')!r}, which is no variable")
        if kind is not None:
            if is_partial and not kind.startswith("p"):
                self._refuse(self._sets[0], f"a projection, of the type {kind} without one")
            if "p" in kind and not self._sets:
                assert self._kind is not None
                self._refuse(self._kind[0], f"the count of type {kind}, without 'p show' and its variables")
            if self._weights and "w" not in kind:
                first = min(first for _, first in self._weights.values())
                self._refuse(first, f"a weight, of the type {kind} without weights")
        notes: list[str] = []
        weights = self._complete(numbers, notes)
        if not self._found:
            return "", None
        first = min(self._refused or self._found)
        where = f"{self._text.path}, line {self._text.line(first)}: this comment requests {self._found[first]}"
        if self._refused:
            return where, None
        kind = kind or f"{'p' * is_partial}{'w' * bool(self._weights)}mc"
        shown = frozenset(numbers[word] for word in self._shown) if is_partial else None
        return where, CountQuestion(kind, weights, shown, tuple(notes))

    def _complete(self, numbers: Mapping[bytes, str], notes: list[str]) -> dict[str, tuple[Fraction, Fraction]]:
        """Weights of 0 and 1 by name, with those that follow from others."""
        found: dict[str, tuple[Fraction, Fraction]] = {}
        implied = 0
        for number in dict.fromkeys(variable for variable, _ in self._weights):
            pair = [self._weights.get((number, is_true)) for is_true in (False, True)]
            own = [None if entry is None else entry[0] for entry in pair]
            (weight, first) = next(entry for entry in pair if entry is not None)
            if None in own and not 0 < weight < 1:
                what = f"the weight {weight} of a literal of {number.decode(errors='replace')}"
                self._refuse(first, f"{what}; its negation needs a weight, too")
            implied += None in own
            if number in numbers:
                found[numbers[number]] = (
                    1 - weight if own[0] is None else own[0],
                    1 - weight if own[1] is None else own[1],
                )
        if self._is_cachet and self._weights:
            rest = [name for name in numbers.values() if name not in found]
            found |= dict.fromkeys(rest, (Fraction(1, 2), Fraction(1, 2)))
            notes += [f"variables without a weight weigh 1/2, as in Cachet: {len(rest):,}"] * bool(rest)
        elif implied:
            notes.append(f"literals without a weight weigh 1 less that of their negation: {implied:,}")
        return found
