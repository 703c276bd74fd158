"""Interrupt every command at random moments, and check that it ends at once and that nothing asked for is missing.

    python tools/check_interrupts.py --moments 100 --seed 1

starts each command so many times as a process of its own, sends SIGINT or SIGTERM at a random moment between its start
and its end, and checks

* the exit code: 130 or 143, or that of the command itself where it had just ended (before a command runs, while modules
  load, the signal may also kill the process: -2 or -15),
* the time from signal to exit (a second; ``--seconds`` for machines with other work),
* with ``--json``: one object with ``schema_version``, and the status ``interrupted`` or the final one,
* that the solution file is there where the JSON has an assignment, and that ``oocbe verify`` accepts it,
* that no temporary files are left, in the folder for them or beside what was written,
* that a run in a ``--workdir`` can be resumed and gives the right answer (every tenth time: it takes as long as a run).

Compiled code should be warm: each command runs once undisturbed before, which also tells how long it takes. What failed
is printed with the command, the signal and the moment; the exit code is 1 where anything did.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
OOCBE = [sys.executable, "-P", "-m", "oocbe"]

LONGEST_SECONDS = 5.0
"""Commands that take longer are interrupted within these first seconds."""

ALLOWED_SECONDS = 1.0
"""From the signal to the end of the process."""

RESUMED_EACH = 10
"""Every so many interruptions of a run in a folder, the run is resumed to its end."""

BEFORE_PYTHON = ("Fatal Python error: init_", "Could not import runpy module")
"""What Python itself says of a Ctrl-C in its first hundredth of a second, before anything of ours has begun."""

FINAL_CODES = (0, 2, 10, 11, 20, 30)
"""Exit codes of commands that had ended when the signal came."""


@dataclass
class Command:
    """One command line to be interrupted.

    Attributes
    ----------
    name : for the report. arguments : of ``oocbe``; ``{folder}`` is a new folder each time.
    problem : that a solution is verified against. resumes : a run that is resumed goes on to the proof.
    seconds, code : of an undisturbed run, which is killed after :data:`LONGEST_SECONDS`.
    latencies, outcomes, failures : of the interruptions.
    """

    name: str
    arguments: list[str]
    problem: Path | None = None
    resumes: bool = False
    seconds: float = 0.0
    code: int = 0
    latencies: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def prints_json(self) -> bool:
        return "--json" in self.arguments


def commands(made: Path, only: str | None) -> list[Command]:
    """The commands, on problems that lie in ``made``; some end in a moment, some not at all."""
    hard, day, dense = made / "hard.spot", EXAMPLES / "daily.spot", made / "dense.wcsp"
    network, large = made / "network.uai", made / "large.wcsp"
    solution = ["--solution", "{folder}/solution"]
    found = [
        Command("solve", ["solve", str(hard), "--json", *solution, "--trace", "{folder}/trace.json"], hard),
        Command("solve-dense", ["solve", str(dense), "--json", *solution], dense),
        Command("solve-easy", ["solve", str(day), "--json", *solution], day),
        Command(
            "solve-without-bounds", ["solve", str(made / "wide.wcsp"), "--json", "--bounds", "none", *solution], None
        ),
        Command(
            "solve-in-pieces", ["solve", str(made / "wide.wcsp"), "--json", "--bounds", "none", "--piece-rows", "1000"]
        ),
        Command("workdir", ["solve", str(hard), "--json", *solution, "--workdir", "{folder}/run"], hard),
        Command(
            "workdir-resumed",
            ["solve", str(day), "--json", *solution, "--workdir", "{folder}/run", "--bounds", "constant"],
            day,
            resumes=True,
        ),
        *(
            Command(f"task-{task}", ["solve", str(dense), "--json", "--task", task])
            for task in ("count", "count-optimal", "kbest", "logz", "marginals", "min-marginals")
        ),
        Command("task-mpe", ["solve", str(network), "--json", "--task", "mpe", *solution], network),
        Command("bound", ["bound", str(dense), "--json", *solution, *(f"--z={z}" for z in range(2, 9))], dense),
        Command("bound-auto", ["bound", str(hard), "--json", *solution, "--cost-shifting"], hard),
        Command("dcop", ["dcop", str(dense), "--json", *solution, "--metrics", "{folder}/metrics.json"], dense),
        Command("dcop-bounds", ["dcop", str(made / "wide.wcsp"), "--json", *solution, "--z", "8"], made / "wide.wcsp"),
        Command("dcop-workers", ["dcop", str(dense), "--json", *solution, "--workers", "2"], dense),
        Command("plan", ["plan", str(hard), "--json", "--order-seconds", "3"]),
        Command("verify", ["verify", str(large), str(made / "large.sol"), "--json"]),
        Command("inspect", ["inspect", str(large), "--json"]),
        Command("convert", ["convert", str(large), "{folder}/converted.wcsp.gz"]),
        Command("synth", ["synth", "random", "{folder}/made.wcsp.xz", "-n", "200", "-d", "20"]),
        Command("synth-table", ["synth", "table", "{folder}/table", "--rows", "1e7"]),
        Command("stress", ["stress", "--json", "--rows", "1e6", "--memory", "256MiB", "--workdir", "{folder}/stress"]),
        Command("trace", ["trace", str(made / "long.json"), "--json"]),
    ]
    return [c for c in found if only is None or c.name in only.split(",")]


def make_problems(made: Path) -> None:
    """What the commands work on."""
    call("synth", "spot5", str(made / "hard.spot"), "-n", "300", "--window", "60")
    call("synth", "random", str(made / "dense.wcsp"), "-n", "16", "-d", "6", "--density", "0.6", "--tightness", "0.1")
    call("synth", "random", str(made / "wide.wcsp"), "-n", "24", "-d", "4", "--density", "0.5", "--tightness", "0.02")
    call("synth", "grid", str(made / "grid.wcsp"), "--side", "12", "--domain", "4", "--tightness", "0.1")
    call("synth", "random", str(made / "large.wcsp"), "-n", "150", "-d", "20", "--tightness", "0.0")
    (made / "large.sol").write_text("".join(f"{v} 0\n" for v in range(150)))
    sizes, random_numbers = [4] * 100, random.Random(0)
    edges = [(r * 10 + c, r * 10 + c + d) for r in range(10) for c in range(10) for d in (1, 10)]
    edges = [(a, b) for a, b in edges if b < 100 and (b - a == 10 or b % 10)]
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(edges))]
    lines += [f"2 {a} {b}" for a, b in edges]
    for _ in edges:
        lines += ["16", " ".join(f"{random_numbers.random():.6f}" for _ in range(16))]
    (made / "network.uai").write_text("\n".join(lines) + "\n")
    call("stress", "--rows", "1e5", "--memory", "64MiB", "--trace", str(made / "run.json"), "--workdir", str(made))
    begin, end = (made / "run.json").read_text().rsplit("\n]", 1)[0], "\n]"
    events = begin.splitlines()
    (made / "long.json").write_text("\n".join([*events, *([] if len(events) > 10**5 else events[-1000:] * 100)]) + end)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that must not fail."""
    done = subprocess.run([*OOCBE, *arguments], capture_output=True, text=True, check=False, env=environment())
    if done.returncode:
        raise SystemExit(f"oocbe {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done


def environment(scratch: Path | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, **({} if scratch is None else {"TMPDIR": str(scratch)})}


def hear_interrupts() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Attempt:
    """One run of a command in a folder of its own."""

    def __init__(self, command: Command, parent: Path) -> None:
        self.folder, self.scratch = parent / "run", parent / "scratch"
        self.folder.mkdir()
        self.scratch.mkdir()
        arguments = [a.replace("{folder}", str(self.folder)) for a in command.arguments]
        self.out, self.err = (parent / "out").open("w+"), (parent / "err").open("w+")
        self.process = subprocess.Popen(
            [*OOCBE, *arguments],
            stdout=self.out,
            stderr=self.err,
            env=environment(self.scratch),
            preexec_fn=hear_interrupts,
        )

    def printed(self) -> tuple[str, str]:
        texts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        return texts[0], texts[1]


def measure(command: Command) -> None:
    """Run it undisturbed: how long it takes, and how it ends."""
    with tempfile.TemporaryDirectory() as parent:
        begin = time.monotonic()
        attempt = Attempt(command, Path(parent))
        try:
            attempt.process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            attempt.process.terminate()  # which ends its own processes, too, before the folder is removed
            attempt.process.wait()
        command.seconds, command.code = time.monotonic() - begin, attempt.process.returncode
        attempt.printed()


def interrupt(command: Command, random_numbers: random.Random, allowed: float, resume: bool) -> None:
    """Interrupt it once, and note what was wrong."""
    number = random_numbers.choice([signal.SIGINT, signal.SIGTERM])
    moment = random_numbers.uniform(0.0, command.seconds)
    with tempfile.TemporaryDirectory() as parent:
        attempt = Attempt(command, Path(parent))
        with suppress(subprocess.TimeoutExpired):
            attempt.process.wait(moment)
        running = attempt.process.poll() is None
        sent = time.monotonic()
        if running:
            attempt.process.send_signal(number)
        try:
            code = attempt.process.wait(60)
        except subprocess.TimeoutExpired:
            attempt.process.kill()
            code = attempt.process.wait()
        latency = time.monotonic() - sent
        out, err = attempt.printed()
        wrong: list[str] = []
        if not running:
            command.outcomes["ended before"] += 1
        else:
            command.latencies.append(latency)
            if latency > allowed:
                wrong.append(f"took {latency:.2f} s to end")
        if err.startswith(BEFORE_PYTHON) and not out:
            command.outcomes["before Python had started"] += 1
            return
        if running and code == -number and not out:
            command.outcomes["killed while starting"] += 1
        elif running and code == 128 + number:
            command.outcomes["interrupted"] += 1
        elif code in FINAL_CODES:
            command.outcomes["ended"] += 1
        else:
            wrong.append(f"exit code {code}")
        if "Traceback" in err and (code != -number or out):  # Python itself shows one where it has not begun yet
            wrong.append("a traceback")
        wrong += judged_output(command, attempt.folder, out, err, code, number)
        wrong += [f"left {p}" for p in left_behind(attempt)]
        if resume and not wrong and (attempt.folder / "run").is_dir():
            wrong += resumed(command, attempt.folder)
        if wrong:
            note = f"{number.name} after {moment:.3f} s: {'; '.join(wrong)}"
            command.failures.append(note)
            print(f"{command.name}: {note}\n{out[-300:]}{err[-1500:]}", flush=True)


def judged_output(command: Command, folder: Path, out: str, err: str, code: int, number: signal.Signals) -> list[str]:
    """What is wrong with the JSON and the solution file."""
    if not command.prints_json or (code in (-number, 128 + number) and not out and not err.startswith("oocbe: ")):
        return []  # nothing had been asked of a command yet
    try:
        printed = json.loads(out)
    except json.JSONDecodeError as error:
        return [f"no JSON: {error}"]
    wrong = []
    if printed.get("schema_version") not in (1, 2):
        wrong.append("no schema_version")
    status = printed.get("status")
    command.outcomes[f"status {status}"] += 1
    if code == 128 + number and status != "interrupted":
        wrong.append(f"status {status} with exit code {code}")
    if code in FINAL_CODES and status == "interrupted":
        wrong.append(f"status interrupted with exit code {code}")
    solution = folder / "solution"
    if printed.get("assignment") and command.problem is not None:
        command.outcomes["with an assignment"] += 1
        if not solution.is_file():
            wrong.append("an assignment was known and the solution file is missing")
        else:
            done = subprocess.run(
                [*OOCBE, "verify", str(command.problem), str(solution)],
                capture_output=True,
                text=True,
                env=environment(),
                check=False,
            )
            if done.returncode:
                wrong.append(f"verify: {done.stdout}{done.stderr}")
    return wrong


def left_behind(attempt: Attempt) -> list[str]:
    """Temporary files, in the folder for them and beside what was written."""
    found = [p for p in attempt.scratch.rglob("*") if not p.name.startswith("oocbe-cache-")]
    partial = [p for p in attempt.folder.rglob("*") if ".partial" in p.name or p.name.startswith(".")]
    stress = list((attempt.folder / "stress").glob("*")) if (attempt.folder / "stress").is_dir() else []
    return [str(p.relative_to(attempt.folder.parent)) for p in found + partial + stress]


def resumed(command: Command, folder: Path) -> list[str]:
    """What is wrong with the run in the folder when it goes on."""
    arguments = [a.replace("{folder}", str(folder)) for a in command.arguments]
    if not command.resumes:
        arguments += ["--time-limit", "1"]
    done = subprocess.run(
        [*OOCBE, *arguments, "--resume"], capture_output=True, text=True, env=environment(), check=False
    )
    command.outcomes["resumed"] += 1
    expected = (0,) if command.resumes else (0, 20)
    return [] if done.returncode in expected else [f"resumed: {done.returncode}, {done.stderr}"]


def main() -> int:
    """Run the checks; the exit code is 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--moments", type=int, default=100, help="interruptions of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=ALLOWED_SECONDS, help="from signal to exit, at most")
    parser.add_argument("--only", help="names of commands, separated by commas")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of interruptions, at most")
    given = parser.parse_args()
    made = Path(tempfile.mkdtemp(prefix="interrupts-"))
    try:
        make_problems(made)
        chosen = commands(made, given.only)
        for command in chosen:
            measure(command)
            if 1.0 <= command.seconds < LONGEST_SECONDS:
                measure(command)  # now that all is compiled
            print(f"{command.name}: {command.seconds:.2f} s undisturbed, exit code {command.code}", flush=True)
        random_numbers = random.Random(given.seed)
        end = time.monotonic() + 60 * given.minutes
        for turn in range(given.moments):
            for command in chosen:
                if time.monotonic() < end:
                    interrupt(command, random_numbers, given.seconds, resume=turn % RESUMED_EACH == 0)
    finally:
        shutil.rmtree(made)
    for command in chosen:
        times = sorted(command.latencies) or [0.0]
        outcomes = ", ".join(f"{count} {what}" for what, count in command.outcomes.most_common())
        print(
            f"{command.name}: {len(command.latencies)} interruptions, median {times[len(times) // 2]:.2f} s, "
            f"longest {times[-1]:.2f} s; {outcomes}; {len(command.failures)} failures"
        )
    failures = sum(len(command.failures) for command in chosen)
    latencies = sorted(t for command in chosen for t in command.latencies) or [0.0]
    late = sum(t > given.seconds for t in latencies)
    print(f"{len(latencies)} interruptions, {late} later than {given.seconds:g} s, longest {latencies[-1]:.2f} s")
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
