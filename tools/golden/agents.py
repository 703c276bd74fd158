"""Distributed problems: pseudo-trees, DPOP, ADPOP, their messages, in one process and in two."""

from __future__ import annotations

from typing import Any

import oocbe
import oocbe.dcop

from .problems import FAMILIES
from .recorder import Recorder
from .texts import TEXTS

HEURISTICS = ("max-degree", "min-degree", "max-ancestors", "min-fill", "weighted-min-fill", "auto")
"""Ways to make a pseudo-tree."""

MADE = ("network-1", "network-3", "ternary-1", "apart", "maximised-floats", "infeasible", "negative", "grid-1")
"""Seeded problems that agents solve."""

INSTANCES = (
    "dcop/paper/random_n10_d10_p03_s1.yaml.gz",
    "dcop/paper/scalefree_n10_d10_s1.xml.gz",
    "dcop/pydcop/graph_coloring_csp.yaml",
    "dcop/pydcop/graph_coloring_10_4_15_0.1.yml",
    "dcop/pydcop/secp_simple1.yaml",
)
"""Real instances, where there are some."""

FIXED: dict[str, Any] = {"memory": "1GiB", "backend": "cpu", "seed": 3}


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    for name in MADE:
        solved(recorder, f"agents/{name}", oocbe.dcop.Dcop.of(FAMILIES[name]()))
    for name in ("lights.yaml", "frodo.xml"):
        path = recorder.place(f"agents/{name}")
        path.write_text(TEXTS[name])
        solved(recorder, f"agents/text-{name}", oocbe.dcop.read_dcop(path))
    for name in INSTANCES:
        if (path := recorder.data / name).exists():
            solved(recorder, f"agents/{name}", oocbe.dcop.read_dcop(path))
        else:
            recorder.skip(f"agents/{name}")
    several = oocbe.dcop.Dcop.of(FAMILIES["network-2"]())
    recorder.add("agents/two-processes", dpop, several, "auto", workers=2)


def solved(recorder: Recorder, key: str, dcop: oocbe.dcop.Dcop) -> None:
    """All that is computed of one distributed problem."""
    add = recorder.add
    add(f"{key}/agents", lambda: (dcop.agents, dcop.owner))
    for heuristic in HEURISTICS:
        add(f"{key}/tree-{heuristic}", tree, dcop, heuristic)
    for heuristic in ("max-degree", "min-fill"):
        add(f"{key}/dpop-{heuristic}", dpop, dcop, heuristic)
    add(f"{key}/dpop-complete", dpop, dcop, "auto", tables="complete")
    for z in (2, 3):
        add(f"{key}/adpop-{z}", adpop, dcop, z)


def tree(dcop: oocbe.dcop.Dcop, heuristic: str) -> Any:
    """A pseudo-tree, and what it is judged by."""
    found = oocbe.dcop.pseudo_tree(dcop, heuristic)
    return {
        "parent": found.parent,
        "depth": found.depth,
        "separators": found.separators,
        "width": found.width,
        "height": found.height,
        "cells": found.cells(dcop.problem.sizes),
    }


def dpop(dcop: oocbe.dcop.Dcop, heuristic: str, **options: Any) -> Any:
    """What DPOP finds along a pseudo-tree."""
    return answer(oocbe.dcop.dpop(dcop, tree=oocbe.dcop.pseudo_tree(dcop, heuristic), **FIXED, **options))


def adpop(dcop: oocbe.dcop.Dcop, z: int) -> Any:
    """What ADPOP bounds."""
    return answer(oocbe.dcop.adpop(dcop, z, **FIXED))


def answer(result: oocbe.dcop.DcopResult) -> Any:
    """A result with all messages."""
    return result.to_json(with_messages=True) | {"assignment": result.assignment, "labels": result.labels}
