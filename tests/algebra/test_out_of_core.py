"""Operators out of core where small tables do not reach: large groups, skew, wide keys, limits, failures."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.algebra import gpu_streaming
from oocbe.algebra.elimination import JoinElimination, PreparedElimination
from oocbe.algebra.gpu_streaming import DevicePlan, PiecesThroughDevice
from oocbe.algebra.inputs import Execution
from oocbe.algebra.operators import join_maximise, join_sum, maximise, planned, step_of
from oocbe.algebra.out_of_core import context
from oocbe.errors import CorruptDataError, DiskError, ModelError, ResourceError, UsageError
from oocbe.execution import partition
from oocbe.execution.budget import Budget
from oocbe.execution.pipeline import run_in_order
from oocbe.kernels import backend_for, choice
from oocbe.kernels.cpu.backend import CpuBackend
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MIN_SUM, SEMIRINGS, SUM_PRODUCT
from oocbe.tables.disk import hooked
from oocbe.tables.disk_budget import NamelessFile
from oocbe.tables.layout import Layout
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import in_turns
from tests.helpers.out_of_core_modes import MODES, also_out_of_core, same_rows


@pytest.fixture
def folder(memory_folder) -> Path:
    return memory_folder


def random_table(scope: dict[str, int], rows: int, seed: int, semiring=MIN_SUM, dtype=np.int64, skew=False) -> Table:
    """Rows at random, in no order; with ``skew`` most values are small."""
    rng = np.random.default_rng(seed)
    sizes = np.array(list(scope.values()))
    share = rng.random((rows, len(scope)))
    tuples = np.unique((sizes * (share**6 if skew else share)).astype(np.int64), axis=0)
    table = Table.from_rows(scope, tuples, rng.integers(1, 90, len(tuples)).astype(dtype), semiring)
    order = rng.permutation(table.rows)
    return Table(table.layout, np.ascontiguousarray(table.keys[:, order]), table.values[order], semiring)


A, B, C, D = 300, 40, 25, 60
NARROW = ({"a": A, "b": B, "c": C}, {"c": C, "d": D, "b": B})
WIDE = ({"a": 1 << 50, "b": 40, "c": 1 << 60}, {"c": 1 << 60, "d": 1 << 33, "b": 40})
CUTS = [pytest.param((5, 2), marks=pytest.mark.slow), (64, 2), (700, 8), (None, 2)]


@pytest.mark.parametrize(
    ("dtype", "skew", "mode"),
    [
        (np.int32, False, (64, 2)), (np.float64, True, (64, 2)), (np.int32, True, (700, 8)),
        (np.float64, False, (700, 8)), (np.int32, True, (None, 2)), (np.float64, False, (None, 2)),
        *(pytest.param(np.int32, skew, (5, 2), marks=pytest.mark.slow) for skew in (False, True)),
        *(pytest.param(np.float64, skew, (5, 2), marks=pytest.mark.slow) for skew in (False, True)),
    ],
    ids=str,
)  # fmt: skip
class TestTablesOfSomeThousandRows:
    def test_join_sum(self, dtype, skew, mode):
        t1, t2 = (random_table(s, 400, i, dtype=dtype, skew=skew) for i, s in enumerate(NARROW))
        assert also_out_of_core(join_sum, t1, t2, mode=mode).rows > 100

    def test_maximise(self, dtype, skew, mode):
        table = random_table(NARROW[0], 2000, 3, SUM_PRODUCT, dtype, skew)
        table = Table(table.layout, table.keys, table.values / 7 if dtype is np.float64 else table.values, SUM_PRODUCT)
        assert also_out_of_core(maximise, table, ["b"], mode=mode).rows > 100
        also_out_of_core(maximise, table, ["c", "a"], mode=mode)
        also_out_of_core(maximise, table, ["a", "b", "c"], mode=mode)

    def test_join_maximise(self, dtype, skew, mode):
        t1, t2 = (random_table(s, 600, i, dtype=dtype, skew=skew) for i, s in enumerate(NARROW))
        assert also_out_of_core(join_maximise, t1, t2, "b", mode=mode).rows > 50
        also_out_of_core(join_maximise, t1, t2, ["b", "c"], mode=mode)
        also_out_of_core(join_maximise, t1, t2, ["a", "c"], mode=mode)


@pytest.mark.parametrize("mode", CUTS, ids=str)
def test_keys_of_several_words(mode):
    rng = np.random.default_rng(5)
    spread = rng.integers(0, 1 << 60, 30)
    tables = []
    for number, scope in enumerate(WIDE):
        columns = [spread[rng.integers(0, 30, 500)] % size for size in scope.values()]
        tuples = np.unique(np.column_stack(columns), axis=0)
        tables.append(Table.from_rows(scope, tuples, np.arange(len(tuples)) + number, MIN_SUM))
    assert also_out_of_core(join_sum, *tables, mode=mode).rows > 400
    also_out_of_core(join_maximise, *tables, ["c"], mode=mode)
    also_out_of_core(join_maximise, *tables, ["b", "d"], mode=mode)
    also_out_of_core(maximise, tables[0], ["b"], mode=mode)


@pytest.mark.parametrize("mode", [pytest.param((3, 2), marks=pytest.mark.slow), (30, 8)], ids=str)
def test_one_group_larger_than_a_piece(mode):
    """All rows have the same shared key: both sides are cut, and the order stays."""
    t1 = random_table({"a": 1 << 20, "k": 5}, 40, 1)
    t2 = random_table({"b": 1 << 20, "k": 5}, 70, 2)
    for t in (t1, t2):
        t.keys[0] &= np.uint64((1 << 20) - 1)
    assert also_out_of_core(join_sum, t1, t2, mode=mode).rows == t1.rows * t2.rows
    also_out_of_core(join_sum, t2, t1, mode=mode)
    assert also_out_of_core(maximise, t1, "a", mode=mode).rows == 1
    assert also_out_of_core(join_maximise, t1, t2, ["k"], mode=mode).rows == t1.rows * t2.rows


@pytest.mark.parametrize(("semiring", "mode"), in_turns((MIN_SUM, COUNTING), ((3, 2), (50, 8))), ids=str)
def test_a_product_over_one_long_variable(semiring, mode):
    """Every variable is eliminated: one row comes out of sums over all rows."""
    f = random_table({"x": 1 << 40}, 300, 1, semiring)
    g = Table(f.layout, f.keys[:, ::-1].copy(), f.values.copy(), semiring)
    assert also_out_of_core(join_maximise, f, g, "x", mode=mode).rows == 1


@pytest.mark.parametrize("semiring", [SUM_PRODUCT, LOG_SUM_EXP], ids=str)
def test_sums_of_floats_are_added_in_the_same_order(semiring):
    """Rounded sums depend on their order: bit-equal results show that pieces keep it."""
    rng = np.random.default_rng(7)
    keys = rng.permutation(4000).astype(np.uint64)[np.newaxis]
    table = Table(Layout(("x", "y"), (512, 8)), keys, rng.random(4000), semiring)
    for mode in ((41, 1), (83, 8), (1000, 2)):
        also_out_of_core(maximise, table, "x", mode=mode)
        also_out_of_core(maximise, table, ["x", "y"], mode=mode)
    other = random_table({"y": 8, "z": 100, "x": 512}, 5000, 8, semiring, np.float64)
    also_out_of_core(join_maximise, table, other, "x", mode=(None, 2))


def test_sorted_tables_are_not_written_to_scratch(monkeypatch, folder):
    def refuse(*_):
        raise AssertionError("wrote a sorted table to scratch")

    monkeypatch.setattr(partition, "ScratchFile", refuse)
    tuples = [[x, y, z] for z in range(9) for y in range(9) for x in range(9)]
    table = Table.from_rows({"x": 9, "y": 9, "z": 9}, tuples, range(729))
    also_out_of_core(maximise, table, ["x"], mode=(10, 2))
    also_out_of_core(join_sum, table, maximise(table, "x"), mode=(10, 2))
    with pytest.raises(AssertionError, match="wrote a sorted table"):
        maximise(table, "y", output=folder / "out", piece_rows=10)


@pytest.mark.parametrize(("semiring", "dtype"), in_turns((*SEMIRINGS.values(),), (np.int64, np.float64)), ids=str)
def test_tables_of_columns(semiring, dtype, folder):
    """Values are looked at without their keys before an operator begins, where floats are multiplied."""
    t1, t2 = (random_table(scope, 300, i, semiring, dtype) for i, scope in enumerate(NARROW))
    one, two = (StoredTable.save(folder / name, t, chunk_rows=50, codec="zstd") for name, t in (("1", t1), ("2", t2)))
    calls = (
        lambda a, b, **more: join_sum(a, b, **more),
        lambda a, b, **more: join_maximise(a, b, "b", **more),
        lambda a, b, **more: maximise(a, ["a", "b"], **more),
    )
    for number, call in enumerate(calls):
        same_rows(call(one, two, output=folder / f"out {number}", piece_rows=200), call(t1, t2), semiring.selects)


@pytest.mark.parametrize("semiring", SEMIRINGS.values(), ids=str)
def test_empty_tables_and_scopes(semiring):
    empty, full = (random_table({"x": 50}, rows, 1, semiring) for rows in (0, 12))
    scalar = Table(Layout((), ()), np.zeros((1, 1), dtype=np.uint64), np.array([5]), semiring)
    # One mode for most semirings, in turns: being empty has to do with few of them.
    modes = [(1, 1), (1000, 2)]
    turn = list(SEMIRINGS.values()).index(semiring) % 2
    for mode in modes if semiring is MIN_SUM else modes[turn : turn + 1]:
        for pair in ((empty, full), (full, empty), (scalar, scalar), (full, scalar), (scalar, empty)):
            also_out_of_core(join_sum, *pair, mode=mode)
            also_out_of_core(join_maximise, *pair, [], mode=mode)
        also_out_of_core(join_maximise, full, full, "x", mode=mode, exact=semiring is not LOG_SUM_EXP)
        also_out_of_core(maximise, empty, "x", mode=mode)
        also_out_of_core(maximise, full, [], mode=mode)


class TestRefusals:
    def test_settings_without_an_output(self):
        table = random_table({"x": 9}, 5, 1)
        for settings in ({"memory": "1GiB"}, {"scratch": "."}, {"streams": 2}):
            with pytest.raises(UsageError, match="name the output table"):
                maximise(table, "x", **settings)

    @pytest.mark.parametrize(
        "settings", [{"streams": 0}, {"piece_rows": 0}, {"memory": "lots"}, {"memory": 5}, {"streams": 1.5}], ids=str
    )
    def test_impossible_settings(self, folder, settings):
        with pytest.raises(UsageError):
            maximise(random_table({"x": 9}, 5, 1), "x", output=folder / "out", **settings)

    def test_unknown_variables_and_other_semirings(self, folder):
        table = random_table({"x": 9}, 5, 1)
        with pytest.raises(ModelError, match="variable z is not in scope"):
            maximise(table, "z", output=folder / "out")
        with pytest.raises(ModelError, match="variable z is in neither scope"):
            join_maximise(table, table, "z", output=folder / "out")
        with pytest.raises(ModelError, match=r"min-sum.*counting"):
            join_sum(table, random_table({"x": 9}, 5, 1, COUNTING), output=folder / "out")
        assert not list(folder.iterdir())

    def test_an_existing_output(self, folder):
        table = random_table({"x": 9}, 5, 1)
        StoredTable.save(folder / "out", table)
        with pytest.raises(UsageError, match="exists already"):
            maximise(table, [], output=folder / "out")
        same_rows(StoredTable.open(folder / "out"), table)

    def test_a_scratch_folder_that_is_not_there(self, folder):
        table, settings = random_table({"x": 900}, 50, 1), {"output": folder / "out", "scratch": folder / "nowhere"}
        for call in (maximise, partial(join_maximise, table)):
            with pytest.raises(DiskError, match="nowhere; make it"):
                call(table, [], **settings, piece_rows=5)
        assert not list(folder.iterdir())


def test_pieces_too_small_for_a_device_take_the_kernels_of_the_cpu_by_default(tmp_path, monkeypatch):
    device = SimpleNamespace(name="cuda")
    monkeypatch.setattr(choice, "cuda_works", lambda wanted: True)
    monkeypatch.setattr(choice, "_cuda", lambda: device)

    def kernels(backend, rows, cost):
        settings = Execution(tmp_path / "out", memory=1 << 26, scratch=tmp_path, streams=2, backend=backend)
        place = context.ExecutionContext.of(settings, SimpleNamespace(rows=10**6))
        assert place.kernels is device
        return place.suited_to([SimpleNamespace(rows=rows, cost=cost, in_order=False)]).kernels

    assert kernels("auto", 10**6, 16) is device
    assert kernels("auto", 10**6, 1600).name == "cpu"
    assert kernels("auto", 100, 16).name == "cpu"
    assert kernels("cuda", 10**6, 1600) is device


@pytest.mark.parametrize(
    ("backend", "rows", "expected"), [("auto", 900, "cpu"), ("auto", 10**5, "cuda"), ("cuda", 900, "cuda")]
)
def test_requested_pieces_too_small_for_a_device_take_the_kernels_of_the_cpu(
    tmp_path, monkeypatch, backend, rows, expected
):
    monkeypatch.setattr(choice, "cuda_works", lambda wanted: True)
    monkeypatch.setattr(choice, "_cuda", lambda: SimpleNamespace(name="cuda"))
    settings = Execution(tmp_path / "out", scratch=tmp_path, backend=backend, piece_rows=rows)
    tables = [SimpleNamespace(rows=10**6) for _ in range(2)]
    assert context.ExecutionContext.of(settings, *tables).kernels.name == expected


def test_what_the_device_has_no_room_for_goes_another_way_and_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    """The result goes to the same disk in the other way of working, too."""
    stored = StoredTable.save(tmp_path / "in", maximise(random_table({"x": 90, "y": 9}, 400, 1), []))
    kernels = backend_for(stored.rows, "cpu")
    place = context.ExecutionContext.within(kernels, Budget(1 << 28), tmp_path, Execution(streams=2, piece_rows=100))
    packed = [PackedTable.on_disk(stored)]
    plan = planned(packed, ("x",)).device_plan(packed, kernels)

    def ending(error):
        def over(*_):
            raise error

        return over

    monkeypatch.setattr(gpu_streaming, "gpus", lambda seconds: [0])
    monkeypatch.setattr(PiecesThroughDevice, "over", ending(ResourceError("device memory")))
    assert plan.to_disk(tmp_path / "out", place) is None
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    monkeypatch.setattr(PiecesThroughDevice, "over", ending(DiskError("the disk is full")))
    with pytest.raises(DiskError, match="full"):
        plan.to_disk(tmp_path / "out", place)


def test_whether_tables_go_through_the_device_is_planned(tmp_path):
    """They do where all lead with the variables that the rows are grouped by, and are packed on disk."""
    kernels = backend_for(0, "cpu")
    first = maximise(random_table({"e": 4, "a": 5, "k": 6}, 80, 1), [])
    second = maximise(random_table({"e": 4, "k": 6}, 20, 2), [])

    def plan(tables, *gone):
        return planned(tables, gone).device_plan(tables, kernels)

    assert plan([first, second], "e").cuts.whole().rows == first.rows + second.rows
    assert plan([first, second], "a") is None, "the second one has no a"
    assert plan([first, second], "k") is None, "sorted by k before e"
    assert plan([first, second]) is None, "a lies between"
    assert plan([first], "e") is not None
    assert plan([first], "k") is None
    stored = StoredTable.save(tmp_path / "in", first)
    step, _ = step_of([stored], ("e",), [first.values])
    assert DevicePlan.from_disk(step, [stored], kernels) is None, "these kernels read main memory"
    device = SimpleNamespace(name="cuda")
    assert DevicePlan.from_disk(step, [stored], device) is not None
    assert DevicePlan.from_disk(step, [first], device) is None, "neither packed nor on disk"


class TestFailures:
    """Errors and interrupts in any stage: all threads end, nothing is left on disk."""

    def run(self, folder, tables):
        before = set(threading.enumerate())
        try:
            join_sum(*tables, output=folder / "out", scratch=folder, piece_rows=40, streams=3)
        finally:
            assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("oocbe-stream")]
            assert {path.name for path in folder.iterdir()} == {"in"}

    @pytest.fixture
    def tables(self, folder):
        (folder / "in").mkdir()
        made = [random_table(scope, 500, i) for i, scope in enumerate(NARROW)]
        return [StoredTable.save(folder / "in" / str(i), t, chunk_rows=100) for i, t in enumerate(made)]

    @pytest.mark.parametrize(
        ("error", "call"),
        [
            *((KeyboardInterrupt, call) for call in (0, 1, 5, 30)), (RuntimeError, 0), (RuntimeError, 30),
            (OSError, 1), (OSError, 5),
        ],
    )  # fmt: skip
    def test_in_a_kernel(self, folder, tables, monkeypatch, error, call):
        from oocbe.kernels.cpu.backend import CpuBackend

        monkeypatch.setenv("OOCBE_BACKEND", "cpu")  # the kernels that fail are its

        calls = []

        def failing(*arguments, **named):
            calls.append(1)
            if len(calls) > call:
                raise error("on purpose")
            return sort(*arguments, **named)

        sort = CpuBackend.sort_rows
        monkeypatch.setattr(CpuBackend, "sort_rows", staticmethod(failing))
        with pytest.raises(error, match="on purpose"):
            self.run(folder, tables)

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ResourceError])
    def test_while_writing(self, folder, tables, monkeypatch, error):
        from oocbe.tables.writer import StoredTableWriter

        def failing(*_):
            raise error("on purpose")

        monkeypatch.setattr(StoredTableWriter, "append", failing)
        with pytest.raises(error, match="on purpose"):
            self.run(folder, tables)

    def test_a_damaged_input(self, folder, tables):
        chunk = folder / "in" / "1" / "values" / "c" / "3"
        data = bytearray(chunk.read_bytes())
        data[-20] ^= 1
        chunk.write_bytes(data)
        with pytest.raises(CorruptDataError, match="chunk 3 of values"):
            self.run(folder, tables)

    def test_a_full_disk(self, folder, tables, monkeypatch):
        def full(operation, path):
            if operation == "write" and path == folder:
                raise OSError(errno.ENOSPC, "No space left on device")

        with hooked(full), pytest.raises(DiskError, match="the disk is full"):
            self.run(folder, tables)

    def test_a_disk_that_cannot_be_read(self, folder, tables):
        def broken(operation, path):
            if operation == "read" and path == folder:
                raise OSError(errno.EIO, "Input/output error")

        with (
            hooked(broken),
            pytest.raises(DiskError, match=r"scratch file in .* cannot be read \(Input/output error\)"),
        ):
            self.run(folder, tables)

    def test_scratch_that_changed_is_noticed(self, folder, tables, monkeypatch):
        def damaging(self, data, offset, more):
            damaged = bytearray(data)
            damaged[0] ^= 1
            write(self, memoryview(bytes(damaged)), offset, more)

        write = NamelessFile.write
        monkeypatch.setattr(NamelessFile, "write", damaging)
        with pytest.raises(CorruptDataError, match="changed since they were written"):
            self.run(folder, tables)


@pytest.mark.parametrize(("mode", "call"), in_turns(((40, 2), (None, 2)), (0, 1, 2, 5)), ids=str)
def test_memory_that_cannot_be_had_halves_the_piece(monkeypatch, mode, call):
    """Some joins find no memory although the budget has it, twice in a row at first: the rows are the same."""
    from oocbe.kernels.cpu.backend import CpuBackend

    monkeypatch.setenv("OOCBE_BACKEND", "cpu")  # the kernels that fail are its

    t1, t2 = (random_table(scope, 600, i) for i, scope in enumerate(NARROW))
    expected = {name: (op(t1, t2, *rest)) for name, op, *rest in JOINS}
    calls = []

    def failing(kernel):
        def call_it(*arguments, **named):
            calls.append(1)
            if len(calls) in (call + 1, call + 2, call + 9):
                raise MemoryError
            return kernel(*arguments, **named)

        return staticmethod(call_it)

    for name in ("join_rows", "join_reduce"):
        monkeypatch.setattr(CpuBackend, name, failing(getattr(CpuBackend, name)))
    monkeypatch.setattr(context, "CHUNK_ROWS", 100)
    for name, op, *rest in JOINS:
        with tempfile.TemporaryDirectory() as place:
            found = op(t1, t2, *rest, output=Path(place) / "out", piece_rows=mode[0], streams=mode[1], memory="64MiB")
            same_rows(found, expected[name])
    assert len(calls) > (5 if mode[0] else 1 + (call < 2))


def test_rows_of_an_open_group_are_not_skipped():
    """Another attempt may cut the group elsewhere: how many of its rows were handed over says nothing."""
    keys, values = np.zeros((1, 3), dtype=np.uint64), np.arange(3)
    assert context.ResultRows(keys, values).after(2).values.tolist() == [2]
    with pytest.raises(ResourceError, match="memory ran out after some rows of a piece were handed over"):
        context.ResultRows(keys, values, is_open=True).after(2)


JOINS = [("join_sum", join_sum), ("join_maximise", join_maximise, "b")]


def test_memory_that_can_never_be_had_is_an_error_with_numbers(monkeypatch, folder):
    from oocbe.kernels.cpu.backend import CpuBackend

    monkeypatch.setenv("OOCBE_BACKEND", "cpu")  # the kernels that fail are its

    def failing(*_, **__):
        raise MemoryError

    monkeypatch.setattr(CpuBackend, "join_rows", staticmethod(failing))
    t1, t2 = (random_table(scope, 600, i) for i, scope in enumerate(NARROW))
    with pytest.raises(
        ResourceError,
        match=r"^tables over .*, over .*: memory could not be had even for a piece of .* limit of 64\.0 MiB",
    ):
        join_sum(t1, t2, output=folder / "out", memory="64MiB")
    assert not list(folder.iterdir())


PEAK = """
import os, sys
import numpy as np
from oocbe.algebra.operators import join_maximise
from oocbe.algebra.operators import join_sum
from oocbe.algebra.operators import maximise
from oocbe.kernels.choice import cuda_works
from oocbe.kernels.cuda.pairs.sort import is_available
from oocbe.runtime.process_memory import peak_memory as peak
from oocbe.tables.stored import StoredTable
folder, memory = sys.argv[1], int(sys.argv[2])
own = f"{folder}/{os.getpid()}"
os.mkdir(own)
f, g = StoredTable.open(folder + "/f"), StoredTable.open(folder + "/g")
small = [StoredTable.save(f"{own}/small{i}", t.read(0, 100)) for i, t in enumerate((f, g))]
def run(a, b, to):  # everything that is compiled or loaded is loaded by small tables first
    joined = join_sum(a, b, output=f"{own}/{to} joined", memory=memory, scratch=folder)
    maximise(joined, "k", output=f"{own}/{to} maximised", memory=memory, scratch=folder)
    join_maximise(a, b, "k", output=f"{own}/{to} fused", memory=memory, scratch=folder)
run(*small, "small")
if cuda_works(wanted=False):  # small tables are not sorted by NVIDIA's package, whose libraries take some 60 MB
    is_available()
before = peak()
run(f, g, "large")
print(before, peak())
"""


@pytest.mark.parametrize("megabytes", [pytest.param(64, marks=pytest.mark.slow), 48])
def test_peak_memory_stays_within_the_budget(folder, megabytes, request, monkeypatch):
    """Resident memory grows by no more than the budget, on tables several times as large as it."""
    rows = 1_500_000 if megabytes == 48 else 8_000_000
    rng = np.random.default_rng(1)
    for name, own in (("f", "a"), ("g", "b")):
        layout = Layout((own, "k"), (1 << 10, 1 << 24))
        with StoredTable.create(folder / name, layout, np.int64, MIN_SUM) as writer:
            for start in range(0, rows, 1 << 20):
                many = min(1 << 20, rows - start)
                k = (np.arange(start, start + many) * 11 % rows).astype(np.uint64)
                keys = rng.integers(0, 1 << 10, many).astype(np.uint64) | (k << np.uint64(10))
                writer.append(keys[np.newaxis], rng.integers(0, 1 << 40, many))
    command = [sys.executable, "-c", PEAK, str(folder), str(megabytes << 20)]
    monkeypatch.setenv("OOCBE_THREADS", "4")  # or more, as on a larger machine: each thread had freed blocks of its own
    for _ in range(2 if request.node.get_closest_marker("gpu") else 1):  # the first may compile kernels of large tables
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    before, peak = map(int, done.stdout.split())
    assert peak - before < megabytes << 20


def streams_used(monkeypatch) -> list[int]:
    """The streams of each operation that follows, with eight threads."""
    monkeypatch.setenv("OOCBE_THREADS", "8")
    monkeypatch.setenv("OOCBE_BACKEND", "cpu")
    used = []

    def counted(pieces, streams):
        used.append(streams)
        return run_in_order(pieces, streams)

    monkeypatch.setattr(context, "run_in_order", counted)
    return used


@pytest.mark.parametrize(
    ("last", "memory", "streams", "eliminated", "expected"),
    [
        *[("own", "1MiB", None, "k", 2), ("own", "1MiB", None, "a", 2), ("own", "1MiB", 3, "k", 3)],
        *[("k", "1MiB", None, "k", 4), ("k", "1MiB", None, "a", 4), ("own", "1GiB", None, "k", 4)],
    ],
)
def test_tables_sorted_beyond_memory_have_few_streams(last, memory, streams, eliminated, expected, folder, monkeypatch):
    """Each piece reads a slice of each sorted run: their number grows with the square of the streams."""
    used = streams_used(monkeypatch)
    rows = np.arange(1 << 14)
    columns, tables = {"own": rows & 3, "k": rows >> 2}, []
    for own in "ab":
        names = ["k", "own"] if last == "own" else ["own", "k"]
        scope = {own if name == "own" else name: 1 << 13 for name in names}
        table = Table.from_rows(scope, np.stack([columns[name] for name in names], axis=1), rows, MIN_SUM)
        tables.append(StoredTable.save(folder / own, table))
    f, g = tables
    join_maximise(f, g, eliminated, output=folder / "found", memory=memory, streams=streams)
    assert set(used) == {expected}


@pytest.mark.parametrize(("streams", "expected"), [(None, {4, 2}), (3, {3})])
def test_groups_sorted_beyond_memory_have_few_streams(streams, expected, folder, monkeypatch):
    """Tables in order of the variable that stays, of which each value has more rows than memory holds."""
    used = streams_used(monkeypatch)
    f, g = (
        StoredTable.save(folder / own, random_table({"k": 1 << 13, own: 1 << 20, "h": 2}, 12_000, seed))
        for seed, own in enumerate("ab")
    )
    f, g = (maximise(table, [], output=folder / f"sorted {i}", memory="64MiB") for i, table in enumerate((f, g)))
    used.clear()
    join_maximise(f, g, "k", output=folder / "found", memory="1MiB", streams=streams)
    assert set(used) == expected


def test_groups_are_not_cut_for_rows_that_do_not_meet(folder, monkeypatch):
    """Each cut prepares a group's inner rows again; most pairs of rows of a group differ in the eliminated variable."""
    calls, rows = [], PreparedElimination.rows

    def counted(join, low, high, groups):
        calls.append(high - low)
        return rows(join, low, high, groups)

    monkeypatch.setattr(PreparedElimination, "rows", counted)
    monkeypatch.setenv("OOCBE_BACKEND", "cpu")
    tables = [
        StoredTable.save(folder / own, random_table({own: 1 << 30, "h": 50, "k": 1 << 12}, 40_000, seed))
        for seed, own in enumerate("ab")
    ]
    found = join_maximise(*tables, "k", output=folder / "found", memory="64MiB", streams=2)
    assert len(calls) < 30  # 600 by the number of columns
    expected = maximise(join_sum(*(table.to_table() for table in tables)), "k")
    assert sorted(found.to_table().values.tolist()) == sorted(expected.values.tolist())


def test_all_modes_are_tried():
    assert {streams for _, streams in MODES} == {1, 2, 8}
    assert {rows for rows, _ in MODES} >= {1, 1000, None}


@pytest.mark.parametrize("rows", [2, 7, 100])
def test_kernels_reduce_all_groups_of_their_rows(folder, rows):
    """The cuda backend's kernel takes it for granted; blocks of a sorted table begin and end within groups."""

    class Careful(CpuBackend):
        @staticmethod
        def reduce_groups(keys, values, starts, masks, *rest):
            assert (starts[0], starts[-1]) == (0, len(values))
            return CpuBackend.reduce_groups(keys, values, starts, masks, *rest)

    tuples = np.unique(np.random.default_rng(3).integers(0, [4, 40, 25], (600, 3)), axis=0)
    table = StoredTable.save(
        folder / "input", Table.from_rows({"a": 4, "b": 40, "c": 25}, tuples, np.arange(len(tuples)))
    )
    expected = maximise(table, "a", backend="cpu")
    found = maximise(table, "a", output=folder / "output", piece_rows=rows, streams=2, backend=Careful())
    same_rows(found, expected)


def test_partial_results_come_from_pieces_that_fill_the_memory(folder, monkeypatch):
    """Nothing else is at work while tables are joined by the variable that goes: there were 171 small pieces."""
    pieces, work = [], JoinElimination.work

    def counted(step, inputs, *rest):
        pieces.append(sum(part.rows for part in inputs))
        return work(step, inputs, *rest)

    monkeypatch.setattr(JoinElimination, "work", counted)
    rows, random, tables = 1 << 14, np.random.default_rng(1), []
    for own in "ab":
        keys = np.stack([random.integers(0, 1 << 7, rows), np.arange(rows) * 11 % rows], axis=1)
        table = Table.from_rows({own: 1 << 7, "k": rows}, keys, random.integers(0, 100, rows), MIN_SUM)
        tables.append(StoredTable.save(folder / own, table))
    found = join_maximise(*tables, "k", output=folder / "found", memory="1MiB", streams=2, backend="cpu")
    assert sum(pieces) == 2 * rows and len(pieces) <= 40
    joined = maximise(join_sum(*[table.read(0, table.rows) for table in tables]), "k")
    places = [joined.scope.index(name) for name in found.scope]
    expected = {tuple(key[place] for place in places): value for key, value in joined.to_dict().items()}
    assert found.read(0, found.rows).to_dict() == expected
