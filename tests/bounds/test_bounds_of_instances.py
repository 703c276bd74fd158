"""Bounds of real instances against their known optima, and against rows solved independently."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

import oocbe
from oocbe.bounds.estimators import minimum_terms
from oocbe.bounds.forbidden import forbidden_sets
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from tests.helpers.bound_sources import bound_sources

CLOSED = [
    *(f"spot5/{name}.spot" for name in (8, 54, 29, 404, 503, 505, 42, 408, 1502)),
    "wcsp/spot5b/408b.wcsp",
    "wcsp/spot5b/42b.wcsp",
    "wcsp/iscas89/s386.wcsp",
]
OPEN = [*(f"wcsp/random/{number}.wcsp" for number in range(10)), "wcsp/celar6/CELAR6-SUB1-24.wcsp"]


@pytest.mark.parametrize("name", CLOSED)
def test_root_bound_is_the_optimum(data, name):
    minimum = json.loads(data("optima.json").read_text())[name]["minimum"]
    assert bound_sources(oocbe.read(data(name)), 20.0)[0].root == minimum


@pytest.mark.parametrize("name", OPEN)
def test_root_bounds_are_below_the_optimum(data, name):
    minimum = json.loads(data("optima.json").read_text())[name]["minimum"]
    for upper_bound in (None, minimum + 1):
        for source in bound_sources(oocbe.read(data(name)), 2.0, upper_bound=upper_bound):
            assert source.root <= minimum


@pytest.mark.parametrize("name", ["spot5/503.spot", "spot5/505.spot"])
def test_an_independent_solver_finds_no_assignment_beyond_a_row(data, name):
    from oocbe.bounds.relaxation import Relaxation

    problem = oocbe.read(data(name))
    forbidden, fixed_point = forbidden_sets(problem), FixedPoint.of(problem)
    relaxation = Relaxation(problem, forbidden, fixed_point, minimum_terms(problem, fixed_point), 0)
    relaxation.tighten(20.0, None)
    first = forbidden.first
    rows = [row for row in relaxation.rows if row.kind == "local"]
    assert rows
    for row in rows:
        inside = set(np.unique(forbidden.owner[row.literals]).tolist())
        literals = [literal for v in inside for literal in range(first[v], first[v + 1])]
        place = {literal: number for number, literal in enumerate(literals)}
        held = [(dict.fromkeys(range(first[v], first[v + 1]), 1), 1) for v in inside]
        held += [
            ({first[v] + a: 1 for v, a in zip(c.scope, values, strict=True)}, len(values) - 1)
            for c in problem.constraints
            if set(c.scope) <= inside
            for values in c.tuples.tolist()
        ]
        matrix = np.zeros((len(held), len(literals)))
        for number, (terms, _) in enumerate(held):
            for literal, coefficient in terms.items():
                matrix[number, place[literal]] = coefficient
        objective = np.zeros(len(literals))
        for literal, coefficient in zip(row.literals.tolist(), row.coefficients.tolist(), strict=True):
            objective[place[literal]] = -coefficient
        limits = LinearConstraint(matrix, ub=[limit for _, limit in held])
        found = milp(objective, constraints=limits, integrality=np.ones(len(literals)), bounds=Bounds(0, 1))
        assert found.success
        assert round(-found.fun) <= row.right_hand_side
