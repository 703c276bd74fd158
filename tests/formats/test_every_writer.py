"""What a format writes means the same when it is read back, or it is refused by name: every writer, every part."""

import itertools
import math
import random
import re
from dataclasses import replace

import numpy as np
import pytest

import oocbe
from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats import formats, read, write
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from tests.helpers.effort import examples

WRITTEN = sorted(name for name, known in formats().items() if known.writes_problems)
CASES = examples(600)

NUMBERS = {
    "small": lambda draw: draw.randint(0, 9),
    "signed": lambda draw: draw.randint(-9, 9),
    "large": lambda draw: draw.choice((1, -1)) * (2**53 + draw.randint(0, 9)),
    "tenths": lambda draw: draw.randint(-40, 40) / 10,
    "floats": lambda draw: draw.choice((0.1, 1e-7, math.pi, 1e20, 1e-20, 2.5)),
    "probabilities": lambda draw: draw.randint(0, 8) / 8,
}
FEATURES = ("function", "default", "complete", "forbidden", "allowed", "linear", "nothing", "constant")


def drawn(draw: random.Random, semiring: oocbe.Semiring) -> Problem:
    """A problem with some features of all: many formats hold few of them together."""
    most = draw.choice((2, 2, 3))
    sizes = [draw.choice((most, most, draw.randint(1, most))) for _ in range(draw.randint(0 if most > 2 else 1, 4))]
    variables = tuple(
        Variable(f"v{v}", size, draw.choice((None, None, tuple(f"l{x}" for x in range(1, size + 1)))))
        for v, size in enumerate(sizes)
    )
    multiplies = semiring in (MAX_PRODUCT, SUM_PRODUCT)
    kind = draw.choice(("probabilities", "small", "floats") if multiplies else tuple(NUMBERS))
    features = draw.sample(FEATURES, draw.randint(1, 3))
    functions, constraints, linear = [], [], []
    for _ in range(draw.randint(1, 5)):
        feature = draw.choice(features)
        scope = tuple(draw.sample(range(len(sizes)), min(len(sizes), draw.choice((0, 1, 1, 2, 2, 3)))))
        cells = list(itertools.product(*(range(sizes[v]) for v in scope)))
        chosen = cells if feature == "complete" else draw.sample(cells, draw.randint(0, len(cells)))
        tuples = np.array(chosen, dtype=np.int64).reshape(len(chosen), len(scope))
        if feature in ("function", "default", "complete"):
            default = NUMBERS[kind](draw) if feature == "default" else None
            functions.append(Function(scope, tuples, np.array([NUMBERS[kind](draw) for _ in chosen]), default))
        elif feature == "linear":
            own = tuple(np.array([draw.randint(-3, 3) for _ in range(sizes[v])], dtype=np.int64) for v in scope)
            linear.append(LinearConstraint(scope, own, draw.randint(-3, 5)))
        elif feature in ("forbidden", "allowed"):
            constraints.append(Constraint(scope, tuples, allowed=feature == "allowed"))
    constant = NUMBERS[kind](draw) if "constant" in features and draw.random() < 0.5 else None
    problem = Problem(
        variables, tuple(functions), tuple(constraints), tuple(linear), constant=constant, semiring=semiring, name="p"
    )
    known = [value for value in values_of(problem) if value is not None]
    if semiring is MIN_SUM and draw.random() < 0.4:
        problem = problem.below(draw.choice(known or [0]) + draw.choice((0, 1, 5, 0.5, -1)))
    return problem


def values_of(problem: Problem) -> list[int | float | None]:
    return [problem.evaluate(row) for row in itertools.product(*map(range, problem.sizes))]


def same(one: Problem, other: Problem, change: float = 0.0) -> bool:
    """Whether two problems give every assignment the same value: integers exactly, sums of floats in any order nearly.

    Clauses have two values for each variable; values that a variable has not are forbidden there. A product of zero is
    forbidden in some formats. ``change``: difference of numbers besides; sums of floats that are no farther from a
    bound may be on either side of it.
    """
    bound = one.lower_bound if one.upper_bound is None else one.upper_bound
    inside = [values_of(one), values_of(other)]
    if one.sizes != other.sizes:
        rows = itertools.product(*map(range, other.sizes))
        valid = [all(value < size for value, size in zip(row, one.sizes, strict=True)) for row in rows]
        if any(value is not None for value, known in zip(inside[1], valid, strict=True) if not known):
            return False
        inside[1] = [value for value, known in zip(inside[1], valid, strict=True) if known]
    largest = max((abs(value) for value in inside[0] if value is not None), default=0)
    for first, second in zip(*inside, strict=True):
        if one.semiring in (MAX_PRODUCT, SUM_PRODUCT):
            first, second = first or None, second or None
        if (first is None) != (second is None):
            value = second if first is None else first
            if one.is_integral or bound is None or abs(value - bound) > change:
                return False
            continue
        if first is None or second is None or first == second:
            continue
        if one.is_integral or not math.isclose(first, second, rel_tol=1e-12, abs_tol=change + 1e-15 + 1e-12 * largest):
            return False
    return True


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_means_the_same_or_is_refused(name, tmp_path):
    written = 0
    for seed in range(CASES):
        draw = random.Random(f"{name} {seed}")
        multiplies = name in ("uai", "bif")
        semirings = (MAX_PRODUCT, SUM_PRODUCT) if multiplies else (MIN_SUM, MIN_SUM, MAX_SUM)
        problem = drawn(draw, draw.choice(semirings if draw.random() < 0.9 else (MIN_SUM, MAX_PRODUCT)))
        if name == "bif":
            problem = network(draw) if draw.random() < 0.7 else problem
        path = tmp_path / f"p{seed}.{name}"
        try:
            write(problem, path)
        except (UnsupportedError, ValueRangeError) as error:
            assert problem.name in str(error) or "label" in str(error)
            assert not path.exists()
            continue
        found = read(path)
        if name == "spot":  # values are numbered anew, the one that leaves a photograph out first
            assert sorted(map(str, values_of(problem))) == sorted(map(str, values_of(found))), seed
        else:
            change = 1e-8 if name == "cfn" else 0.0  # the writer rounds to 17 digits in all
            assert same(problem, found, change), (seed, values_of(problem), values_of(found))
        if not multiplies and problem.variables:
            assert found.semiring is problem.semiring
        written += 1
    assert written > CASES / 50


def network(draw: random.Random) -> Problem:
    """A belief network, most of the time with a part that .bif has no place for."""
    sizes = [draw.randint(1, 3) for _ in range(draw.randint(0, 4))]
    functions = []
    for v in range(len(sizes)):
        scope = (*draw.sample(range(v), draw.randint(0, min(v, 2))), v)
        table = np.array([draw.randint(0, 3) for _ in range(math.prod(sizes[u] for u in scope))], dtype=float)
        table = table.reshape([sizes[u] for u in scope]) + np.eye(1, sizes[v])[0]
        functions.append(Function.from_array(scope, table / table.sum(axis=-1, keepdims=True), infeasible=0.0))
    made = Problem(
        tuple(Variable(f"v{v}", size, tuple(f"l{x}" for x in range(size))) for v, size in enumerate(sizes)),
        tuple(functions),
        constant=1.0,
        semiring=MAX_PRODUCT,
        name="p",
    )
    if draw.random() < 0.2:
        made = replace(made, constant=0.5)
    if sizes and draw.random() < 0.2:
        made = made.with_evidence({0: 0})
    return made


@pytest.mark.parametrize("name", ["yaml", "xml"])
def test_agents_come_back_with_the_meaning(name, tmp_path):
    for seed in range(60):
        draw = random.Random(f"agents {name} {seed}")
        problem = drawn(draw, draw.choice((MIN_SUM, MAX_SUM)))
        if not problem.variables:
            continue
        dcop = Dcop(problem, ("one", "two"), tuple(draw.randrange(2) for _ in problem.variables))
        path = tmp_path / f"p{seed}.{name}"
        try:
            write(dcop, path)
        except UnsupportedError:
            continue
        found = oocbe.read_model(path)
        assert isinstance(found, Dcop)
        assert (found.agents, found.owner) == (dcop.agents, dcop.owner)
        assert same(problem, found.problem)


@pytest.mark.parametrize("name", ["yaml", "xml", "cnf", "wcnf", "qpbo", "spot"])
def test_an_upper_bound_that_may_bind_is_refused_by_name(name, tmp_path):
    costs = Function.from_array((0,), [5, 0] if name == "spot" else [0, 5])
    problem = Problem((Variable("a", 2), Variable("b", 2)), (costs,), upper_bound=5)
    with pytest.raises(UnsupportedError, match=rf"p\.{name}: .*upper bound") as refused:
        write(problem, tmp_path / f"p.{name}")
    assert re.search(r"write it as (.*cfn|wcsp)", str(refused.value)) or name == "cnf"
    if name not in ("cnf", "spot"):  # clauses without costs; days without a bound, whatever it is
        write(problem.below(5.5), tmp_path / f"p.{name}")
        assert values_of(read(tmp_path / f"p.{name}")) == values_of(problem.below(None))


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("constant", [None, 3, 2.5])
def test_problems_without_variables_come_back_or_are_refused(name, constant, tmp_path):
    semiring = MAX_PRODUCT if name in ("uai", "bif") else MIN_SUM
    for problem in (
        Problem((), constant=constant, semiring=semiring),
        Problem((), (Function((), np.zeros((1, 0)), [2]),), constant=constant, semiring=semiring),
        Problem((), constraints=(Constraint((), np.zeros((0, 0)), allowed=True),), semiring=semiring),
        Problem((), linear_constraints=(LinearConstraint((), (), -1),), semiring=semiring),
    ):
        try:
            write(problem, tmp_path / f"p.{name}")
        except UnsupportedError as error:
            assert problem.name in str(error)
            continue
        assert same(problem, read(tmp_path / f"p.{name}"))
