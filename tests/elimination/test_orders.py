"""Orders: permutations with the right separators, predictions, the same for the same seed, and order files."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.orders.order import DISSECTION, HEURISTICS, read_order, search_orders
from oocbe.elimination.orders.primal_graph import MOST_ROWS, PrimalGraph
from oocbe.errors import FormatError, TimeLimitError
from oocbe.kernels.cpu.orders.greedy_order import count_bits, members_of
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples


def random_graph(count: int, edges: int, seed: int, largest=4) -> Problem:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, largest + 1, size=count).tolist()
    pairs = {tuple(sorted(random.permutation(count)[:2].tolist())) for _ in range(edges)} if count > 1 else set()
    constraints = []
    for u, v in sorted(pairs):
        cells = list(itertools.product(range(sizes[u]), range(sizes[v])))
        listed = [cells[i] for i in np.flatnonzero(random.random(len(cells)) < 0.3)]
        constraints.append(Constraint((u, v), np.array(listed, dtype=int).reshape(-1, 2)))
    return Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), (), tuple(constraints))


def naive_separators(problem: Problem, order) -> list[set[int]]:
    """Fill-in with sets: neighbours at the moment of elimination, by position."""
    neighbours: list[set[int]] = [set() for _ in problem.variables]
    for part in (*problem.functions, *problem.constraints):
        for u, v in itertools.permutations(part.scope, 2):
            neighbours[u].add(v)
    separators = []
    for v in order:
        around = neighbours[v]
        separators.append(set(around))
        for u in around:
            neighbours[u] |= around - {u}
            neighbours[u].discard(v)
    return separators


@pytest.mark.parametrize("name", HEURISTICS)
@settings(max_examples=examples(25))
@given(st.integers(0, 80), st.integers(0, 120), st.integers(0, 1 << 30))
def test_each_heuristic_gives_a_permutation_with_its_separators(name, count, edges, seed):
    problem = random_graph(count, edges, seed)
    for choice in search_orders(problem, name, 0.0, seed):
        assert sorted(choice.order) == list(range(count))
        assert [set(s) for s in choice.separators] == naive_separators(problem, choice.order)
        place = {v: i for i, v in enumerate(choice.order)}
        assert all(list(s) == sorted(s, key=place.__getitem__) for s in choice.separators)
        assert choice.heuristic == name


def criterion(problem: Problem, name: str, neighbours: list[set[int]], v: int) -> float:
    around = sorted(neighbours[v])
    fill = [(u, w) for u, w in itertools.combinations(around, 2) if w not in neighbours[u]]
    if name == "min-degree":
        return len(around)
    if name == "min-fill":
        return len(fill)
    bits = [math.log2(n) for n in problem.sizes]
    return sum(bits[u] * bits[w] for u, w in fill)


@pytest.mark.parametrize("name", ["min-degree", "min-fill", "weighted-min-fill"])
@pytest.mark.parametrize("seed", range(examples(48)))
def test_each_step_is_greedy(name, seed):
    """Every vertex taken has the least score among those left, scores computed afresh."""
    problem = random_graph(30, 60, seed)
    order = HEURISTICS[name](PrimalGraph(problem), seed).tolist()
    neighbours = [set() for _ in problem.variables]
    for c in problem.constraints:
        u, v = c.scope
        neighbours[u].add(v)
        neighbours[v].add(u)
    alive = set(range(30))
    for v in order:
        scores = {u: criterion(problem, name, neighbours, u) for u in alive}
        assert scores[v] == pytest.approx(min(scores.values()))
        for u in neighbours[v]:
            neighbours[u] |= neighbours[v] - {u}
            neighbours[u].discard(v)
        alive.remove(v)


def test_linear_orders_sweep_a_grid_with_a_frontier_of_its_side():
    side = 6
    pairs = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    pairs += [(r * side + c, r * side + side + c) for r in range(side - 1) for c in range(side)]
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(side * side)),
        tuple(Function.from_array(p, [[0, 1], [1, 0]]) for p in pairs),
    )
    assert oocbe.plan(problem, order="linear", order_seconds=0).width <= side + 2


def exact_counts(problem: Problem, order) -> list[int]:
    """Assignments of each separator that satisfy the constraints inside it."""
    counts = []
    for separator in naive_separators(problem, order):
        scope = sorted(separator)
        inside = [c for c in problem.constraints if set(c.scope) <= separator]
        count = 0
        for values in itertools.product(*(range(problem.sizes[v]) for v in scope)):
            assignment = dict(zip(scope, values, strict=True))
            full = [assignment.get(v, 0) for v in range(len(problem.variables))]
            count += all(c.permits(full) for c in inside)
        counts.append(count)
    return counts


@pytest.mark.parametrize("seed", range(4))
def test_predictions_converge_to_the_feasible_rows(seed):
    problem = random_graph(9, 24, seed, largest=3)
    graph = PrimalGraph(problem)
    order = np.arange(9)
    found = graph.predict(graph.separators(order), 20_000, seed)
    exact = np.maximum(1, exact_counts(problem, range(9)))
    assert found == pytest.approx(exact, rel=0.05)


def test_predictions_of_large_domains_and_constraints_that_share_entries():
    """64 values are the most that are probed; beyond, and for larger scopes, predictions are of a superset."""
    diagonal = [[i, i] for i in range(64)]
    problem = Problem(
        (Variable("a", 64), Variable("b", 64), Variable("c", 65), Variable("d", 2)),
        (Function.from_array((0, 1, 2, 3), np.zeros((64, 64, 65, 2), dtype=int)),),
        (Constraint((0, 1), diagonal, allowed=True), Constraint((1, 2), diagonal[:3], allowed=True)),
    )
    graph = PrimalGraph(problem)
    rows = graph.predict(graph.separators(np.array([3, 2, 1, 0])), 50, 0)
    assert rows.tolist() == [64 * 65, 64, 64, 1]


def test_predictions_stay_finite_however_wide():
    count = 1100
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(count)),
        (Function(tuple(range(count)), np.zeros((1, count), dtype=int), [3]),),
    )
    graph = PrimalGraph(problem)
    wide = graph.separators(np.arange(count))
    assert wide.width == count - 1
    assert graph.predict(wide, 2, 0)[0] == MOST_ROWS


def test_same_seed_same_order():
    problem = random_graph(40, 90, 5)
    for seed in (0, 7, 2**31, 2**40, 2**70):
        first, second = (search_orders(problem, "auto", 0.0, seed) for _ in range(2))
        assert first == second
    different = {search_orders(problem, "min-fill", 0.0, seed)[0].order for seed in range(8)}
    assert len(different) > 1


def test_restarts_end_in_time_and_count():
    problem = random_graph(60, 200, 1)
    found = search_orders(problem, "auto", 0.2, 0)
    assert {c.heuristic for c in found} <= {*HEURISTICS, DISSECTION}
    predicted = [sum(c.predicted_rows) for c in found]
    assert predicted == sorted(predicted)
    assert found[0].candidates >= len(HEURISTICS)


def test_orders_are_left_out_where_all_of_them_certainly_have_too_many_rows():
    problem = random_graph(60, 200, 1)
    found = search_orders(problem, "auto", 0.0, 0)
    rows = sum(found[0].predicted_rows)
    assert search_orders(problem, "auto", 0.0, 0, rows) == found
    assert search_orders(problem, "auto", 0.0, 0, rows / 100) == []


def test_orders_that_are_cheap_as_complete_tables_are_not_left_out():
    problem = random_graph(60, 200, 1)
    graph = PrimalGraph(problem)
    found = search_orders(problem, "auto", 0.0, 0)
    rows = [sum(choice.predicted_rows) for choice in found]
    cells = [cells_of(graph, choice.order).sum() for choice in found]
    assert all(fewer < more for fewer, more in zip(rows, cells, strict=True))
    most = rows[0] / 100
    assert len(search_orders(problem, "auto", 0.0, 0, most, most / min(cells))) == len(found)
    ranked = search_orders(problem, "auto", 0.0, 0, most, 1e-12)
    cells = [cells_of(graph, choice.order).sum() for choice in ranked]
    assert cells == sorted(cells)
    assert search_orders(problem, "auto", 0.0, 0, most, 1.0) == []


def cells_of(graph: PrimalGraph, order) -> np.ndarray:
    given = np.array(order)
    return graph.joined_cells(given, graph.separators(given))


def test_joined_cells_are_the_assignments_of_a_buckets_variables():
    problem = random_graph(70, 150, 3, largest=5)
    graph = PrimalGraph(problem)
    (choice,) = search_orders(problem, "min-fill", 0.0, 0)
    cells = cells_of(graph, choice.order)
    for place, (v, separator) in enumerate(zip(choice.order, choice.separators, strict=True)):
        assert cells[place] == pytest.approx(math.prod(problem.sizes[u] for u in (v, *separator)))


def test_a_prediction_ends_where_it_passes_the_most_rows_asked_about():
    graph = PrimalGraph(random_graph(60, 200, 1))
    separators = graph.separators(HEURISTICS["min-fill"](graph, 0))
    whole = graph.predict(separators, 16, 0)
    most = whole.sum() / 2
    part = graph.predict(separators, 16, 0, most)
    done = np.flatnonzero(part)
    assert most < part.sum() < whole.sum()
    assert (part[done] == whole[done]).all() and part[: done[-1]].sum() <= most
    cheap = np.full(60, most / 100)
    assert (graph.predict(separators, 16, 0, most, cheap) == whole).all()


def test_a_problem_without_variables_and_one_without_functions():
    assert oocbe.solve(Problem((), constant=4), order_seconds=0).value == 4
    lonely = Problem(tuple(Variable(f"x{v}", v + 1) for v in range(70)))
    for choice in search_orders(lonely, "auto", 0.0, 0):
        assert sorted(choice.order) == list(range(70))
        assert set(choice.separators) == {()}


def test_the_search_ends_with_the_time():
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(5)))
    with Deadline(3600.0) as ample:
        assert len(search_orders(problem, "auto", 0.0, 0, deadline=ample)) == len(HEURISTICS)
    with Deadline(0.0) as over, pytest.raises(TimeLimitError):
        search_orders(problem, "auto", 0.0, 0, deadline=over)


@pytest.mark.parametrize(("edges", "seconds", "candidates"), [(60, 0.5, 4), (60, 5.0, 100), (29, 5.0, 4), (0, 5.0, 4)])
def test_a_limit_above_half_a_second_is_used_unless_the_order_is_optimal(edges, seconds, candidates, monkeypatch):
    """Elimination would take a fraction of a second; 29 edges make a path."""
    clock = itertools.count()
    monkeypatch.setattr("oocbe.elimination.orders.order.time", SimpleNamespace(monotonic=lambda: next(clock) * 0.05))
    problem = random_graph(30, edges, 1, largest=2)
    if edges == 29:
        pairs = tuple(Function.from_array((v, v + 1), [[0, 1], [1, 0]]) for v in range(edges))
        problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(30)), pairs)
    found = search_orders(problem, "auto", seconds, 0)
    assert found[0].candidates == pytest.approx(candidates, abs=3)


def test_large_linear_constraints_make_no_edges():
    wide = tuple(range(30))
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in wide),
        linear_constraints=(
            LinearConstraint(wide, (np.array([0, 1]),) * 30, 3),
            LinearConstraint((0, 1, 2), (np.array([0, 1]),) * 3, 1),
        ),
    )
    assert oocbe.plan(problem, order="min-fill", order_seconds=0).width == 2


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x0 x1\nx9", 2, "no variable is called 'x9'"),
        ("# first\nx0, x1,\n x1 x2", 3, "variable x1 occurs twice"),
        ("x0\nx2\n\n", 3, "ends after 2 of 3 variables; x1 is missing"),
        ("", None, "ends after 0 of 3"),
        ("x0 x1 x2 x0", 1, "x0 occurs twice"),
    ],
)
def test_order_files_with_mistakes(text, line, message, tmp_path):
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(3)))
    file = tmp_path / "order.txt"
    file.write_text(text)
    with pytest.raises(FormatError) as caught:
        read_order(problem, file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert line is None or f"line {line}:" in str(caught.value)


def test_order_files(tmp_path):
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(4)))
    file = tmp_path / "order.txt"
    file.write_text("# the order\nx3,x1 # two\n\n\tx0\r\nx2\n")
    assert read_order(problem, file) == [3, 1, 0, 2]
    assert oocbe.plan(problem, order=file).order == (3, 1, 0, 2)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="cannot be read"):
        read_order(problem, file)
    with pytest.raises(FormatError, match="cannot be read"):
        read_order(problem, tmp_path / "none")


@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1, 0xF0F0F0F0F0F0F0F0])
def test_bits_of_a_word(word):
    assert count_bits(np.uint64(word)) == word.bit_count()
    out = np.zeros(128, dtype=np.int64)
    found = members_of(np.array([word, word], dtype=np.uint64), out)
    expected = [i for i in range(64) if word >> i & 1]
    assert out[:found].tolist() == expected + [64 + i for i in expected]


@pytest.mark.parametrize("widest", [2, 7, 70])
def test_the_primal_graph_joins_what_shares_a_scope(widest):
    random = np.random.default_rng(widest)
    count = 130  # three words of bits
    lengths = [1, 2, 2, 3, 4, min(widest, 6), widest]
    scopes = [tuple(random.permutation(count)[:length].tolist()) for length in lengths for _ in range(3)]
    functions = tuple(Function(scope, [[0] * len(scope)], [1], 0) for scope in [*scopes, scopes[3]])
    graph = PrimalGraph(Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), functions))
    expected = {pair for scope in scopes for pair in itertools.permutations(scope, 2)}
    bits = np.unpackbits(graph.adjacency.view(np.uint8), axis=1, bitorder="little")
    assert set(zip(*map(np.ndarray.tolist, np.nonzero(bits)), strict=True)) == expected
