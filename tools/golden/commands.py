"""The command line: JSON and text of every command, files that they write, exit codes, a run that is resumed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from .problems import FAMILIES
from .recorder import ROOT, Recorder, file_digest, folder_digest
from .texts import EVIDENCE, TEXTS

FIXED = ("--order-seconds", "0", "--memory", "1GiB", "--seed", "3")
"""Options under which orders do not depend on time."""

PLAIN = (*FIXED, "--bounds", "none")

DAILY, GRID = "examples/daily.spot", "examples/grid.wcsp"


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    files = {name: recorder.place(f"commands/{name}") for name in (*TEXTS, "markov.evid")}
    for name, path in files.items():
        path.write_text(TEXTS.get(name, EVIDENCE))
    command, add = recorder.command, recorder.add
    for name in (
        "markov.uai",
        "garden.bif",
        "small.cfn",
        "sample.wcsp",
        "cop.xml",
        "sums.opb",
        "soft.wcnf",
        "broken.wcsp",
    ):
        add(f"commands/solve/{name}", command, "solve", files[name], *PLAIN, "--json")
        add(f"commands/inspect/{name}", command, "inspect", files[name], "--json")
    for name in ("sample.mps", "reals.lp", "cop.xml", "knapsack.wcsp"):
        suffix = "mps" if name.endswith(("mps", "lp")) else "cfn"
        target = recorder.place(f"commands/tighter-{Path(name).stem}.{suffix}")
        words = ("propagate", files[name], "--json", "--output", target)
        add(f"commands/propagate/{name}", with_files, recorder, words, target)
    for example in (DAILY, GRID):
        add(f"commands/solve/{example}", command, "solve", example, *PLAIN)
        add(f"commands/solve/{example}-quiet", command, "solve", example, *PLAIN, "--quiet")
        add(f"commands/plan/{example}", command, "plan", example, *PLAIN)
        add(f"commands/plan/{example}-json", command, "plan", example, *PLAIN, "--json")
        add(f"commands/inspect/{example}", command, "inspect", example)
        add(f"commands/propagate/{example}", command, "propagate", example, "--probe", "--json")
    options = ("--incumbent-seconds", "0", "--json")
    add("commands/bound/grid", command, "bound", GRID, *FIXED, "--z", "3", "--z", "4", "--cost-shifting", *options)
    add("commands/bound/daily", command, "bound", DAILY, *FIXED, "--z", "3", *options)
    tasks(recorder, files)
    solutions(recorder)
    trees(recorder, files)
    made(recorder)
    resumed(recorder)
    add("commands/dcop/lights", command, "dcop", files["lights.yaml"], "--memory", "1GiB", "--json")
    add(
        "commands/dcop/grid", command, "dcop", GRID, "--z", "3", "--heuristic", "min-fill", "--memory", "1GiB", "--json"
    )
    several = ("solve", GRID, files["small.cfn"], files["broken.wcsp"], "--jobs", "1", *PLAIN, "--json")
    add("commands/several", command, *several)
    for shell in ("bash", "zsh", "fish"):
        add(f"commands/completion/{shell}", command, "completion", shell)
    add("commands/wrong/option", command, "solve", GRID, "--ordr", "auto")
    add("commands/wrong/value", command, "solve", GRID, "--tables", "dense")
    add("commands/wrong/file", command, "solve", recorder.folder / "no-such-file.wcsp")
    add("commands/wrong/suffix", command, "solve", "README.md")
    add("commands/wrong/variable", command, "solve", GRID, OOCBE_ORDR="auto")
    add("commands/input", command, "solve", "-", "--format", "wcsp", *PLAIN, "--json", text=TEXTS["sample.wcsp"])


def with_files(recorder: Recorder, words: tuple[object, ...], *targets: Path) -> Any:
    """A command, and the files or folders that it has written."""
    found = recorder.command(*words)
    digests = {
        target.name: folder_digest(target) if target.is_dir() else file_digest(target) if target.exists() else None
        for target in targets
    }
    return found | {"files": digests}


def tasks(recorder: Recorder, files: dict[str, Path]) -> None:
    """Tasks with their answers in the competitions' files."""
    markov, evidence = files["markov.uai"], ("--evidence", files["markov.evid"])
    for task, suffix in (("mpe", "MPE"), ("marginals", "MAR"), ("logz", "PR")):
        target = recorder.place(f"commands/answer.{suffix}")
        words = ("solve", markov, *evidence, "--task", task, *FIXED, "-o", target, "--json")
        recorder.add(f"commands/task/{task}", with_files, recorder, words, target)
    for task in ("count", "count-optimal", "kbest", "min-marginals", "logz", "marginals"):
        recorder.add(f"commands/task/grid-{task}", recorder.command, "solve", GRID, "--task", task, *FIXED, "--json")
    recorder.add("commands/task/text", recorder.command, "solve", GRID, "--task", "kbest", "--k", "3", *FIXED)
    recorder.add("commands/task/question", recorder.command, "solve", files["projected.cnf"], "--task", "count", *FIXED)


def solutions(recorder: Recorder) -> None:
    """Solutions, certificates and what verifies them, conversions with compression."""
    for name, example in (("daily", DAILY), ("grid", GRID)):
        solution, proof = recorder.place(f"commands/{name}.sol"), recorder.place(f"commands/{name}.proof")
        words = ("solve", example, *PLAIN, "--solution", solution, "--certificate", proof, "--quiet")
        recorder.add(f"commands/certificate/{name}", with_files, recorder, words, solution, proof)
        recorder.add(f"commands/verify/{name}", recorder.command, "verify", example, solution, "--json")
        recorder.add(
            f"commands/verify/{name}-proof", recorder.command, "verify", example, "--certificate", proof, "--json"
        )
        recorder.add(f"commands/verify/{name}-alone", checked_alone, recorder, ROOT / example, proof)
        other = GRID if example == DAILY else DAILY
        recorder.add(f"commands/verify/{name}-other", recorder.command, "verify", other, solution)
        for suffix in ("wcsp.gz", "cfn", "uai.xz"):
            target = recorder.place(f"commands/{name}.{suffix}")
            recorder.add(
                f"commands/convert/{name}.{suffix}", with_files, recorder, ("convert", example, target), target
            )


def checked_alone(recorder: Recorder, example: Path, proof: Path) -> Any:
    """What the checker says that runs without the package, at the path that its page names."""
    page = (ROOT / "docs" / "certificate.md").read_text()
    script = re.findall(r"^python (\S+\.py)", page, flags=re.MULTILINE)[0]
    words = [sys.executable, "-I", str(ROOT / script), str(example), str(proof)]
    done = subprocess.run(words, cwd=recorder.folder, capture_output=True, text=True)
    return {"exit_code": done.returncode, "output": done.stdout, "messages": done.stderr}


def trees(recorder: Recorder, files: dict[str, Path]) -> None:
    """A tree that is compiled, inspected and asked."""
    folder, cases = recorder.place("commands/garden.tree"), recorder.place("commands/cases.csv")
    cases.write_text("season,rain,grass\ndry,,\n,,wet\nwet,yes,\n,,\n")
    impossible = recorder.place("commands/impossible.csv")
    impossible.write_text(cases.read_text() + "very_wet,no,\n")
    words = ("compile", files["garden.bif"], folder, *FIXED, "--json")
    recorder.add("commands/compile", recorder.command, *words)
    recorder.add("commands/inspect/tree", recorder.command, "inspect", folder, "--json")
    for suffix in ("csv", "MAR", "PR", "MPE"):
        target = recorder.place(f"commands/answers.{suffix}")
        joint = ("--joint", "season,rain", "--targets", "rain,grass") if suffix == "csv" else ()
        words = ("query", folder, "--cases", impossible if joint else cases, *joint, "-o", target)
        recorder.add(f"commands/query/{suffix}", with_files, recorder, words, target)


def made(recorder: Recorder) -> None:
    """What synth makes from seeds, byte for byte, and stress with its digest of all rows."""
    kinds: dict[str, tuple[str, ...]] = {
        "random": ("random", "wcsp", "--variables", "12"),
        "scale-free": ("scale-free", "wcsp", "--variables", "12"),
        "grid": ("grid", "wcsp", "--side", "4", "--domain", "3", "--tightness", "0.2"),
        "spot5": ("spot5", "spot", "--photographs", "40", "--window", "6"),
    }
    for name, (kind, suffix, *more) in kinds.items():
        target = recorder.place(f"commands/made-{name}.{suffix}")
        words = ("synth", kind, target, *more, "--seed", "5")
        recorder.add(f"commands/synth/{name}", with_files, recorder, words, target)
    table = recorder.place("commands/made-table")
    recorder.add("commands/synth/table", synthetic_table, recorder, table)
    recorder.add("commands/inspect/table", recorder.command, "inspect", table, "--json")
    scratch = recorder.place("commands/stress/x").parent
    common = ("--rows", "1e5", "--memory", "32MiB", "--seed", "3", "--streams", "1", "--digest", "--json")
    for operator in ("join-maximise", "join-sum", "maximise"):
        for way, more in (("", []), ("-generated", ["--generated"]), ("-sorted", ["--sorted", "--sizes", "zipf"])):
            words = ("stress", "--operator", operator, *more, *common, "--workdir", scratch)
            recorder.add(f"commands/stress/{operator}{way}", stress, recorder, words)
    shared = ("--rows", "1.2e6", *common[2:])  # fewer are not shared out
    words = ("stress", "--workers", "cpus:2", *shared, "--workdir", scratch)
    recorder.add("commands/stress/workers", stress, recorder, words)
    words = ("simulate", "--workers", "50", "--segments", "20", "--seed", "4", "--json")
    recorder.add("commands/simulate", recorder.command, *words)


def synthetic_table(recorder: Recorder, folder: Path) -> Any:
    """A made table: its files."""
    found = recorder.command("synth", "table", folder, "--rows", "2e4", "--seed", "5")
    return {"exit_code": found["exit_code"], "files": folder_digest(folder)}


def stress(recorder: Recorder, words: tuple[object, ...]) -> Any:
    """A stress run without its messages, which are about times."""
    return {name: value for name, value in recorder.command(*words).items() if name != "messages"}


def inspected_run(recorder: Recorder, folder: Path) -> Any:
    """What a run directory holds, but its size: its record has times in it."""
    found = recorder.command("inspect", folder, "--json")
    found["json"].pop("bytes", None)
    return found


def resumed(recorder: Recorder) -> None:
    """A run that is killed when a message is published, inspected, and resumed."""
    import oocbe

    path, folder = recorder.place("commands/large.cfn"), recorder.place("commands/run")
    oocbe.write(FAMILIES["many-variables"](), path)
    words = ("solve", path, *PLAIN, "--tables", "incomplete", "--workdir", folder)
    killed = {"OOCBE_FAULT": "message:renamed:30"}
    recorder.add("commands/run/killed", recorder.command, *words, "--json", **killed)
    recorder.add("commands/run/inspected", inspected_run, recorder, folder)
    recorder.add("commands/run/resumed", recorder.command, *words, "--resume", "--json")
    recorder.add("commands/run/finished", recorder.command, *words, "--resume", "--json")
    recorder.add(
        "commands/run/another", recorder.command, "solve", ROOT / GRID, *PLAIN, "--workdir", folder, "--resume"
    )
