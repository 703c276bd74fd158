"""Generation of synthetic tables, and checks of results in closed form, in this process or by chunks on workers.

Each row of a result is checked separately: its own values must occur in its group and agree in parity, and its value is
recomputed from the generator. The number of rows, known in closed form, and the sums of their consecutive numbers and
of the squares of these, modulo 2^64, show that each row occurs exactly once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocbe.execution.cluster.dispatch import Dispatch, ItemRanges, PartCollector, halved_run
from oocbe.execution.cluster.segment_files import PartResult, TableAt, WorkerConfig, active, opened, written_part
from oocbe.execution.cluster.workers import Workers, current
from oocbe.kernels.cpu.threads import row_ranges, run_all
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.stress.kernels.cpu.synthetic import check_join, check_maximum, digest_rows
from oocbe.stress.tables import SyntheticTable, field_rows, rows_before
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.parts import PartsWriter
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from oocbe.tables.writer import CHUNK_ROWS

if TYPE_CHECKING:
    from oocbe.stress.kernels.cuda.synthetic import RowSums


@dataclass(frozen=True)
class ChunkSegment:
    """Chunks of a synthetic table to be written.

    circumstances, part : how, and the beginning of the path of the part. table, dtype, chunk_rows : what is written.
    chunks : their numbers.
    """

    circumstances: WorkerConfig
    part: Path
    table: SyntheticTable
    dtype: np.dtype[Any]
    chunk_rows: int
    chunks: range


@dataclass(frozen=True)
class CheckSegment:
    """Chunks of a result to check, by their numbers, and how."""

    circumstances: WorkerConfig
    folder: Path
    result: TableAt
    checker: RowChecker
    chunks: range


class Checked(NamedTuple):
    """Result of the check of some chunks: number of the first wrong row of these or -1, sums of rows, and seconds."""

    wrong: int
    sums: list[int]
    seconds: float


def write_chunks(segment: ChunkSegment) -> PartResult:
    """Write some chunks of a table; errors as for a segment of any operation
    (:mod:`oocbe.execution.cluster.segment_files`)."""
    begin = time.perf_counter()
    table, layout = segment.table, segment.table.layout

    def made() -> Iterator[Table]:
        for keys, values in table.chunks(segment.chunk_rows, segment.chunks):
            deadline.check()
            yield Table(layout, keys, values.astype(segment.dtype), MAX_SUM)

    with active(segment.circumstances, segment.part) as deadline:
        return written_part(segment.circumstances, segment.part, layout, segment.dtype, made(), begin)


def check_chunks(segment: CheckSegment) -> Checked:
    """Check some chunks of a result; errors as for :func:`write_chunks`."""
    begin = time.perf_counter()
    with active(segment.circumstances, segment.folder / "checked") as deadline:
        result = opened(segment.result)

        def tables() -> Iterator[Table]:
            for chunk in segment.chunks:
                deadline.check()
                yield result.read(result.chunk_start(chunk), result.chunk_start(chunk + 1))

        return Checked(*check_tables(tables(), segment.checker), time.perf_counter() - begin)


def write_table(table: SyntheticTable, path: Path, chunk_rows: int = CHUNK_ROWS) -> StoredTable:
    """Write a table as its ``write`` does, a large one by workers where there are any (errors as for that)."""
    workers = current()
    if workers is None or table.rows_made < tuning().segment_rows:
        return table.write(path, chunk_rows=chunk_rows)
    return write_by(workers, table, path, table.value_dtype(np.dtype(np.int32)), chunk_rows)


def write_by(workers: Workers, table: SyntheticTable, path: Path, dtype: np.dtype[Any], chunk_rows: int) -> StoredTable:
    """Have workers write a table, as a table of parts with the rows that one process writes, in their order.

    Raises ClusterError: the workers cannot go on; DiskError: the disk is full.
    """
    name, runs = f"table of {table.own}", ItemRanges(range(table.chunk_count(chunk_rows) + 1), workers)
    with PartsWriter(path, table.layout, dtype, MAX_SUM) as writer:
        parts = PartCollector(writer, name, workers)

        def segment_of(run: range, sharing: int) -> ChunkSegment:
            how = WorkerConfig.of(workers, Deadline(), DiskBudget(path.parent), sharing, chunk_rows)
            return ChunkSegment(how, writer.part_path().absolute(), table, dtype, chunk_rows, run)

        def done(run: range, made: PartResult) -> None:
            parts.add(runs.learn(run, made.seconds), made, run.start)

        kind = ("synthetic", dtype)
        Dispatch(name, workers, write_chunks, segment_of, done, _halves, Deadline(), kind).run(runs)
    return StoredTable.open(path)


def check_by(workers: Workers, result: StoredTable, checker: RowChecker) -> tuple[int, list[int]]:
    """Have workers check all rows of a result, as :func:`check_tables` does; ClusterError."""
    at, runs = TableAt.of(result), ItemRanges(range(result.chunk_count + 1), workers)
    name = f"check of {result.path.name}"
    totals = np.zeros(SUMS, dtype=np.uint64)
    wrong: list[int] = []

    def segment_of(run: range, sharing: int) -> CheckSegment:
        how = WorkerConfig.of(workers, Deadline(), DiskBudget(result.folder), sharing)
        return CheckSegment(how, result.folder.absolute(), at, checker, run)

    def done(run: range, checked: Checked) -> None:
        runs.learn(run, checked.seconds)
        if checked.wrong >= 0:
            wrong.append(result.chunk_start(run.start) + checked.wrong)
        else:
            totals[:] += np.array(checked.sums, dtype=np.uint64)

    kind = ("check", type(checker))
    Dispatch(name, workers, check_chunks, segment_of, done, _halves, Deadline(), kind).run(runs)
    return min(wrong, default=-1), [int(total) for total in totals]


_halves = partial(halved_run, what="a chunk of a synthetic table")


def joined_pieces(first: SyntheticTable, second: SyntheticTable) -> tuple[NDArray[np.int64], int]:
    """Ranges of ranks over which both tables' groups have constant sizes, and all matching pairs of own values.

    Returns int64 (ranges, 3): first rank, pairs before, pairs of each rank; and the number of pairs.
    """
    ranges: list[tuple[int, int]] = []
    for low in sorted({int(rank) for table in (first, second) for rank in table.classes[:, 0]}):
        count1, count2 = (
            int(t.classes[np.searchsorted(t.classes[:, 0], low, side="right") - 1, 1]) for t in (first, second)
        )
        ranges.append((low, -(-count1 // 2) * -(-count2 // 2) + (count1 // 2) * (count2 // 2)))
    return _pieces(ranges, first.groups)


def reduced_pieces(table: SyntheticTable) -> tuple[NDArray[np.int64], int]:
    """The same of a table marginalised over its own variable, with rows of the result in place of pairs."""
    ranges = [(low, table.domain if count > 1 else table.domain // 2) for low, count, _ in table.classes.tolist()]
    return _pieces(ranges, table.groups)


def _pieces(ranges: list[tuple[int, int]], groups: int) -> tuple[NDArray[np.int64], int]:
    *before, total = rows_before(ranges, groups)
    return np.array([(low, rows, own) for (low, own), rows in zip(ranges, before, strict=True)], dtype=np.int64), total


SUMS = 4
"""Number of sums over rows, modulo 2^64: of ones, their consecutive numbers, the squares of these, and a digest of
keys and values (:func:`oocbe.stress.kernels.cpu.synthetic.digest_rows`)."""


_LoopArguments = tuple[NDArray[np.int64], list[NDArray[np.int64]], list[NDArray[np.int64]], NDArray[np.int64]]
"""Arguments of a check's loop: fields, each table's classes and settings, and ranges of ranks with their rows."""


class RowChecker(ABC):
    """Checks rows of a result one by one; sent to workers unchanged."""

    eliminates = False

    @property
    @abstractmethod
    def expected(self) -> int:
        """Number of rows of the whole result."""

    def __call__(self, layout: Layout, keys: NDArray[np.uint64], values: NDArray[Any], sums: NDArray[np.uint64]) -> int:
        """Number of the first wrong row, or -1; adds the rows' sums (:data:`SUMS`) to ``sums``, uint64 (SUMS,)."""
        fields, classes, settings, pieces = self._loop_arguments(layout)
        sums[-1] += digest_rows(keys, values.astype(np.int64, copy=False))
        check: Any = partial(check_join, eliminates=self.eliminates) if len(classes) > 1 else check_maximum
        return int(check(keys, values, fields, *classes, *settings, pieces, sums))

    def on_device(self, layout: Layout) -> RowSums:
        """The same check on a device, of rows in one layout."""
        from oocbe.stress.kernels.cuda.synthetic import RowSums

        return RowSums(*self._loop_arguments(layout), self.eliminates)

    @abstractmethod
    def _loop_arguments(self, layout: Layout) -> _LoopArguments:
        """Arguments of the check's loop for rows in a layout."""


@dataclass(frozen=True)
class JoinCheck(RowChecker):
    """Checks rows of the join sum of two tables, with ``e`` marginalised out where it ``eliminates``."""

    first: SyntheticTable
    second: SyntheticTable
    eliminates: bool = True

    @property
    def expected(self) -> int:
        """See :class:`RowChecker`."""
        pairs = joined_pieces(self.first, self.second)[1]
        return pairs if self.eliminates else pairs * (self.first.domain // 2)

    def _loop_arguments(self, layout: Layout) -> _LoopArguments:
        first, second = self.first, self.second
        names = (first.own, second.own, *(() if self.eliminates else ("e",)), *first.layout.scope[2:])
        pieces, _ = joined_pieces(first, second)
        return field_rows(layout, names), [first.classes, second.classes], [first.settings, second.settings], pieces


@dataclass(frozen=True)
class MarginalisationCheck(RowChecker):
    """Checks rows of a table marginalised over its own variable."""

    table: SyntheticTable

    @property
    def expected(self) -> int:
        """See :class:`RowChecker`."""
        return reduced_pieces(self.table)[1]

    def _loop_arguments(self, layout: Layout) -> _LoopArguments:
        table, (pieces, _) = self.table, reduced_pieces(self.table)
        return field_rows(layout, ("e", *table.layout.scope[2:])), [table.classes], [table.settings], pieces


def check_tables(tables: Iterable[Table], checker: RowChecker) -> tuple[int, list[int]]:
    """Number of the first wrong row of tables laid end to end, or -1, and the sums of all rows; by all threads."""
    totals, start = np.zeros(SUMS, dtype=np.uint64), 0
    for chunk in tables:
        pieces = row_ranges(chunk.rows)
        sums = np.zeros((len(pieces), SUMS), dtype=np.uint64)
        calls = [
            (chunk.layout, np.ascontiguousarray(chunk.keys[:, low:high]), chunk.values[low:high], sums[i])
            for i, (low, high) in enumerate(pieces)
        ]
        for (low, _), wrong in zip(pieces, run_all(checker, calls), strict=True):
            if wrong >= 0:
                return start + low + wrong, []
        totals += sums.sum(axis=0)
        start += chunk.rows
    return -1, [int(total) for total in totals]


WORD = 1 << 64
"""Number of values of a 64-bit word: sums are compared modulo it."""


@dataclass(frozen=True)
class ResultCheck:
    """Outcome of the check of a result.

    rows, expected_rows : actual and expected number of rows. fault : text of the first error; empty if there is none.
    digest : of all rows, independent of their order and cutting; None where not all were checked.
    """

    rows: int
    expected_rows: int
    fault: str = ""
    digest: int | None = None


def check_joined(result: StoredTable | Table, first: SyntheticTable, second: SyntheticTable) -> ResultCheck:
    """Check the join sum of two tables of one family; with ``e`` marginalised out where the result has no ``e``."""
    return _check_rows(result, JoinCheck(first, second, "e" not in result.layout))


def check_marginalised(result: StoredTable | Table, table: SyntheticTable) -> ResultCheck:
    """Check the marginalisation of a table over its own variable."""
    checker = MarginalisationCheck(table)
    if not result.is_sorted:
        return ResultCheck(result.rows, checker.expected, "the result is not sorted")
    return _check_rows(result, checker)


def _check_rows(result: StoredTable | Table, checker: RowChecker) -> ResultCheck:
    """Check all rows, those of a large table on disk by workers where there are any."""
    expected = checker.expected
    if result.rows != expected:
        return ResultCheck(result.rows, expected, f"{result.rows:,} rows instead of {expected:,}")
    workers = current()
    if isinstance(result, Table):
        wrong, sums = check_tables([result], checker)
    elif workers is None or result.rows < tuning().segment_rows:
        wrong, sums = check_tables(result.chunks(), checker)
    else:
        wrong, sums = check_by(workers, result, checker)
    if wrong >= 0:
        return ResultCheck(result.rows, expected, f"row {wrong:,} is none of the result's, or has another value")
    return summed_up(sums, expected)


def summed_up(sums: Sequence[int], expected: int) -> ResultCheck:
    """The check of the sums over all rows (:data:`SUMS`) of a result with correct rows."""
    rows, numbers, squares, digest = sums
    wanted = expected, expected * (expected - 1) // 2, expected * (expected - 1) * (2 * expected - 1) // 6
    fault = ""
    if rows != expected:
        fault = f"{rows:,} rows instead of {expected:,}"
    elif (numbers, squares) != (wanted[1] % WORD, wanted[2] % WORD):
        fault = "rows are missing, or there twice: their numbers do not add up"
    return ResultCheck(rows, expected, fault, digest)
