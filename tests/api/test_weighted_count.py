"""Weighted and projected counts of clauses against sums over all assignments, and against a reference."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.tasks import count as counts
from oocbe.errors import UnsupportedError, UsageError, ValueRangeError
from oocbe.model.count_question import CountQuestion
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.numbers import limbs_for, of_integers, total
from tests.helpers.effort import examples

FAST = SolveOptions(order_seconds=0.0, backend="cpu")


def brute_force(count, clauses, weights, shown):
    """The definition: a term for each assignment of the shown variables that some values of the others complete."""
    terms = {}
    for row in itertools.product((0, 1), repeat=count):
        if all(any(row[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses):
            own = tuple(row[v - 1] for v in shown)
            weight = Fraction(1)
            for v in shown:
                weight *= weights.get(v, (1, 1))[row[v - 1]]
            terms[own] = weight
    return sum(terms.values(), Fraction(0))


def text_of(count, clauses, weights, shown):
    lines = [f"p cnf {count} {len(clauses)}", *(" ".join(map(str, [*c, 0])) for c in clauses)]
    for v, (low, high) in weights.items():
        lines += [f"c p weight {v} {high} 0", f"c p weight -{v} {low} 0"]
    for chunk in itertools.batched(shown, 3) if hasattr(itertools, "batched") else [shown]:
        lines.append(" ".join(map(str, ["c p show", *chunk, 0])))
    return "\n".join(lines) + "\n"


fractions = st.builds(Fraction, st.integers(-4, 9), st.integers(1, 7)) | st.builds(
    Fraction, st.integers(-(10**30), 10**30), st.just(10**29 + 7)
)


@st.composite
def questions(draw):
    count = draw(st.integers(1, 7))
    literals = st.integers(1, count).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literals, min_size=1, max_size=3), max_size=9))
    weights = draw(st.dictionaries(st.integers(1, count), st.tuples(fractions, fractions), max_size=count))
    shown = draw(st.sets(st.integers(1, count))) if draw(st.booleans()) else set(range(1, count + 1))
    return count, clauses, weights, sorted(shown)


@settings(deadline=None, max_examples=examples(300))
@given(questions())
def test_against_brute_force(tmp_path_factory, drawn):
    path = tmp_path_factory.mktemp("drawn") / "drawn.cnf"
    path.write_text(text_of(*drawn))
    expected = brute_force(*drawn)
    result = oocbe.count(path, FAST)
    assert result.value == expected
    assert oocbe.count(path, FAST, tables="incomplete").value == expected  # by elimination, not by the search
    assert result.status == "exact" or expected == 0
    is_projected, is_weighted = len(drawn[3]) < drawn[0], bool(drawn[2])
    assert result.kind == "p" * is_projected + "w" * is_weighted + "mc"
    assert isinstance(result.value, Fraction if is_weighted else int)
    sizes = [abs(low) + abs(high) for low, high in drawn[2].values()]
    rounding = 1e-12 * math.prod(max(1, float(size)) for size in sizes) * 2 ** drawn[0]
    assert oocbe.count(path, FAST, float_counts=True).value == pytest.approx(float(expected), abs=rounding)


def chain(length, seed, low=1):
    """Clauses along a path, every third variable hidden, and weights of 40 digits."""
    random = np.random.default_rng(seed)
    variables = tuple(Variable(str(v), 2) for v in range(length))
    constraints = tuple(
        Constraint((v, v + 1, v + 2), random.integers(0, 2, (1, 3)), allowed=False) for v in range(length - 2)
    )
    shown = frozenset(str(v) for v in range(length) if v % 3)
    numbers = [[Fraction(int(n), 10**18) for n in random.integers(low, 10**18, 2)] for _ in range(length)]
    weights = {str(v): (numbers[v][0], numbers[v][1]) for v in range(0, length, 2)}
    return Problem(variables, constraints=constraints, counting=CountQuestion("pwmc", weights, shown))


def along(problem):
    """The count of a chain, by the states of its last two variables: sets of values of the hidden ones."""
    question, constraints = problem.counting, problem.constraints
    states = {frozenset([(None, None)]): Fraction(1)}
    for v, variable in enumerate(problem.variables):
        found = {}
        for pairs, weight in states.items():
            groups = ([0], [1]) if question.shows(variable) else ([0, 1],)
            for values in groups:
                kept = frozenset(
                    (b, x)
                    for a, b in pairs
                    for x in values
                    if v < 2 or (a, b, x) != tuple(constraints[v - 2].tuples[0].tolist())
                )
                own = question.weight(variable, values[0]) if len(values) == 1 else 1
                if kept:
                    found[kept] = found.get(kept, 0) + weight * own
        states = found
    return sum(states.values())


@pytest.mark.parametrize(("length", "low"), [(40, 1), (40, -(10**18)), (14, -5), (200, 1), (120, -(10**18))])
def test_long_chains(length, low):
    """Counts of many limbs, also of residues."""
    problem = chain(length, length, low)
    for tables in ("auto", "incomplete"):
        assert oocbe.count(problem, FAST, tables=tables).value == along(problem)


def test_orders_of_two_blocks_are_narrow():
    problem = chain(40, 2)
    result = oocbe.count(problem, FAST)
    assert result.value == along(problem) and result.width < 8


@pytest.mark.parametrize("weight", ["1", "1/3", "123456789123456789123"])
def test_terms_that_cancel(tmp_path, weight):
    path = tmp_path / "zero.cnf"
    path.write_text(f"p cnf 3 1\n2 3 0\nc p weight 1 {weight} 0\nc p weight -1 -{weight} 0\n")
    result = oocbe.count(path, FAST)
    assert (result.value, result.log10) == (0, -math.inf)
    assert result.status == "exact"
    path.write_text(path.read_text() + "-2 0\n-3 0\n")
    assert oocbe.count(path, FAST).status == "infeasible"


@pytest.mark.parametrize("low", [1, -(10**18)])
@pytest.mark.parametrize(("piece_rows", "memory"), [(2, None), (None, 1 << 10)])
def test_out_of_core(tune, memory_folder, piece_rows, memory, low):
    problem = chain(60, 7, low)
    if memory is not None:
        tune(message_bytes=memory)
    options = {"workdir": memory_folder, "piece_rows": piece_rows, "streams": 2, "chunk_rows": 64}
    assert oocbe.count(problem, FAST, **options).value == along(problem)


@pytest.mark.parametrize("tables", ["incomplete", "complete", "auto"])
@pytest.mark.parametrize("float_counts", [False, True])
def test_forms_of_tables(tables, float_counts):
    problem = chain(24, 3)
    found = oocbe.count(problem, FAST, tables=tables, float_counts=float_counts).value
    assert found == (pytest.approx(float(along(problem))) if float_counts else along(problem))


def test_more_limbs_than_needed(monkeypatch):
    monkeypatch.setattr(counts, "limbs_for", lambda bound: limbs_for(bound) + 2)
    problem = chain(30, 5)
    assert oocbe.count(problem, FAST, tables="incomplete").value == along(problem)


@given(st.lists(st.integers(0, 2**200), min_size=1, max_size=5))
def test_values_of_integers(numbers):
    values = of_integers(numbers)
    assert [total(values[row : row + 1]) for row in range(len(numbers))] == numbers


@pytest.mark.parametrize(("one", "power", "rounded"), [(1, -10, 0), (1, 9, math.inf), (-1, 9, -math.inf)])
def test_logarithms_beyond_floats(tmp_path, one, power, rounded):
    """The weights of 400 variables are 10 and 1 times a power of 10; the count and its logarithm are exact."""
    unit = Fraction(10) ** power
    lines = [f"c p weight {v} 1e{power + 1} 0\nc p weight -{v} 1e{power} 0" for v in range(1, 400)]
    lines.append(f"c p weight 400 {one}e{power + 1} 0\nc p weight -400 {one}e{power} 0")
    path = tmp_path / "powers.cnf"
    path.write_text("\n".join(["p cnf 400 1", "1 2 0", *lines]) + "\n")
    exact = one * unit**400 * 11**398 * (11**2 - 1)
    result = oocbe.count(path, FAST)
    assert result.value == exact
    assert result.log10 == pytest.approx(400 * power + 398 * math.log10(11) + math.log10(120), rel=1e-13)
    shown = json.loads(json.dumps(result.to_json()))["value"]
    assert shown == f"{exact.numerator}" + f"/{exact.denominator}" * (exact.denominator > 1)
    in_floats = oocbe.count(path, FAST, float_counts=True)
    assert in_floats.value == rounded and in_floats.log10 == pytest.approx(result.log10)
    assert "outside the range of float64" in in_floats.notes[0]


def test_weights_too_small_beside_others_are_refused(tmp_path):
    """As floats, shares of 1e-400 would be 0, and the count of the models, which all have one, too."""
    lines = [f"c p weight {v} 1e-400 0\nc p weight -{v} 1 0" for v in (1, 2)]
    path = tmp_path / "small.cnf"
    path.write_text("\n".join(["p cnf 2 1", "1 2 0", *lines]) + "\n")
    assert oocbe.count(path, FAST).value == Fraction(2, 10**400) + Fraction(1, 10**800)
    with pytest.raises(ValueRangeError, match="or count without --float-counts"):
        oocbe.count(path, FAST, float_counts=True)


def test_orders_from_files(tmp_path):
    """An order needs the hidden variables first."""
    problem, order = chain(6, 1), tmp_path / "order"
    order.write_text("0 3 1 2 4 5")
    assert oocbe.count(problem, FAST, order=str(order)).value == along(problem)
    order.write_text("0 1 2 3 4 5")
    with pytest.raises(UsageError, match="the 2 variables that are not shown come first"):
        oocbe.count(problem, FAST, order=str(order))


def test_evidence_and_propagation():
    """Values that propagation fixes keep their weight; a problem without a weighted variable is refused."""
    variables = (Variable("1", 2), Variable("2", 2))
    weights = {"1": (Fraction(1, 3), Fraction(2, 3)), "2": (Fraction(1, 5), Fraction(4, 5))}
    question = CountQuestion("wmc", weights)
    problem = Problem(variables, constraints=(Constraint((0, 1), [[1, 0]], allowed=False),), counting=question)
    assert oocbe.count(problem, FAST).value == Fraction(1, 3) + Fraction(8, 15)
    assert oocbe.count(problem, FAST, evidence={"1": "1"}).value == Fraction(8, 15)
    reduced = oocbe.propagate(problem.with_evidence({"1": "1"})).reduced
    assert max(reduced.sizes) == 1 and oocbe.count(reduced, FAST).value == Fraction(8, 15)
    with pytest.raises(UnsupportedError, match="variable 1 has weights, and is not in the problem"):
        oocbe.count(Problem(variables[1:], counting=question), FAST)


@pytest.mark.parametrize("shown", [24, 20, 3])
def test_linear_constraints_that_rows_carry(shown):
    """Weighted counts observe them; a projection that hides some of their variables counts with partial sums."""
    random = np.random.default_rng(4)
    factors = random.integers(1, 9, 24).tolist()
    capacity = 24 + sum(factors[:shown]) // 3
    linear = LinearConstraint(tuple(range(24)), tuple(np.array([1, 1 + a]) for a in factors), capacity, "limit")
    weights = {str(v): (Fraction(1), Fraction(v + 1, 3)) for v in range(24)}
    variables = tuple(Variable(str(v), 2) for v in range(24))
    question = CountQuestion("wmc", weights, None if shown == 24 else frozenset(map(str, range(shown))))
    problem = Problem(variables, linear_constraints=(linear,), counting=question)
    sums = {24: Fraction(1)}
    for v, a in enumerate(factors[:shown]):
        after = dict(sums)
        for used, weight in sums.items():
            after[used + a] = after.get(used + a, 0) + weight * weights[str(v)][1]
        sums = after
    assert oocbe.count(problem, FAST).value == sum(w for used, w in sums.items() if used <= capacity)


@pytest.mark.parametrize(
    "name",
    [
        "mc2022_track1_009",
        "mc2022_track1_021",
        "mc2022_track2_013",
        "mc2022_track2_019",
        "mc2022_track2_021",
        "mc2022_track2_067",
    ],
)
def test_published_counts(data, name):
    """Instances of the model counting competition 2022 with the organisers' logarithms, to eight decimals."""
    path = data(f"mc2022/{name}.cnf.gz")
    published = json.loads(data("mc2022/log10_counts.json").read_text())
    result = oocbe.count(path)
    assert result.log10 == pytest.approx(float(published[path.name]), abs=1e-8)
    assert result.kind == ("mc" if "track1" in name else "wmc")


def test_a_projected_and_weighted_instance(data):
    """The organisers give no count of it; this is Ganak's (pyganak 2.8)."""
    path = data("mc2022/mc2022_track4_021.cnf.gz")
    result = oocbe.count(path)
    assert result.kind == "pwmc" and result.log10 == pytest.approx(-16.476382035888538, abs=1e-12)
    assert oocbe.count(path, float_counts=True).log10 == pytest.approx(result.log10, abs=1e-12)


def test_tables_of_partial_sums_over_more_variables_of_one_value_than_arrays_have_axes():
    """A linear constraint became one table over all its variables; its array had an axis for each."""
    variables = (*(Variable(f"v{n}", 1) for n in range(74)), Variable("a", 4), Variable("b", 2))
    ends = (np.arange(4), np.array([0, 3]))
    linear = LinearConstraint(tuple(range(76)), (*[np.array([n]) for n in range(74)], *ends), sum(range(74)) + 4)
    problem = Problem(variables, linear_constraints=(linear,), counting=CountQuestion("pmc", shown=frozenset(["a"])))
    assert oocbe.count(problem).value == 4
    assert oocbe.count(problem, float_counts=True).value == 4
