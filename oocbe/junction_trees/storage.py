"""Saved trees: a folder of rows and of the problem's arrays, and a record of their sizes and checksums, written last.

The folder is made under a hidden name, synced to disk and renamed, so that it is complete or absent whenever the
process is killed. Trees made in memory and on disk have one format (:mod:`oocbe.junction_trees.stored`): a saved tree
is read into memory if it fits, and else swept over from the disk.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import OrderChoice
from oocbe.errors import CorruptDataError, DiskError, ResourceError, UnsupportedError, UsageError
from oocbe.junction_trees.cliques import cliques_of
from oocbe.junction_trees.compiled import CompiledTree, assembled, find_order, tree_of
from oocbe.junction_trees.stored.folder import check_new, unfinished
from oocbe.junction_trees.stored.pieces import SEGMENT_NAME, Piece, open_segment, packed, write_parts
from oocbe.junction_trees.stored.tree import FORMAT_VERSION, StoredTree, make_tree, record_of, tree_from
from oocbe.junction_trees.stored_problem import FORMAT_NAME, PROBLEM_DTYPES, RECORD_NAME, problem_arrays, write_arrays
from oocbe.junction_trees.support import ROW_BYTES, CliqueRows
from oocbe.model.problem import Problem
from oocbe.model.settings.machine import give_back_large_blocks, resident_memory
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.runtime.urls import refuse_url
from oocbe.tables import disk
from oocbe.tables.manifest import read_record, render_record

PIECE_ROWS = 1 << 16
"""Maximum rows of a piece: a few MiB, so that a sweep from the disk fits little memory."""


def save_tree(tree: CompiledTree | StoredTree, folder: str | Path) -> None:
    """Write a tree to a new folder; does nothing if its rows are in that folder already.

    Raises UsageError: the path exists, or its parent folder is missing; DiskError: it cannot be written.
    """
    refuse_url(folder, "a junction tree")
    target = Path(folder).absolute()
    if isinstance(tree, StoredTree) and target == tree.folder:
        return
    check_new(folder)
    try:
        with temporary_beside(target, is_folder=True) as made:
            if isinstance(tree, StoredTree):
                buffer = memoryview(bytearray(1 << 22))
                segments = {SEGMENT_NAME.format(p.segment) for own in tree.stored for p in own.pieces}
                for name in sorted({*segments, *PROBLEM_DTYPES, RECORD_NAME}):
                    disk.copy_file(tree.folder / name, made / name, buffer)
                    disk.synchronise(made / name)
            else:
                _write(tree, made)
            disk.synchronise(made)
            disk.rename(made, target)
            disk.synchronise(target.parent)
    except OSError as error:
        raise DiskError(f"{folder}: the tree cannot be written ({error.strerror or error})") from error


def _write(tree: CompiledTree, made: Path) -> None:
    """Write the rows of a tree to one segment, then its problem and its record."""
    path, offset = made / SEGMENT_NAME.format(0), 0
    is_complete: list[bool] = []
    entries: list[list[Any]] = []
    handle = open_segment(path)
    try:
        for number, (clique, own) in enumerate(zip(tree.cliques, tree.rows, strict=False)):
            cells = math.prod(tree.problem.sizes[v] for v in clique.variables)
            is_complete.append(own.rows == cells and all(is_complete[c] for c in tree.shape.children[number]))
            pieces = []
            for first in range(0, own.rows, PIECE_ROWS):
                check_deadline()
                last = min(first + PIECE_ROWS, own.rows)
                group, end = (int(g) for g in np.searchsorted(own.groups, [first, last - 1], side="right"))
                bounds: NDArray[np.int64] = np.clip(own.groups[group - 1 : end + 1], first, last)
                lengths = np.diff(bounds)
                parts = [own.weights[first:last].data.cast("B")]
                if not is_complete[number]:
                    maps = [own.numbers[c][first:last] for c in tree.shape.children[number]]
                    numbers, values = np.array(maps, dtype=np.int32), own.values[:, first:last]
                    parts = packed(own.weights[first:last], numbers, lengths.astype(np.int32), values)
                size, checksum = write_parts(handle, parts, offset, path)
                pieces.append(Piece(0, offset, size, checksum, last - first, first, group - 1, len(lengths)))
                offset += size
            norm = 0.0 if tree.is_log else float(tree.arrays.norms[number])
            entries.append([is_complete[number], own.rows, own.separator_rows, 0, norm, pieces])
    finally:
        os.close(handle)
    disk.synchronise(path)
    files = write_arrays(made, problem_arrays(tree.problem))
    record = record_of(tree.problem, tree.order, tree.cliques, entries, tree.logarithm, tree.is_log)
    disk.write_file(made / RECORD_NAME, render_record({**record, "files": files}))
    disk.synchronise(made / RECORD_NAME)


def open_tree(folder: str | Path, memory: int) -> CompiledTree | StoredTree:
    """A saved tree, read into memory if its rows fit; else they stay on disk.

    memory : bytes for rows, or for sweeps over rows on disk.

    Raises UsageError: there is no such folder; CorruptDataError: it is damaged, or no tree; UnsupportedError: its
    format version is another.
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
        record = read_record(path / RECORD_NAME, FORMAT_NAME)
    except FileNotFoundError:
        raise CorruptDataError(
            f"{path}: no {RECORD_NAME}, so this is no junction tree (oocbe compile makes one)"
        ) from None
    if record.get("version") != FORMAT_VERSION:
        raise UnsupportedError(
            f"{path}: version {record.get('version')!r} of the format; this program reads version {FORMAT_VERSION}; "
            "compile the tree again (oocbe compile)"
        )
    tree = tree_from(path, record, memory)
    if isinstance(tree, StoredTree) and ROW_BYTES * tree.total_rows <= memory:
        return _in_memory(tree)
    return tree


def _in_memory(tree: StoredTree) -> CompiledTree:
    rows = []
    for number, own in enumerate(tree.stored):
        parts = list(tree.rows(number))
        groups = np.flatnonzero(np.diff(np.concatenate([p.up for p in parts]), prepend=-1, append=-1))
        values = [np.concatenate([p.values(v) for p in parts]) for v in own.clique.variables]
        numbers = {
            child: np.concatenate([p.numbers((child, scope))[0] for p in parts])
            for child, scope in zip(own.children, own.child_scopes, strict=True)
        }
        weights = np.concatenate([p.weights for p in parts])
        rows.append(CliqueRows(np.array(values, dtype=own.kind), groups, numbers, {}, weights))
    return assembled(tree.problem, tree.order, tree.cliques, rows, tree.logarithm, tree.is_log)


def room_of(memory: int) -> int:
    """Bytes for rows read from disk, given the memory limit of the process."""
    return max(int(tuning().half_share * memory), memory - resident_memory())


def make_or_store(
    problem: Problem,
    wanted: str | Sequence[str],
    memory: int,
    folder: Path | None,
    *,
    order_seconds: float,
    seed: int,
    is_log: bool,
) -> CompiledTree | StoredTree:
    """A problem's tree: in memory if it fits, else on disk.

    folder : of a tree on disk, see :func:`oocbe.junction_trees.stored.tree.make_tree`.
    The rest is as for :func:`oocbe.junction_trees.compiled.find_order` and
    :func:`oocbe.junction_trees.compiled.tree_of`.
    Raises the errors of these three functions.
    """
    choice: OrderChoice | None = None

    def search() -> OrderChoice:
        return find_order(problem, wanted, order_seconds, seed) if choice is None else choice

    if folder is None or not unfinished(folder.absolute()).exists():
        begin = time.perf_counter()
        choice = search()
        spent = time.perf_counter() - begin
        try:
            tree = tree_of(problem, choice.order, choice.separators, memory, is_log=is_log)
            return replace(tree, seconds={"order": spent, **tree.seconds})
        except ResourceError:
            pass
    give_back_large_blocks()
    stored = make_tree(problem, wanted, search, room_of(memory), folder, is_log)
    if stored is not None:
        return stored
    choice = search()
    return assembled(problem, choice.order, cliques_of(choice.order, choice.separators), (), -math.inf, False)
