"""Elimination against brute force: every semiring, kind of part and order, in memory, on disk, in tiny blocks."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.preparation import prepare as preparation
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM, SEMIRINGS, Combination
from tests.helpers.effort import examples
from tests.helpers.small_problems import (
    ALL_SEMIRINGS,
    all_values,
    brute_force,
    check,
    eliminate,
    make_problem,
    structures,
    without_bound,
)


def check_orders(structure, **settings_of_run):
    """Two random orders, each with and without dominance, against brute force."""
    problem = without_bound(make_problem(structure))
    expected = brute_force(problem)
    random = np.random.default_rng(structure["seed"])
    for _ in range(2):
        order = random.permutation(len(problem.variables)).tolist()
        for dominance in (True, False):
            check(problem, *eliminate(problem, order, dominance, **settings_of_run), expected)


@settings(max_examples=examples(100))
@given(structures())
def test_oracle_agrees_with_evaluate(structure):
    problem = make_problem(structure)
    total, feasible = all_values(problem)
    random = np.random.default_rng(structure["seed"])
    for _ in range(20):
        assignment = tuple(int(random.integers(n)) for n in problem.sizes)
        value = problem.evaluate(assignment)
        if problem.semiring.combination is Combination.MULTIPLY and not problem.semiring.counts and value == 0:
            value = None
        assert (value is not None) == feasible[assignment]
        assert value is None or value == pytest.approx(total[assignment].item())


@settings(max_examples=examples(120))
@given(structures())
def test_any_order_with_and_without_dominance(structure):
    check_orders(structure)


@pytest.mark.slow
@settings(max_examples=5000)
@given(structures())
def test_any_order_with_and_without_dominance_at_length(structure):
    check_orders(structure)


@settings(max_examples=examples(100))
@given(structures(), st.integers(1, 7))
def test_tiny_blocks_on_several_threads(structure, block_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOCBE_THREADS", "3")
        check_orders(structure, block_rows=block_rows)


@pytest.mark.parametrize("bits", [0, 1, 3, 6])
@settings(max_examples=examples(60))
@given(structures())
def test_factors_too_large_to_be_looked_up_are_tables(bits, structure):
    """With a tiny limit most factors take the path of those that are really too large."""
    structure = {**structure, "parts": [part for part in structure["parts"] if part[0] != "linear"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "LOOKUP_BITS", bits)
        check_orders(structure)


@settings(max_examples=examples(12))
@given(structures(), st.integers(1, 7))
def test_through_stored_tables(structure, chunk_rows):
    problem = without_bound(make_problem(structure))
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        found = eliminate(problem, order, workdir=Path(folder), chunk_rows=chunk_rows)
        assert list(Path(folder).iterdir()) == []
    check(problem, *found, brute_force(problem))


@pytest.mark.parametrize("memory", [1, 100, 500, 1500])
def test_no_memory_is_too_little_while_the_disk_has_room(tmp_path, monkeypatch, memory):
    """Messages that wait go to disk, and buckets are joined in pieces; nothing else changes."""
    random = np.random.default_rng(0)
    functions = [Function.from_array((v, v + 1, v + 2), random.integers(0, 50, size=(4, 4, 4))) for v in range(0, 6)]
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(8)), tuple(functions))
    _, best = eliminate(problem, list(range(8)))
    expected = problem.evaluate(best)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written = []
    write = MessageStore.new_table
    monkeypatch.setattr(MessageStore, "new_table", lambda *place: written.append(place) or write(*place))
    check(problem, *eliminate(problem, list(range(8)), False, memory=memory, chunk_rows=3), expected)
    assert written
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=examples(60))
@given(structures(), st.sampled_from(["auto", "min-fill", "file"]), st.booleans())
def test_solve(structure, order, dominance):
    """The whole way, with upper bounds, evidence and linear constraints."""
    problem = make_problem(structure)
    with tempfile.TemporaryDirectory() as folder:
        if order == "file":
            names = [v.name for v in problem.variables]
            np.random.default_rng(structure["seed"]).shuffle(names)
            file = Path(folder) / "order.txt"
            file.write_text("\n".join(names))
            order = str(file)
        result = oocbe.solve(problem, order=order, order_seconds=0, dominance=dominance)
    expected = brute_force(problem)
    if expected is None:
        assert (result.status, result.value, result.assignment) == ("infeasible", None, None)
        return
    assert result.status == ("optimal" if problem.semiring.selects else "exact")
    check(problem, result.value, result.assignment, expected)
    assert result.dtype == "float64" or isinstance(result.value, int)


@pytest.mark.parametrize("semiring", ALL_SEMIRINGS, ids=str)
def test_a_constraint_under_a_large_table_is_enforced(semiring, monkeypatch):
    """The table covers the constraint, but no join has applied it."""
    monkeypatch.setattr(preparation, "LOOKUP_BITS", 2)
    table = Function.from_array((0, 1, 2), np.arange(1, 9).reshape(2, 2, 2))
    forbidden = Constraint((0, 1), [[0, 0], [1, 1]])
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(3)), (table,), (forbidden,), constant=semiring.one, semiring=semiring
    )
    for order in ([0, 1, 2], [2, 1, 0]):
        check(problem, *eliminate(problem, order), brute_force(problem))


@pytest.mark.parametrize("seed", [38, 488, 1202, 1819, 2175, 2492, 2604, 2996])
def test_rounded_ties_do_not_drop_every_optimum(seed):
    """Sums of these values are equal, but not in floating point: each of two messages could drop what the other kept.

    Every one of these problems lost its optimum when dominance took the last digit of a difference seriously.
    """
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 8))
    sizes = random.integers(2, 4, size=count).tolist()
    functions = []
    for _ in range(int(random.integers(count, 2 * count))):
        scope = random.permutation(count)[: random.integers(1, 3)].tolist()
        tenths = random.choice([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], size=[sizes[v] for v in scope])
        functions.append(Function.from_array(scope, tenths))
    variables = tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes))
    problem = Problem(variables, tuple(functions), semiring=MIN_SUM if seed % 2 else MAX_SUM)
    expected = brute_force(problem)
    for _ in range(3):
        check(problem, *eliminate(problem, random.permutation(count).tolist()), expected)


@pytest.mark.parametrize("factor", [0.51, *(pytest.param(near, marks=pytest.mark.slow) for near in (0.99, 1.01)), 1.9])
def test_a_hub_of_many_factors_keeps_its_product_in_range(factor):
    """1,200 messages meet in one bucket: their largest values must not all lie on the same side of one."""
    leaves = tuple(range(1, 1201))
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(1201)),
        tuple(Function.from_array((0, v), [[factor, factor / 8], [factor / 8, factor / 16]]) for v in leaves),
        constant=1.0,
        semiring=SEMIRINGS["max-product"],
    )
    prepared = preparation.prepare(problem, problem.semiring, [*leaves, 0])
    with MessageStore(1 << 30) as store:
        outcome = Forward(prepared, True, store).run()
    assert outcome.value is not None
    logarithm = math.log(outcome.value) + outcome.exponent * math.log(2)
    assert logarithm == pytest.approx(1200 * math.log(factor))


def test_long_products_neither_vanish_nor_overflow():
    for factor, constant in ((0.01, 1e-300), (1e12, 1e300)):
        functions = tuple(Function.from_array((v % 2,), [factor, factor / 2]) for v in range(400))
        for name in ("max-product", "sum-product"):
            problem = Problem(
                (Variable("a", 2), Variable("b", 2)),
                (*functions, Function((), np.zeros((1, 0)), [factor])),
                constant=constant,
                semiring=SEMIRINGS[name],
            )
            result = oocbe.solve(problem, semiring=name, order_seconds=0)
            assert result.status in ("optimal", "exact")
            logarithm = 401 * math.log(factor) + math.log(constant)
            if name == "sum-product":
                logarithm += 2 * math.log1p(0.5**200)
            assert f"natural logarithm is {logarithm:.6g}"[:-1] in " ".join(result.notes)
