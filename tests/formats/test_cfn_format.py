"""Reading toulbar2's JSON: meaning, freedoms of the format, and every kind of damage with its line."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read

STRICT = """{
  "problem": { "name": "pair", "mustbe": "<12.50" },
  "variables": { "x": ["a", "b", "c"], "y": 2 },
  "functions": {
    "shared": { "scope": ["x", "y"], "costs": "dense" },
    "sparse": { "scope": ["x", "y"], "defaultcost": 0.25, "costs": ["a", 0, 5, "a", 1, 20, "c", 0, -7.5] },
    "dense": { "scope": ["x", "y"], "costs": [4.2, 3.5, -2.1, 7.1, 12.5, 1.2] },
    "constant": { "scope": [], "costs": [1.5] }
  }
}
"""
LAX = """# quotes, commas, colons and tags are left out
{ {pair <12.50}
  [x [a b c] y 2]
  { shared {[x y] dense}
# another comment
    sparse {[0 1] defaultcost 0.25 [a 0 5 a 1 20 c 0 -7.5]}
    dense {{x y} {4.2 3.5 -2.1 7.1 12.5 1.2}}
    {[] [1.5]} } }
"""


def read_text(tmp_path, text):
    path = tmp_path / "pair.cfn"
    path.write_text(text)
    return read(path)


@pytest.mark.parametrize("text", [STRICT, LAX])
def test_meaning(tmp_path, text):
    """The limit is one of sums: 20 alone reaches it, 12.5 does not beside -7.5."""
    problem = read_text(tmp_path, text)
    assert (problem.name, problem.semiring.name, problem.upper_bound) == ("pair", "min-sum", 12.495)
    assert problem.variables[0].labels == ("a", "b", "c")
    dense = np.array([[4.2, 3.5], [-2.1, 7.1], [12.5, 1.2]])
    sparse = np.array([[5, 20], [0.25, 0.25], [-7.5, 0.25]])
    for x, y in np.ndindex(3, 2):
        total = 1.5 + 2 * dense[x, y] + sparse[x, y]
        value = problem.evaluate((x, y))
        assert value is None if total >= 12.5 else value == pytest.approx(total)


def test_integers_stay_integers_and_sums_are_maximised(tmp_path):
    text = '{problem: {n "<100"} variables: {x 2, y 2} functions: {f: {scope: [x y], costs: [1 2 3 100]}}}'
    problem = read_text(tmp_path, text)
    assert problem.is_integral
    assert oocbe.solve(problem, order_seconds=0).value == 1
    assert problem.evaluate((1, 1)) is None
    best = read_text(tmp_path, text.replace("<100", ">-1").replace("100]", "-1]"))
    assert best.semiring.name == "max-sum"
    result = oocbe.solve(best, order_seconds=0)
    assert (result.value, result.assignment) == (3, (1, 0))
    none = read_text(tmp_path, text.replace("<100", ">3").replace("100]", "-1]"))
    assert oocbe.solve(none, order_seconds=0).status == "infeasible"


@pytest.mark.parametrize(
    ("damage", "line", "message"),
    [
        (('"<12.50"', '"12.50"'), 2, "mustbe"),
        (('"<12.50"', '"<many"'), 2, "mustbe"),
        (('["a", "b", "c"]', '["a", "b", "a"]'), 3, "a value twice"),
        (('"y": 2', '"x": 2'), 3, "a second time"),
        (('"y": 2', '"y": 0'), 3, "at least 1"),
        (('"y": 2', '"y": -2'), 3, "interval"),
        (('"y": 2', '"y": two'), 3, "an integer"),
        (('["x", "y"], "costs": "dense"', '["x", "z"], "costs": "dense"'), 5, "declared before"),
        (('["x", "y"], "costs": "dense"', '["x", 7], "costs": "dense"'), 5, "between 0 and 1"),
        (('"costs": "dense"', '"costs": "sprase"'), 5, "'sprase'"),
        (('"costs": "dense"', '"costs": "shared"'), 5, "follows"),
        (('["x", "y"], "costs": "dense"', '["y", "x"], "costs": "dense"'), 5, "domain sizes"),
        (('"a", 1, 20', '"a", 0, 20'), 6, "a second time"),
        (('"a", 1, 20', '"a", 2, 20'), 6, "between 0 and 1"),
        (('"a", 1, 20', '"d", 1, 20'), 6, "an integer"),
        (('"a", 1, 20', '"a", 1, x'), 6, "a finite number"),
        (("4.2, 3.5, ", "4.2, "), 7, "found 5 costs"),
        (("4.2, 3.5", "4.2, 1e999"), 7, "a finite number"),
        (('"costs": [1.5] }', '"type": "salldiff", "params": {} }'), 8, "'salldiff'"),
        (("  }\\n}", "  }"), 9, "the end of the file"),
        (("  }\\n}", "  }\\n} }"), 10, "the end of the file"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_its_line(tmp_path, damage, line, message):
    before, after = (part.replace("\\n", "\n") for part in damage)
    assert before in STRICT
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        read_text(tmp_path, STRICT.replace(before, after, 1))
    assert message in str(caught.value)
    assert f"pair.cfn, line {line}:" in str(caught.value)


WORKER = """
import json, sys, pytoulbar2
network = pytoulbar2.CFN()
network.Read(sys.argv[1])
solution = network.Solve()
print("\\n" + json.dumps(None if solution is None else [list(map(int, solution[0])), solution[1]]))
"""


@pytest.mark.parametrize(
    ("mustbe", "constant", "first", "second", "optimum"),
    [
        ("<-3.0", "0", "-2.0 0.5", "-2.5 1.0", -4.5),
        ("<10", "12", "0 -4", "0 0", 8),
        ("<10", "0", "12 13", "0 -8", 4),
        (">-5", "-6", "1 4", "0 0", -2),
        (">-5", "0", "-7 -6", "0 20", 14),
        (">5.0", "1", "2 5.5", "0 0", 6.5),
        (">7", "1", "2 5", "0 0", None),
        ("<0", "0", "0 0", "0 0", None),
        ("<0.8", "0", "0.7 0.9", "0.1 0.1", None),
        ("<0.81", "0", "0.7 0.9", "0.1 0.1", 0.8),
        ("<9", "1.99", "0.5 -1.5", "7 8", 7),
        ("<9.0", "1.99", "0.55 -1.55", "7 8", 7.4),
        (">-9.0", "0", "inf -1.55", "-7 -8", -8.5),
        ("<9", "inf", "1 2", "1 2", None),
    ],
)
def test_the_limit_is_one_of_the_sum_and_gives_its_decimals(tmp_path, mustbe, constant, first, second, optimum):
    """As toulbar2 (1.4) has it."""
    text = f"""{{ {{n "{mustbe}"}} {{x 2 y 2}}
    {{ {{[] [{constant}]}} {{[x] [{first}]}} {{[y] 0 [0 {second.split()[0]} 1 {second.split()[1]}]}} }} }}"""
    result = oocbe.solve(read_text(tmp_path, text), order_seconds=0)
    assert result.value == (None if optimum is None else pytest.approx(optimum))


def test_freedoms_of_names_comments_and_scopes(tmp_path):
    text = """{ {n "<100"} {2 y [a b] 3}
    { {[x0] [1 0]} // a comment } ] {
      {[2 0] 5 [v1 v1 0]}
      f {[y y] [1 50 60 2]} } }"""
    problem = read_text(tmp_path, text)
    for x, y, z in np.ndindex(2, 2, 3):
        expected = [1, 0][x] + (0 if (z, x) == (1, 1) else 5) + [1, 2][y]
        assert problem.evaluate((x, y, z)) == expected


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ("f {[x y] 3 g} g {[x y] [1 2 3 4]}", "found a default cost of function 'f', which shares"),
        ("f {[x y] g} g {[x y] [1 2 3 4]} g {[x y] [1 2 3 4]}", "two functions of this name"),
    ],
)
def test_sharing_that_says_two_things_is_refused(tmp_path, functions, said):
    with pytest.raises(FormatError, match=said):
        read_text(tmp_path, f'{{ {{n "<9"}} {{x 2 y 2}} {{ {functions} }} }}')


@pytest.mark.parametrize("seed", range(4))
def test_the_same_optimum_as_toulbar2(tmp_path, seed):
    pytest.importorskip("pytoulbar2")
    random = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(7)]
    functions = {}
    for number in range(12):
        scope = random.choice(7, size=random.integers(1, 4), replace=False)
        costs = np.round(random.random(3 ** len(scope)) * 9 - 2, 2)
        costs[random.random(len(costs)) < 0.2] = 50
        functions[f"f{number}"] = {"scope": [names[v] for v in scope], "costs": costs.tolist()}
    content = {
        "problem": {"name": "random", "mustbe": "<50.00"},
        "variables": {name: ["a", "b", "c"] for name in names},
        "functions": functions,
    }
    path = tmp_path / "random.cfn"
    path.write_text(json.dumps(content))
    done = subprocess.run([sys.executable, "-c", WORKER, str(path)], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.strip().splitlines()[-1])
    ours = oocbe.solve(path, order_seconds=0)
    if theirs is None:
        assert ours.status == "infeasible"
    else:
        assert ours.value == pytest.approx(theirs[1], abs=1e-9)
        assert read(path).evaluate(theirs[0]) == pytest.approx(theirs[1], abs=1e-9)


@pytest.mark.parametrize(
    ("printed", "value"),
    [("0" * 5000 + "7", 7), ("-" + "0" * 5000 + "7", -7), ("7." + "0" * 5000, 7.0), ("1" + "0" * 30, 1e30)],
    ids=["zeros before", "and a sign", "zeros behind", "a float"],
)
def test_numbers_of_any_length(tmp_path, printed, value):
    text = '{problem:{name:p,mustbe:"<1e40"},variables:{x:[a b]},functions:{f:{scope:[x],costs:[0 %s]}}}'
    if isinstance(value, int):
        text = text.replace("1e40", "0" * 5000 + "100")
    function = read_text(tmp_path, text % printed).functions[0]
    assert function.value_at((1,)) == value
    assert function.is_integral == isinstance(value, int)


def test_a_number_too_large_for_a_double_is_refused(tmp_path):
    text = '{problem:{name:p,mustbe:"<10"},variables:{x:[a b]},functions:{f:{scope:[x],costs:[0 %s]}}}'
    with pytest.raises(FormatError, match="finite number"):
        read_text(tmp_path, text % ("1" * 5000))


def test_costs_of_a_type_that_64_bits_do_not_hold_are_refused(tmp_path):
    """A cost below 0 elsewhere makes up for any other one, so that none is forbidden by itself."""
    text = """{ {n "<4000000000000000000"} {x 4 y 4} {
        {[x y] wsum {quad 4000000000000000000 == 30}}
        {[x] wregular {1 [[0 0]] [[0 0]] [[0 0 0 -1] [0 1 0 0]]}} } }"""
    with pytest.raises(UnsupportedError, match=r"pair.cfn: a function with a type costs up to 3.6e\+21, beyond the"):
        read_text(tmp_path, text)
