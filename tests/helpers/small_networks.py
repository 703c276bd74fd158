"""Small random products, and what enumeration with fractions says of them: every number exact."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT


def random_product(random, variables=6, zeros=0.3):
    """Factors over up to three variables of up to three values; some entries 0, some absent, some left to a default."""
    sizes = [int(n) for n in random.integers(1, 4, variables)]
    functions = []
    for _ in range(random.integers(1, 8)):
        scope = tuple(int(v) for v in random.choice(variables, int(random.integers(0, 4)), replace=False))
        dense = random.random([sizes[v] for v in scope])
        dense = np.where(random.random(dense.shape) < zeros, 0.0, dense)
        made = Function.from_array(scope, dense, infeasible=0 if random.random() < 0.5 else None)
        if scope and random.random() < 0.2:
            keep = random.random(len(made.values)) < 0.5
            made = Function(scope, made.tuples[keep], made.values[keep], float(random.random()))
        functions.append(made)
    constraints = []
    if random.random() < 0.3:
        scope = tuple(int(v) for v in random.choice(variables, 2, replace=False))
        tuples = np.array([[int(random.integers(sizes[v])) for v in scope]])
        constraints.append(Constraint(scope, tuples, allowed=False))
    names = tuple(Variable(f"v{i}", size, tuple("abc"[:size])) for i, size in enumerate(sizes))
    return Problem(names, tuple(functions), tuple(constraints), constant=0.5, semiring=SUM_PRODUCT, name="small")


def random_network(random, variables=7, zeros=0.3):
    """Conditional probabilities, exactly normalised: numerators of a power of two."""
    sizes = [int(n) for n in random.integers(2, 4, variables)]
    functions = []
    for v in range(variables):
        parents = tuple(int(p) for p in random.permutation(v)[: int(random.integers(0, 3))])
        rows = int(np.prod([sizes[p] for p in parents], dtype=np.int64))
        table = np.zeros((rows, sizes[v]))
        for row in table:
            cuts = np.sort(random.integers(0, 65, sizes[v] - 1))
            row[:] = np.diff(np.concatenate([[0], cuts, [64]])) / 64
            if random.random() < zeros:
                row[:] = np.eye(sizes[v])[random.integers(sizes[v])]
        functions.append(Function.from_array((*parents, v), table.reshape([sizes[p] for p in parents] + [sizes[v]])))
    names = tuple(Variable(f"v{i}", size) for i, size in enumerate(sizes))
    return Problem(names, tuple(functions), constant=1, semiring=SUM_PRODUCT, name="small network")


def enumerated(problem, likelihoods=None):
    """Weight of each assignment, of Python fractions, in an array with an axis a variable.

    likelihoods : by variable index, numbers for each value that the weights are multiplied by.
    """
    weights = np.full(problem.sizes, Fraction(0), dtype=object)
    tables = [
        (f, {tuple(t): v for t, v in zip(f.tuples.tolist(), f.values.tolist(), strict=True)}) for f in problem.functions
    ]
    for assignment in itertools.product(*map(range, problem.sizes)):
        if not all(c.permits(assignment) for c in problem.constraints):
            continue
        weight = Fraction(problem.constant)
        for f, rows in tables:
            weight *= Fraction(rows.get(tuple(assignment[v] for v in f.scope), f.default or 0))
        for v, given in (likelihoods or {}).items():
            weight *= Fraction(float(given[assignment[v]]))
        weights[assignment] = weight
    return weights


def summed(weights, variables):
    """Weights added up over all variables but some, given by index; axes in their order, float64, normalised."""
    others = tuple(axis for axis in range(weights.ndim) if axis not in variables)
    found = weights.sum(axis=others) if others else weights
    total = weights.sum()
    present = sorted(variables)
    found = np.asarray(found).transpose([present.index(v) for v in variables])
    return np.array([[float(x / total)] for x in found.ravel()]).reshape(found.shape)
