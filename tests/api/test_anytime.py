"""Anytime answers to the tasks of the UAI competitions, compared with enumeration."""

import math
import signal
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.api.tasks import anytime as module
from oocbe.errors import ResourceError, TimeLimitError, UsageError
from oocbe.junction_trees.explanations import marginal_map
from oocbe.junction_trees.query_elimination import complete_tree
from oocbe.junction_trees.query_elimination.factors import WrittenFactors
from oocbe.kernels.choice import complete_kernels
from oocbe.model.parts import LinearConstraint
from oocbe.model.semiring import SUM_PRODUCT
from oocbe.runtime.deadline import current
from tests.helpers.effort import examples
from tests.helpers.small_networks import random_network, random_product

TASKS = ("PR", "MAR", "MAP", "MMAP")


def weights_of(problem):
    found = np.zeros(problem.sizes)
    for assignment in product(*map(range, problem.sizes)):
        found[assignment] = problem.evaluate(assignment) or 0.0
    return found


def check(task, problem, result, query):
    """Compare an exact result, or the bounds of another one, with enumeration."""
    weights = weights_of(problem)
    axes = tuple(range(weights.ndim))
    numbers = [int(name[1:]) for name in query]
    if task in ("PR", "MAR"):
        exact = weights.sum()
    elif task == "MAP":
        exact = weights.max()
    else:
        exact = weights.sum(axis=tuple(a for a in axes if a not in numbers)).max()
    exact = math.log(exact) if exact > 0 else -math.inf
    assert result.lower - 1e-9 <= exact <= result.upper + 1e-9
    assert result.value is None or result.lower - 1e-9 <= result.value <= result.upper + 1e-9
    assert (result.status == "infeasible") <= (exact == -math.inf)
    if result.status == "exact":
        assert result.value == pytest.approx(exact, abs=1e-8)
    if exact == -math.inf:
        return
    if task == "MAR":
        assert all(own.sum() == pytest.approx(1.0) for own in result.marginals)
        if result.status == "exact":
            for v, own in enumerate(result.marginals):
                assert own == pytest.approx(
                    weights.sum(axis=tuple(a for a in axes if a != v)) / weights.sum(), abs=1e-8
                )
    if task in ("MAP", "MMAP"):
        wanted = numbers if task == "MMAP" else axes
        assert list(result.assignment) == list(wanted)
        place = tuple(result.assignment.get(a, slice(None)) for a in axes)
        weight = weights[place].sum()
        assert result.value is None or weight > 0 or result.value == -math.inf
        if result.status == "exact":
            assert math.log(weight) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("task", TASKS)
def test_small_networks_are_solved_exactly(task, seed):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random)
    query = ("v4", "v1") if task == "MMAP" else ()
    result = oocbe.anytime(task, problem, query, order_seconds=0.0)
    assert result.status in ("exact", "infeasible")
    check(task, problem, result, query)


@pytest.mark.parametrize("seed", range(examples(48)))
def test_the_best_values_of_many_variables_are_found_by_search_after_the_others_are_summed_out(monkeypatch, seed):
    """The constrained order is wide, and the sums are small."""
    random = np.random.default_rng(seed)
    problem = random_product(random, variables=8, zeros=(0.0, 0.3)[seed % 2])
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", ())
    monkeypatch.setattr(module, "marginal_map", _refused)
    query = ("v6", "v0", "v3", "v5")
    result = oocbe.anytime("MMAP", problem, query, time_limit=60)
    assert result.status in ("exact", "infeasible")
    check("MMAP", problem, result, query)


def test_a_limit_at_the_start_of_what_is_left_keeps_an_assignment(monkeypatch):
    """The values that propagation leaves of v0 are 2 and 3: the places 0 and 1 of the problem without v2."""
    tables = [np.array([[0.0, 0], [0, 0], [1, 2], [3, 4]]), np.array([[1.0, 2], [3, 4]])]
    problem = oocbe.Problem(
        tuple(oocbe.Variable(f"v{v}", size) for v, size in enumerate((4, 2, 2))),
        tuple(oocbe.Function.from_array((v, v + 1), table) for v, table in enumerate(tables)),
        semiring=SUM_PRODUCT,
    )
    remove_values, calls = module.remove_values, []

    def limited(*given):
        calls.append(given)
        if len(calls) == 2:
            raise TimeLimitError("now")
        return remove_values(*given)

    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", ())
    monkeypatch.setattr(module, "remove_values", limited)
    result = oocbe.anytime("MMAP", problem, ("v0", "v1"), time_limit=60)
    assert len(calls) == 2 and result.assignment[0] in (2, 3)


@pytest.mark.parametrize("seed", range(examples(48)))
def test_a_best_assignment_is_found_below_the_large_costs_or_above_them(monkeypatch, seed):
    """Penalties of 1e-4 beside values near 1: with and without an assignment that avoids all of them."""
    random = np.random.default_rng(seed)
    functions = []
    for _ in range(18):
        scope = random.choice(8, 2, replace=False).tolist()
        values = random.uniform(0.9, 1, (2, 2)) * np.where(random.random((2, 2)) < (0.2, 0.4)[seed % 2], 1e-4, 1)
        functions.append(oocbe.Function.from_array(scope, values))
    names = tuple(oocbe.Variable(f"v{i}", 2) for i in range(8))
    problem = oocbe.Problem(names, tuple(functions), semiring=oocbe.SUM_PRODUCT)
    monkeypatch.setattr(module, "LEVELS", ())
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    result = oocbe.anytime("MAP", problem)
    assert result.status == "exact"
    assert module._large_cost(module.negated(replace(module.at_temperature(problem, 1.0), semiring=module.MAX_SUM)))
    check("MAP", problem, result, ())


def test_linear_constraints_of_a_marginal_map_are_refused_and_not_left_out():
    problem = random_network(np.random.default_rng(2), variables=4, zeros=0.0)
    linear = LinearConstraint((0, 1, 3), tuple(np.arange(problem.sizes[v]) for v in (0, 1, 3)), 1)
    with pytest.raises(oocbe.UnsupportedError, match="linear constraints"):
        oocbe.anytime("MMAP", replace(problem, linear_constraints=(linear,)), ("v0", "v1", "v2"))


@pytest.fixture
def small_clusters(monkeypatch):
    """No exact attempt, and clusters of a few cells."""
    monkeypatch.setattr(module, "_by_relevant_factors", lambda *_: False)
    monkeypatch.setattr(module, "ROWS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", (0, 2))
    monkeypatch.setattr(module, "SUMMED_CELLS", -1)
    monkeypatch.setattr(module, "marginal_map", _refused)
    monkeypatch.setattr(module, "_solve", _refused)


def _refused(*_):
    raise oocbe.ResourceError("no memory for it")


@pytest.mark.parametrize("seed", range(examples(32)))
@pytest.mark.parametrize("task", TASKS)
def test_estimates_are_within_bounds(small_clusters, task, seed):
    random = np.random.default_rng(seed)
    problem = random_product(random, variables=7, zeros=(0.0, 0.2)[seed % 2])
    query = ("v6", "v2", "v3") if task == "MMAP" else ()
    result = oocbe.anytime(task, problem, query, time_limit=30)
    check(task, problem, result, query)


def complete_graph():
    sizes = 6
    couplings = [np.random.default_rng(i).random((2, 2)) + 0.1 for i in range(sizes * sizes)]
    functions = tuple(
        oocbe.Function.from_array((a, b), couplings[a * sizes + b]) for a in range(sizes) for b in range(a)
    )
    names = tuple(oocbe.Variable(f"v{i}", 2) for i in range(sizes))
    return oocbe.Problem(names, functions, semiring=oocbe.SUM_PRODUCT)


@pytest.mark.parametrize("task", ["PR", "MAR"])
@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
def test_conditioning_within_little_memory(small_clusters, task, seed, monkeypatch):
    problem = complete_graph() if seed == 0 else random_network(np.random.default_rng(seed), variables=9)
    monkeypatch.setattr(module, "message_memory", lambda _: 16)
    result = oocbe.anytime(task, problem, time_limit=600)
    assert result.status == "exact"
    assert result.method.startswith("conditioning") or seed > 0
    check(task, problem, result, ())
    if seed > 0:
        return
    monkeypatch.setattr(module, "_cut_set", lambda *_: ([0], 1 << 62))  # too many cells for the time
    assert not oocbe.anytime(task, complete_graph(), time_limit=600).method.startswith("conditioning")


def test_marginals_on_which_the_evidence_depends_are_exact_where_the_others_take_too_long(monkeypatch):
    core, random = complete_graph(), np.random.default_rng(7)
    names, functions = [*core.variables], [*core.functions]
    for pair in ((0, 3), (1, 4), (6, 7), (2, 5)):  # v8 depends on v6 and v7
        share = random.random((2, 2, 1))
        functions.append(oocbe.Function.from_array((*pair, len(names)), np.concatenate((share, 1 - share), axis=2)))
        names.append(oocbe.Variable(f"v{len(names)}", 2))
    names.append(oocbe.Variable("v10", 3))
    problem = oocbe.Problem(tuple(names), tuple(functions), semiring=oocbe.SUM_PRODUCT).with_values({10: 1})
    seconds = module.QueryAnswer.seconds

    def limited(answer, asked, memory):
        return math.inf if len(asked) > 6 else seconds(answer, asked, memory)

    monkeypatch.setattr(module.QueryAnswer, "seconds", limited)
    monkeypatch.setattr(module, "_by_conditioning", lambda *_: None)
    monkeypatch.setattr(module, "ROWS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", (0, 2))
    result = oocbe.anytime("MAR", problem, time_limit=600)
    weights = weights_of(problem)
    assert result.status == "estimated"
    assert result.value == pytest.approx(math.log(weights.sum()), rel=1e-12)
    assert "the marginals of 7 of 11 variables are exact" in result.notes
    for v in (*range(6), 10):
        exact = weights.sum(axis=tuple(axis for axis in range(11) if axis != v)) / weights.sum()
        assert result.marginals[v] == pytest.approx(exact, rel=1e-12)
    check("MAR", problem, result, ())
    monkeypatch.setattr(module, "ROWS_A_SECOND", math.inf)
    result = oocbe.anytime("MAR", problem, time_limit=600)
    assert result.status == "exact" and not any("marginals of" in note for note in result.notes)
    odd = oocbe.Constraint((0, 1), np.argwhere(np.eye(2)))
    more = tuple(replace(odd, scope=scope) for scope in ((1, 2), (0, 2)))  # an odd cycle of different values
    nothing = replace(problem, constraints=(*problem.constraints, odd, *more))
    monkeypatch.setattr(module, "ROWS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", ())
    result = oocbe.anytime("MAR", nothing, time_limit=600)
    assert result.status == "infeasible" and result.notes == ()


def test_an_exact_attempt_may_take_longer_than_expected(monkeypatch):
    """Elimination is tried if it is expected to take a quarter of the time, and has more than that."""
    left, posteriors = [], module.QueryAnswer.posteriors

    def answered(*arguments):
        left.append(current().remaining)
        return posteriors(*arguments)

    monkeypatch.setattr(module.QueryAnswer, "posteriors", answered)
    assert oocbe.anytime("PR", complete_graph(), time_limit=600).method == "elimination of relevant factors"
    assert left[0] > 2 * module.FIRST_SHARE * 600


def test_a_plan_before_the_search_for_orders_is_short(monkeypatch):
    left, searches, search_orders = [], [], module.search_orders

    def seconds(*_):
        left.append(current().remaining)
        return math.inf

    def searched(*arguments, longest, **settings):
        searches.append((len(left), longest))
        return search_orders(*arguments, longest=longest, **settings)

    monkeypatch.setattr(module.QueryAnswer, "seconds", seconds)
    monkeypatch.setattr(module, "search_orders", searched)
    oocbe.anytime("PR", complete_graph(), time_limit=60, order_seconds=1, backend="cpu")
    assert left[0] <= module.FIRST_PLAN_SHARE * 60 < left[1] <= module.PLAN_SHARE * 60
    [(plans, longest)] = searches
    assert plans == 1
    assert longest > module.PLAN_SHARE * 60


@pytest.mark.parametrize("task", ["PR", "MAR"])
def test_beliefs_that_become_zero_prove_that_nothing_is_feasible(task, monkeypatch):
    """Two functions of v0 and v1 permit 0 of both, two of v2 and v1 permit 1 of both; each alone permits all values."""
    core = complete_graph()
    either = np.array([[1.0, 1.0], [1.0, 0.0]])
    pairs = [((0, 1), np.eye(2)), ((0, 1), either), ((2, 1), np.eye(2)), ((2, 1), either[::-1, ::-1])]
    functions = (oocbe.Function.from_array(scope, table, infeasible=0.0) for scope, table in pairs)
    problem = replace(core, functions=(*core.functions, *functions))
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "ROWS_A_SECOND", -1.0)
    monkeypatch.setattr(module, "LEVELS", (2,))
    monkeypatch.setattr(module, "_is_soon", lambda *_: False)
    monkeypatch.setattr(module, "_by_conditioning", lambda *_: None)
    monkeypatch.setattr(module.LogJoinGraph, "bound", lambda _, is_upper=True: math.inf if is_upper else -math.inf)
    result = oocbe.anytime(task, problem, time_limit=600)
    assert (result.status, result.value) == ("infeasible", -math.inf)


def test_nothing_is_conditioned_on_where_no_variable_is_left(monkeypatch):
    """If plans came too late, an order without variables was an error."""
    monkeypatch.setattr(module, "_is_soon", lambda *_: False)
    monkeypatch.setattr(module, "LEVELS", ())
    monkeypatch.setattr(module, "CELLS_A_SECOND", -1.0)
    core = complete_graph()
    problem = core.with_values(dict.fromkeys(range(len(core.variables)), 0))
    result = oocbe.anytime("MAR", problem, time_limit=600)
    check("MAR", problem, result, ())


@pytest.mark.parametrize("cliques", [1, 2])
def test_more_values_of_a_cut_set_than_floats_have(cliques):
    """Without a time limit, their number was too large for a float, or the search for a cut-set did not end."""
    count = 40 // cliques
    separators = [list(range(v + 1, v - v % count + count)) for v in range(40)]
    best, place = module._Best(), module.TablePlace("cpu", 50)
    module._by_conditioning(WrittenFactors((1 << 30,) * 40, (), (), (), tuple(range(40))), separators, (), place, best)
    assert not best.is_exact()


@pytest.mark.parametrize("task", TASKS)
def test_a_device_that_is_required_and_unusable_is_refused(task, monkeypatch):
    """Where tables are small, too: MAP was answered all the same."""

    def refuse(name):
        raise UsageError("there is no device")

    monkeypatch.setattr(module, "backend_named", refuse)
    problem = random_network(np.random.default_rng(0), variables=3)
    with pytest.raises(UsageError, match="there is no device"):
        oocbe.anytime(task, problem, problem.variables[0].name, backend="cuda")


@pytest.mark.parametrize("task", ["PR", "MAR", "clauses"])
def test_slices_are_joined_on_a_device(task, monkeypatch, tune):
    """With the CPU's kernels in place of a device's: the search for a cut-set, its memory, and clauses that the search
    does not count in its share of the time, which are preprocessed."""
    problem, places = complete_graph(), []
    if task == "clauses":
        tables = [np.array([[0.0, 1.0], [1.0, 1.0]])[:, :: 1 - 2 * (v % 2)] for v in range(12)]
        edges = [(v, (v + step) % 12) for v in range(12) for step in (1, 2, 3, 5)]
        names = tuple(oocbe.Variable(f"v{v}", 2) for v in range(12))
        functions = [oocbe.Function.from_array(edge, tables[edge[0]]) for edge in edges]
        functions += [oocbe.Function.from_array((v,), [0.25, 0.5 + v]) for v in range(12)]
        problem = oocbe.Problem(names, tuple(functions), semiring=oocbe.SUM_PRODUCT)
    monkeypatch.setattr(module, "DEVICE", Path("/"))
    if task == "clauses":
        monkeypatch.setattr(module, "cuda_works", pytest.fail)  # CUDA takes longer to start than a search to count
        assert "search" in oocbe.anytime("PR", problem, time_limit=600).method
    monkeypatch.setattr(module, "cuda_works", lambda wanted: True)
    monkeypatch.setattr(module, "backend_named", lambda name: None)
    monkeypatch.setattr(module, "_device", lambda: module.TablePlace("cuda", 50))
    monkeypatch.setattr(module, "_by_counting", lambda *_: False)
    monkeypatch.setattr(module, "gpus", lambda seconds: [0])
    monkeypatch.setattr(module, "on_gpus", lambda numbers, work, stop: places.append(1) or work(0))
    monkeypatch.setattr(complete_tree, "complete_kernels", lambda cells, name: complete_kernels(cells, "cpu"))
    monkeypatch.setattr(module, "message_memory", lambda _: 50)
    tune(device_cells=4)
    result = oocbe.anytime("MAR" if task == "MAR" else "PR", problem, time_limit=600)
    assert result.method.startswith("conditioning")
    assert places
    check("MAR" if task == "MAR" else "PR", problem, result, ())


@pytest.mark.parametrize("task", ["PR", "MAR"])
def test_belief_propagation_goes_on_after_the_exact_attempts(small_clusters, monkeypatch, task):
    """The first graph's share of the time may have passed before it has an estimate."""
    propagate, limits = module.LogJoinGraph.propagate, iter([TimeLimitError("the share passed")])

    def limited(graph, *arguments):
        for error in limits:
            raise error
        return propagate(graph, *arguments)

    monkeypatch.setattr(module.LogJoinGraph, "propagate", limited)
    monkeypatch.setattr(module, "LEVELS", (2,))
    monkeypatch.setattr(module, "_by_conditioning", lambda *_: None)
    result = oocbe.anytime(task, complete_graph(), time_limit=600)
    assert result.method == "belief propagation, clusters of 4 cells"


def test_marginals_of_observed_variables_need_no_propagation(monkeypatch):
    """They were uniform where the limit came before its end."""

    def limited(*_):
        raise TimeLimitError("the limit")

    monkeypatch.setattr(module, "remove_values", limited)
    result = oocbe.anytime("MAR", complete_graph(), evidence={"v1": "#1"}, time_limit=600)
    assert result.status == "estimated"
    assert [own.tolist() for own in result.marginals[:2]] == [[0.5, 0.5], [0.0, 1.0]]


def test_weights_of_zero_that_only_elimination_finds(small_clusters, monkeypatch):
    """Neither propagation nor divided mini-buckets find that an odd cycle of inequalities has no solution."""
    monkeypatch.setattr(module, "marginal_map", marginal_map)
    unequal = [oocbe.Function.from_array((v, (v + 1) % 3), 1.0 - np.eye(2)) for v in range(3)]
    names = tuple(oocbe.Variable(f"v{v}", 2) for v in range(3))
    problem = oocbe.Problem(names, tuple(unequal), semiring=oocbe.SUM_PRODUCT)
    monkeypatch.setattr(module, "LEVELS", (0,))
    assert oocbe.anytime("MMAP", problem, ("v0",), time_limit=600).status == "infeasible"


def test_an_interruption_keeps_the_best_answer(small_clusters, interrupts_heard, monkeypatch):
    propagate = module.LogJoinGraph.propagate

    def interrupted(self, *arguments):
        found = propagate(self, *arguments)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(module.LogJoinGraph, "propagate", interrupted)
    with pytest.raises(oocbe.Interrupted) as caught:
        oocbe.anytime("PR", complete_graph())
    result = caught.value.result
    assert (result.status, result.interrupted, result.exit_code) == ("bounded", True, 130)
    assert result.method.startswith("belief propagation")
    check("PR", complete_graph(), result, ())


def test_divided_buckets_are_not_called_exact(small_clusters):
    problem = complete_graph()
    for task in ("PR", "MAR", "MMAP"):
        result = oocbe.anytime(task, problem, ("v0", "v1", "v2"))
        assert result.status == ("estimated" if task == "MAR" else "bounded")
        assert result.exit_code == 20
        assert result.lower < result.upper
        check(task, problem, result, ("v0", "v1", "v2"))


def test_impossible_evidence_is_infeasible():
    network = random_network(np.random.default_rng(3), zeros=1.0)
    weights = weights_of(network)
    v, value = next((v, x) for v in range(7) for x in range(network.sizes[v]) if not weights.take(x, v).any())
    for task in TASKS:
        result = oocbe.anytime(task, network, ("v0",), evidence={v: value})
        assert (result.status, result.value, result.exit_code) == ("infeasible", -math.inf, 10)


def test_a_limit_before_any_work_is_an_error():
    problem = random_network(np.random.default_rng(5))
    result = module.best_within_limits("PR", problem, (), oocbe.SolveOptions(time_limit=1e-9))
    assert result.value is not None
    with oocbe.api.facade.Deadline(0.0), pytest.raises(TimeLimitError, match="the time limit was reached"):
        module.best_within_limits("MAR", problem, (), oocbe.SolveOptions())
    with pytest.raises(UsageError, match="not one of"):
        oocbe.anytime("SUM", problem)
    with pytest.raises(UsageError, match="no variable"):
        oocbe.anytime("MMAP", problem, ["nothing"])
    with pytest.raises(UsageError, match="needs the variables"):
        oocbe.anytime("MMAP", problem)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("error", "kind"), [(TimeLimitError, TimeLimitError), (MemoryError, ResourceError)])
def test_a_limit_before_the_first_estimate_is_an_error(task, error, kind, monkeypatch):
    """A result of zeros, or a logarithm of -inf, would look like an answer."""

    def failing(*arguments):
        raise error

    monkeypatch.setattr(module, "at_temperature", failing)
    with pytest.raises(kind):
        oocbe.anytime(task, random_network(np.random.default_rng(5)), ("v0",), time_limit=60)


def unfinished(*arguments):
    raise TimeLimitError


@pytest.mark.parametrize("seed", range(examples(80)))
def test_factors_that_only_forbid_are_counted_with_weights_of_variables(seed, monkeypatch):
    numbers = np.random.default_rng(seed)
    variables = tuple(oocbe.Variable(f"v{i}", 2) for i in range(8))
    functions = []
    for v in range(8):
        values = numbers.choice([0.25, 1.0, 0.1, 3.0, 1e-30, math.pi], 2)
        functions.append(oocbe.Function((v,), np.array([[0], [1]]), values))
    for _ in range(12):
        scope = numbers.choice(8, 3, replace=False)
        rows = np.argwhere(numbers.random((2, 2, 2)) < 0.85)
        functions.append(oocbe.Function(tuple(map(int, scope)), rows, np.full(len(rows), 0.7)))
    problem = oocbe.Problem(variables, tuple(functions), (), name="clauses", semiring=oocbe.SUM_PRODUCT)
    best, bounded = module._Best(), []
    best.bound = lambda lower: bounded.append(lower)
    exact = weights_of(problem).sum()
    energies = module.at_temperature(problem, 1.0)
    arguments = (energies, *module._weights_of_literals(energies), oocbe.SolveOptions())
    assert module._by_counting(*arguments, best, 0.7)
    assert best.value == pytest.approx(math.log(exact) if exact > 0 else -math.inf, abs=1e-9)
    assert len(bounded) == (exact > 0)
    assert all(lower <= best.value for lower in bounded)
    with monkeypatch.context() as patch:  # the preprocessing of many clauses takes all the time
        patch.setattr("oocbe.api.tasks.count.presolve", unfinished)
        best = module._Best()
        assert not module._by_counting(*arguments, best, 0.7)
    assert (best.lower > -math.inf) == (exact > 0)
    mixed = problem.functions[8].values.copy()
    mixed[0] = 0.2
    other = oocbe.Function(problem.functions[8].scope, problem.functions[8].tuples, mixed)
    problem = oocbe.Problem(variables, (*functions[:8], other), (), name="weights", semiring=oocbe.SUM_PRODUCT)
    assert module._weights_of_literals(module.at_temperature(problem, 1.0)) is None


def test_weights_of_a_counting_file(tmp_path):
    """They were left out without a word."""
    path = tmp_path / "weights.cnf"
    lines = ["p cnf 3 2", "c p weight 1 0.4 0", "c p weight -1 0.6 0", "c p weight 2 0 0", "c p weight -2 1 0"]
    path.write_text("\n".join([*lines, "1 2 0", "-1 3 0", ""]))
    assert oocbe.anytime("PR", path).value == pytest.approx(math.log(0.4), rel=1e-12)
    assert oocbe.anytime("MAP", path).assignment == {0: 1, 1: 0, 2: 1}
    path.write_text("\n".join(["c t pwmc", *lines, "c p show 1 0", "1 2 0", "-1 3 0", ""]))
    with pytest.raises(oocbe.UnsupportedError, match="the task PR"):
        oocbe.anytime("PR", path)


@pytest.mark.parametrize("is_counted", [True, False])
def test_weights_of_a_counting_file_beyond_floats(tmp_path, monkeypatch, is_counted):
    """They ended in an internal error, or weighed nothing."""
    if not is_counted:
        monkeypatch.setattr(module, "_weights_of_literals", lambda energies: None)
    path = tmp_path / "weights.cnf"
    lines = ["p cnf 2 2", "c p weight 1 1e-400 0", "c p weight -1 3 0", "c p weight 2 1e500 0", "c p weight -2 2e500 0"]
    path.write_text("\n".join([*lines, "1 2 0", "1 -2 0", ""]))
    result = oocbe.anytime("PR", path)
    assert (result.status, result.value) == ("exact", pytest.approx(math.log(3) + 100 * math.log(10), rel=1e-12))
    result = oocbe.anytime("MAR", path)
    assert result.marginals[1].tolist() == pytest.approx([2 / 3, 1 / 3], rel=1e-12)


@pytest.mark.parametrize("task", ["PR", "MMAP"])
def test_an_answer_remains_where_memory_runs_out(monkeypatch, task):
    class Graphs:
        def __init__(self, *arguments, **named):
            raise MemoryError

    monkeypatch.setattr(module, "_Graphs", Graphs)
    monkeypatch.setattr(module, "_by_relevant_factors", lambda *arguments: False)
    result = oocbe.anytime(task, random_network(np.random.default_rng(1)), query=["v0"] if task == "MMAP" else ())
    assert result.status == "estimated"
    assert "memory ran out" in result.notes
