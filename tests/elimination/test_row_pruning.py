"""Rows pruned by bounds: the same optimum with any valid bound and any upper bound above it, nothing at or below it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.elimination.row_pruning.row_bounds import RowBound
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from tests.helpers.bound_sources import ExactSource
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, check, eliminate, make_problem, structures, without_bound


def check_bounds(structure, above, with_tables=True, **settings_of_run):
    problem = without_bound(make_problem(structure))
    expected = brute_force(problem)
    random = np.random.default_rng(structure["seed"])
    upper_bound = (0 if expected is None else expected) + above
    order = random.permutation(len(problem.variables)).tolist()
    for dominance in (True, False):
        source = ExactSource(problem, structure["seed"], upper_bound, with_tables)
        limited = problem.below(upper_bound)
        value, assignment = eliminate(limited, order, dominance, bounds=source, **settings_of_run)
        if expected is None or above <= 0:
            # A sum that equals the upper bound but for rounding is told apart by the caller, as is a mere constant.
            inexact = not problem.is_integral or not problem.variables
            assert value is None or (inexact and value >= upper_bound - 1e-5)
        else:
            check(problem, value, assignment, expected)


@settings(max_examples=examples(70))
@given(structures((MIN_SUM,)), st.sampled_from([-3, 0, 1, 4, 100]), st.booleans())
def test_any_upper_bound(structure, above, with_tables):
    check_bounds(structure, above, with_tables)


@pytest.mark.slow
@settings(max_examples=5000)
@given(structures((MIN_SUM,)), st.sampled_from([-3, 0, 1, 4, 100]), st.booleans())
def test_any_upper_bound_at_length(structure, above, with_tables):
    check_bounds(structure, above, with_tables)


@settings(max_examples=examples(100))
@given(structures((MIN_SUM,)), st.sampled_from([0, 1, 4]), st.integers(1, 7))
def test_tiny_blocks_on_several_threads(structure, above, block_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOCBE_THREADS", "3")
        check_bounds(structure, above, block_rows=block_rows)


@settings(max_examples=examples(12))
@given(structures((MIN_SUM,)), st.sampled_from([0, 1]), st.integers(1, 7))
def test_through_stored_tables(structure, above, chunk_rows):
    with tempfile.TemporaryDirectory() as folder:
        check_bounds(structure, above, workdir=Path(folder), chunk_rows=chunk_rows)
        assert list(Path(folder).iterdir()) == []


@settings(max_examples=examples(80))
@given(structures((MIN_SUM,)), st.sampled_from([0, 1, 4]), st.sampled_from([10**9, 10**14]))
def test_values_of_64_bits(structure, above, factor):
    """Where fixed point would leave 64 bits nothing is pruned, and the value says that it is no better."""
    small = without_bound(make_problem({**structure, "integral": True}))
    functions = tuple(
        Function(f.scope, f.tuples, f.values * factor, None if f.default is None else f.default * factor)
        for f in small.functions
    )
    problem = replace(small, functions=functions, constant=small.constant * factor)
    expected = brute_force(problem)
    upper_bound = (0 if expected is None else expected) + above * factor
    source = ExactSource(problem, structure["seed"], upper_bound)
    order = np.random.default_rng(structure["seed"]).permutation(len(problem.variables)).tolist()
    value, assignment = eliminate(problem.below(upper_bound), order, bounds=source)
    if expected is None or above == 0:
        assert value is None or value >= upper_bound
    else:
        check(problem, value, assignment, expected)


def test_a_bound_that_would_leave_64_bits_prunes_nothing():
    problem = Problem((Variable("a", 2),), (Function.from_array((0,), [1 << 50, 5]),)).below(1 << 51)
    assert RowBound(1 << 4, 0).with_threshold(problem) is not None
    assert RowBound(1 << 20, 0).with_threshold(problem) is None
