"""Proofs in the format of VeriPB: formulas equal their problems, and only valid proofs are accepted."""

import io
import itertools
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.api import facade
from oocbe.bounds.bound_tree import SCALE, BoundSearch
from oocbe.certificates import proofs
from oocbe.certificates.cost_shifting import Effort, ScopeCosts, _chosen, shifts_of
from oocbe.certificates.cutting_planes import CuttingPlanes, Line, Sum
from oocbe.certificates.making import Maker
from oocbe.certificates.opb import PseudoBooleanFormula
from oocbe.certificates.proofs import ProofTask
from oocbe.certificates.veripb import ProofWriter
from oocbe.cli.main import app
from oocbe.errors import TimeLimitError, UnsupportedError, UsageError
from oocbe.model.count_question import CountQuestion
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.compilation import working_time
from oocbe.runtime.deadline import current
from oocbe.stress.tables import random_network
from tests.helpers.effort import examples
from tests.peers.test_capacities import chosen
from tools.fuzzing.brute_force import truth_of
from tools.fuzzing.descriptions import problem_of, random_description
from tools.fuzzing.mutations import mutated
from tools.fuzzing.outcome import Tally
from tools.fuzzing.proofs_mode import check, checker, claim_of, draw, is_implied, scale_and_offset, veripb_refuses

ROOT = Path(__file__).parents[2]
DAILY = ROOT / "examples" / "daily.spot"


def formula_of(seed: int) -> tuple[PseudoBooleanFormula, dict[str, Any]] | None:
    """A random problem as a formula; None where its costs have too many decimals."""
    description = random_description(random.Random(seed), ("min-sum", "max-sum"), most=300)
    try:
        return PseudoBooleanFormula(problem_of(description)), description
    except UnsupportedError as error:
        assert "decimals" in str(error)
        return None


def proof_of(formula: PseudoBooleanFormula, seed: int, assignment: tuple[int, ...] | None) -> str:
    """A proof along a random order."""
    order = list(range(len(formula.problem.variables)))
    random.Random(seed).shuffle(order)
    lines: list[str] = []
    ProofWriter(formula, lines.append, order).write(assignment)
    return "".join(lines)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_formula_has_the_assignments_and_costs_of_its_problem(seed: int) -> None:
    found = formula_of(seed)
    if found is None:
        return
    formula, problem = found[0], found[0].problem
    reader = checker().Checker(io.StringIO("".join(formula.lines())))
    for assignment in itertools.product(*map(range, problem.sizes)):
        literals, objective = formula.solution(assignment)
        values = {word.removeprefix("~"): int(word[0] != "~") for word in literals}
        # Auxiliary variables are the least that their clauses permit, so that no other ones are feasible or cheaper.
        holds = all(sum(c * values[n] for n, c in r.terms.items()) >= r.degree for r in reader.live.values())
        if problem.is_integral:
            value = problem.evaluate(assignment)
            assert holds == (value is not None), assignment
            assert value is None or value == formula.cost(objective)
        for name, c in (reader.objective or {}).items():
            assert c > 0 and values[name] in (0, 1)


def test_formula_read_as_a_problem_has_the_same_optimum(tmp_path: Path) -> None:
    for seed in range(4):
        found = formula_of(1000 + seed)
        if found is None or not found[0].problem.is_integral or found[0].problem.magnitude > 2**40:
            continue
        path = tmp_path / f"{seed}.opb"
        path.write_text("".join(found[0].lines()))
        truth = truth_of(found[1])
        result = oocbe.solve(path, order_seconds=0)
        assert (result.status == "infeasible") == (not truth.rows)
        if truth.rows:
            assert found[0].cost(int(result.value or 0)) == truth.best


@pytest.mark.parametrize("seed", range(examples(60)))
def test_elimination_proves_the_optimum(seed: int) -> None:
    found = formula_of(seed)
    if found is None:
        return
    formula, description = found
    best = truth_of(description)
    choose = min if formula.sign > 0 else max
    assignment = choose(best.rows, key=lambda row: row[1])[0] if best.rows else None
    text = "".join(formula.lines())
    claim = checker().check(io.StringIO(text), io.StringIO(proof_of(formula, seed, assignment)))
    if assignment is None:
        assert claim.kind == "UNSAT" or (claim.kind, claim.lower) == ("BOUNDS", None)
    elif formula.objective:
        assert claim.lower == claim.upper == formula.solution(assignment)[1]


@pytest.mark.parametrize("seed", range(examples(60)))
def test_steps_of_a_certificate_prove_what_they_say(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = formula_of(seed)
    if found is None:
        return
    formula, truth = found[0], truth_of(found[1])
    choose, generator = (min if formula.sign > 0 else max), random.Random(seed)
    best = choose(truth.rows, key=lambda row: row[1])[0] if truth.rows else None
    assignment = best if best is None or seed % 2 else generator.choice(truth.rows)[0]
    task = ProofTask(formula.problem, SolveOptions(bound_seconds=1), tmp_path / "p", tmp_path / "o")
    most = formula.most if assignment is None else formula.solution(assignment)[1] - 1
    steps, _ = task._steps(most, math.inf)
    if steps is not None and seed % 5 == 0:  # rows that need removed values are left out
        steps["steps"] = [{**step, "removed": []} for step in steps["steps"]]
    derived, checked = dict[int, Line](), dict[int, Line]()
    add, write = checker().Checker.add, Sum.derived

    def noted(checks: Any, line: Any) -> None:
        add(checks, line)
        checked[checks.last] = Line(checks.last, line.terms, line.degree)

    def kept(total: Sum, derive: Callable[[str], int]) -> Line:
        line = write(total, derive)
        return derived.setdefault(line.number, line) if line.number else line

    monkeypatch.setattr(checker().Checker, "add", noted)
    monkeypatch.setattr(Sum, "derived", kept)
    lines: list[str] = []
    order = list(range(len(formula.problem.variables)))
    ProofWriter(formula, lines.append, order if seed % 3 else None).write(assignment, steps)
    claim = checker().check(io.StringIO("".join(formula.lines())), io.StringIO("".join(lines)))
    assert {number: checked[number] for number in derived} == derived
    if assignment is None or best is None:
        assert seed % 3 == 0 or claim.kind == "UNSAT" or (claim.kind, claim.lower) == ("BOUNDS", None)
    elif formula.objective:
        optimum = formula.solution(best)[1]
        assert claim.upper == formula.solution(assignment)[1]
        assert claim.lower == optimum if seed % 3 and assignment == best else claim.lower <= optimum


def test_a_clique_is_derived_from_pairs_and_from_values_of_one_variable() -> None:
    pairs = tuple(itertools.combinations(range(5), 2))
    conflicts = tuple(Constraint(pair, np.array([[1, 1], [1, 2]])) for pair in pairs)
    formula = PseudoBooleanFormula(Problem(tuple(Variable(str(v), 4) for v in range(5)), (), conflicts))
    lines = [f"pseudo-Boolean proof version 2.0\nf {formula.constraints}\n"]

    def derive(text: str) -> int:
        lines.append(text + "\n")
        return formula.constraints + len(lines) - 1

    planes = CuttingPlanes(formula, derive, {"dear": 0, "rows": [], "steps": []}, None, math.inf)
    literals = [1, 5, 9, 13, 17, 18]  # value 1 of all variables, and value 2 of the last
    clique = planes._clique(literals)
    assert (clique.terms, clique.degree) == ({f"x{x + 1}": -1 for x in literals}, -1)
    assert planes._clique(literals) is clique
    reader = checker().Checker(io.StringIO("".join(formula.lines())))
    for text in lines[1:]:
        reader.step("pol", text.removeprefix("pol "))
    assert (reader.live[clique.number].terms, reader.live[clique.number].degree) == (clique.terms, -1)


def spot5(name: str) -> Path:
    path = ROOT.parent / "shared" / "data" / "spot5" / f"{name}.spot"
    if not path.exists():
        pytest.skip("the instances of SPOT5 are not here")
    return path


OPTIMA = {"8": 2, "29": 8059, "54": 37, "404": 114, "503": 11113, "1502": 28042}


@pytest.mark.parametrize("name", OPTIMA)
def test_linear_programs_close_the_proofs_of_spot5(name: str, tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    result = oocbe.solve(spot5(name), proof=proof, opb=opb)
    assert result.value == OPTIMA[name]
    claim, offset = claim_of(opb, proof), scale_and_offset(opb)[1]
    assert claim.lower == claim.upper == OPTIMA[name] - offset
    assert proof.stat().st_size < 50_000
    assert not veripb_refuses(opb, proof)


def test_a_capacity_is_a_cutting_plane(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    result = oocbe.solve(chosen(4), proof=proof, opb=opb)
    assert result.value == 240 and result.notes[-1].startswith("proof: an optimum of 240; 0 rows")
    assert claim_of(opb, proof)[1:] == (240 - scale_and_offset(opb)[1],) * 2


@pytest.mark.slow
def test_a_capacity_and_branching_are_cutting_planes(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    task = ProofTask(oocbe.read(spot5("1504")), SolveOptions(), proof, opb)
    solved = oocbe.solve(spot5("1504"))
    result, missing = task.write(solved)
    assert not missing and result.notes[-1].startswith("proof: an optimum of 161301; 0 rows")
    assert claim_of(opb, proof)[1:] == (161301 - scale_and_offset(opb)[1],) * 2


def random_costs(seed: int, variables: int, size: int, arity: int, count: int, most: int = 20) -> Problem:
    """Functions over several variables with random costs, and a value and some rows that are forbidden."""
    generator = np.random.default_rng(seed)
    scopes = [tuple(generator.permutation(variables)[:arity].tolist()) for _ in range(count)]
    functions = tuple(Function.from_array(s, generator.integers(0, most, [size] * arity)) for s in scopes)
    forbidden = (Constraint((0,), np.array([[1]])), Constraint(scopes[0], np.zeros((1, arity), dtype=int)))
    return Problem(tuple(Variable(str(v), size) for v in range(variables)), functions, forbidden)


@pytest.mark.parametrize(
    ("variables", "size", "arity", "count"),
    [(10, 2, 4, 14), (10, 4, 2, 20), pytest.param(9, 3, 3, 14, marks=pytest.mark.slow)],
)
def test_search_closes_proofs_of_costs_over_several_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: int, size: int, arity: int, count: int
) -> None:
    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 100)  # no elimination
    for seed in range(examples(3)):
        problem = random_costs(seed, variables, size, arity, count)
        proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
        result = oocbe.solve(problem, proof=proof, opb=opb)
        scopes = {frozenset(function.scope) for function in problem.functions}
        rows = len(scopes) * size**arity - 1  # of its functions, without the forbidden row
        assert result.notes[-1].startswith(f"proof: an optimum of {result.value}; {rows} rows")
        claim, offset = claim_of(opb, proof), scale_and_offset(opb)[1]
        assert claim.lower == claim.upper == result.value - offset
        assert "\nrup " in proof.read_text() and not veripb_refuses(opb, proof)
        assert refused_mutations(random.Random(seed), opb.read_text(), proof.read_text(), 20) > 5


def frequencies(seed: int, variables: int, size: int) -> Problem:
    """Soft distances between frequencies, as in CELAR; no bound of the root is above 0."""
    generator = np.random.default_rng(seed)
    values = np.arange(size)
    functions = [
        Function.from_array(pair, int(generator.choice([1, 10, 100])) * (abs(values[:, None] - values) <= distance))
        for pair in itertools.combinations(range(variables), 2)
        for distance in generator.integers(size // 4, size // 2, 2).tolist()
    ]
    return Problem(tuple(Variable(str(v), size) for v in range(variables)), tuple(functions))


@pytest.mark.parametrize(
    ("variables", "size", "mutations"), [(4, 12, 12), pytest.param(6, 16, 0, marks=pytest.mark.slow)]
)
def test_search_closes_proofs_of_many_values_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: int, size: int, mutations: int
) -> None:
    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 100)  # no elimination
    for seed in range(examples(2)):
        proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
        result = oocbe.solve(frequencies(seed, variables, size), proof=proof, opb=opb)
        claim, text = claim_of(opb, proof), proof.read_text()
        assert claim.lower == claim.upper == result.value and claim.lower > 0
        states = math.comb(variables, 2) * size**2
        assert 2 * states < text.count("\nred ") < 2 * states + 100  # a few decisions are literals of their own
        if mutations:
            assert not veripb_refuses(opb, proof)
            assert refused_mutations(random.Random(seed), opb.read_text(), text, mutations) > mutations // 3


def limited(seed: int, values: int = 2, scale: int = 1, items: int = 14) -> Problem:
    """Amounts of items under two limits and a least amount; some pairs are worth less together."""
    generator = np.random.default_rng(seed)
    functions = [Function.from_array((v,), np.sort(generator.integers(0, 100, values))[::-1]) for v in range(items)]
    functions += [
        Function((v, v + 1), np.array([[1, 1]]), np.array([int(generator.integers(5, 60))]), 0) for v in (2, 5)
    ]
    limits = []
    for sign, share in ((1, 3), (1, 2), (-1, 5)):
        amounts = generator.integers(5, 50, items) * scale
        own = tuple(sign * weight * np.arange(values) for weight in amounts.tolist())
        limits.append(LinearConstraint(tuple(range(items)), own, sign * int(amounts.sum() * (values - 1) // share)))
    variables = tuple(Variable(str(v), values) for v in range(items))
    return Problem(variables, tuple(functions), (), tuple(limits))


@pytest.mark.parametrize(("values", "scale"), [(2, 1), (3, 1000), (2, 10**16)])
def test_search_multiplies_linear_constraints(tmp_path: Path, values: int, scale: int) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    for seed in range(examples(3)):
        problem = limited(seed, values, scale, 14 if scale < 10**16 else 8)
        result = oocbe.solve(problem, proof=proof, opb=opb, order_seconds=0.1)
        claim, offset, text = claim_of(opb, proof), scale_and_offset(opb)[1], proof.read_text()
        assert claim.lower == claim.upper == result.value - offset
        if scale < 10**16:  # no tables of the limits, of which there were 16,384 rows each
            assert len(text) < 300_000 and not veripb_refuses(opb, proof)
            assert refused_mutations(random.Random(seed), opb.read_text(), text, 20) > 5


def test_variables_with_the_same_amount_for_all_values_are_not_in_the_rows_of_a_limit(tmp_path: Path) -> None:
    """Found by fuzz: 140 variables of one value each made 19,857 lines, 16 MB, of rows that a limit excludes."""
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    sizes = [1] * 40 + [3, 3]
    amounts = [np.full(1, v + 1) for v in range(40)] + [np.array([0, 1, 2]), np.array([-1, 0, 5])]
    scaled = tuple(10**16 * own for own in amounts)  # beyond what linear programs take
    limit = LinearConstraint(tuple(range(42)), scaled, 10**16 * (sum(range(41)) - 1))
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    others = [row for row in itertools.product(range(3), repeat=2) if row != (0, 0)]
    function = Function((40, 41), np.array(others), np.ones(8, dtype=np.int64))
    result = oocbe.solve(Problem(variables, (function,), (), (limit,)), proof=proof, opb=opb, bounds="none")
    assert result.status == "infeasible"
    assert claim_of(opb, proof).lower is None
    assert proof.read_text().count("pol ") < 60


def test_variables_of_one_value_are_in_no_clause(tmp_path: Path) -> None:
    """Found by fuzz: the elimination of 60 of them took 328,123 steps."""
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate([1] * 30 + [3, 3, 2]))
    rows = np.array([(*[0] * 30, *row) for row in itertools.product(range(3), range(3), range(2)) if sum(row) > 1])
    wide = Function(tuple(range(33)), rows, np.arange(len(rows)))
    unit = Function((7,), np.array([[0]]), np.array([5]))
    result = oocbe.solve(Problem(variables, (wide, unit)), proof=proof, opb=opb, bounds="none", bound_seconds=0)
    claim, offset = claim_of(opb, proof), scale_and_offset(opb)[1]
    assert claim.lower == claim.upper == result.value - offset
    assert not veripb_refuses(opb, proof)
    assert proof.read_text().count("\n") < 150
    none = Function((0, 1), np.zeros((0, 2), dtype=np.int64), np.zeros(0))
    assert oocbe.solve(Problem(variables, (none,)), proof=proof, opb=opb).status == "infeasible"
    assert claim_of(opb, proof).upper is None or claim_of(opb, proof).lower is None
    assert proof.read_text().count("\n") < 10 and not veripb_refuses(opb, proof)


def test_cuts_of_a_linear_program_take_part_in_the_search(tmp_path: Path) -> None:
    pairs, functions = itertools.combinations(range(4), 2), tuple(Function.from_array((v,), [1, 0]) for v in range(4))
    constraints = tuple(Constraint(pair, np.array([[1, 1]])) for pair in pairs)
    problem = Problem(tuple(Variable(str(v), 2) for v in range(4)), functions, constraints)
    task, lines = ProofTask(problem, SolveOptions(), tmp_path / "p", tmp_path / "o"), list[str]()
    steps, _ = task._steps(2, math.inf)
    writer = ProofWriter(task.formula, lines.append, None)
    assert steps is not None
    writer._take(steps, None, 2)
    for cuts, is_closed in (((), False), (writer._cuts, True)):
        found = shifts_of(task.formula, [], 2, Effort(0.0), cuts)
        assert found is not None and (found.root.bound > 2 * found.scale) == is_closed


def linked(seed: int, links: int, values: int) -> Problem:
    """Radio links there and back: frequencies at a fixed distance, soft distances between the ends of links."""
    generator, band = np.random.default_rng(seed), np.arange(values)
    apart = abs(band[:, None] - band)
    ends = [(u, v) for u, v in itertools.combinations(range(2 * links), 2) if u // 2 != v // 2]
    functions = (Function.from_array(e, int(generator.choice([1, 10, 100])) * (apart < values // 4)) for e in ends)
    fixed = (Constraint((v, v + 1), np.argwhere(apart != values // 2)) for v in range(0, 2 * links, 2))
    return Problem(tuple(Variable(str(v), values) for v in range(2 * links)), tuple(functions), tuple(fixed))


def test_functions_over_copies_of_a_variable_are_moved_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four functions between two links are one. Apart, they had no bound above 0, also not the family of 100 ends."""
    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 100)  # no elimination
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    for seed in range(examples(2)):
        problem, pairs = linked(seed, 3, 8), {*itertools.combinations(range(0, 6, 2), 2)}
        formula = PseudoBooleanFormula(problem)
        assert formula.copies == {1, 3, 5} and {table.scope for table in formula.tables} == pairs
        found = shifts_of(formula, formula.forbidden, 0, Effort())
        assert found is not None and set(found.parts) == pairs
        result = oocbe.solve(problem, proof=proof, opb=opb, order_seconds=0.1)
        claim = claim_of(opb, proof)
        assert claim.lower == claim.upper == result.value
        assert not veripb_refuses(opb, proof)
        assert refused_mutations(random.Random(seed), opb.read_text(), proof.read_text(), 10) > 3
    count = oocbe.count(Problem(problem.variables[:4], (), problem.constraints[:2]), proof=proof, opb=opb)
    assert claim_of(opb, proof)[:2] == ("ENUMERATION_COMPLETE", count.value)


@pytest.mark.parametrize("seed", [*range(examples(20)), 20, 21, 24])
def test_chains_of_copies_are_moved_to_one_variable(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    sizes, constraints, functions = generator.integers(2, 4, 6).tolist(), list[Constraint](), list[Function]()
    for v in range(1, 5):
        u = int(generator.integers(v))
        few, many = sorted((u, v), key=sizes.__getitem__)
        permitted = np.stack([np.arange(sizes[few]), generator.permutation(sizes[many])[: sizes[few]]], axis=1)
        constraints.append(Constraint((few, many), permitted, allowed=True))
    for _ in range(5):
        scope = tuple(generator.permutation(6)[: int(generator.integers(1, 4))].tolist())
        functions.append(Function.from_array(scope, generator.integers(0, 9, [sizes[v] for v in scope])))
    variables = tuple(Variable(str(v), size) for v, size in enumerate(sizes))
    problem = Problem(variables, tuple(functions), tuple(constraints))
    formula, best = PseudoBooleanFormula(problem), oocbe.solve(problem).assignment
    assert formula.copies
    for effort in (None, Effort()):
        lines: list[str] = []
        order = generator.permutation(6).tolist() if effort is None else None
        ProofWriter(formula, lines.append, order, effort=effort).write(best)
        claim = checker().check(io.StringIO("".join(formula.lines())), io.StringIO("".join(lines)))
        assert best is None or claim.lower == claim.upper == formula.solution(best)[1]
        assert best is not None or (claim.kind, claim.lower) == ("BOUNDS", None)
    # A count takes the clauses of a moved constraint several times: those of seeds 20 to 24 were deleted after one use.
    forbidden = [Constraint(f.scope, f.tuples[f.values > 5]) for f in functions]
    beside = Constraint((5, 6), [[0, 0]]), Constraint((6, 7), [[1, 1]])
    counted = Problem((*variables, Variable("6", 2), Variable("7", 2)), (), (*constraints, *forbidden, *beside))
    proof, opb = tmp_path / "p", tmp_path / "o"
    count = oocbe.count(counted, proof=proof, opb=opb).value
    claim = claim_of(opb, proof)
    assert claim[:2] == (("ENUMERATION_COMPLETE", count) if count else ("UNSAT", None)), claim


def test_steps_without_multipliers_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preparation of their cutting planes took as long as the search after it."""
    monkeypatch.setattr(Maker, "_round", lambda *_: False)
    task = ProofTask(random_costs(0, 10, 3, 2, 20), SolveOptions(), tmp_path / "p", tmp_path / "o")
    assert task._steps(50, 2.0) == (None, False)


def test_what_a_proof_compiles_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a deadline around them, the loops of the search and of orders were compiled in the process itself."""
    left, tree = list[float](), BoundSearch.tree

    def noted(search: BoundSearch) -> Any:
        left.append(current().remaining)
        return tree(search)

    monkeypatch.setattr(BoundSearch, "tree", noted)
    orders = proofs.search_orders
    monkeypatch.setattr(proofs, "search_orders", lambda *a, **k: left.append(current().remaining) or orders(*a, **k))
    problem = random_costs(0, 10, 3, 2, 45)
    solved = replace(oocbe.solve(problem), status="limit", bound=200)
    monkeypatch.setattr("oocbe.bounds.bound_tree.MOST_NUMBERS", 0)  # nothing is closed
    task = ProofTask(problem, SolveOptions(), tmp_path / "p", tmp_path / "o")
    for seconds, most in ((5.0, 5.0), (0.0, proofs.GRACE_SECONDS)):
        left.clear()
        task.write(solved, seconds)
        assert len(left) >= 2 and max(left) <= most


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("amounts", [(), ((0, 0), (0, 0)), ((3, 3), (0, -1))])
def test_limits_that_nothing_meets_are_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, amounts: tuple[tuple[int, int], ...]
) -> None:
    functions = (Function.from_array((0, 1), [[0, 3], [4, 1]]),) if count else ()
    limit = LinearConstraint(tuple(range(len(amounts[:count]))), tuple(map(np.array, amounts[:count])), -1)
    problem = Problem(tuple(Variable(str(v), 2) for v in range(count)), functions, (), (limit,))
    proof, opb, rounds, one = tmp_path / "p.pbp", tmp_path / "p.opb", list[int](), Maker._round
    monkeypatch.setattr(Maker, "_round", lambda *given: rounds.append(1) or one(*given))
    assert oocbe.solve(problem, proof=proof, opb=opb).status == "infeasible"
    assert claim_of(opb, proof)[:2] == (("BOUNDS", None) if count else ("UNSAT", None))
    assert len(rounds) < 10  # without variables, they went on for all of their time


@pytest.mark.parametrize(("values", "is_long"), [(2, False), (3, True)])
def test_second_search_is_long_only_where_elimination_does_not_suffice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: int, is_long: bool
) -> None:
    """An elimination of some seconds came after a search of any length: 3 ** 14 rows of a limit are too many for it."""
    ends = list[float]()

    def search(*given: Any) -> None:
        ends.append(given[3].end)
        raise KeyboardInterrupt  # what comes after it takes seconds, and is none of this test's business

    monkeypatch.setattr(ProofTask, "_search", lambda *_: None)
    monkeypatch.setattr(ProofTask, "_steps", lambda *_: (None, False))
    monkeypatch.setattr("oocbe.certificates.veripb.shifts_of", search)
    problem = limited(0, values)
    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(problem, proof=tmp_path / "p", opb=tmp_path / "o", bound_seconds=0.5, order_seconds=0.1)
    assert (ends[0] == math.inf) == is_long


def test_search_takes_numbers_beyond_the_range_of_the_solver_of_linear_programs(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    function, amounts = Function.from_array((0, 1), [[1, 0], [0, 0]]), (np.array([0, 5 * 10**14]),) * 2
    limit = LinearConstraint((0, 1), amounts, 5 * 10**14 - 1)
    problem = Problem((Variable("a", 2), Variable("b", 2)), (function,), (), (limit,))
    assert oocbe.solve(problem, proof=proof, opb=opb).value == 1
    claim = claim_of(opb, proof)
    assert claim.lower == claim.upper == 1


def test_search_of_a_proof_ends_at_its_memory_or_number_of_nodes(tmp_path: Path) -> None:
    formula = PseudoBooleanFormula(frequencies(0, 6, 16))
    best = oocbe.solve(formula.problem).assignment
    assert best is not None
    most = formula.solution(best)[1] - 1
    for memory, is_closed in ((math.inf, True), (20_000, False)):
        found = shifts_of(formula, formula.forbidden, most, Effort(memory=memory))
        assert found is not None and (found.tree is not None) == is_closed
    task = ProofTask(formula.problem, SolveOptions(memory="1MiB"), tmp_path / "p", tmp_path / "o")
    assert task._memory < 2**20


def test_search_refutes_a_variable_without_values() -> None:
    problem = random_costs(0, 5, 3, 2, 6)
    formula = PseudoBooleanFormula(replace(problem, constraints=(Constraint((0,), np.arange(3).reshape(3, 1)),)))
    lines: list[str] = []
    ProofWriter(formula, lines.append, None, effort=Effort()).write(None)
    claim = checker().check(io.StringIO("".join(formula.lines())), io.StringIO("".join(lines)))
    assert (claim.kind, claim.lower) == ("BOUNDS", None)


def test_bound_of_the_root_is_proven_where_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocbe.bounds.bound_tree.MOST_NUMBERS", 0)
    monkeypatch.setattr("oocbe.certificates.cost_shifting.LATER", 0)
    for seed, is_solved in itertools.product(range(examples(4)), (True, False)):
        formula = PseudoBooleanFormula(random_costs(seed, 10, 3, 2, 45))
        best = oocbe.solve(formula.problem).assignment if is_solved else None
        most = sum(formula.objective.values()) if best is None else formula.solution(best)[1] - 1
        found = shifts_of(formula, formula.forbidden, most, Effort())
        assert found is not None and found.tree is None and found.root.bound > 0
        lines: list[str] = []
        ProofWriter(formula, lines.append, None, effort=Effort()).write(best)
        claim = checker().check(io.StringIO("".join(formula.lines())), io.StringIO("".join(lines)))
        assert claim.lower == -(-found.root.bound // SCALE) and (claim.upper is None or claim.lower <= claim.upper)
        if best is not None:  # nothing is written for a bound that steps of a certificate reach
            writer = ProofWriter(formula, lines.append, None, effort=Effort())
            writer._proven = claim.lower
            writer.write(best)
            assert "red " not in "".join(lines[lines.index(lines[0], 1) :])


def test_proof_of_a_resumed_solve_is_written_from_the_start(tmp_path: Path) -> None:
    options: dict[str, Any] = {"order_seconds": 0.1, "bounds": "none", "workdir": tmp_path / "run"}
    problem = random_network(12, 3, 0.4, 0.2, seed=1)
    best = oocbe.solve(problem, **options).value
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    assert oocbe.solve(problem, **options, resume=True, proof=proof, opb=opb).value == best
    assert claim_of(opb, proof)[1:] == (best - scale_and_offset(opb)[1],) * 2


def test_search_proves_that_nothing_is_feasible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 10)
    monkeypatch.setattr("oocbe.certificates.proofs.ProofTask._steps", lambda *_: (None, False))
    pairs, equal = itertools.combinations(range(5), 2), np.repeat(np.arange(4), 2).reshape(4, 2)
    for functions in ((), (Function.from_array((0, 1), np.arange(16).reshape(4, 4)),)):
        variables = tuple(Variable(str(v), 4) for v in range(5))
        problem = Problem(variables, functions, tuple(Constraint(pair, equal) for pair in pairs))
        pairs = itertools.combinations(range(5), 2)
        proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
        assert oocbe.solve(problem, proof=proof, opb=opb).status == "infeasible"
        assert claim_of(opb, proof)[:2] == (("BOUNDS", None) if functions else ("UNSAT", None))
        assert not veripb_refuses(opb, proof)


def test_an_optimum_of_no_cost_needs_no_elimination(tmp_path: Path) -> None:
    problem = Problem(
        tuple(Variable(str(v), 2) for v in range(3)), (Function.from_array((0, 1, 2), np.arange(8).reshape(2, 2, 2)),)
    )
    result = oocbe.solve(problem, proof=tmp_path / "p.pbp", opb=tmp_path / "p.opb")
    assert result.notes[-1].startswith("proof: an optimum of 0; 0 rows")
    assert claim_of(tmp_path / "p.opb", tmp_path / "p.pbp")[1:] == (0, 0)


@pytest.mark.parametrize(
    ("name", "optimum"),
    [
        ("wcsp/random/0.wcsp", 191),
        pytest.param("wcsp/mastermind/mastermind_03_08_03.wcsp", 79, marks=pytest.mark.slow),
        ("wcsp/iscas89/c432.wcsp", 101),
    ],
)
def test_proofs_of_weighted_csps_are_closed_and_small(tmp_path: Path, name: str, optimum: int) -> None:
    path = ROOT.parent / "shared" / "data" / name
    if not path.exists():
        pytest.skip("the weighted CSPs are not here")
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    assert oocbe.solve(path, proof=proof, opb=opb).value == optimum
    claim, offset = claim_of(opb, proof), scale_and_offset(opb)[1]
    assert claim.lower == claim.upper == optimum - offset
    assert proof.stat().st_size < 5_000_000


LONGEST = 20_000
"""Characters of a proof that is changed: a check then takes some milliseconds."""


def refused_mutations(generator: random.Random, text: str, proof: str, count: int) -> int:
    """How many damaged forms of a proof are refused; all others prove no more than the whole one."""
    whole, refused = checker().check(io.StringIO(text), io.StringIO(proof)), 0
    for _ in range(count):
        damaged = mutated(generator, proof.encode(), "proof").decode("latin-1")
        try:
            claim = checker().check(io.StringIO(text), io.StringIO(damaged))
        except ValueError:
            refused += 1
            continue
        assert is_implied(claim, whole), damaged
    return refused


def test_mutations_of_proofs_prove_nothing_else() -> None:
    generator, count, refused, most = random.Random(1), 0, 0, examples(4000)
    while count < most:
        found = formula_of(generator.randrange(10**6))
        if found is None or not truth_of(found[1]).rows:
            continue
        formula, truth = found[0], truth_of(found[1])
        assignment = (min if formula.sign > 0 else max)(truth.rows, key=lambda row: row[1])[0]
        text, proof = "".join(formula.lines()), proof_of(formula, 0, assignment)
        if len(proof) > LONGEST:
            continue
        count, refused = count + 25, refused + refused_mutations(generator, text, proof, 25)
    assert refused > most // 2


def test_mutations_of_cutting_planes_prove_nothing_else(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    oocbe.solve(random_network(12, 3, 0.4, 0.2, seed=1), order_seconds=0.1, proof=proof, opb=opb)
    assert "\npol " in proof.read_text()
    count = examples(100)
    assert refused_mutations(random.Random(2), opb.read_text(), proof.read_text(), count) > count // 3


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        ("f 2\nred 1 z1 >= 2 ; z1 -> 1\n", "witness"),
        ("f 2\nred 1 x1 >= 1 ; x1 -> 1\n", "x1 is not fresh"),
        ("f 2\nred 1 z 1 x1 >= 1 ; z -> 1\npol 3 2 *\nred 1 ~z 1 ~x1 >= 1 ; z -> 0\n", "z is not fresh"),
        ("f 2\nred 1 z 1 x1 >= 1 ; z -> 1\nred 1 y 1 x1 >= 1 ; y -> 1\nred 1 ~z 1 y >= 1 ; z -> 0\n", "z is not fresh"),
        ("f 2\nred 1 ~z1 1 x1 >= 2 ; z1 -> 0\n", "witness"),
        ("f 2\nred 1 z1 1 x1 >= 1 ; z1 -> 1\nred 1 ~z1 >= 1 ; z1 -> 0\n", "witness"),
        ("f 2\nred 2 ~z1 -1 x1 -3 x2 >= -2 ; z1 -> 0\nred 4 z1 1 x1 3 x2 >= 4 ; z1 -> 1\n", "witness"),
        ("f 2\nred 1 ~z1 -1 x1 -3 x2 >= -2 ; z1 -> 0\n", "witness"),
        ("f 2\ndel id 1\n", "cannot be deleted"),
        ("f 3\n", "2 constraints"),
        ("pol 1\nf 2\n", "expected f first"),
        ("output NONE\nconclusion NONE\nend pseudo-Boolean proof\n", "expected f first"),
        ("f 2\nsoli ~x1 ~x2\n", "violates"),
        ("f 2\nsoli x1\n", "without some variable"),
        ("f 2\na >= 1 ;\n", "not supported"),
        ("f 2\npol x1\noutput NONE\nconclusion BOUNDS 1 : 3 INF\n", "proves"),
        ("f 2\npol 1 -1 *\n", "above 0"),
        ("f 2\nsoli x1 ~x2\nsoli ~x1 x2\n", "violates"),
        ("f 2\nsoli ~x1 x2\noutput NONE\nconclusion BOUNDS 3 : 3 3\n", "proves"),
        (
            "f 2\nsoli x1 ~x2\npol 1 3 + 1000 *\noutput NONE\nconclusion BOUNDS 9 : 4 9\n",
            "a solution is below the bound 9",  # what follows from a contradiction holds below the solution only
        ),
        ("f 2\npol 1 7 +\n", "no constraint 7"),
        ("f 2\nrup >= 0\n", "; is missing"),
        ("f 2\nrup 1 x1 >= 1 ;\n", "does not imply"),
        ("f 2\npol 1\nrup 1 x1 >= 1 ;\n", "does not imply"),
        ("f 2\npol x1 1 +\ndel id 3\nrup 1 x1 1 x2 >= 1 ;\n", "does not imply"),  # what is deleted has no consequences
        ("f 2\noutput NONE\nconclusion NONE\nend pseudo-Boolean proof\npol 1\n", "does not end there"),
    ],
)
def test_checker_refuses_unsound_steps(proof: str, why: str) -> None:
    formula = "min: +1 x1 +3 x2 ;\n+1 x1 +1 x2 = 1 ;\n"
    with pytest.raises(ValueError, match=why):
        checker().check(io.StringIO(formula), io.StringIO(f"pseudo-Boolean proof version 2.0\n{proof}"))


SMALL = "small 3 2 3 100\n2 2 2\n2 0 1 0 2\n0 0 5\n1 1 3\n2 1 2 1 1\n0 1 4\n2 0 2 2 1\n0 1 0\n"


@pytest.mark.parametrize(
    ("text", "value"), [(SMALL, 1), pytest.param(DAILY.read_text(), 2112, marks=pytest.mark.slow)], ids=["small", "day"]
)
def test_command_writes_a_proof_that_the_checker_accepts(tmp_path: Path, text: str, value: int) -> None:
    path = tmp_path / ("small.wcsp" if text == SMALL else "day.spot")
    path.write_text(text)
    proof, opb = tmp_path / "found.pbp.gz", tmp_path / "found.opb"
    words = ["solve", str(path), "--order-seconds", "0.1", "--proof", str(proof), "--opb", str(opb)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert f"proof: an optimum of {value}" in done.output
    sign, offset = scale_and_offset(opb)
    optimum = value * sign - offset
    command = [sys.executable, "-I", str(ROOT / "tools" / "check_proof.py"), str(opb), str(proof)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.stdout == f"accepted: BOUNDS {optimum} {optimum}\n"


def test_gap_of_a_proof_is_reported_and_exits_with_20(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 3000)
    proof, opb = tmp_path / "day.pbp", tmp_path / "day.opb"
    words = ["solve", str(DAILY), "--order-seconds", "0.1", "--proof", str(proof), "--opb", str(opb)]
    done = CliRunner().invoke(app, [*words, "--bound-seconds", "0"])
    assert done.exit_code == 20, done.output
    assert "a linear program leave a gap" in done.output
    claim = claim_of(opb, proof)
    assert claim.lower is not None and claim.lower < claim.upper == 2112 - scale_and_offset(opb)[1]
    assert not [path for path in tmp_path.iterdir() if path not in (proof, opb)]


def capacity() -> Problem:
    """Three variables that maximise decimals below a capacity."""
    functions = tuple(Function.from_array((v,), [0.0, 0.5 + v]) for v in range(3))
    room = LinearConstraint((0, 1, 2), tuple(np.array([0, 2]) for _ in range(3)), 4)
    return Problem(tuple(Variable(str(v), 2) for v in range(3)), functions, (), (room,), semiring=MAX_SUM)


def test_library_proves_maxima_of_decimals_below_a_capacity(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    result = oocbe.solve(capacity(), proof=proof, opb=opb)
    assert result.value == 4.0 and "proof: an optimum of 4.0" in result.notes[-1]
    claim, (scale, offset) = claim_of(opb, proof), scale_and_offset(opb)
    assert claim.lower == claim.upper and (claim.upper + offset) / scale == 4.0


@pytest.mark.parametrize("costly", [True, False])
def test_infeasible_problems_and_upper_bounds_end_in_a_contradiction(tmp_path: Path, costly: bool) -> None:
    tuples = np.array([[0, 0], [1, 1]])
    constraints = tuple(Constraint(pair, tuples) for pair in ((0, 1), (1, 2), (0, 2)))
    functions = (Function.from_array((0,), [1, 2]),) if costly else ()
    problem = Problem(tuple(Variable(str(v), 2) for v in range(3)), functions, constraints)
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    assert oocbe.solve(problem, proof=proof, opb=opb).status == "infeasible"
    assert claim_of(opb, proof)[:2] == (("BOUNDS", None) if costly else ("UNSAT", None))
    coloured = Problem(problem.variables, functions, constraints[:2])
    if costly:
        assert oocbe.solve(coloured, ub=1, proof=proof, opb=opb).status == "nothing-better"
        assert claim_of(opb, proof)[:2] == ("BOUNDS", None)


def test_bound_at_a_time_limit_is_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "GRACE_SECONDS", 10.0)  # for busy machines
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    task = ProofTask(oocbe.read(DAILY), SolveOptions(), proof, opb)
    unproven = replace(oocbe.solve(DAILY, order_seconds=0.1), status="limit", bound=0)
    result, missing = task.write(unproven, seconds=0.0)
    assert not missing and result.notes[-1].startswith("proof: bounds of ")
    claim, offset = claim_of(opb, proof), scale_and_offset(opb)[1]
    assert claim.lower is not None and 1000 < claim.lower + offset < claim.upper + offset == 2112


@pytest.mark.parametrize("is_below", [True, False])
def test_bound_of_an_unproven_result_is_certified_by_a_search_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_below: bool
) -> None:
    """The bound of the root is far below; that of a lower limit is proven where the goal is too high."""
    proof, opb, attempts, whole = tmp_path / "p.pbp", tmp_path / "p.opb", list[int](), BoundSearch.tree

    def tree(search: BoundSearch) -> Any:
        attempts.append(search._limit // search._scale)
        root, found = whole(search)
        return root, found if is_below or len(attempts) > 1 else None

    monkeypatch.setattr("oocbe.certificates.proofs.MOST_ROWS", 100)  # no elimination
    monkeypatch.setattr("oocbe.certificates.cost_shifting.LATER", math.inf)
    monkeypatch.setattr(BoundSearch, "tree", tree)
    for seed, has_assignment in itertools.product(range(examples(2)), (True, False)):
        attempts.clear()
        problem = random_costs(seed, 10, 3, 2, 45)
        solved = oocbe.solve(problem)
        assert solved.value is not None and solved.value > 50
        bound = int(solved.value) - 1
        unproven = replace(solved, status="limit", bound=bound)
        unproven = unproven if has_assignment else replace(unproven, value=None, assignment=None)
        result, missing = ProofTask(problem, SolveOptions(), proof, opb).write(unproven)
        claim = claim_of(opb, proof)
        assert claim.lower is not None and (claim.upper is not None) == has_assignment
        lower, what = claim.lower + scale_and_offset(opb)[1], result.notes[-1]
        assert not missing and attempts[0] == bound - scale_and_offset(opb)[1] - 1
        assert (lower == bound) if is_below else (bound > lower > bound * 3 // 4), (lower, bound, attempts)
        assert f", {'all of' if is_below else 'less than'} the bound {bound};" in what and f" {lower}" in what
        assert not veripb_refuses(opb, proof)
        assert refused_mutations(random.Random(seed), opb.read_text(), proof.read_text(), 10) > 3


def test_time_of_the_proof_is_left_by_the_solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = list[float | None]()
    run = facade.solver_from(None)
    monkeypatch.setattr(facade, "solver_from", lambda _: lambda p, o, b: limits.append(o.time_limit) or run(p, o, b))
    files: dict[str, Any] = {"proof": tmp_path / "p.pbp", "opb": tmp_path / "p.opb"}
    for written, most in ((files, 50), ({"opb": tmp_path / "p.opb"}, 100), ({}, 100)):
        oocbe.solve(queens(5), time_limit=100, **written)
        assert limits[-1] is not None and most - 10 < limits[-1] <= most
    path = tmp_path / "small.wcsp"
    path.write_text(SMALL)
    words = ["solve", str(path), "--time-limit", "100", "--proof", str(tmp_path / "p"), "--opb", str(tmp_path / "o")]
    assert CliRunner().invoke(app, words).exit_code == 0 and limits[-1] is not None and 40 < limits[-1] <= 50


def test_multipliers_of_limits_follow_from_functions_of_any_arity(tmp_path: Path) -> None:
    """Without the functions in the first linear program, no value had a cost, and no multiplier was above 0."""
    generator = np.random.default_rng(0)
    functions = []
    for _ in range(24):
        scope = tuple(sorted(generator.choice(16, int(generator.integers(2, 6)), replace=False).tolist()))
        functions.append(Function(scope, [[0] * len(scope)], [int(generator.integers(5, 50))], 0))
    budget = LinearConstraint(tuple(range(16)), (np.array([0, 1]),) * 16, 3)
    problem = Problem(tuple(Variable(str(v), 2) for v in range(16)), tuple(functions), (), (budget,))
    formula, best = PseudoBooleanFormula(problem), oocbe.solve(problem)
    found = shifts_of(formula, formula.forbidden, int(best.value or 0) - 1, Effort())
    assert found is not None and found.tree is not None and found.root.bound > found.scale * int(best.value or 0) // 2
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    oocbe.solve(problem, proof=proof, opb=opb)
    claim = claim_of(opb, proof)
    assert claim.lower == claim.upper == best.value


def test_a_linear_program_of_tuples_is_made_only_where_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 14,000 tuples took 6 seconds of a search that had one."""
    found, multipliers = list[int](), BoundSearch._multipliers

    def watched(search: BoundSearch, costs: Any, removed: Any, owner: Any, more: Any = ()) -> Any:
        found.append(len(more))
        return multipliers(search, costs, removed, owner, more[:100])

    monkeypatch.setattr(BoundSearch, "_multipliers", watched)
    costs = random_costs(0, 20, 10, 2, 60)
    budget = LinearConstraint(tuple(range(20)), (np.arange(10),) * 20, 90)
    formula = PseudoBooleanFormula(replace(costs, linear_constraints=(budget,)))
    for seconds, takes_part in ((0.0, False), (1e4, True)):
        monkeypatch.setattr("oocbe.bounds.bound_tree.MOST_NUMBERS", 0)
        shifts_of(formula, formula.forbidden, 100, Effort(working_time() + seconds))
        assert (max(found) > 4_000) == takes_part


def test_costs_beyond_the_limit_leave_out_no_search(tmp_path: Path) -> None:
    problem = random_costs(0, 10, 3, 2, 45)
    dear = (replace(f, values=np.where(f.values >= 19, 10**12, f.values)) for f in problem.functions)
    formula = PseudoBooleanFormula(replace(problem, functions=tuple(dear)))
    best = oocbe.solve(formula.problem).assignment
    assert best is not None and sum(formula.objective.values()) > 2**44
    lines: list[str] = []
    ProofWriter(formula, lines.append, None, effort=Effort()).write(best)
    claim = checker().check(io.StringIO("".join(formula.lines())), io.StringIO("".join(lines)))
    assert claim.lower == claim.upper == formula.solution(best)[1]


def test_functions_of_dense_variables_take_part_where_not_all_do() -> None:
    core, parts = itertools.combinations(range(5), 2), dict[tuple[int, ...], ScopeCosts]()
    for pair in [(v, v + 1) for v in range(5, 40)] + [(0, 39), *core]:
        parts[pair] = ScopeCosts({(a, a): [(7, "x", 1)] for a in range(3)}, {})
    assert len(_chosen(parts, [3] * 41, math.inf, 8)) == len(parts)
    assert {*_chosen(parts, [3] * 41, 90, 8)} == {*itertools.combinations(range(5), 2)}
    parts[0, 1, 2, 3] = ScopeCosts({(a,) * 4: [(7, "x", 1)] for a in range(3)}, {})
    # A function of 81 rows, too large by itself or beside others, leaves the rows to what fits.
    assert [len(_chosen(parts, [3] * 41, most, 8)) for most in (80, 90)] == [8, 10]


def test_buckets_with_more_rows_than_a_float_holds_are_too_many(tmp_path: Path) -> None:
    scope = tuple(range(1100))
    constraints = (Constraint(scope, np.zeros((1, len(scope)), dtype=int)),)
    problem = Problem(tuple(Variable(str(v), 2) for v in scope), (Function.from_array((0,), [0, 1]),), constraints)
    task = ProofTask(problem, SolveOptions(), tmp_path / "p", tmp_path / "o")
    assert list(task._orders(10**6, False, math.inf)) == [None]


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_checker_refuses_compressed_proofs_that_are_cut(tmp_path: Path, suffix: str) -> None:
    proof, opb = tmp_path / f"p.pbp.{suffix}", tmp_path / "p.opb"
    oocbe.solve(capacity(), proof=proof, opb=opb)
    whole, command = proof.read_bytes(), [sys.executable, "-I", str(ROOT / "tools" / "check_proof.py")]
    for damaged in (whole[:-4], whole[: len(whole) // 2], whole[:20] + b"\0" * 20 + whole[40:], b""):
        proof.write_bytes(damaged)
        done = subprocess.run([*command, str(opb), str(proof)], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("refused: "), damaged


ENUMERATED = "min: +1 x1 ;\npreserved: x1 x2 ;\n+1 x1 +1 x2 >= 1 ;\n"


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        ("f 1 ;\nsolx x1 x2 ;\nsolx x1 x2 ;\n", "listed twice"),
        ("f 1 ;\nsolx ~x1 ~x2 ;\n", "violates"),
        ("f 1 ;\nsolx x1 ;\n", "without some variable"),
        ("f 1 ;\nsolx x1 x2 ;\ndel id 2 ;\n", "cannot be deleted"),
        ("f 1 ;\nsolx x1 x2\n", "does not end with ;"),
        ("f 1 ;\nsolx x1 x2 ;\noutput NONE ;\nconclusion ENUMERATION_COMPLETE 1 : 2 ;\n", "no contradiction"),
        ("f 1 ;\nsolx x1 x2 ;\noutput NONE ;\nconclusion ENUMERATION_COMPLETE 2 : 2 ;\n", "found 1 solutions"),
        ("f 1 ;\nsolx x1 x2 ;\noutput NONE ;\nconclusion ENUMERATION_COMPLETE 1 ;\n", "no contradiction"),
        ("f 1 ;\nsolx ~x1 x2 ;\noutput NONE ;\nconclusion BOUNDS 1 : 1 1 ;\n", "solutions were excluded"),
        ("f 1 ;\nsolx ~x1 x2 ;\noutput NONE ;\nconclusion UNSAT : 2 ;\n", "a solution was logged"),
        (
            "f 1 ;\nsoli x1 ~x2 ;\nsolx ~x1 x2 ;\npol 1 2 + 3 + ;\noutput NONE ;\n"
            "conclusion ENUMERATION_COMPLETE 1 : 4 ;\n",
            "found 1 solutions",  # what is not better than the solution was not excluded by solx
        ),
    ],
)
def test_checker_refuses_unsound_enumerations(proof: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checker().check(io.StringIO(ENUMERATED), io.StringIO(f"pseudo-Boolean proof version 3.0\n{proof}"))


def test_checker_prints_that_there_is_no_solution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "o").write_text("preserved: x1 ;\n+1 x1 >= 1 ;\n+1 ~x1 >= 1 ;\n")
    end = "output NONE ;\nconclusion ENUMERATION_COMPLETE 0 : 3 ;\nend pseudo-Boolean proof ;\n"
    (tmp_path / "p").write_text(f"pseudo-Boolean proof version 3.0\nf 2 ;\npol 1 2 + ;\n{end}")
    monkeypatch.setattr(sys, "argv", ["check_proof.py", str(tmp_path / "o"), str(tmp_path / "p")])
    assert checker().main() == 0
    assert capsys.readouterr().out == "accepted: ENUMERATION_COMPLETE 0\n"


def test_checker_reads_no_constraint_behind_a_carriage_return_of_a_comment(tmp_path: Path) -> None:
    opb, proof = tmp_path / "o", tmp_path / "p"
    opb.write_bytes(b"* as other programs read it\r+1 x1 >= 1 ;\n+1 ~x1 >= 1 ;\r\n")
    end = "output NONE\nconclusion UNSAT : 3\nend pseudo-Boolean proof\n"
    proof.write_text(f"pseudo-Boolean proof version 2.0\nf 2\npol 1 2 +\n{end}")
    with pytest.raises(ValueError, match="the formula has 1 constraints"):
        claim_of(opb, proof)


def test_what_has_no_proof_is_refused_before_the_solve(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--opb"):
        oocbe.solve(DAILY, proof=tmp_path / "p.pbp")
    with pytest.raises(UnsupportedError, match="--gap"):
        oocbe.solve(DAILY, gap=5, proof=tmp_path / "p.pbp", opb=tmp_path / "p.opb")
    with pytest.raises(UnsupportedError, match="min-sum, max-sum"):
        oocbe.solve(DAILY, semiring="counting", proof=tmp_path / "p.pbp", opb=tmp_path / "p.opb")
    words = ["solve", str(DAILY), "--task", "kbest", "--proof", str(tmp_path / "p"), "--opb", str(tmp_path / "o")]
    assert "only the optimum and counts" in CliRunner().invoke(app, words).output
    files: dict[str, Any] = {"proof": tmp_path / "p.pbp", "opb": tmp_path / "p.opb"}
    with pytest.raises(UsageError, match="--opb"):
        oocbe.count(DAILY, proof=tmp_path / "p.pbp")
    with pytest.raises(UnsupportedError, match="is no number of solutions"):
        oocbe.count(DAILY, float_counts=True, **files)
    with pytest.raises(UnsupportedError, match="is no number of solutions"):
        oocbe.k_best(DAILY, **files)
    weighted = CountQuestion("wmc", {"0": (Fraction(1, 2), Fraction(1, 2))})
    with pytest.raises(UnsupportedError, match="the weighted count of problem is no number of solutions"):
        oocbe.count(replace(capacity(), counting=weighted), **files)
    assert not list(tmp_path.iterdir())


def listed_by(proof: Path, problem: Problem) -> list[tuple[int, ...]]:
    """The solutions that a proof of a count lists."""
    owners = [(v, a) for v, size in enumerate(problem.sizes) for a in range(size)]
    lines = [line.split()[1:-1] for line in proof.read_text().splitlines() if line.startswith("solx ")]
    names = {f"x{i + 1}": owner for i, owner in enumerate(owners)}  # others are of rows with costs
    true = [[names[word] for word in words if word in names] for words in lines]
    assert all([v for v, _ in pairs] == list(range(len(problem.sizes))) for pairs in true)
    return [tuple(a for _, a in pairs) for pairs in true]


@pytest.mark.parametrize("seed", range(examples(40)))
def test_proof_of_a_count_lists_what_brute_force_finds(seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    description = random_description(generator, ("min-sum", "max-sum", "max-product", "sum-product"), most=300)
    problem, truth = problem_of(description), truth_of(description)
    proof, opb, shown = tmp_path / "p.pbp", tmp_path / "p.opb", list(range(len(problem.sizes)))
    if seed % 3 == 0:
        shown = [v for v in shown if generator.random() < 0.5]
        question = CountQuestion("pmc", shown=frozenset(problem.variables[v].name for v in shown))
        problem = replace(problem, counting=question)
    try:
        result = oocbe.count(problem, proof=proof, opb=opb)
    except UnsupportedError as error:
        if "decimals" not in str(error):
            with pytest.raises(UnsupportedError, match="bound"):
                oocbe.count(problem)
        return
    feasible = {row for row, _ in truth.rows}
    reader = checker().Checker(io.StringIO(opb.read_text()))
    for row in itertools.product(*map(range, problem.sizes)):
        names = [f"x{1 + sum(problem.sizes[:v]) + a}" for v, a in enumerate(row)]
        lines = reader.live.values()
        assert (row in feasible) == all(sum(r.terms.get(n, 0) for n in names) >= r.degree for r in lines)
    found = listed_by(proof, problem)
    expected = {tuple(row[v] for v in shown) for row in feasible}
    assert feasible.issuperset(found) and len(found) == len(expected) == result.value
    assert {tuple(row[v] for v in shown) for row in found} == expected
    kind = ("ENUMERATION_COMPLETE", len(found), len(found)) if found else ("UNSAT", None, None)
    assert claim_of(opb, proof) == kind and not veripb_refuses(opb, proof)
    if len(proof.read_text()) < LONGEST:
        refused_mutations(generator, opb.read_text(), proof.read_text(), 10)


def queens(size: int) -> Problem:
    """Queens that do not attack each other, one in each column."""
    pairs = itertools.combinations(range(size), 2)
    squares = list(itertools.product(range(size), repeat=2))
    constraints = tuple(
        Constraint((i, j), np.array([(a, b) for a, b in squares if a == b or abs(a - b) == j - i])) for i, j in pairs
    )
    return Problem(tuple(Variable(str(v), size) for v in range(size)), (), constraints, name="queens")


@pytest.mark.parametrize("sign", [1, -1])
def test_proof_of_a_count_below_a_bound_that_only_presolve_separates(tmp_path: Path, sign: int) -> None:
    costs = [((0, 1), [[0, 5], [5, 9]]), ((1, 2), [[0, 5], [20, 9]]), ((0,), [3, 1])]
    functions = tuple(Function.from_array(scope, sign * np.array(own)) for scope, own in costs)
    fixed = tuple(Constraint((v,), np.array([[0]])) for v in (0, 2))
    bound: dict[str, Any] = {"upper_bound": 15} if sign > 0 else {"lower_bound": -15, "semiring": MAX_SUM}
    problem = Problem(tuple(Variable(str(v), 2) for v in range(3)), functions, fixed, **bound)
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    assert oocbe.count(problem, proof=proof, opb=opb).value == 1 and "min:" not in opb.read_text()
    assert listed_by(proof, problem) == [(1, 0, 1)] and not veripb_refuses(opb, proof)
    assert claim_of(opb, proof) == ("ENUMERATION_COMPLETE", 1, 1)


def test_mutations_of_a_proof_of_a_count_prove_nothing_else(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    result = oocbe.count(queens(6), proof=proof, opb=opb)
    assert result.value == 4 and result.notes[-1].startswith("proof: 4 solutions, 8,")
    assert claim_of(opb, proof) == ("ENUMERATION_COMPLETE", 4, 4) and not veripb_refuses(opb, proof)
    count = examples(200)
    assert refused_mutations(random.Random(3), opb.read_text(), proof.read_text(), count) > count // 2


def test_proof_of_a_count_returns_to_the_reasons_and_needs_no_table(tmp_path: Path) -> None:
    proof, opb = tmp_path / "p.pbp", tmp_path / "p.opb"
    impossible, free = queens(3), tuple(Variable(f"free {v}", 2) for v in range(40))
    both = replace(impossible, variables=(*impossible.variables, *free))
    assert oocbe.count(both, proof=proof, opb=opb).value == 0
    assert claim_of(opb, proof)[0] == "UNSAT" and proof.stat().st_size < 2000
    room = LinearConstraint(tuple(range(40)), tuple(np.array([3, 5]) for _ in free), 3 * 40 + 2)
    result = oocbe.count(Problem(free, (), (), (room,)), proof=proof, opb=opb)
    assert result.value == 41 and claim_of(opb, proof)[1] == 41 and proof.stat().st_size < 700_000
    assert not veripb_refuses(opb, proof)


def test_command_proves_a_projected_count_and_says_what_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proof, opb = tmp_path / "small.cnf", tmp_path / "p.pbp.gz", tmp_path / "p.opb"
    path.write_text("c t pmc\np cnf 4 3\nc p show 1 2 0\n1 2 0\n-1 3 4 0\n-3 -4 0\n")
    words = ["solve", str(path), "--task", "count", "--proof", str(proof), "--opb", str(opb)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "proof: 3 solutions" in done.output
    command = [sys.executable, "-I", str(ROOT / "tools" / "check_proof.py"), str(opb), str(proof)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.stdout == "accepted: ENUMERATION_COMPLETE 3\n"
    proof.unlink()
    for longest in (10, 300):  # of the list of solutions, and of the search
        monkeypatch.setattr("oocbe.certificates.proofs.LONGEST", longest)
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 20 and f"small has over {longest} characters" in " ".join(done.output.split())
        assert not proof.exists() and opb.exists()
        for brief in (["--quiet"], ["--output", "competition"]):
            assert f"over {longest} characters" in " ".join(CliRunner().invoke(app, [*words, *brief]).stderr.split())


@pytest.mark.parametrize("step", ["certificates.proofs.check_deadline", "certificates.proofs.search_orders"])
def test_count_is_kept_where_the_time_of_its_proof_ends(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise TimeLimitError("the time limit has passed")

    monkeypatch.setattr(f"oocbe.{step}", ended)
    (tmp_path / "p.pbp").write_text("an older proof, of another formula")
    result = oocbe.count(queens(5), proof=tmp_path / "p.pbp", opb=tmp_path / "p.opb")
    assert "solutions\n" in (tmp_path / "p.opb").read_text() and "cost" not in (tmp_path / "p.opb").read_text()
    assert result.value == 10 and result.notes[-1] == "no proof was written: the time limit has passed"
    assert [path.name for path in tmp_path.iterdir()] == ["p.opb"]


def test_a_proof_and_its_formula_have_two_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "both")
    for verb, name in itertools.product((oocbe.solve, oocbe.count), ("both", "link")):
        with pytest.raises(UsageError, match="cannot hold both the proof and its formula"):
            verb(queens(4), proof=tmp_path / "both", opb=str(tmp_path / name))


def test_a_formula_without_proof_is_written_with_a_gap(tmp_path: Path) -> None:
    oocbe.solve(capacity(), gap=1, opb=tmp_path / "o")
    assert "min: " in (tmp_path / "o").read_text()


@pytest.mark.parametrize(("sign", "what"), [(1, "below the upper"), (-1, "above the lower")])
def test_note_names_the_bound_that_excludes_all(tmp_path: Path, sign: int, what: str) -> None:
    bound: dict[str, Any] = {"upper_bound": 1} if sign > 0 else {"lower_bound": -1, "semiring": MAX_SUM}
    costs = Function.from_array((0,), sign * np.array([2, 3]))
    problem = Problem((Variable("v", 2),), (costs,), (), **bound)
    result = oocbe.solve(problem, proof=tmp_path / "p", opb=tmp_path / "o")
    assert result.notes[-1].startswith(f"proof: no assignment is feasible {what} bound;")


def test_note_states_no_bound_where_the_proof_has_no_conclusion(tmp_path: Path) -> None:
    proof, opb, problem = tmp_path / "p", tmp_path / "o", queens(5)
    unproven = replace(oocbe.solve(problem), status="limit", value=None, assignment=None, bound=0)
    result, missing = ProofTask(problem, SolveOptions(bound_seconds=0), proof, opb).write(unproven)
    assert claim_of(opb, proof).kind == "NONE"
    assert not missing and result.notes[-1].startswith("proof: no conclusion;")


def test_library_says_why_a_proof_leaves_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "MOST_ROWS", 0)
    problem = random_network(12, 3, 0.4, 0.2, seed=1)
    result = oocbe.solve(problem, order_seconds=0, bound_seconds=0, proof=tmp_path / "p", opb=tmp_path / "o")
    assert "leave a gap" in result.notes[-1]


def test_a_proof_replaces_neither_links_nor_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, target, pipe, opb = (tmp_path / name for name in ("link", "target", "pipe", "opb"))
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path)
    oocbe.solve(queens(4), opb=opb)  # a formula without a proof, beside a folder of any name
    link.symlink_to(target)
    os.mkfifo(pipe)
    for verb in (oocbe.solve, oocbe.count):
        verb(queens(4), proof=link, opb=opb)
        assert link.is_symlink() and target.read_text().startswith("pseudo-Boolean proof")
        for special in (pipe, tmp_path, tmp_path / "no" / "p"):  # as root, /dev/null was removed
            with pytest.raises(UsageError, match="no regular file"):
                verb(queens(4), proof=special, opb=opb)
        with pytest.raises(UsageError, match="cannot hold both"):
            verb(queens(4), proof=link, opb=target)
    assert pipe.is_fifo()


@pytest.mark.parametrize("origin", [0, 1])
def test_objectives_of_linear_systems_are_the_decimals_of_their_files(origin: int, tmp_path: Path) -> None:
    file, proof, opb = tmp_path / "f.lp", tmp_path / "p", tmp_path / "o"
    bounds = f"{origin} <= x <= 10\n{origin} <= y <= 10"
    file.write_text(f"min\nobj: 0.1 x + 0.7 y\nst\nc: x + 2 y >= 13\nbounds\n{bounds}\ngeneral\nx y\nend\n")
    result = oocbe.solve(file, proof=proof, opb=opb)
    assert (result.status, claim_of(opb, proof)[0]) == ("optimal", "BOUNDS")
    assert "objective = 10 * cost" in opb.read_text()
    file.write_text(file.read_text().replace("0.7", "1.7e308"))
    with pytest.raises(UnsupportedError, match="leaves 64 bits"):
        oocbe.read(file)


def test_short_fuzz(tmp_path: Path) -> None:
    for seed in range(examples(20)):
        check(draw(random.Random(seed)), tmp_path, Tally())


def test_formulas_that_an_old_veripb_misreads_are_not_given_to_it(tmp_path: Path) -> None:
    program, opb, proof = (tmp_path / name for name in ("veripb", "f.opb", "p.pbp"))
    program.write_text("#!/bin/sh\necho Unsupported version\nexit 1\n")
    program.chmod(0o700)
    proof.write_text("pseudo-Boolean proof version 2.0\nf 1\n")
    opb.write_text("-2147483647 x1 >= 0 ;\n")
    assert veripb_refuses(opb, proof, str(program)) == "Unsupported version\n"
    opb.write_text("-2147483648 x1 >= 0 ;\n")
    assert veripb_refuses(opb, proof, str(program)) is None


@pytest.mark.skipif(shutil.which("veripb") is None, reason="VeriPB is not installed")
def test_veripb_accepts_proofs(tmp_path: Path) -> None:
    result = oocbe.solve(DAILY, order_seconds=0.1, proof=tmp_path / "p.pbp", opb=tmp_path / "p.opb")
    assert result.status == "optimal"
    assert veripb_refuses(tmp_path / "p.opb", tmp_path / "p.pbp") == ""
