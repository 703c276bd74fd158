"""What type checkers make of a program that uses oocbe: every public name has a type, and calls of it are checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import oocbe
from oocbe.model.settings.option_types import OptionValues

ROOT = Path(__file__).parents[1]

PROGRAM = """
from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import oocbe
from oocbe import dcop

problem: oocbe.Problem = oocbe.read("problem.wcsp")
options: oocbe.SolveOptions = oocbe.SolveOptions(seed=1)
oocbe.solve(problem, order="min-fill", memory="2GiB", workdir=Path("run"), time_limit=5, ub=3, semiring=oocbe.MIN_SUM)
oocbe.count(problem, evidence={"a": "yes"}, gap="1%", streams=None, tables="complete", resume=True)
assert_type(oocbe.solve(problem, options, time_limit=1.0), oocbe.Result)
assert_type(oocbe.bound(problem, [2, "auto"], options), oocbe.BoundResult)
assert_type(oocbe.anytime("MMAP", problem, ["a"], memory="1GiB"), oocbe.AnytimeResult)
assert_type(oocbe.most_probable_explanation(Path("network.uai")), oocbe.TaskResult)
for task in (oocbe.count, oocbe.count_optimal, oocbe.k_best, oocbe.log_partition, oocbe.marginals, oocbe.min_marginals):
    assert_type(task(problem), oocbe.TaskResult)
assert_type(oocbe.verify(problem, "solution").accepted, bool)
oocbe.plan(problem).buckets
oocbe.write(problem, "problem.uai")
assert_type(oocbe.from_pyagrum(object()), oocbe.Problem)
assert_type(oocbe.from_pgmpy(object(), "name"), oocbe.Problem)
oocbe.to_pyagrum(problem)
oocbe.to_pgmpy(problem)
assert_type(oocbe.fit_tables(problem, [{"a": None}], rounds=5, prior=1.0, memory="1GiB")[0], oocbe.Problem)
model = oocbe.read_model("model.mps")
assert_type(model, oocbe.Problem | oocbe.LinearSystem | oocbe.CompactProblem | dcop.Dcop)
assert_type(oocbe.propagate(model, probe=True), oocbe.PropagationResult)
short = oocbe.CompactProblem(problem, (oocbe.ShortTable((0,), np.array([[-1]])),))
walk = oocbe.Problem(
    variables=(oocbe.Variable("a", 2),),
    functions=(oocbe.Function((0,), np.array([[0], [1]]), np.array([1, 2])),),
    constraints=(oocbe.Constraint((0,), np.array([[0]])),),
    linear_constraints=(oocbe.LinearConstraint((0,), (np.array([0, 1]),), 1),),
    semiring=oocbe.MAX_SUM,
)
table = oocbe.Table.from_rows({"a": 2}, [[0]], [5])
assert_type(table.layout, oocbe.Layout)
oocbe.join_sum(table, table)
oocbe.semi_join(table, table)
oocbe.maximise(table, "a")
oocbe.marginalise(table, "a")
oocbe.join_maximise(table, table, "a")
oocbe.join_marginalise(table, table, "a")
oocbe.aggregate("a.parquet", Path("b.parquet"), group_by=["day"], aggregate="sum", values=["gain", None], memory="1GiB")
oocbe.einsum("ij,jk->ik", np.eye(2), np.eye(2), semiring="max-plus", memory="1GiB", return_argmax=True)
assert_type(oocbe.einsum_path("ij,jk->ik", (2, 2), (2, 2)).largest, int)
oocbe.to_rows(oocbe.to_complete(table))
oocbe.common_domains("a.parquet", "b.parquet", values="cost")
assert_type(oocbe.Table.from_arrow(table), oocbe.Table)
assert_type(oocbe.StoredTable.from_parquet("a.parquet", "a", memory="1GiB"), oocbe.StoredTable)
assert_type(oocbe.StoredTable.open("s3://bucket/a").upload("gs://bucket/a"), oocbe.StoredTable)
packed: oocbe.PackedTable = oocbe.PackedTable.pack(table)
stored: type[oocbe.StoredTable] | type[oocbe.StoredCompleteTable] = oocbe.StoredTable
complete: oocbe.CompleteTable = oocbe.CompleteTable.from_array("a", [1, 2], oocbe.MIN_SUM)
semirings: list[oocbe.Semiring] = [
    oocbe.COUNTING, oocbe.LOG_SUM_EXP, oocbe.MAX_PRODUCT, oocbe.SUM_PRODUCT, *oocbe.SEMIRINGS.values()
]
verdict: oocbe.Verdict
version: str = oocbe.__version__


class Told(oocbe.Observer):
    def bounds_changed(
        self,
        lower: int | float | None,
        value: int | float | None,
        why: str,
        assignment: tuple[int, ...] | None,
    ) -> None:
        print(assignment)


for outcome in oocbe.solve_many([problem, "a.wcsp"], jobs=2, time_limit=5):
    assert_type(outcome, oocbe.Outcome)
tree = oocbe.JunctionTree(problem, memory="1GiB")
tree.observe({"a": 0}, likelihood={"b": [0.5, 1]})
assert_type(tree.log_evidence, float)
tree.batch([{"a": 1}], targets=["b"], joint=[("a", "b")])
oocbe.JunctionTree.open("saved.tree").calibrate()
assert_type(tree.query(["a"], {"b": 1})["yes"], float)
assert_type(tree.map_query(["a"]), dict[str, str] | None)
assert_type(tree.predict([{"a": None}]).indices, NDArray[np.int64])
tree.predict_proba([{}], ["a"])["a"]["yes"].sum()

with oocbe.trace("run.json"), oocbe.result_memory("1GiB"):
    try:
        oocbe.solve(problem, observer=Told())
    except oocbe.Interrupted as stopped:
        assert_type(
            stopped.result,
            oocbe.Result
            | oocbe.TaskResult
            | oocbe.BoundResult
            | oocbe.PropagationResult
            | dcop.DcopResult
            | oocbe.AnytimeResult,
        )
    except (oocbe.CorruptDataError, oocbe.FormatError, oocbe.LimitError, oocbe.ModelError) as error:
        print(error)
    except (oocbe.ResourceError, oocbe.ClusterError) as error:
        print(error)
    except (oocbe.UnsupportedError, oocbe.UsageError, oocbe.ValueRangeError) as error:
        print(error)
    except oocbe.OocbeError as error:
        print(error)
"""


MISSING = ('Missing positional argument "problem"', 'Argument missing for parameter "problem"')
WRONG = {
    "oocbe.bound()": MISSING,
    "oocbe.most_probable_explanation()": MISSING,
    "oocbe.solve()": MISSING,
    'oocbe.solve("p.wcsp", memroy="2GiB")': (
        'Unexpected keyword argument "memroy" for "solve"; did you mean "memory"?',
        'No parameter named "memroy"',
    ),
    'oocbe.k_best("p.wcsp", 3, ordr="auto")': (
        'Unexpected keyword argument "ordr" for "k_best"',
        'No parameter named "ordr"',
    ),
    'oocbe.bound("p.wcsp", memory=[1])': (
        'Argument "memory" to "bound" has incompatible type "list[int]"',
        '"list[int]" cannot be assigned to parameter "memory"',
    ),
}
"""Calls, and what mypy and pyright say is wrong with each."""


def test_options_have_the_types_of_their_class():
    assert set(OptionValues.__annotations__) == set(oocbe.SolveOptions.names())


@pytest.fixture
def programs(tmp_path):
    """A folder with a program of a user, which is right, and one whose every call is wrong."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("\n".join(["import oocbe", *WRONG]) + "\n")
    return tmp_path


def test_the_program_uses_every_public_name():
    assert [name for name in oocbe.__all__ if f"oocbe.{name}" not in PROGRAM] == []


def test_mypy_accepts_the_program_and_no_wrong_call(programs):
    """With the settings that the package is checked with, what mypy has kept of that is used here."""
    pytest.importorskip("mypy")
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py", "wrong.py"],
        cwd=programs,
        env={**os.environ, "MYPYPATH": str(Path(oocbe.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines()[:-1] if ": note: " not in line]
    assert len(said) == len(WRONG), done.stdout + done.stderr
    for number, (line, (wrong, _)) in enumerate(zip(said, WRONG.values(), strict=True), 2):
        assert line.startswith(f"wrong.py:{number}: error: ") and wrong in line, done.stdout


def test_pyright_accepts_the_program_and_no_wrong_call(programs):
    """It is a program of Node.js, which its package for Python fetches where there is none."""
    pytest.importorskip("pyright")
    root = str(Path(oocbe.__file__).parents[1])
    settings = {"pythonVersion": "3.11", "typeCheckingMode": "standard", "extraPaths": [root]}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
        cwd=programs,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout).strip()[-300:]}")
    said = [(Path(own["file"]).name, own["range"]["start"]["line"] + 1, own["message"]) for own in found]
    assert [place[:2] for place in said] == [("wrong.py", number) for number in range(2, len(WRONG) + 2)], said
    for (*_, message), (_, wrong) in zip(said, WRONG.values(), strict=True):
        assert wrong in message
