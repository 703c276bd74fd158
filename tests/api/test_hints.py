"""Hints: the first incumbent of a solve, checked, completed where variables are left; the optimum stays the same."""

from __future__ import annotations

import json
import re
import signal

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import FormatError, UnsupportedError, UsageError
from tests.helpers.effort import examples, in_turns
from tests.helpers.small_problems import clique

FAST = {"order_seconds": 0, "backend": "cpu", "incumbent_seconds": 0.01}


def random_problem(seed: int) -> oocbe.Problem:
    """Costs or gains, integers or floats, over six variables, some of whose pairs of values are forbidden."""
    random = np.random.default_rng(seed)
    variables = tuple(oocbe.Variable(f"x{v}", int(random.integers(2, 4))) for v in range(6))
    functions, constraints = [], []
    for v in range(5):
        for w in range(v + 1, 6):
            values = random.integers(-9, 10, size=(variables[v].size, variables[w].size)) / (1 + seed % 2 * 7)
            functions.append(oocbe.Function.from_array((v, w), values if seed % 2 else values.astype(int)))
        constraints.append(oocbe.Constraint((v, v + 1), np.array([random.integers(0, 2, size=2)])))
    semiring = oocbe.MIN_SUM if seed % 4 < 2 else oocbe.MAX_SUM
    return oocbe.Problem(variables, tuple(functions), tuple(constraints), semiring=semiring)


@pytest.mark.parametrize(
    ("seed", "bounds"), [(seed, ("auto", "constant", "none")[seed % 3]) for seed in range(examples(48))]
)
def test_the_optimum_is_the_same_with_any_hint(seed, bounds):
    problem, random = random_problem(seed), np.random.default_rng(seed)
    plain = oocbe.solve(problem, **FAST, bounds=bounds)
    for count in (1, 3, 6):
        chosen = random.choice(6, size=count, replace=False).tolist()
        hint = {f"x{v}": int(random.integers(problem.sizes[v])) for v in chosen}
        result = oocbe.solve(problem, **FAST, bounds=bounds, hint=hint)
        assert (result.status, result.value) == (plain.status, plain.value)
        assert oocbe.verify(problem, result).accepted
        best = oocbe.solve(problem.with_evidence(hint), **FAST)
        note = "no assignment" if best.value is None else f"hint's values has the value {best.value}"
        assert note in result.notes[-1]


def test_the_hint_is_the_first_incumbent():
    problem = clique(9, 4, largest=99, has_forbidden=False)
    hint = {v.name: 0 for v in problem.variables}
    value = problem.evaluate([0] * 9)
    result = oocbe.solve(problem, **FAST, bounds="constant", hint=hint)
    assert result.status == "optimal"
    assert next(point.value for point in result.anytime if point.value is not None) == value


@pytest.mark.parametrize(("name", "bounds"), in_turns(("min-sum", "max-sum"), ("auto", "none")))
def test_a_limit_gives_at_least_the_hint(name, bounds):
    problem = clique(60, 8, largest=9999, has_forbidden=False).in_semiring(name)
    assignment = {v.name: 0 for v in problem.variables}
    result = oocbe.solve(
        problem, **FAST | {"incumbent_seconds": 0}, bounds=bounds, time_limit=0.01, memory="64MiB", hint=assignment
    )
    own = problem.evaluate([0] * 60)
    assert result.status == "limit" and result.value is not None
    assert result.value <= own if name == "min-sum" else result.value >= own
    assert oocbe.verify(problem, result).accepted


def test_a_gap_is_that_of_the_hint():
    problem = clique(9, 4, largest=99)
    best = oocbe.solve(problem, **FAST)
    result = oocbe.solve(problem, **FAST | {"incumbent_seconds": 0}, bounds="constant", gap=10**6, hint=best)
    assert (result.status, result.value, result.gap is not None) == ("limit", best.value, True)


def test_a_hint_where_nothing_is_better_ends_the_solve():
    free = oocbe.Problem((oocbe.Variable("a", 3), oocbe.Variable("b", 3)), (), semiring=oocbe.MIN_SUM)
    for value in range(3):
        assert oocbe.solve(free, hint={"a": value, "b": 2}).assignment == (value, 2)


def test_an_upper_bound_counts_for_hints():
    problem = clique(4, 3, largest=9)
    best = oocbe.solve(problem, **FAST)
    found = oocbe.solve(problem, **FAST, ub=best.value, hint=best)
    assert (found.status, found.value) == ("nothing-better", None)
    assert "is below ub" in found.notes[-1]


def test_names_values_and_semirings_are_checked(tmp_path):
    problem = clique(4, 3, largest=9)
    name = problem.variables[0].name
    with pytest.raises(UsageError, match="there is no variable 'nobody'"):
        oocbe.solve(problem, hint={"nobody": 0})
    with pytest.raises(UsageError, match="has no value"):
        oocbe.solve(problem, hint={name: 7})
    with pytest.raises(UsageError, match="hint: the counting semiring selects no assignment"):
        oocbe.solve(problem, semiring="counting", hint={name: 1})
    infeasible = oocbe.solve(problem, **FAST, ub=-1)
    with pytest.raises(UsageError, match="the result has no assignment as a hint"):
        oocbe.solve(problem, hint=infeasible)
    with pytest.raises(UsageError, match="tuple: neither a file, a result, nor values by variable as a hint"):
        oocbe.solve(problem, hint=(0, 1, 2, 0))
    with pytest.raises(UsageError, match="tuple: neither a file, a result, nor values by variable to verify"):
        oocbe.verify(problem, (0, 1, 2, 0))
    file = tmp_path / "hint.sol"
    file.write_text(f"{name} 0\nnobody 1\n")
    with pytest.raises(FormatError, match=re.escape(f"{file}, line 2") + ".*no variable 'nobody'"):
        oocbe.solve(problem, hint=file)


def test_files_of_the_command_line(tmp_path):
    file, solution, answer = tmp_path / "p.wcsp", tmp_path / "p.sol", tmp_path / "p.json"
    oocbe.write(clique(6, 3, largest=9), file)
    run = CliRunner().invoke
    first = run(app, ["solve", str(file), "--backend", "cpu", "--solution", str(solution), "--json"])
    answer.write_text(first.stdout)
    value = json.loads(first.stdout)["value"]
    part = tmp_path / "part.sol"
    part.write_text("\n".join(solution.read_text().splitlines()[:-3]))
    for hint in (solution, answer, part):
        again = json.loads(run(app, ["solve", str(file), "--backend", "cpu", "--hint", str(hint), "--json"]).stdout)
        assert again["value"] == value
        assert again["notes"][-1] == f"the best assignment found with the hint's values has the value {value}"
    refused = run(app, ["solve", str(file), "--hint", str(solution), "--task", "count"])
    assert isinstance(refused.exception, UnsupportedError) or "--hint: only the optimum" in refused.output
    assert "there is no such file" in run(app, ["solve", str(file), "--hint", "none.sol"]).stderr


def test_an_interruption_keeps_a_whole_hint(interrupts_heard, monkeypatch):
    import oocbe.propagation.propagated as module

    presolved = module.presolved

    def interrupted(*given):
        signal.raise_signal(signal.SIGINT)
        return presolved(*given)

    problem = clique(4, 3, largest=9)
    monkeypatch.setattr(module, "presolved", interrupted)
    with pytest.raises(oocbe.Interrupted) as caught:
        oocbe.solve(problem, **FAST, hint=dict.fromkeys(range(4), 1))
    assert caught.value.result.assignment == (1, 1, 1, 1)
    assert caught.value.result.value == problem.evaluate((1, 1, 1, 1))


def test_a_run_is_kept_with_a_hint_that_is_clearly_optimal(tmp_path):
    free = oocbe.Problem((oocbe.Variable("a", 2),), (oocbe.Function.from_array((0,), [0, 3]),))
    assert oocbe.solve(free, **FAST, hint={"a": 0}, workdir=tmp_path / "run").value == 0
    assert (tmp_path / "run" / "run.json").exists()
