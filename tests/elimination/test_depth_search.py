"""The depth-first search: the optimum, bounds on the way, open nodes on a heap, and few states."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from oocbe.elimination.search import depth_search
from oocbe.elimination.search.depth_search import DepthSearch
from oocbe.elimination.search.knowledge import Knowledge
from oocbe.elimination.search.row_rounds import RowRounds
from oocbe.elimination.search.row_search import RowSearch
from oocbe.errors import TimeLimitError
from oocbe.kernels.cpu.pruning.row_ascent import _scratch
from oocbe.kernels.cpu.pruning.stale_ascent import collect
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.pruning.row_ascent import RowAscent
from oocbe.pruning.row_reduction import Reduction
from oocbe.pruning.row_tables import Tables
from oocbe.settings.options import SolveOptions
from oocbe.synth import random_network
from oocbe.system.deadline import Deadline
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs

NO_GAP = SolveOptions().gap


def whole(problem: Problem) -> Reduction:
    """A problem as it is: reduction would leave little of one as small as these."""
    tables = Tables.of(problem)
    assert tables is not None
    return Reduction(tables, tuple(range(len(problem.sizes))), (), problem.sizes)


def search(problem: Problem, memory: int = 1 << 30) -> tuple[Knowledge, DepthSearch]:
    """Run a search to its end; every bound and value that it reports on the way is checked."""
    best = optimum(problem)
    reduction = whole(problem)
    tolerance = 4 * reduction.tables.rounding
    ceiling = math.inf if problem.upper_bound is None else problem.upper_bound

    def check(lower, value, why, assignment):
        assert value is None or value >= best - tolerance, (problem.name, why, value, best)
        assert lower is None or lower <= min(best, ceiling) + tolerance or best == math.inf, (problem.name, why, lower)

    known = Knowledge(problem, NO_GAP, check)
    made = DepthSearch(reduction, known, memory)
    made.work(math.inf, Deadline())
    return known, made


@pytest.mark.parametrize("make", [anything, photographs, costly_photographs, hidden_solution])
@pytest.mark.parametrize("pause", [1, 10**6])
def test_the_optimum_wherever_it_pauses(make, pause, monkeypatch):
    monkeypatch.setattr(depth_search, "FIRST_PAUSE", pause)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)  # no assignment to begin with
    nodes = 0
    for seed in range(100):
        problem = make(seed)
        best = optimum(problem)
        known, made = search(problem)
        assert made.is_over
        assert known.is_closed, problem.name
        if best == math.inf:
            assert known.value is None
        else:
            assert known.value == pytest.approx(best, rel=1e-9, abs=1e-9)
            assert known.value == best or not problem.is_integral
        nodes += made.nodes
    assert nodes > 100


def network(seed: int, arity: int) -> Problem:
    """Costs over scopes of so many variables, some forbidden, that no search settles at its root."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 4, size=7).tolist()
    functions, constraints = [], []
    for _ in range(12):
        scope = tuple(sorted(random.choice(7, size=arity, replace=False).tolist()))
        shape = [sizes[v] for v in scope]
        functions.append(Function.from_array(scope, random.integers(0, 9, size=shape)))
        constraints.append(Constraint(scope, np.argwhere(random.random(shape) < 0.1)))
    return Problem(tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)), tuple(functions), tuple(constraints))


@pytest.mark.parametrize("arity", [2, 3, 4])
def test_functions_over_any_number_of_variables(arity, monkeypatch):
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    nodes = 0
    for seed in range(30):
        problem = network(seed, arity)
        known, made = search(problem)
        assert known.value == (optimum(problem) if optimum(problem) < math.inf else None)
        nodes += made.nodes
    assert nodes > 20


def test_few_states_are_enough(monkeypatch):
    monkeypatch.setattr(depth_search, "LEAST_DEPTHS", 2)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    problem = random_network(9, 4, 0.9, tightness=0.0, seed=3)
    state = RowAscent(Tables.of(problem), 10**4).state
    known, made = search(problem, 2 * state.nbytes)
    assert known.is_closed
    assert made.nodes > 9
    known, made = search(problem, state.nbytes)
    assert made.is_over
    assert not known.is_closed


def test_what_is_not_stale_has_nothing_more_to_spare(monkeypatch):
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    for arity in (2, 3, 4):
        problem = network(5, arity)
        known = Knowledge(replace(problem, upper_bound=90), NO_GAP, lambda *_: None)
        made = DepthSearch(whole(problem), known, 1 << 20)
        made.work(0.0, Deadline())
        root, stale = made._ascent, made._stale
        assert root.bound < root.need
        assert not stale.all()
        least, work = _scratch(root.network)
        reach = np.zeros(7, dtype=np.uint8)
        for v in range(7):
            one, all_uses = root.state.copy(), root.state.copy()
            for state, looked_at in ((one, stale.copy()), (all_uses, np.ones_like(stale))):
                collect(root.network, v, state, looked_at, root.bound, root.need, reach, 1, least, work)
            assert (one == all_uses).all()


def test_the_deadline_ends_it():
    problem = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    made = DepthSearch(whole(problem), Knowledge(problem, NO_GAP, lambda *_: None), 1 << 30)
    with pytest.raises(TimeLimitError):
        made.work(math.inf, Deadline(0.0))


def test_it_takes_turns_with_rows(monkeypatch):
    problem = random_network(12, 6, 0.9, tightness=0.0, seed=3)
    known = Knowledge(problem, NO_GAP, lambda *_: None)
    rounds = RowRounds(problem, SolveOptions(), Deadline())
    taken = []

    def work(made, seconds, deadline):
        taken.append(type(made))
        made.seconds += 1.0

    for kind in (RowSearch, DepthSearch):
        monkeypatch.setattr(kind, "work", work)
    rounds.order_seconds = math.inf  # no elimination
    rounds.first(known, lambda: None, 20.0)
    assert len(taken) == 20
    assert taken.count(DepthSearch) == 16  # four times as often


def conflicts(count: int, part: float, seed: int) -> Problem:
    """A random graph, of whose vertices as many as possible are chosen without two neighbours."""
    random = np.random.default_rng(seed)
    functions = [Function((v,), [[0]], [int(random.integers(1, 9))], 0) for v in range(count)]
    pairs = [(u, v) for u in range(count) for v in range(u) if random.random() < part]
    constraints = [Constraint(pair, [[1, 1]]) for pair in pairs]
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(count)), tuple(functions), tuple(constraints))


def test_packing_is_for_linear_programs_first_unless_choices_forbid_most_others():
    for part, is_tried in ((0.08, False), (0.6, True)):
        problem = conflicts(24, part, seed=2)
        known = Knowledge(problem, NO_GAP, lambda *_: None)
        rounds = RowRounds(problem, SolveOptions(), Deadline())
        rounds.first(known, lambda: None)
        assert (rounds.seconds > 0) == is_tried
        assert known.is_closed == is_tried
        rounds.improve(known, lambda: None)
        rounds._work(known)
        assert rounds.seconds > 0
