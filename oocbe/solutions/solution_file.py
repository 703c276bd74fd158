"""Solution files: what ``oocbe solve --solution`` writes and ``oocbe verify`` reads.

The text format has one line a variable, its name and its value's label, in any order::

    # oocbe solution, version 1
    # problem: daily
    # semiring: min-sum
    # value: 114
    photograph-0 13
    photograph-1 0

A line that starts with ``#`` is a comment; those of the form ``# key: value`` above are read back, all may be absent.
A name or label that contains white space, or starts with ``#`` or ``"``, is written as a JSON string. The other format
accepted is the JSON object that ``oocbe solve --json`` prints; its ``assignment`` and ``value`` are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oocbe.errors import FormatError, UsageError
from oocbe.model.problem import Problem
from oocbe.results.numerals import all_digits, digits, finite
from oocbe.results.result import Result

HEADER = "# oocbe solution, version 1"
"""First line of a solution file."""


@dataclass(frozen=True)
class Solution:
    """An assignment as a file states it, before any problem gives meaning to its names.

    Attributes
    ----------
    path : where it came from.
    labels : variable name to value label.
    lines : variable name to the 1-based line that states it; empty for JSON.
    claimed_value : the value that the file claims, or None.
    semiring : name of the semiring that it was solved in, or None.
    """

    path: str
    labels: dict[str, str]
    lines: dict[str, int]
    claimed_value: int | float | None = None
    semiring: str | None = None

    def assignment(self, problem: Problem) -> tuple[int, ...]:
        """Value index of each of the problem's variables.

        Raises
        ------
        FormatError : a variable or label that the problem does not have, or a variable that the file leaves out.
        """
        known = {v.name for v in problem.variables}
        for name in self.labels:
            if name not in known:
                raise FormatError(self.path, self.lines.get(name), f"{problem.name} has no variable {name!r}")
        values = []
        for v in problem.variables:
            if v.name not in self.labels:
                raise FormatError(self.path, None, f"variable {v.name!r} of {problem.name} has no value")
            labels = [v.label(value) for value in range(v.size)]
            if self.labels[v.name] not in labels:
                shown = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
                message = f"variable {v.name!r} has no value {self.labels[v.name]!r}; its values are {shown}"
                raise FormatError(self.path, self.lines.get(v.name), message)
            values.append(labels.index(self.labels[v.name]))
        return tuple(values)


def write_solution(result: Result, path: str | Path) -> None:
    """Write a result's assignment as text; :class:`UsageError` where the result has none."""
    labels = result.labels
    if labels is None:
        raise UsageError(f"{result.problem}: {result.status}; there is no assignment to write to {path}")
    write_assignment(labels, result.problem, result.semiring, result.value, path)


def write_assignment(
    labels: Mapping[str, str], problem: str, semiring: str, value: float | None, path: str | Path
) -> None:
    """Write an assignment (variable name to value label) as text, with the value that is claimed for it.

    A value that float64 cannot hold is not claimed.
    """
    claimed = finite(value)
    lines = [
        HEADER,
        f"# problem: {' '.join(problem.split())}",
        f"# semiring: {semiring}",
        f"# value: {digits(claimed) if isinstance(claimed, int) else claimed}",
        *(f"{_quote(name)} {_quote(label)}" for name, label in labels.items()),
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_solution(path: str | Path) -> Solution:
    """Read a solution file of either format; :class:`FormatError` says where it is damaged."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FormatError(path, None, "not a text file; expected a solution file or the JSON of a solve") from None
    if text.lstrip().startswith("{"):
        return _read_json(path, text)
    return _read_text(path, text)


def _quote(token: str) -> str:
    plain = token and not any(c.isspace() for c in token) and token[0] not in '#"'
    return token if plain else json.dumps(token)


def _tokens(path: str | Path, number: int, line: str) -> list[str]:
    decoder, tokens, rest = json.JSONDecoder(), [], line.strip()
    while rest:
        if rest[0] == '"':
            try:
                token, end = decoder.raw_decode(rest)
            except json.JSONDecodeError:
                raise FormatError(path, number, f"a quoted name does not end: {rest}") from None
        else:
            token = rest.split(maxsplit=1)[0]
            end = len(token)
        tokens.append(token)
        rest = rest[end:].lstrip()
    return tokens


def _read_text(path: str | Path, text: str) -> Solution:
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    claims: dict[str, str] = {}
    claimed: int | float | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            key, colon, content = line[1:].partition(":")
            if colon:
                claims[key.strip()] = content.strip()
            if colon and key.strip() == "value":
                claimed = _number(path, number, content.strip())
            continue
        tokens = _tokens(path, number, line)
        if not tokens:
            continue
        if len(tokens) != 2:
            raise FormatError(path, number, f"expected a variable's name and its value, not {line.strip()!r}")
        name, label = tokens
        if name in labels:
            raise FormatError(path, number, f"variable {name!r} already has a value on line {lines[name]}")
        labels[name], lines[name] = label, number
    return Solution(str(path), labels, lines, claimed, claims.get("semiring"))


def _number(path: str | Path, line: int | None, text: str) -> int | float | None:
    if text == "None":
        return None
    for convert in (int, float):
        try:
            with all_digits():
                number = convert(text)
        except ValueError:
            continue
        if finite(number) is not None:
            return number
    raise FormatError(path, line, f"the claimed value {text!r} is not a finite number")


def _read_json(path: str | Path, text: str) -> Solution:
    try:
        with all_digits():
            content = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"damaged JSON: {error.msg}") from None
    labels = content.get("assignment")
    if not isinstance(labels, dict):
        status = content.get("status", "unknown")
        raise FormatError(path, None, f"holds no assignment of variables to values (its status is {status!r})")
    value, semiring = content.get("value"), content.get("semiring")
    claimed = None if value is None else _number(path, None, digits(value) if isinstance(value, int) else str(value))
    return Solution(
        str(path),
        {str(name): str(label) for name, label in labels.items()},
        {},
        claimed,
        semiring if isinstance(semiring, str) else None,
    )
