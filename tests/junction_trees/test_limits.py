"""What a tree may take, and what becomes of marginals where there can be none."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

import oocbe
from oocbe.elimination.orders.order import judge_order
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.plan import plan
from oocbe.errors import FormatError, LimitError, ResourceError, TimeLimitError
from oocbe.junction_trees import compiled, support
from oocbe.junction_trees.case_files import read_cases
from oocbe.junction_trees.compiled import tree_arrays
from oocbe.junction_trees.explanations import constrained_order
from oocbe.junction_trees.support import cliques_of
from oocbe.junction_trees.weights import weights_of
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.runtime.deadline import Deadline


def chain(sizes):
    """A product of random functions of neighbours."""
    random = np.random.default_rng(3)
    functions = [
        Function.from_array((v, v + 1), random.random((a, b))) for v, (a, b) in enumerate(itertools.pairwise(sizes))
    ]
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), semiring=SUM_PRODUCT)


def made(problem, memory):
    """The tree of a quick order."""
    choice = compiled.find_order(problem, "auto", 0, 0)
    return compiled.tree_of(problem, choice.order, choice.separators, memory)


def test_an_order_file_may_name_variables_with_one_value(tmp_path):
    """The tree is of what is left of the problem, and the file names all of it."""
    (tmp_path / "order.txt").write_text("x2 x1 x0 x3\n".replace(" ", "\n"))
    problem = chain([2, 1, 3, 2])
    given = oocbe.marginals(problem, order=str(tmp_path / "order.txt"))
    found = oocbe.marginals(problem)
    for own, other in zip(given.marginals, found.marginals, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-12)


def test_tries_of_sparse_tables_over_large_domains_are_counted_before_they_are_made():
    """A permutation of 20,000 values would take 20,000 times 20,000 children."""
    size = 20_000
    tuples = np.stack([np.arange(size), np.arange(size)[::-1]], axis=1)
    function = Function((0, 1), tuples, np.ones(size), default=0.0)
    problem = Problem((Variable("x", size), Variable("y", size)), (function,), semiring=SUM_PRODUCT)
    with pytest.raises(ResourceError, match="memory has room for"):
        oocbe.JunctionTree(problem, memory="1GiB", order_seconds=0)


def test_rows_are_counted_with_the_maps_of_all_their_functions():
    """A clique of 16 variables has 120 functions, each with a number of 4 bytes a row while the tree is made."""
    random = np.random.default_rng(1)
    pairs = [(a, b) for a in range(16) for b in range(a + 1, 16)]
    functions = [Function.from_array(pair, 1 + random.random((2, 2))) for pair in pairs]
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(16)), tuple(functions), semiring=SUM_PRODUCT)
    with pytest.raises(ResourceError, match="memory has room for"):
        made(problem, 2**16 * 120 * 4)
    assert oocbe.JunctionTree(problem, memory="1GiB", order_seconds=0).log_evidence > 0


def test_counts_of_cases_that_overflow_are_no_nan():
    """Thirty messages, each near 2**100, multiply to infinity; such cases are done again in logarithms."""
    sizes, functions = [2], []
    for _ in range(30):
        y = len(sizes)
        sizes.append(2)
        functions.append(Function.from_array((0, y), np.ones((2, 2))))
        for _ in range(12):
            functions.append(Function.from_array((y, len(sizes)), np.ones((2, 256))))
            sizes.append(256)
    problem = Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), tuple(functions), semiring=SUM_PRODUCT)
    tree = oocbe.JunctionTree(problem, order_seconds=0)
    counts = [own.values for own in tree.expected_counts([{}, {"x0": 0}])]
    assert all(np.isfinite(own).all() for own in counts)
    np.testing.assert_allclose([own.sum() for own in counts], 2.0, rtol=1e-9)


def test_a_number_of_thousands_of_digits_in_cases_is_a_malformed_file(tmp_path):
    (tmp_path / "cases.json").write_text('[{"x0": ' + "1" * 5000 + "}]")
    with pytest.raises(FormatError, match=r"cases\.json"):
        read_cases(tmp_path / "cases.json", chain([2, 2]))


def test_joint_posteriors_take_little_beside_what_they_return(monkeypatch, tune):
    """Evidence of every case and combination at once was 96 MiB here, several times over, for half a MiB of numbers."""
    tree = oocbe.JunctionTree(chain([2] * 400), order_seconds=0)
    names = [f"x{40 * i}" for i in range(10)]
    cases = [{"x3": i % 2, "x80": 1} for i in range(64)]
    tune(joint_piece_numbers=1 << 18)
    pieces = tree.batch(cases[:2], [], [names]).joints[tuple(names)]
    tracemalloc.start()
    try:
        found = tree.batch(cases, [], [names]).joints[tuple(names)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (64, *[2] * 10)
    assert peak < 1 << 25
    monkeypatch.undo()
    np.testing.assert_allclose(tree.batch(cases[:2], [], [names]).joints[tuple(names)], pieces, rtol=1e-9)
    np.testing.assert_allclose(found.reshape(64, -1).sum(axis=1), 1.0, rtol=1e-9)
    assert not found[:, :, :, 0].any()
    np.testing.assert_allclose(found[:2], pieces, rtol=1e-9)
    with pytest.raises(LimitError, match="query fewer variables"):
        tree.marginal(*(f"x{i}" for i in range(30)))


def test_a_tree_without_zeros_that_cannot_fit_is_refused_before_a_row_is_made(monkeypatch):
    def no_walk(*_):
        raise AssertionError("rows were made")

    monkeypatch.setattr(support, "walk", no_walk)
    with pytest.raises(ResourceError, match="memory has room for"):
        made(chain([200] * 5), 1 << 20)


def test_an_attempt_with_a_tree_hands_its_order_on(monkeypatch, tune):
    """The search for an order, most of the time of a small problem, is not paid again where messages take over."""
    problem = chain([4] * 9)
    whole = oocbe.marginals(problem, order_seconds=0.0)
    tune(message_bytes=2000)
    seconds = []
    for module in (compiled, plan):
        search = module.search_orders
        monkeypatch.setattr(module, "search_orders", lambda *a, s=search, **more: seconds.append(a[2]) or s(*a, **more))
    judged = []
    monkeypatch.setattr(plan, "judge_order", lambda *a: judged.append(tuple(a[1])) or judge_order(*a))
    told = Counting()
    found = oocbe.marginals(problem, order_seconds=0.01, observer=told)
    assert seconds == [0.01, 0.0]
    assert [sorted(order) for order in judged] == [[*range(9)]]
    assert told.events[0] == "started"
    np.testing.assert_allclose(found.marginals, whole.marginals, rtol=1e-12)


class Counting(oocbe.Observer):
    """Writes down what it is told."""

    def __init__(self):
        self.events, self.totals = [], set()

    def started(self, plan):
        self.events.append("started")
        assert str(plan)

    def bucket_done(self, number, total, *_):
        self.events.append(number)
        self.totals.add(total)


def test_observers_are_told_that_a_tree_is_begun():
    told = Counting()
    oocbe.marginals(chain([3] * 6), order_seconds=0.0, observer=told)
    (total,) = told.totals
    assert told.events == ["started", *range(1, total + 1)]


def test_variables_that_come_last_come_after_a_hub():
    """Greedy orders put a vertex with very many neighbours at their end."""
    count = 3000
    pairs = tuple(Function.from_array((0, v), np.ones((2, 2))) for v in range(1, count))
    star = Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), pairs, semiring=SUM_PRODUCT)
    order = constrained_order(star, last={5, 7})
    assert sorted(order) == list(range(count))
    assert set(order[-2:]) == {5, 7}
    assert constrained_order(chain([2] * 5), {1}, known_order=[0, 1, 2, 3, 4])[-1] == 1


def test_windows_improve_a_constrained_order(tune):
    """A fifth of a grid's variables comes last."""
    side = 12
    pairs = [(v, v + 1) for v in range(side * side) if v % side < side - 1]
    pairs += [(v, v + side) for v in range(side * side - side)]
    functions = tuple(Function.from_array(p, np.ones((2, 2))) for p in pairs)
    grid = Problem(tuple(Variable(f"x{v}", 2) for v in range(side * side)), functions, semiring=SUM_PRODUCT)
    last = set(np.random.default_rng(0).choice(side * side, side * side // 5, replace=False).tolist())
    cells = []
    for orders in (0, 60):
        tune(cell_seconds=1.0, first_order_seconds=math.inf, group_orders=orders)
        order = constrained_order(grid, last)
        assert set(order[-len(last) :]) == last
        cells.append(PrimalGraph(grid).cells_along(np.array(order)).sum())
    assert cells[1] < cells[0] / 2


def test_each_step_of_making_a_tree_looks_at_the_deadline():
    """A network may have a million factors, and each step takes some microseconds of each."""
    problem = chain([2] * 5)
    choice = compiled.find_order(problem, "auto", 0.0, 0)
    made = cliques_of(choice.order, choice.separators)
    weights = weights_of(problem, choice.order, False)
    rows = support.clique_rows(problem.sizes, made, weights, 1 << 20, problem.name)
    arrays, places, _ = tree_arrays(problem.sizes, made, rows, False)
    steps = [
        lambda: cliques_of(choice.order, choice.separators),
        lambda: weights_of(problem, choice.order, False),
        lambda: support.places_of(made, weights.tables),
        lambda: tree_arrays(problem.sizes, made, rows, False),
        lambda: compiled.sharing(rows, arrays, places),
    ]
    for step in steps:
        step()
        with Deadline(0.0), pytest.raises(TimeLimitError):
            step()
