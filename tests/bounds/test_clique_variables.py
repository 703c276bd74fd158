"""Variables of cliques: an assignment of the problem is one of theirs, at the same cost, and bounds rise."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from oocbe.bounds import cliques
from oocbe.bounds.cliques import with_clique_variables
from oocbe.bounds.row_reduction import Reduction
from oocbe.bounds.row_tables import ScopeTables
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search import depth_search, depth_tree
from oocbe.search.depth_search import DepthSearch
from oocbe.search.depth_tree import Root, laid_out
from oocbe.search.kernels.cpu.node_state import MEMBER, TABLE, TIE, TIED_VALUE, near_uses
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import optimum
from tests.helpers.depth_searches import blank
from tests.helpers.effort import examples
from tests.helpers.small_problems import all_values


def differing(seed: int) -> Problem:
    """Costs of single variables and pairs; permutations, and variables that differ or keep a distance."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 6))
    is_permutation, distance = seed % 3 > 0, 2 if seed % 4 == 3 else 1
    sizes = np.full(count, count) if is_permutation else random.integers(3, 6, count)
    functions = [Function.from_array((v,), random.integers(0, 30, size)) for v, size in enumerate(sizes)]
    constraints = []
    for pair in combinations(range(count), 2):
        u, v = (np.arange(sizes[x]) for x in pair)
        kind = random.random()
        if is_permutation or kind < 0.8:
            constraints.append(Constraint(pair, np.argwhere(np.abs(u[:, None] - v) < distance)))
        if kind < 0.1:
            constraints.append(Constraint(pair, np.argwhere(random.random((len(u), len(v))) < 0.2)))
        if kind > 0.7:
            functions.append(Function.from_array(pair, random.integers(-5, 20, (len(u), len(v)))))
    if seed % 5 == 4:
        functions = [Function(f.scope, f.tuples, f.values * 0.3, f.default) for f in functions]
    gone = [Constraint((v,), [[int(random.integers(size))]]) for v, size in enumerate(sizes) if random.random() < 0.2]
    variables = tuple(Variable(f"x{v}", int(size)) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), (*constraints, *gone), name=f"differing {seed}")


def whole(problem: Problem) -> Reduction:
    tables = ScopeTables.of(problem)
    assert tables is not None
    return Reduction(tables, tuple(range(len(problem.sizes))), (), problem.sizes)


def has_cliques(found: Reduction) -> bool:
    """Whether there are variables of cliques."""
    return len(found.tables.problem.sizes) > len(found.variables)


def open_values(found: Reduction, assignment: list[int], clique: int) -> list[int]:
    """Values of a clique's variable that its functions permit beside an assignment of the others."""
    ties = [part for part in found.tables.parts if part.scope[-1] == clique]
    size = found.tables.problem.sizes[clique]
    return [a for a in range(size) if all(part.permitted[assignment[part.scope[0]], a] for part in ties)]


def test_assignments_are_the_same_at_the_same_cost():
    wide = 0
    for seed in range(examples(160)):
        problem = differing(seed)
        found = with_clique_variables(whole(problem))
        if not has_cliques(found):
            continue
        wide += 1
        count, sizes = len(problem.sizes), found.tables.problem.sizes
        total, feasible = all_values(problem)
        kept = [part for part in found.tables.parts if part.scope[-1] < count]
        for assignment in np.argwhere(np.ones(problem.sizes)).tolist():
            values = [open_values(found, assignment, clique) for clique in range(count, len(sizes))]
            if feasible[tuple(assignment)]:
                assert all(len(found_values) == 1 for found_values in values)
                extended = (*assignment, *(a for found_values in values for a in found_values))
                assert found.tables.evaluate(extended) == pytest.approx(total[tuple(assignment)])
                assert found.complete(extended) == tuple(assignment)
            elif all(values):  # what cliques do not rule out, a function that was kept does
                assert not all(part.permitted[tuple(assignment[v] for v in part.scope)] for part in kept)
    assert wide > examples(32)


@pytest.mark.parametrize("pause", [1, 10**6])
def test_the_search_finds_the_optimum(pause, monkeypatch):
    monkeypatch.setattr(depth_tree, "FIRST_PAUSE", pause)
    monkeypatch.setattr(depth_search, "LOOK_SECONDS", 0.0)
    wide = 0
    for seed in range(examples(200)):
        problem = differing(seed)
        best = optimum(problem)
        known = SharedBounds(problem, SolveOptions().gap, lambda *_: None)
        found = with_clique_variables(whole(problem))
        wide += has_cliques(found)
        DepthSearch(found, known, 1 << 30).work(math.inf, Deadline())
        assert known.is_closed, problem.name
        if best == math.inf:
            assert known.value is None
        else:
            assert known.value == pytest.approx(best)
    assert wide > examples(40)


def assignment_problem(count: int, seed: int) -> Problem:
    costs = np.random.default_rng(seed).integers(0, 100, (count, count))
    variables = tuple(Variable(f"x{v}", count) for v in range(count))
    equal = [[a, a] for a in range(count)]
    functions = tuple(Function.from_array((v,), costs[v]) for v in range(count))
    return Problem(variables, functions, tuple(Constraint(p, equal) for p in combinations(range(count), 2)))


def root(reduction: Reduction, above: int) -> float:
    found = Root(reduction.tables, above)
    found.ascend(laid_out(reduction.tables), blank(found))
    return found.unscale(found.bound)


def test_the_bound_of_a_permutation_is_near_its_optimum():
    gaps = []
    for seed in range(5):
        problem = assignment_problem(6, seed)
        best, plain = optimum(problem), whole(problem)
        found = with_clique_variables(plain)
        assert has_cliques(found)
        assert len(found.tables.problem.sizes) == 12
        before, after = root(plain, best + 100), root(found, best + 100)
        assert before <= after <= best
        gaps.append((best - before, best - after))
    assert sum(after for _, after in gaps) < 0.5 * sum(before for before, _ in gaps)


def test_functions_of_cliques_are_ties_and_differences_are_not():
    """Only these are projected without a look at their tables."""
    plain = whole(assignment_problem(4, 1))
    found = with_clique_variables(plain)
    for reduction, is_tied in ((plain, False), (found, True)):
        start = Root(reduction.tables, reduction.tables.least + 200)
        network = start.network
        near = near_uses(network, np.int32(start.need))
        assert (near[:, TIE] > 0).all() == is_tied == (near[:, TIE] > 0).any()
        for i in np.flatnonzero(near[:, TIE] == MEMBER).tolist():
            table = network.tables[near[i, TABLE] :][:16].reshape(4, 4)
            others = np.delete(table, near[i, TIED_VALUE], axis=0)
            assert (others == others[0]).all()
            assert (table[near[i, TIED_VALUE]] == start.need - others[0]).all()


def test_equal_tables_are_stored_once():
    """Those of hard constraints alone; where a function adds costs, the table is another."""
    apart = [[a, a + 1] for a in range(3)]
    pairs = tuple(Constraint(pair, apart) for pair in ((0, 1), (0, 2), (1, 2), (2, 3)))
    costs = Function.from_array((2, 3), np.arange(16).reshape(4, 4))
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(4)), (costs,), pairs)
    tables = ScopeTables.of(problem)
    assert len(Root(tables, 250).network.tables) == 2 * (4 * 4 + 4 * 4)
    for values in np.ndindex(*problem.sizes):
        assert tables.evaluate(values) == problem.evaluate(values)


def test_names_of_the_problem_are_not_taken():
    problem = assignment_problem(4, 1)
    variables = (Variable("clique 0", 4), *problem.variables[1:])
    found = with_clique_variables(whole(Problem(variables, problem.functions, problem.constraints)))
    assert has_cliques(found)
    assert len(found.tables.problem.variables) == 8


def test_values_without_conflicts_leave_slack_at_once(monkeypatch):
    """In a photograph problem of 1,000 variables, cliques that have slack took 19 seconds."""
    monkeypatch.setattr(cliques, "_without_slack", lambda *_: pytest.fail("cliques were joined"))
    hard = [Constraint(pair, [[a, a] for a in (1, 2, 3)]) for pair in combinations(range(4), 2)]
    found = whole(Problem(tuple(Variable(f"x{v}", 4) for v in range(4)), (), tuple(hard)))
    assert with_clique_variables(found) is found


def test_few_pairs_or_too_many_cells_leave_it_as_it_is(monkeypatch):
    reduction = whole(assignment_problem(5, 1))
    monkeypatch.setattr(cliques, "MOST_GROWTH", 0.5)
    assert with_clique_variables(reduction) is reduction
    equal = [[a, a] for a in range(3)]
    ring = tuple(Constraint(pair, equal) for pair in ((0, 1), (1, 2), (2, 3), (0, 3)))
    no_triangle = whole(Problem(tuple(Variable(f"x{v}", 3) for v in range(4)), (), ring))
    assert with_clique_variables(no_triangle) is no_triangle
