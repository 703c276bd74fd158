"""Reading and writing UAI networks and evidence: meaning, round trips, and every kind of damage with its line."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, ModelError, UnsupportedError, ValueRangeError
from oocbe.formats import read, write
from oocbe.model.parts import Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import COUNTING, MAX_PRODUCT, MAX_SUM, SUM_PRODUCT
from tests.helpers.effort import examples

GOOD = """MARKOV
3
2 3 2
2
2 1 0
3 0 1 2

6
 0.5 0 1e-3
 1 2.25 0.125

12
1 2 3 4 5 6
7 8 9 10 11 12
"""


def read_text(folder: Path, content: str, evidence: str | None = None) -> Problem:
    path = folder / "p.uai"
    path.write_text(content)
    if evidence is None:
        return read(path)
    (folder / "p.uai.evid").write_text(evidence)
    return read(path, evidence=folder / "p.uai.evid")


def test_meaning(tmp_path):
    problem = read_text(tmp_path, GOOD)
    assert problem.semiring is MAX_PRODUCT
    assert problem.constant == 1
    assert problem.sizes == (2, 3, 2)
    assert problem.evaluate((0, 0, 0)) == 0.5 * 1
    assert problem.evaluate((1, 0, 0)) is None  # a zero of the first table, whose scope is (1, 0)
    assert problem.evaluate((0, 1, 1)) == 1e-3 * 4
    assert problem.evaluate((1, 2, 1)) == 0.125 * 12
    assert problem.evaluate((1, 1, 0)) == 1 * 9


def test_tables_with_the_same_text_share_their_rows_where_the_sizes_agree(tmp_path):
    tables = "\n6\n0 1 2 3 4 5\n6 0 1 2 3 4 5\n6\n0 1 2 3 4 5\n"
    problem = read_text(tmp_path, f"MARKOV 3 2 3 3\n3\n2 0 1\n2 1 0\n2 0 2\n{tables}")
    first, turned, same = problem.functions
    assert same.tuples is first.tuples and same.values is first.values
    assert first.value_at((1, 0, 2)) == 3
    assert turned.value_at((1, 0, 2)) == 1
    assert same.value_at((1, 0, 2)) == 5


def test_bayes_and_a_table_of_zeros(tmp_path):
    problem = read_text(tmp_path, "BAYES 1 2 1 1 0 2 0.0 0e5")
    assert problem.evaluate((0,)) is None
    assert problem.evaluate((1,)) is None


@pytest.mark.parametrize("content", ["2 0 1 2 0", "2\n0 1\n2 0\n", "1\n2 0 1 2 0", "1 2\n0 1 2 0"])
def test_evidence(tmp_path, content):
    problem = read_text(tmp_path, GOOD, content)
    assert problem.evaluate((1, 1, 0)) == 9
    assert problem.evaluate((1, 1, 1)) is None
    assert problem.evaluate((0, 1, 0)) is None


@pytest.mark.parametrize("content", ["0", "1 0", "1\n0\n"])
def test_no_evidence(tmp_path, content):
    assert read_text(tmp_path, GOOD, content).constraints == ()


def test_one_observed_variable(tmp_path):
    problem = read_text(tmp_path, GOOD, "1 2 1")
    assert problem.evaluate((0, 0, 0)) is None
    assert problem.evaluate((0, 0, 1)) == 1.0


def test_evidence_as_a_mapping(tmp_path):
    path = tmp_path / "p.uai"
    path.write_text(GOOD)
    assert read(path, evidence={0: 1}).evaluate((0, 0, 0)) is None
    with pytest.raises(ModelError):
        read(path, evidence={0: 2})


def test_evidence_is_not_looked_for(tmp_path):
    (tmp_path / "p.uai.evid").write_text("1 0 1")
    assert read_text(tmp_path, GOOD).evaluate((0, 0, 0)) == 0.5


EVIDENCE_DAMAGE = {
    "empty": ("", 1, "expected the number of observed variables"),
    "truncated": ("2 0 1\n2", 2, "the file ends, expected a value of variable 2"),
    "too much": ("1 0 1\n2 1", 2, "found '2' after the 1 observed variables"),
    "unknown variable": ("1 3 0", 1, "found 3, expected an observed variable, between 0 and 2"),
    "value out of domain": ("1 1\n3", 2, "found 3, expected a value of variable 1, between 0 and 2"),
    "variable twice": ("2 1 0\n1 0", 2, "variable 1 a second time, expected each observed variable once"),
    "negative count": ("-1", 1, "found -1, expected the number of observed variables, at least 0"),
    "not a number": ("1 0 yes", 1, "found 'yes', expected a value of variable 0, an integer"),
}


@pytest.mark.parametrize("kind", EVIDENCE_DAMAGE)
def test_evidence_damage(tmp_path, kind):
    content, line, expected = EVIDENCE_DAMAGE[kind]
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read_text(tmp_path, GOOD, content)
    assert caught.value.line == line
    assert caught.value.path == str(tmp_path / "p.uai.evid")


def test_several_samples_of_evidence(tmp_path):
    with pytest.raises(UnsupportedError, match="2 samples"):
        read_text(tmp_path, GOOD, "2\n1 0 1\n2 0 0 1 1")


@pytest.mark.parametrize("semiring", [MAX_PRODUCT, SUM_PRODUCT])
@pytest.mark.parametrize("seed", range(examples(60)))
def test_round_trip(tmp_path, random_problem, evaluate_all, semiring, seed):
    problem = random_problem(seed, semiring=semiring)
    write(problem, tmp_path / "p.uai.xz")
    values = evaluate_all(read(tmp_path / "p.uai.xz"))
    expected = evaluate_all(problem)
    assert [v is None for v in values] == [v is None for v in expected]
    # The constant is multiplied in another place, so the last digits may differ.
    assert all(math.isclose(a, b, rel_tol=1e-14) for a, b in zip(values, expected, strict=True) if a is not None)
    write(read(tmp_path / "p.uai.xz"), tmp_path / "q.uai")
    assert evaluate_all(read(tmp_path / "q.uai")) == values


def test_values_are_written_exactly(tmp_path):
    values = np.array([0.1, 1 / 3, 5e-324, 1.7976931348623157e308])
    write(Problem((Variable("x", 4),), (Function.from_array((0,), values),), constant=1, semiring=MAX_PRODUCT),
          tmp_path / "p.uai")  # fmt: skip
    assert read(tmp_path / "p.uai").functions[0].values.tolist() == values.tolist()


def test_what_cannot_be_written(tmp_path, random_problem):
    path = tmp_path / "p.uai"
    product = Problem((Variable("x", 2),), constant=1, semiring=MAX_PRODUCT)
    with pytest.raises(UnsupportedError, match="min-sum problem"):
        write(random_problem(1), path)
    with pytest.raises(UnsupportedError, match="counting problem"):
        write(replace(product, semiring=COUNTING), path)
    with pytest.raises(UnsupportedError, match="negative"):
        write(replace(product, functions=(Function.from_array((0,), [-0.5, 1.0]),)), path)
    with pytest.raises(UnsupportedError, match="upper bound"):
        write(replace(product, upper_bound=3), path)
    with pytest.raises(ValueRangeError, match=r"2\^53"):
        write(replace(product, functions=(Function.from_array((0,), [2**53 + 1, 1]),)), path)
    many = tuple(Variable(f"x{i}", 2) for i in range(40))
    capacity = LinearConstraint(tuple(range(40)), tuple(np.array([0, 1]) for _ in many), 7)
    with pytest.raises(UnsupportedError, match=r"1,099,511,627,776 entries"):
        write(Problem(many, linear_constraints=(capacity,), constant=1, semiring=MAX_PRODUCT), path)
    assert not path.exists()


DAMAGE = {
    "unknown kind": (GOOD.replace("MARKOV", "MRF"), 1, "found 'MRF', expected MARKOV or BAYES"),
    "truncated preamble": ("MARKOV\n3\n2 3", 3, "expected a domain size for each variable (3 numbers, 2 left)"),
    "truncated scopes": (GOOD[: GOOD.index(" 0 1 2\n")], 6, "the file ends, expected a variable of factor 1"),
    "no tables": (GOOD[: GOOD.index("\n6")], 6, "the file ends, expected the number of entries of factor 0"),
    "truncated table": (GOOD[: GOOD.index("10 11")], 14, "expected an entry of factor 1 (12 numbers, 9 left)"),
    "wrong number of entries": (GOOD.replace("\n12\n", "\n11\n"), 12, "found 11 entries, expected 12 for factor 1"),
    "a factor too few declared": (GOOD.replace("2\n2 1 0", "1\n2 1 0"), 6, "found 3 entries, expected 6"),
    "something after the end": (GOOD + "13\n", 15, "found '13' after the 2 tables, expected the end of the file"),
    "empty domain": (GOOD.replace("2 3 2", "2 0 2"), 3, "found 0, expected the domain size of variable 1, at least 1"),
    "negative domain": (GOOD.replace("2 3 2", "2 -3 2"), 3, "found -3, expected the domain size of variable 1"),
    "variable out of range": (GOOD.replace("2 1 0", "2 1 3"), 5, "found 3, expected a variable of factor 0, between 0"),
    "variable twice in a scope": (GOOD.replace("2 1 0", "2 1 1"), 5, "twice in scope (1, 1) of factor 0, expected"),
    "negative arity": (GOOD.replace("2 1 0", "-2 1 0"), 5, "found -2, expected the number of variables of factor 0"),
    "not a number": (GOOD.replace("2.25", "2,25"), 10, "found '2,25', expected an entry of factor 0, a finite number"),
    "NaN": (GOOD.replace("2.25", "NaN"), 10, "found 'NaN', expected an entry of factor 0, a finite number"),
    "infinity": (GOOD.replace("2.25", "inf"), 10, "found 'inf', expected an entry of factor 0, a finite number"),
    "overflow": (GOOD.replace("2.25", "1e999"), 10, "found '1e999', expected an entry of factor 0, a finite number"),
    "underflow": (GOOD.replace("2.25", "1e-999"), 10, "found '1e-999', expected an entry of factor 0, zero or large"),
    "underscore": (GOOD.replace("2.25", "2_2"), 10, "found '2_2', expected an entry of factor 0, a finite number"),
    "negative entry": (GOOD.replace("2.25", "-2"), 10, "at least 0: a file of logarithms is one of the format lg"),
    "a fraction of variables": (GOOD.replace("\n3\n", "\n3.0\n"), 2, "found '3.0', expected the number of variables"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage(tmp_path, kind):
    content, line, expected = DAMAGE[kind]
    assert content != GOOD
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read_text(tmp_path, content)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{tmp_path / 'p.uai'}, line {line}: ")


def test_comments_are_left_out_and_lines_still_counted(tmp_path):
    """pyAgrum writes a variable's name behind each scope."""
    text = GOOD.replace("2 1 0\n", "2 1 0   # b\n").replace("3 0 1 2\n", "3 0 1 2  # c 7\n# done\n")
    assert read_text(tmp_path, text).evaluate((1, 2, 0)) == read_text(tmp_path, GOOD).evaluate((1, 2, 0))
    with pytest.raises(FormatError, match="line 11: found 'x'"):
        read_text(tmp_path, text.replace("2.25", "x"))


def test_evidence_may_have_comments(tmp_path):
    commented = read_text(tmp_path, GOOD, "# observed: 1\n1  # one variable\n0 1 # the first\n")
    assert commented.evaluate((0, 0, 0)) is None
    assert commented.evaluate((1, 2, 0)) == read_text(tmp_path, GOOD).evaluate((1, 2, 0))


def test_what_pyagrum_writes_is_read(tmp_path):
    """One parent a variable: of several it turns the order round, which is not that of the competitions."""
    gum = pytest.importorskip("pyagrum")
    network = gum.fastBN("a{x|y}->b{p|q|r}->c[3]")
    gum.saveBN(network, str(tmp_path / "n.uai"))
    found = oocbe.marginals(tmp_path / "n.uai").marginals
    for name in "abc":
        wanted = gum.getPosterior(network, target=name, evs={}).toarray()
        assert found[network.idFromName(name)] == pytest.approx(wanted, abs=1e-4)


def test_entries_of_lg_files_are_logarithms(tmp_path):
    path = tmp_path / "p.LG"
    path.write_text("MARKOV 2 2 2 2 1 0 2 1 0 2 -0.5 1.25 4 -3 -1e38 -1e39 2")
    problem = read(path)
    assert problem.semiring is MAX_SUM
    values = [problem.evaluate((a, b)) for a in range(2) for b in range(2)]
    assert values == [-3.5, None, None, 3.25]
