"""Keys of more than one and two words, against solvers that share nothing with ours."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

import oocbe
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.message import expected_work
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import substitutions
from oocbe.elimination.engine.consumption import LOOKUP_BITS
from oocbe.elimination.preparation.prepare import prepare
from oocbe.errors import UnsupportedError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem, lists_all
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MAX_PRODUCT, MIN_SUM, SUM_PRODUCT
from oocbe.tables.layout import Layout
from tests.helpers.small_problems import check, eliminate


def selection_problem(bits: int, seed: int, semiring=MIN_SUM) -> Problem:
    """At most two of ``bits`` binary variables are on, all joined to a hub: the hub's message has all of them.

    Pairs are constrained to leave few rows, whatever their number.
    """
    random = np.random.default_rng(seed)
    hub_size = 3
    variables = (Variable("hub", hub_size), *(Variable(f"x{v}", 2) for v in range(bits)))

    def numbers(shape):
        return random.integers(0, 90, shape) if semiring is MIN_SUM else random.random(shape) + 0.05

    functions = [Function.from_array((0, v), numbers((hub_size, 2))) for v in range(1, bits + 1)]
    constraints = [
        Constraint((u, v), [[1, 1]])
        for u in range(1, bits + 1)
        for v in range(u + 1, bits + 1)
        if (u * 7 + v * 3) % 11 or v - u > 12
    ]
    return Problem(variables, tuple(functions), tuple(constraints), constant=semiring.one, semiring=semiring)


def feasible_selections(problem: Problem) -> list[tuple[int, ...]]:
    """Every feasible set of variables that are on, by plain backtracking over the pairs."""
    return selections_without(len(problem.variables), frozenset(frozenset(c.scope) for c in problem.constraints))


@cache
def selections_without(count: int, clash: frozenset[frozenset[int]]) -> list[tuple[int, ...]]:
    """Every set of variables from 1 on, below ``count``, without both of a pair that clashes."""
    found: list[tuple[int, ...]] = []

    def extend(chosen: tuple[int, ...], left: list[int]) -> None:
        found.append(chosen)
        for place, v in enumerate(left, 1):
            extend((*chosen, v), [u for u in left[place:] if frozenset((u, v)) not in clash])

    extend((), list(range(1, count)))
    return found


def assignment_of(problem: Problem, hub: int, chosen: tuple[int, ...]) -> list[int]:
    return [hub] + [int(v in chosen) for v in range(1, len(problem.variables))]


@pytest.mark.parametrize(
    ("bits", "semiring"),
    [(63, MIN_SUM), (64, MIN_SUM), (130, MIN_SUM)]
    + [(65, semiring) for semiring in (MIN_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP, COUNTING)],
    ids=str,
)
def test_wide_messages(bits, semiring):
    problem = selection_problem(bits, seed=bits, semiring=semiring)
    selections = feasible_selections(problem)
    values = [math.nan]
    if semiring is not COUNTING:
        table = np.array([[f.values.reshape(3, 2)[h] for f in problem.functions] for h in range(3)])
        rows = np.zeros((len(selections), bits), dtype=int)
        for row, chosen in enumerate(selections):
            rows[row, [v - 1 for v in chosen]] = 1
        picked = np.where(rows[None], table[:, None, :, 1], table[:, None, :, 0])
        values = (picked.prod(axis=2) if semiring.combination else picked.sum(axis=2)).ravel()
    expected = len(selections) * 3 if semiring is COUNTING else semiring.reduce(np.array(values)).item()
    if semiring is LOG_SUM_EXP:
        expected = float(np.logaddexp.reduce(np.array(values)))
    order = list(range(bits + 1))
    with MessageStore(1 << 28) as store:
        prepared = prepare(problem, semiring, order)
        outcome = Forward(prepared, True, store).run()
        if semiring is not COUNTING:  # costs say nothing there, so that the hub is on its own
            assert outcome.width == bits
            assert prepared.layout(outcome.buckets[0].separator).words == math.ceil(bits / 64)
            assert semiring.selects or outcome.largest_rows == len(selections)
    check(problem, *eliminate(problem, order, True, block_rows=7), expected)
    if bits > 64 and semiring in (MIN_SUM, SUM_PRODUCT):  # one semiring that selects, and one that does not
        check(problem, *eliminate(problem, [0, *order[:0:-1]]), expected)


def test_incomplete_functions_over_wide_scopes():
    """Sparse tables over 90 and 150 variables, joined with one another."""
    random = np.random.default_rng(3)
    count = 160
    rows = random.integers(0, 2, size=(60, count))
    rows = np.unique(rows, axis=0)
    costs = random.integers(0, 1000, size=(2, len(rows)))
    first, second = tuple(range(0, 90)), tuple(range(10, count))
    functions = []
    for scope, values in ((first, costs[0]), (second, costs[1])):
        part, index = np.unique(rows[:, scope], axis=0, return_index=True)
        functions.append(Function(scope[::-1], part[:, ::-1], values[index]))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions))
    candidates = [problem.evaluate(row.tolist()) for row in rows]
    expected = min(value for value in candidates if value is not None)
    for order, dominance in ((range(count), True), (random.permutation(count).tolist(), False)):
        check(problem, *eliminate(problem, order, dominance), expected)
    assert oocbe.solve(problem, semiring="counting", order_seconds=0).value == len(rows)


def test_allowed_list_over_a_wide_scope():
    random = np.random.default_rng(5)
    sizes = [3, 70, 2, 5, 130, 4, 9, 2, 2, 2]
    tuples = np.unique(np.column_stack([random.integers(0, n, 200) for n in sizes]), axis=0)
    pairs = np.unique(tuples[:40][:, [1, 4]], axis=0)
    problem = Problem(
        tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)),
        (Function.from_array((1, 4), random.integers(0, 99, (70, 130))),),
        (Constraint(tuple(range(10)), tuples, allowed=True), Constraint((1, 4), pairs, allowed=True)),
    )
    values = [problem.evaluate(t) for t in tuples.tolist()]
    expected = min(v for v in values if v is not None)
    for seed in range(3):
        check(problem, *eliminate(problem, np.random.default_rng(seed).permutation(10).tolist()), expected)


@pytest.mark.parametrize("bits", [10, pytest.param(LOOKUP_BITS, marks=pytest.mark.slow)])
def test_forbidden_list_over_a_scope_beyond_lookups(bits, monkeypatch):
    """Twice as many assignments as a lookup has at most, less three, written out as a table."""
    monkeypatch.setattr("oocbe.elimination.preparation.prepare.LOOKUP_BITS", bits)
    count = bits + 1
    forbidden = Constraint(tuple(range(count)), [[0] * count, [0] * (count - 1) + [1], [1] + [0] * (count - 1)])
    functions = tuple(Function.from_array((v,), [0, v + 5]) for v in range(count))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions, (forbidden,))
    result = oocbe.solve(problem, order_seconds=0)
    assert (result.value, sum(result.assignment or ())) == (6, 1)


@pytest.mark.parametrize("kind", ["function", "constraint"])
def test_scopes_that_cannot_be_written_out_are_refused(kind):
    scope, row = tuple(range(40)), [[0] * 40]
    functions = (Function(scope, row, [1], default=3),) if kind == "function" else ()
    constraints = (Constraint(scope, row),) if kind == "constraint" else ()
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(40)), functions, constraints)
    with pytest.raises(UnsupportedError, match=f"{kind}.*40 variables.*List the feasible tuples"):
        oocbe.solve(problem, bounds="none", order_seconds=0)


def ring_network(seed: int) -> Problem:
    """A probability network: binary factors around a ring with chords, and one ternary."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=14).tolist()
    scopes = [(v, (v + 1) % 14) for v in range(14)] + [(v, (v + 5) % 14) for v in range(0, 14, 3)] + [(0, 4, 9)]
    functions = [Function.from_array(s, random.random([sizes[v] for v in s]) + 0.01) for s in scopes]
    return Problem(
        tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), constant=1.0, semiring=SUM_PRODUCT
    )


MULTIPLY_WITH_PYAGRUM = """
import json, sys, pyagrum
sizes, factors = json.load(sys.stdin)
variables = [pyagrum.RangeVariable(f"x{v}", f"x{v}", 0, size - 1) for v, size in enumerate(sizes)]
product = pyagrum.Tensor()
product.fillWith(1.0)
for scope, rows, values in factors:
    factor = pyagrum.Tensor()
    for v in scope:
        factor.add(variables[v])
    for row, value in zip(rows, values):
        factor[{f"x{v}": x for v, x in zip(scope, row)}] = value
    product = product * factor
print(json.dumps([product.sum(), product.max()]))
"""


@pytest.mark.parametrize("seed", range(2))
def test_probability_networks_against_pyagrum(seed):
    """In a process of its own: the package crashes beside some other compiled ones."""
    if importlib.util.find_spec("pyagrum") is None:
        pytest.skip("pyagrum is not installed")
    problem = ring_network(seed)
    factors = [(f.scope, f.tuples.tolist(), f.values.tolist()) for f in problem.functions]
    answer = run_alone(MULTIPLY_WITH_PYAGRUM, text=json.dumps([problem.sizes, factors]))
    for semiring, expected in zip(("sum-product", "max-product"), json.loads(answer), strict=True):
        assert oocbe.solve(problem, semiring=semiring, order_seconds=0).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_partition_functions_against_einsum(seed):
    problem = ring_network(seed)
    operands = []
    for f in problem.functions:
        operands += [f.to_array(problem.sizes)[0], list(f.scope)]
    expected = np.einsum(*operands, [], optimize="greedy")
    assert oocbe.solve(problem, order_seconds=0).value == pytest.approx(expected.item(), rel=1e-9)


SOLVE_WITH_TOULBAR2 = """
import sys, pytoulbar2
model = pytoulbar2.CFN(vac=0, verbose=-1)
model.Read(sys.argv[1])
found = model.Solve()
print(int(round(found[1])))
"""


@pytest.mark.parametrize("bits", [40, 70])
def test_wide_costs_against_toulbar2(bits, tmp_path):
    """In a process of its own: toulbar2 keeps global state between solves."""
    if importlib.util.find_spec("pytoulbar2") is None:
        pytest.skip("pytoulbar2 is not installed")
    problem = selection_problem(bits, seed=100 + bits)
    file = tmp_path / "problem.wcsp"
    oocbe.write(problem, file)
    answer = run_alone(SOLVE_WITH_TOULBAR2, str(file))
    result = oocbe.solve(problem, order_seconds=0)
    assert result.value == int(answer.split()[-1]) == problem.evaluate(result.assignment)


def run_alone(program: str, *arguments: str, text: str = "") -> str:
    """What a program prints, run by an interpreter of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True).stdout


def test_more_assignments_than_floats_can_hold():
    """2^1120 of them, of which two are feasible."""
    scope, tuples = tuple(range(70)), np.arange(140).reshape(2, 70)
    problem = Problem(tuple(Variable(f"x{v}", 1 << 16) for v in scope), (Function(scope, tuples, [3, 2]),))
    separators, rows = tuple(scope[v + 1 :] for v in scope), (2.0,) * 70
    assert expected_work(problem.sizes, scope, separators, rows, np.dtype(np.int32), "auto", 1 << 30) > 100
    prepared = prepare(problem, MIN_SUM, scope)
    with MessageStore(1 << 30) as store:
        assert Forward(prepared, False, store, tables="auto").run().value == 2


def listed(variables: int, rows: int, seed: int, changed: int = 0) -> Problem:
    """One function of random rows of three values, and of copies of each with ``changed`` values of variables less."""
    random = np.random.default_rng(seed)
    tuples = random.integers(1, 3, (rows, variables))
    for row in range(rows if changed else 0):
        near = np.repeat(tuples[row : row + 1], changed, axis=0)
        near[np.arange(changed), random.choice(variables, changed, replace=False)] = 0
        tuples = np.vstack([tuples, near])
    values = random.integers(0, 9, len(tuples))
    domains = tuple(Variable(f"x{v}", 3) for v in range(variables))
    return Problem(domains, (Function(tuple(range(variables)), tuples, values, None),), semiring=MIN_SUM)


def test_few_distant_rows_need_no_passes(monkeypatch):
    """A pass a variable for each of as many messages took 13 of 25 seconds for 1,000 variables."""
    passes = []
    monkeypatch.setattr(substitutions.Substitutions, "mark", lambda *arguments: passes.append(arguments))
    problem = listed(200, 5, seed=1)
    result = oocbe.solve(problem, order="min-degree", bounds="none")
    assert result.value == problem.functions[0].values.min()
    assert len(passes) < 64 * 65  # of messages of one word
    assert problem.evaluate(result.assignment) == result.value


@pytest.mark.parametrize("seed", range(4))
def test_near_rows_are_dropped_in_pairs_as_in_passes(seed, monkeypatch):
    """Only variables in which rows differ alone are substituted; the rows dropped are the same."""
    drop_rows, dropped = substitutions.Substitutions.drop_rows, []

    def checked(own, keys, values, sign):
        found, marks = drop_rows(own, keys, values, sign), np.zeros(len(values), dtype=np.uint8)
        for variable in own.variables:
            own.mark(variable, (keys, values), (keys, values), sign, marks, np.zeros(1, dtype=np.int64))
        assert (found[0] == keys[:, marks == 0]).all()
        dropped.append((len(keys), int(marks.sum())))
        return found

    monkeypatch.setattr(substitutions.Substitutions, "drop_rows", checked)
    with MessageStore(1 << 30) as store:
        Forward(prepare(listed(90, 3, seed, changed=5), MIN_SUM, range(90)), True, store).run()
    assert sum(rows for words, rows in dropped if words > 1) > 0


def test_one_row_is_packed_as_many_are():
    random = np.random.default_rng(3)
    sizes = random.integers(1, 1 << 20, 50)
    layout = Layout(tuple(f"x{v}" for v in range(50)), tuple(sizes.tolist()))
    tuples = random.integers(0, sizes, (80, 50))
    for rows in (tuples, tuples.tolist()):
        assert (layout.pack(tuples) == np.array([layout.key_of(row) for row in rows]).T).all()


def test_assignments_beyond_floats_are_counted_without_a_warning():
    part = Constraint(tuple(range(1000)), np.zeros((2, 1000), dtype=np.int64))
    assert not lists_all([part], [3] * 1000).any()
