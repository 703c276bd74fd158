"""An immutable junction tree with rows on disk: how it is made, saved and opened.

A clique without zeros has all rows, and the weights of any stretch of them follow from their numbers. The rows of other
cliques are joined (:mod:`oocbe.junction_trees.kernels.cpu.clique_rows`) a *range* at a time: assignments with the same
values of the first variables, and an interval of values of the next one. A range of too many rows is halved, and a
single value is split by the next variable. Ranges are in the order of rows, so that work resumes at the first values
after a range.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oocbe
from oocbe.elimination.orders.order import OrderChoice
from oocbe.errors import CorruptDataError, LimitError, OocbeError, ResourceError, UnsupportedError, UsageError
from oocbe.junction_trees.compiled import LEAST_WEIGHT, CompiledTree, assembled
from oocbe.junction_trees.kernels.cpu.clique_rows import COMPLETE, number_rows
from oocbe.junction_trees.stored.folder import (
    FORMAT_NAME,
    PROBLEM_DTYPES,
    SEGMENT_NAME,
    Piece,
    PieceRows,
    StoredClique,
    Taker,
    TreeFolder,
    checked_cliques,
    describe_problem,
    packed,
    problem_arrays,
    read_array,
    read_pieces,
    read_problem,
    strides_of,
    write_arrays,
)
from oocbe.junction_trees.support import (
    Clique,
    CliqueJoin,
    Trie,
    certain_rows,
    children_of,
    cliques_of,
    places_of,
    product_of,
    trie_bytes,
)
from oocbe.junction_trees.weights import Weights, WeightTable, value_kind, weights_of
from oocbe.model.model_checks import as_number
from oocbe.model.problem import Problem, problem_digest
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag, looked
from oocbe.runtime.plain_files import plain_status
from oocbe.tables import disk
from oocbe.tables.scratch import ScratchFolder, default_parent

MOST_NUMBERS = 1 << 31
"""Maximum rows of a message, because maps have entries of four bytes."""


class RowMaker:
    """Makes a tree's rows by clique, within ``memory`` bytes; pieces already in the folder are not made again."""

    def __init__(
        self, folder: TreeFolder, problem: Problem, cliques: Sequence[Clique], weights: Weights, memory: int
    ) -> None:
        self._folder, self._cliques, self._weights, self._memory = folder, cliques, weights, memory
        self._sizes, self._name = problem.sizes, problem.name
        self._assigned, self._covered = places_of(cliques, weights.tables)
        self._kind = value_kind(problem.sizes)
        self._children = children_of(cliques)
        self.found: list[StoredClique] = []

    def run(self) -> bool:
        """Make all rows; False if a clique has none, so that every assignment has weight 0.

        Raises ResourceError: the rows of cliques without zeros exceed the disk, or the tables of a clique the memory;
        DiskError: the disk is full, or fails; TimeLimitError: the deadline passed.
        """
        self._check_room()
        for number in looked(range(len(self._cliques))):
            tables = [self._weights.tables[t] for t in (*self._assigned[number], *self._covered[number])]
            below = [self.found[c] for c in self._children[number]]
            is_complete = all(t.values is None for t in tables) and all(c.is_complete for c in below)
            made = self._folder.made[number]
            begin = made[-1].then if made else ()
            if is_complete:
                self._make_complete(number, *begin)
            else:
                self._make_sparse(number, begin, made[-1].last if made else None)
            done = self._stored(number, is_complete)
            if done.rows == 0:
                return False
            if done.separator_rows >= MOST_NUMBERS:
                raise ResourceError(f"{self._name}: a message of {done.separator_rows:,} rows; {MOST_NUMBERS:,} fit")
            self.found.append(done)
        self._folder.publish()
        return True

    def _check_room(self) -> None:
        """Raise ResourceError if the weights of cliques without zeros exceed the disk."""
        rows = certain_rows(self._sizes, self._cliques, self._weights.tables, self._assigned, self._covered)
        room = self._folder.budget.available + disk.size_of(self._folder.path)
        if 8 * rows > room:
            raise ResourceError(
                f"{self._name}: the cliques of this order have {rows:.4g} rows without a zero, more than memory has "
                f"room for, and the disk {room:,} bytes for {8 * rows:.3g} of theirs; find a better order "
                "(order_seconds), or observe variables before the tree is made"
            )

    def _piece_rows(self, row_bytes: int) -> int:
        fitting = self._memory // (2 * tuning().piece_copies * row_bytes)
        return max(tuning().few_rows, min(tuning().many_rows, fitting))

    def _make_complete(self, number: int, first: int = 0) -> None:
        clique = self._cliques[number]
        shape = self._clique(number, True)
        rows, group_rows = math.prod(shape.sizes), math.prod(shape.sizes[clique.separator :])
        tables = self._listed(number)
        strides = np.array([strides_of(shape, t.scope) for t in tables], dtype=np.int64).reshape(-1, len(shape.sizes))
        sizes = np.array(shape.sizes, dtype=np.int64)
        length = self._piece_rows(16 + 4 * len(tables))
        while first < rows:
            check_deadline()
            count = min(length, rows - first)
            numbers = np.empty((len(tables), count), dtype=np.int32)
            number_rows(first, sizes, strides, numbers, current_flag())
            check_deadline()
            weights = product_of(tables, numbers, count, self._weights.is_log)
            first_group, last_group = first // group_rows, (first + count - 1) // group_rows
            bounds = np.arange(first_group + 1, last_group + 1) * group_rows - first
            self._append(
                number,
                weights,
                np.concatenate([[0], bounds]),
                [weights.data.cast("B")],
                first,
                first_group,
                (last_group,),
                (first + count,),
            )
            first += count

    def _make_sparse(self, number: int, begin: tuple[int, ...], last: tuple[int, ...] | None) -> None:
        """Make the rows of a clique with zeros, from some values of its first variables on."""
        clique = self._cliques[number]
        walker = _Walker(clique, self._sizes, *self._tries(number), self._kind)
        tables = self._listed(number)
        length = self._piece_rows(walker.row_bytes)
        before = [m.piece for m in self._folder.made[number]]
        first, group = (
            (before[-1].first_row + before[-1].rows, before[-1].first_group + before[-1].groups) if before else (0, 0)
        )
        for values, numbers, groups, then in walker.ranges(begin, length):
            rows = values.shape[1]
            if rows == 0:
                continue
            head = tuple(int(x) for x in values[: clique.separator, 0])
            first_group = group - 1 if head == last else group
            last = tuple(int(x) for x in values[: clique.separator, groups[-2]])
            weights = product_of(tables, numbers[: len(tables)], rows, self._weights.is_log)
            lengths = np.diff(groups).astype(np.int32)
            parts = packed(weights, numbers[len(tables) :], lengths, values)
            self._append(number, weights, groups[:-1], parts, first, first_group, last, then)
            first, group = first + rows, first_group + len(lengths)

    def _append(
        self,
        number: int,
        weights: NDArray[np.float64],
        starts: NDArray[np.int64],
        parts: Sequence[memoryview],
        first: int,
        first_group: int,
        last: tuple[int, ...],
        then: tuple[int, ...],
    ) -> None:
        sums = np.zeros(1) if self._weights.is_log else np.add.reduceat(weights, starts)
        self._folder.append(
            parts,
            clique=number,
            rows=len(weights),
            first_row=first,
            first_group=first_group,
            groups=len(starts),
            last=last,
            then=then,
            peak=float(weights.max()),
            sums=(float(sums[0]), float(sums[-1]), float(sums.max())),
        )

    def _listed(self, number: int) -> list[WeightTable]:
        """A clique's own tables with weights."""
        own = [self._weights.tables[t] for t in self._assigned[number]]
        return [table for table in own if table.weights is not None]

    def _tries(self, number: int) -> tuple[list[Trie], list[int]]:
        """Tables and messages that a clique joins, and which of them are listed; ResourceError where too large."""
        tables = [self._weights.tables[t] for t in (*self._assigned[number], *self._covered[number])]
        children = self._children[number]
        wide = [(t.scope, t.values.shape[1]) for t in tables if t.values is not None]
        below = [self.found[c] for c in children]
        wide += [(own.clique.shared, own.separator_rows) for own in below if not own.is_complete]
        needed = sum(trie_bytes(scope, rows, self._sizes) for scope, rows in wide)
        if needed > self._memory // 2:
            raise ResourceError(
                f"{self._name}: the tables that clique {number} of {len(self._cliques)} is made of take {needed:,} "
                f"bytes, more than memory has room for, {self._memory // 2:,}; allow more memory, or find a better "
                "order (order_seconds)"
            )
        tries = [Trie.of(t.scope, t.values, self._sizes) for t in tables]
        tries += [Trie.of(own.clique.shared, self._separator_values(own), self._sizes) for own in below]
        listed = [i for i, t in enumerate(self._assigned[number]) if self._weights.tables[t].weights is not None]
        return tries, [*listed, *range(len(tables), len(tries))]

    def _separator_values(self, owner: StoredClique) -> NDArray[Any] | None:
        """Values of the rows of a clique's separator, (variables, rows), read from disk; None: all assignments."""
        scope = owner.clique.shared
        if owner.separator_rows == math.prod(self._sizes[v] for v in scope):
            return None
        found = np.empty((len(scope), owner.separator_rows), dtype=self._kind)
        for rows in read_pieces(self._folder.path, owner, self._weights.is_log):
            starts = rows.groups[:-1]
            for own, v in zip(found, scope, strict=True):
                own[rows.first_group : rows.first_group + len(starts)] = rows.values(v)[starts]
        return found

    def _clique(self, number: int, is_complete: bool) -> StoredClique:
        """The clique before its rows are made."""
        return StoredClique.of(
            self._sizes, self._cliques[number], self._children[number], self.found, is_complete=is_complete
        )

    def _stored(self, number: int, is_complete: bool) -> StoredClique:
        """The clique with its finished pieces."""
        made = self._folder.made[number]
        shape = self._clique(number, is_complete)
        if not made:
            return shape
        rows = sum(m.piece.rows for m in made)
        separator_rows = made[-1].piece.first_group + made[-1].piece.groups
        exponent, norm = 0, 0.0
        if not self._weights.is_log:
            exponent = math.frexp(max(m.peak for m in made))[1] - 1
            open_sum, after = 0.0, -1  # of the last group so far
            for m in made:
                first_sum, last_sum, greatest = m.sums
                goes_on = m.piece.first_group == after
                first_sum += open_sum if goes_on else 0.0
                norm = max(norm, first_sum, greatest)
                open_sum = first_sum if m.piece.groups == 1 else last_sum
                after = m.piece.first_group + m.piece.groups - 1
            norm = math.ldexp(norm, -exponent)
        pieces = tuple(m.piece for m in made)
        return replace(shape, rows=rows, separator_rows=separator_rows, pieces=pieces, exponent=exponent, norm=norm)


class _Walker:
    """Joins a clique's rows, range by range, of tables as ``tries``; ``listed``: those whose rows are numbered."""

    def __init__(
        self, clique: Clique, sizes: Sequence[int], tries: Sequence[Trie], listed: Sequence[int], kind: np.dtype[Any]
    ) -> None:
        self._sizes = [sizes[v] for v in clique.variables]
        self._starts = [0, *accumulate(self._sizes)][:-1]
        # One more table has the rows of the range.
        range_trie = Trie(clique.variables, np.full(sum(self._sizes), -1, dtype=np.int32), tuple(self._starts))
        self._join = CliqueJoin(clique, [range_trie, *tries], [1 + t for t in listed], sizes, kind)
        self.row_bytes = len(self._sizes) * kind.itemsize + 4 * len(listed) + 24  # of a row while it is made

    def ranges(
        self, begin: tuple[int, ...], most: int
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64], tuple[int, ...]]]:
        """Rows from some values of the first variables on, at most ``most`` (or the largest domain) at a time.
        Yields values, numbers and groups of a range's rows, as returned by the walk, and the first values after it."""
        waiting: list[tuple[tuple[int, ...], int, int]] = [((), 0, self._sizes[0])]
        while waiting:
            check_deadline()
            prefix, low, high = waiting.pop()
            if (*prefix, high - 1) < begin[: len(prefix) + 1]:
                continue  # the range ends before the start
            start, same = (*prefix, low), begin[: len(prefix) + 1]
            is_cut = start < same or (start == same and any(begin[len(prefix) + 1 :]))
            found = None if is_cut else self._walk(prefix, low, high, most)
            if found is not None:
                yield (*found, (*prefix, high))
            elif high - low > 1:
                middle = (low + high) // 2
                waiting += [(prefix, middle, high), (prefix, low, middle)]
            else:
                waiting.append(((*prefix, low), 0, self._sizes[len(prefix) + 1]))

    def _walk(
        self, prefix: tuple[int, ...], low: int, high: int, most: int
    ) -> tuple[NDArray[Any], NDArray[np.int32], NDArray[np.int64]] | None:
        """Rows of a range; None if they are too many and it can be split."""
        depth, join = len(prefix), self._join
        for level, (size, start) in enumerate(zip(self._sizes, self._starts, strict=True)):
            join.step_children[join.step_start[level]] = start if level <= depth else COMPLETE
            if level <= depth:
                own = join.children[start : start + size]
                own[:] = -1
                if level < depth:
                    own[prefix[level]] = 0
                else:
                    own[low:high] = np.arange(high - low)
        is_last = depth == len(self._sizes) - 1
        values, numbers, groups, finished = join.rows(max(most, self._sizes[-1]) if is_last else most)
        return (values, numbers, groups) if finished else None


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
        """The rows of a clique; errors as for :func:`oocbe.junction_trees.stored.folder.read_pieces`."""
        return read_pieces(self.folder, self.stored[clique], self.is_log, pieces)


def make_tree(
    problem: Problem,
    wanted: str | Sequence[str],
    search: Callable[[], OrderChoice],
    memory: int,
    target: Path | None,
    is_log: bool,
) -> StoredTree | None:
    """Make a problem's tree in a new folder, or resume after a killed process; None: every assignment has weight 0.

    problem, is_log : as for :func:`oocbe.junction_trees.compiled.tree_of`.
    wanted : the requested order. search : finds it, unless an earlier process has found one.
    memory : limit in bytes while it is made. target : the new folder; None: a temporary one, deleted with the tree.
    Raises UsageError: another process makes that tree, or the folder has an unfinished one of another problem;
    ResourceError, DiskError: see :class:`RowMaker`; UnsupportedError: see
    :func:`oocbe.junction_trees.weights.weights_of`.
    """
    if target is None:
        scratch = ScratchFolder(default_parent())
        try:
            tree = make_tree(problem, wanted, search, memory, scratch.path / SCRATCH_NAME, is_log)
        except BaseException:
            scratch.close(interrupted=True)
            raise
        if tree is None:
            scratch.close()
        else:
            weakref.finalize(tree, scratch.close)
        return tree
    with closing(TreeFolder(target)) as folder:
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
        maker = RowMaker(folder, problem, cliques, weights, memory)
        if weights.logarithm == -math.inf or not maker.run():
            folder.remove()
            return None
        stored = tuple(maker.found)
        logarithm = weights.logarithm + math.log(2) * sum(own.exponent for own in stored)
        with folder.budget.failing(folder.path):
            files = write_arrays(folder.path, problem_arrays(problem))
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
