"""What cannot be asked of a tree, and how it says so."""

import numpy as np
import pytest

import oocbe
from oocbe.tables import disk_budget

TWO = (oocbe.Variable("a", 2, ("yes", "no")), oocbe.Variable("b", 3))
PROBLEM = oocbe.Problem(
    TWO, (oocbe.Function.from_array((0, 1), [[0.5, 0.25, 0.0], [0.0, 0.0, 0.25]]),), semiring=oocbe.SUM_PRODUCT
)


@pytest.fixture(scope="module")
def tree():
    return oocbe.JunctionTree(PROBLEM, order_seconds=0)


QUESTIONS = {
    "unknown variable": (lambda t: t.observe({"c": 0}), "no variable 'c'"),
    "unknown label": (lambda t: t.observe({"a": "maybe"}), "no value 'maybe'; its values are yes, no"),
    "number too large": (lambda t: t.observe({"b": 3}), "no value 3"),
    "negative number": (lambda t: t.observe({"b": -1}), "no value -1"),
    "truth value": (lambda t: t.observe({"a": True}), "no value True"),
    "likelihood of nothing": (lambda t: t.observe(likelihood={"a": [0, 0]}), "all of its numbers are 0"),
    "negative likelihood": (lambda t: t.observe(likelihood={"a": [1, -1]}), "not negative"),
    "infinite likelihood": (lambda t: t.observe(likelihood={"a": [1, np.inf]}), "finite"),
    "likelihood that is no number": (lambda t: t.observe(likelihood={"a": [1, np.nan]}), "finite"),
    "likelihood of text": (lambda t: t.observe(likelihood={"a": "yes"}), "expected 2 numbers"),
    "too few likelihoods": (lambda t: t.observe(likelihood={"b": [1, 1]}), "shape"),
    "value and likelihood": (lambda t: t.observe({"a": 0}, likelihood={"a": [1, 1]}), "give one of them"),
    "nothing to retract": (lambda t: t.retract("a"), "nothing was observed"),
    "retract unknown": (lambda t: t.retract("c"), "no variable 'c'"),
    "probabilities of two": (lambda t: t.revise("a", [1, 1]), "not to 1"),
    "marginal of nothing": (lambda t: t.marginal(), "expected the name"),
    "marginal twice": (lambda t: t.marginal("a", "a"), "named twice"),
    "unknown marginal": (lambda t: t.marginal("c"), "no variable 'c'"),
    "targets as text": (lambda t: t.batch([{}], "ab"), "in a list"),
    "one mapping": (lambda t: t.batch({"a": 0}), "expected a list"),
    "a text": (lambda t: t.batch("a"), "expected a list"),
    "a list of lists": (lambda t: t.batch([["a"]]), r"case 0 \(the first is 0\): expected a mapping"),
    "unknown in a case": (lambda t: t.batch([{}, {"c": 0}]), "case 1"),
    "label in a case": (
        lambda t: t.batch([{"a": "maybe"}]),
        r"case 0 \(.*\): variable 'a' has no value 'maybe'",
    ),
    "truth value in a case": (
        lambda t: t.batch([{"a": 1}, {"a": True}]),
        "variable 'a' has no value True",
    ),
    "array of floats": (lambda t: t.batch(np.zeros((1, 2))), "expected integers"),
    "array too narrow": (lambda t: t.batch(np.zeros((1, 1), dtype=int)), "column for each of the 2"),
    "array out of range": (lambda t: t.batch(np.array([[0, 3]])), "no value 3"),
    "array below": (lambda t: t.batch(np.array([[0, -2]])), "no value -2"),
    "likelihoods of other cases": (lambda t: t.batch([{}], likelihood={"a": np.ones((2, 2))}), "shape"),
    "empty joint": (lambda t: t.batch([{}], joint=[[]]), "expected the name"),
    "samples": (lambda t: t.sample(-1), "number of samples"),
    "fractional samples": (lambda t: t.sample(1.5), "number of samples"),
    "MAP of nothing": (lambda t: t.marginal_map([]), "expected the name"),
    "MAP twice": (lambda t: t.marginal_map(["a", "a"]), "named twice"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_cannot_be_asked_changes_nothing(name, tree):
    ask, expected = QUESTIONS[name]
    with pytest.raises(oocbe.UsageError, match=expected):
        ask(tree)
    assert tree.evidence == {}
    assert tree.log_evidence == 0
    np.testing.assert_allclose(tree.marginal("a"), [0.75, 0.25])


def test_a_value_that_became_impossible_cannot_be_revised_back():
    tree = oocbe.JunctionTree(PROBLEM, order_seconds=0)
    tree.observe({"b": 2})
    with pytest.raises(oocbe.UsageError, match="impossible now"):
        tree.revise("a", [0.5, 0.5])


NEGATIVE = oocbe.Problem(TWO, (oocbe.Function.from_array((0,), [1.0, -1.0]),), semiring=oocbe.SUM_PRODUCT)


@pytest.mark.parametrize(
    ("make", "error", "expected"),
    [
        (lambda: oocbe.JunctionTree(NEGATIVE), oocbe.UnsupportedError, "negative"),
        (lambda: oocbe.JunctionTree(PROBLEM, order=["a"]), oocbe.ModelError, "each of the 2 variables"),
        (lambda: oocbe.JunctionTree(PROBLEM, order=["a", "c"]), oocbe.ModelError, "no variable 'c'"),
        (lambda: oocbe.JunctionTree(PROBLEM, order=["a", "a"]), oocbe.ModelError, "once"),
        (lambda: oocbe.JunctionTree(PROBLEM, order="best"), oocbe.UsageError, "order"),
        (lambda: oocbe.JunctionTree(PROBLEM, memory="2"), oocbe.UsageError, "memory"),
        (lambda: oocbe.JunctionTree(PROBLEM, backend="fast"), oocbe.UsageError, "backend"),
        (lambda: oocbe.JunctionTree(PROBLEM, space="linear"), oocbe.UsageError, "space"),
        (lambda: oocbe.JunctionTree(PROBLEM, temperature=0.0), oocbe.UsageError, "temperature"),
        (lambda: oocbe.JunctionTree("no such file.bif"), oocbe.UsageError, "no such file"),
    ],
)
def test_a_tree_that_cannot_be_made(make, error, expected):
    with pytest.raises(error, match=expected):
        make()


def test_rows_that_neither_memory_nor_disk_has_room_for(monkeypatch):
    count = 22
    variables = tuple(oocbe.Variable(f"x{v}", 2) for v in range(count))
    pairs = [(u, v) for v in range(count) for u in range(v)]
    functions = tuple(oocbe.Function.from_array(pair, [[1.0, 2.0], [3.0, 4.0]]) for pair in pairs)
    problem = oocbe.Problem(variables, functions, semiring=oocbe.SUM_PRODUCT)
    monkeypatch.setattr(disk_budget, "free_bytes", lambda _: 1 << 20)
    with pytest.raises(oocbe.ResourceError, match="more than memory has room for, and the disk"):
        oocbe.JunctionTree(problem, memory="1MiB", order_seconds=0)
