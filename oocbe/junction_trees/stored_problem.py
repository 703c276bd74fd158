"""A problem and arrays on disk, in the format common to all stored trees."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError
from oocbe.junction_trees.arrays import joined
from oocbe.junction_trees.cliques import Clique
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.checksums import crc32
from oocbe.runtime.plain_files import plain_status
from oocbe.tables import disk

RECORD_NAME = "tree.json"
"""Name of the file that describes a stored tree."""

FORMAT_NAME = "oocbe-tree"
"""Name of the format in the record."""

PROBLEM_DTYPES: dict[str, np.dtype[Any]] = {
    "function_tuples": np.dtype(np.int64),
    "function_values": np.dtype(np.float64),
    "constraint_tuples": np.dtype(np.int64),
}
"""Dtypes of a problem's arrays."""


def is_tree(folder: Path) -> bool:
    """Whether a folder's record names the format of a junction tree."""
    return (folder / RECORD_NAME).exists()


def problem_arrays(problem: Problem) -> dict[str, NDArray[Any]]:
    """The numbers of a problem, concatenated by kind."""
    functions, constraints = problem.functions, problem.constraints
    return {
        "function_tuples": joined([f.tuples for f in functions], PROBLEM_DTYPES["function_tuples"]),
        "function_values": joined([f.values for f in functions], PROBLEM_DTYPES["function_values"]),
        "constraint_tuples": joined([c.tuples for c in constraints], PROBLEM_DTYPES["constraint_tuples"]),
    }


def describe_problem(problem: Problem) -> dict[str, Any]:
    """The part of a record that describes a problem, without its arrays."""
    assert not problem.linear_constraints  # nor bounds; both have been converted to tables
    assert problem.upper_bound is None and problem.lower_bound is None
    return {
        "name": problem.name,
        "variables": [[v.name, v.size, None if v.labels is None else list(v.labels)] for v in problem.variables],
        "semiring": problem.semiring.name,
        "constant": float(problem.constant),
        "functions": [[list(f.scope), len(f.values), _number(f.default)] for f in problem.functions],
        "constraints": [[list(c.scope), len(c.tuples), c.allowed] for c in problem.constraints],
    }


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Write and sync arrays to files; returns dtype, bytes and checksum of each, for the record; OSError."""
    files = {}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")
        disk.write_file(folder / name, data)
        disk.synchronise(folder / name)
        files[name] = [array.dtype.str, len(data), crc32(data)]
    return files


def read_array(folder: Path, name: str, dtype: str, size: int, checksum: int) -> NDArray[Any]:
    """An array written by :func:`write_arrays`; CorruptDataError if it differs from the record."""
    path = folder / name
    kind = np.dtype(dtype)
    if Path(name).name != name or kind.hasobject or size % kind.itemsize:
        raise CorruptDataError(f"{path}: {RECORD_NAME} has no usable record of it; compile the tree again")
    try:
        found = plain_status(path).st_size
    except OSError as error:
        why = "missing" if isinstance(error, FileNotFoundError) else error.strerror
        raise CorruptDataError(f"{path}: {why}; compile the tree again") from None
    if found != size:
        raise CorruptDataError(f"{path}: has {found:,} bytes instead of {size:,}; compile the tree again")
    array: NDArray[Any] = np.empty(size // kind.itemsize, dtype=kind)
    try:
        if size:
            disk.read_file_into(path, array.data.cast("B"))
    except OSError as error:
        raise CorruptDataError(f"{path}: cannot be read ({error.strerror})") from None
    if crc32(array.data.cast("B") if size else b"") != checksum:
        raise CorruptDataError(f"{path}: damaged, its checksum does not hold; compile the tree again")
    return array


class Taker:
    """Takes numbers from the front of an array."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._place = array, 0

    def take(self, count: int) -> NDArray[Any]:
        """The next numbers; ValueError if there are too few."""
        if count < 0 or self._place + count > len(self._array):
            raise ValueError("an array is too short")
        self._place += count
        return self._array[self._place - count : self._place]

    def end(self) -> None:
        """Raise ValueError if numbers are left."""
        if self._place != len(self._array):
            raise ValueError("an array is too long")


def checked_cliques(record: Mapping[str, Any], variables: int) -> tuple[Clique, ...]:
    """The cliques of a record; ValueError if they are no tree over so many variables."""
    cliques = tuple(Clique(tuple(v), int(separator), parent) for v, separator, parent in record["cliques"])
    for number, clique in enumerate(cliques):
        parent = clique.parent
        if not 0 <= clique.separator < len(clique.variables) or len(set(clique.variables)) < len(clique.variables):
            raise ValueError(f"clique {number} is none")
        if parent is None and clique.separator:
            raise ValueError(f"clique {number} has a separator and no parent")
        if parent is not None:
            if not number < parent < len(cliques):
                raise ValueError(f"clique {number} comes after its parent")
            if not set(clique.shared) <= set(cliques[parent].variables):
                raise ValueError(f"clique {number} shares other variables with its parent")
    if sorted(v for clique in cliques for v in clique.own) != list(range(variables)):
        raise ValueError("cliques do not have each variable once")
    return cliques


def read_problem(record: Mapping[str, Any], takers: Mapping[str, Taker]) -> Problem:
    """The problem of a record; ValueError, KeyError, TypeError or an error of the model if it is invalid."""
    for name, _, labels in record["variables"]:
        if not all(isinstance(text, str) for text in (name, *(labels or ()))):
            raise ValueError(f"variable {name!r} has a name or a label that is no text")
    variables = tuple(
        Variable(name, size, None if labels is None else tuple(labels)) for name, size, labels in record["variables"]
    )
    functions = []
    for scope, count, default in record["functions"]:
        tuples = takers["function_tuples"].take(len(scope) * count).reshape(count, len(scope))
        functions.append(Function(tuple(scope), tuples, takers["function_values"].take(count), default))
    constraints = []
    for scope, count, allowed in record["constraints"]:
        tuples = takers["constraint_tuples"].take(len(scope) * count).reshape(count, len(scope))
        constraints.append(Constraint(tuple(scope), tuples, bool(allowed)))
    return Problem(
        variables,
        tuple(functions),
        tuple(constraints),
        constant=record["constant"],
        semiring=record["semiring"],
        name=record["name"],
    )
