"""What is within a constraint of XCSP3: lists, coefficients and conditions, with the parameters of groups filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oocbe.formats.xcsp_expressions import CONSTANT, VARIABLE, Expression, Malformed, Unread, constant, parse, variable
from oocbe.formats.xcsp_relations import COMPARISONS, Condition
from oocbe.formats.xcsp_variables import Variables, read_integer, read_range
from oocbe.formats.xml import Element

MOST_REPEATS = 2**22
"""Integers that a word such as ``0x100`` may stand for."""

MOST_IN_SET = 2**14
"""Values of a condition's set at most."""

_PARAMETER = re.compile(r"%([0-9]{1,6})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REPEATED = re.compile(r"([+-]?[0-9]{1,19})x([0-9]{1,9})")
_RANGE = re.compile(r"[+-]?[0-9]+\.\.[+-]?[0-9]+")
_CONDITION = re.compile(r"\(\s*([a-z]+)\s*,(.*)\)", re.DOTALL)
_PIECES = re.compile(r"\s+|[()]|[^\s()]+")

Arguments = Sequence[int | str] | None
"""What a group's template is filled with: variables by index, anything else as it is written; None outside groups."""


def split_words(text: str) -> list[str]:
    """Words between white space that is within no brackets."""
    if "(" not in text:
        return text.split()
    words, current, depth = [], "", 0
    for piece in _PIECES.findall(text):
        if piece.isspace():
            if depth <= 0 and current:
                words.append(current)
                current = ""
            continue
        depth += (piece == "(") - (piece == ")")
        current += piece
    return [*words, current] if current else words


class Parts:
    """Reads parts of constraints over some variables.

    Attributes
    ----------
    rest : the first argument that ``%...`` stands for: those before it have numbers in the template.
    """

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.rest = 0

    def words(self, element: Element, arguments: Arguments) -> list[int | str]:
        """The words of an element; parameters of a template are what the arguments say."""
        found: list[int | str] = []
        for word in split_words(element.text.decode("utf-8", "replace")):
            found += self._filled(element, word, arguments)
        return found

    def _filled(self, element: Element, word: str, arguments: Arguments) -> Sequence[int | str]:
        if arguments is None or not word.startswith("%"):
            return (word,)
        if word == "%...":
            return arguments[self.rest :]
        match = _PARAMETER.fullmatch(word)
        if match is None or int(match[1]) >= len(arguments):
            raise element.error(f"found {word[:40]}, expected one of the {len(arguments)} arguments of each <args>")
        return (arguments[int(match[1])],)

    def expression(self, element: Element, arguments: Arguments) -> Expression:
        """The one expression that an element is."""
        found = self.expressions(element, arguments)
        if len(found) != 1:
            raise element.error(f"found {len(found)} expressions in <{element.tag}>, expected one")
        return found[0]

    def expressions(self, element: Element, arguments: Arguments) -> list[Expression]:
        """Expressions of a list: variables, constants, calls; Unread where something else is in it."""
        if element.children:
            raise Unread(f"<{element.children[0].tag}> in <{element.tag}>")
        found: list[Expression] = []
        for word in self.words(element, arguments):
            found += self.of_word(element, word, arguments)
        if not found:
            raise element.error(f"found an empty <{element.tag}>, expected variables")
        return found

    def of_word(self, element: Element, word: int | str, arguments: Arguments) -> list[Expression]:
        """What a word stands for: several expressions where it names several variables."""
        if isinstance(word, int):
            return [variable(word)]
        if _INTEGER.fullmatch(word):
            return [constant(read_integer(element, word))]
        if "(" not in word:
            return [variable(v) for v in self.variables.of(element, word)]

        def leaf(inner: str) -> list[Expression]:
            filled = self._filled(element, inner, arguments)
            return [part for own in filled for part in self.of_word(element, own, None)]

        try:
            return [parse(word, leaf)]
        except Malformed as error:
            raise element.error(str(error)) from None

    def scope(self, element: Element, arguments: Arguments) -> list[int]:
        """Variables of a list; Unread where something else is in it."""
        found = self.expressions(element, arguments)
        for part in found:
            if part.operator != VARIABLE:
                raise Unread("constants among variables" if part.operator == CONSTANT else "expressions")
        return [part.value for part in found]

    def _repeated(self, element: Element, arguments: Arguments) -> Iterator[tuple[int | str, int]]:
        """The words of a list, and how often each counts: ``7x3`` stands for 7 three times."""
        total = 0
        for word in self.words(element, arguments):
            match = _REPEATED.fullmatch(word) if isinstance(word, str) else None
            times = 1 if match is None else int(match[2])
            total += times
            if total > MOST_REPEATS:
                raise element.error(f"found a list of over {MOST_REPEATS:,} integers, expected fewer")
            yield (word if match is None else match[1]), times

    def integers(self, element: Element, arguments: Arguments) -> list[int]:
        """Integers of a list, of which ``7x3`` says 7 three times; Unread where there are variables."""
        found: list[int] = []
        for word, times in self._repeated(element, arguments):
            if isinstance(word, int) or word[:1].isalpha():
                raise Unread(f"variables as {element.tag}")
            found += [read_integer(element, word)] * times
        return found

    def values(self, element: Element, arguments: Arguments) -> list[Expression]:
        """Numbers or variables of a list, of which ``7x3`` says 7 three times and ``2..5`` all from 2 to 5."""
        found: list[Expression] = []
        for word, times in self._repeated(element, arguments):
            if isinstance(word, str) and _RANGE.fullmatch(word):
                found += map(constant, self._range(element, word))
            elif isinstance(word, str) and word[0] in "+-0123456789":
                found += [constant(read_integer(element, word))] * times
            else:
                found += self.of_word(element, word, arguments)
        if not found:
            raise element.error(f"found an empty <{element.tag}>, expected numbers or variables")
        return found

    def of_cell(self, element: Element, word: str, arguments: Arguments) -> list[Expression]:
        """What a word within brackets stands for, which may be a parameter."""
        return [
            part for own in self._filled(element, word, arguments) for part in self.of_word(element, own, arguments)
        ]

    def conditions(self, element: Element, arguments: Arguments) -> list[Condition]:
        """The conditions of a list of numbers, ranges and variables, one each."""
        found: list[Condition] = []
        for word, times in self._repeated(element, arguments):
            if isinstance(word, str) and _RANGE.fullmatch(word):
                found.append(Condition("in", bounds=read_range(element, word)))
            else:
                found += [Condition("eq", part) for part in self.of_word(element, word, arguments)] * times
        return found

    def condition(self, element: Element, arguments: Arguments) -> Condition:
        """What a ``<condition>`` says; ``(le,%0)`` and ``%0`` are filled in."""
        words = self.words(element, arguments)
        text = "".join(str(word) for word in words)
        match = _CONDITION.fullmatch(text)
        if match is None or match[1] not in (*COMPARISONS, "in", "notin"):
            raise element.error(f"found {text[:40]!r}, expected a condition such as (le,7)")
        filled = self._filled(element, match[2].strip(), arguments)
        if len(filled) != 1:
            raise element.error(f"found {match[2][:40]!r} in a condition, expected one number or variable")
        right = filled[0]
        if match[1] in COMPARISONS:
            return Condition(match[1], self._single(element, right))
        if isinstance(right, int):
            raise element.error("found a variable after in, expected a range or a set of integers")
        if right.startswith("{") and right.endswith("}"):
            inner = [word for part in right[1:-1].split(",") for word in part.split()]
            return Condition(match[1], values=frozenset(v for word in inner for v in self._range(element, word)))
        return Condition(match[1], bounds=read_range(element, right))

    def _single(self, element: Element, word: int | str) -> Expression:
        found = self.of_word(element, word, None)
        if len(found) != 1:
            raise element.error(f"found {word!r}, expected one number or variable")
        return found[0]

    def _range(self, element: Element, word: str) -> range:
        low, high = read_range(element, word)
        if high - low >= MOST_IN_SET:
            raise element.error(f"found a range of {high - low + 1:,} values, expected at most {MOST_IN_SET:,}")
        return range(low, high + 1)
