"""Constraints of XCSP3 over many variables that expressions and sums say exactly.

Among them are those on what shares a resource: tasks in time, boxes in a plane, objects in bins.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from oocbe.formats.xcsp_expressions import CELL, CONSTANT, Expression, UnsupportedConstraint, call, constant, variable
from oocbe.formats.xcsp_reading import Reading
from oocbe.formats.xcsp_relations import Condition
from oocbe.formats.xcsp_variables import read_tuples

MOST_PAIRS = 2**20
"""Pairs of values, or of variables, that one constraint may take."""

MOST_LISTED_ARGUMENTS = 2**10
"""Expressions of one ``<maximumArg>`` or ``<minimumArg>``, whose constraints grow with their square."""

_ROW = re.compile(r"\(([^()]*)\)")


def is_one_of(part: Expression, values: Iterable[Expression]) -> Expression:
    """The condition that an expression equals one of some values or variables."""
    listed = list(values)
    if all(own.operator == CONSTANT for own in listed):
        return call("in", part, *listed)
    return call("or", *(call("eq", part, own) for own in listed))


def _intension(reading: Reading) -> None:
    function = reading.element.child("function")
    reading.only("function")
    source = reading.element if function is None else function
    reading.post(reading.expression(source))


def _clause(reading: Reading) -> None:
    reading.only("list")
    reading.post(call("or", *reading.listed()))


def _sum(reading: Reading) -> None:
    reading.only("list", "coeffs", "condition")
    reading.relations.add_sum(terms_of(reading), reading.condition(), reading.name)


def terms_of(reading: Reading) -> list[tuple[int, Expression]]:
    """Terms of a sum, each with its coefficient."""
    listed = reading.listed()
    coeffs = reading.element.child("coeffs")
    if coeffs is None:
        return [(1, part) for part in listed]
    coefficients = reading.values(coeffs)
    if len(coefficients) != len(listed):
        raise reading.element.error(
            f"found {len(coefficients)} coefficients of {len(listed)} variables, expected one each"
        )
    return [
        (own.value, part) if own.operator == CONSTANT else (1, call("mul", own, part))
        for own, part in zip(coefficients, listed, strict=True)
    ]


def _count(reading: Reading) -> None:
    reading.only("list", "values", "condition")
    values = reading.values("values")
    terms = [(1, is_one_of(part, values)) for part in reading.listed()]
    reading.relations.add_sum(terms, reading.condition(), reading.name)


def _different_values(reading: Reading) -> None:
    reading.only("list", "except", "condition")
    terms = [(1, part) for part in presences(reading, reading.listed())]
    reading.relations.add_sum(terms, reading.condition(), reading.name)


def presences(reading: Reading, listed: Sequence[Expression]) -> list[Expression]:
    """For each value that the expressions may have whether one has it, those in ``<except>`` left out."""
    excepted = set(reading.integers("except")) if reading.element.child("except") is not None else set()
    scope = [reading.relations.value_of(part) for part in listed]
    values: dict[int, list[int]] = {}
    for v in dict.fromkeys(scope):
        for value in reading.relations.tables.values(v).tolist():
            values.setdefault(value, []).append(v)
    if sum(map(len, values.values())) > MOST_PAIRS:
        raise UnsupportedConstraint(f"more than {MOST_PAIRS:,} values of its variables")
    return [
        call("or", *(call("eq", variable(v), constant(value)) for v in owners))
        for value, owners in values.items()
        if value not in excepted
    ]


def _cardinality(reading: Reading) -> None:
    reading.only("list", "values", "occurs", attributes=("closed",))
    listed, values_element = reading.listed(), reading.element.needed("values")
    values = reading.values(values_element)
    occurs = reading.element.needed("occurs")
    counts = reading.conditions(occurs)
    if len(counts) != len(values):
        raise occurs.error(f"found {len(counts)} numbers of occurrences of {len(values)} values, expected one each")
    for value, condition in zip(values, counts, strict=True):
        reading.relations.add_sum([(1, call("eq", part, value)) for part in listed], condition, reading.name)
    if values_element.attributes.get("closed", "false") == "true":
        for part in listed:
            reading.post(is_one_of(part, values))


def _all_different(reading: Reading) -> None:
    reading.only("list", "matrix", "except")
    except_element, matrix = reading.element.child("except"), reading.element.child("matrix")
    if len(reading.lists) < 2:
        excepted = set(reading.integers("except")) if except_element is not None else set()
    if matrix is not None:
        rows = matrix_of(reading)
        for line in [*rows, *zip(*rows, strict=True)]:
            differ(reading, line, excepted)
    elif len(reading.lists) > 1:
        lists = [reading.expressions(own) for own in reading.lists]
        if len(set(map(len, lists))) != 1:
            raise reading.element.error("found lists of different lengths, expected the same")
        rows = [] if except_element is None else read_tuples(except_element, len(lists[0])).tolist()
        excepted_rows = [list(map(constant, row)) for row in rows]
        for one, other in itertools.combinations(lists, 2):
            free = (call("and", *(call("eq", *pair) for pair in zip(one, row, strict=True))) for row in excepted_rows)
            reading.post(call("or", *(call("ne", a, b) for a, b in zip(one, other, strict=True)), *free))
    else:
        differ(reading, reading.listed(), excepted)


def differ(reading: Reading, listed: Sequence[Expression], excepted: set[int]) -> None:
    """Each two are different, unless they have a value that does not count."""
    scope = [part if len(part.scope) < 2 else variable(reading.relations.value_of(part)) for part in listed]
    sizes = [len(reading.relations.tables.values(v)) for part in scope for v in part.scope]
    if len(scope) * sum(sizes) // 2 > MOST_PAIRS:
        raise UnsupportedConstraint(f"more than {MOST_PAIRS:,} pairs of values")
    free = [constant(value) for value in sorted(excepted)]
    for one, other in itertools.combinations(scope, 2):
        differ = call("ne", one, other)
        reading.post(call("or", differ, call("in", one, *free)) if free else differ)


def matrix_of(reading: Reading, tag: str = "matrix") -> list[list[Expression]]:
    """Rows of a child such as ``<matrix>``: ``(x[0],3)(x[1],4)``, or a word for all of an array with two dimensions."""
    element = reading.element.needed(tag)
    words = reading.words(element)
    rows: list[list[Expression]] = []
    for word in words:
        text = str(word)
        if isinstance(word, int) or not text.startswith("("):
            rows += [[variable(v) for v in row] for row in reading.variables.rows_of(element, text)]
            continue
        for row in _ROW.findall(text):
            cells = [cell.strip() for cell in row.split(",")]
            rows.append([part for cell in cells for part in reading.of_cell(element, cell)])
    if not rows or len(set(map(len, rows))) != 1:
        raise element.error("found rows of different lengths, or none, expected a matrix such as (x,y)(1,2)")
    return rows


def _all_equal(reading: Reading) -> None:
    reading.only("list")
    listed = reading.listed()
    if len(listed) > 1:
        reading.post(call("eq", *listed))


def _ordered(reading: Reading) -> None:
    reading.only("list", "lengths", "operator", attributes=("case",))
    listed = reading.listed()
    operator = operator_of(reading)
    lengths = [constant(0)] * len(listed)
    found = reading.element.child("lengths")
    if found is not None:
        lengths = reading.values(found)
        if not len(listed) - 1 <= len(lengths) <= len(listed):
            raise found.error(f"found {len(lengths)} lengths of {len(listed)} variables, expected one less")
    for one, length, other in zip(listed, lengths, listed[1:], strict=False):
        left = one if length == constant(0) else call("add", one, length)
        reading.post(call(operator, left, other))


def operator_of(reading: Reading) -> str:
    """The order that ``<operator>``, or the attribute ``case``, names."""
    element = reading.element.child("operator")
    name = reading.element.attributes.get("case", "") if element is None else element.text.decode().strip()
    known = {"strictlyIncreasing": "lt", "increasing": "le", "decreasing": "ge", "strictlyDecreasing": "gt"}
    name = known.get(name, name)
    if name not in ("lt", "le", "ge", "gt"):
        raise reading.element.error(f"found the operator {name[:40]!r}, expected lt, le, ge or gt")
    return name


def _extremum(operator: str, reading: Reading) -> None:
    reading.only("list", "condition")
    listed, condition = reading.listed(), reading.condition()
    # All are below a bound where the greatest one is.
    if condition.operator in (("lt", "le") if operator == "max" else ("gt", "ge")):
        for part in listed:
            reading.post(condition.of(part))
    else:
        reading.post(condition.of(call(operator, *listed)))


def _place_of_extremum(operator: str, reading: Reading) -> None:
    """Read a condition on the index of the greatest (least) expression, counted from 0.

    Of several such indices the rank says which one is meant; ``any``, the default: one of them meets the condition.
    """
    reading.only("list", "condition", attributes=("rank",))
    listed, condition = reading.listed(), reading.condition()
    rank = reading.element.attributes.get("rank", "any")
    if rank not in ("any", "first", "last"):
        raise reading.element.error(f"found the rank {rank[:40]!r}, expected any, first or last")
    if len(listed) > MOST_LISTED_ARGUMENTS:
        raise UnsupportedConstraint(f"more than {MOST_LISTED_ARGUMENTS:,} expressions")
    extremum = variable(reading.relations.value_of(call(operator, *listed)))
    has_it = [call("eq", part, extremum) for part in listed]
    meets = [condition.of(constant(place)) for place in range(len(listed))]
    if rank == "any":
        reading.post(call("or", *(call("and", *pair) for pair in zip(has_it, meets, strict=True))))
        return
    for place, met in enumerate(meets):
        earlier = has_it[:place] if rank == "first" else has_it[place + 1 :]
        reading.post(call("or", met, call("not", has_it[place]), *earlier))


def _element(reading: Reading) -> None:
    reading.only("list", "matrix", "index", "value", "condition", attributes=("startRowIndex", "startColIndex", "rank"))
    value = reading.element.child("value")
    condition = reading.condition() if value is None else Condition("eq", reading.expression(value))
    index = reading.element.child("index")
    rank = "any" if index is None else index.attributes.get("rank", "any")
    if rank != "any":
        raise UnsupportedConstraint(f"the rank {rank}")
    if reading.element.child("matrix") is not None:
        _matrix_element(reading, condition)
        return
    listed = reading.values("list")
    if index is None:
        reading.post(call("or", *map(condition.of, listed)))
        return
    chosen = reading.expression(index)
    first = reading.first_index(reading.element.needed("list"))
    _select(reading, [chosen], [first], [len(listed)], listed, condition)


def _matrix_element(reading: Reading, condition: Condition) -> None:
    indices = reading.expressions("index")
    if len(indices) != 2:
        raise reading.element.error(f"found {len(indices)} indices of a matrix, expected two")
    owner = reading.element.needed("matrix")
    firsts = [reading.first_index(owner, name) for name in ("startRowIndex", "startColIndex")]
    rows = matrix_of(reading)
    _select(reading, indices, firsts, [len(rows), len(rows[0])], list(itertools.chain(*rows)), condition)


def _select(
    reading: Reading,
    indices: Sequence[Expression],
    firsts: Sequence[int],
    shape: Sequence[int],
    cells: Sequence[Expression],
    condition: Condition,
) -> None:
    """The cell that indices choose meets a condition; cells : of an array of the shape, the last index fastest."""
    if len(cells) > MOST_PAIRS:
        raise UnsupportedConstraint(f"more than {MOST_PAIRS:,} cells")
    for own, first, size in zip(indices, firsts, shape, strict=True):
        reading.post(call("in", own, *map(constant, range(first, first + size))))
    if all(part.operator == CONSTANT for part in cells):
        place = constant(0)
        for own, first, size in zip(indices, firsts, shape, strict=True):
            place = call("add", call("mul", place, constant(size)), call("sub", own, constant(first)))
        reading.post(condition.of(call(CELL, place, *cells)))
        return
    for numbers, part in zip(itertools.product(*map(range, shape)), cells, strict=True):
        chosen = (call("eq", own, constant(n + first)) for own, n, first in zip(indices, numbers, firsts, strict=True))
        reading.post(call("imp", call("and", *chosen), condition.of(part)))


def _channel(reading: Reading) -> None:
    reading.only("list", "value")
    lists = reading.lists or [reading.element]
    if len(lists) > 2:
        raise UnsupportedConstraint("more than two lists")
    scopes = [reading.expressions(own) for own in lists]
    firsts = [reading.first_index(own) for own in lists]
    value = reading.element.child("value")
    if value is not None:
        chosen = reading.expression(value)
        for place, part in enumerate(scopes[0]):
            reading.post(call("iff", call("eq", part, constant(1)), call("eq", chosen, constant(firsts[0] + place))))
        reading.post(call("in", chosen, *(constant(firsts[0] + place) for place in range(len(scopes[0])))))
        return
    if len(scopes[0]) * len(scopes[-1]) > MOST_PAIRS:
        raise UnsupportedConstraint(f"more than {MOST_PAIRS:,} pairs of variables")
    sides = [(scopes[0], firsts[0]), (scopes[-1], firsts[-1])]
    (short, first), (long, first_of_long) = sorted(sides, key=lambda side: len(side[0]))
    connective = "iff" if len(short) == len(long) else "imp"
    targets = [constant(first_of_long + number) for number in range(len(long))]
    for number, part in enumerate(short):
        # A value without a place in the other list has no partner.
        reading.post(call("in", part, *targets))
        for target, partner in zip(targets, long, strict=True):
            is_partner = call("eq", partner, constant(first + number))
            reading.post(call(connective, call("eq", part, target), is_partner))


MOST_TIMES = 2**16
"""Times of a ``cumulative``, times its tasks."""


def _cumulative(reading: Reading) -> None:
    reading.only("origins", "lengths", "ends", "heights", "condition")
    starts = [_single(reading, part) for part in reading.expressions("origins")]
    lengths = reading.values("lengths")
    heights = reading.values("heights")
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
        raise UnsupportedConstraint(f"the condition {condition.operator}")
    if any(_values(reading, _single(reading, own))[0] < 0 for own in (*lengths, *heights)):
        raise UnsupportedConstraint("lengths or heights that may be negative")
    times = sorted({t for part in starts for t in _values(reading, part)})
    if len(times) * len(starts) > MOST_TIMES:
        raise UnsupportedConstraint(f"{len(times):,} times of {len(starts):,} tasks")
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
                may_be_zero = [x for x in (own[axis], their[axis]) if x.operator != CONSTANT or x.value == 0]
                apart += [call("eq", length, constant(0)) for length in may_be_zero]
        reading.post(call("or", *apart))


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
    """Condition on the load of each bin; bins without a number do not exist."""
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
        condition = reading.condition(child)
        reading.relations.add_sum(list(zip(numbers, listed, strict=True)), condition, reading.name)


READERS: dict[str, Callable[[Reading], None]] = {
    "intension": _intension,
    "clause": _clause,
    "sum": _sum,
    "count": _count,
    "nValues": _different_values,
    "cardinality": _cardinality,
    "allDifferent": _all_different,
    "allEqual": _all_equal,
    "ordered": _ordered,
    "maximum": partial(_extremum, "max"),
    "minimum": partial(_extremum, "min"),
    "maximumArg": partial(_place_of_extremum, "max"),
    "minimumArg": partial(_place_of_extremum, "min"),
    "element": _element,
    "channel": _channel,
    "cumulative": _cumulative,
    "noOverlap": _no_overlap,
    "binPacking": _bin_packing,
    "knapsack": _knapsack,
}
"""Reader of each constraint."""
