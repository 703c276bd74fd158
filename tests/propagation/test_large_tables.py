"""Large tables by threads and on the device: the same rows and values as by the one loop for small ones."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.errors import ModelError, TimeLimitError
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation import scans
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.large_tables import DeviceRows, SharedRows, ThreadedRows, allowed_rows
from oocbe.propagation.propagate import propagate
from oocbe.propagation.tables import AllowedRows
from oocbe.runtime.deadline import Deadline
from oocbe.tables.packed import PackedTable
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table
from tests.kernels.conftest import skip_without_gpu

BACKENDS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

SIZES = ((5,), (2, 3), (100,) * 6, (50,) * 10, (3, 700, 1, 2, 64), (1000, 1500, 300, 2000, 77, 300, 900, 12))


@pytest.fixture(params=BACKENDS)
def backend(request):
    if request.param == "cuda":
        skip_without_gpu()
    return request.param


@pytest.fixture(autouse=True)
def _small_parts(tune):
    tune(large_table_rows=1, scan_part_rows=5000)


def random_codes(seed, sizes, rows, share_of_any=0.0):
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, rows) for size in sizes], axis=1)
    codes = np.where(random.random(codes.shape) < share_of_any, np.array(sizes), codes)
    return codes.astype(np.min_scalar_type(max(sizes)))


def narrowed(domains, seed, part):
    """Removes values at random, but the first of each variable."""
    random = np.random.default_rng(seed)
    for v in range(len(domains.counts)):
        flags = random.random(len(domains.flags(v))) < part
        flags[0] = True
        domains.keep(v, flags)


@pytest.mark.parametrize("share_of_any", [0.0, 0.1])
@pytest.mark.parametrize("sizes", SIZES)
def test_filters_are_those_of_the_small_loop(sizes, share_of_any, backend):
    for rows in (1, 31, 4096, 23_456):
        codes = random_codes(rows, sizes, rows, share_of_any)
        domains, expected = Domains.of_sizes(sizes), Domains.of_sizes(sizes)
        scope = tuple(range(len(sizes)))
        table = allowed_rows(scope, SharedRows(codes, sizes), domains, "large", backend)
        assert isinstance(table, ThreadedRows if backend == "cpu" else DeviceRows)
        small = AllowedRows(scope, codes, expected, "small")
        saved = []
        for step, part in enumerate((1.0, 0.95, 0.8, 0.5, 0.5, 0.2)):
            narrowed(domains, step, part)
            narrowed(expected, step, part)
            table.push()
            small.push()
            saved.append((domains.alive.copy(), domains.counts.copy()))
            assert table.filter(domains) == small.filter(expected)
            assert table.rows_left == small.rows_left
            if not table.rows_left:
                break
            assert (domains.alive == expected.alive).all() and (domains.counts == expected.counts).all()
            assert (domains.counts == np.add.reduceat(domains.alive, domains.offsets[:-1])).all()
        while saved:
            table.pop()
            small.pop()
            assert table.rows_left == small.rows_left
            domains.alive[:], domains.counts[:] = saved.pop()
            expected.alive[:], expected.counts[:] = domains.alive, domains.counts
            assert table.filter(domains) == small.filter(expected) and table.rows_left == small.rows_left
            domains.alive[:], domains.counts[:] = expected.alive, expected.counts


def test_networks_reach_the_same_fixpoint(backend):
    random = np.random.default_rng(4)
    variables = tuple(Variable(f"x{v}", 12) for v in range(8))
    scopes = [tuple(random.choice(8, size=3, replace=False).tolist()) for _ in range(12)]
    constraints = tuple(
        Constraint(scope, np.unique(random.integers(0, 12, size=(260, 3)), axis=0), allowed=True) for scope in scopes
    )
    problem = Problem(variables, constraints=constraints)
    found, expected = (Network(problem, backend=where).propagate() for where in (backend, "cpu"))
    assert found.status == expected.status and (found.domains.alive == expected.domains.alive).all()
    if backend == "cpu":  # a device asks all tables until none removes anything, and calls that a round
        assert found.rounds == expected.rounds
    assert sum(found.rounds) == sum(expected.rounds)
    assert propagate(problem, backend=backend).status == expected.status


def test_constraints_that_share_their_rows_lose_them_apart(backend):
    sizes = (9, 20, 9, 20, 9)
    rows = SharedRows(random_codes(5, sizes[:4], 20_000), sizes[:4])
    found, expected = Domains.of_sizes(sizes), Domains.of_sizes(sizes)
    tables = [allowed_rows(scope, rows, found, "shared", backend) for scope in ((0, 1, 2, 3), (2, 3, 4, 1))]
    small = [AllowedRows(table.scope, rows.codes, expected, "small") for table in tables]
    for step in range(6):
        for domains in (found, expected):
            narrowed(domains, 20 + step, 0.75)
        place = step % 2
        assert tables[place].filter(found) == small[place].filter(expected)
        assert [table.rows_left for table in tables] == [table.rows_left for table in small]
        assert (found.alive == expected.alive).all()


def test_a_scan_that_is_ended_can_be_made_again():
    codes = random_codes(0, (10,) * 4, 20_000)
    domains, scope = Domains.of_sizes((10,) * 4), (0, 1, 2, 3)
    table = allowed_rows(scope, SharedRows(codes, (10,) * 4), domains, "large")
    narrowed(domains, 1, 0.7)
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        deadline._end = 0.0
        with pytest.raises(TimeLimitError):
            table.filter(domains)
    small = AllowedRows(scope, codes, domains, "small")
    expected = Domains(domains.offsets, domains.alive.copy(), domains.counts.copy())
    assert table.filter(domains) == small.filter(expected) and table.rows_left == small.rows_left


def random_table(seed, sizes, rows):
    codes = np.unique(random_codes(seed, sizes, rows).astype(np.int64), axis=0)
    return Table.from_rows({f"v{i}": size for i, size in enumerate(sizes)}, codes, np.arange(len(codes)))


@pytest.fixture(params=["memory", "packed", "disk"])
def placed(request, tmp_path):
    """A table where a scan may find it."""

    def put(table):
        if request.param == "memory":
            return table
        if request.param == "packed":
            return PackedTable.pack(table, chunk_rows=2500)
        return StoredTable.save(tmp_path / "table", table, chunk_rows=2500)

    return put


@pytest.mark.parametrize("sizes", SIZES)
def test_scans_of_tables_anywhere(sizes, placed, backend, tune):
    tune(scan_piece_rows=3000, scan_device_rows=7000, scan_held_bytes=8 * 7000)
    table = random_table(1, sizes, 20_000)
    there = placed(table)
    rows, _ = table.to_rows()
    for part in (1.0, 0.8, 0.3, 0.0):
        random = np.random.default_rng(7)
        left = {name: random.random(size) < part for name, size in zip(table.scope, sizes, strict=True)}
        is_left = np.all([left[name][rows[:, c]] for c, name in enumerate(table.scope)], axis=0)
        found = scans.scan(there, left, backend)
        assert found.rows_left == is_left.sum()
        for c, name in enumerate(table.scope):
            assert found.supported[name].tolist() == np.isin(np.arange(sizes[c]), rows[is_left, c]).tolist()
    everything = scans.scan(there, backend=backend)
    assert everything.rows_left == table.rows


@pytest.mark.parametrize("sizes", [(2,) * 40, (2, 3, 500, 2, 9, 9, 40000, 2), (30, 200, 600, 1, 8)])
def test_columns_that_share_a_look_at_a_flag(sizes, tune):
    """Some have lost nothing, fields fill several words, and a group is full before its neighbour comes."""
    tune(scan_piece_rows=7000)
    table = random_table(3, sizes, 20_000)
    rows, _ = table.to_rows()
    lost = {c: int(rows[-1, c]) for c in range(len(sizes)) if c % 4 and sizes[c] > 1}
    left = {f"v{c}": np.arange(sizes[c]) != value for c, value in lost.items() if c % 7 < 5}
    is_left = np.all([left[name][rows[:, int(name[1:])]] for name in left], axis=0)
    found = scans.scan(table, left, "cpu")
    assert found.rows_left == is_left.sum() < table.rows
    for c, name in enumerate(table.scope):
        assert found.supported[name].tolist() == np.isin(np.arange(sizes[c]), rows[is_left, c]).tolist()


def test_a_scan_ends_at_the_deadline(placed):
    there = placed(random_table(2, (20,) * 4, 5000))
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        deadline._end = 0.0
        with pytest.raises(TimeLimitError):
            scans.scan(there, backend="cpu")


def test_flags_that_do_not_fit_are_refused():
    table = random_table(3, (4, 5), 10)
    with pytest.raises(ModelError, match="v1 has 5 values"):
        scans.scan(table, {"v1": [True] * 4})
    with pytest.raises(ModelError, match="not in scope"):
        scans.scan(table, {"w": [True]})
