"""Markov and belief networks in the format of the UAI competitions, read and written.

A preamble (``MARKOV`` or ``BAYES``, the number of variables, their domain sizes, the number of factors, a scope each)
and then a table a factor, preceded by its number of entries, the scope's last variable changing fastest. An entry of
zero makes its assignments infeasible and gets no row. The format does not say what is asked of the network: reading
gives a max-product problem, and writing drops the difference between max-product and sum-product.

Files ``.LG`` are the same with natural logarithms as entries, and give a max-sum problem.

Evidence: observed variables and their values, from files of the UAI competitions (``.evid``) or ``name=value``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, UsageError, ValueRangeError
from oocbe.formats.files import read_bytes
from oocbe.formats.text import LARGEST_TABLE, SHOWN_CHARACTERS, Text
from oocbe.model.names import indices_of, unknown_variable, value_index, warn_of_position
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import MOST_AXES, tuples_at
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, Combination, Semiring

EXACT_INTEGER = 2**53
"""Integers up to here are doubles, too."""

IMPOSSIBLE = -1e38
"""Logarithms up to here are those of zero, which no number is; toulbar2 takes them so."""

SHARED_ENTRIES = 256
"""Entries of a table, at most, that is made once for all factors with the same text: formulas have many."""

KINDS = ("MARKOV", "BAYES")
"""Kinds of networks, as the first word names them."""


def parse(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError with the line. After ``#`` is a comment, as of pyAgrum."""
    return _parse(text, MAX_PRODUCT)


def parse_logarithms(text: Text) -> Problem:
    """Read a network of natural logarithms as a max-sum problem; those from ``IMPOSSIBLE`` down forbid."""
    return _parse(text, MAX_SUM)


def _parse(text: Text, semiring: Semiring) -> Problem:
    text = text.without_comments()
    kind = text.word(0, "MARKOV or BAYES")
    if kind.upper() not in KINDS:
        raise text.expected("MARKOV or BAYES", 0)
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
    tables: dict[tuple[bytes, tuple[int, ...]], tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
    for number, scope in enumerate(scopes):
        entries = text.integer(cursor, f"the number of entries of factor {number}", low=0)
        shape = tuple(sizes[v] for v in scope)
        if entries != math.prod(shape):
            raise text.error(
                cursor, f"found {entries} entries, expected {math.prod(shape)} for factor {number}, {shape}"
            )
        key = text.between(cursor + 1, cursor + entries) if 0 < entries <= SHARED_ENTRIES else b"", shape
        if not key[0] or key not in tables:
            values = text.floats(cursor + 1, entries, f"an entry of factor {number}")
            if semiring == MAX_PRODUCT and (values < 0).any():
                bad = cursor + 1 + int(np.argmax(values < 0))
                wanted = f"an entry of factor {number}, at least 0: a file of logarithms is one of the format lg"
                raise text.expected(wanted, bad)
            feasible = np.flatnonzero(values if semiring == MAX_PRODUCT else values > IMPOSSIBLE)
            tables[key] = tuples_at(feasible, shape), values[feasible]
        functions.append(Function(scope, *tables[key]))
        cursor += 1 + entries
    text.expect_end(cursor, f"the {factors} tables")
    variables = tuple(Variable(str(v), size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), constant=semiring.one, semiring=semiring, name=text.stem)


def _read_scope(text: Text, cursor: int, number: int, count: int) -> tuple[tuple[int, ...], int]:
    arity = text.integer(cursor, f"the number of variables of factor {number}", 0, count)
    what = f"a variable of factor {number}"
    scope = tuple(text.integers(cursor + 1, arity, what).tolist()) if cursor + arity < len(text) else (-1,)
    if scope and not 0 <= min(scope) <= max(scope) < count:
        scope = tuple(text.integer(cursor + 1 + i, what, 0, count - 1) for i in range(arity))
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


Evidence = str | Path | Mapping[str, str | int] | Mapping[int, int] | Sequence[str | Path]
"""A file, a pair such as ``rain=yes``, several of both, or variable name to value, or variable index to value index."""


def evidence_of(given: Evidence, problem: Problem, max_bytes: int | None = None) -> dict[int, int]:
    """Variable index to value index of whatever evidence was given.

    A text is a pair where it begins with a variable's name and ``=``, else a file. Values are as for
    :func:`oocbe.model.names.value_index`: labels, else positions.

    Raises UsageError: a pair with a value that the variable does not have, a variable that is given two different
    values, or a file that cannot be opened; FormatError, UnsupportedError: see :func:`parse_evidence`.
    """
    if not isinstance(given, str | Path | Sequence):  # also a series of pandas
        return indices_of(problem, given)
    evidence: dict[int, int] = {}
    index = {v.name: number for number, v in enumerate(problem.variables)}
    for item in [given] if isinstance(given, str | Path) else given:
        if not isinstance(item, str | Path):
            raise UsageError(f"evidence {item!r:.100}: give values by name, {{'rain': 'yes'}}, a file, or 'rain=yes'")
        pair = _pair(str(item), index, problem)
        found = parse_evidence(Text(item, read_bytes(item, max_bytes)), problem) if pair is None else dict([pair])
        for variable, value in found.items():
            if evidence.setdefault(variable, value) != value:
                name = problem.variables[variable].name
                raise UsageError(f"evidence {item}: variable {name!r} has been given another value before")
    return evidence


def _pair(item: str, index: Mapping[str, int], problem: Problem) -> tuple[int, int] | None:
    """Variable and value of a text such as ``rain=yes``; None where it is the name of a file."""
    name, equals, label = item.partition("=")
    while equals and name not in index and "=" in label:  # names may have the sign, too
        more, _, label = label.partition("=")
        name = f"{name}={more}"
    if not equals or (name not in index and os.path.exists(item)):  # noqa: PTH110 (no error for long texts)
        return None
    shown = item if len(item) <= SHOWN_CHARACTERS else f"{item[:SHOWN_CHARACTERS]}…"
    if name not in index:
        raise UsageError(f"evidence {shown}: no such file is there, and {unknown_variable(problem, name)}")
    try:
        return index[name], value_index(problem.variables[index[name]], label)
    except UsageError as error:
        raise UsageError(f"evidence {shown}: {error}") from None


def parse_evidence(text: Text, problem: Problem) -> dict[int, int]:
    """Variable index to value index.

    Variables and values are indices, whatever their names and labels. Two layouts exist: ``n variable value …``, and an
    older one with the number of samples before that. A file of one sample has an odd number of numbers in the first and
    an even one in the second, so there is nothing to guess.

    Raises FormatError: malformed, or a variable or value that the problem does not have; UnsupportedError: more than
    one sample, see :func:`parse_samples`.
    """
    samples = parse_samples(text, problem)
    if len(samples) != 1:
        raise UnsupportedError(
            f"{text.path}: {len(samples)} samples of evidence; split the file, one sample each, or query a junction "
            "tree (oocbe compile, oocbe query) about all of them"
        )
    return samples[0]


def parse_samples(text: Text, problem: Problem) -> list[dict[int, int]]:
    """Variable index to value index for each sample of a file; see :func:`parse_evidence` for its layouts.

    Raises FormatError: malformed, or a variable or value that the problem does not have.
    """
    text = text.without_comments()
    first = text.integer(0, "the number of observed variables", low=0)
    is_older = (first == 1 and len(text) % 2 == 0) or _holds_samples(text, first)
    cursor = int(is_older)
    samples = []
    for _ in range(first if is_older else 1):
        observed = text.integer(cursor, "the number of observed variables", low=0)
        evidence: dict[int, int] = {}
        for pair in range(cursor + 1, cursor + 1 + 2 * observed, 2):
            variable = text.integer(pair, "an observed variable", 0, len(problem.variables) - 1)
            if variable in evidence:
                raise text.error(pair, f"found variable {variable} a second time, expected each observed variable once")
            size = problem.variables[variable].size
            evidence[variable] = text.integer(pair + 1, f"a value of variable {variable}", 0, size - 1)
            warn_of_position(problem.variables[variable], evidence[variable])
        cursor += 1 + 2 * observed
        samples.append(evidence)
    text.expect_end(cursor, f"the {observed} observed variables")
    return samples


def _holds_samples(text: Text, samples: int) -> bool:
    """Whether the file consists of exactly so many samples in the older layout, and not of one in the newer."""
    if samples < 2 or len(text) == 1 + 2 * samples:
        return False
    cursor = 1
    for _ in range(samples):
        if not text.is_integer(cursor):
            return False
        cursor += 1 + 2 * max(0, text.integer(cursor, "the number of observed variables"))
    return cursor == len(text)
