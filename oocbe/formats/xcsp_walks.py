"""Constraints of XCSP3 that are walks from state to state: automata, decision diagrams, orders of lists, circuits.

A ``circuit`` goes through all vertices that are not their own successors. Vertices have *places*, counted from the
first one of the circuit, the vertex with the lowest index: 1 for that, one more for each that follows, and 0 for those
that follow themselves. A successor's place is one more, or it is the first one; so no second circuit can close. Places
have one value for each circuit, and counts stay what they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Sequence

from oocbe.formats.xcsp_expressions import Expression, Unread, call, constant, variable
from oocbe.formats.xcsp_globals import differ, matrix_of, operator_of
from oocbe.formats.xcsp_reading import Reading
from oocbe.formats.xcsp_relations import Condition
from oocbe.formats.xcsp_variables import read_range
from oocbe.formats.xml import Element

MOST_VERTICES = 100
"""Most vertices of a circuit: each two of them get a relation over two places and a successor."""


def _circuit(reading: Reading) -> None:
    reading.only("list", "size")
    listed = [variable(reading.relations.value_of(part)) for part in reading.listed()]
    first, count = reading.first_index(reading.list_element), len(listed)
    if count > MOST_VERTICES:
        raise Unread(f"{count:,} vertices, more than {MOST_VERTICES}")
    vertices = [constant(first + number) for number in range(count)]
    for part in listed:
        reading.post(call("in", part, *vertices))
    differ(reading, listed, set())
    moves = [call("ne", part, own) for part, own in zip(listed, vertices, strict=True)]
    places = [variable(reading.relations.new_variable(range(count + 1))) for _ in listed]
    begun = constant(0)  # whether the circuit has a vertex so far
    for part, own, move, place in zip(listed, vertices, moves, places, strict=True):
        reading.post(call("iff", call("eq", place, constant(0)), call("eq", part, own)))
        reading.post(call("iff", call("eq", place, constant(1)), call("and", move, call("not", begun))))
        begun = variable(reading.relations.value_of(call("or", begun, move)))
    reading.post(begun)
    for number, (part, place) in enumerate(zip(listed, places, strict=True)):
        for other, (own, following) in enumerate(zip(vertices, places, strict=True)):
            if other != number:
                is_next = call("eq", following, call("add", place, constant(1)))
                arrives = call("or", is_next, call("eq", following, constant(1)))
                reading.post(call("imp", call("eq", part, own), arrives))
    if reading.element.child("size") is not None:
        terms = [(1, move) for move in moves]
        for size in reading.expressions("size"):
            reading.relations.add_sum(terms, Condition("eq", size), reading.name)


MOST_TRANSITIONS = 2**20
"""Transitions of an automaton at most, those that ranges stand for among them."""

_TRANSITION = re.compile(r"\(\s*([^(),\s]+)\s*,\s*([^(),\s]+)\s*,\s*([^(),\s]+)\s*\)\s*")

Moves = dict[tuple[str, int], set[str]]
"""From a state and a value to the next states."""


def _moves(element: Element) -> tuple[Moves, list[str]]:
    """Transitions, and the states that they come from in the file's order."""
    text = element.text.decode("utf-8", "replace").strip()
    moves: Moves = {}
    origins: dict[str, None] = {}
    place = count = 0
    while place < len(text):
        match = _TRANSITION.match(text, place)
        if match is None:
            raise element.error(f"found {text[place : place + 40]!r}, expected a transition such as (a,0,b)")
        low, high = read_range(element, match[2])
        count += high - low + 1
        if count > MOST_TRANSITIONS:
            raise element.error(f"found {count:,} transitions, expected at most {MOST_TRANSITIONS:,}")
        for value in range(low, high + 1):
            moves.setdefault((match[1], value), set()).add(match[3])
        origins.setdefault(match[1])
        place = match.end()
    if not moves:
        raise element.error("found no transition, expected one such as (a,0,b)")
    return moves, list(origins)


def _accept(reading: Reading, moves: Moves, start: str, ends: set[str]) -> None:
    """The values of the list are a word that some run accepts; states of the walk are sets of states."""

    def step(place: int, state: Hashable, value: int) -> Hashable | None:
        assert isinstance(state, frozenset)
        return frozenset(q for own in state for q in moves.get((own, value), ())) or None

    def is_end(state: Hashable) -> bool:
        assert isinstance(state, frozenset)
        return not ends.isdisjoint(state)

    scope = [reading.relations.value_of(part) for part in reading.listed()]
    reading.relations.walk(scope, frozenset([start]), step, is_end, reading.name)


def _regular(reading: Reading) -> None:
    reading.only("list", "transitions", "start", "final")
    moves, _ = _moves(reading.element.needed("transitions"))
    start = reading.element.needed("start").text.decode("utf-8", "replace").split()
    if len(start) != 1:
        raise reading.element.error(f"found {len(start)} start states, expected one")
    ends = set(reading.element.needed("final").text.decode("utf-8", "replace").split())
    _accept(reading, moves, start[0], ends)


def _mdd(reading: Reading) -> None:
    reading.only("list", "transitions")
    moves, origins = _moves(reading.element.needed("transitions"))
    reached = {state for following in moves.values() for state in following}
    starts = [state for state in origins if state not in reached]
    if len(starts) != 1:
        raise reading.element.error(f"found {len(starts)} states that no transition leads to, expected one, the root")
    _accept(reading, moves, starts[0], reached - set(origins))


def _lex(reading: Reading) -> None:
    reading.only("list", "matrix", "operator", attributes=("case",))
    operator = operator_of(reading)
    if reading.element.child("matrix") is not None:
        rows = matrix_of(reading)
        groups: list[list[Sequence[Expression]]] = [list(rows), list(zip(*rows, strict=True))]
    else:
        groups = [[reading.expressions(own) for own in reading.lists]]
    for lists in groups:
        for one, other in itertools.pairwise(lists):
            if len(one) != len(other):
                raise reading.element.error("found lists of different lengths, expected the same")
            if operator in ("gt", "ge"):
                one, other = other, one
            _before(reading, one, other, operator in ("lt", "gt"))


def _before(reading: Reading, one: Sequence[Expression], other: Sequence[Expression], strictly: bool) -> None:
    """The first list is before the second one, as words of a dictionary are."""
    pairs = [part for pair in zip(one, other, strict=True) for part in pair]
    scope = [reading.relations.value_of(part) for part in pairs]

    # States: that one is before the other already, that both are equal, and then the value that the other has to reach.
    def step(place: int, state: Hashable, value: int) -> Hashable | None:
        if state == "before":
            return state
        if place % 2 == 0:
            return value
        assert isinstance(state, int)
        return None if value < state else ("before" if value > state else "equal")

    reading.relations.walk(scope, "equal", step, lambda state: state == "before" or not strictly, reading.name)


def _precedence(reading: Reading) -> None:
    reading.only("list", "values", attributes=("covered",))
    scope = [reading.relations.value_of(part) for part in reading.listed()]
    values = reading.element.child("values")
    if values is None:
        ordered = sorted({value for v in scope for value in reading.relations.tables.values(v).tolist()})
    else:
        ordered = reading.integers("values")
    rank = {value: number for number, value in enumerate(ordered)}
    owner = reading.element if values is None else values
    is_covered = "true" in (owner.attributes.get("covered"), reading.element.attributes.get("covered"))

    # A state: how many of the values, in their order, have been seen.
    def step(place: int, state: Hashable, value: int) -> Hashable | None:
        assert isinstance(state, int)
        number = rank.get(value, -1)
        return None if number > state else max(state, number + 1)

    reading.relations.walk(scope, 0, step, lambda state: not is_covered or state == len(ordered), reading.name)


READERS: dict[str, Callable[[Reading], None]] = {
    "regular": _regular,
    "mdd": _mdd,
    "lex": _lex,
    "precedence": _precedence,
    "circuit": _circuit,
}
"""Reader of each constraint."""
