"""Leaves whose rows carry what they consume, where tables are many, lopsided, or long: quick, right, and within limits.

A bucket of unrelated parts has a table for each of them, and one leaf with all their combinations.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import oocbe
from oocbe.elimination.buckets import assignment
from oocbe.elimination.engine.factors import FactorPool
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.errors import TimeLimitError
from oocbe.kernels.cpu.buckets import consumption_leaf
from oocbe.kernels.cpu.buckets.consumption_leaf import join_consumptions
from oocbe.kernels.cpu.buckets.consumption_runs import DEEPEST, GIVEN_UP, LISTS, NO_ROOM
from oocbe.kernels.cpu.buckets.join_arrays import LeafRows, TableArrays, WalkLists
from oocbe.model.parts import Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MIN_SUM
from oocbe.runtime.deadline import Deadline
from oocbe.tables.layout import Layout


def photographs(count: int, capacities: int, seed: int = 3, heaviest: int = 5000) -> Problem:
    """Photographs in no conflict with one another: what leaving each out costs, and capacities that all share."""
    random = np.random.default_rng(seed)
    weights = random.integers(1, 1000, count).tolist()
    functions = [Function((v,), [[0]], [weight], 0) for v, weight in enumerate(weights)]
    use = [[np.append(0, random.integers(1, heaviest, 3)) for _ in range(count)] for _ in range(capacities)]
    scope = tuple(range(count))
    linear = tuple(LinearConstraint(scope, tuple(own), heaviest * count // 4) for own in use)
    return Problem(tuple(Variable(f"p{v}", 4) for v in scope), tuple(functions), (), linear)


def optimum(problem: Problem) -> int:
    values = [problem.evaluate(a) for a in itertools.product(*(range(n) for n in problem.sizes))]
    return min(value for value in values if value is not None)


def test_short_tables_beside_a_long_result():
    """Took 153 s with 11 photographs, and did not look at the limit: every row so far went through the whole result.

    With 12 it would take longer than the suite lets a test run.
    """
    with_all_rows = oocbe.solve(photographs(12, 1), dominance=False, time_limit=2.0, backend="cpu")
    if with_all_rows.status == "optimal":
        assert with_all_rows.value == oocbe.solve(photographs(12, 1), backend="cpu").value


def test_choices_of_many_tables_in_the_backward_pass():
    """Did not end in eleven minutes: all that two capacities can tell apart was kept, table by table."""
    result = oocbe.solve(photographs(17, 2), time_limit=2.0, backend="cpu")
    assert result.status in ("optimal", "limit")
    assert result.assignment is not None
    assert photographs(17, 2).evaluate(result.assignment) == result.value


@pytest.mark.parametrize("dominance", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_like_brute_force(seed, dominance):
    problem = photographs(6, 1 + seed % 2, seed, heaviest=[3, 40, 5000][seed % 3])
    result = oocbe.solve(problem, dominance=dominance, bounds="none", backend="cpu", order_seconds=0)
    assert (result.status, result.value) == ("optimal", optimum(problem))
    assert problem.evaluate(result.assignment) == result.value


def leaf(lengths: list[int], marginalisation: int, keeps_staircase: bool, bits: int = 30, domain: int = 1):
    """Arguments of a leaf: random tables of one variable, and what each of their rows consumes."""
    random = np.random.default_rng(len(lengths))
    amount_bits = bits - 6
    # Few different consumptions, so that some are equal, where there are several values.
    keys = [random.choice(domain << (amount_bits if domain == 1 else 8), n, replace=False) for n in lengths]
    if domain > 1:
        keys = [(drawn >> 8) << bits | drawn & 255 for drawn in keys]
    keys = [np.sort(drawn).astype(np.uint64) for drawn in keys]
    values = [np.sort(random.integers(0, 1 << 20, n))[::-1].copy() for n in lengths]
    rows = np.array(lengths, dtype=np.int64)
    base = np.append(0, np.cumsum(rows)[:-1])
    none = np.zeros(0, dtype=np.int64)
    tables = TableArrays(np.concatenate(keys), np.concatenate(values), base, base, np.ones(len(rows), np.int64))
    here = LeafRows(np.zeros(len(rows), np.int64), rows, none, none, 0, 0, 0)
    functions = FactorPool((), np.zeros(0, dtype=np.int64))
    builder = ProgramBuilder((1,), FactorPool((), np.zeros(1, dtype=np.uint8)), functions, MIN_SUM)
    program = builder.build(BucketScope(0, 1, (), Layout((), ())), [], [], [], 0)
    guards, limit = 1 << (bits - 1), (1 << (bits - 1)) - 1
    carried = program.consumption._replace(bits=bits, limit=limit | guards, guards=guards, group_shift=bits)
    carried = carried._replace(keeps_staircase=keeps_staircase, own=np.arange(domain, dtype=np.int64))
    semiring = program.semiring._replace(marginalisation=marginalisation)
    of_domain = program.leaf._replace(size=domain, mask=np.int64(domain - 1))
    return tables, of_domain, semiring, carried, here, keys, values


def run(arguments, row_limit=1 << 62, stop=None):
    """Rows of a leaf, which list has them, and the lists, larger each time that there is no room."""
    stop = np.zeros(1, np.int64) if stop is None else stop
    places = np.zeros((2, len(arguments[0].limbs)), np.int64)
    needed = 32
    while True:
        shape = (LISTS, 2 * needed)
        lists = WalkLists(np.empty(shape, np.int64), np.empty(shape, np.int64), np.zeros(DEEPEST + 1, np.int64))
        separator = np.zeros(1, np.uint64)
        filled, detail = join_consumptions(
            *arguments[:4], separator, arguments[4], lists, places, np.zeros((2, 1), np.uint64), None, row_limit, stop
        )
        if filled != NO_ROOM:
            return filled, detail, lists.amounts, lists.worths
        assert detail > shape[1]
        needed = detail


@pytest.mark.parametrize("keeps_staircase", [True, False])
@pytest.mark.parametrize("domain", [1, 4])
@pytest.mark.parametrize(
    "lengths",
    [
        *([1], [200], [5, 1], [1, 5], [7, 30], [30, 7], [40, 40], [3, 400], [400, 3]),
        *([1, 1, 1], [4, 3, 5, 2], [1, 300, 2], [60, 2, 50], [70, 70, 2]),
    ],
    ids=str,
)
def test_a_leaf_has_the_combinations_of_its_tables(lengths, domain, keeps_staircase):
    arguments = leaf(lengths, 0, keeps_staircase, domain=domain)
    bits = 30
    keys, values = arguments[5:]
    best: dict[int, int] = {}
    for rows in itertools.product(*(range(n) for n in lengths)):
        taken = [int(k[row]) for k, row in zip(keys, rows, strict=True)]
        if len({key >> bits for key in taken}) > 1:
            continue  # not the same value of the variable
        amount = (taken[0] >> bits) + sum(key & ((1 << bits) - 1) for key in taken)
        worth = sum(int(v[row]) for v, row in zip(values, rows, strict=True))
        best[amount] = min(worth, best.get(amount, worth))
    expected = sorted(best.items())
    if keeps_staircase:
        least = itertools.accumulate((worth for _, worth in expected), min, initial=1 << 60)
        expected = [row for row, before in zip(expected, least, strict=False) if row[1] < before]
    filled, chosen, amounts, worths = run(arguments)
    assert list(zip(amounts[chosen, :filled].tolist(), worths[chosen, :filled].tolist(), strict=True)) == expected


def test_a_leaf_gives_up_where_its_message_may_not_have_so_many_rows():
    rows = consumption_leaf.LEAST_LEAF_ROWS
    arguments = leaf([2000, 2000], 0, False)
    assert run(arguments)[0] > rows
    assert run(arguments, row_limit=10)[0] == GIVEN_UP


def test_a_leaf_gives_up_when_it_is_told_to():
    arguments = leaf([20_000, 20_000], 0, False)
    stop = np.zeros(1, dtype=np.int64)
    run(leaf([2, 2], 0, False))  # compiled
    timer = threading.Timer(0.2, lambda: stop.__setitem__(0, 1))
    timer.start()
    assert run(arguments, stop=stop)[0] == GIVEN_UP


def test_the_backward_pass_looks_at_the_deadline(monkeypatch):
    passes = []
    backward_pass = assignment.backward_pass

    def late(prepared, buckets, recomputation, deadline):
        monkeypatch.setattr(Deadline, "passed", property(lambda self: True))
        with pytest.raises(TimeLimitError):
            backward_pass(prepared, buckets, recomputation, deadline)
        passes.append(deadline)
        raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr("oocbe.api.solving.strategies.backward_pass", late)
    fixed = {"time_limit": 60.0, "backend": "cpu", "order_seconds": 0, "bounds": "none"}
    with pytest.raises(TimeLimitError):  # as no incumbent is searched for
        oocbe.solve(photographs(6, 1), incumbent_seconds=0, **fixed)
    assert passes
