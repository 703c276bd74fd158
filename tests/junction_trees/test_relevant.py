"""Single cases without rows: what is relevant to them, as complete tables, against enumeration and the tree's rows."""

import dataclasses
import math
from itertools import permutations

import numpy as np
import pytest

import oocbe
from oocbe.junction_trees.query_elimination import answer, complete_tree
from oocbe.junction_trees.query_elimination.factors import (
    DenseFactor,
    components,
    factors_of_case,
    relevant,
    written_out,
)
from oocbe.junction_trees.tree import JunctionTree
from tests.helpers.effort import examples
from tests.helpers.small_networks import enumerated, random_network, random_product, summed
from tests.junction_trees.test_small_trees import CLOSE, random_evidence


@pytest.fixture
def waiting(monkeypatch, tune):
    """Trees are not made before they are needed, and targets are put into groups however little that saves."""

    def refuse(*arguments, **settings):
        raise AssertionError("a tree was made")

    tune(large_tree_cells=0.0, tree_cell_seconds=math.inf, group_seconds=0.0)
    monkeypatch.setattr("oocbe.junction_trees.tree.make_or_store", refuse)


def grid(side):
    pairs = [(v, v + 1) for v in range(side * side) if v % side < side - 1]
    pairs += [(v, v + side) for v in range(side * side - side)]
    variables = tuple(oocbe.Variable(f"x{v}", 2) for v in range(side * side))
    functions = tuple(oocbe.Function.from_array(p, [[1.0, 0.5], [0.25, 0.75]]) for p in pairs)
    return oocbe.Problem(variables, functions, semiring=oocbe.SUM_PRODUCT)


def test_the_order_of_a_large_case_is_near_that_of_a_longer_search(tune):
    """Greedy orders alone have four times the cells of the best order of a grid."""
    tune(cell_seconds=1.0, group_orders=60)  # so that the search does not end with its time
    assert answer.QueryAnswer.of(grid(14)).numbers(())[0] <= 16


def test_the_search_for_an_order_begins_with_a_known_one(tune):
    tune(cell_seconds=1.0, group_orders=60)
    _, _, order = answer.QueryAnswer.of(grid(14)).numbers(())
    tune(group_orders=1)
    assert answer.QueryAnswer.of(grid(14)).numbers(())[0] > 16
    known = dataclasses.replace(written_out(grid(14)), order=tuple(order))
    assert answer.QueryAnswer(known, {}).numbers(())[0] <= 16


def test_groups_of_targets_are_found_along_a_known_order(tune):
    """Greedy orders of nearly the same factors differ by more than the factors do: these were several trees."""
    tune(cell_seconds=1.0, group_orders=60)
    _, _, order = answer.QueryAnswer.of(grid(14)).numbers(())
    tune(group_orders=1)
    core, random = grid(14), np.random.default_rng(0)
    leaves = [(f.scope, random.random((2, 2, 1))) for f in core.functions[::30]]
    shares = [(196 + i, scope, np.concatenate((share, 1 - share), axis=2)) for i, (scope, share) in enumerate(leaves)]
    problem = dataclasses.replace(
        core,
        variables=(*core.variables, *(oocbe.Variable(f"y{leaf}", 2) for leaf, _, _ in shares)),
        functions=(*core.functions, *(oocbe.Function.from_array((*scope, leaf), p) for leaf, scope, p in shares)),
    )
    known = dataclasses.replace(written_out(problem), order=(*(leaf for leaf, _, _ in shares), *order))
    own = answer.QueryAnswer(known, {})
    assert own.relevant(1 << 40) == set(range(196))
    assert own.seconds(range(len(problem.variables)), 1 << 40) < 1.5 * own.seconds((), 1 << 40)


def test_the_search_for_an_order_goes_on_until_the_tables_fit_the_memory(tune, monkeypatch):
    """Otherwise it would end at once, as elimination would take no time."""
    monkeypatch.setenv("OOCBE_THREADS", "1")  # each has sums of its own
    tune(cell_seconds=1e-30, group_seconds=0.0, first_order_seconds=math.inf, group_orders=60)
    assert answer.QueryAnswer.of(grid(14)).numbers(())[0] > 16
    assert answer.QueryAnswer.of(grid(14)).seconds((), 8 << 20) < math.inf


def test_estimates_count_the_cells_of_messages(tune):
    expected = []
    for cells in (0.0, 8.0):
        tune(message_cells=cells, cell_seconds=1e-9)
        own = answer.QueryAnswer.of(grid(6))
        expected.append(own.seconds((), 1 << 30))
    assert expected[1] - expected[0] == pytest.approx(8e-9 * sum(own.numbers(())[1]))


@pytest.mark.parametrize("in_logarithms", [False, True])
@pytest.mark.parametrize("seed", range(examples(48)))
def test_everything_equals_enumeration(seed, in_logarithms, waiting, monkeypatch, tune):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random, variables=9)
    if in_logarithms:
        monkeypatch.setattr(complete_tree, "LEAST_PRODUCT", math.inf)
        monkeypatch.setattr(complete_tree, "MOST_JOINED", (0, 1 << 26)[seed % 2])
    if seed % 3 == 0:
        tune(clique_cells=0.0)  # or all are merged
    tree = JunctionTree(problem)
    for _ in range(4):
        values, soft, known = random_evidence(random, problem)
        weights = enumerated(problem, known)
        total = weights.sum()
        tree.retract()
        tree.observe(values, likelihood=soft)
        batch = tree.batch([values, {}], likelihood={n: np.stack([x, np.ones_like(x)]) for n, x in soft.items()})
        if random.random() < 0.5:
            tree.calibrate()
        if total == 0:
            assert tree.log_evidence == batch.log_evidence[0] == -math.inf
            assert batch.status[0] == "impossible"
            assert all((tree.marginal(v.name) == 0).all() for v in problem.variables)
            assert tree.mpe() is tree.marginal_map([problem.variables[0].name]) is None
            continue
        best = tree.mpe()
        assert best.logarithm == pytest.approx(math.log(weights.max()), rel=1e-12, abs=1e-13)
        assert math.log(weights[best.indices]) == pytest.approx(best.logarithm, rel=1e-12, abs=1e-13)
        for v, variable in enumerate(problem.variables):
            alone = tree.marginal_map([variable.name])
            assert alone.logarithm == pytest.approx(math.log(total * summed(weights, [v]).max()), rel=1e-12, abs=1e-13)
            assert summed(weights, [v])[alone.indices[0]] == pytest.approx(summed(weights, [v]).max(), rel=1e-12)
        for v, variable in enumerate(problem.variables):
            np.testing.assert_allclose(tree.marginal(variable.name), summed(weights, [v]), **CLOSE)
            np.testing.assert_allclose(batch.marginals[variable.name][0], tree.marginal(variable.name), **CLOSE)
        assert tree.log_evidence == pytest.approx(math.log(total), rel=1e-12, abs=1e-13)
        assert batch.log_evidence[0] == pytest.approx(tree.log_evidence, rel=1e-12, abs=1e-13)
        some = random.permutation(len(problem.sizes))[:3].tolist()
        joint = tree.marginal(*(problem.variables[v].name for v in some))
        np.testing.assert_allclose(joint, summed(weights, some), **CLOSE)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_each_part_of_the_evidence_counts_once(seed, tune):
    """Whatever is asked beside it: groups for targets have parts of the evidence, too, or the same part twice."""
    random = np.random.default_rng(50 + seed)
    tune(group_seconds=0.0, clique_cells=float(random.choice([0.0, 20.0])))
    problem = random_network(random, variables=10, zeros=0.2)
    _, _, known = random_evidence(random, problem)
    weights = enumerated(problem, known)
    if weights.sum() == 0:
        return
    own = answer.QueryAnswer(written_out(problem), known)
    for count in range(len(problem.sizes)):
        asked = random.choice(len(problem.sizes), count, replace=False).tolist()
        found = own.posteriors(asked, "cpu")
        for v in asked:
            np.testing.assert_allclose(found[v], summed(weights, [v]), **CLOSE)
        fresh = answer.QueryAnswer(written_out(problem), known)
        fresh.posteriors(asked, "cpu")
        assert fresh.log_evidence("cpu") == pytest.approx(math.log(weights.sum()), rel=1e-12, abs=1e-13)


def test_products_too_small_for_floats_are_found_in_logarithms(waiting):
    """Each second variable of a chain is seen; those between have 1e-300 times 1e-120, or 1."""
    count = 40
    variables = tuple(oocbe.Variable(f"x{i}", 2) for i in range(count))
    functions = [oocbe.Function.from_array((i, i + 1), [[1e-300, 1.0], [1e-180, 1e-190]]) for i in range(count - 1)]
    tree = JunctionTree(oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT))
    tree.observe({f"x{i}": 0 for i in range(0, count, 2)})
    assert tree.log_evidence == pytest.approx((count // 2 - 1) * math.log(1e-180), rel=1e-12)
    np.testing.assert_allclose(tree.marginal("x3"), [0, 1], atol=1e-15)


def test_barren_variables_go_in_turn():
    scopes = [(0,), (0, 1), (1, 2), (2, 3), (1, 4)]
    children = [0, 1, 2, 3, 4]
    sums = lambda f, v: children[f] == v  # noqa: E731
    left, gone = relevant(scopes, range(5), {2}, sums)
    assert left == {0, 1, 2}
    assert sorted(gone) == [3, 4]
    assert relevant(scopes, range(5), (), sums)[0] == set()
    assert relevant(scopes, range(5), (), lambda f, v: f != 3 and children[f] == v)[0] == {0, 1, 2, 3}
    assert sorted(map(sorted, components([(0, 1), (2,), (1, 3), (4, 2)], range(4)))) == [[0, 2], [1, 3]]


def test_values_without_a_weight_go_before_anything_is_joined():
    variables = tuple(oocbe.Variable(name, 3) for name in "abc")
    copy = np.eye(3)
    functions = (
        oocbe.Function.from_array((0,), [0.5, 0.5, 0.0], infeasible=0),
        oocbe.Function.from_array((0, 1), copy, infeasible=0),
        oocbe.Function.from_array((1, 2), copy[::-1], infeasible=0),
    )
    problem = oocbe.Problem(variables, functions, semiring=oocbe.SUM_PRODUCT)
    case = factors_of_case(written_out(problem), {2: np.array([1.0, 1.0, 0.0])})
    assert [kept.tolist() for kept in case.kept] == [[1], [1], [1]]
    assert case.logarithm == pytest.approx(math.log(0.5))
    assert factors_of_case(written_out(problem), {2: np.array([1.0, 0.0, 0.0])}) is None


def test_a_large_network_answers_before_its_tree_is_made(waiting):
    """Parents of one child, whose tree has 2^31 cells; without evidence below it each target needs a few variables."""
    random = np.random.default_rng(3)
    layers, width = 4, 24
    variables = tuple(oocbe.Variable(f"x{i}", 2) for i in range(layers * width))
    functions = []
    for i in range(layers * width):
        layer = i // width
        parents = () if layer == 0 else tuple((layer - 1) * width + (i + d) % width for d in (0, 7))
        ones = random.integers(1, 16, [2] * len(parents)) / 16
        functions.append(oocbe.Function.from_array((*parents, i), np.stack([ones, 1 - ones], axis=-1)))
    problem = oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT)
    tree = JunctionTree(problem)
    tree.calibrate()
    assert tree.log_evidence == pytest.approx(0.0, abs=1e-13)
    first = [tree.marginal(f"x{i}")[0] for i in range(width)]
    np.testing.assert_allclose(first, [functions[i].values[0] for i in range(width)], **CLOSE)
    own = np.array(first)[[0, 7]]
    table = functions[width].values.reshape(2, 2, 2)[:, :, 0]
    expected = np.array([own[0], 1 - own[0]]) @ table @ np.array([own[1], 1 - own[1]])
    assert tree.marginal(f"x{width}")[0] == pytest.approx(expected, rel=1e-12)


def test_the_tree_is_made_once_it_is_asked_for(tune):
    tune(large_tree_cells=0.0)
    problem = random_network(np.random.default_rng(4))
    tree = JunctionTree(problem)
    assert "made when it is needed" in repr(tree)
    assert tree.rows == JunctionTree(problem, order_seconds=0).rows
    assert "cliques" in repr(tree)


def test_many_questions_make_the_tree_after_all(tune):
    tune(large_tree_cells=0.0, tree_cell_seconds=1.0)  # for each cell
    problem = random_network(np.random.default_rng(6), zeros=0)
    tree = JunctionTree(problem)
    tree.observe({"v0": 0})
    before = tree.marginal("v3")
    assert tree._case.made is None
    tree._case._making = 0.0
    tree.observe({"v0": 1})
    tree.observe({"v0": 0})
    np.testing.assert_allclose(tree.marginal("v3"), before, **CLOSE)
    assert tree._case.made is not None


def test_what_no_tree_can_be_made_of_is_refused_at_once(tune):
    tune(large_tree_cells=0.0)
    problem = oocbe.Problem(
        (oocbe.Variable("a", 2),), (oocbe.Function.from_array((0,), [-1.0, 2.0]),), semiring=oocbe.SUM_PRODUCT
    )
    with pytest.raises(oocbe.UnsupportedError, match="negative"):
        JunctionTree(problem)


@pytest.mark.parametrize("seed", range(examples(48)))
def test_passes_shared_by_threads_and_kernels_for_many_cells_agree_with_sums(seed, monkeypatch):
    """Whatever way a clique goes, and wherever its tables lie along the inner loop."""
    random = np.random.default_rng(seed)
    monkeypatch.setattr(complete_tree, "SMALL_CELLS", 0 if seed % 2 else 1 << 15)
    monkeypatch.setattr(complete_tree, "ARRANGED_CELLS", (0, 3, 1 << 30)[seed % 3])
    monkeypatch.setattr(complete_tree, "SHARED_CELLS", 1)
    monkeypatch.setenv("OOCBE_THREADS", "3")
    sizes = [int(n) for n in random.integers(2, 6, 6)]
    variables = tuple(oocbe.Variable(f"x{i}", size) for i, size in enumerate(sizes))
    functions, whole = [], np.ones(sizes)
    for _ in range(5):
        scope = random.choice(6, int(random.integers(1, 5)), replace=False).tolist()
        values = random.random([sizes[v] for v in scope])
        functions.append(oocbe.Function.from_array(scope, values))
        order = np.argsort(scope)
        whole = whole * values.transpose(order).reshape([sizes[v] if v in scope else 1 for v in range(6)])
    functions.append(oocbe.Function.from_array(range(6), random.random(sizes)))
    whole = whole * functions[-1].values.reshape(sizes)
    problem = oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT)
    own = answer.QueryAnswer(written_out(problem), {})
    found = own.posteriors(range(6), "cpu")
    for v in range(6):
        sums = whole.sum(axis=tuple(axis for axis in range(6) if axis != v))
        np.testing.assert_allclose(found[v], sums / sums.sum(), rtol=1e-12)
    assert own.log_evidence("cpu") == pytest.approx(math.log(whole.sum()), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_task_takes_the_same_way(seed, tune):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random, variables=9)
    total = enumerated(problem)
    known = oocbe.marginals(problem, backend="cpu")
    tune(large_tree_cells=0.0, tree_cell_seconds=math.inf)
    found = oocbe.marginals(problem, backend="cpu")
    assert found.status == known.status
    assert found.value == pytest.approx(known.value, rel=1e-12, abs=1e-13)
    assert sorted(found.order) == sorted(known.order)
    if total.sum():
        for v, own in enumerate(found.marginals):
            np.testing.assert_allclose(own, summed(total, [v]), **CLOSE)


@pytest.mark.parametrize("seed", range(6))
def test_cases_of_small_groups_are_answered_beside_a_tree(seed, tune):
    tune(least_sweep_seconds=0.0, case_row_seconds=1.0, margin=1e9)
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random, variables=8)
    tree = JunctionTree(problem, order_seconds=0)
    cases = [random_evidence(random, problem)[0] for _ in range(6)]
    alone = tree.batch(cases)
    tune(least_sweep_seconds=math.inf)
    swept = tree.batch(cases)
    assert alone.status.tolist() == swept.status.tolist()
    np.testing.assert_allclose(alone.log_evidence, swept.log_evidence, rtol=1e-12, atol=1e-13)
    for name, own in alone.marginals.items():
        np.testing.assert_allclose(own, swept.marginals[name], **CLOSE)


@pytest.mark.parametrize(
    ("factor", "semiring", "log_evidence"),
    [
        ([[0.0, -1.0], [-1000.0, -1001.0]], oocbe.LOG_SUM_EXP, -1000.0 + math.log1p(math.exp(-1.0))),
        ([[1000.0, 999.0], [998.0, 1000.5]], oocbe.LOG_SUM_EXP, 1000.5 + math.log1p(math.exp(-2.5))),
        ([[1e300, 1e300], [1e-300, 1e-300]], oocbe.SUM_PRODUCT, math.log(2e-300)),
    ],
)
def test_weights_too_far_apart_for_floats_are_no_zeros(factor, semiring, log_evidence, tune):
    tune(large_tree_cells=0.0)
    variables = tuple(oocbe.Variable(name, 2) for name in "ab")
    problem = oocbe.Problem(variables, (oocbe.Function.from_array((0, 1), factor),), semiring=semiring)
    tree = JunctionTree(problem)
    tree.observe({"a": 1})
    assert tree.log_evidence == pytest.approx(log_evidence, rel=1e-12)
    weights = np.array(factor[1]) - factor[1][0] if semiring == oocbe.LOG_SUM_EXP else np.log([1.0, 1.0])
    np.testing.assert_allclose(tree.marginal("b"), np.exp(weights) / np.exp(weights).sum(), rtol=1e-12)


@pytest.mark.parametrize("scale", [1000, -1000])
def test_marginals_of_costs_far_apart(scale):
    """Each pair of 8 variables costs or saves 1000 where they agree."""
    variables = tuple(oocbe.Variable(f"x{i}", 2) for i in range(8))
    pairs = [(i, j) for i in range(8) for j in range(i)]
    functions = tuple(oocbe.Function.from_array(pair, np.diag([scale, scale])) for pair in pairs)
    problem = oocbe.Problem(variables, functions)
    found = oocbe.marginals(problem)
    assert found.status != "infeasible"
    assert found.value == pytest.approx(oocbe.log_partition(problem).value, rel=1e-12)
    for marginal in found.marginals.values() if isinstance(found.marginals, dict) else found.marginals:
        np.testing.assert_allclose(marginal, [0.5, 0.5], rtol=1e-9)


def widely_spread(random):
    """A problem of logarithms with weights of which products leave the range of float64, and the logarithm of each
    assignment's weight."""
    sizes = tuple(random.integers(1, 4, 8).tolist())
    functions, logarithms = [], np.zeros(sizes)
    for _ in range(random.integers(8, 24)):
        scope = tuple(sorted(random.permutation(8)[: random.integers(1, 4)].tolist()))
        shape = [sizes[v] for v in scope]
        values = -random.choice([1.0, 100.0, 600.0]) * random.random(shape)
        if random.random() < 0.3:
            values[random.random(shape) < 0.3] = -np.inf
        functions.append(oocbe.Function.from_array(scope, values, infeasible=-math.inf))
        logarithms = logarithms + values.reshape([sizes[v] if v in scope else 1 for v in range(8)])
    variables = tuple(oocbe.Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return oocbe.Problem(variables, tuple(functions), semiring=oocbe.LOG_SUM_EXP), logarithms


@pytest.mark.parametrize("seed", range(examples(60)))
def test_products_below_the_range_of_floats_are_enumerated_alike(seed, tune):
    random = np.random.default_rng(700 + seed)
    tune(clique_cells=float(random.choice([0.0, 20.0])))
    problem, logarithms = widely_spread(random)
    found = answer.QueryAnswer.of(problem)
    shares = found.posteriors(range(8), "cpu")
    greatest = logarithms.max()
    if greatest == -np.inf:
        assert found.log_evidence("cpu") == -math.inf
        return
    weights = np.exp(logarithms - greatest)
    assert found.log_evidence("cpu") == pytest.approx(greatest + math.log(weights.sum()), rel=1e-12, abs=1e-12)
    for v in range(8):
        expected = weights.sum(axis=tuple(u for u in range(8) if u != v)) / weights.sum()
        np.testing.assert_allclose(shares[v], expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("needs_logarithms", [False, True])
def test_logarithms_are_taken_only_where_what_underflows_matters(needs_logarithms, monkeypatch, tune):
    """Two stars whose hubs are equal; many leaves make the same value of both hubs unlikely, or different ones."""
    tune(clique_cells=0.0)
    used = []
    original = complete_tree.CompleteTree.answer

    def counted(tree, asked, backend, is_log=False):
        used.append(is_log)
        return original(tree, asked, backend, is_log)

    monkeypatch.setattr(complete_tree.CompleteTree, "answer", counted)
    variables = tuple(oocbe.Variable(f"x{v}", 3) for v in range(14))
    likely, small = np.array([[1.0, 0.5, 0.25]]).T, math.exp(-500)
    tables = [oocbe.Function.from_array((0, 1), np.eye(3), infeasible=0)]
    for hub in range(2):
        shares = np.where(np.arange(3) == (hub if needs_logarithms else 0), 1.0, small)
        tables += [oocbe.Function.from_array((leaf, hub), likely * shares) for leaf in range(2 + hub, 14, 2)]
    problem = oocbe.Problem(variables, tuple(tables), semiring=oocbe.SUM_PRODUCT)
    found = answer.QueryAnswer.of(problem)
    shares = found.posteriors((0, 1, 5), "cpu")
    assert (True in used) == needs_logarithms
    constant = 12 * math.log(1.75)
    expected = constant + (-3000 + math.log(2) if needs_logarithms else 0.0)
    assert found.log_evidence("cpu") == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(shares[5], likely[:, 0] / 1.75, atol=1e-12)
    hub = [0.5, 0.5, 0.0] if needs_logarithms else [1.0, 0.0, 0.0]
    np.testing.assert_allclose(shares[0], hub, atol=1e-12)
    np.testing.assert_allclose(shares[1], hub, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_tables_are_collected_with_the_fewest_cells_held(seed):
    """Of all orders in which each subtree is in one piece."""
    random, count = np.random.default_rng(seed), 7
    parents = [int(random.integers(node + 1, count)) for node in range(count - 1)] + [-1]
    cells = random.integers(1, 50, count).tolist()
    below = [{node} for node in range(count)]
    for node, parent in enumerate(parents[:-1]):
        below[parent] |= below[node]

    def held(order):
        most = now = 0
        for node in order:
            now += cells[node]
            most = max(most, now)
            now -= sum(cells[child] for child in range(count) if parents[child] == node)
        return most

    def is_whole(order):
        ends = [sorted(map(order.index, own)) for own in below]
        return all(own[-1] - own[0] < len(own) and own[-1] == order.index(node) for node, own in enumerate(ends))

    order, most = complete_tree.collecting_order(cells, parents)
    assert is_whole(order)
    assert held(order) == most == min(map(held, filter(is_whole, permutations(range(count)))))


@pytest.mark.parametrize(("count", "hub_exponent"), [(30, -540), (200, 0)])
def test_many_large_messages_above_one_neither_hide_underflow_nor_overflow(count, hub_exponent, monkeypatch):
    """Their product for the first value outweighs the factors, whose own product underflows; or it overflows."""
    monkeypatch.setattr(complete_tree, "SMALL_CELLS", 0)
    size, share = 1 << 12, 2.0**-40
    rows = np.array([np.ones(size), np.full(size, share)])
    leaves = [DenseFactor((0, v), rows, 0.0) for v in range(1, count + 1)]
    hub = [DenseFactor((0,), np.array([2.0**hub_exponent, 1.0]), 0.0)] * 2
    separators = [(0,)] * count + [()]
    tree = complete_tree.CompleteTree([2] + [size] * count, leaves + hub, [*range(1, count + 1), 0], separators)
    logs = count * np.log(rows.sum(axis=1)) + [2 * hub_exponent * math.log(2), 0.0]
    total = np.logaddexp.reduce(logs)
    try:
        logarithm, shares = tree.answer([0], "cpu")
    except complete_tree.UnderflowError:
        logarithm, shares = tree.answer([0], "cpu", is_log=True)
    assert logarithm == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(shares[0], np.exp(logs - total), atol=1e-12)


def test_many_large_messages_of_a_clique_stay_within_floats(monkeypatch):
    """The product of 190 messages with a greatest number of some 60 was infinite, and so was the exact answer."""
    monkeypatch.setattr(complete_tree, "SMALL_CELLS", 4)
    random, leaves = np.random.default_rng(0), 190
    variables = tuple(oocbe.Variable(f"x{v}", 3 if v < 2 else 64) for v in range(2 + leaves))
    tables = random.uniform(0.95, 1.0, (leaves, 2, 3, 64))
    functions = [
        oocbe.Function.from_array((hub, 2 + leaf), tables[leaf, hub]) for leaf in range(leaves) for hub in (0, 1)
    ]
    found = answer.QueryAnswer.of(oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT))
    shares = found.posteriors((0, 5), "cpu")
    logarithms = np.log(np.einsum("lav,lbv->lab", tables[:, 0], tables[:, 1])).sum(axis=0)
    weights = np.exp(logarithms - logarithms.max())
    assert found.log_evidence("cpu") == pytest.approx(logarithms.max() + math.log(weights.sum()), rel=1e-12)
    np.testing.assert_allclose(shares[0], weights.sum(axis=1) / weights.sum(), rtol=1e-9)
    assert shares[5].sum() == pytest.approx(1.0)


def test_no_variables_are_relevant_to_a_case_whose_weights_are_all_0():
    functions = (oocbe.Function.from_array((0, 1), [[1.0, 0.0], [1.0, 0.0]]),)
    problem = oocbe.Problem(tuple(oocbe.Variable(n, 2) for n in "ab"), functions, semiring=oocbe.SUM_PRODUCT)
    impossible = answer.QueryAnswer(written_out(problem), {1: np.array([0.0, 1.0])})
    assert (impossible.relevant(1 << 40), impossible.seconds((), 1 << 40)) == (frozenset(), 0.0)
