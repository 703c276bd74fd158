"""Cases from files: a table of values, JSON, or UAI evidence of any number of samples.

=========  ===========================================================================================================
``.csv``   variable names in the first line, then a line for each case; empty fields are unobserved
``.json``  a list of objects, each from variable name to value
``.evid``  UAI evidence, of indices; with several samples their number comes first
=========  ===========================================================================================================

Values are labels, as text or as numbers, else positions (:func:`oocbe.model.names.value_index`), in CSV and JSON alike.
All of them may be compressed (``.gz``, ``.xz``).
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, UsageError, amount
from oocbe.formats.evidence import parse_samples
from oocbe.formats.files import read_bytes, without_compression
from oocbe.formats.text import Text
from oocbe.junction_trees.evidence import UNOBSERVED, cases_of
from oocbe.model.names import unknown_variable, value_index
from oocbe.model.problem import Problem

SUFFIXES = (".csv", ".json", ".evid")
"""Suffixes of files of cases, before ``.gz`` or ``.xz``."""


def read_cases(path: str | Path, problem: Problem) -> NDArray[np.int64]:
    """Value indices, (cases, variables), or :data:`oocbe.junction_trees.evidence.UNOBSERVED`.

    Raises
    ------
    FormatError : malformed, or a variable or value that the problem does not have; with the line, in text formats.
    UsageError : a file that cannot be opened, or of another kind.
    """
    suffix = without_compression(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: the name's suffix tells no kind of cases; known: {', '.join(SUFFIXES)}")
    data = read_bytes(path)
    if suffix == ".evid":
        samples = parse_samples(Text(path, data), problem)
        observed = np.full((len(samples), len(problem.variables)), UNOBSERVED, dtype=np.int64)
        for case, sample in enumerate(samples):
            for v, value in sample.items():
                observed[case, v] = value
        return observed
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, None, f"is no text in UTF-8 ({error.reason} at byte {error.start})") from None
    return _from_json(path, text, problem) if suffix == ".json" else _from_csv(path, text, problem)


def _from_json(path: str | Path, text: str, problem: Problem) -> NDArray[np.int64]:
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"is no JSON: {error.msg}") from None
    except ValueError as error:
        raise FormatError(path, None, f"has a number that is too long: {error}") from None
    except RecursionError:
        raise FormatError(path, None, "is nested too deeply; expected a list of objects") from None
    if not isinstance(given, list):
        raise FormatError(path, 1, "expected a list of objects, one for each case")
    try:
        return cases_of(problem, given).observed
    except UsageError as error:
        raise FormatError(path, None, str(error)) from None


def _what_was_meant(column: str, problem: Problem) -> str:
    """A hint for a column that names no variable, such as a line whose values are not separated by commas."""
    names = {v.name for v in problem.variables}
    for mark, what in ((";", "semicolons"), ("\t", "tabs")):
        parts = column.split(mark)
        if len(parts) > 1 and any(part.strip() in names for part in parts):
            return f"its names are between {what}, and commas were expected: write the file with these"
    return str(unknown_variable(problem, column))


def _from_csv(path: str | Path, text: str, problem: Problem) -> NDArray[np.int64]:
    lines = csv.reader(io.StringIO(text), strict=True)
    index = {v.name: number for number, v in enumerate(problem.variables)}
    known: dict[tuple[int, str], int] = {}
    cases = []
    try:
        names = [name.strip() for name in next(lines, [])]
        for name in names:
            if name not in index:
                raise FormatError(path, 1, f"the column {name!r} is no variable; {_what_was_meant(name, problem)}")
        if not names or len(set(names)) < len(names):
            raise FormatError(path, 1, "expected the name of each observed variable once")
        columns = [index[name] for name in names]
        for cells in lines:
            if not cells and len(columns) > 1:
                continue  # an empty line; in a file of one column it is a case without evidence
            if len(cells) != len(columns) and not (not cells and len(columns) == 1):
                what = f"found {amount(len(cells), 'value')}, expected {len(columns)}, one a column"
                raise FormatError(path, lines.line_num, what)
            case = np.full(len(problem.variables), UNOBSERVED, dtype=np.int64)
            for v, cell in zip(columns, cells, strict=False):
                label = cell.strip()
                if not label:
                    continue
                if (v, label) not in known:
                    try:
                        known[v, label] = value_index(problem.variables[v], label)
                    except UsageError as error:
                        raise FormatError(path, lines.line_num, str(error)) from None
                case[v] = known[v, label]
            cases.append(case)
    except csv.Error as error:
        raise FormatError(path, lines.line_num, f"is no table of values: {error}") from None
    return np.array(cases, dtype=np.int64).reshape(len(cases), len(problem.variables))
