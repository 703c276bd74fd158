"""Weighted CSPs in toulbar2's ``wcsp`` format, the reading side (:mod:`oocbe.formats.wcsp_writer` has the other).

A file is a stream of numbers: ``name variables largest_domain functions top``, the domain sizes, and the cost
functions, each ``arity scope… default tuples`` followed by ``values… cost`` a tuple. Costs of ``top`` and above forbid;
what an assignment costs in all must stay below ``top``. Besides:

* arity 0 adds a constant, the default or else the cost of a single tuple;
* a negative arity defines a *shared* function of the arity's absolute value, numbered from 1; a function with a
  negative number of tuples -k then has no tuples of its own but those of shared function k. Up to three variables it
  has all costs of that one, whatever default it names; over more, its own default. One over more than three variables
  that costs nothing has no number;
* a default of -1 followed by a keyword is a function by its meaning (:mod:`oocbe.formats.wcsp_globals`). Linear ones
  (``knapsack``, ``knapsackp``) become linear constraints; others that decompose exactly small tables, with variables of
  their states after the file's own; any other raises :class:`~oocbe.errors.UnsupportedError`.

A function is split into what it forbids (a constraint, or the missing rows of an incomplete function) and what it
costs; a part that says nothing is left out.

Like toulbar2, the reader takes numbers without a space before a sign or a keyword (``2-1``, ``-1salldiff``), domains
larger than the largest that the header names, and the last cost of a tuple that is listed again. Unlike it, it refuses
a file with fewer or more cost functions than the header says, which toulbar2 ignores, and adds negative costs as they
are (the format knows none, and toulbar2 takes them for 0); a cost of ``top`` or more forbids beside them, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.global_costs import Decomposed
from oocbe.formats.global_reader import GlobalReader
from oocbe.formats.text import Text
from oocbe.formats.wcsp_globals import read_global
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES

LARGEST_DOMAIN = 2**24
"""Values of a variable: larger domains are intervals or damage, and arrays of this size are still affordable."""

KEYWORD_DEFAULT = -1
"""In the place of a default cost: a keyword follows instead of tuples."""

SHARED_WHOLE = 3
"""Variables up to which a function has the default of the shared function that it refers to."""

_GLUED = re.compile(rb"(?<=[0-9])(?=[+-][0-9]|[<>=]|[a-z]{2})")
"""Where a C++ stream ends a number."""

Tuples = NDArray[np.int64]


@dataclass(frozen=True)
class _Shared:
    """A cost function that others may refer to."""

    sizes: tuple[int, ...]
    default: int
    tuples: Tuples
    costs: NDArray[np.int64]


@dataclass
class _PartsRead:
    """What has been read so far."""

    top: int
    constant: int = 0
    functions: list[Function] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    shared: list[_Shared] = field(default_factory=list)
    decomposed: Decomposed = field(default_factory=lambda: Decomposed([]))

    def add(self, scope: tuple[int, ...], default: int, tuples: Tuples, costs: NDArray[np.int64]) -> None:
        """Split one cost function in extension into hard and soft parts."""
        soft = costs < self.top
        if default >= self.top:
            if costs[soft].any():
                self.functions.append(Function(scope, tuples[soft], costs[soft], None))
            else:
                self.constraints.append(Constraint(scope, tuples[soft], allowed=True))
            return
        if not soft.all():
            self.constraints.append(Constraint(scope, tuples[~soft]))
        if default != 0 or costs[soft].any():
            self.functions.append(Function(scope, tuples[soft], costs[soft], default))

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
    return Text(text.path, text.data[:end] + _GLUED.sub(b" ", text.data[end:]))


def _read_function(text: Text, cursor: int, sizes: list[int], parts: _PartsRead) -> int:
    """Read the cost function at a token; returns the token after it."""
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
    # A sort finds whether a tuple is repeated; only then is it worth knowing which.
    if math.prod(shape) < 2**62 and len(shape) <= MOST_AXES:
        codes = np.sort(np.ravel_multi_index(tuple(tuples.T), shape))
        repeated = bool((codes[1:] == codes[:-1]).any())
    else:
        repeated = len(np.unique(tuples, axis=0)) != count
    if repeated:
        last = {values: row for row, values in enumerate(map(tuple, tuples.tolist()))}
        rows = np.array(sorted(last.values()))
        tuples, costs = tuples[rows], costs[rows]
    return tuples, costs
