"""Expected results of joins and marginalisations of synthetic tables, in closed form, and the check of a result.

Each row of a result is checked separately: its own values must occur in its group and agree in parity, and its value is
recomputed from the generator. The number of rows, known in closed form, and the sums of their consecutive numbers and
of the squares of these, modulo 2^64, show that each row occurs exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oocbe.execution.cluster.workers import current
from oocbe.model.settings.tuning import tuning
from oocbe.stress.segments import JoinedRows, MarginalisedRows, RowChecker, check_by, check_tables
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

WORD = 1 << 64
"""Number of values of a 64-bit word: sums are compared modulo it."""


@dataclass(frozen=True)
class ResultCheck:
    """Outcome of the check of a result.

    Attributes
    ----------
    rows, expected_rows : actual and expected number of rows.
    fault : text of the first error; empty if there is none.
    digest : of all rows, independent of their order and cutting; None where not all were checked.
    """

    rows: int
    expected_rows: int
    fault: str = ""
    digest: int | None = None


def check_joined(result: StoredTable | Table, first: SyntheticTable, second: SyntheticTable) -> ResultCheck:
    """Check the join sum of two tables of one family; with ``e`` marginalised out where the result has no ``e``."""
    return _check_rows(result, JoinedRows(first, second, "e" not in result.layout))


def check_marginalised(result: StoredTable | Table, table: SyntheticTable) -> ResultCheck:
    """Check the marginalisation of a table over its own variable."""
    checker = MarginalisedRows(table)
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
    """The check of the sums over all rows (:data:`oocbe.stress.segments.SUMS`) of a result with correct rows."""
    rows, numbers, squares, digest = sums
    wanted = expected, expected * (expected - 1) // 2, expected * (expected - 1) * (2 * expected - 1) // 6
    fault = ""
    if rows != expected:
        fault = f"{rows:,} rows instead of {expected:,}"
    elif (numbers, squares) != (wanted[1] % WORD, wanted[2] % WORD):
        fault = "rows are missing, or there twice: their numbers do not add up"
    return ResultCheck(rows, expected, fault, digest)
