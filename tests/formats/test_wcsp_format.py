"""Reading and writing toulbar2's format: meaning, round trips, and every kind of damage with its line."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oocbe.errors import FormatError, UnsupportedError, ValueRangeError
from oocbe.formats import global_costs, read, write
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
from tests.helpers.effort import examples

GOOD = """small 3 3 4 100
2 3 2
2 0 1 5 2
0 0 7
1 2 100
1 1 100 2
0 4
1 0
0 9 0
3 0 1 2 0 1
1 1 1 250
"""


def read_text(folder: Path, content: str) -> Problem:
    path = folder / "p.wcsp"
    path.write_text(content)
    return read(path)


def solve_with_toulbar2(path: Path) -> float | None:
    """Optimum by an independent reader and solver; None where there is none below the file's upper bound."""
    pytoulbar2 = pytest.importorskip("pytoulbar2")
    network = pytoulbar2.CFN()
    try:
        network.Read(str(path))
        solution = network.Solve()
    except network.Contradiction:
        return None
    return None if solution is None else solution[1]


def test_meaning(tmp_path):
    problem = read_text(tmp_path, GOOD)
    assert problem.name == "small"
    assert problem.sizes == (2, 3, 2)
    assert problem.constant == 9
    assert problem.upper_bound == 100
    assert problem.is_integral
    assert problem.evaluate((0, 0, 0)) == 7 + 4 + 9
    assert problem.evaluate((1, 0, 1)) == 5 + 4 + 9
    assert problem.evaluate((0, 1, 1)) == 5 + 0 + 9
    assert problem.evaluate((1, 1, 1)) is None  # a tuple above the upper bound
    assert problem.evaluate((0, 2, 0)) is None  # a default at the upper bound
    assert problem.evaluate((1, 2, 0)) is None  # a tuple at the upper bound


def test_costs_add_up_to_less_than_the_upper_bound(tmp_path):
    problem = read_text(tmp_path, "p 2 2 2 10\n2 2\n1 0 0 1\n1 6\n1 1 0 1\n1 4\n")
    assert problem.evaluate((1, 0)) == 6
    assert problem.evaluate((1, 1)) is None
    assert problem.constraints == ()


def test_hard_parts_become_constraints(tmp_path):
    problem = read_text(tmp_path, "p 2 2 2 10\n2 2\n2 0 1 0 1\n1 1 10\n1 0 10 1\n1 0\n")
    assert problem.functions == ()
    assert [c.allowed for c in problem.constraints] == [False, True]


def test_negative_costs(tmp_path):
    problem = read_text(tmp_path, "p 1 2 2 10\n2\n1 0 -1 1\n1 -5\n0 -3 0\n")
    assert problem.evaluate((0,)) == -4
    assert problem.evaluate((1,)) == -8


def test_shared_functions(tmp_path):
    content = "different 3 3 3 1\n3 3 3\n-2 0 1 0 3\n0 0 1\n1 1 1\n2 2 1\n2 0 2 0 -1\n2 1 2 0 -1\n"
    problem = read_text(tmp_path, content)
    feasible = [a for a in itertools.product(range(3), repeat=3) if problem.evaluate(a) is not None]
    assert feasible == list(itertools.permutations(range(3)))


def test_a_reference_names_a_default_that_its_shared_function_has_not(tmp_path):
    """Over more than three variables it has its own; one that costs nothing there has no number."""
    problem = read_text(tmp_path, "s 3 2 2 100\n2 2 2\n-2 0 1 1 2 0 0 5 1 1 7\n2 1 2 0 -1\n")
    costs = [[5, 1], [1, 7]]
    for x, y, z in itertools.product(range(2), repeat=3):
        assert problem.evaluate((x, y, z)) == costs[x][y] + costs[y][z]
    four = "s 4 2 4 100\n2 2 2 2\n-4 0 1 2 3 0 0\n-4 0 1 2 3 1 1 0 0 0 0 5\n4 3 2 1 0 8 -1\n0 2 1 3\n"
    problem = read_text(tmp_path, four)
    for row in itertools.product(range(2), repeat=4):
        assert problem.evaluate(row) == 3 + (1 + 8 if any(row) else 5 + 5)
    with pytest.raises(FormatError, match="line 5: found a shared function that refers to another one"):
        read_text(tmp_path, four.replace("\n4 3 2", "\n-4 3 2"))


def test_numbers_glued_to_what_follows(tmp_path):
    """As a C++ stream reads them; the name is a word, whatever it looks like."""
    problem = read_text(tmp_path, "12-3 3 2 3 100\n3 2 2\n3 0 1 2-1salldiff var 5\n1 0+1 1 2+4\n2 0 1-1>= 0 2\n")
    for x, y, z in itertools.product(range(3), range(2), range(2)):
        most = max(map([x, y, z].count, range(3)))
        cost = (5 * (most - 1)) + (4 if x == 2 else 1) + max(0, y - x)
        assert problem.evaluate((x, y, z)) == cost
    assert problem.name == "12-3"


def test_the_last_cost_of_a_tuple_counts_and_domains_are_as_large_as_they_say(tmp_path):
    problem = read_text(tmp_path, "p 1 1 1 100\n3\n1 0 7 3 2 5 0 3 2 1\n")
    assert [problem.evaluate((x,)) for x in range(3)] == [3, 7, 1]


def test_knapsack(tmp_path):
    problem = read_text(tmp_path, "p 2 3 1 9\n3 2\n2 0 1 -1 knapsack 3 2 1\n")
    for a in itertools.product(range(3), range(2)):
        assert (problem.evaluate(a) is not None) == (a == (1, 1))  # a weight counts at value 1 only, as in toulbar2


def test_knapsackp(tmp_path):
    problem = read_text(tmp_path, "p 2 3 1 9\n3 2\n2 1 0 -1 knapsackp -2 1 1 -3 2 2 4 0 -1\n")
    weight = {0: [-1, 0, 4], 1: [0, -3]}
    for a in itertools.product(range(3), range(2)):
        assert (problem.evaluate(a) is not None) == (weight[0][a[0]] + weight[1][a[1]] >= -2)


def test_weights_of_a_value_add_up_and_those_of_values_that_are_none_do_not_count(tmp_path):
    problem = read_text(tmp_path, "p 2 3 1 9\n3 2\n2 1 0 -1 knapsackp 3 3 1 1 1 2 7 9 1 2 1\n")
    for a in itertools.product(range(3), range(2)):
        assert (problem.evaluate(a) is not None) == (3 * a[1] + (a[0] == 2) >= 3)


@pytest.mark.parametrize("keyword", ["slinear 1 1 1 0 1", "wcsp 1 2 0 0", "cfnconstraint 0 1 2 0 0"])
def test_other_keywords_are_named(tmp_path, keyword):
    name = keyword.split()[0]
    with pytest.raises(UnsupportedError, match=rf"p\.wcsp, line 3: the global cost function '{name}'"):
        read_text(tmp_path, f"p 2 3 1 9\n3 2\n2 0 1 -1 {keyword}\n")


def test_interval_domains_are_named(tmp_path):
    with pytest.raises(UnsupportedError, match=r"line 2: variable 1 has an interval domain"):
        read_text(tmp_path, "p 2 3 0 9\n3 -2\n")


@pytest.mark.parametrize("seed", range(examples(160)))
def test_round_trip(tmp_path, random_problem, evaluate_all, seed):
    problem = random_problem(seed)
    if seed % 3 == 0:
        problem = replace(problem, upper_bound=25.5)
    path = tmp_path / "p.wcsp"
    write(problem, path)
    again = read(path)
    expected = evaluate_all(problem)
    assert evaluate_all(again) == expected
    write(again, tmp_path / "q.wcsp")
    assert evaluate_all(read(tmp_path / "q.wcsp")) == expected
    best = min((v for v in expected if v is not None), default=None)
    assert solve_with_toulbar2(path) == best


def test_what_cannot_be_written(tmp_path, random_problem):
    path = tmp_path / "p.wcsp"
    one = (Variable("x", 2),)
    with pytest.raises(UnsupportedError, match="not a max-product problem"):
        write(random_problem(1, semiring=MAX_PRODUCT), path)
    with pytest.raises(UnsupportedError, match="integers"):
        write(Problem(one, (Function.from_array((0,), [0.5, 1.0]),)), path)
    with pytest.raises(UnsupportedError, match="function 0 has the cost -2"):
        write(Problem(one, (Function.from_array((0,), [-2, 1]),)), path)
    with pytest.raises(ValueRangeError, match="64 bits"):
        write(Problem(one, (Function.from_array((0,), [2**62, 0]), Function.from_array((0,), [2**62, 0]))), path)
    assert not path.exists()


DAMAGE = {
    "header only": ("small 3", 1, "expected the largest domain size"),
    "truncated domains": ("small 3 3 4 100\n2 3", 2, "expected a domain size for each variable (3 numbers, 2 left)"),
    "truncated tuples": (GOOD[: GOOD.index("1 2 100")], 4, "expected a tuple's value or cost (6 numbers, 3 left)"),
    "truncated functions": (GOOD[: GOOD.index("0 9 0")], 8, "the file ends after 2 cost functions, expected 4"),
    "a function too few declared": (GOOD.replace("3 3 4 100", "3 3 3 100"), 10, "after the 3 cost functions"),
    "a tuple too many declared": (GOOD.replace("1 1 1 250", "1 1 250"), 11, "expected a tuple's value or cost"),
    "empty domain": (GOOD.replace("2 3 2\n", "2 0 2\n"), 2, "found 0, expected the domain size of variable 1"),
    "value out of domain": (GOOD.replace("1 2 100", "1 3 100"), 5, "found the value 3, expected one between 0 and 2"),
    "negative value": (GOOD.replace("1 2 100", "1 -2 100"), 5, "found the value -2, expected one between 0 and 2"),
    "variable out of range": (GOOD.replace("2 0 1 5", "2 0 3 5"), 3, "found variable 3, expected one between 0 and 2"),
    "negative variable": (GOOD.replace("2 0 1 5", "2 0 -1 5"), 3, "found variable -1, expected one between 0 and 2"),
    "variable twice in a scope": (GOOD.replace("2 0 1 5", "2 1 1 5"), 3, "twice in scope (1, 1), expected different"),
    "arity above the variables": (
        GOOD.replace("3 0 1 2 0", "4 0 1 2 0"),
        10,
        "found 4, expected a cost function's arity",
    ),
    "negative arity too large": (
        GOOD.replace("3 0 1 2 0", "-4 0 1 2 0"),
        10,
        "found -4, expected a cost function's arity",
    ),
    "not a number": (
        GOOD.replace("0 0 7", "0 zero 7"),
        4,
        "found 'zero', expected a tuple's value or cost, an integer",
    ),
    "a fraction": (GOOD.replace("0 0 7", "0 0 7.5"), 4, "found '7.5', expected a tuple's value or cost, an integer"),
    "NaN": (GOOD.replace("0 0 7", "0 0 nan"), 4, "found 'nan', expected a tuple's value or cost, an integer"),
    "more than 64 bits": (GOOD.replace("0 0 7", f"0 0 {2**63}"), 4, "value or cost, an integer of 64 bits"),
    "constant with tuples": (GOOD.replace("0 9 0", "0 9 2"), 9, "found 2, expected 0 or 1 as the number of tuples"),
    "unknown shared function": (GOOD.replace("3 0 1 2 0 1", "3 0 1 2 0 -1"), 10, "reference to shared function 1"),
    "shared, other domains": ("p 2 3 2 9\n2 3\n-1 0 0 1\n1 1\n1 1 0 -1", 5, "found domain sizes (3,), expected those"),
    "a number and a sign": (GOOD.replace("1 1 1 250", "1 1 1 2-"), 11, "found '2-'"),
    "knapsack truncated": ("p 2 3 1 9\n2 2\n2 0 1 -1 knapsack 3 1", 3, "expected a weight"),
    "knapsackp, negative value": (
        "p 1 2 1 9\n2\n1 0 -1 knapsackp 3 1 -2 5",
        3,
        "found -2, expected a value, at",
    ),
    "knapsack overflow": (f"p 1 3 1 9\n3\n1 0 -1 knapsack 3 {-(2**63)}", 3, "outside 64 bits, expected a smaller one"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage(tmp_path, kind):
    content, line, expected = DAMAGE[kind]
    assert content != GOOD
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read_text(tmp_path, content)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{tmp_path / 'p.wcsp'}, line {line}: ")


def test_tuple_twice_where_codes_do_not_fit_64_bits(tmp_path):
    scope = " ".join(map(str, range(64)))
    zeros, ones = " ".join(["0"] * 64), " ".join(["1"] * 64)
    content = f"p 64 2 1 9\n{' '.join(['2'] * 64)}\n64 {scope} 0 3\n{zeros} 1\n{ones} 2\n{zeros} 3\n"
    assert read_text(tmp_path, content).evaluate([0] * 64) == 3
    problem = read_text(tmp_path, content.replace(f"{zeros} 3", f"{zeros[:-1]}1 3"))
    assert problem.evaluate(np.ones(64, dtype=int).tolist()) == 2


@pytest.mark.parametrize("weight", [-(2**63), 2**63 - 1])
def test_weights_at_the_end_of_64_bits(tmp_path, weight):
    """The value 0 of a variable weighs nothing whatever its weight; two weights of a value may not leave 64 bits."""
    problem = read_text(tmp_path, f"p 1 1 1 10\n1\n1 0 -1 knapsack 0 {weight}\n")
    assert [c.tolist() for c in problem.linear_constraints[0].coefficients] == [[0]]
    text = f"p 1 3 1 10\n3\n1 0 -1 knapsackp 0 2 1 {weight} 1 {weight}\n"
    with pytest.raises(FormatError, match="line 3: found a weight of variable 0 outside 64 bits"):
        read_text(tmp_path, text)


@pytest.mark.parametrize("keyword", ["knapsack", "knapsackp"])
def test_a_small_file_with_large_domains_makes_no_arrays_of_any_size(tmp_path, keyword):
    count, size = 500, 1 << 24
    scope, weights = " ".join(map(str, range(count))), "1 " if keyword == "knapsack" else "0 "
    text = f"p {count} {size} 1 10\n" + f"{size} " * count + f"\n{count} {scope} -1 {keyword} 0 " + weights * count
    with pytest.raises(UnsupportedError, match=r"line 3: .* is over variables with 8,388,608,000 values; at most"):
        read_text(tmp_path, text)


def test_many_linear_constraints_over_large_domains_are_refused_together(tmp_path, monkeypatch):
    monkeypatch.setattr(global_costs, "MOST_COEFFICIENTS", 1000)
    text = "p 1 600 9 10\n600\n" + "1 0 -1 knapsackp 0 0\n" * 9
    with pytest.raises(UnsupportedError, match=r"line 4: up to here, .* have 1,200 values; at most"):
        read_text(tmp_path, text)
