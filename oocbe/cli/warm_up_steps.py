"""Small problems whose solution compiles the loops of all commands; run as a module, one step of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np

import oocbe
from oocbe.runtime.compilation import compilation

Step = tuple[str, bool, Callable[[], object]]
"""Name; whether a first solve needs its loops; and what runs."""


def run_step(name: str) -> tuple[int, float]:
    """Run a step in this process. Returns the number of loops that it compiled, and its seconds of compilation."""
    (run,) = (run for step, _, run in steps() if step == name)
    run()
    return compilation.loops, compilation.seconds


def steps() -> list[Step]:
    """Names of steps, and small problems that need their loops; integers and floats have separate loops."""
    from oocbe.junction_trees.query_elimination.answer import QueryAnswer
    from oocbe.stress.networks import grid_network, random_network

    random = np.random.default_rng(1)
    count, values = 10, 3
    variables = tuple(oocbe.Variable(f"x{i}", values) for i in range(count))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if (a + b) % 3]

    def costs(scale: float | None) -> oocbe.Problem:
        tables = [random.integers(0, 40, (values, values)) for _ in pairs]
        scaled = tables if scale is None else [table * scale for table in tables]
        functions = [oocbe.Function.from_array(pair, table) for pair, table in zip(pairs, scaled, strict=True)]
        forbidden = oocbe.Constraint((0, 1, 2), np.array([[0, 0, 0], [1, 1, 1]]), allowed=False)
        return oocbe.Problem(variables, tuple(functions), (forbidden,), name="warm-up")

    whole, real = costs(None), costs(0.37)
    weights = tuple(np.array([0, 2, 3]) for _ in range(count))
    packed = oocbe.Problem(
        variables,
        whole.functions,
        whole.constraints,
        (oocbe.LinearConstraint(tuple(range(count)), weights, 12, "capacity"),),
        name="warm-up",
    )
    network = oocbe.Problem(
        variables,
        tuple(oocbe.Function.from_array(pair, random.random((values, values))) for pair in pairs[:12]),
        semiring=oocbe.SUM_PRODUCT,
        name="warm-up",
    )
    wide = oocbe.Problem(
        tuple(oocbe.Variable(f"x{i}", 8) for i in range(6)),
        tuple(oocbe.Function.from_array(pair, random.random((8, 8))) for pair in combinations(range(6), 2)),
        semiring=oocbe.SUM_PRODUCT,
        name="warm-up",
    )
    chain = tuple(oocbe.Constraint((i, i + 1), np.array([[0, 0]])) for i in range(59))
    long = oocbe.Problem(tuple(oocbe.Variable(f"x{i}", 3) for i in range(60)), constraints=chain, name="warm-up")
    rows = np.argwhere(np.ones((50, 4), dtype=bool))
    one = oocbe.Table.from_rows({"a": 50, "b": 4}, rows, np.arange(len(rows)))
    other = oocbe.Table.from_rows({"b": 4, "c": 50}, rows[:, ::-1], np.arange(len(rows)))

    def searches(scale: float | None) -> None:
        """Methods that small problems do not use: beam search, and elimination of presolved problems."""
        sparse, dense = random_network(40, 6, 0.1, 0.3), random_network(16, 12, 0.7, 0.3)
        for problem in (sparse, dense, grid_network(9, 4, 0.0), photographs()):
            functions = problem.functions if scale is None else [scaled(f, scale) for f in problem.functions]
            oocbe.solve(replace(problem, functions=tuple(functions)))

    def scaled(f: oocbe.Function, scale: float) -> oocbe.Function:
        return replace(
            f,
            values=np.multiply(f.values, scale, dtype=np.float64),
            default=None if f.default is None else f.default * scale,
        )

    def solves(problem: oocbe.Problem, *bounds: str) -> None:
        for bound in bounds:
            oocbe.solve(problem, incumbent_seconds=0.2, bound_seconds=1, bounds=bound)

    def elimination() -> None:
        oocbe.solve(schedule(), bounds="none", order="min-degree", order_seconds=0)

    def complete_tables() -> None:
        for problem in (whole, real, packed):
            oocbe.solve(problem, tables="complete")

    def operators() -> None:
        oocbe.maximise(oocbe.join_sum(one, other), "a")
        oocbe.join_maximise(one, other, "b")

    def questions() -> None:
        for task in (oocbe.count, oocbe.count_optimal, oocbe.k_best, oocbe.min_marginals):
            task(whole)
        oocbe.count(packed)
        capacity = oocbe.LinearConstraint(tuple(range(60)), (np.array([0, 1, 2]),) * 60, 60, "capacity")
        for problem in (long, replace(long, linear_constraints=(capacity,))):
            oocbe.count(problem)  # beyond 63 bits

    def probabilities() -> None:
        oocbe.marginals(network)
        oocbe.log_partition(network)
        oocbe.most_probable_explanation(network)
        oocbe.JunctionTree(network).batch([{"x0": 1}, {"x1": 2}])
        QueryAnswer.of(wide).posteriors(range(6), "cpu")  # as a network whose tree is large is answered

    every = ("none", "lp", "local-polytope", "auto")
    # Processes take the steps in this order: long ones first, and no two neighbours that begin with the same loops.
    return [
        ("elimination", True, elimination),
        ("a first solve", True, lambda: oocbe.solve(schedule())),
        ("operators", False, operators),
        ("searches of integers", False, lambda: searches(None)),
        ("counts, the k best, min-marginals", False, questions),
        ("solves of reals", False, lambda: solves(real, *every)),
        ("probabilities", False, probabilities),
        ("complete tables", False, complete_tables),
        ("solves of integers", False, lambda: solves(whole, *every)),
        ("searches of reals", False, lambda: searches(0.37)),
        ("capacities", False, lambda: solves(packed, *every)),
        ("plans and propagation", False, lambda: (oocbe.plan(whole), oocbe.propagate(packed))),
        ("bounds by mini-buckets", False, lambda: (oocbe.bound(whole, 3), oocbe.bound(whole, 3, cost_shifting=True))),
    ]


def photographs(count: int = 90, conflicts: int = 700) -> oocbe.Problem:
    """A day of a satellite: photographs by one of three cameras or none, and conflicts between them."""
    random = np.random.default_rng(1)
    variables = tuple(oocbe.Variable(f"x{i}", 4) for i in range(count))
    nothing = np.zeros((1, 1), dtype=np.int64)
    weights = [oocbe.Function((v,), nothing, random.integers(1, 20, 1), 0) for v in range(count)]
    pairs = random.integers(0, count, (conflicts, 2))
    triples = random.integers(0, count, (conflicts // 4, 3))
    constraints = [
        oocbe.Constraint(tuple(map(int, scope)), random.integers(1, 4, (1, len(scope))))
        for scopes in (pairs, triples)
        for scope in scopes
        if len(set(scope.tolist())) == len(scope)
    ]
    return oocbe.Problem(variables, tuple(weights), tuple(constraints), name="warm-up")


def schedule(count: int = 120, ahead: int = 10) -> oocbe.Problem:
    """A chain of photographs with conflicts between near ones: as narrow as the example, and solved by elimination."""
    random = np.random.default_rng(1)
    variables = tuple(oocbe.Variable(f"x{i}", int(random.integers(2, 5))) for i in range(count))
    nothing = np.zeros((1, 1), dtype=np.int64)
    weights = [oocbe.Function((v,), nothing, random.integers(1, 2000, 1), 0) for v in range(count)]
    pairs = [(v, w) for v in range(count) for w in range(v + 1, min(count, v + ahead)) if random.random() < 0.5]
    triples = [(v, v + 1, v + 3) for v in range(count - 3) if random.random() < 0.4]
    conflicts = [
        oocbe.Constraint(scope, np.array([[random.integers(1, variables[v].size) for v in scope]]), allowed=False)
        for scope in (*pairs, *triples)
    ]
    return oocbe.Problem(variables, tuple(weights), tuple(conflicts), name="warm-up")


if __name__ == "__main__":
    print(json.dumps(run_step(sys.argv[1])))
