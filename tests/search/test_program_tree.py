"""Branch and bound over the linear program: the optimum, bounds never above it, and removals for the node alone."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from oocbe.bounds.bounds import BoundSources
from oocbe.errors import TimeLimitError
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import Gap
from oocbe.runtime.deadline import Deadline
from oocbe.search import program_tree
from oocbe.search.program_tree import ProgramTree
from oocbe.search.subsolver import SharedBounds
from tests.helpers.bound_problems import anything, costly_photographs, hidden_solution, optimum, photographs
from tests.helpers.effort import examples, in_turns


def with_linear(seed: int) -> Problem:
    """Unary costs of any sign, forbidden pairs, and capacities."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 4, int(random.integers(2, 8))).tolist()
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    functions = tuple(Function.from_array((v,), random.integers(-4, 9, size)) for v, size in enumerate(sizes))
    pairs = [(u, v) for v in range(len(sizes)) for u in range(v) if random.random() < 0.5]
    cells = [np.argwhere(random.random((sizes[u], sizes[v])) < 0.3) for u, v in pairs]
    constraints = tuple(Constraint(pair, own) for pair, own in zip(pairs, cells, strict=True) if len(own))
    takes = [random.integers(-2, 6, size) for size in sizes]
    capacity = int(random.integers(0, 2 * len(sizes)))
    linear = LinearConstraint(tuple(range(len(sizes))), tuple(takes), capacity)
    return Problem(variables, functions, constraints, linear_constraints=(linear,), name=f"with linear {seed}")


def overflowing() -> Problem:
    """Four large items and three small ones. Sums of the bound overflow 64-bit integers once a large one is taken."""
    gains = [20_000, 20_001, 20_002, 20_003, 1028, 1035, 1042]
    takes = [2**30, 2**30 + 1, 2**30 + 2, 2**30, 1, 1, 1]
    variables = tuple(Variable(f"x{v}", 2) for v in range(7))
    functions = tuple(Function.from_array((v,), [0, -gain]) for v, gain in enumerate(gains))
    linear = LinearConstraint(tuple(range(7)), tuple(np.array([0, take]) for take in takes), 2**30 + 3)
    return Problem(variables, functions, linear_constraints=(linear,), name="overflowing")


def searched(problem: Problem) -> tuple[SharedBounds, ProgramTree | None]:
    """What is known at the search's end; all that it reports is compared with the optimum."""
    best, sources = optimum(problem), BoundSources(problem, improve=True)
    sources.improved(0.0)  # no cuts
    known = SharedBounds(problem, Gap(), lambda *_: None)
    ceiling = known.upper_bound

    def check(lower: float | None, value: float | None, why: str, assignment: object) -> None:
        assert value is None or value >= best
        assert lower is None or lower <= min(best, ceiling), (problem.name, why, lower, best)

    known.report = check
    if (relaxation := sources.relaxation) is None:
        return known, None
    made = ProgramTree(problem, relaxation, known)
    while not made.is_over:
        made.work(0.0, Deadline())
    return known, made


@pytest.mark.parametrize(
    ("make", "rounds"), in_turns((photographs, with_linear, hidden_solution, costly_photographs), (0, 3))
)
def test_the_optimum(make, rounds, monkeypatch):
    monkeypatch.setattr(program_tree, "MOST_ROUNDS", rounds)
    monkeypatch.setattr(program_tree, "MOST_TRIED", rounds)
    nodes = 0
    for seed in range(examples(40)):
        problem = make(seed)
        known, made = searched(problem)
        if made is None:
            continue
        nodes += made.nodes
        best = optimum(problem)
        assert known.is_closed, problem.name
        assert known.value == best if best < math.inf else known.value is None, problem.name
    assert nodes > examples(20)


def test_no_bound_is_above_the_optimum_of_other_problems():
    """Functions over several variables are outside the program: the leaves of its tree are single assignments."""
    found = 0
    for seed in range(examples(30)):
        known, made = searched(anything(seed))
        found += made is not None and known.is_closed
    assert found > examples(5)


def test_a_deadline_leaves_the_node_open():
    problem = next(p for p in map(photographs, range(50)) if searched(p)[1] is not None)
    sources = BoundSources(problem, improve=True)
    sources.improved(0.0)
    made = ProgramTree(problem, sources.relaxation, SharedBounds(problem, Gap(), lambda *_: None))
    with pytest.raises(TimeLimitError), Deadline(0.0) as deadline:
        made.work(1.0, deadline)
    assert not made.is_over
    made.work(math.inf, Deadline())
    assert made.is_over


def test_a_node_whose_sums_overflow_is_branched_on():
    problem = overflowing()
    known, made = searched(problem)
    assert made is not None
    assert known.is_closed
    assert known.value == optimum(problem)


def test_there_is_no_tree_over_a_program_whose_sums_overflow():
    _, made = searched(replace(overflowing(), constraints=(Constraint((2,), [[0]]),)))
    assert made is None


def test_an_infeasible_node(monkeypatch):
    """Its proof gets the time that the solver left, and is none for a certificate of the problem."""
    variables = tuple(Variable(f"x{v}", 2) for v in range(3))
    one = LinearConstraint((0, 1, 2), (np.array([0, -1]),) * 3, -1)
    functions = tuple(Function.from_array((v,), [0, 1 + v]) for v in range(3))
    sources = BoundSources(Problem(variables, functions, linear_constraints=(one,)))
    sources.improved(0.0)
    relaxation, records, seconds = sources.relaxation, [], []
    program = relaxation._program
    solve, contradiction = program.solve, program.contradiction
    monkeypatch.setattr(relaxation, "_record", lambda *record: records.append(record))
    monkeypatch.setattr(program, "solve", lambda *limits: time.sleep(0.05) or solve(*limits))
    monkeypatch.setattr(program, "contradiction", lambda left: seconds.append(left) or contradiction(left))
    assert relaxation.node(np.array([0, 1] * 3, dtype=np.uint8), 60.0).is_empty
    assert not records
    assert seconds[0] <= 60.0 - 0.05
