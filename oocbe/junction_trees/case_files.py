"""Cases from files: a table of values, JSON, or UAI evidence of any number of samples.

=========  ===========================================================================================================
``.csv``   variable names in the first line, then a line for each case; empty fields are unobserved
``.json``  a list of objects, each from variable name to value
``.evid``  UAI evidence, of indices; with several samples their number comes first
=========  ===========================================================================================================

Values are labels, as text or as numbers, else positions (:func:`oocbe.model.names.value_index`), in CSV and JSON alike;
null in JSON is unobserved. All of them may be compressed (``.gz``, ``.xz``).

============  =================================================================================
``.csv``      a line a case: status, logarithm of the evidence's probability, posteriors of values
``.parquet``  the same columns, typed; needs pyarrow
``.zarr``     a group of arrays: ``is_possible``, ``log_evidence``, and ``posteriors/0`` and so on, with an axis of
              cases and one a variable, whose names and labels are attributes
``.mar``      UAI: the marginals of all variables
``.pr``       UAI: the decimal logarithm of the evidence's probability
``.mpe``      UAI: the most probable values of all variables
============  =================================================================================

UAI files of several samples have their number in the second line. These formats cannot express the answer for an
impossible sample, which raises an error.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import DiskError, FormatError, UsageError, amount
from oocbe.formats.files import read_bytes, without_compression
from oocbe.formats.solutions import line_of_logarithm, line_of_marginals, line_of_values, uai_text
from oocbe.formats.text import Text
from oocbe.formats.uai import parse_samples
from oocbe.junction_trees.batches import IMPOSSIBLE, BatchResult, labels_of
from oocbe.junction_trees.evidence import UNOBSERVED, cases_of
from oocbe.junction_trees.tree import JunctionTree
from oocbe.model.names import unknown_variable, value_index
from oocbe.model.problem import Problem
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.tables import disk
from oocbe.tables.parquet_source import sparing

SUFFIXES = (".csv", ".json", ".evid")
"""Suffixes of files of cases, before ``.gz`` or ``.xz``."""


def read_cases(path: str | Path, problem: Problem) -> NDArray[np.int64]:
    """Value indices, (cases, variables), or :data:`oocbe.junction_trees.evidence.UNOBSERVED`.

    Raises FormatError: malformed, or a variable or value that the problem does not have; with the line, in text
    formats; UsageError: a file that cannot be opened, or of another kind.
    """
    suffix = without_compression(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: unknown suffix of a file of cases; known: {', '.join(SUFFIXES)}")
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


CASE_COLUMNS = ("case", "status", "log_evidence")
"""Names of the columns before the posteriors."""

UAI_SUFFIXES = (".mar", ".pr", ".mpe")
"""Suffixes of files in UAI formats, compared without regard to upper and lower case."""


def table_of(result: BatchResult) -> str:
    """A batch as comma-separated values, with a column for each value, such as ``rain=yes`` or ``rain=yes,wind=no``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns, rows = result.columns()
    writer.writerow([*CASE_COLUMNS, *columns])
    for case, (status, logarithm, row) in enumerate(zip(result.status, result.log_evidence, rows, strict=True)):
        writer.writerow([case, status, repr(float(logarithm)), *map(repr, row.tolist())])
    return out.getvalue()


def json_of(result: BatchResult) -> list[dict[str, object]]:
    """A batch as JSON types, an object a case with columns of :func:`table_of`; None where a case is impossible."""
    columns, rows = result.columns()
    return [
        {
            "status": status,
            "log_evidence": float(logarithm) if math.isfinite(logarithm) else None,
            "posteriors": {
                name: x if math.isfinite(x) else None for name, x in zip(columns, row.tolist(), strict=True)
            },
        }
        for status, logarithm, row in zip(result.status.tolist(), result.log_evidence, rows, strict=True)
    ]


def parquet_of(result: BatchResult) -> bytes:
    """A batch as Parquet, columns as :func:`table_of`: int64, string, float64; UsageError: pyarrow is missing."""
    with sparing():
        import pyarrow.parquet

        table = result.to_arrow()
        table = table.add_column(0, "case", pyarrow.array(np.arange(table.num_rows)))
        out = io.BytesIO()
        pyarrow.parquet.write_table(table, out)
    return out.getvalue()


@data_limit.lifted()  # without memory, the thread of Zarr repeats an error for ever
def write_zarr(result: BatchResult, folder: Path) -> None:
    """Write a batch to a new Zarr group (format 3, see the module); UsageError: it exists; DiskError."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder}: exists already; remove it, or name another folder for the answers")
    import zarr

    with ThreadPoolExecutor(1) as pool:  # zarr's exit handler fails where it could not start the thread that it keeps
        pool.submit(int).result()
    try:
        with temporary_beside(folder, is_folder=True) as made:
            group = zarr.open_group(made, mode="a", zarr_format=3)
            group.create_array("log_evidence", data=result.log_evidence)
            group.create_array("is_possible", data=result.status != IMPOSSIBLE)
            for number, (names, found) in enumerate(result.groups()):
                labels = [labels_of(result.variables[name]) for name in names]
                attributes = {"variables": list(names), "labels": labels}
                group.create_array(f"posteriors/{number}", data=found, attributes=attributes)
            disk.rename(made, folder)
    except OSError as error:
        raise DiskError(f"{folder}: the answers cannot be written ({error.strerror or error})") from error


def uai_answer(tree: JunctionTree, cases: NDArray[np.int64], kind: str) -> str:
    """Answers to all samples in a UAI format, of :data:`UAI_SUFFIXES`; UsageError: a sample is impossible."""
    return uai_text(kind, list(_samples(tree, cases, kind)))


def _samples(tree: JunctionTree, cases: NDArray[np.int64], kind: str) -> Iterator[str]:
    variables = tree.problem.variables
    if kind == "mpe":
        for case, observed in enumerate(cases):
            tree.retract()
            tree.observe({variables[v].name: int(observed[v]) for v in np.flatnonzero(observed >= 0).tolist()})
            best = tree.mpe()
            if best is None:
                raise _impossible(case)
            yield line_of_values(best.indices)
        return
    result = tree.batch(cases, None if kind == "mar" else [])
    for case, (status, logarithm) in enumerate(zip(result.status, result.log_evidence, strict=True)):
        if status == IMPOSSIBLE:
            raise _impossible(case)
        if kind == "pr":
            yield line_of_logarithm(logarithm)
        else:
            yield line_of_marginals([result.marginals[v.name][case] for v in variables])


def _impossible(case: int) -> UsageError:
    return UsageError(
        f"sample {case}: its evidence is impossible, and this format has no answer for that; write a .csv file"
    )
