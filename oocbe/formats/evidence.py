"""Evidence: observed variables and their values, from files of the UAI competitions (``.evid``) or ``name=value``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from oocbe.errors import UnsupportedError, UsageError
from oocbe.formats.files import read_bytes
from oocbe.formats.text import SHOWN_CHARACTERS, Text
from oocbe.model.names import indices_of, unknown_variable, value_index, warn_of_position
from oocbe.model.problem import Problem

Evidence = str | Path | Mapping[str, str | int] | Mapping[int, int] | Sequence[str | Path]
"""A file, a pair such as ``rain=yes``, several of both, or variable name to value, or variable index to value index."""


def evidence_of(given: Evidence, problem: Problem, max_bytes: int | None = None) -> dict[int, int]:
    """Variable index to value index of whatever evidence was given.

    A text is a pair where it begins with a variable's name and ``=``, else a file. Values are as for
    :func:`oocbe.model.names.value_index`: labels, else positions.

    Raises
    ------
    UsageError : a pair with a value that the variable does not have, a variable that is given two different values, or
        a file that cannot be opened. FormatError, UnsupportedError : see :func:`parse_evidence`.
    """
    if isinstance(given, Mapping):
        return indices_of(problem, given)
    evidence: dict[int, int] = {}
    index = {v.name: number for number, v in enumerate(problem.variables)}
    for item in [given] if isinstance(given, str | Path) else given:
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
    if not equals or (name not in index and _exists(item)):
        return None
    shown = item if len(item) <= SHOWN_CHARACTERS else f"{item[:SHOWN_CHARACTERS]}…"
    if name not in index:
        raise UsageError(f"evidence {shown}: no such file is there, and {unknown_variable(problem, name)}")
    try:
        return index[name], value_index(problem.variables[index[name]], label)
    except UsageError as error:
        raise UsageError(f"evidence {shown}: {error}") from None


def _exists(name: str) -> bool:
    """Whether there is a file; a text that cannot be the name of one is none."""
    try:
        return Path(name).exists()
    except OSError:
        return False


def parse_evidence(text: Text, problem: Problem) -> dict[int, int]:
    """Variable index to value index.

    Variables and values are indices, whatever their names and labels. Two layouts exist: ``n variable value …``, and an
    older one with the number of samples before that. A file of one sample has an odd number of numbers in the first and
    an even one in the second, so there is nothing to guess.

    Raises
    ------
    FormatError : malformed, or a variable or value that the problem does not have.
    UnsupportedError : more than one sample, see :func:`parse_samples`.
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

    Raises
    ------
    FormatError : malformed, or a variable or value that the problem does not have.
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
