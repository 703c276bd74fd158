"""Root fixpoints beside those of SCIP, CP-SAT and Choco, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.formats import write
from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable
from oocbe.model.linear_system import INFINITE, LinearSystem
from oocbe.model.parts import Constraint, Variable
from oocbe.model.problem import Problem
from oocbe.propagation.bounds import propagate_bounds
from oocbe.propagation.fixpoint import Network

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "peers" / "root_propagation.py"


def answer(peer: str, path: Path):
    done = subprocess.run([sys.executable, PROGRAM, peer, path], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def system_of(seed: int, is_integral: bool) -> LinearSystem:
    """Chains of sums with room enough for some point, so that a row tightens what the next one reads."""
    random = np.random.default_rng(seed)
    count = 30
    point, rows = random.integers(0, 6, size=count), []
    for _ in range(25):
        chosen = random.choice(count, size=int(random.integers(2, 5)), replace=False).tolist()
        terms = {v: int(random.choice([-3, -2, -1, 1, 2, 5])) for v in chosen}
        terms[chosen[0]] = 1  # SCIP divides rows of integers by what they have in common, and rounds
        held = sum(a * int(point[v]) for v, a in terms.items())
        rows.append((terms, held - int(random.integers(0, 2)), held + int(random.integers(0, 3))))
    return LinearSystem.from_rows(rows, [0] * count, random.integers(6, 60, size=count).tolist(), is_integral)


@pytest.mark.parametrize("is_integral", [True, False])
def test_bounds_are_those_of_scip(tmp_path, is_integral):
    pytest.importorskip("pyscipopt")
    for seed in range(2):
        system = system_of(seed, is_integral)
        found = propagate_bounds(system, tolerance=1e-9)
        write(system, tmp_path / "system.mps")
        listed = answer("scip", tmp_path / "system.mps")["bounds"]
        theirs = np.array([listed[name] for name in system.names]).T
        theirs = np.where(np.abs(theirs) >= INFINITE, np.copysign(np.inf, theirs), theirs)
        assert found.status == "fixpoint" and (found.upper < system.upper).sum() > 5
        np.testing.assert_allclose(np.stack([found.lower, found.upper]), theirs, rtol=1e-6, atol=1e-6)


def test_bounds_are_those_of_cp_sat(tmp_path):
    pytest.importorskip("ortools")
    system = system_of(7, is_integral=True)
    found = propagate_bounds(system)
    rows = []
    for row in range(system.rows):
        entries = slice(system.starts[row], system.starts[row + 1])
        terms = zip(system.columns[entries].tolist(), map(int, system.coefficients[entries]), strict=True)
        rows.append((list(terms), int(system.row_lower[row]), int(system.row_upper[row])))
    given = {"lower": system.lower.astype(int).tolist(), "upper": system.upper.astype(int).tolist(), "rows": rows}
    (tmp_path / "system.json").write_text(json.dumps(given))
    expected = answer("cp_sat", tmp_path / "system.json")["bounds"]
    assert np.stack([found.lower, found.upper]).T.astype(int).tolist() == expected


def test_values_removed_are_those_of_choco(tmp_path):
    """Tables over neighbours, with cells for every value in some of them."""
    pytest.importorskip("pychoco")
    random = np.random.default_rng(5)
    sizes = random.integers(2, 9, size=25).tolist()
    point = random.integers(0, sizes)
    plain, short = [], []
    for first in range(23):
        scope = (first, first + 1, first + 2)
        rows = np.stack([random.integers(0, sizes[v], size=9) for v in scope], axis=1)
        rows = np.unique(np.vstack([rows, point[list(scope)]]), axis=0)
        if first % 3:
            plain.append(Constraint(scope, rows, allowed=True))
        else:
            rows[random.random(rows.shape) < 0.2] = ANY
            short.append(ShortTable(scope, rows, allowed=True))
    problem = Problem(tuple(Variable(f"x{v}", n) for v, n in enumerate(sizes)), constraints=tuple(plain))
    network = Network(CompactProblem(problem, tuple(short)))
    assert network.propagate().status == "fixpoint"
    given = {"sizes": sizes, "tables": [(t.scope, t.tuples.tolist()) for t in (*plain, *short)]}
    (tmp_path / "tables.json").write_text(json.dumps(given))
    removed = [size - count for size, count in zip(sizes, network.domains.counts.tolist(), strict=True)]
    assert sum(removed) > 5
    assert answer("choco", tmp_path / "tables.json")["removed"] == removed


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("opb", "* #variable= 1 #constraint= 1\n0 x1 >= 1 ;\n"),
        ("opb", ">= 1 ;\n"),
        ("mps", "ROWS\n N C\n G R\nCOLUMNS\n M 'MARKER' 'INTORG'\n X C 1\n M 'MARKER' 'INTEND'\nRHS\n R R 1\nENDATA\n"),
        (
            "xml",
            '<instance format="XCSP3" type="CSP"><variables><var id="x"> 0 1 </var></variables><constraints><sum> '
            "<list> x </list> <coeffs> 0 </coeffs> <condition> (ge,1) </condition></sum></constraints></instance>",
        ),
    ],
)
def test_nothing_that_is_to_be_at_least_one_is_infeasible(tmp_path, suffix, text):
    path = tmp_path / f"nothing.{suffix}"
    path.write_text(text)
    assert oocbe.propagate(path).status == "infeasible"
    assert oocbe.solve(path, backend="cpu").status == "infeasible"
