"""Other packages add order finders by entry points: a graph of the PACE challenge in, a tree decomposition out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.elimination.orders.order import graph_text, order_of
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.errors import UsageError
from oocbe.model.settings.option_values import order_finders
from tests.elimination.test_orders import naive_separators, random_graph
from tests.helpers.effort import examples

MODULE = """
import pathlib

from tests.elimination.test_order_finders import decomposition


def find(graph, seconds, seed):
    with pathlib.Path("asked").open("a") as file:
        print(seconds, seed, file=file)
    return decomposition(graph, 0)


def fail(graph, seconds, seed):
    raise OSError("no such program")


def lone(graph, seconds, seed):
    vertices = range(1, 1 + int(graph.split()[2]))
    return "\\n".join(f"b {v} {v}" for v in vertices)
"""


def decomposition(graph: str, seed: int) -> str:
    """A ``.td`` text for a ``.gr`` text: the bags of a random order, numbered and listed in another one."""
    head, *lines = graph.splitlines()
    count = int(head.split()[2])
    random = np.random.default_rng(seed)
    neighbours: dict[int, set[int]] = {v: set() for v in range(1, count + 1)}
    for one, other in (map(int, line.split()) for line in lines):
        neighbours[one].add(other)
        neighbours[other].add(one)
    order = (random.permutation(count) + 1).tolist()
    numbers = dict(zip(order, (random.permutation(count) + 1).tolist(), strict=True))
    written = []
    for place, v in enumerate(order):
        around = neighbours[v]
        written.append(f"b {numbers[v]} {' '.join(map(str, [v, *around]))}")
        for u, w in itertools.permutations(around, 2):
            neighbours[u].add(w)
        for u in around:
            neighbours[u].discard(v)
        if place + 1 < count:
            written.append(f"{numbers[v]} {numbers[min(around or order[place + 1 :], key=order.index)]}")
    random.shuffle(written)
    largest = 1 + max((len(around) for around in neighbours.values()), default=0)
    return "\n".join(["c made for a test", f"s td {count} {largest} {count}", *written])


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 1 << 30))
def test_an_order_is_as_narrow_as_its_decomposition(count, edges, seed):
    problem = random_graph(count, edges, seed)
    text = decomposition(graph_text(PrimalGraph(problem)), seed)
    order, width = order_of(text, count)
    assert sorted(order.tolist()) == list(range(count))
    assert max(map(len, naive_separators(problem, order.tolist()))) <= width
    assert width == max(len(line.split()) - 3 for line in text.splitlines() if line.startswith("b"))


def test_the_graph_lists_each_edge_once():
    variables = tuple(oocbe.Variable(name, 2) for name in "abcd")
    scopes = ((0, 1), (1, 2), (2, 0), (1, 0))
    problem = oocbe.Problem(variables, tuple(oocbe.Function.from_array(s, [[0, 1], [1, 0]]) for s in scopes))
    head, *edges = graph_text(PrimalGraph(problem)).splitlines()
    assert (head, sorted(edges)) == ("p tw 4 3", ["1 2", "1 3", "2 3"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b 1 1 2", "1 bags whose vertices are not those from 1 to 3"),
        ("b 1 1 2 3 4", "are not those from 1 to 3"),
        ("b 1 1 2 3\n\nb two 3", "line 3: found 'b two 3', expected a bag"),
        ("b 1 1 2 3\n1 2 3", "line 2: found '1 2 3', expected a bag"),
        ("b", "line 1: found 'b'"),
        ("", "0 bags"),
    ],
)
def test_what_is_no_decomposition_is_named(text, expected):
    with pytest.raises(ValueError, match=expected):
        order_of(text, 3)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with finders, as an installation leaves it, and the current folder."""
    (tmp_path / "their_finder.py").write_text(MODULE)
    info = tmp_path / "their_finder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-finder\nVersion: 1.0\n")
    points = "".join(f"{name} = their_finder:{name}\n" for name in ("find", "fail", "lone", "missing"))
    (info / "entry_points.txt").write_text(f"[oocbe.order_finders]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    order_finders.cache_clear()
    yield tmp_path
    order_finders.cache_clear()


def cycle(count: int) -> oocbe.Problem:
    tables = (oocbe.Function.from_array((v, (v + 1) % count), [[0, 3], [2, 4 + v]]) for v in range(count))
    return oocbe.Problem(tuple(oocbe.Variable(f"x{v}", 2) for v in range(count)), tuple(tables))


def test_a_finder_of_another_package_is_used(installed):
    problem = cycle(12)
    plan = oocbe.plan(problem, order="find", order_seconds=0.1, seed=3)
    assert "order find" in str(plan)
    assert (installed / "asked").read_text().split()[:2] == ["0.5", "3"]
    for options in ({}, {"bounds": "none"}, {"tables": "incomplete", "bounds": "none"}):
        found = oocbe.solve(problem, order="find", order_seconds=0.0, **options)
        assert (found.status, found.value) == ("optimal", oocbe.solve(problem).value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fail", "order finder fail returned no tree decomposition: no such program"),
        ("lone", "of width 0, which is none of this graph: its order has the width 2"),
        ("missing", "order finder missing returned no tree decomposition: .*no attribute"),
        ("best", "order: 'best' is neither one of auto, .*linear, fail, find, lone, missing nor a file"),
    ],
)
def test_a_finder_that_fails_is_named(installed, name, expected):
    with pytest.raises(UsageError, match=expected):
        oocbe.plan(cycle(9), order=name, order_seconds=0.0)
