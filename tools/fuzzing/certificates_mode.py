"""Certificates: the checker accepts those of random problems, and of damaged ones none that claims what is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import Truth, truth_of
from .descriptions import Description
from .file_texts import KINDS
from .mutations import mutated
from .outcome import DisagreementError, NotAvailableError, Tally

MUTATIONS = 12
"""Damaged forms of each certificate."""

REFUSALS = (2, 10, 40)
"""Exit codes of a checker that does not accept."""


def draw(random: Random) -> Description:
    """A file, and a seed for the damage to its certificate."""
    suffix = random.choice(("spot", "spot", "wcsp", "wcsp", "wcsp", "uai"))
    kind = KINDS[suffix]
    problem = kind.draw(random)
    while not problem["sizes"] and random.random() < 0.9:
        problem = kind.draw(random)
    options = []
    if random.random() < 0.3:
        options += ["--bounds", random.choice(("lp", "constant", "none"))]
    if random.random() < 0.2:
        options += ["--no-dominance"]
    if random.random() < 0.2:
        options += ["--ub", str(random.randint(0, 30))]
    if random.random() < 0.1:
        options += ["--semiring", random.choice(("counting", "max-sum"))]
    change = random.randint(0, 2**32)
    return {
        "suffix": suffix,
        "text": kind.render(problem, random),
        "problem": problem,
        "options": options,
        "change": change,
    }


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Make a certificate, have it checked, damage it, and have it checked again."""
    _need_the_option()
    file, path = folder / f"problem.{case['suffix']}", folder / "certificate.json"
    file.write_text(case["text"])
    code, output = _run("solve", str(file), "--order-seconds", "0", *case["options"], "--certificate", str(path))
    semiring = case["options"][case["options"].index("--semiring") + 1] if "--semiring" in case["options"] else None
    truth = truth_of(case["problem"], semiring)
    if code == 2:
        tally.holds("a refusal that names the option", "certificate" in output, "--certificate in the message", output)
        tally.refusals["exit code 2"] += 1
        return
    tally.holds("exit code", code in (0, 10, 11), "0, 10 or 11", f"{code}: {output}")
    if not path.exists():  # said so, where no certificate was found
        tally.holds("a note about the certificate", "certificate" in output, "a note", output)
        tally.refusals["no certificate"] += 1
        return
    whole = path.read_bytes()
    tally.holds("a right claim", _is_right(json.loads(whole), truth), "what brute force says", whole[:500])
    code, output = _run("verify", str(file), "--certificate", str(path))
    tally.holds("the checker accepts", code == 0, 0, f"{code}: {output}")
    random = Random(case["change"])
    for _ in range(MUTATIONS):
        damaged = _damaged(random, whole)
        path.write_bytes(damaged)
        code, output = _run("verify", str(file), "--certificate", str(path))
        if code == 0:
            try:
                is_right = _is_right(json.loads(damaged), truth)
            except (ValueError, LookupError, TypeError) as error:
                raise DisagreementError(
                    "a damaged certificate", "refused", f"accepted, though {error!r}: {damaged[:800]!r}"
                ) from None
            tally.holds("a damaged certificate", is_right, "refused", f"accepted: {damaged[:1200]!r}")
        else:
            tally.holds("exit code of a refusal", code in REFUSALS, REFUSALS, f"{code}: {output}")


def _need_the_option() -> None:
    from typer.main import get_command

    from oocbe.cli.main import app

    commands: Any = get_command(app)
    for name in ("solve", "verify"):
        flags = {flag for parameter in commands.commands[name].params for flag in parameter.opts}
        if "--certificate" not in flags:
            raise NotAvailableError(f"not available: oocbe {name} has no --certificate yet")


def _run(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command, in this process; an internal error is one."""
    from typer.testing import CliRunner

    from oocbe.cli.main import app

    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output[-1500:]


def _is_right(certificate: Description, truth: Truth) -> bool:
    """Whether what a certificate claims is so."""
    status, value = certificate["status"], certificate["value"]
    if status == "optimal":
        return truth.best is not None and value == truth.best
    if status == "infeasible":
        return not truth.rows
    if status == "nothing-better":
        return not truth.below(value).rows
    raise ValueError(f"unknown status {status!r}")


def _damaged(random: Random, whole: bytes) -> bytes:
    """Damage to the text, or to a number, list or field somewhere in the object."""
    if random.random() < 0.2:
        return mutated(random, whole, "certificate")
    made = json.loads(whole)
    claimed = made["value"]
    for _ in range(random.choice((1, 1, 2))):
        places = list(_places(made))
        holder, key = random.choice(places)
        if random.random() < 0.3:
            # A better value is what a forger wants.
            made["value"] = random.choice((0, 1, -1, (claimed or 1) - 1, (claimed or 0) + 1))
            continue
        old = holder[key]
        if isinstance(old, bool) or old is None:
            holder[key] = random.choice((0, 1, None, True, []))
        elif isinstance(old, int):
            holder[key] = random.choice((old + 1, old - 1, -old, 0, old * 2, old + 2**20, 10**30, float(old), str(old)))
        elif isinstance(old, list) and old:
            place = random.randrange(len(old))
            random.choice((lambda o=old, p=place: o.pop(p), lambda o=old, p=place: o.append(copy.deepcopy(o[p]))))()
        elif isinstance(holder, dict) and random.random() < 0.5:
            del holder[key]
        else:
            holder[key] = random.choice(("optimal", "infeasible", "nothing-better", [], {}, None))
    return json.dumps(made).encode()


def _places(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON object: its holder and its key."""
    items = thing.items() if isinstance(thing, dict) else enumerate(thing)
    for key, content in items:
        yield thing, key
        if isinstance(content, dict | list):
            yield from _places(content)


def smaller(case: Description) -> Iterator[Description]:
    """Cases with other damage are not smaller; with fewer options they are."""
    if case["options"] and "--semiring" not in case["options"]:
        yield {**case, "options": []}
