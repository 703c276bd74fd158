"""A tree on disk: a folder of arrays, and a record of their sizes and checksums that is written last.

The folder is made under a hidden name, synced to disk and renamed, so that it is complete or absent whenever the
process is killed. All input is checked before use, because the kernels do not check row numbers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import CorruptDataError, DiskError, OocbeError, UnsupportedError, UsageError
from oocbe.junction_trees.arrays import tree_arrays
from oocbe.junction_trees.compiled import CompiledTree, shape_of, sharing
from oocbe.junction_trees.stored.folder import LARGEST_RECORD
from oocbe.junction_trees.stored.tree import STORED_VERSION, StoredTree, copy_tree, tree_from
from oocbe.junction_trees.stored_problem import (
    FORMAT_NAME,
    PROBLEM_DTYPES,
    RECORD_NAME,
    Taker,
    checked_cliques,
    describe_problem,
    flat,
    problem_arrays,
    read_array,
    read_problem,
    write_arrays,
)
from oocbe.junction_trees.support import CliqueRows
from oocbe.junction_trees.weights import value_kind
from oocbe.model.model_checks import as_number
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.runtime.urls import refuse_url
from oocbe.tables import disk
from oocbe.tables.records import read_record, render_record

FORMAT_VERSION = 1
"""Version of the format."""

DTYPES: dict[str, np.dtype[Any]] = {
    "groups": np.dtype(np.int64),
    "numbers": np.dtype(np.int32),
    "weights": np.dtype(np.float64),
    **PROBLEM_DTYPES,
}
"""Dtypes of the stored arrays, except ``values``, which has the smallest dtype for the domains."""


def save_tree(tree: CompiledTree | StoredTree, folder: str | Path) -> None:
    """Write a tree to a new folder.

    Raises
    ------
    UsageError : the path exists, or its parent folder is missing. DiskError : it cannot be written.
    """
    refuse_url(folder, "a junction tree")
    if isinstance(tree, StoredTree):
        return copy_tree(tree, folder)
    target = Path(folder)
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target}: exists already; remove it, or name another folder for the tree")
    if not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: the folder {target.absolute().parent} does not exist; make it first")
    arrays = _arrays_of(tree)
    try:
        with temporary_beside(target, is_folder=True) as made:
            files = write_arrays(made, arrays)
            record = render_record({**_description(tree), "files": files})
            disk.write_file(made / RECORD_NAME, record)
            disk.synchronise(made / RECORD_NAME)
            disk.synchronise(made)
            disk.rename(made, target)
            disk.synchronise(target.absolute().parent)
    except OSError as error:
        raise DiskError(f"{target}: the tree cannot be written ({error.strerror or error})") from error


def open_tree(folder: str | Path, memory: int) -> CompiledTree | StoredTree:
    """A saved tree, read into memory; rows that were made on disk stay there.

    memory : bytes for sweeps over rows on disk.

    Raises
    ------
    UsageError : there is no such folder. CorruptDataError : it is damaged, or no tree. UnsupportedError : its format
        version is later.
    """
    refuse_url(folder, "a junction tree")
    path = Path(folder)
    if path.is_file():
        raise UsageError(
            f"{path}: this is a file, expected the folder of a junction tree; make one of a network by `oocbe compile "
            f"{path} TREE`, or JunctionTree(…).save in Python"
        )
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder; expected a junction tree that was saved (oocbe compile)")
    try:
        record = read_record(path / RECORD_NAME, LARGEST_RECORD, FORMAT_NAME)
    except FileNotFoundError:
        raise CorruptDataError(
            f"{path}: no {RECORD_NAME}, so this is no junction tree (oocbe compile makes one)"
        ) from None
    if record.get("version") == STORED_VERSION:
        return tree_from(path, record, memory)
    if record.get("version") != FORMAT_VERSION:
        raise UnsupportedError(
            f"{path}: version {record.get('version')!r} of the format; this program reads versions {FORMAT_VERSION} "
            f"and {STORED_VERSION}"
        )
    try:
        arrays = {name: read_array(path, name, *entry) for name, entry in record["files"].items()}
        return _made(record, arrays)
    except CorruptDataError:
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OocbeError) as error:
        raise CorruptDataError(f"{path}: not what a tree is made of ({error}); compile it again") from error


def _arrays_of(tree: CompiledTree) -> dict[str, NDArray[Any]]:
    """The numbers of a tree and its problem, concatenated by kind."""
    rows = tree.rows
    children = tree.shape.children
    numbers = [own.numbers[c] for own, below in zip(rows, children, strict=False) for c in below]
    return {
        "values": flat([r.values for r in rows], value_kind(tree.problem.sizes)),
        "groups": flat([r.groups for r in rows], DTYPES["groups"]),
        "numbers": flat(numbers, DTYPES["numbers"]),
        "weights": flat([r.weights for r in rows], DTYPES["weights"]),
        **problem_arrays(tree.problem),
    }


def _description(tree: CompiledTree) -> dict[str, Any]:
    return {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        **describe_problem(tree.problem),
        "order": list(tree.order),
        "cliques": [[list(c.variables), c.separator, c.parent] for c in tree.shape.cliques],
        "rows": [[r.rows, r.separator_rows] for r in tree.rows],
        "logarithm": None if tree.logarithm == -math.inf else float(tree.logarithm),
        "is_log": tree.is_log,
    }


def _made(record: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CompiledTree:
    takers = {name: Taker(array) for name, array in arrays.items()}
    problem = read_problem(record, takers)
    sizes = problem.sizes
    for name, dtype in {**DTYPES, "values": value_kind(sizes)}.items():
        if arrays[name].dtype != dtype:
            raise ValueError(f"{name} are {arrays[name].dtype}, expected {dtype}")
    if not isinstance(record["is_log"], bool):
        raise ValueError("is_log is neither true nor false")
    if sorted(record["order"]) != list(range(len(sizes))):
        raise ValueError("the order does not have each variable once")
    cliques = checked_cliques(record, len(sizes))
    shape_children: list[list[int]] = [[] for _ in cliques]
    for number, clique in enumerate(cliques):
        if clique.parent is not None:
            shape_children[clique.parent].append(number)
    counts = record["rows"]
    if counts and len(counts) != len(cliques):
        raise ValueError("rows of another number of cliques")
    rows = []
    for number, (count, separator_rows) in enumerate(counts):
        clique = cliques[number]
        values = takers["values"].take(len(clique.variables) * count).reshape(len(clique.variables), count)
        groups = takers["groups"].take(separator_rows + 1)
        maps = {}
        for child in shape_children[number]:
            maps[child] = takers["numbers"].take(count)
            if count and not (maps[child].min() >= 0 and maps[child].max() < counts[child][1]):
                raise ValueError(f"clique {number} has rows of a message that are none")
        if count < 1 or groups[0] != 0 or groups[-1] != count or (np.diff(groups) < 1).any():
            raise ValueError(f"clique {number} has groups that are none")
        if any(values[i].max() >= sizes[v] for i, v in enumerate(clique.variables)):
            raise ValueError(f"clique {number} has values that its variables have not")
        weights = takers["weights"].take(count)
        if not np.isfinite(weights).all() or (not record["is_log"] and (weights.min() < 0 or weights.max() <= 0)):
            raise ValueError(f"clique {number} has weights that are none")
        rows.append(CliqueRows(values, groups, maps, {}, weights))
    for taker in takers.values():
        taker.end()
    is_log = record["is_log"]
    made, places, _ = tree_arrays(sizes, cliques, rows, is_log)  # weights were divided when the tree was made
    logarithm = -math.inf if record["logarithm"] is None else float(as_number("the logarithm", record["logarithm"]))
    shape = shape_of(cliques, places)
    shared = tuple(sharing(rows, made, places))
    return CompiledTree(problem, tuple(record["order"]), shape, shared, made, logarithm, is_log, {})
