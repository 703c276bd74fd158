"""The constraint ``circuit`` of XCSP3: what follows each of some vertices goes round all that do not follow themselves.

Vertices have *places*, counted from the first one of the circuit, the vertex with the lowest index: 1 for that, one
more for each that follows, and 0 for those that follow themselves. A successor's place is one more, or it is the first
one; so no second circuit can close. Places have one value for each circuit, and counts stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable

from oocbe.formats.xcsp_expressions import Unread, call, constant, variable
from oocbe.formats.xcsp_globals import differ
from oocbe.formats.xcsp_reading import Reading
from oocbe.formats.xcsp_relations import Condition

MOST_VERTICES = 100
"""Of a circuit: each two of them have a relation over two places and a successor."""


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
        for size in reading.of("size"):
            reading.relations.add_sum(terms, Condition("eq", size), reading.name)


READERS: dict[str, Callable[[Reading], None]] = {"circuit": _circuit}
"""What reads each constraint."""
