"""Synthetic tables that nobody writes: the rows of written ones, and one digest however they are cut and by whom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from oocbe.algebra.inputs import Execution
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.errors import ResourceError
from oocbe.execution.budget import Budget
from oocbe.execution.cluster.workers import LostWorkError
from oocbe.kernels import backend_for
from oocbe.kernels.cpu.backend import CpuBackend
from oocbe.model.row_numbers import key_number
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.tuning import tuned
from oocbe.stress import generated_operations
from oocbe.stress.generated_operations import (
    JOIN_MAXIMISE,
    MAXIMISE,
    OPERATORS,
    GeneratedOperation,
    GeneratedRows,
    digest_by,
    digest_here,
)
from oocbe.stress.kernels.cpu.synthetic import fill_in_order
from oocbe.stress.segments import check_joined, check_marginalised
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.table import Table
from tests.elimination.test_segments import Failing, Sending
from tests.helpers.effort import in_turns
from tests.kernels.conftest import skip_without_gpu
from tests.stress.test_tables import SHAPES, in_memory


@pytest.fixture(params=SHAPES, ids=str)
def pair(request):
    shape = SHAPES[request.param] | {"is_sorted": True}
    return SyntheticTable(**shape), SyntheticTable(**shape, own="b", seed=1)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(generated_operations, "STRETCH_ROWS", 170)
    monkeypatch.setattr(generated_operations, "STRETCHES_HERE", 3)
    monkeypatch.setattr(generated_operations, "LEAST_STRETCH", 16)


def context(folder, piece_rows=None):
    return ExecutionContext.within(
        backend_for(0, "cpu"), Budget(1 << 28), folder, Execution(streams=2, piece_rows=piece_rows)
    )


def test_ranges_of_ranks_have_the_rows_of_the_table(pair):
    for table in pair:
        whole = in_memory(table)
        assert table.first_row(0) == 0 and table.first_row(table.groups) == table.rows_made
        bounds = sorted({0, 1, table.groups // 3, table.groups // 2, table.groups})
        for low, high in pairwise(bounds):
            source = GeneratedRows(table, range(low, high))
            rows = slice(table.first_row(low), table.first_row(high))
            made = np.empty((table.layout.words, source.rows), np.uint64), np.empty(source.rows, source.dtype)
            source.read_into(0, *made)
            assert np.array_equal(made[0], whole.keys[:, rows]) and np.array_equal(made[1], whole.values[rows])
            half = source.rows // 2
            source.read_into(half, made[0][:, half:], None)
            assert np.array_equal(made[0], whole.keys[:, rows])
            for stretch in range(source.stretch_count):
                keys = source.keys_of(stretch)
                assert source.edge_keys(stretch) == (key_number(keys, 0), key_number(keys, keys.shape[1] - 1))


def test_the_rank_that_begins_at_a_row_or_behind_it(pair):
    for table in pair:
        firsts = [table.first_row(rank) for rank in range(table.groups + 1)]
        for row in range(0, table.rows_made + 1, 7):
            assert table.rank_from(row) == next(rank for rank, first in enumerate(firsts) if first >= row)
        assert table.rank_from(table.rows_made + 5) == table.groups


def stored(operator, first, second):
    """What the check of the result of the operator in memory says."""
    tables = in_memory(first), in_memory(second)
    if operator == MAXIMISE:
        return check_marginalised(maximise(tables[0], "a"), first)
    made = join_maximise(*tables, "e") if operator == JOIN_MAXIMISE else join_sum(*tables)
    return check_joined(made, first, second)


def generated_of(operator, pair):
    return GeneratedOperation(operator, pair[:1] if operator == MAXIMISE else pair)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_digest_is_that_of_a_stored_result(operator, pair, tmp_path):
    expected = stored(operator, *pair)
    assert expected.fault == "" and expected.digest is not None
    for piece_rows in (None, 150):
        assert digest_here(generated_of(operator, pair), context(tmp_path, piece_rows)) == expected


@pytest.mark.parametrize(
    ("operator", "error"), in_turns(OPERATORS, (LostWorkError("gone"), ResourceError("no memory"), None)), ids=repr
)
def test_the_digest_does_not_depend_on_workers(operator, error, tmp_path):
    pair = tuple(SyntheticTable(9000, 200, sizes="zipf", is_sorted=True, own=own, seed=3) for own in "ab")
    expected = digest_here(generated_of(operator, pair), context(tmp_path))
    failing = Failing(2, lambda number: error is not None and number in (0, 1, 4), error)
    with failing as workers, tuned(least_segment_seconds=1e-6, most_segment_seconds=1e3):
        assert digest_by(workers, generated_of(operator, pair), tmp_path, "cpu", None) == expected
        assert next(workers.numbers) > 5
    assert list(tmp_path.iterdir()) == []


def with_wrong_rows(monkeypatch, kernels, check):
    """Call ``check`` with the fault expected of kernels that join a row wrongly, and of ones that miss a row."""
    join = kernels.join_rows

    def off_by_one(*arguments):
        keys, values = join(*arguments)
        values[np.argmax(values)] += 1
        return keys, values

    def one_less(*arguments):
        keys, values = join(*arguments)
        return keys[:, 1:].copy(), values[1:]

    for wrong, fault in ((off_by_one, "another value"), (one_less, "rows instead of")):
        monkeypatch.setattr(kernels, "join_rows", staticmethod(wrong))
        check(fault)


def test_rows_that_are_wrong_or_missing_are_noticed(tmp_path, monkeypatch):
    pair = tuple(SyntheticTable(3000, 60, is_sorted=True, own=own) for own in "ab")
    operation = generated_of("join-sum", pair)

    def check(fault):
        assert fault in digest_here(operation, context(tmp_path)).fault
        with Sending(2) as workers:
            assert fault in digest_by(workers, operation, tmp_path, "cpu", None).fault

    with_wrong_rows(monkeypatch, CpuBackend, check)


def test_ranges_of_ranks_are_cut_by_rows_and_cover_all_of_them(pair):
    operation = generated_of(JOIN_MAXIMISE, pair)
    for rows in (1, 150, 10**9):
        for low, high in ((0, pair[0].groups), (pair[0].groups // 2, pair[0].groups)):
            ranges = list(operation.rank_ranges(range(low, high), rows))
            assert [rank for ranks in ranges for rank in ranks] == list(range(low, high))
            assert rows < 10**9 or len(ranges) == 1


@pytest.fixture
def on_device(tmp_path):
    """Makes contexts of the device."""
    skip_without_gpu()

    def made(piece_rows=None):
        return ExecutionContext.within(
            backend_for(0, "cuda"), Budget(1 << 28), tmp_path, Execution(streams=2, piece_rows=piece_rows)
        )

    return made


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("seed", [0, 1 << 40])
def test_the_digest_of_a_device_is_that_of_the_cpu(operator, seed, pair, tmp_path, on_device, monkeypatch):
    operation = generated_of(operator, tuple(replace(table, seed=table.seed + seed) for table in pair))
    expected = digest_here(operation, context(tmp_path))
    assert expected.fault == ""
    monkeypatch.setattr(GeneratedRows, "read_into", None)  # no row is generated in main memory
    for piece_rows in (None, 150):
        assert digest_here(operation, on_device(piece_rows)) == expected


@pytest.mark.gpu
def test_tiles_of_a_device_cross_classes_and_values_are_wide(on_device):
    on_device()
    from oocbe.stress.kernels.cuda.synthetic import TableRows

    tables = [
        SyntheticTable(10**5, 10**5 // 32, is_sorted=True),
        SyntheticTable(10**12, 10**12 // 32, is_sorted=True, variables=4),
        SyntheticTable(10**12, 10**12 // 32, sizes="zipf", is_sorted=True),
        SyntheticTable(10**13, 3, is_sorted=True),
    ]
    for table in tables:
        edges = [table.first_row(first) for first in table.classes[:, 0].tolist()]
        for dtype in (np.dtype(np.int32), np.dtype(np.int64)):
            made = TableRows(table.layout.words, dtype, table.classes, table.fields, table.settings)
            for edge in {min(max(0, row - 4000), table.rows_made - 9000) for row in (*edges, table.rows_made)}:
                keys, values = (array.get() for array in made.rows(edge, 9000))
                wanted = np.empty_like(keys), np.empty_like(values)
                fill_in_order(*wanted, edge, table.classes, table.fields, table.settings)
                assert np.array_equal(keys, wanted[0]) and np.array_equal(values, wanted[1])


@pytest.mark.gpu
def test_a_device_notices_wrong_and_missing_rows(on_device, monkeypatch):
    from oocbe.kernels.cuda.backend import CudaBackend

    operation = generated_of("join-sum", tuple(SyntheticTable(3000, 60, is_sorted=True, own=own) for own in "ab"))

    def check(fault):
        assert fault in digest_here(operation, on_device()).fault

    with_wrong_rows(monkeypatch, CudaBackend, check)


@pytest.mark.gpu
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_group_without_room_on_the_device_goes_out_of_core(operator, tmp_path, on_device, monkeypatch):
    from oocbe.stress.kernels.cuda.synthetic import TableRows

    pair = tuple(SyntheticTable(3000, 90, sizes="zipf", is_sorted=True, own=own, seed=3) for own in "ab")
    operation, rows = generated_of(operator, pair), TableRows.rows
    expected = digest_here(operation, context(tmp_path))

    def short(maker, start, count):
        if count > 100:
            raise ResourceError("no memory")
        return rows(maker, start, count)

    monkeypatch.setattr(TableRows, "rows", short)
    for piece_rows in (None, 600):
        assert digest_here(operation, on_device(piece_rows)) == expected


def test_a_digest_is_of_keys_and_values_and_not_of_their_order():
    table = SyntheticTable(3000, 60)
    rows = maximise(in_memory(table), "a")

    def digest(keys, values):
        return check_marginalised(Table(rows.layout, keys, values, MAX_SUM, is_sorted=True), table)

    order = np.random.default_rng(0).permutation(rows.rows)
    expected = digest(rows.keys, rows.values)
    assert digest(np.ascontiguousarray(rows.keys[:, order]), rows.values[order]) == expected
    other = SyntheticTable(3000, 60, seed=1)
    assert check_marginalised(maximise(in_memory(other), "a"), other).digest != expected.digest
