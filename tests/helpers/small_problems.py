"""Small problems of every kind for property tests, and what brute force says about them.

The oracle spreads every part over the grid of all assignments with NumPy; it shares no code with the engine. Problems
are drawn in two steps: hypothesis chooses the structure (sizes, scopes, kinds), which is what shrinks well, and a
seeded generator fills in tuples and values.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import strategies as st

from oocbe.elimination.buckets.assignment import backward_pass
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import decision
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.preparation.prepare import prepare
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import (
    COUNTING,
    LOG_SUM_EXP,
    MAX_PRODUCT,
    MAX_SUM,
    MIN_SUM,
    SUM_PRODUCT,
    Combination,
    Marginalisation,
)

ALL_SEMIRINGS = (MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP, COUNTING)

MOST_ASSIGNMENTS = 3000
"""Brute force over this many assignments takes about a millisecond."""

FLOATS = (0.1, 0.2, 0.3, 0.7, 1.1)
"""Sums of these in different orders differ in the last digit: ties that are none, and differences that are."""


def structures(semirings=ALL_SEMIRINGS, largest_domain=5):
    """Strategy of (semiring, sizes, scopes with kinds, seed, flags): everything a problem is made of."""

    @st.composite
    def draw_structure(draw):
        sizes = draw(st.lists(st.integers(1, largest_domain), min_size=0, max_size=10))
        while math.prod(sizes) > MOST_ASSIGNMENTS:
            sizes.pop()
        if draw(st.integers(0, 5)) == 0:
            sizes = [*sizes[:3], draw(st.sampled_from([64, 65, 70, 130]))]
            while math.prod(sizes) > 4 * MOST_ASSIGNMENTS:
                sizes.pop(0)
        kinds = st.sampled_from(["complete", "incomplete", "default", "forbidden", "allowed", "linear"])
        scopes = st.lists(st.integers(0, max(0, len(sizes) - 1)), max_size=4, unique=True)
        parts = draw(st.lists(st.tuples(kinds, scopes if sizes else st.just([])), max_size=9))
        return {
            "semiring": draw(st.sampled_from(semirings)),
            "sizes": sizes,
            "parts": parts,
            "integral": draw(st.booleans()),
            "lowest": draw(st.sampled_from([0, 0, 1, -5])),
            "bounded": draw(st.integers(0, 3)) == 0,
            "evidence": draw(st.integers(0, 3)) == 0,
            "seed": draw(st.integers(0, 1 << 30)),
        }

    return draw_structure()


def make_problem(structure) -> Problem:
    """The problem that a structure describes."""
    random = np.random.default_rng(structure["seed"])
    semiring, sizes, lowest = structure["semiring"], structure["sizes"], structure["lowest"]
    if semiring in (MAX_PRODUCT, SUM_PRODUCT, COUNTING):
        lowest = max(0, lowest)  # products are ordered only where nothing is negative

    def numbers(count):
        if structure["integral"]:
            return random.integers(lowest, 6, size=count)
        return random.choice(FLOATS, size=count) * random.choice([1, 1, -1] if lowest < 0 else [1, 3], size=count)

    functions, constraints, linears = [], [], []
    for kind, scope in structure["parts"]:
        shape = tuple(sizes[v] for v in scope)
        cells = math.prod(shape)
        share = {"complete": 1.0, "forbidden": 0.15, "allowed": 0.85}.get(kind, random.choice([0.5, 0.9]))
        chosen = random.permutation(cells)[: math.ceil(share * cells)]
        if kind == "forbidden" and cells == 1:
            chosen = chosen[: random.integers(2)]
        tuples = np.column_stack(np.unravel_index(chosen, shape)) if scope else np.zeros((len(chosen), 0), dtype=int)
        if kind in ("forbidden", "allowed"):
            constraints.append(Constraint(tuple(scope), tuples, kind == "allowed"))
        elif kind == "linear":
            coefficients = tuple(random.integers(-2, 5, size=n) for n in shape)
            linears.append(LinearConstraint(tuple(scope), coefficients, int(random.integers(0, 8))))
        else:
            default = numbers(1)[0].item() if kind == "default" else None
            functions.append(Function(tuple(scope), tuples, numbers(len(tuples)), default))
    # No sum of the floats is so close to it that rounding decides which is less.
    upper_bound = int(random.integers(1, 25)) + (0 if structure["integral"] else math.pi / 1000)
    problem = Problem(
        tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes)),
        tuple(functions),
        tuple(constraints),
        tuple(linears),
        constant=numbers(1)[0].item() or semiring.one,
        semiring=semiring,
        upper_bound=upper_bound if structure["bounded"] and semiring is MIN_SUM else None,
        name=f"random {structure['seed']}",
    )
    if structure["evidence"] and sizes:
        v = int(random.integers(len(sizes)))
        problem = problem.with_evidence({v: int(random.integers(sizes[v]))})
    return problem


def all_values(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Value and feasibility of every assignment: arrays with an axis a variable (one entry without variables)."""
    sizes = problem.sizes
    integral = problem.is_integral
    total = np.full(sizes, problem.constant, dtype=np.int64 if integral else np.float64)
    feasible = np.ones(sizes, dtype=bool)

    def spread(part, listed, unlisted):
        """What a part says about each assignment: ``listed`` a tuple, or ``unlisted``; an array that broadcasts."""
        shape = [sizes[v] for v in part.scope]
        places = np.ravel_multi_index(tuple(part.tuples.T), shape) if shape else np.zeros(len(part.tuples), dtype=int)
        cells = np.full(math.prod(shape), unlisted, dtype=np.result_type(listed, unlisted))
        cells[places] = listed
        cells = cells.reshape(shape).transpose(np.argsort(part.scope))
        return cells.reshape([sizes[v] if v in part.scope else 1 for v in range(len(sizes))])

    for c in problem.constraints:
        feasible &= spread(c, c.allowed, not c.allowed)
    for linear in problem.linear_constraints:
        used = np.zeros(sizes, dtype=int)
        for v, own in zip(linear.scope, linear.coefficients, strict=True):
            used += own.reshape([-1 if u == v else 1 for u in range(len(sizes))])
        feasible &= used <= linear.capacity
    for f in problem.functions:
        if f.default is None:
            feasible &= spread(f, True, False)
        values = spread(f, f.values, 0 if f.default is None else f.default).astype(total.dtype)
        total = total + values if problem.semiring.combination is Combination.ADD else total * values
    if problem.semiring.combination is Combination.MULTIPLY and not problem.semiring.counts:
        feasible &= total != 0
    if problem.upper_bound is not None:
        feasible &= total < problem.upper_bound
    return np.asarray(total), np.asarray(feasible)


def brute_force(problem: Problem):
    """The problem's value in its semiring; None where nothing is feasible (0 where assignments are counted)."""
    total, feasible = all_values(problem)
    values = total[feasible]
    if problem.semiring.counts:
        return len(values)
    if len(values) == 0:
        return None
    if problem.semiring.marginalisation is Marginalisation.LOG_SUM_EXP:
        return math.log(sum(math.exp(v) for v in values.tolist()))
    return problem.semiring.reduce(values).item()


def eliminate(
    problem: Problem,
    order,
    dominance=True,
    block_rows=None,
    memory=1 << 30,
    workdir=None,
    chunk_rows=1 << 20,
    bounds=None,
    tables="incomplete",
):
    """Value and assignment (None where the semiring selects none) by one forward and backward pass."""
    prepared = prepare(problem, problem.semiring, order)
    with MessageStore(memory, workdir, chunk_rows) as store:
        engine = BucketEngine("cpu", block_rows=block_rows)
        outcome = Forward(prepared, dominance, store, engine=engine, bounds=bounds, tables=tables).run()
        if outcome.value is None:
            return (0 if problem.semiring.counts else None), None
        assignment = backward_pass(prepared, outcome.buckets) if problem.semiring.selects else None
    return math.ldexp(outcome.value, outcome.exponent) if outcome.exponent else outcome.value, assignment


@contextmanager
def forms_by_coin(seed: int):
    """Within the block a coin is thrown whether a complete message is cheaper."""
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "is_cheaper_complete", lambda *numbers: bool(random.integers(2)))
        yield


def check(problem: Problem, value, assignment, expected) -> None:
    """Assert that a value is the expected one, exactly for integers, and that the assignment has it."""
    exact = problem.is_integral and not problem.semiring.needs_floats
    if expected is None or exact or problem.semiring.counts:
        assert value == expected
        assert not exact or value is None or isinstance(value, int)
    else:
        assert value is not None
        assert math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9)
    if expected is not None and problem.semiring.selects:
        reached = problem.evaluate(assignment)
        assert reached is not None
        assert reached == expected if exact else math.isclose(reached, expected, rel_tol=1e-9, abs_tol=1e-9)


def without_bound(problem: Problem) -> Problem:
    """The same problem, all values counting."""
    return replace(problem, upper_bound=None)


def star(count: int) -> Problem:
    """x0 equals every other variable, so two assignments are feasible; all 0 is best and costs 1 for each.

    With x0 eliminated first, the message has two rows, and nothing but x0 says so.
    """
    variables = tuple(Variable(f"x{v}", 2) for v in range(count))
    costs = tuple(Function.from_array((v,), [1, v]) for v in range(count))
    equal = tuple(Constraint((0, v), [[0, 0], [1, 1]], allowed=True) for v in range(1, count))
    return Problem(variables, costs, equal, name="star")


def clique(count: int, size: int, largest: int = 100, has_forbidden: bool = True) -> Problem:
    """Variables, each pair of which has costs below ``largest`` and, where asked for, a forbidden tuple.

    Sizes of messages follow from the number of variables and their domain size.
    """
    random = np.random.default_rng(0)
    pairs = list(combinations(range(count), 2))
    functions = tuple(Function.from_array(pair, random.integers(0, largest, (size, size))) for pair in pairs)
    forbidden = tuple(Constraint(pair, [random.integers(0, size, 2)]) for pair in pairs) if has_forbidden else ()
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions, forbidden, name="clique")
