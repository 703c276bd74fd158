"""Small random products, and what enumeration with fractions says of them: every number exact."""

from __future__ import annotations

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


class Weights:
    """Weights of all assignments, exact: an array of whole numbers with an axis a variable, and one denominator."""

    def __init__(self, whole, denominator):
        self.whole, self.denominator = whole, denominator

    def __getitem__(self, indices):
        return Fraction(self.whole[indices], self.denominator)

    def sum(self, axis=None):
        if axis is not None:
            return Weights(self.whole.sum(axis=axis), self.denominator)
        return Fraction(self.whole.sum(), self.denominator)

    def max(self):
        return Fraction(self.whole.max(), self.denominator)


def enumerated(problem, likelihoods=None):
    """Weight of each assignment.

    likelihoods : by variable index, numbers for each value that the weights are multiplied by.
    """
    sizes = problem.sizes
    # Whole numbers, and how many times all have been doubled: multiplying these needs no greatest common divisor.
    weights, doubled = np.ones(sizes, dtype=object), 0

    def multiply(scope, listed):
        nonlocal weights, doubled
        ratios = [float(value).as_integer_ratio() for value in listed]
        most = max(below.bit_length() for _, below in ratios)
        cells = np.empty(len(ratios), dtype=object)
        cells[:] = [above << most - below.bit_length() for above, below in ratios]
        cells = cells.reshape([sizes[v] for v in scope]).transpose(np.argsort(scope))
        weights = weights * cells.reshape([sizes[v] if v in scope else 1 for v in range(len(sizes))])
        doubled += most - 1

    def dense(scope, tuples, listed, others):
        shape = [sizes[v] for v in scope]
        cells = np.full(shape, float(others)).ravel()
        cells[np.ravel_multi_index(tuple(tuples.T), shape) if scope else slice(len(tuples))] = listed
        return cells.tolist()

    multiply((), [problem.constant])
    for f in problem.functions:
        multiply(f.scope, dense(f.scope, f.tuples, f.values, f.default or 0))
    for c in problem.constraints:
        multiply(c.scope, dense(c.scope, c.tuples, c.allowed, not c.allowed))
    for v, given in (likelihoods or {}).items():
        multiply((v,), given)
    return Weights(np.asarray(weights, dtype=object).reshape(sizes), 1 << doubled)


def summed(weights, variables):
    """Weights added up over all variables but some, given by index; axes in their order, float64, normalised."""
    others = tuple(axis for axis in range(weights.whole.ndim) if axis not in variables)
    found, total = weights.whole.sum(axis=others), weights.whole.sum()
    present = sorted(variables)
    found = np.asarray(found).transpose([present.index(v) for v in variables])
    return np.array([x / total for x in found.ravel()]).reshape(found.shape)
