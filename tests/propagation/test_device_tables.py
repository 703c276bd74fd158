"""Tables asked together on the device: domains and rows left are those of the loop for small tables, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.propagate import probe
from oocbe.propagation.tables import AllowedRows
from tests.kernels.conftest import skip_without_gpu

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _device():
    skip_without_gpu()


def made_up_tables(random, sizes):
    """Tables over some variables, some with cells for every value, some with the rows of another one."""
    tables = []
    for number in range(int(random.integers(1, 5))):
        arity = int(random.integers(1, len(sizes) + 1))
        scope = tuple(random.choice(len(sizes), arity, replace=False).tolist())
        own = np.array([sizes[v] for v in scope])
        codes = random.integers(0, own, (int(random.choice([1, 31, 64, 257, 2000, 30_000])), arity))
        if random.random() < 0.4:
            codes = np.where(random.random(codes.shape) < 0.15, own, codes)
        tables.append((scope, codes.astype(np.min_scalar_type(own.max())), f"t{number}"))
    if random.random() < 0.3:
        tables.append((tables[0][0][::-1], tables[0][1][:, ::-1], "turned"))
    if random.random() < 0.3:
        tables.append((*tables[0][:2], "twin"))
    return tables


def fixpoint(tables, domains):
    """Ask tables in turn until none removes a value; whether all have rows, and all variables values."""
    before = None
    while before is None or (domains.counts != before).any():
        before = domains.counts.copy()
        for table in tables:
            if table.filter(domains) is None or not domains.counts.all():
                return False
    return True


def restore(domains, saved):
    domains.alive[:], domains.counts[:] = saved


@pytest.mark.parametrize("rounds", [64, 1])
@pytest.mark.parametrize("largest", [7, 300, 5000])
def test_searches_go_down_and_back(tune, largest, rounds):
    from oocbe.propagation import device_tables

    tune(table_rounds=rounds)
    contradictions = 0
    for seed in range(25):
        random = np.random.default_rng(seed)
        sizes = random.choice([1, 2, 3, 5, 17, 33, 70, 300, largest], int(random.integers(2, 40)))
        sizes = np.minimum(sizes, largest).tolist()
        tables = made_up_tables(random, sizes)
        found, expected = Domains.of_sizes(sizes), Domains.of_sizes(sizes)
        on_device = device_tables.DeviceTables(tables, found)
        in_turn = [AllowedRows(scope, codes, expected, name) for scope, codes, name in tables]
        saved = []
        for step in range(20):
            if saved and (random.random() < 0.35 or not expected.counts.all()):
                for table in (on_device, *in_turn):
                    table.pop()
                before = saved.pop()
                restore(found, before)
                restore(expected, before)
                continue
            for table in (on_device, *in_turn):
                table.push()
            saved.append((expected.alive.copy(), expected.counts.copy()))
            for v in random.choice(len(sizes), int(random.integers(1, len(sizes) + 1)), replace=False) if step else ():
                kept = random.random(sizes[v]) < random.choice([0.3, 0.7, 0.95])
                kept[random.choice(expected.values(v))] = True
                found.keep(v, kept)
                expected.keep(v, kept)
            before = expected.counts.copy()
            lost, is_possible = on_device.filter(found), fixpoint(in_turn, expected)
            assert (lost is not None and found.counts.all()) == is_possible
            if is_possible:
                assert (found.alive == expected.alive).all() and (found.counts == expected.counts).all()
                assert sorted(lost) == np.flatnonzero(expected.counts != before).tolist()
                assert on_device.rows_left == sum(table.rows_left for table in in_turn)
            else:
                contradictions += 1
                for table in (on_device, *in_turn):
                    table.pop()
                before = saved.pop()
                restore(found, before)
                restore(expected, before)
    assert contradictions > 5


def network_problem(seed, rows=60):
    random = np.random.default_rng(seed)
    variables = tuple(Variable(f"x{v}", 6) for v in range(9))
    scopes = [tuple(random.choice(9, size=3, replace=False).tolist()) for _ in range(10)]
    tables = [np.unique(random.integers(0, 6, size=(rows, 3)), axis=0) for _ in scopes]
    return Problem(variables, constraints=tuple(Constraint(s, t, True) for s, t in zip(scopes, tables, strict=True)))


def test_probing_is_that_of_the_processor():
    failures = 0
    for seed in range(6):
        outcomes = []
        for backend in ("cuda", "cpu"):
            network = Network(network_problem(seed, 40 + 10 * seed), backend=backend)
            found = network.propagate()
            probed = probe(network, found)
            outcomes.append((found.status, probed.failures, network.domains.alive.tolist()))
        assert outcomes[0][0] == outcomes[1][0]
        if outcomes[0][0] == "fixpoint":
            assert outcomes[0] == outcomes[1]
            failures += outcomes[0][1]
    assert failures > 0


def test_the_table_that_fails_is_named():
    variables = tuple(Variable(f"x{v}", 3) for v in range(3))
    equal = np.array([[a, a] for a in range(3)])
    other = np.array([[0, 0], [1, 1]])
    last = np.array([[2, 2]])
    constraints = tuple(Constraint(s, t, True) for s, t in (((0, 1), equal), ((1, 2), other), ((2, 0), last)))
    found = Network(Problem(variables, constraints=constraints), backend="cuda").propagate()
    assert found.status == "infeasible" and "constraint" in found.reason
    empty = Constraint((0, 1), np.zeros((0, 2), dtype=np.int64), True)
    found = Network(Problem(variables, constraints=(empty, *constraints)), backend="cuda").propagate()
    assert found.status == "infeasible" and "constraint 0" in found.reason


def test_one_table_of_more_rows_than_a_block_has_threads_for():
    random = np.random.default_rng(7)
    tuples = np.unique(random.integers(0, 9, (400_000, 9)), axis=0)
    scope = tuple(range(9))
    tables = (Constraint(scope, tuples, True), Constraint(scope[::-1], tuples[::2], True))
    problem = Problem(tuple(Variable(f"x{v}", 9) for v in scope), constraints=tables)
    networks = [Network(problem, backend=backend) for backend in ("cuda", "cpu")]
    for v, value in ((0, 3), (4, 1), (8, 8), (2, 2), (5, 0)):
        found = []
        for network in networks:
            network.domains.keep(v, np.arange(9) == value)
            found.append(network.propagate())
        assert found[0].status == found[1].status
        if found[0].status != "fixpoint":  # each stops where it sees that nothing is left
            break
        assert (networks[0].domains.alive == networks[1].domains.alive).all()
        assert sum(p.rows_left for p in networks[0].propagators) == sum(p.rows_left for p in networks[1].propagators)
    assert (v, found[0].status) == (5, "infeasible")
