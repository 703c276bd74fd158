"""Counts of clauses by search and preprocessing, against the enumeration of all assignments."""

import itertools
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.counting import counter
from oocbe.counting import presolve as presolving
from oocbe.counting.counter import count_formula, depth_scores
from oocbe.counting.presolve import Formula, formula_of, presolve, problem_of
from oocbe.elimination.orders.order import search_orders
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.tuning import tuned
from oocbe.runtime.deadline import Deadline
from tests.helpers.effort import examples

MEMORY = 1 << 28


def enumerated(formula):
    """The count by enumeration: the weight of each assignment of shown variables that extends to a model."""
    shown = np.flatnonzero(formula.shown).tolist()
    found = {}
    for values in itertools.product((0, 1), repeat=formula.variables):
        if all(any(values[x >> 1] != x & 1 for x in clause) for clause in formula.clauses):
            key = tuple(values[v] for v in shown)
            found[key] = math.prod(formula.weight(2 * v + 1 - values[v]) for v in shown)
    return formula.multiplier * sum(found.values())


def searched(formula, scores=None):
    return count_formula(formula, np.zeros(formula.variables) if scores is None else scores, MEMORY).value


def random_formula(seed, variables=9, shown=True, weighted=False):
    """Random clauses, with duplicates, tautologies and, rarely, an empty one."""
    r = random.Random(seed)
    n = r.randrange(1, variables + 1)
    lengths = r.choice([[3], [2, 3], [1, 2, 3], [2], [3, 4, 5], [0, 3, 3, 3]])
    clauses = [
        [2 * r.randrange(n) + r.randrange(2) for _ in range(r.choice(lengths))] for _ in range(r.randrange(0, 4 * n))
    ]
    visible = None if shown else [v for v in range(n) if r.random() < 0.5]
    weights = None
    if weighted:
        own = range(n) if visible is None else visible
        weights = [(r.randrange(-3, 9), r.randrange(-3, 9)) if v in own else (1, 1) for v in range(n)]
    return Formula.of(n, clauses, visible, weights)


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_random_formulas(shown, weighted):
    for seed in range(examples(1200)):
        formula = random_formula(seed, shown=shown, weighted=weighted)
        scores = np.random.default_rng(seed).random(formula.variables) * 10.0 ** (seed % 4)
        expected = enumerated(formula)
        assert searched(formula, scores) == expected, formula
        assert searched(presolve(formula, 10.0).formula) == expected, formula


@pytest.mark.parametrize("weights", [None, [(2, 3), (4, 5), (1, 1)]])
def test_no_clauses_are_counted_without_a_loop(weights, monkeypatch):
    """A first run would wait for the compilation of the search, which takes seconds."""
    monkeypatch.setattr(counter, "solver_of", None)
    formula = replace(Formula.of(3, [], [0, 1], weights), multiplier=7)
    assert searched(formula) == enumerated(formula)


def test_a_short_time_limit_is_not_spent_on_the_compilation_of_probes(monkeypatch):
    called = []
    monkeypatch.setattr(presolving, "is_ready", lambda *_: False)
    monkeypatch.setattr(presolving, "probe", lambda *given: called.append(given) or 0)
    formula = random_formula(2)
    with Deadline(20):
        left = presolve(formula, 10.0).formula
    assert not called
    assert searched(left) == enumerated(formula)
    for limit in (None, 1000):
        with Deadline(limit):
            presolve(formula, 10.0)
        assert called
        called.clear()


LITERALS = st.lists(st.integers(0, 13), max_size=4)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(LITERALS, max_size=25), st.none() | st.sets(st.integers(0, 6)))
def test_any_clauses(clauses, shown):
    formula = Formula.of(7, clauses, shown)
    expected = enumerated(formula)
    assert searched(formula) == expected
    assert searched(presolve(formula, 10.0).formula) == expected


def test_clauses_lose_duplicates_and_tautologies():
    assert Formula.of(3, [[2, 0, 2], [0, 2], [4, 5, 0], []]).clauses == ((0, 2), ())


def pigeons(holes):
    """One pigeon more than holes: no model, and learned clauses at every level."""
    places = [[holes * p + h for h in range(holes)] for p in range(holes + 1)]
    each = [[2 * v for v in own] for own in places]
    apart = [[2 * a[h] + 1, 2 * b[h] + 1] for a, b in itertools.combinations(places, 2) for h in range(holes)]
    return Formula.of(holes * (holes + 1), [*each, *apart])


def test_a_formula_without_models():
    assert searched(pigeons(5)) == 0


def test_a_component_without_models_beside_others():
    """The counts of the others, pruned by its learned clauses, leave the cache."""
    for seed in range(40):
        one, other = random_formula(seed), pigeons(2)
        joined = [[x + 2 * one.variables for x in clause] for clause in other.clauses]
        link = [[2 * one.variables, 2 * v] for v in range(one.variables)]
        for extra in ([], link):
            n = one.variables + other.variables
            assert searched(Formula.of(n, [*one.clauses, *joined, *extra])) == 0


def queens(n):
    at = [[n * r + c for c in range(n)] for r in range(n)]
    clauses = [[2 * v for v in row] for row in at]
    for (r, c), (s, d) in itertools.combinations(itertools.product(range(n), repeat=2), 2):
        if r == s or c == d or abs(r - s) == abs(c - d):
            clauses.append([2 * at[r][c] + 1, 2 * at[s][d] + 1])
    return Formula.of(n * n, clauses)


def test_queens():
    assert searched(queens(7)) == 40
    assert searched(presolve(queens(7), 10.0).formula) == 40


def test_a_small_cache_evicts(monkeypatch):
    """Old entries leave the cache without a change of the count."""
    r = random.Random(1)
    formula = Formula.of(40, [[2 * v + r.randrange(2) for v in r.sample(range(40), 3)] for _ in range(60)])
    expected = count_formula(formula, np.zeros(40), MEMORY)
    monkeypatch.setattr(counter, "FIRST_ENTRIES", 64)
    small = count_formula(formula, np.zeros(40), 1)
    assert small.value == expected.value
    assert small.entries <= 64 < expected.entries
    assert small.decisions > expected.decisions


@pytest.mark.parametrize("shown", [(), range(6)])
def test_components_without_counted_variables_are_only_searched_for_a_model(shown):
    """They are not split, so the cache has components of counted variables, and the first ones below these."""
    r = random.Random(3)
    clauses = [[2 * v + r.randrange(2) for v in r.sample(range(40), 3)] for _ in range(150)]
    found = count_formula(Formula.of(40, clauses, shown), np.zeros(40), MEMORY)
    assert found.value == len(
        [
            values
            for values in itertools.product((0, 1), repeat=len(shown))
            if searched(Formula.of(40, [*clauses, *([2 * v + 1 - x] for v, x in enumerate(values))], ())) == 1
        ]
    )
    assert found.decisions > 5
    assert found.entries <= 2 ** (len(shown) + 1) * bool(shown)


def test_learned_clauses_are_deleted(monkeypatch):
    r = random.Random(2)
    formula = Formula.of(50, [[2 * v + r.randrange(2) for v in r.sample(range(50), 3)] for _ in range(190)])
    expected = count_formula(formula, np.zeros(50), MEMORY)
    monkeypatch.setattr(counter, "FIRST_LEARNED", 20)
    found = count_formula(formula, np.zeros(50), MEMORY)
    assert found.value == expected.value
    assert expected.conflicts > 40


def test_large_counts_are_exact():
    """2,000 disjoint clauses of two literals: 3 models each."""
    formula = Formula.of(4000, [[4 * i, 4 * i + 2] for i in range(2000)])
    assert searched(formula) == 3**2000


def test_negative_weights_are_exact():
    formula = Formula.of(200, [[4 * i, 4 * i + 2] for i in range(100)], None, [(-5, 10**20)] * 200)
    assert searched(formula) == (25 - 10 * 10**20) ** 100


def test_definitions_are_eliminated():
    """The outputs of a chain of gates are no variables of the preprocessed formula, unless weights tell them apart."""
    r = random.Random(3)
    clauses, n = [], 12
    for _ in range(20):
        a, b = (2 * v + r.randrange(2) for v in r.sample(range(n), 2))
        clauses += [[2 * n + 1, a], [2 * n + 1, b], [2 * n, a ^ 1, b ^ 1]]
        n += 1
    clauses.append([2 * (n - 1), 2 * (n - 2)])
    formula = Formula.of(n, clauses)
    left = presolve(formula, 10.0)
    assert left.formula.variables <= 12
    assert set(left.variables) <= set(range(n))
    assert searched(left.formula) == searched(formula)


def test_depth_scores_prefer_separators():
    """Two stars of chains without a common variable: each hub has the greatest score."""
    clauses = [[19 * 2 * star, 2 * (19 * star + 3 * leg + 1)] for star in range(2) for leg in range(6)]
    legs = [19 * star + 3 * leg + i for star in range(2) for leg in range(6) for i in (1, 2)]
    clauses += [[2 * v, 2 * (v + 1)] for v in legs]
    choice = search_orders(problem_of(Formula.of(38, clauses), "stars"), "min-fill", 0.0, 0)[0]
    scores = depth_scores(choice.order, choice.separators)
    assert scores[0] == scores[19] == scores.max()


def test_variables_of_a_bag_have_the_same_depth():
    """Two cliques with three common variables, the centre: the others have one step to it, whatever their order."""
    order = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    separators = [[*range(i + 1, 3), 6, 7, 8] for i in range(3)] + [list(range(i + 1, 9)) for i in range(3, 9)]
    scores = depth_scores(order, separators)
    assert set(scores[:3]) == {0.0}
    assert scores[3:].min() == scores[3:].max() > 0


def test_weak_separators_weigh_less_than_a_clause():
    """A complete graph separates nothing; the separators of a long path decide."""
    graph, path = list(range(9)), list(range(400))
    assert depth_scores(graph, [range(i + 1, 9) for i in graph]).max() < 1.0
    assert depth_scores(path, [[i + 1] for i in path[:-1]] + [[]]).max() > 1e5


def test_early_conflicts_do_not_guide_all_decisions():
    """Formulas with a handful of conflicts among thousands of decisions, which are left to the number of clauses."""
    decisions = 0
    for seed in (2, 4, 7):
        r = random.Random(seed)
        sizes = [3] * 18 + [4] * 9 + [5] * 7 + [6] * 6
        clauses = [[2 * v + r.randrange(2) for v in r.sample(range(36), size)] for size in sizes]
        found = count_formula(Formula.of(36, clauses), np.zeros(36), MEMORY)
        assert 0 < found.conflicts < 10
        decisions += found.decisions
    assert decisions < 30_000  # 42,433 when conflicts keep their weight


def test_the_latest_model_answers_for_variables_that_do_not_count():
    decisions = 0
    for seed in (1, 2, 3):
        r = random.Random(seed)
        clauses = [[2 * v + r.randrange(2) for v in r.sample(range(40), 3)] for _ in range(100)]
        decisions += count_formula(Formula.of(40, clauses, range(10)), np.zeros(40), MEMORY).decisions
    assert decisions < 5_000  # 13,294 if each is decided again


def test_pure_literals_leave_with_their_clauses():
    """What is left falls apart: 14,333 decisions in all without it."""
    decisions = 0
    for seed in range(3):
        r = random.Random(seed)
        clauses = [[2 * v + r.randrange(2) for v in r.sample(range(40), 3)] for _ in range(100)]
        formula = Formula.of(40, clauses, range(20))
        found = count_formula(formula, np.zeros(40), MEMORY)
        assert found.value == searched(presolve(formula, 10.0).formula)
        decisions += found.decisions
    assert decisions < 5_000


def test_a_time_limit_ends_the_search():
    r = random.Random(4)
    formula = Formula.of(300, [[2 * v + r.randrange(2) for v in r.sample(range(300), 3)] for _ in range(700)])
    searched(queens(4))  # compiled before
    with Deadline(0.3), pytest.raises(TimeLimitError):
        searched(formula)


def test_problems_with_clauses():
    """Tables, allowed rows, linear constraints and single values, by the task, in both ways."""
    r = np.random.default_rng(0)
    for _ in range(40):
        sizes = r.integers(1, 3, size=8).tolist()
        scopes = [tuple(int(v) for v in r.choice(8, size=3, replace=False)) for _ in range(5)]
        constraints, functions = [], []
        for i, scope in enumerate(scopes):
            rows = np.array([row for row in itertools.product(*(range(sizes[v]) for v in scope)) if r.random() < 0.6])
            if not len(rows):
                continue
            if i % 3 == 2:
                functions.append(Function(scope, rows, np.ones(len(rows), dtype=np.int64)))
            elif i % 3 == 1:
                constraints.append(Constraint(scope, rows, allowed=True))
            else:
                constraints.append(Constraint(scope, rows[: len(rows) // 2]))
        linear = LinearConstraint(
            (0, 1, 2, 3), tuple(np.arange(sizes[v]) * int(r.integers(-2, 4)) for v in range(4)), int(r.integers(0, 4))
        )
        problem = Problem(
            tuple(Variable(f"v{v}", size) for v, size in enumerate(sizes)),
            tuple(functions),
            tuple(constraints),
            (linear,),
        )
        formula = formula_of(problem)
        assert formula is not None
        expected = sum(
            problem.evaluate(values) is not None for values in itertools.product(*(range(size) for size in sizes))
        )
        assert searched(formula) == expected
        for rows in (0.0, math.inf):
            with tuned(searched_rows=rows):
                assert oocbe.count(problem, order_seconds=0.0).value == expected


def test_other_problems_have_no_formula():
    three = Problem((Variable("a", 3),))
    wide = Problem(
        tuple(Variable(f"v{v}", 2) for v in range(12)),
        constraints=(Constraint(tuple(range(12)), np.zeros((1, 12), dtype=np.int64), allowed=True),),
    )
    assert formula_of(three) is None
    assert formula_of(wide) is None


def test_wide_tables_with_few_forbidden_rows_are_clauses():
    rows = np.argwhere(np.arange(1 << 12).reshape((2,) * 12) != 5)
    problem = Problem(
        tuple(Variable(f"v{v}", 2) for v in range(12)), (Function(tuple(range(12)), rows, np.ones(len(rows))),)
    )
    formula = formula_of(problem)
    assert formula is not None
    assert len(formula.clauses) == 1
    assert searched(formula) == (1 << 12) - 1


@pytest.mark.parametrize("number", ["011", "021", pytest.param("045", marks=pytest.mark.slow)])
def test_published_counts(data, number):
    name = f"mc2022_track1_{number}.cnf.gz"
    logarithm = json.loads(data("mc2022/log10_counts.json").read_text())[name]
    for rows in (0.0, 1e9):
        with tuned(searched_rows=rows):
            result = oocbe.count(data(f"mc2022/{name}"))
        assert math.log10(result.value) == pytest.approx(float(logarithm), abs=1e-7)
        assert result.presolve
