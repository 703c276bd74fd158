"""``oocbe solve --task`` on the shipped examples."""

import json
import math
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import UsageError, ValueRangeError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY, GRID = str(EXAMPLES / "daily.spot"), str(EXAMPLES / "grid.wcsp")
FAST = ["--order-seconds", "0", "--backend", "cpu"]

run = CliRunner().invoke


def answer(file, task, *flags):
    done = run(app, ["solve", file, "--task", task, "--json", *FAST, *flags])
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert (content["schema_version"], content["task"], content["status"]) == (1, task, "exact")
    assert {"read", "forward", "total"} <= set(content["seconds"])
    return content


def test_count_has_all_digits_and_a_logarithm() -> None:
    content = answer(DAILY, "count")
    assert int(content["value"]) == oocbe.count(DAILY, order_seconds=0).value
    assert content["logarithm"] == pytest.approx(math.log(int(content["value"])))
    quiet = run(app, ["solve", GRID, "--task", "count", "--quiet", *FAST])
    assert (quiet.stdout, quiet.stderr) == (f"exact {oocbe.count(GRID, order_seconds=0).value}\n", "")


def test_count_optimal_and_kbest_agree() -> None:
    optimal = answer(GRID, "count-optimal")
    ways = int(optimal["value"])
    assert optimal["optimum"] == 1812
    best = answer(GRID, "kbest", "--k", str(ways + 1))["assignments"]
    assert [b["value"] for b in best[:-1]] == [1812] * ways
    assert best[-1]["value"] > 1812
    assert len({tuple(b["assignment"].items()) for b in best}) == ways + 1


def test_marginals_add_up_and_logz_is_theirs() -> None:
    content = answer(GRID, "marginals", "--temperature", "50")
    assert content["temperature"] == 50
    for own in content["marginals"].values():
        assert sum(own.values()) == pytest.approx(1)
    assert answer(GRID, "logz", "--temperature", "50")["value"] == pytest.approx(content["value"], rel=1e-13)


def test_min_marginals_reach_the_optimum_in_every_variable() -> None:
    content = answer(GRID, "min-marginals")
    assert content["value"] == 1812
    for own in content["marginals"].values():
        assert min(x for x in own.values() if x is not None) == 1812


def test_min_marginals_show_every_digit_of_integers(tmp_path: Path) -> None:
    """2^60 and 13, in JSON and as text."""
    file = tmp_path / "huge.wcsp"
    file.write_text(f"huge 1 2 1 {2**62}\n2\n1 0 {2**60} 1\n1 13\n")
    assert answer(str(file), "min-marginals")["marginals"] == {"0": {"0": 2**60, "1": 13}}
    assert f"0: {2**60}  1: 13" in run(app, ["solve", str(file), "--task", "min-marginals", *FAST]).stdout


def test_at_infinite_temperature_marginals_are_shares_of_the_count() -> None:
    content = answer(GRID, "marginals", "--temperature", "inf")
    assert content["temperature"] is None
    assert content["value"] == pytest.approx(answer(GRID, "count")["logarithm"])


def test_rows_for_people() -> None:
    done = run(app, ["solve", GRID, "--task", "kbest", "--k", "2", *FAST])
    lines = done.stdout.splitlines()
    rows = dict(line.split(maxsplit=1) for line in lines[:-2])
    assert (rows["task"], rows["optimum"]) == ("kbest", "1812")
    assert lines[-2].startswith("1812  ")
    assert "count" in run(app, ["solve", GRID, "--task", "count", *FAST]).stdout
    assert "log Z" in run(app, ["solve", GRID, "--task", "marginals", *FAST]).stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "median"], "median"),
        (["--task", "kbest", "--k", "0"], "k: 0"),
        (["--task", "logz", "--temperature", "-1"], "temperature: -1"),
        (["--task", "kbest", "--semiring", "sum-product"], "no best assignments"),
        (["--task", "count", "--ub", "9"], "ub"),
        (["--task", "count", "--solution", "out.sol"], "--solution"),
        (["--k", "3"], "--k 3: the task optimum has no use for it; it is for kbest"),
        (["--task", "count", "--k", "3"], "--k 3: the task count has no use for it; it is for kbest"),
        (["--task", "best", "--k", "3"], "--task best: no such task; known: optimum, mpe, count"),
        (["--task", "kbest", "--temperature", "2"], "--temperature 2.0: the task kbest has no use for it"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_wrong_use_is_refused(flags: list[str], message: str) -> None:
    done = run(app, ["solve", GRID, *flags])
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("task", "semiring", "message"),
    [
        ("mpe", "min-sum", "factors that are multiplied"),
        ("mpe", "counting", "factors that are multiplied"),
        ("kbest", "counting", "no best assignments"),
        ("count-optimal", "sum-product", "no best assignments"),
        ("min-marginals", "max-product", "sums that are compared"),
    ],
)
def test_a_plan_refuses_the_semirings_that_the_task_refuses(task: str, semiring: str, message: str) -> None:
    for command in ("solve", "plan"):
        done = run(app, [command, GRID, "--task", task, "--semiring", semiring, "--order-seconds", "0"])
        assert done.exit_code == 2 and message in done.stderr


@pytest.mark.parametrize("task", ["kbest", "count-optimal", "marginals", "min-marginals", "count", "logz"])
def test_a_plan_refuses_linear_constraints_that_the_task_refuses(tmp_path: Path, task: str) -> None:
    costs, amounts = ([f"{1 + v * k % 11} x{v}" for v in range(40)] for k in (3, 7))
    file = tmp_path / "wide.lp"
    file.write_text(
        f"Minimize\n {' + '.join(costs)}\nSubject To\n {' + '.join(amounts)} >= 90\n"
        f"Binary\n {' '.join(f'x{v}' for v in range(40))}\nEnd\n"
    )
    done = [run(app, [command, str(file), "--task", task, "--order-seconds", "0"]) for command in ("solve", "plan")]
    refused = task not in ("count", "logz")
    assert [(d.exit_code, "can bind" in d.stderr) for d in done] == [(2 * refused, refused)] * 2


def test_a_plan_refuses_an_upper_bound_that_the_task_refuses(tmp_path: Path) -> None:
    file = tmp_path / "bound.wcsp"
    file.write_text("bound 2 2 2 5\n2 2\n1 0 0 1\n1 3\n1 1 0 1\n1 3\n")
    for command in ("solve", "plan"):
        done = run(app, [command, str(file), "--task", "min-marginals", "--order-seconds", "0"])
        assert done.exit_code == 2 and "upper bound of 5" in done.stderr


def test_a_plan_of_a_count_accepts_what_propagation_makes_acceptable(tmp_path: Path) -> None:
    """The costs reach the bound until propagation removes the value that costs most."""
    file = tmp_path / "bound.wcsp"
    file.write_text("bound 2 2 3 5\n2 2\n1 0 0 1\n1 3\n1 1 0 1\n1 3\n1 1 0 1\n1 5\n")
    done = [run(app, [command, str(file), "--task", "count", "--order-seconds", "0"]) for command in ("solve", "plan")]
    assert [d.exit_code for d in done] == [0, 0], done[1].stderr


@pytest.mark.parametrize("task", ["optimum", "kbest", "count-optimal"])
def test_a_plan_refuses_negative_factors_that_the_task_refuses(tmp_path: Path, task: str) -> None:
    file = tmp_path / "negative.wcsp"
    file.write_text("negative 1 2 1 100\n2\n1 0 0 1\n1 -3\n")
    for command in ("solve", "plan"):
        done = run(app, [command, str(file), "--task", task, "--semiring", "max-product"])
        assert done.exit_code == 2 and "negative value" in done.stderr


@pytest.mark.parametrize(
    "text", ["c t wmc\np cnf 2 1\nc p weight 1 0.3 0\n1 2 0\n", "p cnf 2 1\nc p show 1 0\n1 2 0\n"]
)
def test_a_plan_refuses_a_question_that_a_semiring_leaves_out(tmp_path: Path, text: str) -> None:
    file = tmp_path / "question.cnf"
    file.write_text(text)
    for command in ("solve", "plan"):
        done = run(app, [command, str(file), "--semiring", "counting"])
        assert done.exit_code == 2 and "the counting semiring would leave that out" in done.stderr


def test_a_plan_refuses_a_bound_and_linear_constraints_that_a_solve_refuses(tmp_path: Path) -> None:
    file = tmp_path / "wide.lp"
    names = [f"x{v}" for v in range(40)]
    rows = [" + ".join(f"{1 + v * k % 1009} {name}" for v, name in enumerate(names)) for k in range(377, 731, 40)]
    conditions = "\n".join(f" {row} >= 9000" for row in rows)
    file.write_text(f"Minimize\n x0\nSubject To\n{conditions}\nBinary\n {' '.join(names)}\nEnd\n")
    for command in ("solve", "plan"):
        done = run(app, [command, str(file), "--semiring", "counting"])
        assert done.exit_code == 2 and "needs every constraint enforced" in done.stderr
    for verb in (oocbe.solve, oocbe.plan):
        with pytest.raises(UsageError, match="only the min-sum semiring has an upper bound"):
            verb(GRID, semiring="counting", ub=9)


@pytest.mark.parametrize("semiring", ["max-product", "sum-product", "counting"])
def test_a_plan_says_where_products_may_leave_64_bits(semiring: str) -> None:
    """Only the products as they are computed tell whether they do."""
    for count, leaves in ((6, False), (70, True)):
        links = [Function.from_array((v, v + 1), [[10, 9], [1, 2]]) for v in range(count)]
        problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(count + 1)), tuple(links), constant=1)
        problem = problem.in_semiring(semiring)
        assert ("may leave 64 bits" in oocbe.plan(problem).propagation) is leaves
        with pytest.raises(ValueRangeError) if leaves and semiring != "counting" else nullcontext():
            oocbe.solve(problem)


def test_a_plan_refuses_complete_tables_without_room_for_what_is_infeasible() -> None:
    function = Function.from_array((0,), [0, (1 << 62) - 1])
    problem = Problem((Variable("x", 2),), (function,))
    for verb in (oocbe.solve, oocbe.plan):
        with pytest.raises(ValueRangeError, match="leave no room for what is infeasible"):
            verb(problem, tables="complete")


def test_a_plan_refuses_a_temperature_without_use() -> None:
    for command in ("solve", "plan"):
        done = run(app, [command, GRID, "--task", "count", "--temperature", "2"])
        assert done.exit_code == 2 and "has no use for it" in done.stderr


def test_the_time_limit_ends_a_task() -> None:
    done = run(app, ["solve", DAILY, "--task", "count", "--time-limit", "0"])
    assert done.exit_code == 20, done.stderr
    assert "time limit" in done.stderr


def test_nothing_feasible(tmp_path: Path) -> None:
    file = tmp_path / "none.wcsp"
    file.write_text("none 1 2 1 10\n2\n1 0 10 2\n0 10\n1 10\n")
    for task in ("count", "count-optimal", "kbest", "logz", "marginals", "min-marginals"):
        done = run(app, ["solve", str(file), "--task", task, "--json", *FAST])
        assert done.exit_code == 10, (task, done.stderr)
        assert json.loads(done.stdout)["status"] == "infeasible"


def test_ten_assignments_at_temperature_one_where_nothing_is_said():
    assert len(answer(GRID, "kbest")["assignments"]) == 10
    assert answer(GRID, "logz")["temperature"] == 1


def test_the_time_to_read_the_problem_counts(monkeypatch):
    read_model = oocbe.read_model

    def slow(*arguments):
        time.sleep(0.2)
        return read_model(*arguments)

    monkeypatch.setattr("oocbe.formats.read_model", slow)
    seconds = answer(GRID, "count")["seconds"]
    assert seconds["read"] >= 0.2
    # Each phase is rounded to a microsecond, so their sum may be half of one too high for every phase.
    assert seconds["total"] >= sum(spent for phase, spent in seconds.items() if phase != "total") - 1e-6 * len(seconds)


NETWORK = "BAYES 2 2 3 2 1 0 2 0 1 2 0.25 0.75 6 0.5 0.25 0.25 0 0.125 0.875\n"


def test_answers_as_files_of_the_uai_competitions(tmp_path: Path) -> None:
    """By hand: P(x0, x1 = 1) is 0.0625 and 0.09375; with evidence only these two are left."""
    network, evidence = tmp_path / "n.uai", tmp_path / "n.uai.evid"
    network.write_text(NETWORK)
    evidence.write_text("1 1 1\n")
    said = {}
    for task, suffix in [("mpe", "MPE"), ("marginals", "MAR"), ("logz", "PR")]:
        target = tmp_path / f"n.{suffix}"
        done = run(app, ["solve", str(network), "--task", task, "--evidence", str(evidence), "-o", str(target), *FAST])
        assert done.exit_code == 0, done.output
        kind, said[suffix] = target.read_text().splitlines()
        assert kind == suffix
    assert said["MPE"] == "2 1 1"
    numbers = list(map(float, said["MAR"].split()))
    assert numbers == pytest.approx([2, 2, 0.4, 0.6, 3, 0, 1, 0])
    assert float(said["PR"]) == pytest.approx(math.log10(0.15625))


@pytest.mark.parametrize(
    ("lines", "flags", "expected"),
    [
        ("", [], ["s SATISFIABLE", "c s type mc", "c s log10-estimate 0.477121254719662", "c s exact arb int 3"]),
        ("-1 0\n-2 0\n", [], ["s UNSATISFIABLE", "c s type mc", "c s log10-estimate -inf", "c s exact arb int 0"]),
        (
            "c p weight 1 0.1 0\nc p weight -1 -0.4 0\n",
            [],
            ["s SATISFIABLE", "c s type wmc", "c s neglog10-estimate -0.698970004336019", "c s exact arb frac -1/5"],
        ),
        (
            "c p weight 1 1/4 0\nc p show 1 0\n",
            ["--float-counts"],
            ["s SATISFIABLE", "c s type pwmc", "c s log10-estimate 0", "c s exact double float 1.0"],
        ),
        ("c t pmc\nc p show 0\n", [], ["s SATISFIABLE", "c s type pmc", "c s log10-estimate 0", "c s exact arb int 1"]),
    ],
)
def test_lines_of_the_model_counting_competition(tmp_path: Path, lines, flags, expected) -> None:
    file = tmp_path / "c.cnf"
    file.write_text(f"p cnf 2 1\n1 2 0\n{lines}")
    done = run(app, ["solve", str(file), "--task", "count", "--output", "competition", *flags, *FAST])
    assert done.exit_code == (10 if "UN" in expected[0] else 0), done.stderr
    assert done.stdout.splitlines() == expected


def test_fractions_in_json_and_for_people(tmp_path: Path) -> None:
    file = tmp_path / "c.cnf"
    file.write_text("p cnf 2 1\n1 2 0\nc p weight 1 1/3 0\n")
    content = answer(str(file), "count")
    assert (content["value"], content["kind"]) == ("4/3", "wmc")
    assert content["log10"] == pytest.approx(math.log10(4 / 3))
    shown = run(app, ["solve", str(file), "--task", "count", *FAST]).stdout
    assert "4/3 = 1.33333333333\n" in shown and "wmc" in shown


def test_output_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    network = tmp_path / "n.uai"
    network.write_text("no network")
    for name, task, why in [
        ("n.MAR", "logz", "holds the answer of --task marginals, not of logz"),
        ("n.txt", "mpe", "unknown suffix of a file format; known: .MPE, .MAR, .PR"),
        ("n.SUM", "logz", ".SUM cannot be written: no competition defines such a file"),
        ("n.mmap", "mpe", "oocbe uai answers it"),
        ("none/n.PR", "logz", "does not exist; make it first"),
        ("competition", "logz", "--output competition that of --task count"),
    ]:
        done = run(app, ["solve", str(network), "--task", task, "-o", str(tmp_path / name)])
        assert done.exit_code == 2 and why in done.stderr
    both = ["--task", "count", "--output", "competition", "--json"]
    assert "prints lines, and --json an object" in run(app, ["solve", str(network), *both]).stderr


def test_what_has_no_answer_is_not_written(tmp_path: Path) -> None:
    network = tmp_path / "n.uai"
    network.write_text("MARKOV 1 2 1 1 0 2 0 0\n")
    done = run(app, ["solve", str(network), "--task", "marginals", "-o", str(tmp_path / "n.MAR"), *FAST])
    assert done.exit_code == 10 and "there is no answer to write to" in done.stderr
    assert not (tmp_path / "n.MAR").exists()
