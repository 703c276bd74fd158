"""Proofs: the checker accepts those of random problems, what they conclude is so, and no damaged one proves more.

Where ``veripb`` is on the path, it checks the proofs as well; versions before 2.0 get them in their own format.
``python -m tools.fuzzing.proofs_mode FILE.opb FILE.pbp`` does so with one proof.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import Truth, truth_of
from .descriptions import Description, problem_of, random_description, smaller_descriptions
from .mutations import mutated
from .outcome import Tally

MUTATIONS = 6
"""Damaged forms of each proof."""

EXACT_DIGITS = 15
"""Digits of numbers up to which a veripb before 2.0 is exact."""

LEAST = -(2**31) + 1
"""Least coefficient of a formula that a veripb before 2.0 reads without overflow."""

SEMIRINGS = ("min-sum", "max-sum")

COUNTED = (*SEMIRINGS, "max-product", "sum-product")


@cache
def checker() -> Any:
    """The module ``tools/check_proof.py``, which imports nothing of oocbe."""
    path = Path(__file__).parents[1] / "check_proof.py"
    found = importlib.util.spec_from_file_location("check_proof", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def claim_of(opb: Path, proof: Path) -> Any:
    """The claim of a proof that the checker accepts; its error is a ValueError."""
    with checker().opened(opb) as formula, checker().opened(proof) as text:
        return checker().check(formula, text)


def veripb_refuses(opb: Path, proof: Path, program: str | None = None, seconds: float | None = None) -> str | None:
    """Why ``veripb`` refuses a proof; empty where it accepts, None where it is not there, or inexact.

    It raises :class:`subprocess.TimeoutExpired` after some seconds.
    """
    program = program or shutil.which("veripb")
    if program is None:
        return None
    done = subprocess.run([program, str(opb), str(proof)], capture_output=True, text=True, timeout=seconds)
    printed, formula, text = done.stdout + done.stderr, opb.read_text(), proof.read_text()
    if "Unsupported version" in printed or ("preserved: " in formula and "Error while parsing" in printed):
        numbers = (word.lstrip("+-") for word in (formula + text).split())
        if any(len(word) > EXACT_DIGITS and word.isdigit() for word in numbers):
            return None
        if any(word[0] == "-" and word[1:].isdigit() and int(word) < LEAST for word in formula.split()):
            return None
        names = formula.partition("preserved: ")[2].partition(" ;")[0].split()
        if "\nsolx " in text and len(names) < len(text.partition("\nsolx ")[2].partition(" ;")[0].split()):
            return None  # its rule excludes what all variables are
        older, plain = proof.with_suffix(".older.pbp"), opb.with_suffix(".older.opb")
        older.write_text(_older(text))
        plain.write_text("".join(line for line in formula.splitlines(True) if not line.startswith("preserved:")))
        done = subprocess.run([program, str(plain), str(older)], capture_output=True, text=True, timeout=seconds)
    return "" if done.returncode == 0 and "succeeded" in done.stdout else done.stdout + done.stderr


def _older(text: str) -> str:
    """A proof in format 1.2: its closed bounds are a contradiction; open bounds are not checked there."""
    lines, last, solution, excluded = [], 0, 0, 0
    for line in text.splitlines():
        rule, _, rest = line.removesuffix(" ;").partition(" ") if " 3.0\n" in text[:40] else line.partition(" ")
        words = rest.split()
        if rule == "pseudo-Boolean":
            line = "pseudo-Boolean proof version 1.2"
        elif rule == "f":
            line, last = f"f {rest}", int(rest)
        elif rule in ("soli", "sol"):
            line, last = f"{'o' if rule == 'soli' else 'v'} {rest}", last + (rule == "soli")
            solution = last
        elif rule in ("pol", "red", "rup"):
            line, last = f"{rule} {rest}", last + 1
        elif rule == "solx":
            line, last, excluded = f"v {rest}", last + 1, excluded + 1
        elif rule == "del":
            line = f"{rule} {rest}"
        elif rule == "conclusion":
            line = ""
            if words[0] == "ENUMERATION_COMPLETE":
                assert words[1] == str(excluded)
                line = f"c {words[3]}"
            elif words[0] == "UNSAT" or words[1:2] == ["INF"]:
                line = f"c {words[words.index(':') + 1]}"
            elif words[0] == "BOUNDS" and words[1] == words[-1] and ":" in words:
                line = f"pol {words[3]} {solution} +\nc {last + 1}"
        elif rule in ("output", "end"):
            line = ""
        lines.append(line)
    return "\n".join(line for line in lines if line) + "\n"


def draw(random: Random) -> Description:
    """A problem, options, and a seed for the damage to its proof."""
    is_counted = random.random() < 0.3
    problem = random_description(random, COUNTED if is_counted else SEMIRINGS, most=400)
    if is_counted:
        shown = [v for v in range(len(problem["sizes"])) if random.random() < 0.6] if random.random() < 0.3 else None
        case = {"problem": problem, "options": {}, "suffix": "", "change": random.randint(0, 2**32)}
        return {**case, "count": True, "shown": shown}
    options: Description = {"order_seconds": 0, "incumbent_seconds": 0.05, "bound_seconds": random.choice((0, 1, 1))}
    if random.random() < 0.4:
        options["bounds"] = random.choice(("none", "constant", "lp"))
    if random.random() < 0.2 and problem["semiring"] == "min-sum":
        options["ub"] = random.randint(-5, 40)
    compressed = random.choice(("", "", ".gz"))
    case = {"problem": problem, "options": options, "suffix": compressed, "change": random.randint(0, 2**32)}
    return {**case, "below": random.randint(0, 6)} if random.random() < 0.25 else case


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Solve with a proof, have it checked, damage it, and have it checked again."""
    import oocbe
    from oocbe.errors import OocbeError
    from oocbe.model.count_question import CountQuestion

    proof, opb = folder / f"proof.pbp{case['suffix']}", folder / f"formula.opb{case['suffix']}"
    truth = truth_of(case["problem"])
    if "ub" in case["options"]:
        truth = truth.below(case["options"]["ub"])
    is_counted, problem = "count" in case, problem_of(case["problem"])
    shown = [*range(len(problem.sizes))]
    if case.get("shown") is not None:
        shown = [v for v in shown if v in case["shown"]]
        question = CountQuestion("pmc", shown=frozenset(problem.variables[v].name for v in shown))
        problem = replace(problem, counting=question)
    try:
        verb = oocbe.count if is_counted else oocbe.solve
        if "below" in case:
            result = _unproven(problem, case, proof, opb)
        else:
            result = verb(problem, proof=proof, opb=opb, **case["options"])
    except OocbeError as error:
        is_bounded = is_counted and case["problem"]["upper_bound"] is not None  # sums may reach it
        tally.refused(error, not truth.integral or _is_large(truth) or is_bounded)
        return
    try:
        claim = claim_of(opb, proof)
    except ValueError as error:
        tally.holds("the checker accepts", False, "accepted", str(error))
        return
    if is_counted:
        count = len({tuple(row[v] for v in shown) for row, _ in truth.rows})
        tally.same("proven count", count, 0 if claim.kind == "UNSAT" else claim.upper)
        tally.same("count", count, result.value)
    else:
        check_claim(claim, opb, result, truth, tally)
    if not case["suffix"]:
        refusal = veripb_refuses(opb, proof)
        tally.holds("veripb accepts", not refusal, "accepted", refusal)
    random = Random(case["change"])
    with checker().opened(proof) as file:
        whole = file.read().encode()
    damaged = folder / "damaged.pbp"
    for _ in range(MUTATIONS):
        damaged.write_bytes(mutated(random, whole, "proof"))
        try:
            other = claim_of(opb, damaged)
        except ValueError:
            continue
        tally.holds("a damaged proof", is_implied(other, claim), f"refused, or implied by {claim}", other)


def _unproven(problem: Any, case: Description, proof: Path, opb: Path) -> Any:
    """The result of a solve as one at a limit, whose bound is some units from the optimum, with its proof."""
    import oocbe
    from oocbe.certificates.proofs import ProofTask

    task = ProofTask(problem, oocbe.SolveOptions(**case["options"]), proof, opb)
    result = oocbe.solve(problem, **case["options"])
    if result.status == "optimal" and result.value is not None:
        sign = 1 if result.sense == "min" else -1
        result = replace(result, status="limit", bound=result.value - sign * case["below"])
    return task.write(result)[0]


def _is_large(truth: Truth) -> bool:
    return truth.magnitude >= 2**53


def is_implied(other: Any, claim: Any) -> bool:
    """Whether a claim follows from that of a whole proof, which has no gap or is at least as strong."""
    if claim.kind == "ENUMERATION_COMPLETE":
        return other == claim or other.kind in ("NONE", "SAT")
    if other.kind == "NONE" or other.kind != claim.kind or claim.kind != "BOUNDS":
        return other.kind in ("NONE", claim.kind)
    if claim.lower is None:  # infeasible: every lower bound holds
        return other.upper is None
    most = claim.lower if claim.upper is None else claim.upper
    return other.lower is not None and other.lower <= most and (other.upper is None or other.upper >= claim.lower)


def check_claim(claim: Any, opb: Path, result: Any, truth: Truth, tally: Tally) -> None:
    """Compare what a proof concludes with brute force; decimals are exact in the formula, and floats are not."""
    if not truth.integral:
        tally.refusals["decimals: only the checker's verdict"] += 1
        return
    is_infeasible = claim.kind == "UNSAT" or (claim.kind == "BOUNDS" and claim.lower is None)
    tally.same("infeasible", not truth.rows, is_infeasible)
    if claim.kind != "BOUNDS" or is_infeasible:
        return
    scale, offset = scale_and_offset(opb)
    if result.status == "limit":
        least = truth.best * scale - offset
        tally.holds("bounds", claim.lower <= least <= claim.upper, f"around {least}", claim)
        return
    found = [None if bound is None else Fraction(bound + offset, scale) for bound in (claim.lower, claim.upper)]
    tally.same("proven bounds", [truth.best, truth.best], found)
    tally.same("value of the result", truth.best, result.value)


def scale_and_offset(opb: Path) -> tuple[int, int]:
    """Signed scale and offset, which a formula's comment states."""
    with checker().opened(opb) as file:
        words = next(line for line in file if "objective = " in line).rsplit("objective = ", 1)[1].split()
    return int(words[0]), int(words[4])


def smaller(case: Description) -> Iterator[Description]:
    """Smaller problems, and fewer options."""
    for problem in smaller_descriptions(case["problem"]):
        yield {**case, "problem": problem}
    for name in case["options"]:
        yield {**case, "options": {n: value for n, value in case["options"].items() if n != name}}


if __name__ == "__main__":
    refusal = veripb_refuses(Path(sys.argv[1]), Path(sys.argv[2]))
    unchecked = "not checked: veripb is not on the path, or inexact for this proof"
    print(unchecked if refusal is None else refusal or "accepted")
    sys.exit(1 if refusal is None else 2 if refusal else 0)
