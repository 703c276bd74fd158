"""Several GPUs of one process: the rows of one GPU, also where one of them fails."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import oocbe
from oocbe.algebra.gpu_streaming import PiecesThroughDevice
from oocbe.algebra.inputs import Execution
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.algebra.out_of_core.context import ExecutionContext
from oocbe.errors import ResourceError
from oocbe.execution.budget import Budget
from oocbe.kernels import backend_for
from oocbe.kernels.cuda import gpus
from oocbe.kernels.cuda.buckets import bucket_join
from oocbe.kernels.cuda.device import cupy, why_unavailable
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.model.settings.machine import use_gpus
from oocbe.stress.generated_operations import OPERATORS, GeneratedOperation, digest_here
from oocbe.stress.kernels.cuda.synthetic import TableRows
from oocbe.stress.tables import SyntheticTable
from oocbe.tables.packed import PackedTable
from tests.api.test_count_limbs import problem_of, random_day
from tests.elimination.test_segments import clique_problem
from tests.helpers.out_of_core_modes import same_rows
from tests.helpers.table_models import same_table
from tests.stress.test_tables import in_memory

SPECS = [SyntheticTable(60_000, 2000, sizes="zipf", is_sorted=True, own=own, seed=3) for own in "ab"]


@pytest.fixture(scope="module", autouse=True)
def backend():
    """These tests are of devices alone; the folder's fixture would run them twice."""


@pytest.fixture(autouse=True)
def at_work(tune, monkeypatch):
    """Numbers of the GPUs that have worked; any work is worth their start."""
    if why_unavailable() is not None or cupy().cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than two GPUs")
    tune(streamed_bytes_a_second=1e-9, generated_rows_a_second=1e-9)
    found, working_on = set(), gpus.working_on

    @contextmanager
    def recorded(number, limit):
        with working_on(number, limit):
            found.add(number)
            yield

    monkeypatch.setattr(gpus, "working_on", recorded)
    return found


def operations(tables, **settings):
    yield join_maximise(*tables, "e", **settings)
    yield join_sum(*tables, **settings)
    yield maximise(tables[0], "e", **settings)


@pytest.mark.gpu
@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_in_memory_are_those_of_one_gpu(at_work, is_packed):
    tables = [in_memory(spec) for spec in SPECS]
    given = [PackedTable.pack(table) for table in tables] if is_packed else tables
    for found, expected in zip(
        operations(given, backend="cuda", piece_rows=7000), operations(tables, backend="cpu"), strict=True
    ):
        same_table(found.to_table() if is_packed else found, expected)
    assert len(at_work) > 1
    at_work.clear()
    with use_gpus(1):
        list(operations(given, backend="cuda", piece_rows=7000))
    assert at_work == {0}


@pytest.mark.gpu
@pytest.mark.parametrize("chunk_rows", [100, 5000])
def test_rows_on_disk_are_those_of_one_gpu(at_work, tmp_path, chunk_rows):
    tables = [spec.write(tmp_path / spec.own, chunk_rows=chunk_rows) for spec in SPECS]
    made = []
    for count in (1, 2):
        with use_gpus(count):
            made.append(join_maximise(*tables, "e", output=tmp_path / f"by-{count}", backend="cuda", piece_rows=7000))
    assert len(at_work) > 1
    assert made[0].chunk_count == made[1].chunk_count
    expected = join_maximise(*tables, "e", output=tmp_path / "expected", backend="cpu").to_table()
    for table in made:
        same_rows(table, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("failing", [0, 1])
def test_a_gpu_that_runs_out_of_memory_leaves_its_pieces_to_others(at_work, monkeypatch, tmp_path, failing):
    attempt, count = PiecesThroughDevice._try, []

    def fail(self, *piece):
        count.append(cupy().cuda.runtime.getDevice())
        if count[-1] == failing and len(count) > 6:
            raise ResourceError("device memory ran out")
        return attempt(self, *piece)

    monkeypatch.setattr(PiecesThroughDevice, "_try", fail)
    tables = [in_memory(spec) for spec in SPECS]
    expected = join_maximise(*tables, "e", backend="cpu")
    same_table(join_maximise(*tables, "e", backend="cuda", piece_rows=7000), expected)
    count.clear()
    stored = [spec.write(tmp_path / spec.own) for spec in SPECS]
    made = join_maximise(*stored, "e", output=tmp_path / "made", backend="cuda", piece_rows=7000)
    assert count[-1] != failing
    same_rows(made, join_maximise(*stored, "e", output=tmp_path / "expected", backend="cpu").to_table())


@pytest.mark.gpu
@pytest.mark.parametrize("most_rows", [None, 100])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_digest_is_that_of_the_cpu(at_work, operator, most_rows, tmp_path, monkeypatch):
    """Also where all GPUs have groups without room there, which go out of core."""
    made = TableRows.rows

    def rows(maker, start, count):
        if most_rows is not None and count > most_rows:
            raise ResourceError("no memory")
        return made(maker, start, count)

    monkeypatch.setattr(TableRows, "rows", rows)
    operation = GeneratedOperation(operator, tuple(SPECS[: 1 if operator == "maximise" else 2]))

    def digest(backend):
        settings = Execution(streams=2, piece_rows=3000)
        context = ExecutionContext.within(backend_for(0, backend), Budget(1 << 28), tmp_path, settings)
        return digest_here(operation, context)

    assert digest("cuda") == digest("cpu")
    assert len(at_work) > 1


@pytest.mark.gpu
def test_pieces_of_buckets_go_to_all_gpus(at_work):
    problem = clique_problem()
    options = {"order_seconds": 0, "tables": "incomplete", "piece_rows": 20}
    expected = oocbe.count(problem, backend="cpu", **options)
    assert oocbe.count(problem, backend="cuda", **options).value == expected.value
    assert len(at_work) > 1
    at_work.clear()
    assert oocbe.count(problem, backend="cuda", gpus=1, **options).value == expected.value
    assert at_work == {0}


@pytest.fixture
def shared_joins(monkeypatch):
    """Have all joins of a few items shared by all GPUs."""
    for name, number in (("SHARED_ITEMS", 2), ("SHARED_SECONDS", -1.0), ("ITEM_SECONDS", 1e9)):
        monkeypatch.setattr(bucket_join, name, number)


@pytest.mark.gpu
@pytest.mark.parametrize("failing", [None, 0, 1])
@pytest.mark.parametrize("limbs", [1, 2])
def test_buckets_in_memory_are_shared(at_work, shared_joins, monkeypatch, failing, limbs):
    """Also where a GPU has no memory for its part."""
    problem = problem_of(random_day(2, 36 if limbs == 1 else 64))
    options = {"order_seconds": 0, "order": "min-fill", "tables": "incomplete"}
    expected = oocbe.count(problem, backend="cpu", **options)
    assert (expected.value > 1 << 64) == (limbs > 1)
    parts, devices = bucket_join.DeviceProgram._parts, []

    def fail(self, whole, row_limit):
        devices.append(cupy().cuda.runtime.getDevice())
        if devices[-1] == failing and whole.level > 0:
            raise ResourceError("device memory ran out")
        return parts(self, whole, row_limit)

    monkeypatch.setattr(bucket_join.DeviceProgram, "_parts", fail)
    found = oocbe.count(problem, backend="cuda", **options)
    assert (found.value, found.total_rows) == (expected.value, expected.total_rows)
    assert set(devices) == {0, 1}


@pytest.mark.gpu
def test_shared_optima_are_those_of_the_cpu(at_work, shared_joins):
    day, random = problem_of(random_day(2, 36)), np.random.default_rng(5)
    costs = [Function.from_array((v,), random.integers(0, 99, size)) for v, size in enumerate(day.sizes)]
    problem = Problem(day.variables, tuple(costs), day.constraints, name="day")
    options = {"order_seconds": 0, "order": "min-fill", "tables": "incomplete", "bounds": "none", "dominance": False}
    found, expected = (oocbe.solve(problem, backend=backend, **options) for backend in ("cuda", "cpu"))
    assert (found.value, found.assignment) == (expected.value, expected.assignment)
    assert len(at_work) > 1
