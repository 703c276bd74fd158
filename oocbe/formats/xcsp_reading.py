"""One constraint of XCSP3 that is being read: its element, and what reads parts of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oocbe.formats.xcsp_expressions import Expression, Unread, call, constant
from oocbe.formats.xcsp_parts import Arguments, Parts
from oocbe.formats.xcsp_reified import COMPARED, Gathered, is_switch
from oocbe.formats.xcsp_relations import Condition, Relations
from oocbe.formats.xml import Element

PLAIN_ATTRIBUTES = ("id", "class", "note", "type", "startIndex", *COMPARED)
"""Attributes that change nothing of what a constraint says, or that are read where they do."""


@dataclass(frozen=True)
class Reading:
    """A constraint that is being read.

    Attributes
    ----------
    element : the constraint's. arguments : of a group's instance. parts : of the file. relations : of the file, or what
        takes their place (:mod:`oocbe.formats.xcsp_reified`).
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
