"""One constraint of XCSP3 that is being read: its lists, coefficients and conditions, parameters of groups filled in.

The truth of a constraint may be the value of a variable.

``reifiedBy="b"``: b is 1 if the constraint holds, and 0 otherwise. ``hreifiedFrom``: the constraint holds if b is 1.
``hreifiedTo``: b is 1 if the constraint holds. A reified constraint is kept as expressions; constraints that need a
walk, or places along a circuit, have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import (
    CONSTANT,
    VARIABLE,
    Expression,
    Malformed,
    UnsupportedConstraint,
    call,
    constant,
    parse,
    variable,
)
from oocbe.formats.xcsp_relations import COMPARISONS, Condition, Relations, RelationTables
from oocbe.formats.xcsp_variables import STAR, Variables, read_integer, read_range
from oocbe.formats.xml import Element

MOST_REPEATS = 2**22
"""Integers of a list at most: a word such as ``0x100`` stands for many."""

MOST_IN_SET = 2**14
"""Values of a condition's set at most: a range of a few characters stands for many."""

_PARAMETER = re.compile(r"%([0-9]{1,6})")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REPEATED = re.compile(r"([+-]?[0-9]{1,19})x([0-9]{1,9})")
_RANGE = re.compile(r"[+-]?[0-9]+\.\.[+-]?[0-9]+")
_CONDITION = re.compile(r"\(\s*([a-z]+)\s*,(.*)\)", re.DOTALL)
_PIECES = re.compile(r"\s+|[()]|[^\s()]+")

Arguments = Sequence[int | str] | None
"""Arguments of a group's template: variables by index, anything else as written; None outside groups."""


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


COMPARED: dict[str, Callable[[Expression, Expression], Expression]] = {
    "reifiedBy": lambda switch, holds: call("iff", switch, holds),
    "hreifiedFrom": lambda switch, holds: call("imp", switch, holds),
    "hreifiedTo": lambda switch, holds: call("imp", holds, switch),
}
"""Attributes, and the condition of each on the variable and the truth of the constraint."""

MOST_ROWS = 2**10
"""Rows of a reified table, at most: each is an expression."""


@dataclass
class Gathered:
    """The conditions of a constraint; takes the place of :class:`Relations` while the constraint is read.

    whole : relations of the file. asked : expressions read so far; all are true if and only if the constraint holds.
    """

    whole: Relations
    asked: list[Expression] = field(default_factory=list)

    @property
    def tables(self) -> RelationTables:
        """The file's tables, for the values of variables."""
        return self.whole.tables

    def value_of(self, expression: Expression) -> int:
        """The variable that has an expression's value, whatever holds."""
        return self.whole.value_of(expression)

    def post(self, expression: Expression, name: str) -> None:
        """Ask that an expression is true."""
        self.asked.append(expression)

    def add_sum(self, terms: Sequence[tuple[int, Expression]], condition: Condition, name: str) -> None:
        """Ask that what terms add up to meets a condition."""
        products = (part if c == 1 else call("mul", constant(c), part) for c, part in terms)
        self.asked.append(condition.of(call("add", constant(0), *products)))

    def new_variable(self, *_: object) -> NoReturn:
        """UnsupportedConstraint: a variable, or a walk's states, would have any value without the constraint."""
        raise UnsupportedConstraint("a variable for its truth")

    walk = new_variable


def is_reified(element: Element) -> bool:
    """Whether a constraint's truth is a variable's value."""
    return not element.attributes.keys().isdisjoint(COMPARED)


def has_a_row(scope: Sequence[int], rows: NDArray[np.int64]) -> Expression:
    """The constraint that some variables have the values of one of some rows, int64 (rows, variables)."""
    if len(rows) > MOST_ROWS:
        raise UnsupportedConstraint(f"a variable for its truth, and {len(rows):,} rows")
    equal = [
        [call("eq", variable(v), constant(value)) for v, value in zip(scope, row, strict=True) if value != STAR]
        for row in rows.tolist()
    ]
    return call("or", constant(0), *(call("and", constant(1), *row) for row in equal))


PLAIN_ATTRIBUTES = ("id", "class", "note", "type", "startIndex", *COMPARED)
"""Attributes without an effect on a constraint's meaning, or that are read elsewhere."""


@dataclass(frozen=True)
class Reading:
    """A constraint that is being read.

    element : the constraint's. arguments : of a group's instance. relations : of the file, or :class:`Gathered` in
        their place.
    rest : the first argument that ``%...`` stands for: those before it have numbers in the template.
    """

    element: Element
    arguments: Arguments
    relations: Relations | Gathered
    rest: int = 0

    @property
    def variables(self) -> Variables:
        """The file's variables."""
        return self.relations.tables.variables

    @property
    def name(self) -> str:
        """Name of the constraint in messages."""
        return f"{self.element.tag} of line {self.element.line}"

    def only(self, *tags: str, attributes: tuple[str, ...] = ()) -> None:
        """UnsupportedConstraint: a child with another name, or with an attribute that changes its meaning."""
        for child in self.element.children:
            if child.tag not in tags:
                raise UnsupportedConstraint(f"<{child.tag}>")
        for owner in (self.element, *self.element.children):
            for key in owner.attributes:
                if key not in (*attributes, *PLAIN_ATTRIBUTES):
                    raise UnsupportedConstraint(f"the attribute {key}")

    @property
    def list_element(self) -> Element:
        """The list of the constraint, which may be all that it has; UnsupportedConstraint where there are several."""
        lists = self.lists
        if len(lists) > 1:
            raise UnsupportedConstraint("several lists")
        return lists[0] if lists or self.element.children else self.element

    @property
    def lists(self) -> list[Element]:
        """The constraint's children that are lists."""
        return [child for child in self.element.children if child.tag == "list"]

    def listed(self) -> list[Expression]:
        """The expressions of the only list."""
        return self.expressions(self.list_element)

    def _element(self, where: Element | str) -> Element:
        """An element, or the child of a name, which has to be there."""
        return self.element.needed(where) if isinstance(where, str) else where

    def first_index(self, owner: Element, attribute: str = "startIndex") -> int:
        """First index of a list."""
        text = owner.attributes.get(attribute, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise owner.error(f"found the {attribute} {text[:40]!r}, expected an integer of at least 0")
        return int(text)

    def post(self, expression: Expression) -> None:
        """Add that an expression is true."""
        self.relations.post(expression, self.name)

    def words(self, element: Element) -> list[int | str]:
        """The words of an element; parameters of a template are what the arguments say."""
        found: list[int | str] = []
        for word in split_words(element.text.decode("utf-8", "replace")):
            found += self._filled(element, word)
        return found

    def _filled(self, element: Element, word: str) -> Sequence[int | str]:
        arguments = self.arguments
        if arguments is None or not word.startswith("%"):
            return (word,)
        if word == "%...":
            return arguments[self.rest :]
        match = _PARAMETER.fullmatch(word)
        if match is None or int(match[1]) >= len(arguments):
            raise element.error(f"found {word[:40]}, expected one of the {len(arguments)} arguments of each <args>")
        return (arguments[int(match[1])],)

    def expression(self, where: Element | str) -> Expression:
        """The one expression that an element is."""
        element = self._element(where)
        found = self.expressions(element)
        if len(found) != 1:
            raise element.error(f"found {len(found)} expressions in <{element.tag}>, expected one")
        return found[0]

    def expressions(self, where: Element | str) -> list[Expression]:
        """Expressions of a list: variables, constants, calls; UnsupportedConstraint where something else is in it."""
        element = self._element(where)
        if element.children:
            raise UnsupportedConstraint(f"<{element.children[0].tag}> in <{element.tag}>")
        found: list[Expression] = []
        for word in self.words(element):
            found += self.of_word(element, word)
        if not found:
            raise element.error(f"found an empty <{element.tag}>, expected variables")
        return found

    def of_word(self, element: Element, word: int | str, is_filled: bool = False) -> list[Expression]:
        """Expressions of a word, several of several variables; ``is_filled``: an argument, without parameters."""
        if isinstance(word, int):
            return [variable(word)]
        if _INTEGER.fullmatch(word):
            return [constant(read_integer(element, word))]
        if "(" not in word:
            return [variable(v) for v in self.variables.of(element, word)]

        def leaf(inner: str) -> list[Expression]:
            filled = (inner,) if is_filled else self._filled(element, inner)
            return [part for own in filled for part in self.of_word(element, own, True)]

        try:
            return [parse(word, leaf)]
        except Malformed as error:
            raise element.error(str(error)) from None

    def scope(self, where: Element | str) -> list[int]:
        """Variables of a list; UnsupportedConstraint where something else is in it."""
        found = self.expressions(where)
        for part in found:
            if part.operator != VARIABLE:
                raise UnsupportedConstraint("constants among variables" if part.operator == CONSTANT else "expressions")
        return [part.value for part in found]

    def _repeated(self, element: Element) -> Iterator[tuple[int | str, int]]:
        """The words of a list, and how often each counts: ``7x3`` stands for 7 three times."""
        total = 0
        for word in self.words(element):
            match = _REPEATED.fullmatch(word) if isinstance(word, str) else None
            times = 1 if match is None else int(match[2])
            total += times
            if total > MOST_REPEATS:
                raise element.error(f"found a list of over {MOST_REPEATS:,} integers, expected fewer")
            yield (word if match is None else match[1]), times

    def integers(self, where: Element | str) -> list[int]:
        """Integers of a list; ``7x3`` is 7 three times. UnsupportedConstraint if there are variables."""
        element = self._element(where)
        found: list[int] = []
        for word, times in self._repeated(element):
            if isinstance(word, int) or word[:1].isalpha():
                raise UnsupportedConstraint(f"variables as {element.tag}")
            found += [read_integer(element, word)] * times
        return found

    def values(self, where: Element | str) -> list[Expression]:
        """Numbers or variables of a list; ``7x3`` is 7 three times, and ``2..5`` all from 2 to 5."""
        element = self._element(where)
        found: list[Expression] = []
        for word, times in self._repeated(element):
            if isinstance(word, str) and _RANGE.fullmatch(word):
                found += map(constant, self._range(element, word))
            elif isinstance(word, str) and word[0] in "+-0123456789":
                found += [constant(read_integer(element, word))] * times
            else:
                found += self.of_word(element, word)
        if not found:
            raise element.error(f"found an empty <{element.tag}>, expected numbers or variables")
        return found

    def of_cell(self, element: Element, word: str) -> list[Expression]:
        """Expression of a word within brackets, which may be a parameter."""
        return [part for own in self._filled(element, word) for part in self.of_word(element, own)]

    def conditions(self, where: Element | str) -> list[Condition]:
        """The conditions of a list of numbers, ranges and variables, one each."""
        element = self._element(where)
        found: list[Condition] = []
        for word, times in self._repeated(element):
            if isinstance(word, str) and _RANGE.fullmatch(word):
                found.append(Condition("in", bounds=read_range(element, word)))
            else:
                found += [Condition("eq", part) for part in self.of_word(element, word)] * times
        return found

    def condition(self, where: Element | str = "condition") -> Condition:
        """Condition of a ``<condition>``; ``(le,%0)`` and ``%0`` are filled in."""
        element = self._element(where)
        words = self.words(element)
        text = "".join(str(word) for word in words)
        match = _CONDITION.fullmatch(text)
        if match is None or match[1] not in (*COMPARISONS, "in", "notin"):
            raise element.error(f"found {text[:40]!r}, expected a condition such as (le,7)")
        filled = self._filled(element, match[2].strip())
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
        found = self.of_word(element, word, True)
        if len(found) != 1:
            raise element.error(f"found {word!r}, expected one number or variable")
        return found[0]

    def _range(self, element: Element, word: str) -> range:
        low, high = read_range(element, word)
        if high - low >= MOST_IN_SET:
            raise element.error(f"found a range of {high - low + 1:,} values, expected at most {MOST_IN_SET:,}")
        return range(low, high + 1)


def read_reified(read: Callable[[Reading], None], plain: Reading) -> None:
    """Have a constraint read by its reader, and compare a variable with its truth; UnsupportedConstraint: no form.

    plain : the constraint as if its truth were no variable's value.
    """
    element, relations = plain.element, plain.relations
    assert isinstance(relations, Relations)
    given = [(name, word) for name, word in element.attributes.items() if name in COMPARED]
    name, word = given[0]
    switches = plain.of_cell(element, word)
    truths = [v.value for v in switches if v.operator == VARIABLE]
    of_truths = [v for v in truths if set(relations.tables.values(v).tolist()) <= {0, 1}]
    if len(given) > 1 or len(switches) != 1 or not of_truths:
        raise element.error(f"found {name}={word[:40]!r}, expected one variable of 0 and 1, in one such attribute")
    gathered = Gathered(relations)
    read(replace(plain, relations=gathered))
    holds = call("and", *gathered.asked) if gathered.asked else constant(1)
    plain.post(COMPARED[name](switches[0], holds))
