"""Solves, plans, bounds, tasks, propagation and verification of seeded problems and of files."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import oocbe
import oocbe.dcop

from .problems import FAMILIES, integer, network
from .recorder import ROOT, Recorder
from .texts import TEXTS

FIXED: dict[str, Any] = {"order_seconds": 0, "seed": 7, "memory": "1GiB", "backend": "cpu"}
"""Options under which elimination does not depend on time: each heuristic finds one order."""

SEARCH: dict[str, Any] = {**FIXED, "incumbent_seconds": 0.2, "bound_seconds": 1.0, "time_limit": 60}
"""Options of solves with bounds, whose optimum does not depend on time, but whose way to it may."""

PLAIN = {**FIXED, "bounds": "none"}

PLANNED = PLAIN | {"memory": "16MiB"}
"""Less than the process takes by itself, so that pieces of large buckets do not depend on what that is."""

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "complete": {"tables": "complete"},
    "incomplete": {"tables": "incomplete"},
    "all-rows": {"dominance": False},
    "min-degree": {"order": "min-degree"},
    "linear": {"order": "linear"},
    "pieces": {"tables": "incomplete", "piece_rows": 100, "streams": 1},
}
"""Eliminations, recorded with the rows of every bucket."""

MOST_ASSIGNMENTS = 1e9
"""Problems with more have some tasks only."""

MOST_ROWS = 300_000
"""Predicted rows up to which a problem is eliminated without bounds."""

INSTANCES = (
    *(f"spot5/{number}.spot" for number in (8, 54, 29)),
    *(f"wcsp/random/{number}.wcsp" for number in (0, 5)),
    "wcsp/mastermind/mastermind_03_08_03.wcsp",
    "wcsp/celar6/CELAR6-SUB0.wcsp",
    "wcsp/other/latin4.wcsp.xz",
    "wcsp/iscas89/c432.wcsp",
    *(f"bif/{name}.bif.gz" for name in ("asia", "survey", "child", "alarm", "insurance")),
    "dcop/paper/random_n10_d10_p03_s1.yaml.gz",
    "dcop/paper/scalefree_n10_d10_s1.xml.gz",
    "dcop/pydcop/graph_coloring_tuto_max.yaml",
    "mc2022/mc2022_track1_011.cnf.gz",
    "xcsp/Knapsack-50-200-01.xml.gz",
)
"""Real instances, where there are some."""

SYSTEMS = ("mps/flugpl.mps.gz", "mps/egout.mps.gz", "mps/p0201.mps.gz", "mps/gt2.mps.gz", "mps/enigma.mps.gz")
"""Linear systems, to be propagated."""


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    for name, make in FAMILIES.items():
        record_problem(recorder, f"solving/{name}", make())
    for name, text in TEXTS.items():
        path = recorder.place(f"texts/{name}")
        path.write_text(text)
        record_file(recorder, f"solving/text-{name}", path)
    for name in ("daily.spot", "grid.wcsp"):
        record_file(recorder, f"solving/example-{name}", ROOT / "examples" / name)
    for name in INSTANCES:
        if (path := recorder.data / name).exists():
            record_file(recorder, f"solving/{name}", path)
        else:
            recorder.skip(f"solving/{name}")
    for name in SYSTEMS:
        if (path := recorder.data / name).exists():
            recorder.add(f"propagation/{name}", propagated, path)
        else:
            recorder.skip(f"propagation/{name}")
    many(recorder)


def record_file(recorder: Recorder, key: str, path: Path) -> None:
    """What a file is read as, and what it is worth."""
    recorder.add(f"{key}/model", lambda: described(oocbe.read_model(path)))
    try:
        problem = oocbe.read(path, memory="1GiB")
    except oocbe.OocbeError as error:
        message = str(error)
        recorder.add(f"{key}/refused", lambda: message)
        recorder.add(f"{key}/propagated", propagated, path)
        return
    record_problem(recorder, key, problem)


def record_problem(recorder: Recorder, key: str, problem: oocbe.Problem) -> None:
    """Every verb on one problem."""
    add, size = recorder.add, prod(problem.sizes)
    selects, is_small = problem.semiring.selects, size <= MOST_ASSIGNMENTS
    add(f"{key}/problem", described, problem)
    unique = unique_optimum(problem) if selects and is_small else False
    add(f"{key}/solve", searched, problem, SEARCH, unique)
    if predicted_rows(problem) <= MOST_ROWS:
        for way in WAYS if is_small else ("plain",):
            add(f"{key}/eliminated-{way}", solved, problem, PLAIN | WAYS[way])
    add(f"{key}/plan", lambda: oocbe.plan(problem, **PLANNED).to_json())
    if selects:
        for z, shifts, partition in ((2, False, "scope"), (3, True, "auto"), (3, False, "content")):
            options: dict[str, Any] = {"cost_shifting": shifts, "partition": partition, "incumbent_seconds": 0}
            add(f"{key}/bound-{z}-{partition}", bounded, problem, z, FIXED | options)
    if selects and is_small:
        for bounds in ("constant", "lp", "local-polytope"):
            add(f"{key}/bounds-{bounds}", searched, problem, SEARCH | {"bounds": bounds}, unique)
    add(f"{key}/propagated", propagated, problem)
    if is_small:
        add(f"{key}/probed", propagated, problem, probe=True)
        tasks(recorder, key, problem)


def predicted_rows(problem: oocbe.Problem) -> int:
    """Rows of all messages without bounds, as a plan predicts them."""
    try:
        rows = oocbe.plan(problem, **PLAIN).to_json()["predicted_rows"]
    except oocbe.OocbeError:
        return MOST_ROWS + 1
    return rows if isinstance(rows, int) else MOST_ROWS + 1


def tasks(recorder: Recorder, key: str, problem: oocbe.Problem) -> None:
    """Every task on one problem."""
    add = recorder.add
    add(f"{key}/count", lambda: answer(oocbe.count(problem, **FIXED)))
    add(f"{key}/log-partition", lambda: answer(oocbe.log_partition(problem, 50.0, **FIXED)))
    add(f"{key}/marginals", lambda: answer(oocbe.marginals(problem, 50.0, **FIXED)))
    if problem.semiring.name in ("max-product", "sum-product"):
        add(f"{key}/explanation", explanation, problem)
    if problem.semiring.selects:
        add(f"{key}/count-optimal", lambda: answer(oocbe.count_optimal(problem, **FIXED)))
        add(f"{key}/k-best", lambda: answer(oocbe.k_best(problem, 4, **FIXED)))
    if problem.semiring.name in ("min-sum", "max-sum"):
        add(f"{key}/min-marginals", lambda: answer(oocbe.min_marginals(problem, **FIXED)))


def unique_optimum(problem: oocbe.Problem) -> bool:
    """Whether one assignment alone is optimal, so that every way to the optimum ends with it."""
    try:
        return oocbe.count_optimal(problem, **FIXED).value == 1
    except oocbe.OocbeError:
        return False


def solved(problem: oocbe.Problem, options: dict[str, Any], **others: Any) -> dict[str, Any]:
    """All that a result says, but what each worker has read: that depends on who was quicker."""
    content = oocbe.solve(problem, **options, **others).to_json()
    return {name: value for name, value in content.items() if name != "read_by_workers"}


def bounded(problem: oocbe.Problem, z: int, options: dict[str, Any]) -> dict[str, Any]:
    """All that a bound says."""
    return oocbe.bound(problem, z, **options).to_json()


def searched(problem: oocbe.Problem, options: dict[str, Any], unique: bool) -> dict[str, Any]:
    """What every way to an optimum has in common; the assignment where it is the only one that is optimal."""
    result = oocbe.solve(problem, **options)
    found: dict[str, Any] = {
        "status": result.status,
        "value": result.value,
        "bound": result.bound,
        "gap": result.gap,
        "exit_code": result.exit_code,
        "semiring": result.semiring,
        "sense": result.sense,
        "linear_constraints": result.linear_constraints,
    }
    if result.assignment is not None:
        found["evaluated"] = problem.evaluate(result.assignment)
        found["accepted"] = oocbe.verify(problem, result).accepted
        if unique:
            found["assignment"] = result.labels
            found["linear"] = [c._asdict() for c in result.linear]
    return found


def answer(result: oocbe.TaskResult) -> dict[str, Any]:
    """A task's answer, with rows and order; floats as they are, which JSON would hold as well."""
    exact = {"value": result.value, "logarithm": result.logarithm, "exit_code": result.exit_code}
    return result.to_json() | exact | {"arrays": result.marginals, "best": result.assignments}


def explanation(problem: oocbe.Problem) -> dict[str, Any]:
    """The most probable explanation, which is found by a search: its value, and that it is worth it."""
    result = oocbe.most_probable_explanation(problem, **SEARCH)
    worth = None if result.assignment is None else problem.evaluate(result.assignment)
    return {"status": result.status, "value": result.value, "evaluated": worth, "notes": result.notes}


def propagated(model: Any, **options: Any) -> dict[str, Any]:
    """What propagation left: domains and rows."""
    result = oocbe.propagate(model, **options)
    return result.to_json() | {"reduced": None if result.reduced is None else described(result.reduced)}


def described(model: Any) -> Mapping[str, Any]:
    """All that a problem, a compact problem or a linear system says, by public attributes."""
    if isinstance(model, oocbe.CompactProblem):
        return {
            "problem": described(model.problem),
            "short_tables": [(t.scope, t.tuples, t.allowed) for t in model.short_tables],
            "left_out": model.left_out,
        }
    if isinstance(model, oocbe.dcop.Dcop):
        return {"problem": described(model.problem), "agents": model.agents, "owner": model.owner}
    if isinstance(model, oocbe.LinearSystem):
        names = ("starts", "columns", "coefficients", "row_lower", "row_upper", "lower", "upper", "integral", "names")
        more = ("row_names", "objective", "constant", "maximises", "name", "notes", "question")
        return {name: getattr(model, name) for name in (*names, *more)}
    random = np.random.default_rng(5)
    drawn = [tuple(int(random.integers(size)) for size in model.sizes) for _ in range(4)]
    return {
        "name": model.name,
        "variables": [(v.name, v.size, v.labels) for v in model.variables],
        "functions": [(f.scope, f.tuples, np.asarray(f.values), f.default) for f in model.functions],
        "constraints": [(c.scope, c.tuples, c.allowed) for c in model.constraints],
        "linear_constraints": [(c.scope, c.coefficients, c.capacity, c.name) for c in model.linear_constraints],
        "constant": model.constant,
        "semiring": model.semiring.name,
        "bounds": (model.lower_bound, model.upper_bound),
        "notes": model.notes,
        "question": model.question,
        "evidence": model.evidence,
        "values": [model.evaluate(assignment) for assignment in drawn],
    }


def many(recorder: Recorder) -> None:
    """Options that few solves have: several problems, an observer, evidence, orders, gaps, wrong options."""
    problem = FAMILIES["network-2"]()
    order = recorder.place("order.txt")
    order.write_text("\n".join(v.name for v in reversed(problem.variables)) + "\n")
    add = recorder.add
    add("options/order-file", solved, problem, PLAIN | {"order": str(order)})
    add("options/order-file-plan", lambda: oocbe.plan(problem, **PLAIN | {"order": str(order)}).to_json())
    evidence = {"v0": 1, "v5": "l5.0"}
    add("options/evidence", solved, problem, PLAIN, evidence=evidence)
    add("options/semiring", solved, problem, PLAIN | {"semiring": "counting"})
    add("options/gap", solved, problem, PLAIN | {"gap": "0"})
    add("options/nothing-better", solved, problem, PLAIN | {"ub": 1})
    add("options/unknown", solved, problem, {"ordr": "auto"})
    add("options/wrong", solved, problem, {"tables": "dense"})
    add("options/evidence-wrong", solved, problem, {}, evidence={"v0": "red"})
    add("options/explanation-of-costs", explanation, problem)
    add("options/min-marginals-of-products", oocbe.min_marginals, FAMILIES["products"](), **FIXED)
    add("options/defaults", lambda: oocbe.SolveOptions().to_json())
    events: list[tuple[Any, ...]] = []

    class Noting(oocbe.Observer):
        def bucket_done(self, number: int, total: int, variable: str, rows: int, bytes: int) -> None:
            events.append((number, total, variable, rows, bytes))

    add("options/observer", lambda: (oocbe.solve(problem, observer=Noting(), **PLAIN).value, events)[1])
    names = ("network-1", "infeasible", "too-long-integers", "bayesian-1-max-product")

    def several() -> list[Any]:
        found = oocbe.solve_many([FAMILIES[n]() for n in names], jobs=2, **PLAIN)
        return [
            (o.number, o.problem, o.exit_code, o.result and o.result.to_json(), o.failure and o.failure.message)
            for o in sorted(found, key=lambda outcome: outcome.number)
        ]

    add("options/several", several)
    big = network(51, 8, 8, 28, integer(10**6))  # its largest message has more rows than are kept from workers
    little = PLAIN | {"memory": "16MiB", "streams": 1, "tables": "incomplete", "dominance": False}
    for workers in (None, "cpus:2"):
        add(f"options/workers-{workers}", solved, big, little | {"workers": workers})
    small = PLAIN | {"memory": "32MiB", "streams": 1}
    add("options/little-memory", solved, FAMILIES["dense"](), small)
