"""Tables of elimination with rows held against bounds: the same bits however they are made, and rows that count.

Which functions a join sums beforehand depends on the rows of its tables: many repay larger lookups. So where rows were
dropped, sums of floats may be made in another order than where none were, and differ by rounding.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from .bound_checks import Assignments, counted
from .descriptions import Description
from .outcome import Tally

if TYPE_CHECKING:
    from oocbe.elimination.engine.bucket_engine import BucketEngine
    from oocbe.elimination.row_pruning.row_bounds import BoundSource
    from oocbe.model.problem import Problem
    from oocbe.tables.table import Table

Message = tuple[int, tuple[int, ...], "Table"]
"""The variable eliminated, scope and rows."""


def check_tables(problem: Problem, source: Any, own: Assignments, case: Description, tally: Tally) -> None:
    """Messages with rows held against a source, in two ways; and where nothing is dominated, against all rows.

    problem : with its upper bound. own : assignments below it.
    """
    from oocbe.elimination.engine.bucket_engine import BucketEngine
    from oocbe.elimination.engine.consumption import carried_in_rows, left_out
    from oocbe.elimination.preparation.ranges import rounding_margin
    from oocbe.errors import ValueRangeError

    limit = problem.upper_bound
    assert limit is not None
    order, dominance = case["order"], case["dominance"]
    try:
        whole = _messages(problem, order, BucketEngine("cpu"), dominance, source)
    except ValueRangeError as error:
        tally.refused(error, True)
        return
    with mock.patch.dict(os.environ, {"OOCBE_THREADS": str(case["threads"])}):
        other = BucketEngine("cpu", block_rows=case["block_rows"], piece_rows=case["piece_rows"], streams=2)
        again = _messages(problem, order, other, dominance, source)
    tally.same(f"{source.name}: tables made otherwise", list(map(_bits, whole)), list(map(_bits, again)))
    if dominance or carried_in_rows(problem) or left_out(problem):
        return
    margin = counted(rounding_margin(problem), own.unit)
    sure = own if not margin else own.below((counted(limit, own.unit) - 2 * margin) / own.unit)
    kept = {variable: _rows(table) for variable, _, table in whole}
    for variable, scope, table in _messages(problem.below(None), order, BucketEngine("cpu"), False, None):
        every, left = _rows(table), kept.get(variable, {})
        wanted = np.array([[a[v] for v in scope] for a, _, _ in sure.rows], dtype=np.int64).reshape(-1, len(scope))
        keys = table.layout.pack(wanted)
        for key in dict.fromkeys(keys[:, number].tobytes() for number in range(len(wanted))):
            value, found = every[key], left.get(key)
            is_same = found == value
            if not is_same and found is not None:
                is_same = abs(counted(found, own.unit) - counted(value, own.unit)) <= margin
            tally.holds(f"{source.name}: a row that counts", is_same, value, found)


def _messages(
    problem: Problem, order: list[int], engine: BucketEngine, dominance: bool, bounds: BoundSource | None
) -> list[Message]:
    """All messages, in the order in which they are made."""
    from oocbe.elimination.buckets.forward import Forward
    from oocbe.elimination.buckets.messages import MessageStore
    from oocbe.elimination.preparation.prepare import prepare

    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(1 << 30, chunk_rows=5) as store:
        outcome = Forward(prepared, dominance, store, engine=engine, bounds=bounds).run()
        sent = [(bucket.variable, bucket.sent) for bucket in outcome.buckets if bucket.sent is not None]
        return [(variable, message.scope, message.table()) for variable, message in sent]


def _bits(message: Message) -> tuple[Any, ...]:
    variable, scope, table = message
    return variable, scope, table.layout, table.values.dtype, table.keys.tobytes(), table.values.tobytes()


def _rows(table: Table) -> dict[bytes, int | float]:
    """Each row's value by the bits of its key."""
    return {table.keys[:, row].tobytes(): table.values[row].item() for row in range(table.rows)}
