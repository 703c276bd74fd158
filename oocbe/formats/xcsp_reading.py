"""One constraint of XCSP3 that is being read; constraints whose truth is the value of a variable.

``reifiedBy="b"``: b is 1 if the constraint holds, and 0 otherwise. ``hreifiedFrom``: the constraint holds if b is 1.
``hreifiedTo``: b is 1 if the constraint holds. A reified constraint is kept as expressions; constraints that need a
walk, or places along a circuit, have none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import VARIABLE, Expression, Unread, call, constant, variable
from oocbe.formats.xcsp_parts import Arguments, Parts
from oocbe.formats.xcsp_relation_tables import RelationTables
from oocbe.formats.xcsp_relations import Condition, Relations
from oocbe.formats.xcsp_tables import STAR
from oocbe.formats.xml import Element

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

    Attributes
    ----------
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

    def new_variable(self, values: Sequence[int]) -> NoReturn:
        """Unread: where the constraint does not hold, such a variable would have any value."""
        raise Unread("a variable for its truth")

    def walk(
        self,
        scope: Sequence[int],
        start: Hashable,
        step: Callable[[int, Hashable, int], Hashable | None],
        is_end: Callable[[Hashable], bool],
        name: str,
    ) -> NoReturn:
        """Unread: where the constraint does not hold, the walk has no end."""
        raise Unread("a variable for its truth")


def is_reified(element: Element) -> bool:
    """Whether a constraint's truth is a variable's value."""
    return not element.attributes.keys().isdisjoint(COMPARED)


def has_a_row(scope: Sequence[int], rows: NDArray[np.int64]) -> Expression:
    """That some variables have the values of one of some rows, int64 (rows, variables) as the file has them."""
    if len(rows) > MOST_ROWS:
        raise Unread(f"a variable for its truth, and {len(rows):,} rows")
    equal = [
        [call("eq", variable(v), constant(value)) for v, value in zip(scope, row, strict=True) if value != STAR]
        for row in rows.tolist()
    ]
    return call("or", constant(0), *(call("and", constant(1), *row) for row in equal))


def is_switch(part: Expression, relations: Relations) -> bool:
    """Whether an expression is a variable of 0 and 1."""
    return part.operator == VARIABLE and set(relations.tables.values(part.value).tolist()) <= {0, 1}


PLAIN_ATTRIBUTES = ("id", "class", "note", "type", "startIndex", *COMPARED)
"""Attributes that change nothing of what a constraint says, or that are read where they do."""


@dataclass(frozen=True)
class Reading:
    """A constraint that is being read.

    Attributes
    ----------
    element : the constraint's. arguments : of a group's instance. parts : of the file. relations : of the file, or
        :class:`Gathered` in their place.
    """

    element: Element
    arguments: Arguments
    parts: Parts
    relations: Relations | Gathered

    @property
    def name(self) -> str:
        """What the constraint is called in messages."""
        return f"{self.element.tag} of line {self.element.line}"

    def only(self, *tags: str, attributes: tuple[str, ...] = ()) -> None:
        """Unread unless all children have one of some names, and their attributes do not change what they mean."""
        for child in self.element.children:
            if child.tag not in tags:
                raise Unread(f"<{child.tag}>")
        for owner in (self.element, *self.element.children):
            for key in owner.attributes:
                if key not in (*attributes, *PLAIN_ATTRIBUTES):
                    raise Unread(f"the attribute {key}")

    @property
    def list_element(self) -> Element:
        """The list of the constraint, which may be all that it has; Unread where there are several."""
        lists = self.lists
        if len(lists) > 1:
            raise Unread("several lists")
        return lists[0] if lists or self.element.children else self.element

    @property
    def lists(self) -> list[Element]:
        """The constraint's children that are lists."""
        return [child for child in self.element.children if child.tag == "list"]

    def listed(self) -> list[Expression]:
        """The expressions of the only list."""
        return self.parts.expressions(self.list_element, self.arguments)

    def of(self, tag: str) -> list[Expression]:
        """The expressions of a child that has to be there."""
        return self.parts.expressions(self.element.needed(tag), self.arguments)

    def integers(self, tag: str) -> list[int]:
        """The integers of a child that has to be there."""
        return self.parts.integers(self.element.needed(tag), self.arguments)

    def condition(self) -> Condition:
        """The only condition."""
        return self.parts.condition(self.element.needed("condition"), self.arguments)

    def first_index(self, owner: Element, attribute: str = "startIndex") -> int:
        """Where the indices of a list start."""
        text = owner.attributes.get(attribute, "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise owner.error(f"found the {attribute} {text[:40]!r}, expected an integer of at least 0")
        return int(text)

    def post(self, expression: Expression) -> None:
        """Add that an expression is true."""
        self.relations.post(expression, self.name)


def read_reified(
    read: Callable[[Reading], None], element: Element, arguments: Arguments, parts: Parts, relations: Relations
) -> None:
    """Have a constraint read by its reader, and compare a variable with whether it holds; Unread where it has no form.

    arguments : of a group's instance.
    """
    given = [(name, word) for name, word in element.attributes.items() if name in COMPARED]
    name, word = given[0]
    switches = parts.of_cell(element, word, arguments)
    if len(given) > 1 or len(switches) != 1 or not is_switch(switches[0], relations):
        raise element.error(f"found {name}={word[:40]!r}, expected one variable of 0 and 1, in one such attribute")
    gathered = Gathered(relations)
    reading = Reading(element, arguments, parts, gathered)
    read(reading)
    holds = call("and", *gathered.asked) if gathered.asked else constant(1)
    relations.post(COMPARED[name](switches[0], holds), reading.name)
