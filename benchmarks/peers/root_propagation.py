"""What other solvers remove at the root, each run as a program of its own: they do not bear one another in one process.

    python root_propagation.py scip FILE.mps        # SCIP reads the file itself; infinite numbers are 1e20
    python root_propagation.py cp_sat SYSTEM.json   # CP-SAT, of integers: "lower", "upper", "rows" (terms, low, high)
    python root_propagation.py choco TABLES.json    # Choco: "sizes", and "tables" (scope, rows, starred cells -1)

The last line of the output is a JSON object: ``status``, ``bounds`` (by name for SCIP, in order for CP-SAT) or
``removed`` for Choco, and the processor time that the solver itself says that propagation took, where it says so.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OTHER_PROPAGATORS = (
    *("dualfix", "genvbounds", "nlobbt", "obbt", "probing", "pseudoobj", "redcost", "rootredcost", "symmetry"),
    "vbounds",
)
"""Of SCIP, those that look at the objective or go beyond rows one by one."""


def scip(path: str) -> dict[str, Any]:
    """SCIP's global bounds once its linear constraints have been propagated at the root, and nothing else was done."""
    from pyscipopt import SCIP_PARAMSETTING, Model

    model = Model()
    model.hideOutput()
    model.readProblem(path)
    model.setPresolve(SCIP_PARAMSETTING.OFF)
    model.setHeuristics(SCIP_PARAMSETTING.OFF)
    model.setSeparating(SCIP_PARAMSETTING.OFF)
    for propagator in OTHER_PROPAGATORS:
        model.setParam(f"propagating/{propagator}/freq", -1)
    for name in model.getParams():
        if name.startswith("constraints/linear/upgrade/"):  # else knapsacks and others are propagated as such
            model.setParam(name, False)
    numbers = {"limits/nodes": 1, "lp/solvefreq": -1, "timing/clocktype": 1, "misc/usesymmetry": 0}
    for name, number in {**numbers, "propagating/maxroundsroot": -1, "numerics/boundstreps": 1e-9}.items():
        model.setParam(name, number)
    model.setParam("conflict/enable", False)
    model.setParam("constraints/linear/rangedrowpropagation", False)  # looks at divisors, beyond activities
    model.optimize()
    bounds = {v.name.removeprefix("t_"): [v.getLbGlobal(), v.getUbGlobal()] for v in model.getVars(transformed=True)}
    with tempfile.TemporaryDirectory() as folder:
        model.writeStatistics(f"{folder}/statistics")
        lines = (Path(folder) / "statistics").read_text().split("\n")
    times = lines[next(i for i, line in enumerate(lines) if line.startswith("Constraint Timings")) :]
    words = next(line for line in times if re.match(r" +linear +:", line)).split(":")[1].split()
    return {"status": model.getStatus(), "bounds": bounds, "seconds": float(words[3])}


def cp_sat(path: str) -> dict[str, Any]:
    """CP-SAT's domains after its propagation at the root."""
    from ortools.sat.python import cp_model

    system = json.loads(Path(path).read_text())
    model = cp_model.CpModel()
    x = [model.new_int_var(low, high, "") for low, high in zip(system["lower"], system["upper"], strict=True)]
    for terms, low, high in system["rows"]:
        model.add_linear_constraint(sum(a * x[v] for v, a in terms), low, high)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.cp_model_presolve, parameters.cp_model_probing_level = False, 0
    parameters.linearization_level, parameters.symmetry_level, parameters.num_workers = 0, 0, 1
    parameters.stop_after_root_propagation = parameters.fill_tightened_domains_in_response = True
    status = solver.solve(model)
    domains = [[min(d.domain), max(d.domain)] for d in solver.response_proto.tightened_variables]
    return {"status": solver.status_name(status), "bounds": domains}


def choco(path: str) -> dict[str, Any]:
    """Values that Choco's Compact-Table removes of each variable, by propagation alone."""
    from pychoco import Model

    given = json.loads(Path(path).read_text())
    model = Model()
    x = [model.intvar(0, size - 1, bounded_domain=False) if size > 1 else model.intvar(0) for size in given["sizes"]]
    for scope, rows in given["tables"]:
        star = -1 if any(-1 in row for row in rows) else None
        model.table([x[v] for v in scope], rows, True, "CT+", star).post()
    begin = time.process_time()
    model.get_solver()._propagate()
    seconds = time.process_time() - begin
    removed = [size - len(v.get_domain_values()) for size, v in zip(given["sizes"], x, strict=True)]
    return {"status": "fixpoint", "removed": removed, "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps({"scip": scip, "cp_sat": cp_sat, "choco": choco}[sys.argv[1]](sys.argv[2])))
