"""Counts of several limbs: their arithmetic, and messages of them in memory, in pieces, on disk and on a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocbe
from benchmarks.peers.path_count import Day, count_assignments, find_order
from oocbe.api.tasks import count as counts
from oocbe.errors import CorruptDataError, ModelError
from oocbe.kernels.cpu.buckets.limb_leaf import multiplied
from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cuda.device import why_unavailable
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, SUM_PRODUCT
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.layout import Layout
from oocbe.tables.numbers import greatest, limbs_for, limbs_of, total, trim_limbs
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.helpers.effort import examples

OPTIONS = SolveOptions(order_seconds=0.0, order="min-fill", backend="cpu")

numbers = st.one_of(
    st.integers(0, 2**300 - 1),
    st.integers(0, 300).map(lambda bits: 2**bits),
    st.integers(0, 300).map(lambda bits: 2**bits - 1),
)


def in_limbs(values, limbs):
    """Integers as rows of limbs."""
    rows = [number.to_bytes(8 * limbs, "little") for number in values]
    return np.frombuffer(b"".join(rows), dtype="<i8").reshape(len(rows), limbs).copy()


@jit
def product_of(first, filled, second, limbs, room):
    product = np.zeros((2, room), dtype=np.uint64)
    for i in range(min(filled, room)):
        product[0, i] = np.uint64(first[i])
    multiplied(product, min(filled, room), second, 0, limbs)
    return product[0]


@given(numbers, numbers, st.integers(1, 11))
def test_products_are_those_of_integers(one, other, room):
    found = product_of(in_limbs([one], 5)[0], 5, in_limbs([other], 5)[0], 5, room)
    assert int.from_bytes(found.tobytes(), "little") == one * other % 2 ** (64 * room)


@given(st.lists(numbers, min_size=1, max_size=6))
def test_greatest_total_and_narrowed(values):
    limbs = in_limbs(values, 6)
    assert greatest(limbs) == max(values)
    assert total(limbs) == sum(values)
    kept = trim_limbs(limbs)
    assert limbs_of(kept) == limbs_for(max(values))
    assert [total(kept[row : row + 1]) for row in range(len(values))] == values


@given(st.integers(0, 2**400))
def test_limbs_hold_what_they_are_for(bound):
    limbs = limbs_for(bound)
    assert bound < 2 ** (64 * limbs if limbs else 63)
    assert limbs == 0 or bound >= 2 ** (64 * (limbs - 1) if limbs > 1 else 63)


def random_day(seed, variables, width=4):
    """A day with constraints between photographs that are near one another."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 6, variables).tolist()
    constraints = []
    for first in range(variables - width):
        for _ in range(2):
            scope = (first + random.choice(width + 1, int(random.integers(2, 4)), replace=False)).tolist()
            tuples = {tuple(int(random.integers(1, sizes[v])) for v in scope) for _ in range(2)}
            constraints.append((scope, sorted(tuples)))
    return Day(sizes, constraints)


def problem_of(day):
    variables = tuple(Variable(f"v{v}", size) for v, size in enumerate(day.sizes))
    return Problem(variables, constraints=tuple(Constraint(tuple(s), tuples) for s, tuples in day.constraints))


@pytest.fixture(scope="module")
def long_day():
    day = random_day(1, 130)
    return problem_of(day), count_assignments(day, find_order(day, 0.0))[0]


@pytest.mark.parametrize("tables", ["auto", "incomplete"])
def test_a_long_day_against_the_independent_counter(long_day, tables):
    problem, expected = long_day
    assert expected > 2**190
    assert oocbe.count(problem, OPTIONS, tables=tables).value == expected


@pytest.mark.parametrize(("piece_rows", "memory", "more"), [(60, None, 0), (None, 1 << 12, 0), (60, 1 << 12, 3)])
def test_out_of_core(monkeypatch, tune, memory_folder, piece_rows, memory, more):
    """In pieces, and with messages of limbs that go to disk; also of more limbs than they need."""
    day = random_day(2, 64)
    problem, expected = problem_of(day), count_assignments(day, find_order(day, 0.0))[0]
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) and limbs_for(bound) + more)
    if memory is not None:
        tune(message_bytes=memory)
    written = []
    create = StoredTable.create.__func__

    def recorded(cls, *arguments, limbs=0, **settings):
        written.append(limbs)
        return create(cls, *arguments, limbs=limbs, **settings)

    monkeypatch.setattr(StoredTable, "create", classmethod(recorded))
    options = {"workdir": memory_folder, "piece_rows": piece_rows, "streams": 2, "chunk_rows": 64}
    assert oocbe.count(problem, OPTIONS, **options).value == expected
    assert max(written, default=0) >= 2
    assert list(memory_folder.iterdir()) == []


@pytest.mark.parametrize("is_fixed", [True, False])
def test_small_counts_of_many_limbs(memory_folder, is_fixed):
    """Limbs follow from the product of the greatest counts: of those of the first variables with the value 0, and with
    the value 1. No row has both, so the counts in these limbs fit int64."""
    half, side = 40, 80
    variables = tuple(Variable(f"v{v}", 2) for v in range(side + 2))
    constraints = [Constraint((v, side), [[1, int(v < half)]]) for v in range(side)]
    constraints += [Constraint((side, side + 1), [[0, 0]])] * is_fixed
    problem = Problem(variables, constraints=tuple(constraints))
    order = memory_folder.parent / "order"
    order.write_text(" ".join(v.name for v in variables))
    options = {"workdir": memory_folder, "piece_rows": 1, "order": str(order), "tables": "incomplete"}
    assert oocbe.count(problem, OPTIONS, **options).value == (2**half) * (3 if is_fixed else 4)


@pytest.mark.parametrize("seed", range(examples(32)))
def test_blocks_of_threads(seed, monkeypatch, tune):
    """Every bucket cut into blocks for several threads, all counts in limbs."""
    tune(serial_work=0)
    monkeypatch.setenv("OOCBE_THREADS", "2")
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) + seed % 3)
    day = random_day(seed, 40)
    assert oocbe.count(problem_of(day), OPTIONS).value == count_assignments(day, find_order(day, 0.0))[0]


@pytest.fixture
def device():
    """Skips where there is none."""
    if why_unavailable():
        pytest.skip(f"no GPU: {why_unavailable()}")


@pytest.mark.gpu
@pytest.mark.parametrize("more", [0, 2])
def test_on_the_device(long_day, monkeypatch, device, more):
    problem, expected = long_day
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) and limbs_for(bound) + more)
    assert oocbe.count(problem, OPTIONS, backend="cuda").value == expected


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_on_the_device_from_the_first_bucket(seed, monkeypatch, device):
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) + seed)
    day = random_day(seed, 40)
    found = oocbe.count(problem_of(day), OPTIONS, backend="cuda").value
    assert found == count_assignments(day, find_order(day, 0.0))[0]


def test_infeasible_and_empty():
    assert oocbe.count(Problem(()), OPTIONS).value == 1
    nothing = Problem((Variable("a", 2),), constraints=(Constraint((0,), [[0], [1]]),))
    assert oocbe.count(nothing, OPTIONS).value == 0


def stored(tmp_path):
    values = [0, 2**63, 2**64, 3**80, 5]
    layout = Layout(("a",), (8,))
    table = Table(layout, np.arange(5, dtype=np.uint64).reshape(1, 5), in_limbs(values, 2), COUNTING, is_sorted=True)
    with StoredTable.create(tmp_path / "t", layout, np.int64, COUNTING, chunk_rows=2, limbs=2) as writer:
        writer.append(table.keys[:, :3], table.values[:3])
        writer.append(table.keys[:, 3:], table.values[3:])
    return table, tmp_path / "t"


def test_a_stored_table_of_limbs(tmp_path):
    table, path = stored(tmp_path)
    read = StoredTable.open(path)
    assert (read.limbs, read.extent, read.nbytes) == (2, (0, 3**80), table.nbytes)
    assert np.array_equal(read.to_table().values, table.values)
    assert np.array_equal(read.read(1, 4).values, table.values[1:4])
    (path / "limb_1" / "c" / "1").write_bytes(b"")
    with pytest.raises(CorruptDataError, match="limb_1"):
        StoredTable.open(path)


def test_values_of_limbs_are_counts_only():
    with pytest.raises(ModelError, match="values of shape"):
        Table(Layout(("a",), (8,)), np.zeros((1, 1), np.uint64), np.ones((1, 2), np.int64), SUM_PRODUCT)
