"""Random min-sum problems for tests of bounds, and what brute force says about the rows of any message of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oocbe.bounds.row_reduction import Reduction, Removal
from oocbe.elimination.row_pruning.row_bounds import BoundSource, RowBound
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from tests.helpers.small_problems import all_values

MOST_ASSIGNMENTS = 5000

LEFT_OUT = 0


def photographs(seed: int) -> Problem:
    """A problem of the SPOT5 kind: weights, conflicts between pairs and triples of values, perhaps a capacity."""
    random = np.random.default_rng(seed)
    sizes = _sizes(random, 5, 9, 4)
    count = len(sizes)
    weights = random.choice([1, 2, 7, 1000], size=count) * int(random.choice([1, 1, 3]))
    functions = [Function((v,), [[LEFT_OUT]], [weights[v]], 0) for v in range(count)]
    constraints = []
    for arity, number in ((2, int(random.integers(0, 3 * count))), (3, int(random.integers(0, 3 * count)))):
        for _ in range(number):
            scope = tuple(random.choice(count, size=arity, replace=False).tolist())
            values = [random.integers(1, sizes[v], size=3) for v in scope if sizes[v] > 1]
            if len(values) == arity:
                constraints.append(Constraint(scope, np.unique(np.array(values).T, axis=0)))
    linear = ()
    if random.integers(3) == 0:
        consumption = [np.concatenate([[0], random.integers(0, 5, size=sizes[v] - 1)]) for v in range(count)]
        linear = (LinearConstraint(tuple(range(count)), tuple(consumption), int(random.integers(1, 2 * count))),)
    return _finished(random, sizes, functions, constraints, linear, f"photographs {seed}")


def costly_photographs(seed: int) -> Problem:
    """The same with conflicts that cost something instead of being forbidden: a great deal, or not so much."""
    problem = photographs(seed)
    random = np.random.default_rng(seed + 1)
    costs = [random.choice([5, 50, 2500, 5000, 10**6], size=len(c.tuples)) for c in problem.constraints]
    functions = [Function(c.scope, c.tuples, k, 0) for c, k in zip(problem.constraints, costs, strict=True)]
    return replace(problem, functions=(*problem.functions, *functions), constraints=(), upper_bound=None)


def hidden_solution(seed: int) -> Problem:
    """Costs of single variables, and hard constraints over pairs and triples around an assignment that they permit."""
    random = np.random.default_rng(seed)
    sizes = _sizes(random, 4, 7, 4)
    solution = np.array([random.integers(size) for size in sizes])
    functions = [Function.from_array((v,), random.integers(0, 30, size)) for v, size in enumerate(sizes)]
    constraints = []
    for _ in range(int(random.integers(2, 3 * len(sizes)))):
        arity = int(random.integers(2, min(3, len(sizes)) + 1)) if len(sizes) > 2 else len(sizes)
        scope = tuple(random.choice(len(sizes), size=arity, replace=False).tolist())
        shape = tuple(sizes[v] for v in scope)
        is_listed = random.random(shape) < 0.5
        is_allowed = bool(random.integers(2))
        is_listed[tuple(solution[list(scope)])] = is_allowed
        constraints.append(Constraint(scope, np.argwhere(is_listed), is_allowed))
    return _finished(random, sizes, functions, constraints, (), f"hidden solution {seed}")


def anything(seed: int) -> Problem:
    """A problem with every kind of part: costs of any arity and sign, incomplete, defaults, hard, linear; or floats."""
    random = np.random.default_rng(seed)
    sizes = _sizes(random, 1, 6, 5)
    integral = random.integers(3) > 0
    lowest = int(random.choice([0, 0, -6]))
    functions, constraints, linear = [], [], []
    for _ in range(int(random.integers(1, 10))):
        arity = int(random.integers(0 if random.integers(6) == 0 else 1, min(4, len(sizes)) + 1))
        scope = tuple(random.choice(len(sizes), size=arity, replace=False).tolist())
        shape = tuple(sizes[v] for v in scope)
        kind = random.choice(["complete", "incomplete", "default", "forbidden", "allowed", "linear", "big"])
        cells = math.prod(shape)
        share = {"complete": 1.0, "forbidden": 0.2, "allowed": 0.8, "big": 0.3}.get(kind, 0.7)
        chosen = random.permutation(cells)[: math.ceil(share * cells)]
        tuples = np.column_stack(np.unravel_index(chosen, shape)) if scope else np.zeros((len(chosen), 0), dtype=int)
        numbers = random.integers(lowest, 12, size=len(tuples) + 1)
        costs = numbers if integral else numbers * random.choice([0.1, 0.3, 1e-3, 7.7])
        if kind in ("forbidden", "allowed"):
            constraints.append(Constraint(scope, tuples, kind == "allowed"))
        elif kind == "linear":
            coefficients = tuple(random.integers(-2, 6, size=n) for n in shape)
            linear.append(LinearConstraint(scope, coefficients, int(random.integers(0, 9))))
        elif kind == "big":
            functions.append(Function(scope, tuples, np.full(len(tuples), 60), 0))
        else:
            default = costs[-1].item() if kind == "default" else None
            functions.append(Function(scope, tuples, costs[:-1], default))
    return _finished(random, sizes, functions, constraints, linear, f"anything {seed}")


def _sizes(random, least, most, largest) -> list[int]:
    sizes = random.integers(1, largest + 1, size=random.integers(least, most + 1)).tolist()
    while math.prod(sizes) > MOST_ASSIGNMENTS:
        sizes.pop()
    return sizes


def _finished(random, sizes, functions, constraints, linear, name) -> Problem:
    problem = Problem(
        tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)),
        tuple(functions),
        tuple(constraints),
        tuple(linear),
        constant=int(random.choice([0, 5, -7])),
        name=name,
    )
    if random.integers(3):
        return problem
    total, feasible = all_values(problem)
    if not feasible.any():
        return problem
    # Somewhere from the optimum itself, where nothing counts, to where everything does.
    above = random.choice([0, 0.1, 0.5, 1.1]) * (total[feasible].max() - total[feasible].min())
    return replace(problem, upper_bound=(total[feasible].min() + above).item())


def optimum(problem: Problem) -> float:
    """Least value of the assignments that count; infinite where none does."""
    total, feasible = all_values(problem)
    return total[feasible].min().item() if feasible.any() else math.inf


def random_message(problem: Problem, seed: int) -> tuple[list[int], list[int]]:
    """Variables eliminated in some message's subtree, and its separator."""
    random = np.random.default_rng(seed)
    count = len(problem.sizes)
    eliminated = random.permutation(count)[: random.integers(0, count + 1)].tolist()
    separator: set[int] = set()
    for part in (*problem.functions, *problem.constraints, *problem.linear_constraints):
        if set(part.scope) & set(eliminated):
            separator |= set(part.scope) - set(eliminated)
    return eliminated, sorted(separator, key=lambda v: random.random())


def message_values(problem: Problem, eliminated: list[int]) -> np.ndarray:
    """h of every row, with an axis a variable (length 1 where it is eliminated); infinite where there is no row."""
    inside = set(eliminated)
    own = Problem(
        problem.variables,
        tuple(f for f in problem.functions if inside & set(f.scope)),
        tuple(c for c in problem.constraints if inside & set(c.scope)),
        tuple(c for c in problem.linear_constraints if inside & set(c.scope)),
    )
    total, feasible = all_values(own)
    values = np.where(feasible, total.astype(np.float64), np.inf)
    return values.min(axis=tuple(eliminated), keepdims=True) if eliminated else values


def check_message(problem: Problem, source: BoundSource, eliminated: list[int], separator: list[int]) -> float:
    """Assert that the bound holds for every row and completion that counts; returns the least slack."""
    bound: RowBound = source.for_message(sum(1 << v for v in eliminated), separator)
    assert set(bound.tables) <= set(separator)
    total, counts = all_values(problem)
    left = message_values(problem, eliminated) * bound.scale + float(bound.constant)
    for v, table in bound.tables.items():
        assert table.shape == (problem.sizes[v],)
        assert table.dtype == (np.int64 if problem.is_integral else np.float64)
        left = left + table.reshape([-1 if u == v else 1 for u in range(len(problem.sizes))])
    slack = (total.astype(np.float64) * bound.scale - left)[counts]
    if problem.is_integral:
        assert isinstance(bound.constant, int)
        # Small integers times a scale of at most 2**20 and multiples of 1: exact in float64.
        assert float(np.abs(left[np.isfinite(left)]).max(initial=0)) < 2**52
    assert (slack >= 0).all(), (problem.name, source.name, eliminated, separator, slack.min())
    return float(slack.min(initial=math.inf))


def kept_of(made: Reduction) -> list[np.ndarray]:
    """The values that a reduction leaves of each variable left, as they were numbered before."""
    kept = [np.arange(size) for size in made.sizes]
    for step in made.steps:
        if isinstance(step, Removal):
            kept[step.variable] = kept[step.variable][step.kept]
    return [kept[v] for v in made.variables]
