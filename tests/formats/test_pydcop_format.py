"""pyDcop's YAML: read as pyDcop means it, written so that it reads back, refused with the line that is malformed."""

from __future__ import annotations

import cProfile
import itertools
import json
import math
import re

import numpy as np
import pytest

import oocbe
from oocbe.dcop import Dcop, dpop, read_dcop
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import pydcop, read, read_model, write
from oocbe.formats.expressions import ExpressionError, PythonExpression, parse_expression
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM, SUM_PRODUCT

WHOLE = """name: lights
objective: min
description: two lights
  and a sensor
domains:
  colors: {values: [R, G], type: color}
  level:
    values: [0 .. 3]
variables:
  v1: {domain: colors, initial_value: R, cost_function: "-0.1 if v1 == 'R' else 0.1", noise_level: 0.2}
  v2: {domain: colors}
  l1: {domain: level, initial_value: }
external_variables:
  night: {domain: level, initial_value: 2}
constraints:
  differ:
    type: intention
    function: 5 if v1 == v2 else 0
  table:
    type: extensional
    variables: [v2, l1]
    default: 7
    values:
      1: R 0 | G 3
      2.5: "R 1"
  body:
    type: intention
    function: |
      if l1 == night:
          return 0
      elif l1 > night:
          return 1
      return 2 * (night - l1)
agents: [a1, a2]
distribution_hints:
  must_host:
    a2: [v1, differ]
hosting_costs: {default: 3}
routes: {default: 1}
"""


def values_of(problem, *assignment):
    names = {v.name: v for v in problem.variables}
    return problem.evaluate([names[name].labels.index(label) for name, label in assignment])


def test_everything_is_read(tmp_path):
    (tmp_path / "p.yaml").write_text(WHOLE)
    dcop = read_dcop(tmp_path / "p.yaml")
    problem = dcop.problem
    assert problem.name == "lights"
    assert [(v.name, v.labels) for v in problem.variables] == [
        ("v1", ("R", "G")),
        ("v2", ("R", "G")),
        ("l1", ("0", "1", "2", "3")),
    ]
    assert (dcop.agents, dcop.owner) == (("a1", "a2"), (1, 0, 0))
    assert values_of(problem, ("v1", "R"), ("v2", "R"), ("l1", "0")) == pytest.approx(-0.1 + 5 + 1 + 4)
    assert values_of(problem, ("v1", "G"), ("v2", "R"), ("l1", "1")) == pytest.approx(0.1 + 2.5 + 2)
    assert values_of(problem, ("v1", "R"), ("v2", "G"), ("l1", "2")) == pytest.approx(-0.1 + 7)
    assert values_of(problem, ("v1", "R"), ("v2", "G"), ("l1", "3")) == pytest.approx(-0.1 + 1 + 1)
    assert dpop(dcop).value == pytest.approx(1.9)


def test_agents_are_dealt_out_in_time_linear_in_their_number(tmp_path):
    """Half of the agents host a variable by hints; each was looked through for every other one."""

    def calls_of(count):
        names = [f"x{i}" for i in range(count)]
        hints = "".join(f"    a{i}: [x{i + 1}]\n" for i in range(0, count, 2))
        (tmp_path / "p.yaml").write_text(
            "name: p\nobjective: min\ndomains: {d: {values: [0, 1]}}\nvariables:\n"
            + "".join(f"  {name}: {{domain: d}}\n" for name in names)
            + f"constraints:\n  c: {{type: intention, function: x0}}\nagents: [{', '.join(names).replace('x', 'a')}]\n"
            + f"distribution_hints:\n  must_host:\n{hints}"
        )
        profile = cProfile.Profile()
        owner = profile.runcall(read_dcop, tmp_path / "p.yaml").owner
        assert owner == tuple(i - 1 if i % 2 else i + 1 for i in range(count))
        return sum(entry.callcount for entry in profile.getstats())

    calls_of(50)
    assert calls_of(800) < 5 * calls_of(200)


def test_what_is_written_reads_back(tmp_path):
    random = np.random.default_rng(5)
    variables = (Variable("x", 3, ("a", "b", "c")), Variable("yes", 2), Variable("z 1", 2))
    functions = (
        Function.from_array((0, 1), random.integers(0, 50, size=(3, 2))),
        Function((1, 2), [[0, 1]], np.array([2.5]), default=1.25),
        Function((0, 2), [[0, 1], [1, 1], [2, 0]], np.array([1, 2, 3])),
    )
    hard = (Constraint((0,), [[1]]), Constraint((1, 2), [[0, 0], [0, 1], [1, 1]], allowed=True))
    linear = (LinearConstraint((0, 1), (np.array([0, 1, 2]), np.array([0, 2])), 3),)
    for semiring in (MIN_SUM, MAX_SUM):
        problem = Problem(variables, functions, hard, linear, constant=4, semiring=semiring, name="p: 1")
        dcop = Dcop(problem, ("one", "no", "idle"), (0, 1, 0))
        expected = dpop(dcop)
        for suffix in ("yaml", "yml.gz"):
            write(dcop, tmp_path / f"p.{suffix}")
            again = read_dcop(tmp_path / f"p.{suffix}")
            assert (again.agents, again.owner) == (dcop.agents, dcop.owner)
            assert again.problem.name == "p: 1"
            assert [(v.name, v.size) for v in again.problem.variables] == [("x", 3), ("yes", 2), ("z 1", 2)]
            found = dpop(again)
            assert found.value == expected.value
            assert problem.evaluate(found.assignment) == expected.value


def test_problems_without_agents_get_one_a_variable(tmp_path):
    write(Problem((Variable("x", 2),), (Function.from_array((0,), [3, 1]),)), tmp_path / "p.yaml")
    assert read_model(tmp_path / "p.yaml").agents == ("x",)
    assert read(tmp_path / "p.yaml").evaluate([1]) == 1


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(
        UnsupportedError, match="has costs to minimise or utilities to maximise; the semiring is sum-product"
    ):
        write(Problem((Variable("x", 2),), semiring=SUM_PRODUCT), tmp_path / "p.yaml")
    with pytest.raises(UnsupportedError, match="the label 'a b' has white space"):
        write(Problem((Variable("x", 1, ("a b",)),)), tmp_path / "p.yaml")


HEAD = (
    "objective: min\ndomains:\n  d: {values: [0, 1]}\nvariables:\n  x: {domain: d}\n  y: {domain: d}\nagents: [a, b]\n"
)
INTENTION = HEAD + "constraints:\n  c:\n    type: intention\n    function: "
TABLE = HEAD + "constraints:\n  c:\n    type: extensional\n    variables: [x, y]\n"

MALFORMED = [
    ("objective: [min\n", 2, "no YAML: while parsing a flow sequence"),
    ("objective: min\n\tdomains: 1\n", None, "no YAML|control"),
    ("- 1\n- 2\n", 1, "found a list, expected a mapping"),
    ("a: 1\n---\nb: 2\n", None, "found|expected"),
    (HEAD.replace("objective: min\n", ""), 1, "the file has no objective"),
    (HEAD.replace("min", "least"), 1, "found 'least', expected the objective, min or max"),
    (HEAD.replace("[a, b]", "[]"), 7, "variable x has no agent"),
    (HEAD.replace("agents: [a, b]\n", ""), 1, "variable x has no agent: the file names none under agents"),
    (HEAD.replace("[a, b]", "[a, a]"), 7, "found an agent twice"),
    (HEAD + "distribution_hints: {must_host: {c: [x]}}\n", 8, "must_host: found 'c', expected an agent"),
    (HEAD + "distribution_hints: {must_host: {a: [x], b: [x]}}\n", 8, "found x with a second agent"),
    (HEAD.replace("  y: {domain: d}", "  y: {domain: e}"), 6, "found 'e' as the domain of y, expected one of d"),
    (HEAD.replace("  y: {domain: d}", "  x: {domain: d}"), 6, "found 'x' twice in variables"),
    (HEAD.replace("[0, 1]", "[]"), 3, "found no value, or one twice"),
    (HEAD.replace("[0, 1]", "[3 .. 1]"), 3, "expected low .. high"),
    (HEAD.replace("{domain: d}", "{domain: d, initial_value: 7}", 1), 5, "found '7' as the value of x"),
    (HEAD + "constrains: {}\n", 8, "found 'constrains' in the file, expected one of"),
    (HEAD + "agents2: &anchor {}\n", 8, "found the anchor '&anchor', expected plain values only"),
    (HEAD + "name: !!python/object:os.system x\n", 8, "found the tag"),
    (HEAD + "name: *other\n", 8, "found the alias|undefined alias"),
    (INTENTION + "x +\n", 11, "constraint c: no expression"),
    (INTENTION + "x + w\n", 11, "constraint c: found 'w', expected a variable"),
    (INTENTION + '__import__("os").system("true")\n', 11, "which is not evaluated; expected arithmetic"),
    (INTENTION + "x.__class__\n", 11, r"found 'x.__class__', which is not evaluated"),
    (INTENTION + "'(lambda: 1)()'\n", 11, "which is not evaluated"),
    (INTENTION + "'[i for i in range(9)]'\n", 11, "which is not evaluated"),
    (INTENTION + "9 ** 9 ** 9 ** x\n", 11, "a power of more than 4096 bits"),
    (INTENTION + "1 / x\n", 11, "constraint c at x = 0: division by zero"),
    (INTENTION + "x - 'R'\n", 11, "at x = 0: 'R' is no number"),
    (INTENTION + "|\n      if x == y:\n        import os\n", 13, "found 'import os', which is not evaluated"),
    (INTENTION + "-1e999 * (x + 1)\n", 11, "infinitely good"),
    (HEAD + "constraints:\n  c: {type: intention}\n", 9, "constraint c has no function"),
    (HEAD + "constraints:\n  c: {type: magic}\n", 9, "has the type 'magic', expected intention or extensional"),
    (TABLE + "    values: {1: 0 0}\n", 10, "lists 1 of 4 assignments, expected all of them, or a default"),
    (TABLE + "    default: 0\n    values: {1: 0 2}\n", 13, "found the value '2', expected one of 0, 1"),
    (TABLE + "    default: 0\n    values: {1: 0}\n", 13, "found '0', expected 2 values"),
    (TABLE + "    default: 0\n    values: {one: 0 0}\n", 13, "found 'one', expected a cost of constraint c, a number"),
    (TABLE + "    default: 0\n    values: {1: 0 0, 2: 1 1 | 0 0}\n", 13, "found 0 0 twice"),
    (TABLE + f"    default: {'9' * 5000}\n", 12, "found '9{10,}…', expected the default of constraint c, a number"),
    (TABLE + "    default: 1.0e+400\n", 12, "found '1.0e.400', expected the default of constraint c, a number"),
    (
        INTENTION + "round(9 ** 999, -999999999)\n",
        11,
        "rounded to -999999999 digits, expected an integer",
    ),
    (INTENTION + f"({' * '.join(['9 ** 999'] * 900)}) % 7\n", 11, "a product of more than 4096 bits"),
    (INTENTION + "1 if x in 'abc' else 0\n", 11, "at x = 0: 'abc' has nothing in it"),
    (INTENTION + f"x + int('{'9' * 999}')\n", 11, "'9{10,}… is no number"),
    (
        HEAD.replace("[0, 1]", "[0 .. 99999999]"),
        3,
        "found 100,000,000 values, expected at most 1,048,576",
    ),
    (TABLE + "    default: some\n", 12, "found 'some', expected the default of constraint c, a number"),
    (TABLE.replace("[x, y]", "[x, x]") + "    default: 0\n", 11, "expected different variables"),
    (TABLE.replace("[x, y]", "[x, q]") + "    default: 0\n", 11, "found 'q', expected a variable"),
]


@pytest.mark.parametrize(("content", "line", "message"), MALFORMED)
def test_malformed(tmp_path, content, line, message):
    (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(FormatError, match=message) as caught:
        read_dcop(tmp_path / "p.yaml")
    assert str(tmp_path / "p.yaml") in str(caught.value)
    assert line is None or caught.value.line == line


def test_code_in_another_file_is_not_run(tmp_path):
    (tmp_path / "p.yaml").write_text(INTENTION + 'source.f(x)\n    source: "./code.py"\n')
    with pytest.raises(UnsupportedError, match=r"line 12: constraint c is code in another file, which is not run"):
        read_dcop(tmp_path / "p.yaml")


def test_deep_nodes_are_refused(tmp_path):
    (tmp_path / "p.yaml").write_text("a: " + "[" * 100 + "]" * 100)
    with pytest.raises(FormatError, match="found nodes 65 deep, expected at most 64"):
        read_dcop(tmp_path / "p.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 if x < 2 <= y else 0", 1),
        ("1if x < 2 else 0", 1),  # which Python advises against
        ("abs(x - y) * 10 + round(0.7 * y)", 11),
        ("x in (1, 3) and not y == 3", 1),
        ("x or y", 1),
        ("min(x, y, 0.5) // 1", 0),
        ("-x ** 2 + y % 2", -1),
        ("max(x, y) if x != y else 9", 2),
        ("2 ** -1", 0.5),
        ("float(x) / 4", 0.25),
        ("round(x / 3, y)", 0.33),
        ("1 if 'b' in 'abc' else 0", 1),
        ("float('inf') if x == y else 3", 3),
        ("-float('inf') if x != y else 3", -math.inf),
        ("sum([x, y, 3]) + len([x, y]) + max((x, y))", 10),
        ("10 if any([x == 2, y == 2]) and not all([x == 2, y == 2]) else 0", 10),
        ("a = x + y\nif a > 2:\n  b = [a, 5]\n  return min(b)\nreturn a", 3),
    ],
)
def test_expressions(text, value):
    assert parse_expression(text).value({"x": 1, "y": 2}) == value


def body_of_conditions(count):
    """So many conditions, one after the other, each within another and without ``else``."""
    return "\n".join(f"if x == {i}:\n  if y == {i}:\n    return {i}" for i in range(count)) + "\nreturn -1"


@pytest.mark.parametrize(("x", "y", "value"), [(0, 0, 0), (39, 39, 39), (3, 4, -1), (40, 40, -1)])
def test_bodies_are_read_once(x, y, value):
    assert parse_expression(body_of_conditions(40)).value({"x": x, "y": y}) == value


@pytest.mark.parametrize("text", ["if x:\n  return 1", "if x:\n  if y:\n    return 1\nelse:\n  return 0"])
def test_bodies_return(text):
    with pytest.raises(ExpressionError, match="ends without return"):
        parse_expression(text)


@pytest.mark.parametrize(
    "text",
    ["x[0]", "f'{x}'", "x := 1", "x @ y", "open('f')", "print(x)", "abs(x, key=1)", "b'x'", "...", "x if", "", "1j",
     "~x", "yield x", "await x", "x; y", "return", "while x: pass", "x = 1", "del x",
     "(" * 300 + ")" * 300, "'a' * 9",
     "'%s' % x", "{x: y}", "*x", "min(*x)", "x.real"],
)  # fmt: skip
def test_nothing_else_is_evaluated(text):
    with pytest.raises(ExpressionError):
        parse_expression(text).value({"x": 1, "y": 2})


def test_infinite_costs_forbid(tmp_path):
    (tmp_path / "p.yaml").write_text(INTENTION + "1e999 if x == y else x\n")
    problem = read(tmp_path / "p.yaml")
    assert problem.evaluate([0, 0]) is None
    assert math.isclose(problem.evaluate([1, 0]), 1)


VARIABLES = ["v1", "v2", "v3", "v4", "u", "t1", "t2", "e5"]
ALIKE = [
    ("5 if v1 == v2 else v1", [("v1", "v2"), ("v2", "v3"), ("v3", "v1"), ("v1", "v4")]),
    ("v1 if v2 > 1 else 0.5 * v1", [("v1", "v2"), ("v2", "v1")]),
    ("1 if t1 == 'v1' else 2 if t1 == 'v2' else 0", [("t1",), ("t2",)]),
    ("2 * v1 # v2's\n", [("v1",), ("v2",)]),
    ("e5 + 1e5 + v1", [("v1",), ("v2",)]),
    ("a = v1\nreturn a + v2", [("v1", "v2"), ("v2", "v1")]),
]


def test_expressions_alike_are_evaluated_once_for_each_domain(tmp_path, monkeypatch):
    """Reading a thousand of them over 50 x 50 values took seconds."""
    calls = []
    evaluate = PythonExpression.value
    monkeypatch.setattr(PythonExpression, "value", lambda self, values: calls.append(1) or evaluate(self, values))
    lines = [
        "name: p",
        "objective: min",
        "domains: {d: {values: [1 .. 3]}, e: {values: [1 .. 2]}, t: {values: [v1, v2]}}",
    ]
    lines += ["variables:"] + [f"  {v}: {{domain: {d}}}" for v, d in zip(VARIABLES, "dddeettd", strict=True)]
    lines += ["agents: [a]", "constraints:"]
    texts = []
    for text, scopes in ALIKE:
        for scope in scopes:
            names = dict(zip(scopes[0], scope, strict=True))
            texts.append(re.sub(r"'[^']*'|\w+", lambda m, names=names: names.get(m[0], m[0]), text))
            lines += [f"  c{len(texts)}:", "    type: intention", f"    function: {json.dumps(texts[-1])}"]
    (tmp_path / "p.yaml").write_text("\n".join(lines))
    problem = read(tmp_path / "p.yaml")
    for text, function in zip(texts, problem.functions, strict=True):
        expression = parse_expression(text)
        assert {problem.variables[v].name for v in function.scope} == set(expression.names)
        for row in itertools.product(*(range(problem.variables[v].size) for v in function.scope)):
            labels = {
                problem.variables[v].name: problem.variables[v].label(k)
                for v, k in zip(function.scope, row, strict=True)
            }
            values = {name: int(label) if label.isdigit() else label for name, label in labels.items()}
            at = [0] * len(problem.variables)
            for v, k in zip(function.scope, row, strict=True):
                at[v] = k
            assert function.value_at(at) == evaluate(expression, values)
    assert len(calls) < sum(len(function.values) for function in problem.functions)


def test_infinite_costs_beside_a_default_forbid(tmp_path):
    """Hard and soft tuples in one table, as people write colourings; it was refused."""
    table = "{type: extensional, variables: [v1, v2], default: 0, values: {.inf: R R | G G, 3: R G}}"
    (tmp_path / "p.yaml").write_text(
        "name: p\nobjective: min\ndomains: {d: {values: [R, G, B]}}\nvariables: {v1: {domain: d}, v2: {domain: d}}\n"
        f"constraints:\n  c: {table}\nagents: [a]\n"
    )
    problem = read(tmp_path / "p.yaml")
    found = {row: problem.evaluate(row) for row in itertools.product(range(3), repeat=2)}
    assert found == {**dict.fromkeys(found, 0), (0, 0): None, (1, 1): None, (0, 1): 3}
    assert oocbe.solve(problem, order_seconds=0).value == 0


@pytest.mark.parametrize("cost", [10_000, 2**53 + 1, 2**62, 1e20, -(2**53) - 1])
@pytest.mark.parametrize("semiring", [oocbe.MIN_SUM, oocbe.MAX_SUM])
def test_forbidden_rows_stay_forbidden_beside_costs_of_any_size(cost, semiring, tmp_path):
    variables = (Variable("x", 3),)
    listed = Function((0,), np.array([[0], [1]]), np.array([cost, 0]), None)
    unlisted = Constraint((0,), np.array([[1]]), allowed=False)
    for parts in ((listed,), (listed, Function((0,), np.array([[2]]), np.array([cost]), 0))):
        for constraints in ((), (unlisted,)):
            problem = Problem(variables, parts, constraints, semiring=semiring)
            write(problem, tmp_path / "p.yaml")
            found = read(tmp_path / "p.yaml")
            assert [found.evaluate([x]) for x in range(3)] == [problem.evaluate([x]) for x in range(3)]
            assert found.is_integral == problem.is_integral


def test_owners_are_read_once_for_all_agents():
    """A scan of all variables for each agent took seven seconds for 16,000 agents."""

    class Counted(tuple):
        reads = 0

        def __iter__(self):
            Counted.reads += 1
            return super().__iter__()

    problem = Problem(tuple(Variable(f"v{i}", 2) for i in range(5)))
    text = pydcop.render(Dcop(problem, ("a", "b", "c", "d"), Counted((3, 0, 3, 1, 0))))
    assert text.endswith("  must_host:\n    a: [v1, v4]\n    b: [v3]\n    d: [v0, v2]\n")
    assert Counted.reads <= 2
