"""Junction trees: cliques, posteriors, batches, explanations, samples, counts; kept, on disk, in logarithms."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import oocbe

from .problems import FAMILIES, bayesian
from .recorder import Recorder, folder_digest

MADE = ("bayesian-1-sum-product", "bayesian-2-sum-product", "summed-products", "network-1", "counted", "products")
"""Seeded problems of which trees are made."""

INSTANCES = ("bif/asia.bif.gz", "bif/child.bif.gz", "bif/alarm.bif.gz", "bif/hailfinder.bif.gz", "bif/win95pts.bif.gz")
"""Real networks, where there are some."""

FIXED: dict[str, Any] = {"order_seconds": 0, "seed": 3, "memory": "1GiB", "backend": "cpu"}


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    for name in MADE:
        questions(recorder, f"trees/{name}", FAMILIES[name](), {})
        questions(recorder, f"trees/{name}-log", FAMILIES[name](), {"space": "log"})
    for name in INSTANCES:
        if (path := recorder.data / name).exists():
            questions(recorder, f"trees/{name}", oocbe.read(path), {})
        else:
            recorder.skip(f"trees/{name}")
    kept(recorder)


def cases_of(problem: oocbe.Problem, count: int) -> list[dict[str, str]]:
    """Cases that each observe some variables, the first one nothing."""
    random, cases = Random(len(problem.variables)), []
    for number in range(count):
        chosen = random.sample(problem.variables, min(len(problem.variables), number // 2))
        cases.append({v.name: f"#{random.randrange(v.size)}" for v in chosen})
    return cases


def questions(recorder: Recorder, key: str, problem: oocbe.Problem, settings: dict[str, Any]) -> None:
    """Everything that a tree can be asked."""
    add = recorder.add
    tree = oocbe.JunctionTree(problem, **FIXED | settings)
    names = [v.name for v in tree.problem.variables]
    add(f"{key}/unobserved", lambda: unobserved(tree))
    add(f"{key}/statistics", lambda: (tree.statistics, tree.cliques, tree.rows))
    cases = cases_of(problem, 9)
    for number, case in enumerate(cases[1:6:2]):
        add(f"{key}/case-{number}", asked, tree, case)
    add(f"{key}/batch", lambda: batch(tree, cases, None, [names[:2], names[-2:]]))
    same = [dict.fromkeys(names[:2], "#0"), dict.fromkeys(names[:2], "#1")] * 3
    add(f"{key}/batch-alike", lambda: batch(tree, same, names[-3:], []))
    add(f"{key}/counts", lambda: tuple(own.values for own in tree.expected_counts(cases)))
    add(f"{key}/refused", lambda: tree.observe({names[0]: "no such value"}))


def unobserved(tree: oocbe.JunctionTree) -> Any:
    """Answers of a tree of which nothing is observed."""
    names = [v.name for v in tree.problem.variables]
    return {
        "log_evidence": tree.log_evidence,
        "marginals": [tree.marginal(name) for name in names],
        "joint": tree.marginal(names[0], names[-1]),
        "mpe": tree.mpe(),
        "sample": tree.sample(20, seed=11).indices,
        "marginal_map": tree.marginal_map(names[:3]),
    }


def asked(tree: oocbe.JunctionTree, case: dict[str, str]) -> Any:
    """Answers for one case, with a likelihood besides; all is forgotten afterwards."""
    free = [v for v in tree.problem.variables if v.name not in case]
    soft = {free[0].name: [0.25 + 0.5 * (i % 2) for i in range(free[0].size)]}
    tree.observe(case, likelihood=soft)
    try:
        names = [v.name for v in tree.problem.variables]
        found: dict[str, Any] = {"evidence": tree.evidence, "log_evidence": tree.log_evidence}
        found["marginals"] = [tree.marginal(name) for name in names]
        found["mpe"] = tree.mpe()
        if found["log_evidence"] > -np.inf:
            found["sample"] = tree.sample(5, seed=2).indices
        return found
    finally:
        tree.retract()


def batch(tree: oocbe.JunctionTree, cases: Any, targets: Any, joint: Any) -> Any:
    """What a batch finds, by target and group."""
    found = tree.batch(cases, targets, joint)
    return {
        "marginals": dict(found.marginals),
        "joints": {"+".join(group): array for group, array in found.joints.items()},
        "log_evidence": found.log_evidence,
        "status": found.status.tolist(),
    }


def kept(recorder: Recorder) -> None:
    """Trees that are saved and opened, and one whose rows are on disk, piece by piece."""
    place, add = recorder.place("trees/kept/x").parent, recorder.add

    def saved() -> Any:
        tree = oocbe.JunctionTree(FAMILIES["bayesian-1-sum-product"](), **FIXED)
        tree.save(place / "saved")
        opened = oocbe.JunctionTree.open(place / "saved", memory="1GiB", backend="cpu")
        return {"answers": unobserved(opened), "statistics": opened.statistics}

    def saved_files(folder: Path) -> Any:
        files = folder_digest(folder)
        return {name: None if name.endswith(".json") else content for name, content in files.items()}  # has seconds

    add("trees/kept/saved", saved)
    add("trees/kept/files", saved_files, place / "saved")
    large = bayesian(60, 16, 5, oocbe.SUM_PRODUCT)
    settings = FIXED | {"memory": "1MiB", "folder": place / "on-disk"}

    def on_disk() -> Any:
        tree = oocbe.JunctionTree(large, **settings)
        cases = cases_of(large, 5)
        return {"statistics": tree.statistics, "batch": batch(tree, cases, None, []), "log": tree.log_evidence}

    def opened_again(folder: Path = place / "on-disk") -> Any:
        tree = oocbe.JunctionTree.open(folder, memory="8MiB", backend="cpu")
        return {"statistics": tree.statistics, "marginal": tree.marginal("v3"), "cliques": tree.cliques}

    add("trees/kept/on-disk", on_disk)
    add("trees/kept/on-disk-opened", opened_again)
