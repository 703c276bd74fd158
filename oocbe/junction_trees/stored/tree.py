"""An immutable junction tree with rows on disk: how it is made, saved and opened."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import oocbe
from oocbe.elimination.orders.order import OrderChoice
from oocbe.errors import CorruptDataError, LimitError, OocbeError, ResourceError, UnsupportedError, UsageError
from oocbe.junction_trees.cliques import Clique, children_of, cliques_of
from oocbe.junction_trees.compiled import LEAST_WEIGHT, CompiledTree, assembled
from oocbe.junction_trees.stored.folder import TreeFolder
from oocbe.junction_trees.stored.pieces import SEGMENT_NAME, Piece, PieceRows, StoredClique, read_pieces
from oocbe.junction_trees.stored.rows import RowMaker
from oocbe.junction_trees.stored_problem import (
    FORMAT_NAME,
    PROBLEM_DTYPES,
    Taker,
    checked_cliques,
    describe_problem,
    problem_arrays,
    read_array,
    read_problem,
    write_arrays,
)
from oocbe.junction_trees.weights import Weights, weights_of
from oocbe.model.model_checks import as_number
from oocbe.model.problem import Problem
from oocbe.model.problem_digest import problem_digest
from oocbe.runtime.plain_files import plain_status
from oocbe.tables.scratch import ScratchFolder, default_parent

FORMAT_VERSION = 2
"""Version of the format of trees on disk."""

SCRATCH_NAME = "tree"
"""Name of a tree in a scratch folder, if the caller gave none."""


@dataclass(frozen=True, eq=False)
class StoredTree:
    """A problem's cliques, their rows on disk.

    problem : the problem; its values are weights or (log-sum-exp) logarithms of them.
    order : variables as they were eliminated. stored : the cliques, children before their parents.
    logarithm : natural logarithm of the factor divided out of all weights. is_log : whether weights are logarithms.
    folder : of the rows. memory : limit of a sweep, in bytes.
    seconds : wall time by phase: ``order`` and ``rows``. resumed_rows : rows that an earlier process had made.
    """

    problem: Problem
    order: tuple[int, ...]
    stored: tuple[StoredClique, ...]
    logarithm: float
    is_log: bool
    folder: Path
    memory: int
    seconds: dict[str, float] = field(default_factory=dict)
    resumed_rows: int = 0

    @property
    def is_possible(self) -> bool:
        """Whether any assignment has a nonzero weight; else no rows are stored."""
        return True

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """The cliques without their rows."""
        return tuple(own.clique for own in self.stored)

    @property
    def total_rows(self) -> int:
        """Rows of all cliques."""
        return sum(own.rows for own in self.stored)

    @property
    def width(self) -> int:
        """Variables of the largest clique, less one."""
        return max(len(own.sizes) for own in self.stored) - 1

    @property
    def work(self) -> float:
        """Cost of a sweep per case, as :attr:`oocbe.junction_trees.compiled.CompiledTree.work`."""
        return float(sum(own.rows * (2 + len(own.children)) for own in self.stored))

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """By variable, the clique that has it and the fewest rows."""
        found = [-1] * len(self.problem.variables)
        for number, own in enumerate(self.stored):
            for v in own.clique.variables:
                if found[v] < 0 or own.rows < self.stored[found[v]].rows:
                    found[v] = number
        return tuple(found)

    def rows(self, clique: int, pieces: Sequence[Piece] | None = None) -> Iterator[PieceRows]:
        """The rows of a clique; errors as for :func:`oocbe.junction_trees.stored.pieces.read_pieces`."""
        return read_pieces(self.folder, self.stored[clique], self.is_log, pieces)


def make_tree(
    problem: Problem,
    wanted: str | Sequence[str],
    search: Callable[[], OrderChoice],
    memory: int,
    folder: Path | None,
    is_log: bool,
) -> StoredTree | None:
    """Make a problem's tree in a new folder, or resume after a killed process; None: every assignment has weight 0.

    problem, is_log : as for :func:`oocbe.junction_trees.compiled.tree_of`.
    wanted : the requested order. search : finds it, unless an earlier process has found one.
    memory : limit in bytes while it is made. folder : the new folder; None: a temporary one, deleted with the tree.
    Raises UsageError: another process makes that tree, or the folder has an unfinished one of another problem;
    ResourceError, DiskError: see :class:`oocbe.junction_trees.stored.rows.RowMaker`; UnsupportedError: see
    :func:`oocbe.junction_trees.weights.weights_of`.
    """
    if folder is not None:
        return _make(problem, wanted, search, memory, folder, is_log)
    scratch = ScratchFolder(default_parent())
    try:
        tree = _make(problem, wanted, search, memory, scratch.path / SCRATCH_NAME, is_log)
    except BaseException:
        scratch.close(interrupted=True)
        raise
    if tree is None:
        scratch.close()
    else:
        weakref.finalize(tree, scratch.close)
    return tree


def _make(
    problem: Problem,
    wanted: str | Sequence[str],
    search: Callable[[], OrderChoice],
    memory: int,
    target: Path,
    is_log: bool,
) -> StoredTree | None:
    with TreeFolder(target) as folder:
        begin = time.perf_counter()
        asked = {
            "program": oocbe.__version__,
            "digest": problem_digest(problem),
            "order": wanted if isinstance(wanted, str) else list(wanted),
            "is_log": is_log,
        }
        found = folder.begun()
        if found is None:
            choice = search()
            order, cliques = choice.order, cliques_of(choice.order, choice.separators)
            listed = [[list(c.variables), c.separator, c.parent] for c in cliques]
            folder.begin({"asked": asked, "problem": problem.name, "found": list(order), "cliques": listed})
        else:
            if found["asked"] != asked:
                raise UsageError(
                    f"{target}: an unfinished tree of {found['problem']} is there, in {folder.path}, made from another "
                    "problem, order or version of oocbe; remove that folder, or name another one for the tree"
                )
            order, cliques = tuple(found["found"]), checked_cliques(found, len(problem.variables))
            folder.find_segments()
        resumed_rows = sum(made.piece.rows for own in folder.made.values() for made in own)
        searched = time.perf_counter()
        weights = weights_of(problem, order, is_log)
        if weights.logarithm > -math.inf and not is_log and _may_leave_range(weights, cliques):
            weights = weights_of(problem, order, True)
        maker = RowMaker(folder, problem.sizes, cliques, weights, memory, problem.name)
        if weights.logarithm == -math.inf or not maker.run():
            folder.remove()
            return None
        stored = tuple(maker.found)
        logarithm = weights.logarithm + math.log(2) * sum(own.exponent for own in stored)
        try:
            files = write_arrays(folder.path, problem_arrays(problem))
        except OSError as error:
            raise folder.budget.failure(error, str(folder.path)) from None
        entries = [[c.is_complete, c.rows, c.separator_rows, c.exponent, c.norm, c.pieces] for c in stored]
        record = record_of(problem, order, cliques, entries, logarithm, weights.is_log)
        folder.finish({**record, "files": files})
        seconds = {"order": searched - begin, "rows": time.perf_counter() - searched}
        return StoredTree(
            problem, order, stored, logarithm, weights.is_log, folder.target, memory, seconds, resumed_rows
        )


def _may_leave_range(weights: Weights, cliques: Sequence[Clique]) -> bool:
    """Whether products of a clique's factors could be too small for further products in float64."""
    home = {v: number for number, clique in enumerate(cliques) for v in clique.own}
    least = [0.0] * len(cliques)
    for table in weights.tables:
        if table.weights is not None:
            if not table.weights.min() > 0:
                return True
            least[home[table.scope[-1]]] += math.log2(float(table.weights.min()))
    return min(least, default=0.0) < math.log2(LEAST_WEIGHT)


def record_of(
    problem: Problem,
    order: Sequence[int],
    cliques: Sequence[Clique],
    entries: Sequence[Sequence[Any]],
    logarithm: float,
    is_log: bool,
) -> dict[str, Any]:
    """The record of a tree, without its files.

    entries : by clique, whether it is complete, its rows, separator rows, exponent, norm and pieces; none where every
        assignment has weight 0.
    """
    return {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        **describe_problem(problem),
        "order": list(order),
        "cliques": [[list(clique.variables), clique.separator, clique.parent] for clique in cliques],
        "stored": [[*entry[:-1], [list(piece) for piece in entry[-1]]] for entry in entries],
        "logarithm": None if logarithm == -math.inf else float(logarithm),
        "is_log": is_log,
    }


def tree_from(path: Path, record: Mapping[str, Any], memory: int) -> StoredTree | CompiledTree:
    """The tree of a record of version :data:`FORMAT_VERSION`; its rows are read and checked later, by sweeps.

    A tree without rows is in memory.

    Raises CorruptDataError: it is damaged, or no tree; TimeLimitError: the deadline passed.
    """
    try:
        arrays = {name: read_array(path, name, *record["files"][name]) for name in PROBLEM_DTYPES}
        for name, dtype in PROBLEM_DTYPES.items():
            if arrays[name].dtype != dtype:
                raise ValueError(f"{name} are {arrays[name].dtype}, expected {dtype}")
        takers = {name: Taker(array) for name, array in arrays.items()}
        problem = read_problem(record, takers)
        for taker in takers.values():
            taker.end()
        if sorted(record["order"]) != list(range(len(problem.sizes))):
            raise ValueError("the order does not have each variable once")
        cliques = checked_cliques(record, len(problem.sizes))
        order, entries, is_log = tuple(record["order"]), record["stored"], record["is_log"]
        if not isinstance(is_log, bool):
            raise ValueError("is_log is neither true nor false")
        if not entries and record["logarithm"] is None:
            return assembled(problem, order, cliques, (), -math.inf, is_log)
        logarithm = float(as_number("the logarithm", record["logarithm"]))
        if len(entries) != len(cliques):
            raise ValueError("rows of another number of cliques")
        if not entries:
            return assembled(problem, order, cliques, (), logarithm, is_log)
        stored: list[StoredClique] = []
        for clique, below, entry in zip(cliques, children_of(cliques), entries, strict=True):
            stored.append(_stored_clique(path, problem, clique, below, stored, entry))
        return StoredTree(problem, order, tuple(stored), logarithm, is_log, path.absolute(), memory)
    except (CorruptDataError, LimitError, ResourceError, UnsupportedError):
        raise
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OocbeError) as error:
        raise CorruptDataError(f"{path}: not what a tree is made of ({error}); compile it again") from error


def _stored_clique(
    path: Path,
    problem: Problem,
    clique: Clique,
    children: tuple[int, ...],
    found: Sequence[StoredClique],
    entry: Sequence[Any],
) -> StoredClique:
    is_complete, rows, separator_rows, exponent, norm, listed = entry
    pieces = tuple(Piece(*(int(x) for x in numbers)) for numbers in listed)
    sizes = tuple(problem.sizes[v] for v in clique.variables)
    end, group = 0, 0
    for piece in pieces:
        if piece.first_row != end or piece.rows < 1 or piece.groups < 1 or min(piece) < 0:
            raise ValueError("pieces that do not follow one another")
        if piece.first_group not in ((group,) if end == 0 or not piece.groups else (group - 1, group)):
            raise ValueError("groups that do not follow one another")
        end, group = end + piece.rows, piece.first_group + piece.groups
        segment = path / SEGMENT_NAME.format(piece.segment)
        try:
            size = plain_status(segment).st_size
        except OSError as error:
            raise CorruptDataError(f"{segment}: cannot be read ({error.strerror}); compile the tree again") from None
        if piece.offset + piece.size > size:
            raise CorruptDataError(
                f"{segment}: has {size:,} bytes, and rows up to byte {piece.offset + piece.size:,} are recorded; "
                "compile the tree again"
            )
    if end != rows or group != separator_rows or rows < 1:
        raise ValueError("another number of rows")
    if is_complete and (rows != math.prod(sizes) or group != math.prod(sizes[: clique.separator])):
        raise ValueError("a clique without zeros that has not all rows")
    if is_complete and any(not found[c].is_complete for c in children):
        raise ValueError("a clique without zeros above one that has some")
    counts = {"rows": int(rows), "separator_rows": int(separator_rows), "pieces": pieces}
    more = {"is_complete": bool(is_complete), "exponent": int(exponent), "norm": float(norm)}
    return StoredClique.of(problem.sizes, clique, children, found, **counts, **more)
