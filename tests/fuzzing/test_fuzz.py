"""The fuzz catches an engine that is wrong, hangs or crashes, saves what it caught, and replays it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

import oocbe
from oocbe.api.tasks import verbs
from tools.fuzzing import runs_mode
from tools.fuzzing.brute_force import precise_logarithm, truth_of
from tools.fuzzing.descriptions import description_of, problem_of, smaller_descriptions
from tools.fuzzing.outcome import Tally
from tools.fuzzing.runner import MODES, Counts, Plan, check_case, draw_case, report, shrunk

ROOT = Path(__file__).resolve().parents[2]

WRONG_SOLVE = """
import dataclasses, oocbe.api.facade
real = oocbe.api.facade.solve
def solve(*given, **options):
    result = real(*given, **options)
    return dataclasses.replace(result, value=(result.value or 0) + 1, status="optimal")
oocbe.api.facade.solve = solve
"""
"""Read by every Python process that starts with it in a file sitecustomize.py on its path."""

SLEEPING_SOLVE = """
import time, oocbe.api.facade
oocbe.api.facade.solve = lambda *given, **options: time.sleep(10_000)
"""

DYING_SOLVE = """
import os, oocbe.api.facade
oocbe.api.facade.solve = lambda *given, **options: os.abort()
"""


def run_fuzz(folder: Path, *arguments: str, broken: str | None = None) -> subprocess.CompletedProcess:
    path = [str(ROOT)]
    if broken is not None:
        (folder / "broken").mkdir(exist_ok=True)
        (folder / "broken" / "sitecustomize.py").write_text(broken)
        path.insert(0, str(folder / "broken"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, *sys.path])}
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "fuzz.py"), "--failures", str(folder / "failures"), *arguments],
        capture_output=True, text=True, env=environment, cwd=folder, check=False,
    )  # fmt: skip


def test_a_wrong_answer_is_saved_and_replayed(tmp_path):
    given = ("--what", "solve", "--seed", "1", "--minutes", "1", "--enough", "1")
    found = run_fuzz(tmp_path, *given, broken=WRONG_SOLVE)
    assert found.returncode == 1, found.stdout + found.stderr
    path = sorted((tmp_path / "failures").iterdir())[0]
    assert f"--replay {path}" in found.stdout
    saved = json.loads(path.read_text())
    assert {"schema_version", "what", "expected", "found", "case"} <= saved.keys()
    again = run_fuzz(tmp_path, "--replay", str(path), broken=WRONG_SOLVE)
    assert (again.returncode, saved["what"] in again.stdout) == (1, True)
    mended = run_fuzz(tmp_path, "--replay", str(path))
    assert (mended.returncode, "holds now" in mended.stdout) == (0, True), mended.stdout + mended.stderr


@pytest.mark.parametrize(
    ("broken", "what", "seconds"),
    [(SLEEPING_SOLVE, "hang", "1"), (DYING_SOLVE, "crash of the process", "180")],
    ids=["hang", "crash"],
)
def test_a_case_that_does_not_come_back_is_a_failure_and_the_next_one_follows(tmp_path, broken, what, seconds):
    given = ("--what", "solve", "--minutes", "2", "--enough", "2", "--hang-seconds", seconds)
    found = run_fuzz(tmp_path, *given, broken=broken)
    assert found.returncode == 1
    saved = [json.loads(path.read_text()) for path in (tmp_path / "failures").iterdir()]
    assert {failure["what"] for failure in saved} == {what}, found.stdout
    assert len({tuple(failure["case"]["seed"]) for failure in saved}) > 1


def is_caught(mode: str, is_enough: Callable[[set[str]], bool], cases: int = 60) -> bool:
    """Whether what fails among the first cases of a seed is enough."""
    found: set[str] = set()
    for number in range(cases):
        failure = check_case(draw_case(mode, 0, 0, number))
        if failure is not None:
            found.add(failure["what"])
            if is_enough(found):
                return True
    return False


def test_wrong_tasks_are_caught(monkeypatch):
    real = verbs.run_task

    def wrong(task, *given, **options):
        result = real(task, *given, **options)
        if task == "count":
            return replace(result, value=result.value + 1)
        if task == "kbest":
            return replace(result, assignments=result.assignments[:-1])
        if task == "marginals":
            return replace(result, marginals=tuple(m * 0.999 for m in result.marginals))
        return result

    monkeypatch.setattr(verbs, "run_task", wrong)

    def is_enough(found):
        return {"count", "number of assignments"} <= found and any(what.startswith("probability") for what in found)

    assert is_caught("tasks", is_enough)


def test_a_bound_on_the_wrong_side_is_caught(monkeypatch):
    real = oocbe.bound

    def wrong(problem, *given, **options):
        result = real(problem, *given, **options)
        sign = 1 if result.sense == "min" else -1
        entries = [
            replace(
                e,
                bound=None if e.bound is None else e.bound + sign * 1e6,
                log_bound=None if e.log_bound is None else e.log_bound - 1e-9,
            )
            for e in result.entries
        ]
        return replace(result, entries=tuple(entries))

    monkeypatch.setattr(oocbe, "bound", wrong)
    assert is_caught("tasks", lambda found: {"side of the bound", "side of the logarithm"} <= found, 150)


def test_bounds_that_are_too_high_are_caught(monkeypatch):
    from oocbe.elimination.row_pruning.row_bounds import BoundSource
    from oocbe.search.depth_tree import Root

    real, real_costs = BoundSource.for_message, Root.unscale

    def wrong(self, *given):
        bound = real(self, *given)
        return replace(bound, constant=bound.constant + bound.scale)

    monkeypatch.setattr(BoundSource, "for_message", wrong)
    assert is_caught("bounds", lambda found: any(what.endswith(": a row's bound") for what in found))
    monkeypatch.setattr(BoundSource, "for_message", real)
    monkeypatch.setattr(Root, "unscale", lambda self, bound: real_costs(self, bound) + 1)
    assert is_caught("bounds", lambda found: "a row's own bound" in found)


def test_rows_that_are_lost_are_caught(monkeypatch):
    from oocbe.elimination.row_pruning.row_bounds import RowBound

    real = RowBound.with_threshold

    def wrong(self, *given):
        bound = real(self, *given)
        return bound and replace(bound, threshold=bound.threshold - bound.scale)

    monkeypatch.setattr(RowBound, "with_threshold", wrong)
    assert is_caught("bounds", lambda found: any(what.endswith(": a row that counts") for what in found))


def test_sums_of_floats_in_another_order_are_the_same_row():
    """With 96 rows the second bucket sums its two functions beforehand; with those that bounds leave it does not."""
    random, sizes = Random(0), [2, 2, 4, 4, 3]

    def function(scope):
        cells = [list(cell) for cell in itertools.product(*(range(sizes[v]) for v in scope))]
        return {"scope": scope, "tuples": cells, "values": [random.random() for _ in cells], "default": None}

    functions = [{**function(scope), "form": "rows"} for scope in ([0, 1, 2, 3, 4], [1, 2], [1, 3])]
    problem = {"sizes": sizes, "semiring": "min-sum", "constant": None, "upper_bound": None, "functions": functions}
    case = {"mode": "bounds", "problem": {**problem, "constraints": [], "linear": []}, "threshold": "middle"}
    case |= {"part": 0.2, "order": [0, 1, 2, 3, 4], "eliminated": [], "improve": False, "chance": 0}
    case |= {"source": 0, "threads": 1, "piece_rows": None, "block_rows": None, "dominance": False}
    assert check_case(case) is None


def test_a_number_of_cases_is_the_same_whoever_checks_them():
    def places(processes):
        plans = [Plan(("bounds",), 1.0, 0, 1.0, number, 11, processes) for number in range(processes)]
        return sorted(
            place for plan in plans for place in itertools.takewhile(bool, map(plan.place, itertools.count()))
        )

    assert places(1) == places(2) == places(5) == [(0, number) for number in range(11)]
    own = Plan(("bounds",), 1.0, 0, 1.0, number=3)
    assert [own.place(count) for count in range(2)] == [(3, 0), (3, 1)]


def test_wrong_operators_are_caught(monkeypatch):
    real = oocbe.join_sum

    def wrong(*tables, **settings):
        found = real(*tables, **settings)
        if isinstance(found, oocbe.Table) and found.rows:
            return replace(found, keys=found.keys[:, 1:].copy(), values=found.values[1:])
        return found

    monkeypatch.setattr(oocbe, "join_sum", wrong)
    assert is_caught("operators", lambda found: "rows" in found)


def test_readers_that_crash_and_writers_that_lose_something_are_caught(monkeypatch):
    from oocbe.formats import registry

    real = oocbe.read

    def wrong(path, *given, **options):
        try:
            found = real(path, *given, **options)
        except oocbe.FormatError as error:
            raise ValueError(str(error)) from error
        return replace(found, functions=found.functions[1:])

    monkeypatch.setattr(oocbe, "read", wrong)

    def is_enough(found):
        lost = "feasible assignments" in found or any(what.startswith("value of") for what in found)
        return "crash: ValueError" in found and lost

    assert is_caught("files", is_enough)
    assert registry.read is real


def test_a_failure_is_made_smaller(monkeypatch):
    monkeypatch.setattr(oocbe, "solve", lambda *given, **options: 1 / 0)
    case = next(c for n in range(99) if len((c := draw_case("solve", 0, 0, n))["problem"]["functions"]) > 3)
    small, failure = shrunk(case, check_case(case), seconds=20)
    assert failure["what"] == "crash: ZeroDivisionError"
    assert small["problem"]["functions"] == []
    assert check_case(small)["what"] == failure["what"]


@pytest.mark.parametrize("mode", MODES)
def test_cases_are_drawn_alike_and_survive_their_file(mode):
    for number in range(20):
        case = draw_case(mode, 5, 1, number)
        assert case == draw_case(mode, 5, 1, number)
        assert json.loads(json.dumps(case)) == case


def test_brute_force_by_hand():
    description = {
        "sizes": [2, 3],
        "semiring": "min-sum",
        "constant": 1,
        "upper_bound": 40,
        "functions": [
            {"scope": [1, 0], "tuples": [[0, 0], [2, 1]], "values": [5, -3], "default": 20, "form": "rows"},
            {"scope": [0], "tuples": [[1]], "values": [2**62], "default": 0, "form": "rows"},
        ],
        "constraints": [{"scope": [1], "tuples": [[1]], "allowed": False}],
        "linear": [{"scope": [0, 1], "coefficients": [[0, 2**63 - 1], [0, 0, 2**63 - 1]], "capacity": 2**63 - 1}],
    }
    assert truth_of(description).rows == [((0, 0), 6), ((0, 2), 21)]
    unbounded = truth_of({**description, "upper_bound": None})
    assert unbounded.rows == [((0, 0), 6), ((0, 2), 21), ((1, 0), 2**62 + 21)]
    assert truth_of(description, "counting").rows == [((0, 0), 0), ((0, 2), 0)]  # 20 · 0, since the constant is 1
    assert abs(float(precise_logarithm(Fraction(1, 10**400))) + 400 * np.log(10)) < 1e-9


def test_descriptions_of_problems_mean_the_same():
    for number in range(30):
        description = draw_case("solve", 3, 0, number)["problem"]
        assert truth_of(description_of(problem_of(description))).rows == truth_of(description).rows
        for smaller in smaller_descriptions(description):
            problem_of(smaller)


def test_the_table_has_a_line_a_mode():
    lines = list(report({"solve": Counts(cases=3, checks=40, failures=1, seconds=2.5), "runs": Counts(note="why not")}))
    assert lines[1].split() == ["solve", "3", "40", "0", "1", "2"]
    assert lines[2].endswith("why not")


def disturbed_run(way: str, attempts: list[list[dict]]) -> dict:
    """A case of the mode runs: each two of five variables have costs, and messages are cut where workers share them."""
    pairs = list(itertools.combinations(range(5), 2))
    cells = [list(cell) for cell in itertools.product(range(4), repeat=2)]
    functions = [
        {"scope": list(pair), "tuples": cells, "values": [(7 * n + 3 * i) % 11 for i in range(16)], "default": None}
        for n, pair in enumerate(pairs)
    ]
    problem = {"sizes": [4] * 5, "semiring": "min-sum", "constant": None, "upper_bound": None, "constraints": []}
    problem |= {"functions": [{**f, "form": "rows"} for f in functions], "linear": []}
    options = {"order_seconds": 0, "backend": "cpu", "tables": "incomplete", "bounds": "none", "inside": {}}
    options["inside"] = {"small_bytes": 1, "many_rows": 1 << 20}
    return {"mode": "runs", "way": way, "problem": problem, "options": options, "attempts": attempts}


def ends_of(case: dict, folder: Path, monkeypatch) -> list[tuple]:
    """How each attempt of a case ended, and how many workers it has had started; the last one is undisturbed."""
    ends = []
    for name in ("_started", "_forked"):
        real = getattr(runs_mode, name)

        def noted(*given, real=real):
            found = real(*given)
            if isinstance(found, subprocess.CompletedProcess):
                answer = json.loads(found.stdout) if found.stdout else {}
                ends.append((found.returncode, answer.get("error"), answer.get("started")))
            else:
                ends.append((found is None, (found or {}).get("error"), None))
            return found

        monkeypatch.setattr(runs_mode, name, noted)
    folder.mkdir()
    monkeypatch.setenv("OOCBE_THREADS", "1")  # which the check sets for good
    runs_mode.check(case, folder, Tally())
    monkeypatch.undo()
    return ends


def what(operation: str, passing: int, happens: str = "kill", who: str = "asks") -> dict:
    return {"who": who, "operation": operation, "passing": passing, "what": happens}


def test_a_disturbed_run_is_replayed(tmp_path, monkeypatch):
    attempts = [[what("create", 2)], [what("write", 1, "short"), what("rename", 2, "EIO")], [{"point": "run:begin:1"}]]
    attempts += [[what("synchronise", 3, "delay")]]
    first = ends_of(disturbed_run("solve", attempts), tmp_path / "first", monkeypatch)
    assert first[0] == (True, None, None) and first[1] == (False, "DiskError", None)
    assert ends_of(disturbed_run("solve", attempts), tmp_path / "second", monkeypatch) == first


def test_a_run_whose_workers_are_disturbed_ends_as_ever(tmp_path, monkeypatch):
    """A worker is killed as it begins its third file: another one is started, and the answer is the same."""
    pytest.importorskip("distributed")
    attempts = [[what("create", 3, who="worker")]]
    ends = ends_of(disturbed_run("workers", attempts), tmp_path / "first", monkeypatch)
    assert ends == [(0, None, 3), (0, None, 0)]
