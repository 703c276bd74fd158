"""Conversion of a problem to the arrays of local search: strided lookups, safe values, slots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.incumbent_lookups import lay_out
from oocbe.bounds.kernels.cpu.search_state import Factors, Model
from oocbe.elimination.preparation.listed_factors import ListedFactor, harmful_slots, starts_of
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Marginalisation
from oocbe.runtime.deadline import check_deadline


@dataclass(frozen=True)
class SearchModel:
    """A problem in the form of the local search.

    Attributes
    ----------
    model, soft, hard : for the kernels of :mod:`oocbe.bounds.kernels.cpu.search_state`; all costs are minimised.
    constant : added to every value.
    is_infeasible : whether a factor without variables, or the unary constraints of a variable, forbid everything.
    """

    model: Model
    soft: Factors
    hard: Factors
    constant: float
    is_infeasible: bool


@dataclass
class _Collector:
    sizes: tuple[int, ...]
    sign: float
    start: NDArray[np.int64]
    unary: NDArray[np.float64]
    permitted: NDArray[np.uint8]
    constant: float = 0.0
    is_infeasible: bool = False
    soft: list[ListedFactor] = field(default_factory=list)
    hard: list[ListedFactor] = field(default_factory=list)

    def slots(self, v: int) -> slice:
        return slice(int(self.start[v]), int(self.start[v + 1]))

    def add_constraint(self, c: Constraint) -> None:
        if len(c.scope) > 1:
            listed, unlisted = (0.0, 1.0) if c.allowed else (1.0, 0.0)
            self.hard.append(ListedFactor(c.scope, c.tuples, np.full(len(c.tuples), listed), unlisted))
        elif c.scope:
            self.permitted[self.slots(c.scope[0])] &= c.to_array(self.sizes).astype(np.uint8)
        else:
            self.is_infeasible |= not c.permits(())

    def add_function(self, f: Function) -> None:
        if not f.scope:
            value = f.value_at(())
            self.is_infeasible |= value is None
            self.constant += self.sign * float(value or 0)
            return
        if len(f.scope) == 1:
            dense, feasible = f.to_array(self.sizes)
            self.unary[self.slots(f.scope[0])] += self.sign * np.where(feasible, dense, 0)
            self.permitted[self.slots(f.scope[0])] &= feasible.astype(np.uint8)
            return
        values = self.sign * f.values.astype(np.float64)
        default = self.sign * float(f.default or 0)
        if (len(values) and (values != default).any()) or default:
            self.soft.append(ListedFactor(f.scope, f.tuples, values, default, f.default is not None))
        if f.default is None:
            self.hard.append(ListedFactor(f.scope, f.tuples, np.zeros(len(values)), 1.0))

    def forbid_from(self, bound: float) -> None:
        """Turn values into hard constraints if they lift the sum to the bound with all other parts at their minima."""
        least = [
            min(float(p.values.min(initial=math.inf)), p.default if p.has_default else math.inf) for p in self.soft
        ]
        slack = bound - self.constant - sum(x for x in least if x < math.inf)
        for v in range(len(self.sizes)):
            costs = np.where(self.permitted[self.slots(v)] != 0, self.unary[self.slots(v)], np.inf)
            slack -= float(costs.min(initial=np.inf)) if np.isfinite(costs).any() else 0.0
        for part, low in zip(self.soft, least, strict=True):
            excluded = part.values - low >= slack
            default_excluded = part.has_default and part.default - low >= slack
            if slack > 0 and (excluded.any() or default_excluded):
                self.hard.append(
                    ListedFactor(part.scope, part.tuples, excluded.astype(np.float64), float(default_excluded))
                )
                part.values = np.where(excluded, low, part.values)
                part.default = low if default_excluded else part.default

    def promote(self, frugal: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Turn soft parts into hard ones if giving way is always cheaper; returns each variable's safe value, or -1.

        A value is safe if no hard part forbids a tuple with it, and no other value of its variable consumes less of any
        linear constraint: the slots ``frugal``. A variable gives way only at the cost of its unary values, so it must
        be in no soft part. If every penalty of a soft part exceeds the maximum cost of giving way for some member, no
        optimal assignment pays a penalty.
        """
        candidates = [p for p in self.soft if p.default == 0 and len(p.values) and (p.values >= 0).all()]
        are_candidates = set(map(id, candidates))  # constant-time lookup: there may be thousands of parts
        rest = [p for p in self.soft if id(p) not in are_candidates]
        while True:
            check_deadline()
            safe, loss = self._safe_values([*self.hard, *candidates], rest, frugal)
            kept: list[ListedFactor] = []
            demoted: list[ListedFactor] = []
            for part in candidates:
                penalty = part.values[part.values > 0].min(initial=math.inf)
                pays = any(safe[v] >= 0 and loss[v] < penalty for v in part.scope)
                (kept if pays else demoted).append(part)
            if not demoted:
                break
            candidates, rest = kept, rest + demoted
        self.hard += [ListedFactor(p.scope, p.tuples, (p.values > 0).astype(np.float64), 0.0) for p in candidates]
        self.soft = rest
        return safe

    def _safe_values(
        self, hard: Sequence[ListedFactor], soft: Sequence[ListedFactor], frugal: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The safe value of each variable, or -1, and the maximum cost of a move to it."""
        harmful = harmful_slots(hard, self.start, self.sizes)
        in_soft = {v for part in soft for v in part.scope}
        safe = np.full(len(self.sizes), -1, dtype=np.int64)
        loss = np.zeros(len(self.sizes))
        for v in range(len(self.sizes)):
            check_deadline()
            own = self.slots(v)
            permitted = self.permitted[own] != 0
            values = np.flatnonzero(~harmful[own] & permitted & frugal[own])
            if len(values) and v not in in_soft:
                safe[v] = values[self.unary[own][values].argmin()]
                loss[v] = self.unary[own][safe[v]] - self.unary[own][permitted].min()
        return safe, loss


def search_model(problem: Problem) -> SearchModel:
    """Lay a problem out for local search; its semiring must add values and select the least or greatest sum."""
    sizes = problem.sizes
    start = starts_of(sizes)
    sign = -1.0 if problem.semiring.marginalisation is Marginalisation.MAX else 1.0
    slots = int(start[-1])
    parts = _Collector(sizes, sign, start, np.zeros(slots), np.ones(slots, dtype=np.uint8), sign * problem.constant)
    for c in problem.constraints:
        check_deadline()
        parts.add_constraint(c)
    for f in problem.functions:
        check_deadline()
        parts.add_function(f)
    for linear in problem.linear_constraints:
        check_deadline()
        parts.is_infeasible |= linear.is_impossible
    if problem.upper_bound is not None and sign > 0:
        parts.forbid_from(float(problem.upper_bound))
    linears = _lay_out_linear(problem)
    frugal = np.ones(slots, dtype=bool)
    for v in range(len(sizes)):
        check_deadline()
        own = parts.slots(v)
        for use in range(int(linears[0][v]), int(linears[0][v + 1])):
            consumption = linears[3][linears[2][use] : linears[2][use] + sizes[v]]
            frugal[own] &= consumption <= consumption[parts.permitted[own] != 0].min(initial=np.inf)
    safe = parts.promote(frugal)
    soft, hard = lay_out(sizes, parts.soft), lay_out(sizes, parts.hard)
    choices = [int(parts.permitted[parts.slots(v)].sum()) for v in range(len(sizes))]
    for v in range(len(sizes)):
        if all(first[v] == first[v + 1] for first in (soft.use_start, hard.use_start, linears[0])):
            costs = np.where(parts.permitted[parts.slots(v)] != 0, parts.unary[parts.slots(v)], np.inf)
            parts.permitted[parts.slots(v)] = np.arange(sizes[v]) == costs.argmin()
            safe[v] = costs.argmin()
    capacity = np.array([float(c.capacity) for c in problem.linear_constraints])
    model = Model(start, parts.unary, parts.permitted, safe, *linears, capacity)
    return SearchModel(model, soft, hard, parts.constant, parts.is_infeasible or min(choices, default=1) == 0)


def _lay_out_linear(
    problem: Problem,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """CSR over variables: linear constraints, and the start of a variable's coefficients."""
    uses: list[list[tuple[int, int]]] = [[] for _ in problem.sizes]
    coefficients: list[NDArray[np.float64]] = []
    end = 0
    for number, linear in enumerate(problem.linear_constraints):
        for v, own in zip(linear.scope, linear.coefficients, strict=True):
            uses[v].append((number, end))
            coefficients.append(own.astype(np.float64))
            end += len(own)
    return (
        starts_of([len(u) for u in uses]),
        np.array([number for own in uses for number, _ in own], dtype=np.int64),
        np.array([at for own in uses for _, at in own], dtype=np.int64),
        np.concatenate([*coefficients, np.zeros(0)]),
    )
