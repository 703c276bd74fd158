"""Makes a tree in memory, or on disk if its rows exceed the memory."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from oocbe.elimination.orders.order_choice import OrderChoice
from oocbe.errors import ResourceError
from oocbe.junction_trees.cliques import cliques_of
from oocbe.junction_trees.compiled import CompiledTree, assembled, find_order, tree_of
from oocbe.junction_trees.stored.folder import unfinished
from oocbe.junction_trees.stored.tree import StoredTree, make_tree
from oocbe.model.problem import Problem
from oocbe.model.settings.machine import give_back_large_blocks, resident_memory
from oocbe.model.settings.tuning import tuning


def room_of(memory: int) -> int:
    """Bytes for rows read from disk, given the memory limit of the process."""
    return max(int(tuning().sweep_share * memory), memory - resident_memory())


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

    Parameters
    ----------
    folder : of a tree on disk, see :func:`oocbe.junction_trees.stored.tree.make_tree`.
    The rest is as for :func:`oocbe.junction_trees.compiled.compile_tree`.

    Raises
    ------
    As these two.
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
