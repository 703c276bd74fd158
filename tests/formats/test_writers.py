"""Formats that are written: read back they mean the same, and other programs find the same in them."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocbe
from oocbe.errors import FormatError, UnsupportedError, ValueRangeError
from oocbe.formats import read, write
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from tests.helpers.effort import examples

NAMES = st.text("ab é,:{}'1_", min_size=1, max_size=3)


@st.composite
def problems(draw: st.DrawFn, most: int = 3, least_cost: int = 0, semiring: oocbe.Semiring = MIN_SUM) -> Problem:
    """Small problems with functions, constraints and a linear constraint, with names and labels of any kind."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    sizes = [draw(st.integers(1, most)) for _ in names]
    variables = []
    for name, size in zip(names, sizes, strict=True):
        labels = draw(st.none() | st.lists(NAMES, min_size=size, max_size=size, unique=True).map(tuple))
        variables.append(Variable(name, size, labels))
    costs = st.integers(least_cost, 9)
    functions, constraints, linear = [], [], []
    for _ in range(draw(st.integers(0, 4))):
        scope = tuple(draw(st.lists(st.integers(0, len(names) - 1), unique=True, max_size=3)))
        cells = list(itertools.product(*(range(sizes[v]) for v in scope)))
        chosen = draw(st.lists(st.sampled_from(cells), unique=True, max_size=len(cells)))
        tuples = np.array(chosen, dtype=np.int64).reshape(len(chosen), len(scope))
        kind = draw(st.sampled_from(["function", "allowed", "forbidden", "linear"]))
        if kind == "function":
            values = np.array(draw(st.lists(costs, min_size=len(chosen), max_size=len(chosen))), dtype=np.int64)
            functions.append(Function(scope, tuples, values, draw(st.none() | costs)))
        elif kind == "linear":
            own = [np.array(draw(st.lists(st.integers(-3, 3), min_size=sizes[v], max_size=sizes[v]))) for v in scope]
            linear.append(LinearConstraint(scope, tuple(own), draw(st.integers(-3, 3))))
        else:
            constraints.append(Constraint(scope, tuples, allowed=kind == "allowed"))
    constant = draw(costs)
    return Problem(
        tuple(variables), tuple(functions), tuple(constraints), tuple(linear), constant=constant, semiring=semiring,
        name="p",
    )  # fmt: skip


def values_of(problem: Problem) -> list[float | None]:
    """What each assignment is worth, in order."""
    return [problem.evaluate(row) for row in itertools.product(*map(range, problem.sizes))]


def back(problem: Problem, path) -> Problem:
    write(problem, path)
    return read(path)


def optimum(problem: Problem) -> float | None:
    return min((value for value in values_of(problem) if value is not None), default=None)


TOULBAR2 = """
import sys, pytoulbar2
for path in sys.argv[1:]:
    network = pytoulbar2.CFN(verbose=-1)
    try:
        network.Read(path)
        found = network.Solve()
    except pytoulbar2.pytb2.Contradiction:
        found = None
    print("optimum", None if found is None else found[1])
"""


def by_toulbar2(paths) -> list[float | None]:
    """Optima of files of one format as toulbar2 finds them, in a process of its own: it remembers the last format."""
    pytest.importorskip("pytoulbar2")
    command = [sys.executable, "-c", TOULBAR2, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("optimum")]
    assert len(found) == len(paths), done.stdout + done.stderr
    return [None if text == "None" else float(text) for text in found]


@given(problem=st.one_of(problems(), problems(least_cost=-5), problems(least_cost=-5, semiring=MAX_SUM)))
def test_cfn_and_back(tmp_path_factory, problem):
    found = back(problem, tmp_path_factory.mktemp("cfn") / "p.cfn")
    assert found.sizes == problem.sizes
    for own, other in zip(problem.variables, found.variables, strict=True):
        pairs = list(zip((own.name, *(own.labels or ())), (other.name, *(other.labels or ())), strict=False))
        assert all(one == two or set(one) & set(" ,:{}1") for one, two in pairs)
    assert values_of(found) == values_of(problem)
    assert (found.semiring, found.is_integral) == (problem.semiring, True)


@given(problems(), st.integers(1, 20))
def test_an_upper_bound_is_written(problem, bound):
    text = oocbe.formats.formats()["cfn"].render(oocbe.Problem(problem.variables, upper_bound=bound))
    assert f'"<{bound}"' in text


def test_cfn_keeps_the_digits_that_toulbar2_holds(tmp_path):
    """At most 17 in all; it cuts off further ones, which are rounded here."""
    costs = [0.1, 1e-7, math.pi, 123456.75]
    problem = Problem((Variable("x", 4),), (Function.from_array((0,), costs),))
    assert values_of(back(problem, tmp_path / "p.cfn")) == [0.1, 1e-7, 3.14159265359, 123456.75]


@pytest.mark.parametrize("sense", [MIN_SUM, MAX_SUM])
@pytest.mark.parametrize("large", [10**14, 2**61, 2**62 - 2, 2**62, -(2**62), 1e20, -1e20])
def test_cfn_keeps_what_sums_beside_large_costs_permit_or_is_refused(tmp_path, sense, large):
    problem = Problem((Variable("x", 2),), (Function.from_array((0,), np.array([0, large])),), semiring=sense)
    try:
        assert values_of(back(problem, tmp_path / "p.cfn")) == values_of(problem)
    except ValueRangeError as error:
        assert abs(large) >= 2**62 - 2
        assert "forbid tuples" in str(error)


@pytest.mark.parametrize("sense", [MIN_SUM, MAX_SUM])
@pytest.mark.parametrize("bound", [2**62 - 1, 2**62, 2**63 - 1, 1e30])
@pytest.mark.parametrize("costs", [[-3, 4], [-3.0, 4.5]])
def test_cfn_writes_no_limit_far_above_all_sums(tmp_path, sense, bound, costs):
    """As the top of many files is: the largest integer of some program."""
    sign = 1 if sense == MIN_SUM else -1
    limit = {"upper_bound": bound} if sign > 0 else {"lower_bound": -bound}
    function = Function((0,), [[0], [1]], sign * np.array(costs))
    problem = Problem((Variable("x", 3),), (function,), semiring=sense, **limit)
    assert values_of(back(problem, tmp_path / "p.cfn")) == values_of(problem)


@pytest.mark.parametrize("seed", range(examples(80)))
def test_cfn_keeps_bounds_and_what_is_forbidden_beside_negative_costs(tmp_path, seed):
    rng = np.random.default_rng(seed)
    sense = (MIN_SUM, MAX_SUM)[seed % 2]
    number = (lambda a: a) if seed % 4 < 2 else (lambda a: a / 4)
    functions = tuple(Function.from_array(scope, number(rng.integers(-9, 9, (2, 3)))) for scope in ((0, 1), (2, 3)))
    forbidden = Constraint((0, 3), rng.integers(0, 2, (1, 2)))
    bound = {"upper_bound" if sense == MIN_SUM else "lower_bound": number(int(rng.integers(-12, 12)))}
    if seed % 5 == 0:
        bound = {}
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate((2, 3, 2, 3)))
    problem = Problem(variables, functions, (forbidden,), semiring=sense, **bound)
    try:
        assert values_of(back(problem, tmp_path / "p.cfn")) == values_of(problem)
    except UnsupportedError as error:
        assert "between -1 and 0" in str(error)


@given(problems(most=2))
def test_wcnf_and_back(problem):
    path = pytest.importorskip("pathlib").Path
    render, parse = oocbe.formats.formats()["wcnf"].render, oocbe.formats.formats()["wcnf"].parse
    from oocbe.formats.text import Text

    found = parse(Text(path("p.wcnf"), render(problem).encode()))
    assert len(found.variables) == len(problem.variables)
    for row in itertools.product(*map(range, found.sizes)):
        inside = all(value < size for value, size in zip(row, problem.sizes, strict=True))
        assert found.evaluate(row) == (problem.evaluate(row) if inside else None)


def test_old_and_new_clauses_mean_the_same(tmp_path):
    (tmp_path / "old.wcnf").write_text("c old\np wcnf 3 4 20\n20 1 -2 0\n5 2\n 3 0 7 -1 0\n3 0\n")
    (tmp_path / "new.wcnf").write_text("c new\nh 1 -2 0\n5 2 3 0\n7 -1 0\n3 0\n")
    old, new = read(tmp_path / "old.wcnf"), read(tmp_path / "new.wcnf")
    assert values_of(old) == values_of(new) == [8, 3, None, None, 15, 10, 10, 10]
    (tmp_path / "f.cnf").write_text("c f\np cnf 3 2\n1 -2 0 2\n3 0\n%\n0\n")
    assert values_of(read(tmp_path / "f.cnf")) == [None, 0, None, None, None, 0, 0, 0]
    assert values_of(back(read(tmp_path / "f.cnf"), tmp_path / "g.cnf")) == values_of(read(tmp_path / "f.cnf"))
    with pytest.raises(UnsupportedError, match="no costs"):
        write(old, tmp_path / "h.cnf")


@pytest.mark.parametrize(
    ("name", "content", "line", "said"),
    [
        ("a.cnf", "1 2 0\n", 1, "p cnf"),
        ("a.cnf", "p cnf 2 1\n1 3 0\n", 2, "found 3"),
        ("a.cnf", "p cnf 2 1\n1 2\n", 2, "the file ends"),
        ("a.wcnf", "h 1 0\ny 2 0\n", 2, "h or a weight"),
        ("a.wcnf", "p wcnf 2 1 5\nh 2 0\n", 2, "a weight"),
        ("a.wcnf", "p sat 2 1\n", 1, "expected wcnf"),
    ],
)
def test_malformed_clauses_are_named_with_their_line(tmp_path, name, content, line, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(FormatError, match=said) as caught:
        read(tmp_path / name)
    assert caught.value.line == line


def random_problem(seed: int) -> Problem:
    """Five variables, some of them without a name of their own, functions of all kinds and a constraint or two."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 5)
    names = [str(v) if rng.random() < 0.5 else f"v{v}" for v in range(5)]
    variables = tuple(
        Variable(name, int(size), tuple(f"l{x}" for x in range(size)) if rng.random() < 0.5 else None)
        for name, size in zip(names, sizes, strict=True)
    )
    functions, constraints = [], []
    for _ in range(6):
        scope = tuple(int(v) for v in rng.permutation(5)[: rng.integers(0, 4)])
        cells = np.array(list(itertools.product(*(range(sizes[v]) for v in scope))), dtype=np.int64)
        tuples = cells.reshape(len(cells), len(scope))[rng.random(len(cells)) < 0.7]
        if rng.random() < 0.3 and len(tuples):
            constraints.append(Constraint(scope, tuples, allowed=bool(rng.random() < 0.7)))
        else:
            default = [None, 0, 3][rng.integers(0, 3)]
            functions.append(Function(scope, tuples, rng.integers(0, 9, len(tuples)), default))
    return Problem(variables, tuple(functions), tuple(constraints), constant=int(rng.integers(0, 3)), name="random")


def test_toulbar2_reads_names_of_any_kind_in_what_is_written(tmp_path):
    """Those of the shipped satellite's day among them, whose cameras are numbers; it quotes nothing."""
    odd = ("a b", "c,d", "1", "-x", ".5", "{e}", "[f]", 'g"h', "i:j", "k\\l", "", "_1", "é中", "#m", "n/o", "p'q", "10")
    values = np.arange(len(odd) * 2).reshape(len(odd), 2)[::-1]
    named = Problem(
        (Variable(odd[0], len(odd), odd), Variable("7", 2, ("1", "0"))),
        (Function.from_array((0, 1), values + 3), Function.from_array((1,), [1, 0])),
        name="a day, or two",
    )
    lone = Problem(tuple(Variable(name, 2) for name in odd), (Function.from_array((0, 1), [[4, 5], [3, 6]]),))
    paths = [tmp_path / f"p{number}.cfn" for number in range(3)]
    for problem, path in zip((named, lone, read("examples/daily.spot")), paths, strict=True):
        write(problem, path)
    assert by_toulbar2(paths) == [4, 3, 2112]
    assert read(paths[0]).variables[0].labels == (
        "a_b", "c_d", "_1_2", "_-x", "_.5", "_e_", "_f_", "g_h", "i_j", "k_l", "_", "_1", "é中", "#m", "n/o", "p'q",
        "_10",
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["cfn", "wcsp", "wcnf"])
def test_toulbar2_finds_the_same_optimum_in_what_is_written(tmp_path, suffix):
    problems, paths = [random_problem(seed) for seed in range(12)], []
    if suffix == "wcnf":
        problems = [p for p in problems if max(p.sizes) <= 2] + [read_clauses(tmp_path, seed) for seed in range(4)]
    for number, problem in enumerate(problems):
        paths.append(tmp_path / f"p{number}.{suffix}")
        write(problem, paths[-1])
    assert by_toulbar2(paths) == [optimum(problem) for problem in problems]


def read_clauses(folder, seed: int) -> Problem:
    """Random clauses over five variables, a part of them hard."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(8):
        chosen = rng.permutation(5)[: rng.integers(1, 4)] + 1
        literals = " ".join(str(v if rng.random() < 0.5 else -v) for v in chosen)
        lines.append(f"{'h' if rng.random() < 0.3 else rng.integers(1, 9)} {literals} 0")
    (folder / f"in{seed}.wcnf").write_text("\n".join(lines))
    return read(folder / f"in{seed}.wcnf")


@pytest.mark.parametrize(
    ("text", "costs"),
    [
        ("p wcnf 2 4 10\n6 1 0\n6 2 0\n6 -1 0\n6 -2 0\n", [None] * 4),
        ("p wcnf 2 3 10\n6 1 0\n6 2 0\n3 -1 -2 0\n", [None, 6, 6, 3]),
        ("p wcnf 2 2 0\n6 1 0\n6 2 0\n", [12, 6, 6, 0]),
        ("p wcnf 1 2\n6 1 0\n6 2 0\n", [12, 6, 6, 0]),
        ("p cnf 2 3\n1 0\n2 0\n-1 -2 0\n", [2, 1, 1, 1]),
    ],
)
def test_the_top_of_a_wcnf_is_one_of_the_sum(tmp_path, text, costs):
    """And headers without one, with too few variables, or of unweighted clauses, as toulbar2 reads them."""
    (tmp_path / "a.wcnf").write_text(text)
    assert values_of(read(tmp_path / "a.wcnf")) == costs


@st.composite
def networks(draw: st.DrawFn) -> Problem:
    """Belief networks of up to four variables."""
    count = draw(st.integers(1, 4))
    sizes = [draw(st.integers(2, 3)) for _ in range(count)]
    variables = tuple(Variable(f"v{v}", s, tuple(f"l{x}" for x in range(s))) for v, s in enumerate(sizes))
    functions = []
    for v in range(count):
        parents = draw(st.lists(st.integers(0, v - 1), unique=True, max_size=2)) if v else []
        shape = [sizes[u] for u in parents]
        rows = []
        for _ in range(math.prod(shape)):
            weights = np.array(draw(st.lists(st.integers(0, 5), min_size=sizes[v], max_size=sizes[v])), dtype=float)
            weights[0] += 1
            rows.append(weights / weights.sum())
        table = np.array(rows).reshape(*shape, sizes[v])
        functions.append(Function.from_array((*parents, v), table, infeasible=0.0))
    return Problem(variables, tuple(draw(st.permutations(functions))), semiring=MAX_PRODUCT, constant=1.0, name="n")


@given(problem=networks())
def test_bif_and_back_and_in_pyagrum(tmp_path_factory, problem):
    path = tmp_path_factory.mktemp("bif") / "n.bif"
    found = back(problem, path)
    assert found.variables == problem.variables
    for row in itertools.product(*map(range, problem.sizes)):
        assert (found.evaluate(row) or 0.0) == pytest.approx(problem.evaluate(row) or 0.0, rel=1e-12)
    agrum = pytest.importorskip("pyagrum")
    network = agrum.loadBN(str(path))
    for row in itertools.product(*map(range, problem.sizes)):
        chosen = {v.name: v.label(x) for v, x in zip(problem.variables, row, strict=True)}
        joint = math.exp(network.log2JointProbability(agrum_instantiation(agrum, network, chosen)) * math.log(2))
        assert joint == pytest.approx(problem.evaluate(row) or 0.0, rel=1e-5, abs=1e-300)


def agrum_instantiation(agrum, network, chosen):
    found = agrum.Instantiation()
    for name in network.names():
        found.add(network.variable(name))
    for name, label in chosen.items():
        found.chgVal(name, label)
    return found


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ([Function.from_array((0,), [0.5, 0.2])], "no conditional probability"),
        ([Function.from_array((0,), [0.5, 0.5])], "one each"),
        ([Function.from_array((0, 1), [[0.5, 0.5]] * 2), Function.from_array((1, 0), [[0.4, 0.6]] * 2)], "a cycle"),
    ],
)
def test_what_is_no_belief_network_is_refused(tmp_path, functions, said):
    problem = Problem((Variable("a", 2), Variable("b", 2)), tuple(functions), semiring=MAX_PRODUCT, constant=1.0)
    with pytest.raises(UnsupportedError, match=said):
        write(problem, tmp_path / "n.bif")


@pytest.mark.parametrize("semiring", [MIN_SUM, MAX_SUM])
def test_cfn_forbids_nothing_where_floats_are_large(tmp_path, semiring):
    values = np.array([1e20, 1.0]) * (1 if semiring == MIN_SUM else -1)
    problem = Problem((Variable("x", 2),), (Function.from_array((0,), values),), semiring=semiring)
    write(problem, tmp_path / "p.cfn")
    again = read(tmp_path / "p.cfn")
    assert [again.evaluate([x]) for x in range(2)] == values.tolist()


@pytest.mark.parametrize(("semiring", "sign"), [(MIN_SUM, "<"), (MAX_SUM, ">")])
def test_the_limit_of_a_cfn_has_the_decimals_of_its_costs(tmp_path, semiring, sign):
    """Toulbar2 rounds costs to the decimals that it finds there."""
    functions = (Function.from_array((0,), [0.25, 0.75]), Function.from_array((0,), [0.125, 0.25]))
    write(Problem((Variable("x", 2),), functions, semiring=semiring), tmp_path / "p.cfn")
    limit = re.search(rf'"mustbe": "{sign}-?\d+\.(\d+)"', (tmp_path / "p.cfn").read_text())
    assert limit is not None
    assert len(limit[1]) == 3
