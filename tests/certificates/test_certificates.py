"""Certificates: true claims have one that the checker accepts, and nothing that proves no value is accepted."""

import ast
import gzip
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.api.solving import solve as solving
from oocbe.certificates import check_certificate
from oocbe.certificates.check_certificate import check
from oocbe.certificates.making import Claim, Maker
from oocbe.certificates.tables import nothing_better
from oocbe.cli.main import app
from oocbe.formats import write
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.stress.tables import Spot5Settings, spot5_day
from tests.helpers.effort import examples

DAILY = Path(__file__).parents[2] / "examples" / "daily.spot"
SECONDS = 20.0


def random_problem(generator: np.random.Generator) -> Problem:
    """A few variables with costs, forbidden tuples, and now and then a linear constraint."""
    sizes = generator.integers(1, 4, size=generator.integers(1, 7)).tolist()
    functions, constraints, linear = [], [], []
    for _ in range(generator.integers(1, 9)):
        arity = int(generator.integers(1, min(3, len(sizes)) + 1))
        scope = tuple(generator.choice(len(sizes), size=arity, replace=False).tolist())
        shape = tuple(sizes[v] for v in scope)
        if generator.random() < 0.3:
            tuples = np.argwhere(generator.random(shape) < 0.4)
            constraints.append(Constraint(scope, tuples, allowed=bool(generator.random() < 0.2)))
        else:
            largest = int(generator.choice([3, 10, 1000]))
            costs = generator.integers(0, largest, size=shape) * (generator.random(shape) < 0.7)
            functions.append(Function.from_array(scope, costs))
    if generator.random() < 0.4:
        coefficients = tuple(generator.integers(-3, 9, size=size) for size in sizes)
        linear.append(LinearConstraint(tuple(range(len(sizes))), coefficients, int(generator.integers(0, 20)), "room"))
    variables = tuple(Variable(str(v), size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), tuple(linear), upper_bound=10**6, name="random")


def values_of(problem: Problem) -> dict[tuple[int, ...], int]:
    """What each feasible assignment is worth, by looking at all of them."""
    every = itertools.product(*map(range, problem.sizes))
    return {a: int(value) for a in every if (value := problem.evaluate(a)) is not None}


def best_claim(problem: Problem) -> Claim:
    values = values_of(problem)
    if not values:
        return Claim("infeasible", None, None)
    best = min(values, key=lambda a: values[a])
    return Claim("optimal", values[best], best)


def is_accepted(path: Path, content: dict[str, Any]) -> bool:
    try:
        check(path, json.dumps(content), nothing_better)
    except ValueError:
        return False
    return True


def mutated(content: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The certificate with one number, list or row changed."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    kinds = ["value", "assignment", "status", "dear", "order"]
    kinds += 8 * ["row"] * bool(copy["rows"]) + 8 * ["step"] * bool(copy["steps"])
    kind = chance.choice(kinds)
    if kind == "row":
        row = chance.choice(copy["rows"])
        key = chance.choice(list(row))
        if isinstance(row[key], list) and row[key]:
            changed(row[key], chance)
        elif isinstance(row[key], int):
            row[key] += chance.choice([-1, 1, -100, 100])
        else:
            row[key] = chance.choice(["clique", "local", "capacity", "none"])
    elif kind == "step":
        step = chance.choice(copy["steps"])
        name = chance.choice(["multipliers", "removed"])
        if step[name] and isinstance(step[name][0], list) and chance.random() < 0.7:
            pair = chance.choice(step[name])
            pair[chance.randrange(2)] += chance.choice([-1, 1, -(2**20), 2**20, -(2**30)])
        elif step[name] and isinstance(step[name][0], list):
            step[name].pop(chance.randrange(len(step[name])))
        else:
            changed(step[name], chance)
    elif kind == "assignment" and copy["assignment"]:
        changed(copy["assignment"], chance)
    elif kind == "value" and copy["value"] is not None:
        copy["value"] += chance.choice([-1000, -1, 1, 1000])
    elif kind == "status":
        copy["status"] = chance.choice(["infeasible", "nothing-better", "limit", "optimal"])
    elif kind == "dear":
        copy["dear"] = chance.choice([-1, 0, copy["dear"] // 2, None, "0"])
    else:
        copy["order"] = chance.choice([None, [], copy["order"]])
    return copy


def changed(numbers: list[int], chance: random.Random) -> None:
    """One number more, less, gone, or another."""
    place = chance.randrange(len(numbers)) if numbers else 0
    what = chance.randrange(4)
    if what == 0 or not numbers:
        numbers.insert(place, chance.randrange(200))
    elif what == 1:
        numbers.pop(place)
    else:
        numbers[place] += chance.choice([-2, -1, 1, 2, 1000])


def is_true(problem: Problem, best: int | None, content: dict[str, Any]) -> bool:
    """Whether what a certificate claims is so, judged without it."""
    if content["status"] == "optimal":
        return bool(content["value"] == best == problem.evaluate(content["assignment"]))
    if content["status"] == "infeasible":
        return best is None
    return content["status"] == "nothing-better" and (best is None or best >= content["value"])


def assert_no_mutation_lies(path: Path, problem: Problem, claim: Claim, text: str, count: int, seed: int) -> None:
    content, chance, refused = json.loads(text), random.Random(seed), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_certificate, "read", cache(check_certificate.read))  # the file stays as it is
        for number in range(count):
            mutant = mutated(content, chance)
            if is_accepted(path, mutant):
                assert is_true(problem, claim.value, mutant), (number, mutant)
            else:
                refused += 1
    assert refused > count / 4


def assert_true_of_other_problems(path: Path, problem: Problem, content: dict[str, Any]) -> None:
    """A certificate held against files with one part less or one cost more: where accepted, it is true of them."""
    others = [replace(problem, constraints=without(problem.constraints, n)) for n in range(len(problem.constraints))]
    others += [replace(problem, linear_constraints=()) for _ in problem.linear_constraints]
    others += [replace(problem, functions=without(problem.functions, n)) for n in range(len(problem.functions))]
    for n, f in enumerate(problem.functions):
        for place in range(0, len(f.values), 2):
            values = f.values.copy()
            values[place] = 0 if values[place] else 7
            dearer = Function(f.scope, f.tuples, values, f.default)
            others.append(replace(problem, functions=(*without(problem.functions, n), dearer)))
    for other in others:
        write(other, path.with_name("other.wcsp"))
        if is_accepted(path.with_name("other.wcsp"), content):
            assert is_true(other, best_claim(other).value, content)


def without(parts: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return parts[:number] + parts[number + 1 :]


def test_the_checker_is_short_and_shares_nothing_with_the_engine() -> None:
    source = Path(check_certificate.__file__).read_text()
    assert len(source.splitlines()) <= 200
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= set(sys.stdlib_module_names)


def test_the_example_is_proven_and_checked_alone(tmp_path: Path) -> None:
    target = tmp_path / "proof.json"
    assert CliRunner().invoke(app, ["solve", str(DAILY), "--certificate", str(target), "-q"]).exit_code == 0
    assert json.loads(target.read_text())["value"] == 2112
    shown = CliRunner().invoke(app, ["verify", str(DAILY), "--certificate", str(target)])
    assert shown.exit_code == 0
    assert "optimal 2112" in shown.output
    command = [sys.executable, "-I", check_certificate.__file__, str(DAILY), str(target)]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    target.write_text(target.read_text().replace('"value": 2112', '"value": 2113'))
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    assert CliRunner().invoke(app, ["verify", str(DAILY), "--certificate", str(target)]).exit_code == 2


def test_what_closes_before_any_multipliers_can_be_checked_alone(tmp_path: Path) -> None:
    # Below the value both photographs must be taken, which the third forbids: propagation alone closes that.
    path = tmp_path / "three.spot"
    path.write_text("3\n0 2 1 1 0\n1 2 1 1 0\n2 2 1 1 0\n2\n2 0 1 1 1\n2 1 2 1 1\n")
    problem = oocbe.read(path)
    text = Maker(path, problem, best_claim(problem)).make(SECONDS)
    assert text is not None
    assert json.loads(text)["order"] is None
    check(path, text)


def test_a_variable_with_one_value_from_the_start_completes_forbidden_tuples(tmp_path: Path) -> None:
    # x0 has the value 0 only, and (0, 1, 1) is forbidden: literals 3 and 5 exclude each other before any step.
    path = tmp_path / "fixed.wcsp"
    path.write_text("fixed 3 2 2 100\n2 2 2\n1 0 0 1\n1 100\n3 0 1 2 0 1\n0 1 1 100\n")
    clique = {"kind": "clique", "literals": [3, 5], "coefficients": [1, 1], "right_side": 1}
    assert check_certificate.Proof(check_certificate.read(path), 0, "infeasible", 0).row(clique)[1] == 1


def test_mutations_of_the_example_are_refused_or_still_prove_the_value() -> None:
    problem = oocbe.read(DAILY)
    result = oocbe.solve(problem, order_seconds=0.1)
    claim = Claim("optimal", int(result.value or 0), result.assignment)
    text = Maker(DAILY, problem, claim).make(SECONDS)
    assert text is not None
    assert_no_mutation_lies(DAILY, problem, claim, text, examples(400), 1)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_days_from_a_seed(seed: int, tmp_path: Path) -> None:
    settings = Spot5Settings(photographs=40 + 10 * seed, window=6 + seed, seed=seed)
    path = tmp_path / "day.spot"
    write(spot5_day(settings), path)
    problem = oocbe.read(path)
    result = oocbe.solve(problem)
    assert result.status == "optimal"
    claim = Claim("optimal", int(result.value or 0), result.assignment)
    text = Maker(path, problem, claim).make(SECONDS)
    assert text is not None
    assert_no_mutation_lies(path, problem, claim, text, examples(150), seed)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_random_problems_beside_brute_force(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    path = tmp_path / "random.wcsp"
    write(random_problem(generator), path)
    problem = oocbe.read(path)
    claim = best_claim(problem)
    text = Maker(path, problem, claim).make(SECONDS)
    assert text is not None
    assert_no_mutation_lies(path, problem, claim, text, 60, seed)
    assert_true_of_other_problems(path, problem, json.loads(text))
    # What is not so has no certificate: neither for a worse assignment, nor with the steps of the best one's.
    for assignment, value in values_of(problem).items():
        if value > (claim.value or 0):
            wrong = Claim("optimal", value, assignment)
            assert Maker(path, problem, wrong).make(1.0) is None
            lie = {**json.loads(text), "value": value, "assignment": list(assignment)}
            assert not is_accepted(path, lie)
            chance = random.Random(seed)
            for mutant in [mutated(lie, chance) for _ in range(60)]:
                assert not is_accepted(path, mutant) or is_true(problem, claim.value, mutant)
            assert not is_accepted(path, {**json.loads(text), "status": "infeasible", "value": None})
            break
    if claim.value is not None:
        assert not is_accepted(path, {**json.loads(text), "status": "nothing-better", "value": claim.value + 1})


def test_compressed_files_and_tables(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    variables = tuple(Variable(str(v), 3) for v in range(8))
    cycle = [(v, (v + 1) % 8) for v in range(8)]
    functions = tuple(Function.from_array(scope, generator.integers(0, 50, size=(3, 3))) for scope in cycle)
    path = tmp_path / "cycle.wcsp"
    write(Problem(variables, functions, upper_bound=10**6, name="cycle"), path)
    packed = tmp_path / "cycle.wcsp.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    target = tmp_path / "proof.json"
    assert CliRunner().invoke(app, ["solve", str(packed), "--certificate", str(target), "-q"]).exit_code == 0
    text = target.read_text()
    assert json.loads(text)["order"] is not None
    check(path, text, nothing_better)
    with pytest.raises(ValueError, match="oocbe verify"):
        check(path, text)
    assert CliRunner().invoke(app, ["verify", str(packed), "--certificate", str(target)]).exit_code == 0


def test_other_capacities_are_refused(tmp_path: Path) -> None:
    lines = ["2", "0 5 1 1 4510", "1 5 1 1 90200", "1", "90000"]
    path = tmp_path / "orbits.spot"
    path.write_text("\n".join(lines) + "\n")
    problem = oocbe.read(path)
    text = Maker(path, problem, best_claim(problem)).make(SECONDS)
    assert text is not None
    assert json.loads(text)["value"] == 5
    path.write_text("\n".join([*lines[:-1], "20000"]) + "\n")
    with pytest.raises(ValueError, match="capacity is not 90000"):
        check(path, text, nothing_better)


def test_upper_bounds_have_certificates(tmp_path: Path) -> None:
    target = tmp_path / "proof.json"
    asked = ["solve", str(DAILY), "--certificate", str(target), "-q", "--ub"]
    assert CliRunner().invoke(app, [*asked, "2112"]).exit_code == 11
    assert json.loads(target.read_text())["status"] == "nothing-better"
    check(DAILY, target.read_text(), nothing_better)


@pytest.mark.parametrize(
    ("suffix", "extra", "named"),
    [
        (".uai", [], "not the max-product semiring"),
        (".cfn", [], "not a .cfn file"),
        (".spot", ["--semiring", "counting"], "counting"),
        (".spot", ["--semiring", "max-sum"], "max-sum"),
        (".spot", ["--task", "count"], "--task"),
        (".spot", ["--evidence", "0=0"], "--evidence"),
        (".spot", ["--format", "spot"], "--format"),
    ],
)
def test_what_has_no_certificate_is_refused_by_name(
    suffix: str, extra: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oocbe.api.solving.solve.solve", lambda *_: pytest.fail("solved before it was refused"))
    path, target = tmp_path / f"day{suffix}", tmp_path / "proof.json"
    path.write_bytes(b"MARKOV\n1\n2\n1\n1 0\n2\n0.5 0.25\n" if suffix == ".uai" else DAILY.read_bytes())
    if suffix == ".cfn":
        oocbe.write(oocbe.read(DAILY), path)
    outcome = CliRunner().invoke(app, ["solve", str(path), "--certificate", str(target), *extra])
    assert outcome.exit_code == 2
    assert named in outcome.output
    assert not target.exists()


def test_what_is_not_proven_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "proof.json"
    solved = solving.solve
    monkeypatch.setattr("oocbe.api.solving.solve.solve", lambda *given: replace(solved(*given), status="limit"))
    outcome = CliRunner().invoke(app, ["solve", str(DAILY), "--certificate", str(target)])
    assert outcome.exit_code == 20
    assert "no certificate was written" in outcome.output
    assert not target.exists()


def test_an_interruption_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check_certificate.Proof, "step", interrupted)
    outcome = CliRunner().invoke(app, ["solve", str(DAILY), "--certificate", str(tmp_path / "proof.json"), "-q"])
    assert outcome.exit_code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", ["spot5/42.spot", "spot5/5.spot", "spot5/1502.spot", "spot5/1504.spot", "wcsp/spot5b/408b.wcsp"]
)
def test_instances_and_mutations(name: str, data: Callable[[str], Path]) -> None:
    path = data(name)
    problem = oocbe.read(path)
    result = oocbe.solve(problem)
    claim = Claim("optimal", int(result.value or 0), result.assignment)
    text = Maker(path, problem, claim).make(2 * SECONDS)
    assert text is not None
    assert_no_mutation_lies(path, problem, claim, text, 200, 1)


def test_the_checker_counts_a_weight_of_a_knapsack_at_value_1_only(tmp_path: Path) -> None:
    """A proof of 1 was accepted, by a reader that multiplied weights by values as the engine's did."""
    path, proof = tmp_path / "p.wcsp", tmp_path / "proof.json"
    path.write_text("p 2 4 3 50\n4 4\n2 0 1 -1 knapsack 4 2 3\n1 0 0 2\n1 4\n2 1\n1 1 0 2\n1 6\n3 2\n")
    made = CliRunner().invoke(app, ["solve", str(path), "--certificate", str(proof)])
    assert made.exit_code == 0, made.output
    assert json.loads(proof.read_text())["value"] == 10
    _, _, ((weights, capacity),), _ = check_certificate.read(path)
    assert (weights, capacity) == ({0: [0, -2, 0, 0], 1: [0, -3, 0, 0]}, -4)


def test_global_cost_functions_are_refused_until_they_are_written_out(tmp_path: Path) -> None:
    """The checker has a reader of its own, which knows no other keywords than those of knapsacks."""
    source, written = tmp_path / "p.wcsp", tmp_path / "q.wcsp"
    source.write_text("p 2 3 2 9\n3 3\n2 0 1 -1 salldiff var 4\n1 0 0 1\n1 3\n")
    refused = CliRunner().invoke(app, ["solve", str(source), "--certificate", str(tmp_path / "c.json")])
    assert refused.exit_code == 2 and "not the 'salldiff' of" in refused.output
    write(oocbe.read(source), written)
    made = CliRunner().invoke(app, ["solve", str(written), "--certificate", str(tmp_path / "c.json")])
    assert made.exit_code == 0, made.output
