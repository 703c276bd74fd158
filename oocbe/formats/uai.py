"""Markov and belief networks in the format of the UAI competitions, read and written.

A preamble (``MARKOV`` or ``BAYES``, the number of variables, their domain sizes, the number of factors, a scope each)
and then a table a factor, preceded by its number of entries, the scope's last variable changing fastest. An entry of
zero makes its assignments infeasible and gets no row. The format does not say what is asked of the network: reading
gives a max-product problem, and writing drops the difference between max-product and sum-product.

Files ``.LG`` are the same with natural logarithms as entries, and give a max-sum problem.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats.text import Text
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES, tuples_at
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, Combination, Semiring

LARGEST_TABLE = 2**27
"""Entries of one table: a larger one would be a text of gigabytes."""

EXACT_INTEGER = 2**53
"""Integers up to here are doubles, too."""

IMPOSSIBLE = -1e38
"""Logarithms up to here are those of zero, which no number is; toulbar2 takes them so."""

KINDS = ("MARKOV", "BAYES")
"""Kinds of networks, as the first word names them."""


def parse(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError with the line where it is malformed.

    What follows a ``#`` on a line is left out: pyAgrum writes names so.
    """
    return _parse(text, MAX_PRODUCT)


def parse_logarithms(text: Text) -> Problem:
    """Read a network of natural logarithms as a max-sum problem; those from ``IMPOSSIBLE`` down forbid."""
    return _parse(text, MAX_SUM)


def _parse(text: Text, semiring: Semiring) -> Problem:
    text = text.without_comments()
    kind = text.word(0, "MARKOV or BAYES")
    if kind.upper() not in KINDS:
        raise text.error(0, f"found {text.shown(0)}, expected MARKOV or BAYES")
    count = text.integer(1, "the number of variables", low=0)
    sizes: list[int] = text.integers(2, count, "a domain size for each variable").tolist()
    for v, size in enumerate(sizes):
        if size < 1:
            raise text.error(2 + v, f"found {size}, expected the domain size of variable {v}, at least 1")
    cursor = 2 + count
    scopes: list[tuple[int, ...]] = []
    factors = text.integer(cursor, "the number of factors", low=0)
    cursor += 1
    for number in range(factors):
        scope, cursor = _read_scope(text, cursor, number, count)
        scopes.append(scope)
    functions: list[Function] = []
    for number, scope in enumerate(scopes):
        entries = text.integer(cursor, f"the number of entries of factor {number}", low=0)
        shape = tuple(sizes[v] for v in scope)
        if entries != math.prod(shape):
            raise text.error(
                cursor, f"found {entries} entries, expected {math.prod(shape)} for factor {number}, {shape}"
            )
        values = text.floats(cursor + 1, entries, f"an entry of factor {number}")
        if semiring == MAX_PRODUCT and (values < 0).any():
            bad = cursor + 1 + int(np.argmax(values < 0))
            raise text.error(
                bad,
                f"found {text.shown(bad)}, expected an entry of factor {number}, at least 0: a file of "
                "logarithms is one of the format lg",
            )
        feasible = np.flatnonzero(values if semiring == MAX_PRODUCT else values > IMPOSSIBLE)
        functions.append(Function(scope, tuples_at(feasible, shape), values[feasible]))
        cursor += 1 + entries
    text.expect_end(cursor, f"the {factors} tables")
    variables = tuple(Variable(str(v), size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), constant=semiring.one, semiring=semiring, name=text.stem)


def _read_scope(text: Text, cursor: int, number: int, count: int) -> tuple[tuple[int, ...], int]:
    arity = text.integer(cursor, f"the number of variables of factor {number}", 0, count)
    scope = tuple(text.integer(cursor + 1 + i, f"a variable of factor {number}", 0, count - 1) for i in range(arity))
    if len(set(scope)) != arity:
        raise text.error(cursor, f"found a variable twice in scope {scope} of factor {number}, expected different ones")
    return scope, cursor + 1 + arity


def parse_query(text: Text, problem: Problem) -> tuple[int, ...]:
    """Variable indices of a ``.query`` file, ``n variable …``; FormatError with the line where it is malformed."""
    text = text.without_comments()
    count = text.integer(0, "the number of query variables", 0, len(problem.variables))
    last = len(problem.variables) - 1
    found = tuple(text.integer(1 + i, "a query variable", 0, last) for i in range(count))
    if len(set(found)) != count:
        raise text.error(0, "found a query variable twice, expected different ones")
    text.expect_end(1 + count, f"the {count} query variables")
    return found


def render(problem: Problem) -> str:
    """The problem as a ``MARKOV`` network; every table is written out in full.

    UnsupportedError unless values are multiplied, not negative and the tables small enough; ValueRangeError for an
    integer that no double equals.
    """
    if problem.semiring.combination is not Combination.MULTIPLY or problem.semiring.counts:
        raise UnsupportedError(
            f"{problem.name}: the uai format holds factors to multiply, a {problem.semiring} problem has none; "
            "write it as wcsp, or make factors of its values first (exp of the negative cost)"
        )
    if problem.upper_bound is not None or problem.lower_bound is not None:
        raise UnsupportedError(f"{problem.name}: the uai format has no place for an upper bound or a lower one")
    scopes: list[tuple[int, ...]] = []
    tables: list[NDArray[np.int64] | NDArray[np.float64]] = []
    if problem.constant != problem.semiring.one:
        # As a table over a variable: factors without variables are more than other readers expect.
        scopes.append((0,) if problem.variables else ())
        tables.append(np.full([problem.sizes[v] for v in scopes[-1]], problem.constant))
    for function in problem.functions:
        _check_cells(problem, function.scope)
        values, feasible = function.to_array(problem.sizes)
        scopes.append(function.scope)
        tables.append(np.where(feasible, values, 0))
    for constraint in problem.hard_parts:
        _check_cells(problem, constraint.scope)
        scopes.append(constraint.scope)
        tables.append(constraint.to_array(problem.sizes).astype(np.int64))
    lines = ["MARKOV", str(len(problem.variables)), " ".join(map(str, problem.sizes)), str(len(scopes))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope in scopes]
    lines += [_render_table(problem, table) for table in tables]
    return "\n".join(lines) + "\n"


def _check_cells(problem: Problem, scope: tuple[int, ...]) -> None:
    if len(scope) > MOST_AXES:
        raise UnsupportedError(
            f"{problem.name}: a table over {len(scope)} variables, and this writer stops at {MOST_AXES}; leave "
            "variables that have only one value out of its scope"
        )
    cells = math.prod(problem.sizes[v] for v in scope)
    if cells > LARGEST_TABLE:
        raise UnsupportedError(
            f"{problem.name}: a table over {len(scope)} variables has {cells:,} entries, the uai format lists them all "
            f"and this writer stops at {LARGEST_TABLE:,}"
        )


def _render_table(problem: Problem, table: NDArray[np.int64] | NDArray[np.float64]) -> str:
    flat = table.ravel()
    if (flat < 0).any():
        raise UnsupportedError(f"{problem.name}: the uai format has no negative values")
    if flat.dtype.kind == "i" and (flat > EXACT_INTEGER).any():
        raise ValueRangeError(f"{problem.name}: an integer above 2^53 would be rounded by readers of the uai format")
    return f"\n{table.size}\n" + " ".join(map(repr, flat.tolist()))
