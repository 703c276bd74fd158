"""Every distributed problem here: the optima are known, in all three formats, and bounds are below them."""

from __future__ import annotations

import json

import pytest

import oocbe
from oocbe.dcop import adpop, dpop, read_dcop
from oocbe.model.dcop import Dcop

PAPER = [
    *(f"grid_{side}x{side}_d5_s{seed}" for side in (5, 8) for seed in (1, 2)),
    *(f"random_n{n}_d10_p03_s{seed}" for n in (10, 12, 14, 16, 18, 20) for seed in (1, 2)),
    "random_n10_d50_p03_s1",
    *(f"scalefree_n{n}_d10_s{seed}" for n in (10, 15, 20) for seed in (1, 2)),
]
IN_SHORT = {
    *(f"{kind}_s1" for kind in ("grid_5x5_d5", "grid_8x8_d5", "random_n10_d10_p03", "random_n18_d10_p03")),
    *("scalefree_n10_d10_s1", "scalefree_n20_d10_s2"),
}
"""The smallest and a large one of each kind; the others are slow."""

PYDCOP = {
    "SimpleHouse.yml": 66.2, "gc_random_20.yaml": 111, "graph_coloring1.yaml": -0.1, "graph_coloring_eq.yaml": -0.3,
    "graph_coloring_10_4_15_0.1.yml": 0, "graph_coloring_3agts_10vars.yaml": 10000, "graph_coloring_tuto.yaml": 12,
    "graph_coloring_tuto_max.yaml": 53, "ising_5x5.yaml": -32.69467743512714, "meetings_peav.yaml": 18,
    "secp_simple1.yaml": 2.3, "secp_small.yaml": 21.06,
}  # fmt: skip


SMALLEST = ("grid_5x5_d5_s1", "random_n10_d10_p03_s1", "scalefree_n10_d10_s1")
"""Of each kind: solved from all formats. Others are read from all, and solved from one."""


HARD = 10_000
"""What a forbidden pair costs in YAML, which knows no hard constraints; no optimum is near it."""


def neighbours(assignment: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The assignment, and those with one value changed."""
    changed = [(v, value) for v, size in enumerate(sizes) for value in range(size)]
    return [(*assignment[:v], value, *assignment[v + 1 :]) for v, value in changed]


def cost_of(dcop: Dcop, assignment: tuple[int, ...]) -> int | None:
    cost = dcop.problem.evaluate(assignment)
    return None if cost is None or cost >= HARD else cost


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_SHORT else pytest.mark.slow) for name in PAPER]
)
def test_optima_and_bounds(data, name):
    known = json.loads(data("dcop/optima.json").read_text())[name]["minimum"]
    formats = [read_dcop(data(f"dcop/paper/{name}.{suffix}.gz")) for suffix in ("xml", "wcsp", "yaml")]
    for dcop in formats if name in SMALLEST else formats[-1:]:
        result = dpop(dcop)
        assert (result.status, result.value) == ("optimal", known)
        assert result.metrics.trees == 1
        assert result.metrics.util_messages == result.metrics.value_messages == len(dcop.agents) - 1
        assert dcop.problem.evaluate(result.assignment) == known
    for near in neighbours(result.assignment, dcop.problem.sizes):
        assert len({cost_of(other, near) for other in formats}) == 1
    assert len({len(other.agents) for other in formats}) == 1
    for z in (2, 4):
        bounded = adpop(dcop, z)
        assert bounded.bound <= known
        assert bounded.value is None or bounded.value >= known
        assert bounded.metrics.util_messages == len(dcop.agents) - 1


@pytest.mark.parametrize("name", PYDCOP)
def test_examples_of_pydcop(data, name):
    dcop = read_dcop(data(f"dcop/pydcop/{name}"))
    result = dpop(dcop)
    assert result.value == pytest.approx(PYDCOP[name], rel=1e-9)
    assert oocbe.solve(dcop.problem).value == pytest.approx(PYDCOP[name], rel=1e-9)
