"""Weighted CSPs in toulbar2's ``wcsp`` format.

A file is a stream of numbers: ``name variables largest_domain functions top``, the domain sizes, and the cost
functions, each ``arity scope… default tuples`` followed by ``values… cost`` a tuple. Costs of ``top`` and above forbid;
what an assignment costs in all must stay below ``top``. Besides:

* arity 0 adds a constant, the default or else the cost of a single tuple;
* a negative arity defines a *shared* function of the arity's absolute value, numbered from 1; a function with a
  negative number of tuples -k then has no tuples of its own but those of shared function k. Up to three variables it
  has all costs of that one, whatever default it names; over more, its own default. One over more than three variables
  that costs nothing has no number;
* a default of -1 followed by a keyword (:data:`KEYWORDS`) is a global cost function. Linear ones (``knapsack``,
  ``knapsackp``) become linear constraints; others that decompose exactly small tables, with variables of their states
  after the file's own; any other raises :class:`~oocbe.errors.UnsupportedError`.

A function is split into what it forbids (a constraint, or the missing rows of an incomplete function) and what it
costs; parts without an effect are left out.

Like toulbar2, the reader takes numbers without a space before a sign or a keyword (``2-1``, ``-1salldiff``), domains
larger than the largest that the header names, and the last cost of a tuple that is listed again. Unlike it, it refuses
a file with fewer or more cost functions than the header says, which toulbar2 ignores, and adds negative costs as they
are (the format knows none, and toulbar2 takes them for 0); a cost of ``top`` or more forbids beside them, too.

The keywords and their parameters are in toulbar2's manual; their meanings are those that toulbar2 computes, with the
metrics that toulbar2 has for each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats import global_counts
from oocbe.formats.cost_tables import parts_of
from oocbe.formats.global_costs import Decomposed, GlobalReader
from oocbe.formats.text import LARGEST_DOMAIN, Text
from oocbe.model.model_checks import INT64
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_rows
from oocbe.model.semiring import MIN_SUM

KEYWORD_DEFAULT = -1
"""In the place of a default cost: a keyword follows instead of tuples."""

SHARED_WHOLE = 3
"""Variables up to which a function has the default of the shared function that it refers to."""

_GLUED = re.compile(rb"[-+<>=a-z](?<=[0-9].)(?:(?<=[+-])(?=[0-9])|(?<=[<>=])|(?<=[a-z])(?=[a-z]))")
"""What ends a number in a C++ stream. It begins with a set of bytes, which :mod:`re` finds ten times as fast."""

Tuples = NDArray[np.int64]


@dataclass(frozen=True)
class _Shared:
    sizes: tuple[int, ...]
    default: int
    tuples: Tuples
    costs: NDArray[np.int64]


@dataclass
class _PartsRead:
    top: int
    constant: int = 0
    functions: list[Function] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    shared: list[_Shared] = field(default_factory=list)
    decomposed: Decomposed = field(default_factory=lambda: Decomposed([]))

    def add(self, scope: tuple[int, ...], default: int, tuples: Tuples, costs: NDArray[np.int64]) -> None:
        """Split one cost function in extension into hard and soft parts."""
        cells = math.prod(self.decomposed.sizes[v] for v in scope)
        for part in parts_of(scope, tuples, costs, costs < self.top, None if default >= self.top else default, cells):
            (self.functions if isinstance(part, Function) else self.constraints).append(part)  # type: ignore[arg-type]

    def add_decomposed(self) -> None:
        """Add what global cost functions have come to."""
        for table in self.decomposed.tables:
            # Costs above the upper bound say no more than it does, and may need more than 64 bits.
            default, *costs = (int(min(cost, self.top)) for cost in (table.default, *table.costs))
            if table.scope:
                self.add(table.scope, default, table.tuples, np.array(costs, dtype=np.int64))
            else:
                self.constant += default


def parse(text: Text) -> Problem:
    """Read a problem; FormatError with the line where it is malformed, UnsupportedError for global cost functions."""
    name = text.word(0, "the problem's name")
    text = _separated(text)
    count = text.integer(1, "the number of variables", low=0)
    text.integer(2, "the largest domain size", low=0)
    functions = text.integer(3, "the number of cost functions", low=0)
    parts = _PartsRead(text.integer(4, "the upper bound"))
    sizes: list[int] = text.integers(5, count, "a domain size for each variable").tolist()
    for v, size in enumerate(sizes):
        if size < 0:
            raise UnsupportedError(
                f"{text.path}, line {text.line(5 + v)}: variable {v} has an interval domain (size {size}); "
                "only enumerated domains are supported"
            )
        if not 1 <= size <= LARGEST_DOMAIN:
            expected = f"the domain size of variable {v}, between 1 and {LARGEST_DOMAIN}"
            raise text.error(5 + v, f"found {size}, expected {expected}")
    parts.decomposed = Decomposed(list(sizes), parts.top)
    cursor = 5 + count
    for number in range(functions):
        if cursor >= len(text):
            raise text.error(cursor, f"the file ends after {number} cost functions, expected {functions}")
        cursor = _read_function(text, cursor, sizes, parts)
    text.expect_end(cursor, f"the {functions} cost functions")
    parts.add_decomposed()
    names = [*map(str, range(count)), *parts.decomposed.names]
    return Problem(
        tuple(Variable(name, size) for name, size in zip(names, parts.decomposed.sizes, strict=True)),
        tuple(parts.functions),
        tuple(parts.constraints),
        tuple(parts.decomposed.linear),
        constant=parts.constant,
        upper_bound=parts.top,
        name=name,
    )


def _separated(text: Text) -> Text:
    """The text behind the name with spaces where numbers end."""
    name = text.raw(0)
    end = text.data.index(name) + len(name)
    if _GLUED.search(text.data, end) is None:
        return text
    return Text(text.path, text.data[:end] + _GLUED.sub(rb" \g<0>", text.data[end:]))


def _read_function(text: Text, cursor: int, sizes: list[int], parts: _PartsRead) -> int:
    signed_arity = text.integer(cursor, "a cost function's arity", -len(sizes), len(sizes))
    arity = abs(signed_arity)
    scope = tuple(text.integers(cursor + 1, arity, "a variable of the scope").tolist())
    for i, v in enumerate(scope):
        if not 0 <= v < len(sizes):
            raise text.error(cursor + 1 + i, f"found variable {v}, expected one between 0 and {len(sizes) - 1}")
    if len(set(scope)) != arity:
        raise text.error(cursor, f"found a variable twice in scope {scope}, expected different ones")
    cursor += 1 + arity
    default = text.integer(cursor, "a default cost")
    cursor += 1
    if default == KEYWORD_DEFAULT and arity > 0 and cursor < len(text) and not text.is_integer(cursor):
        return read_global(GlobalReader(text, cursor, scope, parts.decomposed))
    count = text.integer(cursor, "a number of tuples")
    shape = tuple(sizes[v] for v in scope)
    if count < 0:
        if signed_arity < 0 and arity > SHARED_WHOLE:
            raise text.error(cursor, "found a shared function that refers to another one, expected one with own tuples")
        shared = _find_shared(text, cursor, -count, shape, parts)
        parts.add(scope, default if arity > SHARED_WHOLE else shared.default, shared.tuples, shared.costs)
        return cursor + 1
    if arity == 0:
        if count > 1:
            raise text.error(cursor, f"found {count}, expected 0 or 1 as the number of tuples of a constant")
        parts.constant += text.integer(cursor + 1, "a constant") if count else default
        return cursor + 1 + count
    tuples, costs = _read_tuples(text, cursor + 1, count, shape)
    if signed_arity < 0 and (arity <= SHARED_WHOLE or default or count):
        parts.shared.append(_Shared(shape, default, tuples, costs))
    parts.add(scope, default, tuples, costs)
    return cursor + 1 + count * (arity + 1)


def _find_shared(text: Text, cursor: int, number: int, shape: tuple[int, ...], parts: _PartsRead) -> _Shared:
    if number > len(parts.shared):
        known = len(parts.shared)
        raise text.error(cursor, f"found a reference to shared function {number}, expected one of the {known} so far")
    shared = parts.shared[number - 1]
    if shared.sizes != shape:
        raise text.error(
            cursor, f"found domain sizes {shape}, expected those of shared function {number}, {shared.sizes}"
        )
    return shared


def _read_tuples(text: Text, first: int, count: int, shape: tuple[int, ...]) -> tuple[Tuples, NDArray[np.int64]]:
    """Tuples int64 (rows, arity) and costs int64 (rows,), in the file's order; of one listed again, the last cost."""
    width = len(shape) + 1
    block = text.integers(first, count * width, "a tuple's value or cost").reshape(count, width)
    tuples, costs = block[:, :-1], block[:, -1]
    if count == 0:
        return tuples, costs
    outside = (tuples < 0) | (tuples >= np.array(shape, dtype=np.int64))
    if outside.any():
        row, column = np.unravel_index(int(np.argmax(outside)), outside.shape)
        bad = first + int(row) * width + int(column)
        raise text.error(bad, f"found the value {tuples[row, column]}, expected one between 0 and {shape[column] - 1}")
    if distinct_rows(tuples, shape) < count:  # only then is it worth knowing which tuple is repeated
        last = {values: row for row, values in enumerate(map(tuple, tuples.tolist()))}
        rows = np.array(sorted(last.values()))
        tuples, costs = tuples[rows], costs[rows]
    return tuples, costs


def render(problem: Problem) -> str:
    """The problem as a wcsp; variable names and value labels have no place in it.

    ``top`` is the problem's upper bound, or else one more than any feasible assignment can cost.

    Raises UnsupportedError: no min-sum problem of integers from 0 on; ValueRangeError: ``top`` leaves 64 bits.
    """
    if problem.semiring != MIN_SUM:
        raise UnsupportedError(
            f"{problem.name}: the wcsp format holds costs to add and minimise, not a {problem.semiring} problem; "
            "write products as uai, which toulbar2 reads as well"
        )
    if not problem.is_integral:
        raise UnsupportedError(f"{problem.name}: the wcsp format holds integers; scale and round the costs first")
    _refuse_negative(problem)
    top = _top(problem)
    bodies = [
        _render_table(f.scope, f.tuples, f.values, top if f.default is None else int(f.default))
        for f in problem.functions
    ]
    for c in problem.constraints:
        listed, default = (0, top) if c.allowed else (top, 0)
        bodies.append(_render_table(c.scope, c.tuples, np.full(len(c.tuples), listed, dtype=np.int64), default))
    bodies += [_render_linear(c, top) for c in problem.linear_constraints]
    if problem.constant:
        bodies.append(f"0 {problem.constant} 0")
    name = "_".join(problem.name.split()) or "problem"
    header = f"{name} {len(problem.variables)} {max(problem.sizes, default=0)} {len(bodies)} {top}"
    return "\n".join([header, " ".join(map(str, problem.sizes)), *bodies]) + "\n"


def _top(problem: Problem) -> int:
    if problem.upper_bound is None or math.isinf(problem.upper_bound):
        top = int(1 + problem.constant + sum(problem.extremes.greatest.tolist()))
    else:
        top = math.ceil(problem.upper_bound)  # for integers, below 10.5 is below 11
    if not -(2**63) <= top < 2**63:
        raise ValueRangeError(f"{problem.name}: the upper bound {top} needs more than 64 bits")
    return top


def _refuse_negative(problem: Problem) -> None:
    # The format requires costs of at least 0. toulbar2 gives wrong answers for some files with negative costs.
    parts = [(f"function {number}", lowest) for number, lowest in enumerate(problem.extremes.least.tolist())]
    for what, lowest in [*parts, ("the constant", int(problem.constant))]:
        if lowest < 0:
            raise UnsupportedError(
                f"{problem.name}: {what} has the cost {lowest}, the wcsp format holds costs of at least 0; "
                "shift the costs up first, and the optimum down again"
            )


def _render_table(
    scope: tuple[int, ...], tuples: NDArray[np.int64], costs: NDArray[np.int64] | NDArray[np.float64], default: int
) -> str:
    if not scope:
        # The format's functions of arity 0 have a default only; a listed empty tuple is that default. They are added
        # up: of a top below 0, where nothing is feasible anyway, two would not reach it.
        return f"0 {max(0, int(costs[0]) if len(costs) else default)} 0"
    heading = f"{len(scope)} {' '.join(map(str, scope))} {default} {len(tuples)}"
    rows = np.column_stack([tuples, costs.astype(np.int64)]).tolist()
    return "\n".join([heading, *(" ".join(map(str, row)) for row in rows)])


def _render_linear(linear: LinearConstraint, top: int) -> str:
    """A ``knapsackp``. Its sum is at least the capacity: all signs change."""
    if not linear.scope:
        return f"0 {0 if linear.capacity >= 0 else max(0, top)} 0"
    largest = max([-int(own.min()) for own in linear.coefficients])
    if largest > INT64.max or not INT64.min <= -linear.capacity <= INT64.max:
        raise ValueRangeError(
            f"{linear.name}: turned into a lower limit, a coefficient or the capacity of {linear.capacity} needs more "
            "than the 64 bits that the wcsp format is read in; divide the constraint by a common factor"
        )
    weights = []
    for coefficients in linear.coefficients:
        values = np.flatnonzero(coefficients)
        pairs = [f"{value} {-int(coefficients[value])}" for value in values.tolist()]
        weights.append(" ".join([str(len(pairs)), *pairs]))
    scope = " ".join(map(str, linear.scope))
    return f"{len(linear.scope)} {scope} -1 knapsackp {-linear.capacity} {' '.join(weights)}"


KEYWORDS: dict[str, Callable[[GlobalReader], None]] = {
    keyword: read
    for keywords, read in {
        "alldiff": global_counts.all_different,
        "salldiff salldiffdp salldiffkp walldiff walldifferent": global_counts.all_different_soft,
        "samong samongdp": global_counts.among_soft,
        "wamong": global_counts.among,
        "wvaramong": global_counts.among_variable,
        "gcc": global_counts.cardinalities_hard,
        "sgcc": global_counts.cardinalities_soft,
        "sgccdp sgcckp wgcc": global_counts.cardinalities,
        "ssame": global_counts.same_soft,
        "wsame wsamegcc": global_counts.same,
        "woverlap": global_counts.overlap,
        "wdiverse whdiverse wtdiverse": global_counts.diverse,
        "clique": global_counts.clique,
        "knapsack": global_counts.knapsack,
        "knapsackc knapsackp": global_counts.knapsack_of_values,
        "knapsackv": global_counts.knapsack_by_triplets,
        "wsum wvarsum": global_counts.total,
        "sregular sregulardp": global_counts.regular,
        "wregular": global_counts.regular_weighted,
        "sgrammar sgrammardp": global_counts.grammar,
        "max smaxdp": global_counts.largest,
        "MST smstdp": global_counts.spanning_tree,
        " ".join(global_counts.RELATIONS): global_counts.relation,
        "disj": global_counts.disjunction,
        "sdisj": global_counts.disjunction_special,
    }.items()
    for keyword in keywords.split()
}
"""Keywords and what reads them."""


def read_global(reader: GlobalReader) -> int:
    """Read what follows a keyword; returns the token after it. UnsupportedError by name for what is not supported."""
    if reader.keyword not in KEYWORDS:
        raise reader.unsupported(f"is not supported; those that are: {', '.join(KEYWORDS)}")
    KEYWORDS[reader.keyword](reader)
    return reader.cursor
