"""Global cost functions of toulbar2's formats: by definition, by toulbar2, as one table and as walks over states."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import global_costs, read
from oocbe.formats.global_costs import Decomposed

SIZES, TOP = (3, 3, 2, 3), 60
DFA = {(0, 0): 0, (0, 1): 1, (1, 1): 1, (1, 2): 0}  # from a state by a value


def counts(row):
    return [row.count(value) for value in range(3)]


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


def counted(price):
    return lambda row: sum(map(price, counts(row)))


def gap(value, low, high):
    return max(0, low - value, value - high)


def forbidden_unless(holds):
    return lambda row: 0 if holds(row) else math.inf


def same(price):
    """A price of how much oftener the first two variables have each value than the last two."""

    def cost(row):
        left, right = Counter(row[:2]), Counter(row[2:])
        return sum(price(left[value] - right[value]) for value in range(3))

    return cost


def same_within(row):
    """Both halves alike, and value 1 in each at most once, for 3 a step."""
    return same(lambda more: 3 * abs(more))(row) + 3 * (max(0, row[:2].count(1) - 1) + max(0, row[2:].count(1) - 1))


def overlaps(row):
    return sum(row[k] == row[k + 2] != 0 for k in range(2))


def is_tree(row):
    """Whether each variable gets to the only one that names itself by going to what it names."""
    ends = set()
    for start in range(4):
        for _ in range(4):
            start = row[start]
        ends.add(start)
    return len(ends) == 1 and row[min(ends)] in ends


def excess_and_shortage(row):
    low, high = ((1, 1), (1, 2)), counts(row)
    return max(
        sum(max(0, bounds[0] - count) for bounds, count in zip(low, high, strict=False)),
        sum(max(0, count - bounds[1]) for bounds, count in zip(low, high, strict=False)),
    )


WEIGHTS = {(0, 1): 9, (1, 0): 2, (3, 2): 0}

FUNCTIONS = {
    "salldiff var 7": lambda row: 7 * (4 - len(set(row))),
    "salldiff dec 7": counted(lambda c: 7 * math.comb(c, 2)),
    "salldiffdp var 5": lambda row: 5 * (4 - len(set(row))),
    "salldiffkp hard 60": lambda row: math.inf,
    "alldiff 1 0 0": forbidden_unless(lambda row: max(counts(row)[1:]) < 2),
    "walldiff quad 5": counted(lambda c: 5 * max(0, c - 1) ** 2),
    "walldifferent hard 5": counted(lambda c: 5 * (c > 1)),
    "samong var 7 1 2 2 1 2": lambda row: 7 * gap(4 - counts(row)[0], 1, 2),
    "samong var 70 1 2 2 1 2": forbidden_unless(lambda row: 1 <= 4 - counts(row)[0] <= 2),
    "samongdp var 7 3 4 1 0": lambda row: 7 * gap(counts(row)[0], 3, 4),
    "wamong quad 3 2 1 2 0 1": lambda row: 3 * gap(4 - counts(row)[0], 0, 1) ** 2,
    "wamong hard 3 1 1 1 2": lambda row: 3 * (not 1 <= counts(row)[1] <= 2),
    "wamong hard 60 1 1 1 2": forbidden_unless(lambda row: 1 <= counts(row)[1] <= 2),
    "wvaramong hard 5 2 1 2": lambda row: 5 * (sum(value > 0 for value in row[:3]) != row[3]),
    "gcc 2 0 1 2 1 0 1 0": forbidden_unless(lambda row: 1 <= counts(row)[0] <= 2 and counts(row)[1] <= 1),
    "sgcc dec 4 2 0 1 2 1 2 3": lambda row: 4 * (gap(counts(row)[0], 1, 2) + gap(counts(row)[1], 2, 3)),
    "sgcc wdec 4 2 0 1 1 7 2 1 0 1 9 3": lambda row: (
        7 * (counts(row)[0] < 1) + 2 * max(0, counts(row)[0] - 1) + 3 * max(0, counts(row)[1] - 1)
    ),
    "sgcc var 4 2 0 1 1 1 1 2": lambda row: 4 * excess_and_shortage(row),
    "sgccdp var 4 2 0 1 2 1 2 3": lambda row: 4 * (gap(counts(row)[0], 1, 2) + gap(counts(row)[1], 2, 3)),
    "sgcckp hard 60 1 0 1 2": forbidden_unless(lambda row: 1 <= counts(row)[0] <= 2),
    "wgcc lin 4 2 0 1 2 1 2 3": lambda row: 4 * (gap(counts(row)[0], 1, 2) + gap(counts(row)[1], 2, 3)),
    "wgcc hard 4 2 0 1 2 1 2 3": lambda row: 4 * ((gap(counts(row)[0], 1, 2) > 0) + (gap(counts(row)[1], 2, 3) > 0)),
    "ssame 4 2 2 0 1 2 3": same(lambda more: 4 * max(0, more)),
    "wsame hard 4": same(lambda more: 4 * (more != 0)),
    "wsame quad 2": same(lambda more: 2 * more**2),
    "wsamegcc lin 3 1 1 0 1": same_within,
    "woverlap quad 5 >= 2": lambda row: 5 * (2 - overlaps(row)) ** 2,
    "woverlap hard 5 < 1": lambda row: 5 * (overlaps(row) > 0),
    "wdiverse 3 0 1 1 2": forbidden_unless(lambda row: sum(a != b for a, b in zip(row, (0, 1, 1, 2), strict=True)) > 2),
    "clique 1 1 1 1 1 1 1 1 2": forbidden_unless(lambda row: (*row[:3], row[3] // 2).count(1) <= 1),
    "knapsack 3 2 -1 1 2": forbidden_unless(
        lambda row: sum(w * (a == 1) for w, a in zip((2, -1, 1, 2), row, strict=True)) > 2
    ),
    "knapsackp 2 2 0 1 2 3 0 1 1 2 1 1 -1": forbidden_unless(
        lambda row: (1, 0, 3)[row[0]] + 2 * row[2] - (row[3] == 1) >= 2
    ),
    "knapsackv 4 3 0 2 3 1 1 2 3 2 2": forbidden_unless(
        lambda row: 3 * (row[0] == 2) + 2 * (row[1] == 1) + 2 * (row[3] == 2) >= 4
    ),
    "wsum lin 4 == 3": lambda row: 4 * abs(sum(row) - 3),
    "wsum quad 2 < 3": lambda row: 2 * max(0, sum(row) - 2) ** 2,
    "wsum hard 2 >= 5": lambda row: 2 * (sum(row) < 5),
    "wsum hard 60 >= 5": forbidden_unless(lambda row: sum(row) >= 5),
    "wsum var 4 != 3": lambda row: 4 * (sum(row) == 3),
    "wvarsum lin 3 <=": lambda row: 3 * max(0, sum(row[:3]) - row[3]),
    "wvarsum hard 3 >": lambda row: 3 * (sum(row[:3]) <= row[3]),
    f"sregular var 9 {REGULAR}": lambda row: 9 * changes(row),
    f"sregular var 90 {REGULAR}": forbidden_unless(run),
    f"sregulardp var 9 {REGULAR}": lambda row: 9 * changes(row),
    "wregular 2 1 0 2 2 1 0 0 3 4 0 0 0 1 0 1 1 2 1 1 1 2 1 2 0 3": weigh,
    "wregular 1 0 1 0 3 4 0 0 0 9 0 0 0 1 0 1 0 2 0 2 0 4": lambda row: 3 + sum((1, 2, 4)[value] for value in row),
    "sgrammardp var 7 4 3 0 6 1 0 0 0 1 0 1 2 1 0 1 3 1 2 0 3 0 1 0 0 3 1": lambda row: (
        7 * min(sum(a != b for a, b in zip(row, word, strict=True)) for word in ((0, 0, 1, 1), (0, 1, 0, 1)))
    ),
    "sgrammar weight 0 2 3 0 5 2 1 0 1 2 1 1 5 3 0 1 1 2 3 0 0 1 2 3 1 1 1 4": lambda row: (
        math.inf if 2 in row else sum((1, 5)[value] for value in row) + 6
    ),
    "smaxdp 4 3 0 1 9 1 0 2 3 2 0": lambda row: max(WEIGHTS.get(pair, 4) for pair in enumerate(row)),
    "max 4 3 0 1 90 1 0 2 3 2 0": lambda row: (
        math.inf if row[0] == 1 else max(WEIGHTS.get(pair, 4) for pair in enumerate(row))
    ),
    "MST": forbidden_unless(is_tree),
}
"""Keywords with parameters, over four variables, and what each assignment costs, below the upper bound."""


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


def test_moves_to_states_that_there_are_none_of_are_those_of_toulbar2_s_array(tmp_path):
    """With two states and three values, (0, 1, 2) is (0, 2, 0) and (0, 2, 3) is (1, 0, 1); pytoulbar2 1.4 agrees."""
    head = f"p 3 3 1 {TOP}\n3 3 3\n3 0 1 2 -1 wregular 2 1 0 1 2 0 0 1 2"
    moves = ["0 1 2 4", "0 0 0 1", "0 2 3 5", "1 1 0 3", "1 5 9 7"]
    meant = ["0 2 0 4", "0 0 0 1", "1 0 1 5", "1 1 0 3"]
    path = tmp_path / "p.wcsp"
    costs = []
    for listed in (moves, meant):
        path.write_text(f"{head} {len(listed)} {' '.join(listed)}")
        problem = read(path)
        costs.append([cost_of(problem, row) for row in itertools.product(range(3), repeat=3)])
    assert costs[0] == costs[1]
    assert 0 < costs[0].count(math.inf) < 27
    path.write_text(f"{head} 1 1 2 2 0")
    with pytest.raises(FormatError, match="line 3: found 2, expected a state, between 0 and 1"):
        read(path)


def test_automata_over_domains_of_different_sizes_are_those_of_toulbar2(tmp_path):
    """A value that a variable does not have is of no effect there."""
    pytest.importorskip("pytoulbar2")
    paths, expected = [], []
    for seed in range(24):
        random = np.random.default_rng(seed)
        sizes, states = [(2, 4, 3), (4, 2, 2), (3, 2, 4)][seed % 3], int(random.integers(1, 4))

        def priced(rows, random=random):
            listed = [" ".join(map(str, [*row, random.integers(9)])) for row in rows]
            return " ".join([str(len(listed)), *listed])

        moves = [move for move in itertools.product(range(states), range(4), range(states)) if random.random() < 0.6]
        ends = [priced([(q,) for q in range(states) if q == 0 or random.random() < 0.5]) for _ in range(2)]
        words = ["p 3 4 4 900", " ".join(map(str, sizes)), f"3 0 1 2 -1 wregular {states}", *ends, priced(moves)]
        words += [f"1 {v} 0 {priced([(value,) for value in range(size)])}" for v, size in enumerate(sizes)]
        paths.append(tmp_path / f"{seed}.wcsp")
        paths[-1].write_text("\n".join(words))
        problem = read(paths[-1])
        expected.append(min(cost_of(problem, row) for row in itertools.product(*map(range, sizes))))
    done = subprocess.run([sys.executable, "-c", PEER, *paths], capture_output=True, text=True, check=True)
    found = [math.inf if line == "None" else float(line) for line in done.stdout.splitlines()]
    assert found == expected and len(set(expected)) > 8


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
    "salldiff metric: var cost: 0.7": "salldiff var 7",
    "alldiff exceptedvalues: [0] deltacosts: []": "alldiff 1 0 0",
    "samong metric: var cost: 0.7 min: 1 max: 2 values: [1 2]": "samong var 7 1 2 2 1 2",
    "wamong metric: quad cost: 0.30 values: [1, 2] min: 0 max: 1": "wamong quad 3 2 1 2 0 1",
    "sgcc metric: dec cost: 0.4 bounds: [[0 1 2] [1 2 3]]": "sgcc dec 4 2 0 1 2 1 2 3",
    "sgcc metric: wdec cost: 0.4 bounds: [[0 1 1 0.7 0.2] [1 0 1 0.9 0.3]]": "sgcc wdec 4 2 0 1 1 7 2 1 0 1 9 3",
    "gcc bounds: [[0 1 2] [1 0 1]] deltacosts: []": "gcc 2 0 1 2 1 0 1 0",
    "ssame cost: 0.4 vars1: [a 1] vars2: [c d]": "ssame 4 2 2 0 1 2 3",
    'wsum metric: quad cost: 0.2 comparator: "<" to: 3': "wsum quad 2 < 3",
    "sregular metric: var cost: 0.9 nb_states: 2 starts: [0] ends: [1] transitions: [[0 0 0][0 1 1][1 1 1][1 2 0]]": (
        f"sregular var 9 {REGULAR}"
    ),
    "wregular nb_states: 2 starts: [[0 .2]] ends: [[1 0] [0 .3]] "
    "transitions: [[0 0 0 .1][0 1 1 .2][1 1 1 .2][1 2 0 .3]]": (
        "wregular 2 1 0 2 2 1 0 0 3 4 0 0 0 1 0 1 1 2 1 1 1 2 1 2 0 3"
    ),
    "knapsack capacity: 3 weights: [2 -1 1 2]": "knapsack 3 2 -1 1 2",
    "knapsackv capacity: 4 weightedvalues: [[a 2 3] [b 1 2] [d 2 2]]": "knapsackv 4 3 0 2 3 1 1 2 3 2 2",
    "clique rhs: 1 values: [[1] [1] [1] [2]]": "clique 1 1 1 1 1 1 1 1 2",
    "wdiverse distance: 3 values: [0 1 1 2]": "wdiverse 3 0 1 1 2",
    "sgrammardp metric: var cost: 0.7 nb_symbols: 4 nb_values: 3 start: 0 terminals: [[1 0] [3 1]] "
    "non_terminals: [[0 0 0] [0 1 2] [0 1 3] [2 0 3]]": (
        "sgrammardp var 7 4 3 0 6 1 0 0 0 1 0 1 2 1 0 1 3 1 2 0 3 0 1 0 0 3 1"
    ),
    "sgrammar metric: weight cost: 0 nb_symbols: 2 nb_values: 3 start: 0 terminals: [[1 0 .1] [1 1 .5]] "
    "non_terminals: [[0 1 1 .2] [0 0 1 .2] [1 1 1 .4]]": (
        "sgrammar weight 0 2 3 0 5 2 1 0 1 2 1 1 5 3 0 1 1 2 3 0 0 1 2 3 1 1 1 4"
    ),
    "smaxdp defaultcost: 0.4 tuples: [[a 1 0.9] [b 0 0.2] [3 2 0]]": "smaxdp 4 3 0 1 9 1 0 2 3 2 0",
    "MST ": "MST",
}
"""Types with parameters, costs a tenth of those of a keyword."""


def cfn_of(kind, parameters, seed):
    rng = np.random.default_rng(seed)
    unary = [
        f"u{v}: {{scope: [{v}] costs: {[c / 10 for c in rng.integers(0, 12, size).tolist()]}}}"
        for v, size in zip("abcd", SIZES, strict=True)
    ]
    head = f'{{problem: {{name: p mustbe: "<{TOP / 10}5"}}\nvariables: {{a: 3 b: 3 c: 2 d: 3}}\nfunctions: {{'
    function = f"f: {{scope: [a b c d] type: {kind} params: {{{parameters}}}}}"
    return "\n".join([head, function, *unary, "}}"])


def without_names(text):
    """The same in the form without names of fields."""
    return re.sub(r"[a-z_0-9]*[a-z_0-9] ?: ?", "", text)


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
def test_types_of_cfn_are_keywords_of_wcsp_with_decimals(tmp_path, monkeypatch, cfn_peer, told, cells):
    monkeypatch.setattr(global_costs, "MOST_CELLS", cells)
    path, bare = tmp_path / "p.cfn", tmp_path / "bare.cfn"
    path.write_text(cfn_of(*told.split(" ", 1), list(CFN_TYPES).index(told)))
    bare.write_text(without_names(path.read_text()).replace("{3 3 2 3}", "{a 3 b 3 c 2 d 3}"))
    problem, same_problem = read(path), read(bare)
    alone = read_alone(tmp_path, CFN_TYPES[told])
    assert [v.name for v in problem.variables][:4] == list("abcd")
    best = math.inf
    for row in itertools.product(*map(range, SIZES)):
        cost = cost_of(problem, row)
        assert cost == cost_of(same_problem, row)
        unary = sum(f.value_at(row) for f in problem.functions if len(f.scope) == 1 and f.scope[0] < 4)
        expected = cost_of(alone, row) / 10 + unary
        assert cost == pytest.approx(expected if expected < TOP / 10 + 0.05 else math.inf)
        best = min(best, cost)
    assert best == pytest.approx(float(cfn_peer[told].replace("None", "inf")))


def test_costs_of_types_are_added_where_sums_are_maximised(tmp_path):
    """Violations are worth less than 0 there; costs above 0 are refused, as by toulbar2."""
    path = tmp_path / "p.cfn"
    text = '{problem: {name: p mustbe: ">-9.00"} variables: {x: 3 y: 3} functions: {f: {scope: [x y] type: salldiff '
    path.write_text(f"{text} params: {{metric: var cost: -1.259}}}} g: {{scope: [x] costs: [0.5 2 1]}}}}}}")
    problem = read(path)
    for row in itertools.product(range(3), repeat=2):
        assert problem.evaluate(row) == pytest.approx((0.5, 2, 1)[row[0]] - 1.25 * (row[0] == row[1]))
    path.write_text(path.read_text().replace("-1.259", "1.25"))
    with pytest.raises(FormatError, match="line 1: found -125, expected a cost, at least 0"):
        read(path)


def test_single_costs_of_types_may_exceed_the_limit_of_the_sum(tmp_path):
    path = tmp_path / "p.cfn"
    text = '{problem: {name: p mustbe: "<2"} variables: {x: 2 y: 2} functions: {f: {scope: [x y] type: walldiff '
    path.write_text(f"{text} params: {{metric: lin cost: 3}}}} g: {{scope: [x] costs: [-2 -1]}}}}}}")
    assert [read(path).evaluate(row) for row in itertools.product(range(2), repeat=2)] == [1, -2, -1, None]


def test_costs_far_beyond_the_limit_lose_no_tuple(tmp_path):
    """1e20 less a cost below the limit is 1e20, in floats."""
    path = tmp_path / "p.cfn"
    text = '{problem: {name: p mustbe: "<1.5"} variables: {x: 2 y: 2} functions: {f: {scope: [x] costs: [-1e20 0.2]}'
    path.write_text(f"{text} g: {{scope: [y] costs: [0 1.0]}}}}}}")
    assert [read(path).evaluate(row) for row in itertools.product(range(2), repeat=2)] == [-1e20, -1e20, 0.2, 1.2]
    path.write_text(path.read_text().replace("[0 1.0]", "[0 1.3]"))
    assert read(path).evaluate((1, 1)) is None  # at the limit


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
    for keyword, linear, states in [(f"wamong hard {TOP} 1 1 2 4", 2, 0), ("wamong lin 5 1 1 2 4", 0, 12)]:
        path.write_text(f"p 13 2 1 {TOP}\n{'2 ' * 13}\n13 {scope} -1 {keyword}\n")
        problem = read(path)
        assert (len(problem.linear_constraints), len(problem.variables)) == (linear, 13 + states)
    assert oocbe.count(problem).value == 2**13  # a walk for each assignment, and one only


@pytest.mark.parametrize(
    ("keyword", "error", "message"),
    [
        (
            "slinear var 1",
            UnsupportedError,
            "line 3: the global cost function 'slinear' is not supported; those that are: alldiff, s",
        ),
        (
            "sregular edit 1 1 1 0 1 0 0",
            UnsupportedError,
            "line 3: the global cost function 'sregular' with 'edit' is not supported, only with var",
        ),
        ("alldiff 0 1 0 3", UnsupportedError, "line 3: .* 'alldiff' with costs that propagation has moved is not"),
        ("clique 2 1 1 1 1", UnsupportedError, "line 3: .* 'clique' is supported with 1 only, as in toulbar2"),
        ("knapsackc 1 0 0 1 2 5 1 1 1", FormatError, r"line 3: found variable 5, expected one of the scope \(0, 1\)"),
        ("salldiffkp hard 3", FormatError, "line 3: found the cost 3, expected the upper bound or more, as salldiffkp"),
        ("samong var 1 2 1 0", FormatError, "line 3: found 1, expected an upper bound, at least the lower one, 2"),
        ("ssame 1 2 0 0 1", FormatError, "line 3: found lists of 2 and 0 variables, expected two of the same length"),
        ("ssame 1 1 1 0 0", FormatError, r"line 3: found the variables \[0, 0\], expected each of the scope"),
        ("salldiff var -1", FormatError, "line 3: found -1, expected a cost, at least 0"),
        ("samong var 1 0 1 2 1", FormatError, "line 3: the file ends, expected a value"),
        ("sregular var 1 2 1 2 0 0", FormatError, "line 3: found 2, expected a state, between 0 and 1"),
        ("wregular 2 1 0 0 1 0 0 1 1 1 2 0", FormatError, "line 3: found 2, expected a state, between 0 and 1"),
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
        ("type: cfnconstraint params: [[[[1]]]]", UnsupportedError, "line 4: function 'f' is of type 'cfnconstraint',"),
        ("type: slinear params: {}", UnsupportedError, "line 4: function 'f' is of type 'slinear', which is not s"),
        ("type: <= params: [1 2]", UnsupportedError, "line 4: .* 'f' is of type '<=', which is not supported; as t"),
        ("type: sregulardp params: {}", UnsupportedError, "line 4: .* whatever the values are, .*; use sregular"),
        ("type: salldiff params: {metric: var}", FormatError, "line 4: .*: the parameters end, expected metric:K cost"),
        ("type: salldiff params: {metric: var cost: 1 2}", FormatError, "line 4: .*: found '2' after its parameters"),
        ("type: salldiff params: {metric: var cost: x}", FormatError, "line 4: .*: found 'x', expected cost, a finite"),
        (
            "type: knapsack params: {capacity: 1 weights: [1]}",
            FormatError,
            "line 4: .*: found 1 of weights, exp",
        ),
        (
            "type: gcc params: {bounds: [[1 2]]}",
            FormatError,
            r"line 4: .*: found a list in bounds, expected a list",
        ),
        (
            "type: wsum params: {metric: lin cost: -1 comparator: < to: 1}",
            FormatError,
            "line 4: found -1, expected a",
        ),
        ("type: salldiff params: {metric: var cost: [[[[1]]]]}", FormatError, "line 4: found a list within 3 others"),
    ],
)
def test_types_that_are_refused_are_named_with_their_line(tmp_path, function, error, message):
    path = tmp_path / "p.cfn"
    head = '{problem: {name: p mustbe: "<9"}\nvariables: {x: 2 y: 2}\nfunctions: {\n'
    path.write_text(f"{head}f: {{scope: [x y] {function}}}}}}}")
    with pytest.raises(error, match=message):
        read(path)


def test_functions_without_variables_and_with_too_many_values_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(global_costs, "MOST_STEPS_OF_ALL", 1000)
    path = tmp_path / "p.cfn"
    path.write_text("{problem: {name: p mustbe: <9} variables: {x: 2} functions: {{scope: [] type: MST params: {}}}}")
    with pytest.raises(FormatError, match="line 1: found no variable in the scope of MST, expected at least one"):
        read(path)
    path = tmp_path / "p.wcsp"
    for size, what in (
        (60_000, "counts 60,000 values, each of its own, which is too large"),
        (100, "walldiff of line 3 has more than 1,000 steps between states"),
    ):
        path.write_text(f"p 2 {size} 1 9\n{size} {size}\n2 0 1 -1 walldiff lin 1\n")
        with pytest.raises(UnsupportedError, match=what):
            read(path)


def test_a_table_takes_a_step_once_for_each_state():
    """A step for each assignment and variable took a millisecond for each constraint of a group."""
    whole, steps = Decomposed([3, 4, 2, 3]), []

    def step(place, state, value):
        steps.append((place, state, value))
        return (state + value) % 2, math.inf if state == value == 1 else place * value

    whole.walk("a walk", (2, 0, 3, 1), 0, step, lambda state: 5 * state)
    assert len(steps) < 100  # for each assignment and variable: 288
    (table,) = whole.tables
    expected = {}
    for row in itertools.product(range(2), range(3), range(3), range(4)):
        state = cost = 0
        for place, value in enumerate(row):
            cost += math.inf if state == value == 1 else place * value
            state = (state + value) % 2
        if cost + 5 * state:
            expected[row] = cost + 5 * state
    assert dict(zip(map(tuple, table.tuples.tolist()), table.costs, strict=True)) == expected
    assert list(expected) == list(map(tuple, table.tuples.tolist()))
    assert table.default == 0
