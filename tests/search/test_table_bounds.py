"""Thresholds below which a race with mini-bucket tables runs, and what ends it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from oocbe.bounds.bounds import constant_source
from oocbe.elimination.reformulation import Stack
from oocbe.errors import DiskError, ResourceError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.deadline import Deadline
from oocbe.search.scope import Scope
from oocbe.search.table_bounds import TableBounds

LARGE = 2**60
"""A constant beyond what floats can tell from its neighbours."""


def race(lower, threshold, run):
    """A race with tables that was given up once before."""
    problem = Problem(
        (Variable("x", 2), Variable("y", 2)), (Function.from_array((0, 1), [[5, 1], [2, 7]]),), constant=LARGE
    )
    tables = TableBounds(SolveOptions(), Deadline(None))
    tables._part = 0.5
    scope = Scope(Stack(problem), constant_source(problem))
    return tables.race(scope, SimpleNamespace(order=(0, 1)), lower, threshold, 1000, run, 1.0)


@pytest.mark.parametrize("ahead", [1, 2, 3, 100])
def test_no_threshold_is_above_that_of_the_scope(ahead):
    """As a float it came out above for sums beyond 2**53, and what was left out of the scope was proven away."""
    limits = []
    lower = LARGE + 201
    winner, reached = race(lower, lower + ahead, lambda _, pruner, cap: limits.append(pruner.upper_bound))
    assert (winner, reached) == (None, lower + ahead)
    assert limits == [lower + -(-ahead // 2), lower + -(-ahead // 4)]
    assert all(isinstance(limit, int) for limit in limits)


def test_memory_that_ran_out_is_passed_over_but_a_full_disk_is_not():
    def failing(error):
        def run(*_):
            raise error("full")

        return run

    assert race(LARGE, LARGE + 10, failing(ResourceError))[0] is None
    with pytest.raises(DiskError):
        race(LARGE, LARGE + 10, failing(DiskError))
