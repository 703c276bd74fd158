"""Every command and operator with a memory limit, in a control group that has that and the program's own share.

Each ends with an answer, or is refused with exit code 30 and a message: it is never killed, writes no traceback, and
leaves neither half an output nor scratch files. Where no control group can be made, its peak is measured instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from .control_groups import Ended, run
from .memory_inputs import PROBLEMS, write_parquet, write_problem, write_table
from .memory_operators import OPERATORS
from .outcome import DisagreementError, NotAvailableError, Tally

Description = dict[str, Any]

MIB = 1 << 20

PROGRAM_BYTES = 256 * MIB
"""What the program takes beside the limit, as docs/limits.md has it."""

LIBRARY_BYTES = 112 * MIB
"""Pages of libraries' files in a process's own peak, which a control group counts for whoever read them first."""

SECONDS = 150.0
"""A command that takes longer hangs: its time limit is a few seconds, reading included."""

LIMITS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Memory limits in MiB."""

WAYS = {
    "solve": ("wcsp", "wcsp", "wcsp", "cfn", "uai", "mps", "cnf", "bif"),
    "count": ("wcsp", "cnf"),
    "count-optimal": ("wcsp",),
    "kbest": ("wcsp", "cfn"),
    "marginals": ("uai", "bif"),
    "logz": ("uai", "bif"),
    "min-marginals": ("wcsp",),
    "mpe": ("uai", "bif"),
    "bound": ("wcsp", "cfn"),
    "plan": ("wcsp", "uai", "cfn"),
    "propagate": ("mps", "wcsp"),
    "inspect": tuple(PROBLEMS),
    "convert": ("wcsp", "uai", "cfn"),
    "verify": ("wcsp", "cfn"),
    "dcop": ("wcsp", "cfn"),
    "compile": ("uai", "bif"),
    "parquet": (),
    "stress": (),
    "synth": (),
    "operator": (),
}
"""Kinds of commands, and the formats whose problems they are given."""

TASKS = ("count", "count-optimal", "kbest", "marginals", "logz", "min-marginals", "mpe")
"""Kinds that are tasks of ``solve``."""

UNSUPPORTED = ("support", "at most", "stops at", "too wide")
"""Words of messages about what no memory would help."""

JOINED_ROWS = 1 << 26
"""Rows that ``stress``, which has no time limit, is to join at most."""

ENDS = (0, 10, 11, 20, 30)
"""Exit codes of answers, limits and refusals for want of memory."""


def draw(random: Random, way: str | None = None) -> Description:
    """A command, its limit, and the numbers that its input is made from."""
    way = way or random.choice(tuple(WAYS))
    limit = random.choice(LIMITS)
    case: Description = {"way": way, "memory": limit, "number": random.randrange(2**31)}
    if WAYS[way]:
        case |= {
            "suffix": random.choice(WAYS[way]),
            "kind": random.randrange(60),
            "size": int(limit * MIB * random.choice((0.01, 0.05, 0.1, 0.3, 0.45, 0.6, 1.0)) / random.choice((1, 1, 4))),
            "is_compressed": random.random() < 0.3,
        }
        case["size"] = min(case["size"], 24 * MIB)
    if way == "operator":
        limit = case["memory"] = random.choice(LIMITS[:6])
        size = {name: random.choice((3, 20, 100, 1000)) for name in "abcd"}
        case |= {
            "operator": random.choice(OPERATORS),
            "sizes": size,
            "tables": random.choice((["abc", "bcd"], ["ab", "bc"], ["abc", "cd"], ["bac", "dcb"])),
            "gone": random.choice(("b", "c")),
            "rows": int(limit * MIB / 16 * random.choice((0.02, 0.2, 0.5, 1.0, 2.0))),
            "is_sorted": random.random() < 0.5,
            "output": random.random() < 0.75,
        }
        case["on_disk"] = case["output"] and random.random() < 0.7
    if way in ("parquet", "stress", "synth"):
        case["rows"] = int(limit * MIB / 16 * random.choice((0.1, 0.5, 1.0, 2.0)))
    if way == "stress":
        groups = random.choice((8, 32, 4096))
        case |= {"operator": random.choice(("join-sum", "maximise", "join-maximise")), "groups": groups}
        case["rows"] = max(groups, min(case["rows"], JOINED_ROWS // groups))
    if way == "synth":
        case["made"] = random.choice(("random", "grid", "spot5", "table"))
    if way == "solve":
        case["options"] = random.choice(
            ([], [], ["--bounds", "none"], ["--bounds", "lp"], ["--tables", "complete"], ["--tables", "incomplete"])
        )
    return case


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Run the case's commands one after the other, until one is refused."""
    if Path("/dev/nvidiactl").exists():
        raise NotAvailableError("a CUDA driver takes main memory of its own, beside what a limit holds for")
    with tempfile.TemporaryDirectory(prefix="oocbe-fuzz-") as made:  # on a disk: files in memory count for the group
        place = Path(made)
        (place / "tmp").mkdir()
        for command, outputs in _commands(case, place):
            ended = _run(command, case, place)
            _check_end(ended, case, tally)
            left = sorted(p.name for p in (place / "tmp").iterdir())
            tally.same("files left in the scratch folder", [], left)
            if ended.code == 30:
                tally.refusals["memory"] += 1
                there = [str(path.relative_to(place)) for path in outputs if path.exists()]
                tally.same("outputs of a command that was refused", [], there)
                return


def _run(command: list[str], case: Description, place: Path) -> Ended:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    environment |= {"TMPDIR": str(place / "tmp"), "OOCBE_MEMORY": f"{case['memory']}MiB", "OOCBE_BACKEND": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[2]), *sys.path])
    limit = case["memory"] * MIB + PROGRAM_BYTES
    try:
        return run([sys.executable, *command], limit, environment, SECONDS, place)
    except subprocess.TimeoutExpired:
        raise DisagreementError("end of a command", "one within its time limit", f"none in {SECONDS:g} s") from None


def _check_end(ended: Ended, case: Description, tally: Tally) -> None:
    said = ended.errors[-1500:]
    if ended.code < 0 or ended.code >= 128:
        raise DisagreementError("end of a command", "an answer or a refusal", f"signal ({ended.code}): {said}")
    for sign in ("Traceback", "internal error", "Exception ignored"):
        tally.holds("messages", sign not in ended.errors, "one line about what was wrong", said)
    unsupported = ended.code == 2 and any(sign in said for sign in UNSUPPORTED)
    if unsupported:
        tally.refusals["unsupported"] += 1
    tally.holds("exit code", ended.code in ENDS or unsupported, f"one of {ENDS}", f"{ended.code}: {said}")
    if not ended.is_group:
        most = case["memory"] * MIB + PROGRAM_BYTES + LIBRARY_BYTES
        tally.holds("peak", ended.peak <= most, f"at most {most:,} bytes", f"{ended.peak:,}")


def _commands(case: Description, place: Path) -> Iterator[tuple[list[str], list[Path]]]:
    """What is run, with the outputs that must not be there if it is refused."""
    way, program = case["way"], ["-m", "oocbe"]
    if way == "operator":
        for i, names in enumerate(case["tables"]):
            path = place / f"in{i}"
            write_table(path, list(names), case["sizes"], case["number"] + i, case["rows"], case["is_sorted"])
        told = {name: case[name] for name in ("operator", "memory", "output", "on_disk", "gone")}
        script = Path(__file__).with_name("memory_operators.py")
        yield [str(script), json.dumps(told), str(place)], [place / "out"]
        return
    limit = ["--memory", f"{case['memory']}MiB"]
    timed = [*limit, "--time-limit", "6", "-q"]
    if way == "parquet":
        path, keys = write_parquet(place, case["number"], case["rows"]), ["--values", "cost"]
        stored, back = place / "stored", place / "back.parquet"
        yield [*program, "convert", str(path), str(stored), *keys, "--semiring", "min-sum", *limit], [stored]
        yield [*program, "convert", str(stored), str(back), *keys, *limit], [back]
        return
    if way == "stress":
        sized = ["--rows", str(case["rows"]), "--group-rows", str(case["groups"]), "--operator", case["operator"]]
        yield [*program, "stress", *sized, *limit, "--workdir", str(place / "work")], []
        return
    if way == "synth":
        numbers = Random(case["number"])
        sizes = {
            "random": ["-n", str(numbers.randint(5, 300)), "-d", str(numbers.randint(5, 60)), "--density", "0.5"],
            "grid": ["--side", str(numbers.randint(5, 60)), "-d", str(numbers.randint(5, 60))],
            "spot5": ["-n", str(numbers.randint(100, 20000))],
            "table": ["--rows", str(case["rows"])],
        }
        out = place / ("made" if case["made"] == "table" else "made.wcsp")
        yield [*program, "synth", case["made"], str(out), *sizes[case["made"]]], [out]
        return
    path = write_problem(place, case["suffix"], case["kind"], case["number"], case["size"], case["is_compressed"])
    file, out = str(path), place / "out"
    solution = place / "answer.sol"
    if way == "solve":
        yield [*program, "solve", file, *timed, *case["options"], "--json"], []
    elif way in TASKS:
        yield [*program, "solve", file, "--task", way, *timed], []
    elif way in ("bound", "dcop"):
        yield [*program, way, file, *timed, *(["--z", "3"] if case["kind"] % 2 else [])], []
    elif way == "plan":
        yield [*program, way, file, *limit, "--order-seconds", "1"], []
    elif way == "propagate":
        yield [*program, way, file, "--time-limit", "6"], []
    elif way == "inspect":
        yield [*program, way, file], []
    elif way == "convert":
        target = place / f"written.{'wcsp' if case['suffix'] == 'cfn' else 'cfn'}"
        target = place / "written.uai" if case["suffix"] == "uai" else target
        yield [*program, way, file, str(target)], [target]
    elif way == "verify":
        yield [*program, "solve", file, "--solution", str(solution), "--time-limit", "3", "-q", "--memory", "2GiB"], []
        if solution.exists():
            yield [*program, way, file, str(solution)], []
    elif way == "compile":
        yield [*program, way, file, str(out), *limit, "--order-seconds", "0.3"], []
        cases = place / "cases.csv"
        names = ("v0", "v1") if case["suffix"] == "bif" else ("0", "1")
        values = ("s0", "s1") if case["suffix"] == "bif" else ("0", "1")
        cases.write_text("\n".join([",".join(names), *(f"{values[i % 2]}," for i in range(200))]) + "\n")
        answers = place / "answers.csv"
        yield (
            [*program, "query", str(out), "--cases", str(cases), "--targets", names[1], "-o", str(answers), *limit],
            [],
        )


def smaller(case: Description) -> Iterator[Description]:
    """Smaller inputs."""
    for name in ("size", "rows"):
        if case.get(name, 0) > 1000:
            yield {**case, name: case[name] // 2}
    if case.get("is_compressed"):
        yield {**case, "is_compressed": False}
