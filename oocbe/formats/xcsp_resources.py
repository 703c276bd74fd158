"""Constraints of XCSP3 on what shares a resource: tasks in time, boxes in a plane, objects in bins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from oocbe.formats.xcsp_expressions import CONSTANT, Expression, Unread, call, constant, variable
from oocbe.formats.xcsp_globals import matrix_of
from oocbe.formats.xcsp_reading import Reading
from oocbe.formats.xcsp_relations import Condition

MOST_TIMES = 2**16
"""Times of a ``cumulative``, times its tasks."""


def _cumulative(reading: Reading) -> None:
    reading.only("origins", "lengths", "ends", "heights", "condition")
    starts = [_single(reading, part) for part in reading.of("origins")]
    lengths = reading.values(reading.element.needed("lengths"))
    heights = reading.values(reading.element.needed("heights"))
    _same_number(reading, starts, lengths, heights)
    ends = reading.element.child("ends")
    if ends is not None:
        listed = reading.expressions(ends)
        _same_number(reading, starts, listed)
        for start, length, end in zip(starts, lengths, listed, strict=True):
            reading.post(call("eq", call("add", start, length), end))
    condition = reading.condition()
    # What is used rises only where a task starts; where it has to be exact or high, every time would count.
    if condition.operator not in ("lt", "le"):
        raise Unread(f"the condition {condition.operator}")
    if any(_least(reading, own) < 0 for own in (*lengths, *heights)):
        raise Unread("lengths or heights that may be negative")
    times = sorted({t for part in starts for t in _values(reading, part)})
    if len(times) * len(starts) > MOST_TIMES:
        raise Unread(f"{len(times):,} times of {len(starts):,} tasks")
    for time in times:
        now = constant(time)
        terms = []
        for start, length, height in zip(starts, lengths, heights, strict=True):
            runs = call("and", call("le", start, now), call("gt", call("add", start, length), now))
            fixed = height.operator == CONSTANT
            terms.append((height.value, runs) if fixed else (1, call("mul", height, runs)))
        reading.relations.add_sum(terms, condition, reading.name)


def _single(reading: Reading, part: Expression) -> Expression:
    """A constant or a variable with the same value."""
    return part if part.operator == CONSTANT else variable(reading.relations.value_of(part))


def _values(reading: Reading, part: Expression) -> list[int]:
    found: list[int] = (
        [part.value] if part.operator == CONSTANT else reading.relations.tables.values(part.value).tolist()
    )
    return found


def _least(reading: Reading, part: Expression) -> int:
    return _values(reading, _single(reading, part))[0]


def _same_number(reading: Reading, *lists: Sequence[object]) -> None:
    if len(set(map(len, lists))) != 1:
        shown = ", ".join(str(len(own)) for own in lists)
        raise reading.element.error(
            f"found lists of {shown} parts in <{reading.element.tag}>, expected as many in each"
        )


def _no_overlap(reading: Reading) -> None:
    reading.only("origins", "lengths", attributes=("zeroIgnored",))
    ignores_zero = reading.element.attributes.get("zeroIgnored", "true") == "true"
    origins, lengths = (_boxes(reading, tag) for tag in ("origins", "lengths"))
    _same_number(reading, origins, lengths)
    for (one, own), (other, their) in itertools.combinations(zip(origins, lengths, strict=True), 2):
        _same_number(reading, one, own, other, their)
        apart = []
        for axis in range(len(one)):
            apart.append(call("le", call("add", one[axis], own[axis]), other[axis]))
            apart.append(call("le", call("add", other[axis], their[axis]), one[axis]))
            if ignores_zero:
                apart += [
                    call("eq", length, constant(0)) for length in (own[axis], their[axis]) if _may_be_zero(length)
                ]
        reading.post(call("or", *apart))


def _may_be_zero(length: Expression) -> bool:
    return length.operator != CONSTANT or length.value == 0


def _boxes(reading: Reading, tag: str) -> list[Sequence[Expression]]:
    """A number for each axis of each box: plain lists have one axis, tuples such as ``(x,y)`` several."""
    element = reading.element.needed(tag)
    if element.text.lstrip().startswith(b"("):
        return list(matrix_of(reading, tag))
    return [(part,) for part in reading.values(element)]


def _bin_packing(reading: Reading) -> None:
    reading.only("list", "sizes", "condition", "limits", "loads")
    listed = reading.listed()
    sizes = reading.integers("sizes")
    _same_number(reading, listed, sizes)
    conditions = _of_bins(reading, listed)
    for number, condition in conditions.items():
        terms = [(size, call("eq", part, constant(number))) for part, size in zip(listed, sizes, strict=True)]
        reading.relations.add_sum(terms, condition, reading.name)


def _of_bins(reading: Reading, listed: Sequence[Expression]) -> dict[int, Condition]:
    """What is asked of the load of each bin; those that have no number here do not exist."""
    for tag, operator in (("limits", "le"), ("loads", "eq")):
        owner = reading.element.child(tag)
        if owner is None:
            continue
        first = reading.first_index(owner)
        found = {first + number: Condition(operator, part) for number, part in enumerate(reading.values(owner))}
        for part in listed:
            reading.post(call("in", part, *map(constant, found)))
        return found
    condition = reading.condition()
    bins = sorted({value for part in listed for value in _values(reading, _single(reading, part))})
    return dict.fromkeys(bins, condition)


def _knapsack(reading: Reading) -> None:
    reading.only("list", "weights", "profits", "condition")
    listed = reading.listed()
    conditions = [child for child in reading.element.children if child.tag == "condition"]
    if len(conditions) != 2:
        raise reading.element.error(f"found {len(conditions)} conditions, expected two: of weights and of profits")
    for tag, child in zip(("weights", "profits"), conditions, strict=True):
        numbers = reading.integers(tag)
        _same_number(reading, listed, numbers)
        condition = reading.condition_of(child)
        reading.relations.add_sum(list(zip(numbers, listed, strict=True)), condition, reading.name)


READERS: dict[str, Callable[[Reading], None]] = {
    "cumulative": _cumulative,
    "noOverlap": _no_overlap,
    "binPacking": _bin_packing,
    "knapsack": _knapsack,
}
"""What reads each constraint."""
