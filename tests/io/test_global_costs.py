"""Global cost functions of toulbar2's formats: by definition, by toulbar2, as one table and as walks over states."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.io import global_costs, read

SIZES, TOP = (3, 3, 2, 3), 60
DFA = {(0, 0): 0, (0, 1): 1, (1, 1): 1, (1, 2): 0}  # from a state by a value


def counts(row):
    return [row.count(value) for value in range(3)]


def beyond(low, high):
    return lambda count: max(0, low - count, count - high)


def changes(row):
    """How many values of a row have to change until the automaton takes it, 1 its only last state."""
    words = (w for w in itertools.product(range(3), repeat=4) if run(w))
    return min(sum(a != b for a, b in zip(row, word, strict=True)) for word in words)


def run(word):
    state = 0
    for value in word:
        state = DFA.get((state, value))
    return state == 1


REGULAR = "2 1 0 1 1 4 0 0 0 0 1 1 1 1 1 1 2 0"


def weigh(row):
    cost, state = 2, 0
    for value in row:
        if (state, value) not in DFA:
            return math.inf
        cost, state = cost + 1 + value, DFA[state, value]
    return cost + (3 if state == 0 else 0)


FUNCTIONS = {
    "salldiff var 7": lambda row: 7 * (4 - len(set(row))),
    "salldiff dec 7": lambda row: 7 * sum(math.comb(c, 2) for c in counts(row)),
    "salldiffdp var 5": lambda row: 5 * (4 - len(set(row))),
    "walldiff quad 5": lambda row: 5 * sum(max(0, c - 1) ** 2 for c in counts(row)),
    "samong var 7 1 2 2 1 2": lambda row: 7 * beyond(1, 2)(4 - counts(row)[0]),
    "samong var 70 1 2 2 1 2": lambda row: math.inf * b if (b := beyond(1, 2)(4 - counts(row)[0])) else 0,
    "samongdp var 7 3 4 1 0": lambda row: 7 * beyond(3, 4)(counts(row)[0]),
    "wamong quad 3 2 1 2 0 1": lambda row: 3 * beyond(0, 1)(4 - counts(row)[0]) ** 2,
    "wamong hard 3 1 1 1 2": lambda row: 0 if 1 <= counts(row)[1] <= 2 else math.inf,
    "sgcc dec 4 2 0 1 2 1 2 3": lambda row: 4 * (beyond(1, 2)(counts(row)[0]) + beyond(2, 3)(counts(row)[1])),
    "wgcc lin 4 2 0 1 2 1 2 3": lambda row: 4 * (beyond(1, 2)(counts(row)[0]) + beyond(2, 3)(counts(row)[1])),
    "wsum lin 4 == 3": lambda row: 4 * abs(sum(row) - 3),
    "wsum quad 2 < 3": lambda row: 2 * max(0, sum(row) - 2) ** 2,
    "wsum hard 2 >= 5": lambda row: 0 if sum(row) >= 5 else math.inf,
    f"sregular var 9 {REGULAR}": lambda row: 9 * changes(row),
    f"sregular var 90 {REGULAR}": lambda row: 0 if run(row) else math.inf,
    "wregular 2 1 0 2 2 1 0 0 3 4 0 0 0 1 0 1 1 2 1 1 1 2 1 2 0 3": weigh,
    "knapsackv 4 3 0 2 3 1 1 2 3 2 2": lambda row: (
        0 if 3 * (row[0] == 2) + 2 * (row[1] == 1) + 2 * (row[3] == 2) >= 4 else math.inf
    ),
}


def text_of(keyword, seed):
    rng = np.random.default_rng(seed)
    unary = [
        f"1 {v} 0 {size} " + " ".join(f"{a} {rng.integers(0, 12)}" for a in range(size)) for v, size in enumerate(SIZES)
    ]
    return "\n".join([f"p 4 3 5 {TOP}", "3 3 2 3", f"4 0 1 2 3 -1 {keyword}", *unary]) + "\n"


PEER = """
import os, sys, pytoulbar2
for path in sys.argv[1:]:
    if os.fork():  # a network leaves settings behind
        os.wait()
        continue
    network = pytoulbar2.CFN()
    try:
        network.Read(path)
        found = network.Solve()
    except network.Contradiction:
        found = None
    print(None if found is None else found[1], flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """Optimum of each function with costs of single values beside it, by toulbar2."""
    pytest.importorskip("pytoulbar2")
    folder = tmp_path_factory.mktemp("wcsp")
    paths = {}
    for number, keyword in enumerate(FUNCTIONS):
        paths[keyword] = folder / f"{number}.wcsp"
        paths[keyword].write_text(text_of(keyword, number))
    done = subprocess.run([sys.executable, "-c", PEER, *paths.values()], capture_output=True, text=True, check=True)
    return dict(zip(FUNCTIONS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("cells", [global_costs.MOST_CELLS, 0], ids=["table", "states"])
@pytest.mark.parametrize("keyword", FUNCTIONS)
def test_costs_are_those_of_the_definition_and_of_toulbar2(tmp_path, monkeypatch, peer, keyword, cells):
    monkeypatch.setattr(global_costs, "MOST_CELLS", cells)
    path = tmp_path / "p.wcsp"
    seed = list(FUNCTIONS).index(keyword)
    path.write_text(text_of(keyword, seed))
    problem = read(path)
    assert (len(problem.variables) == 4) or cells == 0
    alone = read_alone(tmp_path, keyword)
    best = math.inf
    for row in itertools.product(*map(range, SIZES)):
        expected = FUNCTIONS[keyword](row)
        assert cost_of(alone, row) == (expected if expected < TOP else math.inf)
        best = min(best, cost_of(problem, row))
    assert str(best) == peer[keyword].removesuffix(".0").replace("None", "inf")


def read_alone(folder, keyword):
    path = folder / "alone.wcsp"
    path.write_text("\n".join([f"p 4 3 1 {TOP}", "3 3 2 3", f"4 0 1 2 3 -1 {keyword}"]))
    return read(path)


def cost_of(problem, row):
    """What a row costs; there is one walk over states at most."""
    found = [problem.evaluate(whole) for whole in walks(problem, tables_of(problem), tuple(row))]
    costs = [cost for cost in found if cost is not None]
    assert len(costs) <= 1
    return costs[0] if costs else math.inf


def tables_of(problem):
    """Scopes by their last variable, each with the rows that are feasible, where others are not."""
    listed = [(f.scope, f.tuples) for f in problem.functions if f.default is None]
    listed += [(c.scope, c.tuples) for c in problem.constraints if c.allowed]
    tables = {}
    for scope, tuples in listed:
        tables.setdefault(max(scope), []).append((scope, set(map(tuple, tuples.tolist()))))
    return tables


def walks(problem, tables, row):
    """Rows completed by states, one after the other."""
    if len(row) == len(problem.variables):
        return [row]
    rows = [(*row, state) for state in range(problem.sizes[len(row)])]
    good = [r for r in rows if all(tuple(r[v] for v in scope) in known for scope, known in tables.get(len(row), ()))]
    return [done for r in good for done in walks(problem, tables, r)]


CFN_TYPES = {
    "salldiff metric: var cost: 7": "salldiff var 7",
    "samong metric: var cost: 7 min: 1 max: 2 values: [1 2]": "samong var 7 1 2 2 1 2",
    "wamong metric: quad cost: 3 values: [1, 2] min: 0 max: 1": "wamong quad 3 2 1 2 0 1",
    "sgcc metric: dec cost: 4 bounds: [[0 1 2] [1 2 3]]": "sgcc dec 4 2 0 1 2 1 2 3",
    'wsum metric: quad cost: 2 comparator: "<" to: 3': "wsum quad 2 < 3",
    "sregular metric: var cost: 9 nb_states: 2 starts: [0] ends: [1] transitions: [[0 0 0][0 1 1][1 1 1][1 2 0]]": (
        f"sregular var 9 {REGULAR}"
    ),
    "wregular nb_states: 2 starts: [[0 2]] ends: [[1 0] [0 3]] transitions: [[0 0 0 1][0 1 1 2][1 1 1 2][1 2 0 3]]": (
        "wregular 2 1 0 2 2 1 0 0 3 4 0 0 0 1 0 1 1 2 1 1 1 2 1 2 0 3"
    ),
    "knapsackv capacity: 4 weightedvalues: [[a 2 3] [b 1 2] [d 2 2]]": "knapsackv 4 3 0 2 3 1 1 2 3 2 2",
}


def cfn_of(kind, parameters, seed):
    rng = np.random.default_rng(seed)
    unary = [
        f"{{scope: [{v}] costs: {rng.integers(0, 12, size).tolist()}}}" for v, size in zip("abcd", SIZES, strict=True)
    ]
    head = f'{{problem: {{name: p mustbe: "<{TOP}"}}\nvariables: {{a: 3 b: 3 c: 2 d: 3}}\nfunctions: {{'
    function = f"f: {{scope: [a b c d] type: {kind} params: {{{parameters}}}}}"
    return "\n".join([head, function, *unary, "}}"])


@pytest.fixture(scope="module")
def cfn_peer(tmp_path_factory):
    pytest.importorskip("pytoulbar2")
    folder = tmp_path_factory.mktemp("cfn")
    paths = []
    for number, told in enumerate(CFN_TYPES):
        paths.append(folder / f"{number}.cfn")
        paths[-1].write_text(cfn_of(*told.split(" ", 1), number))
    done = subprocess.run([sys.executable, "-c", PEER, *paths], capture_output=True, text=True, check=True)
    return dict(zip(CFN_TYPES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("cells", [global_costs.MOST_CELLS, 0], ids=["table", "states"])
@pytest.mark.parametrize("told", CFN_TYPES)
def test_types_of_cfn_are_keywords_of_wcsp(tmp_path, monkeypatch, cfn_peer, told, cells):
    monkeypatch.setattr(global_costs, "MOST_CELLS", cells)
    path = tmp_path / "p.cfn"
    path.write_text(cfn_of(*told.split(" ", 1), list(CFN_TYPES).index(told)))
    problem = read(path)
    alone = read_alone(tmp_path, CFN_TYPES[told])
    assert [v.name for v in problem.variables][:4] == list("abcd")
    best = math.inf
    for row in itertools.product(*map(range, SIZES)):
        cost = cost_of(problem, row)
        unary = sum(f.value_at(row) for f in problem.functions if len(f.scope) == 1 and f.scope[0] < 4)
        expected = cost_of(alone, row) + unary
        assert cost == (expected if expected < TOP else math.inf)
        best = min(best, cost)
    assert str(best) == cfn_peer[told].removesuffix(".0")


RELATIONS = {
    ">= 1 2": lambda x, y: y + 1 - x,
    "> 0 1": lambda x, y: y + 1 - x,
    "<= -1 9": lambda x, y: x + 1 - y,
    "< 0 9": lambda x, y: x + 1 - y,
    "= 1 2": lambda x, y: abs(y + 1 - x),
    "disj 1 2 7": lambda x, y: 0 if x >= y + 2 or y >= x + 1 else 7,
}


@pytest.mark.parametrize("keyword", RELATIONS)
def test_relations_of_two_variables(tmp_path, keyword):
    path = tmp_path / "p.wcsp"
    path.write_text(f"p 2 4 1 {TOP}\n4 4\n2 0 1 -1 {keyword}\n")
    problem, most = read(path), 7 if keyword.startswith("disj") else int(keyword.split()[2])
    for x, y in itertools.product(range(4), repeat=2):
        cost = max(0, RELATIONS[keyword](x, y))
        assert problem.evaluate((x, y)) == (cost if cost <= most else None)


def test_sums_that_must_hold_are_linear_and_large_ones_are_walks(tmp_path):
    scope = " ".join(map(str, range(13)))
    path = tmp_path / "p.wcsp"
    for keyword, linear, states in [("wamong hard 5 1 1 2 4", 2, 0), ("wamong lin 5 1 1 2 4", 0, 12)]:
        path.write_text(f"p 13 2 1 {TOP}\n{'2 ' * 13}\n13 {scope} -1 {keyword}\n")
        problem = read(path)
        assert (len(problem.linear_constraints), len(problem.variables)) == (linear, 13 + states)
    assert oocbe.count(problem).value == 2**13  # a walk for each assignment, and one only


@pytest.mark.parametrize(
    ("keyword", "error", "message"),
    [
        (
            "ssame 1 1 1 0 1",
            UnsupportedError,
            "line 3: the global cost function 'ssame' is not supported; those that are: s",
        ),
        (
            "sgcc var 1 0",
            UnsupportedError,
            "line 3: the global cost function 'sgcc' with 'var' is not supported, only with dec",
        ),
        ("salldiff var -1", FormatError, "line 3: found -1, expected a cost, at least 0"),
        ("samong var 1 0 1 2 1", FormatError, "line 3: the file ends, expected a value"),
        ("sregular var 1 2 1 2 0 0", FormatError, "line 3: found 2, expected a state, between 0 and 1"),
        ("wsum lin 1 <> 2", FormatError, "line 3: found '<>', expected a comparator"),
        ("knapsackv 1 1 5 0 1", FormatError, r"line 3: found variable 5, expected one of the scope \(0, 1\)"),
    ],
)
def test_what_is_refused_is_named_with_its_line(tmp_path, keyword, error, message):
    path = tmp_path / "p.wcsp"
    path.write_text(f"p 2 2 1 9\n2 2\n2 0 1 -1 {keyword}\n")
    with pytest.raises(error, match=message):
        read(path)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            "type: ssame params: {cost: 1}",
            UnsupportedError,
            "line 4: function 'f' is of type 'ssame', which is not supported",
        ),
        ("type: salldiff params: {metric: var cost: 0.5}", UnsupportedError, "line 4: .* costs 0.5; only integers"),
        (
            "type: salldiff params: {metric: var}",
            FormatError,
            "line 4: found the parameters metric, expected those of 's",
        ),
        ("type: salldiff params: {metric: var cost: x}", FormatError, "line 4: found 'x', expected a cost, an integer"),
        ("type: salldiff params: {metric: var cost: [[[[1]]]]}", FormatError, "line 4: found a list within 3 others"),
    ],
)
def test_types_that_are_refused_are_named_with_their_line(tmp_path, function, error, message):
    path = tmp_path / "p.cfn"
    head = '{problem: {name: p mustbe: "<9"}\nvariables: {x: 2 y: 2}\nfunctions: {\n'
    path.write_text(f"{head}f: {{scope: [x y] {function}}}}}}}")
    with pytest.raises(error, match=message):
        read(path)
