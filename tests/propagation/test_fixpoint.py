"""Domains of problems: brute force, definitions, order, and linear propagation of the same tables written as rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.peers.xcsp_extension import read_extension
from oocbe.errors import TimeLimitError
from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable
from oocbe.model.linear_system import LinearSystem
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MIN_SUM
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.bounds import propagate_bounds
from oocbe.propagation.domains import Domains
from oocbe.propagation.fixpoint import Network
from oocbe.propagation.tables import AllowedRows, CompactTable, ForbiddenPatterns
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples


@st.composite
def scopes(draw, sizes, most=3):
    count = draw(st.integers(1, min(most, len(sizes))))
    return tuple(draw(st.permutations(range(len(sizes))))[:count])


@st.composite
def tables(draw, sizes):
    scope = draw(scopes(sizes))
    every = list(itertools.product(*(range(sizes[v]) for v in scope)))
    rows = draw(st.lists(st.sampled_from(every), unique=True, max_size=8))
    return Constraint(scope, np.array(rows, dtype=np.int64).reshape(-1, len(scope)), draw(st.booleans()))


@st.composite
def short_tables(draw, sizes):
    scope = draw(scopes(sizes))
    cells = [st.integers(ANY, sizes[v] - 1) for v in scope]
    rows = draw(st.lists(st.tuples(*cells), max_size=4))
    return ShortTable(scope, np.array(rows, dtype=np.int64).reshape(-1, len(scope)), draw(st.booleans()))


@st.composite
def linears(draw, sizes):
    scope = draw(scopes(sizes, most=4))
    scale = draw(st.sampled_from([1, 1, 2**58]))
    columns = tuple(scale * np.array([draw(st.integers(-4, 4)) for _ in range(sizes[v])]) for v in scope)
    return LinearConstraint(scope, columns, scale * draw(st.integers(-6, 6)))


@st.composite
def models(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    problem = Problem(
        tuple(Variable(f"v{i}", size) for i, size in enumerate(sizes)),
        constraints=tuple(draw(st.lists(tables(sizes), max_size=3))),
        linear_constraints=tuple(draw(st.lists(linears(sizes), max_size=2))),
    )
    return CompactProblem(problem, tuple(draw(st.lists(short_tables(sizes), max_size=2))))


def defined_fixpoint(model):
    """Values that each constraint by itself has a support for, by its definition; None where one has none."""
    written = CompactProblem(model.problem, model.short_tables).expanded()
    domains = [set(range(size)) for size in written.sizes]
    parts = [(c.scope, c.permits) for c in (*written.constraints, *written.linear_constraints)]
    before = None
    while before != domains:
        before = [set(values) for values in domains]
        for scope, permits in parts:
            supported = [set() for _ in scope]
            for row in itertools.product(*(sorted(domains[v]) for v in scope)):
                assignment = [0] * len(domains)
                for v, value in zip(scope, row, strict=True):
                    assignment[v] = value
                if permits(assignment):
                    for values, value in zip(supported, row, strict=True):
                        values.add(value)
            for v, values in zip(scope, supported, strict=True):
                domains[v] &= values
            if any(not domains[v] for v in scope):
                return None
    return domains


def left(found, model):
    return [set(found.domains.values(v).tolist()) for v in range(len(model.problem.variables))]


@settings(max_examples=examples(200))
@given(models(), st.sampled_from([0, 200, tuning().work_bytes]))
def test_fixpoints_are_what_their_definition_says(model, bit_set_bytes):
    found = Network(model, bit_set_bytes, 0).propagate()
    expected = defined_fixpoint(model)
    if expected is None:
        assert found.status == "infeasible" and found.reason
    else:
        assert found.status == "fixpoint"
        assert left(found, model) == expected
        assert found.domains.counts.tolist() == [len(values) for values in expected]
        assert sum(found.rounds) == sum(model.problem.sizes) - sum(map(len, expected))
        assert found.rounds[-1:] in ([], [0]) or sum(found.rounds) > 0


@settings(max_examples=examples(160))
@given(models(), st.randoms(use_true_random=False))
def test_the_order_of_constraints_and_columns_changes_nothing(model, random):
    found = Network(model).propagate()
    problem = model.problem

    def turned(constraint):
        axes = list(range(len(constraint.scope)))
        random.shuffle(axes)
        rows = list(range(len(constraint.tuples)))
        random.shuffle(rows)
        return replace(
            constraint, scope=tuple(constraint.scope[a] for a in axes), tuples=constraint.tuples[rows][:, axes]
        )

    parts = [turned(c) for c in problem.constraints]
    short = [turned(c) for c in model.short_tables]
    random.shuffle(parts)
    random.shuffle(short)
    other = CompactProblem(replace(problem, constraints=tuple(parts)), tuple(short))
    again = Network(other).propagate()
    assert again.status == found.status
    if found.status == "fixpoint":
        assert left(again, other) == left(found, model)


@settings(max_examples=examples(200))
@given(st.data())
def test_bit_sets_go_down_and_back_as_rows_do(data):
    """A search that assigns, asks and goes back, over a table of several words: both engines beside one another."""
    sizes = data.draw(st.lists(st.integers(2, 6), min_size=2, max_size=4))
    count = data.draw(st.sampled_from([1, 63, 64, 65, 200]))
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    tuples = np.stack([random.integers(0, size, count) for size in sizes], axis=1)
    tuples[random.random(tuples.shape) < data.draw(st.sampled_from([0.0, 0.1]))] = ANY
    variables = tuple(Variable(f"v{i}", size) for i, size in enumerate(sizes))
    model = CompactProblem(Problem(variables), (ShortTable(tuple(range(len(sizes))), tuples),))
    networks = [Network(model), Network(model, tuning().work_bytes, 0)]
    assert isinstance(networks[1].propagators[0], CompactTable)
    stacks = [[], []]
    for _ in range(12):
        is_back = bool(stacks[0]) and data.draw(st.booleans())
        v = data.draw(st.integers(0, len(sizes) - 1))
        kept = np.array(data.draw(st.lists(st.booleans(), min_size=sizes[v], max_size=sizes[v])))
        if not is_back and not (networks[0].domains.flags(v) & kept).any():
            continue  # a variable without values is a contradiction by itself, whatever the rows
        outcomes = []
        for network, stack in zip(networks, stacks, strict=True):
            (table,) = network.propagators
            domains = network.domains
            if is_back:
                table.pop()
                domains.alive[:], domains.counts[:] = stack.pop()
                outcomes.append((domains.alive.tolist(), table.rows_left))
                continue
            table.push()
            stack.append((domains.alive.copy(), domains.counts.copy()))
            domains.keep(v, kept)
            changed = table.filter(domains)
            outcomes.append((changed, domains.alive.tolist() if changed is not None else None, table.rows_left))
        assert outcomes[0] == outcomes[1]
        if not is_back and outcomes[0][0] is None:
            for network, stack in zip(networks, stacks, strict=True):
                network.propagators[0].pop()
                network.domains.alive[:], network.domains.counts[:] = stack.pop()


def encoded(sizes, tables):
    """Tables as a linear system: a binary for each value and each row; one row is chosen, and it says the values."""
    first = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    count = first[-1]
    rows = [({first[v] + a: 1 for a in range(size)}, 1, 1) for v, size in enumerate(sizes)]
    for table in tables:
        chosen = range(count, count + len(table.tuples))
        count += len(table.tuples)
        rows.append((dict.fromkeys(chosen, 1), 1, 1))
        for axis, v in enumerate(table.scope):
            for a in range(sizes[v]):
                terms = {row: 1 for row, t in zip(chosen, table.tuples, strict=True) if t[axis] == a}
                rows.append(({**terms, first[v] + a: -1}, 0, 0))
    return first, LinearSystem.from_rows(rows, [0] * count, [1] * count)


@settings(max_examples=examples(200))
@given(models())
def test_linear_propagation_of_a_tuple_encoding_is_the_tables_fixpoint(model):
    allowed = [c for c in model.problem.constraints if c.allowed]
    problem = replace(model.problem, constraints=tuple(allowed), linear_constraints=())
    found = Network(problem).propagate()
    first, system = encoded(problem.sizes, allowed)
    bounds = propagate_bounds(system)
    assert (bounds.status == "infeasible") == (found.status == "infeasible")
    if found.status == "fixpoint":
        possible = bounds.upper[: first[-1]] > 0
        assert [set(np.flatnonzero(possible[a:b]).tolist()) for a, b in itertools.pairwise(first)] == left(
            found, CompactProblem(problem)
        )


def test_functions_count_by_their_rows_and_zeros_of_products():
    variables = (Variable("a", 3), Variable("b", 2))
    rows = np.array([[0, 0], [1, 1]])
    incomplete = Function((0, 1), rows, np.array([5, 0]))
    found = Network(Problem(variables, (incomplete,))).propagate()
    assert found.domains.counts.tolist() == [2, 2]
    found = Network(Problem(variables, (incomplete,), semiring=MAX_PRODUCT)).propagate()
    assert found.domains.counts.tolist() == [1, 1]
    zeros = Function((0,), np.array([[1]]), np.array([0.0]), default=1.0)
    found = Network(Problem(variables, (zeros,), semiring=MAX_PRODUCT)).propagate()
    assert found.domains.values(0).tolist() == [0, 2]
    found = Network(Problem(variables, (zeros,), semiring=MIN_SUM)).propagate()
    assert found.domains.counts.tolist() == [3, 2]
    rest = Function((0,), np.array([[1]]), np.array([2.0]), default=0.0)
    found = Network(Problem(variables, (rest,), semiring=MAX_PRODUCT)).propagate()
    assert found.status == "fixpoint"


def test_large_short_tables_of_forbidden_rows_are_taken_row_by_row():
    sizes = (500,) * 4
    tuples = np.array([[3, ANY, ANY, ANY], [ANY, 7, 8, ANY], [ANY, ANY, ANY, 9]])
    variables = tuple(Variable(f"v{i}", size) for i, size in enumerate(sizes))
    only_seven = Constraint((1,), np.array([[7]]), allowed=True)
    network = Network(
        CompactProblem(Problem(variables, constraints=(only_seven,)), (ShortTable((0, 1, 2, 3), tuples, False),))
    )
    assert any(isinstance(p, ForbiddenPatterns) for p in network.propagators)
    found = network.propagate()
    gone = [sorted(set(range(500)) - values) for values in left(found, CompactProblem(network.problem))]
    assert gone[0] == [3] and gone[2] == [8] and gone[3] == [9]
    everything = ShortTable((0, 1, 2, 3), np.full((1, 4), ANY), False)
    network = Network(CompactProblem(Problem(variables), (everything,)))
    assert network.propagate().status == "infeasible"


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (Constraint((0,), np.zeros((0, 1), dtype=np.int64), True), "constraint 0 cannot be satisfied"),
        (Constraint((), np.zeros((0, 0), dtype=np.int64), True), "without variables"),
        (Constraint((), np.zeros((1, 0), dtype=np.int64), False), "without variables"),
        (Constraint((0,), np.array([[0], [1]]), False), "constraint 0 cannot be satisfied"),
    ],
)
def test_infeasible_says_which(constraint, reason):
    found = Network(Problem((Variable("a", 2),), constraints=(constraint,))).propagate()
    assert found.status == "infeasible" and reason in found.reason


def test_limits_leave_valid_domains():
    # Each link of a chain removes one value after the other.
    size = 30
    below = Constraint((0, 1), np.array([[a, b] for a in range(size) for b in range(a)]), allowed=True)
    above = Constraint((1, 0), np.array([[a, b] for a in range(size) for b in range(a)]), allowed=True)
    problem = Problem((Variable("a", size), Variable("b", size)), constraints=(below, above))
    found = Network(problem).propagate(rounds=3)
    assert found.status == "limit" and "3 rounds" in found.reason and len(found.rounds) == 3
    assert Network(problem).propagate().status == "infeasible"
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        found = Network(problem).propagate()
    assert found.status == "limit" and "time" in found.reason
    assert found.domains.counts.tolist() == [size, size]


def reference(data):
    lines = data("xcsp/tables_reference.txt").read_text().split("\n")
    return {words[0]: dict(zip(words[1::2], words[2::2], strict=False)) for line in lines if (words := line.split())}


@pytest.fixture(scope="module")
def model_of():
    """The tables of a file, which is read once for all tests."""
    return cache(read_extension)


LARGE = ("Sudoku-table-Sudoku_s13a.xml", "Wwtpp-short-Wwtpp_ex04400.xml")
"""Ten million rows, and a million of values; of short tables, and of large ones, there are others."""


@pytest.mark.parametrize("with_large", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bit_set_bytes", [0, tuning().work_bytes])
def test_positive_tables_of_real_instances(data, model_of, bit_set_bytes, with_large):
    entries = reference(data)
    assert set(LARGE) < entries.keys()
    for name in entries if with_large else entries.keys() - set(LARGE):
        entry = entries[name]
        model = model_of(data(f"xcsp/{name}.gz"))
        # The reference has the tables over several variables that list allowed rows, and nothing else.
        allowed = tuple(c for c in model.problem.constraints if c.allowed and len(c.scope) > 1)
        problem = replace(model.problem, constraints=allowed, functions=(), linear_constraints=())
        network = Network(CompactProblem(problem, tuple(t for t in model.short_tables if t.allowed)), bit_set_bytes, 0)
        found = network.propagate()
        assert found.status == "fixpoint", name
        assert len(network.propagators) == int(entry["positive"]), name
        assert sum(found.rounds) == int(entry["removed"]), name
        assert sum(p.rows_left for p in network.propagators) == int(entry["alive"]), name


def test_the_deadline_is_looked_at_while_rows_are_laid_out():
    rows = tuple(LinearConstraint((v, v + 1), ([0, 1], [0, 1]), 1) for v in range(3))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(4)), linear_constraints=rows)
    with Deadline(0.0), pytest.raises(TimeLimitError):
        Network(problem)


def narrowed(domains: Domains, seed: int, part: float) -> None:
    """Remove values at random, but the first of each variable."""
    random = np.random.default_rng(seed)
    for v in range(len(domains.counts)):
        flags = random.random(len(domains.flags(v))) < part
        flags[0] = True
        domains.keep(v, flags)


def test_constraints_that_share_their_rows_lose_them_apart():
    codes = np.random.default_rng(5).integers(0, [9, 20, 9, 20], (20_000, 4)).astype(np.uint8)
    found, expected = Domains.of_sizes((9, 20, 9, 20, 9)), Domains.of_sizes((9, 20, 9, 20, 9))
    scopes = ((0, 1, 2, 3), (2, 3, 4, 1))
    shared = [AllowedRows(scope, codes, found, "shared") for scope in scopes]
    apart = [AllowedRows(scope, codes.copy(), expected, "apart") for scope in scopes]
    for step in range(6):
        for domains in (found, expected):
            narrowed(domains, 20 + step, 0.75)
        assert shared[step % 2].filter(found) == apart[step % 2].filter(expected)
        assert [table.rows_left for table in shared] == [table.rows_left for table in apart]
        assert (found.alive == expected.alive).all()


def test_a_scan_that_is_ended_can_be_made_again():
    codes = np.random.default_rng(0).integers(0, 10, (20_000, 4)).astype(np.uint8)
    domains, scope = Domains.of_sizes((10,) * 4), (0, 1, 2, 3)
    table = AllowedRows(scope, codes, domains, "ended")
    narrowed(domains, 1, 0.7)
    with Deadline(1e9) as deadline:
        deadline.interrupt()
        deadline.end = 0.0
        with pytest.raises(TimeLimitError):
            table.filter(domains)
    expected = Domains(domains.offsets, domains.alive.copy(), domains.counts.copy())
    whole = AllowedRows(scope, codes, expected, "whole")
    assert table.filter(domains) == whole.filter(expected) is not None
    assert (domains.alive == expected.alive).all()
