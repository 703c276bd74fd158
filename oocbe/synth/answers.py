"""What joins and marginalisations of synthetic tables must give, in closed form, and the check of a result against it.

Each row of a result is checked by itself: its own values must occur in its group and agree in parity, and its value is
computed anew from the generator. That all rows are there, each once, is seen from their number, known in closed form,
and from the sums of their consecutive numbers and of the squares of these, modulo 2^64; for a sorted result, whose keys
ascend strictly, the number of rows alone is proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from oocbe.cluster.workers import current
from oocbe.settings.tuning import tuning
from oocbe.synth.row_checks import JoinedRows, MarginalisedRows, RowChecker, check_tables, joined_pieces
from oocbe.synth.segments import check_by
from oocbe.synth.tables import SyntheticTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

WORD = 1 << 64
"""Number of values of a 64-bit word: sums are compared modulo it."""


@dataclass(frozen=True)
class ResultCheck:
    """Whether a result is right.

    Attributes
    ----------
    rows, expected_rows : that it has, and must have.
    fault : what is wrong; empty for nothing.
    """

    rows: int
    expected_rows: int
    fault: str = ""


def check_joined(result: StoredTable | Table, first: SyntheticTable, second: SyntheticTable) -> ResultCheck:
    """Check the join sum of two tables of one family; with ``e`` marginalised out where the result has no ``e``."""
    _, pairs = joined_pieces(first, second)
    expected = pairs if "e" not in result.layout else pairs * (first.domain // 2)
    verdict, sums = _check_rows(result, expected, JoinedRows(first, second))
    wanted = [expected, expected * (expected - 1) // 2, expected * (expected - 1) * (2 * expected - 1) // 6]
    if not verdict.fault and sums != [number % WORD for number in wanted]:
        return ResultCheck(verdict.rows, expected, "rows are missing, or there twice: their numbers do not add up")
    return verdict


def check_marginalised(result: StoredTable | Table, table: SyntheticTable) -> ResultCheck:
    """Check the marginalisation of a table over its own variable."""
    last = [*(int(rank) for rank in table.classes[1:, 0]), table.groups]
    expected = sum(
        (high - int(low)) * (table.domain if count > 1 else table.domain // 2)
        for (low, count, _), high in zip(table.classes, last, strict=True)
    )
    if not result.is_sorted:
        return ResultCheck(result.rows, expected, "the result is not sorted")
    return _check_rows(result, expected, MarginalisedRows(table))[0]


def _check_rows(result: StoredTable | Table, expected: int, checker: RowChecker) -> tuple[ResultCheck, list[int]]:
    """Check all rows, those of a large table on disk by workers where there are any; the sums of all rows."""
    if result.rows != expected:
        return ResultCheck(result.rows, expected, f"{result.rows:,} rows instead of {expected:,}"), []
    workers = current()
    if isinstance(result, Table):
        wrong, sums = check_tables([result], checker)
    elif workers is None or result.rows < tuning().segment_rows:
        wrong, sums = check_tables(result.chunks(), checker)
    else:
        wrong, sums = check_by(workers, result, checker)
    if wrong >= 0:
        return ResultCheck(result.rows, expected, f"row {wrong:,} is none of the result's, or has another value"), []
    return ResultCheck(result.rows, expected), sums
