"""Bounds by brute force: as tight as an additive bound can be, with arbitrary tables; and the problems they need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oocbe.bounds.bounds import BoundSources
from oocbe.elimination.row_pruning.row_bounds import BoundSource, RowBound
from oocbe.model.problem import Problem
from tests.helpers.small_problems import all_values


class ExactSource:
    """For random tables the largest valid constant, less a random slack, from all assignments of a small problem."""

    name = "exact"
    why = "every assignment was looked at"
    assignment = None

    def __init__(self, problem: Problem, seed: int, upper_bound: float, with_tables: bool = True) -> None:
        self._problem = problem
        self._with_tables = with_tables
        self._random = np.random.default_rng(seed)
        total, feasible = all_values(problem)
        self._counts = feasible & (total < upper_bound)
        self._total = total
        self._parts = []
        for f in problem.functions:
            alone = replace(problem, functions=(f,), constraints=(), linear_constraints=(), constant=0)
            alone = replace(alone, upper_bound=None)
            if f.scope:
                self._parts.append((f.scope, all_values(alone)[0]))
        self.root = total[self._counts].min().item() if self._counts.any() else np.inf

    def for_message(self, eliminated: int, separator) -> RowBound:
        problem, random = self._problem, self._random
        integral = problem.is_integral
        scale = int(random.choice([1, 3, 1 << 20])) if integral else 1
        rest = self._total * scale
        for scope, values in self._parts:
            if any(eliminated >> v & 1 for v in scope):
                rest = rest - values * scale
        tables = {}
        grid = np.indices(problem.sizes)
        for v in separator:
            if self._with_tables and random.integers(4):
                if integral:
                    tables[v] = random.integers(-5 * scale, 5 * scale, size=problem.sizes[v])
                else:
                    tables[v] = random.uniform(-5, 5, size=problem.sizes[v])
                rest = rest - tables[v][grid[v]]
        prices = {}
        for number, c in enumerate(problem.linear_constraints):
            if self._with_tables and random.integers(3):
                # What is paid stays within what 64 bits, and doubles beside costs, are good for.
                span = sum(high - low for low, high in zip(*c.ends, strict=True))
                most = min(3 * scale, 2**40 // max(1, span) + 1) if integral else min(3, 1000 / max(1, span))
                prices[number] = int(random.integers(0, most)) if integral else float(random.uniform(0, most))
                for v, own in zip(c.scope, c.coefficients, strict=True):
                    if eliminated >> v & 1:
                        rest = rest - prices[number] * (own - own.min())[grid[v]]
        if not self._counts.any():
            return RowBound(scale, 10**9 if integral else 1e9, tables, prices)
        least = rest[self._counts].min()
        slack = random.choice([0, 0, 2 * scale])
        constant = int(least) - int(slack) if integral else float(least) - float(slack) - 1e-6
        return RowBound(scale, constant, tables, prices)

    def fixed_values(self, upper_bound: float) -> list[tuple[int, int]]:
        better = self._counts & (self._total < upper_bound)
        return [
            (v, value)
            for v, size in enumerate(self._problem.sizes)
            for value in range(size)
            if not np.take(better, value, axis=v).any() and self._random.integers(2)
        ]


def bound_sources(
    problem: Problem, seconds: float, seed: int = 0, upper_bound: float | None = None, improve: bool = False
) -> list[BoundSource]:
    """Sources of bounds after one step of ``seconds``."""
    return BoundSources(problem, seed, upper_bound, improve).improved(seconds)
