"""How finely a partition cuts: digits of even sizes fit a piece, so that one pass over the rows is enough."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.execution import partition
from oocbe.execution.budget import Budget, MemoryPlan
from oocbe.execution.partition import JoinInput, parts
from oocbe.execution.sources import InMemorySource
from oocbe.kernels import backend_named
from oocbe.model.settings.tuning import tuning
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.layout import Layout
from oocbe.tables.scratch import default_parent
from oocbe.tables.table import Table


def shuffled(rows: int) -> JoinInput:
    keys = np.random.default_rng(1).permutation(rows).astype(np.uint64)[np.newaxis]
    table = Table(Layout(("k",), (rows,)), keys, np.arange(rows, dtype=np.int32))
    return JoinInput(InMemorySource(table), ("k",), ("k",), cost=100)


@pytest.mark.parametrize(
    ("piece_rows", "rows", "most_bits", "passes"),
    [(200, 4096, 11, 1), (80, 4096, 11, 1), (20, 4096, 11, 1), (4, 4096, 11, 1), (1, 512, 9, 1), (1, 512, 8, 2)],
)
def test_rows_are_partitioned_once_where_digits_can_fit(monkeypatch, tune, piece_rows, rows, most_bits, passes):
    tune(most_window_bits=most_bits)
    made = []
    monkeypatch.setattr(
        partition,
        "_Partition",
        type("Counted", (partition._Partition,), {"__init__": lambda self, *a: count(self, *a)}),
    )
    original = partition._Partition.__mro__[1].__init__

    def count(self, ordered, *more):
        made.append(ordered.rows)
        original(self, ordered, *more)

    space = MemoryPlan(Budget(1 << 24), DiskBudget(default_parent()), 1, piece_rows)
    found = list(parts([shuffled(rows)], space, backend_named("cpu")))
    assert sum(part.inputs[0].rows for part in found) == rows
    assert all(part.inputs[0].rows <= piece_rows for part in found)
    assert sum(made) == passes * rows


@pytest.mark.parametrize("pieces", [1, 10, 120, 200, 500, 900, 10_000])
def test_bits_grow_with_the_pieces(pieces):
    space = MemoryPlan(Budget(1000 * 100), DiskBudget(default_parent()), 1)
    ordered = shuffled(pieces * 600)
    bits = partition._bits_wanted([ordered], space)
    assert tuning().window_bits <= bits <= tuning().most_window_bits
    if bits < tuning().most_window_bits:
        assert 2 * ordered.rows / (1 << bits) * ordered.cost <= space.piece_bytes + ordered.cost
