"""Processes that draw and check cases until their time is over, a watchdog over them, and the failures they save."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from .memory_commands import WAYS
from .outcome import DisagreementError, NotAvailableError, Tally

MODES = ("solve", "tasks", "bounds", "operators", "files", "runs", "certificates", "proofs", "memory")

FORMATS = tuple(sorted(path.stem for path in Path(__file__).with_name("formats").glob("[a-z]*.py")))
"""Formats with a differential test against their reference implementation, a module each."""

COMMANDS = tuple(f"memory-{way}" for way in WAYS)
"""Modes of the commands under a memory limit, one each."""

SCHEMA_VERSION = 1

SHRINK_SECONDS = 15.0
"""Time for making a failure's case smaller."""

MEMORY_BYTES = 6 << 30
"""Resident bytes at which a case's process is ended: no input of the fuzz is worth so many."""

POLL_SECONDS = 0.25

Case = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a process is to do.

    Attributes
    ----------
    modes : in turn, each for ``seconds``. seed : of the run, together with the process' ``number``.
    hang_seconds : after which a case counts as hanging.
    cases : of all processes together, which take every ``processes``-th one each, so that a seed's are the same
        whoever checks them; None: as many as there is time for, and each process draws its own.
    """

    modes: tuple[str, ...]
    seconds: float
    seed: int
    hang_seconds: float
    number: int = 0
    cases: int | None = None
    processes: int = 1

    def place(self, count: int) -> tuple[int, int] | None:
        """Process and number by which the process' case of this count is drawn; None where it has had all."""
        if self.cases is None:
            return self.number, count
        number = self.number + count * self.processes
        return (0, number) if number < self.cases else None


@dataclass
class Counts:
    """What was done in a mode."""

    cases: int = 0
    checks: int = 0
    failures: int = 0
    seconds: float = 0.0
    refusals: Counter[str] = field(default_factory=Counter)
    note: str = ""


def mode_named(name: str) -> Any:
    """The module of a mode: ``draw``, ``check`` and ``smaller``."""
    if name in FORMATS:
        return importlib.import_module(f".formats.{name}", __package__)
    if name in COMMANDS:
        return importlib.import_module(".memory_mode", __package__).OfCommand(name.removeprefix("memory-"))
    return importlib.import_module(f".{name}_mode", __package__)


def draw_case(mode: str, seed: int, process: int, number: int) -> Case:
    """The case of a seed, the same whoever draws it."""
    random = Random(f"{mode} {seed} {process} {number}")
    return {"mode": mode, "seed": [seed, process, number], **mode_named(mode).draw(random)}


def new_folder(parent: Path | None = None) -> Path:
    """A folder for temporary files, in memory where there is such a disk."""
    if parent is None and os.access("/dev/shm", os.W_OK):
        parent = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="oocbe-fuzz-", dir=parent))


def check_case(case: Case, tally: Tally | None = None, parent: Path | None = None) -> dict[str, str] | None:
    """Check a case in a folder of its own; None where it holds, else what was expected and found."""
    tally = Tally() if tally is None else tally
    folder = new_folder(parent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # overflow and invalid values in NumPy
            mode_named(case["mode"]).check(case, folder, tally)
    except DisagreementError as error:
        return {"what": error.what, "expected": error.expected, "found": error.found}
    except NotAvailableError:
        raise
    except Exception as error:
        return {
            "what": f"crash: {type(error).__name__}",
            "expected": "an answer, or an error of oocbe",
            "found": f"{type(error).__name__}: {error}"[:1500],
            "traceback": traceback.format_exc()[-4000:],
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def shrunk(
    case: Case, failure: dict[str, str], parent: Path | None = None, seconds: float = SHRINK_SECONDS
) -> tuple[Case, dict[str, str]]:
    """A smaller case that fails in the same way, as far as the time goes."""
    end = time.monotonic() + seconds
    mode = mode_named(case["mode"])
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for smaller in mode.smaller(case):
            if time.monotonic() > end:
                break
            found = check_case(smaller, parent=parent)
            if found is not None and found["what"] == failure["what"]:
                case, failure, improved = smaller, found, True
                break
    return case, failure


def work(plan: Plan, connection: Connection, start: int, parent: Path) -> None:
    """What a process does: cases until the time is over, each announced and reported; ``start``: first number."""
    os.setpgid(0, 0)  # the watchdog ends what a case started, too
    (mode,) = plan.modes
    end = time.monotonic() + plan.seconds
    number = start
    while time.monotonic() < end and (place := plan.place(number)) is not None:
        connection.send(("begin", number))
        tally = Tally()
        begin = time.monotonic()
        case = draw_case(mode, plan.seed, *place)
        try:
            failure = check_case(case, tally, parent)
        except NotAvailableError as error:
            connection.send(("not available", str(error)))
            return
        connection.send(("end", tally.checks, tally.refusals, time.monotonic() - begin))
        if failure is not None:
            connection.send(("failure", number, case, failure))
            case, failure = shrunk(case, failure, parent)
            connection.send(("failure", number, case, failure))
        number += 1
    connection.send(("done",))


class Watched:
    """A process at work, as its watchdog sees it."""

    def __init__(self, plan: Plan, counts: Counts, failures: Failures) -> None:
        self.plan, self.counts, self.failures = plan, counts, failures
        self.end = time.monotonic() + plan.seconds
        self.is_done = False
        self._number = 0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        left = replace(self.plan, seconds=max(0.0, self.end - time.monotonic()))
        self._folder = new_folder()
        self._process = context.Process(target=work, args=(left, theirs, self._number, self._folder))
        self._process.start()
        theirs.close()
        self._heard = time.monotonic()
        self._at_work = False

    def look(self) -> None:
        """Take in what the process has said, and end it where it hangs or eats memory."""
        try:
            while self.connection.poll():
                self._take(self.connection.recv())
        except (EOFError, OSError):
            self._process.join()
            if not self.is_done:
                self._lost("crash of the process", f"it ended with {self._process.exitcode}")
            return
        if self.is_done:
            return
        if time.monotonic() - self._heard > self.plan.hang_seconds:
            self._lost("hang", f"no answer within {self.plan.hang_seconds:g} s")
        elif (resident := _resident(self._process.pid)) > MEMORY_BYTES:
            self._lost("memory", f"{resident:,} resident bytes")

    def stop(self) -> None:
        """End the process and what it started."""
        if self._process.pid is not None and self._process.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, message: tuple[Any, ...]) -> None:
        self._heard = time.monotonic()
        kind = message[0]
        if kind == "begin":
            self._number, self._at_work = message[1], True
        elif kind == "end":
            self.counts.cases += 1
            self.counts.checks += message[1]
            self.counts.refusals += message[2]
            self.counts.seconds += message[3]
            self._at_work = False
        elif kind == "failure":
            self.counts.failures += self.failures.save(*message[2:])
        elif kind == "not available":
            self.counts.note = message[1]
            self.is_done = True
        else:
            self.is_done = True

    def _lost(self, what: str, found: str) -> None:
        self.stop()
        place = self.plan.place(self._number)
        if self._at_work and place is not None:
            mode = self.plan.modes[0]
            case = draw_case(mode, self.plan.seed, *place)
            failure = {"what": what, "expected": "an answer, or an error of oocbe", "found": found}
            self.counts.cases += 1
            self.counts.failures += self.failures.save(case, failure)
        elif what != "hang":
            self.counts.failures += self.failures.save(
                {"mode": self.plan.modes[0], "seed": [self.plan.seed, self.plan.number, self._number]},
                {"what": what, "expected": "a process that goes on", "found": found},
            )
        self._number += 1
        if time.monotonic() < self.end:
            self._start()
        else:
            self.is_done = True


class Failures:
    """A folder of failures, one file a case; ``enough``: how many end the run, None: any number does not."""

    def __init__(self, folder: Path, enough: int | None = None) -> None:
        self.folder, self._enough = folder, enough
        self.paths: list[Path] = []

    @property
    def are_enough(self) -> bool:
        """Whether there are so many that the run ends."""
        return self._enough is not None and len(self.paths) >= self._enough

    def save(self, case: Case, failure: dict[str, str]) -> int:
        """Write a failure; the same case in a smaller form replaces it. 1 where it is new."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{case['mode']}-{'-'.join(map(str, case['seed']))}.json"
        content = {"schema_version": SCHEMA_VERSION, **failure, "case": case}
        path.write_text(json.dumps(content, indent=1) + "\n")
        is_new = path not in self.paths
        if is_new:
            self.paths.append(path)
            print(f"{path}: {failure['what']}: expected {failure['expected']}, found {failure['found']}", flush=True)
        return int(is_new)


def run_mode(plan: Plan, processes: int, failures: Failures, counts: Counts) -> None:
    """Run a mode in several processes until its time is over, all cases were checked, or failures are enough."""
    begin = time.monotonic()
    numbered = [replace(plan, number=number, processes=processes) for number in range(processes)]
    watched = [Watched(own, counts, failures) for own in numbered]
    try:
        while any(not w.is_done for w in watched) and not failures.are_enough:
            wait([w.connection for w in watched if not w.is_done], POLL_SECONDS)
            for w in watched:
                if not w.is_done:
                    w.look()
    finally:
        for w in watched:
            w.stop()
        counts.seconds = time.monotonic() - begin


def replay(path: Path, hang_seconds: float) -> dict[str, str] | None:
    """Check the case of a failure's file once more, in a process of its own; None where it holds now."""
    case = json.loads(path.read_text())["case"]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_replay, args=(case, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(hang_seconds):
            return {"what": "hang", "expected": "an answer", "found": f"none within {hang_seconds:g} s"}
        found: dict[str, str] | None = ours.recv()
        return found
    except EOFError:
        process.join()
        return {"what": "crash of the process", "expected": "an answer", "found": f"exit code {process.exitcode}"}
    finally:
        if process.is_alive():
            process.join(1)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()


def _replay(case: Case, connection: Connection) -> None:
    os.setpgid(0, 0)
    connection.send(check_case(case))


def _resident(process: int | None) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def report(counts: dict[str, Counts]) -> Iterator[str]:
    """Lines of a table of what was done."""
    yield f"{'mode':<21}{'cases':>8}{'checks':>10}{'refused':>9}{'failures':>10}{'seconds':>9}"
    for mode, c in counts.items():
        refused = sum(c.refusals.values())
        kinds = ", ".join(f"{kind} {number}" for kind, number in c.refusals.most_common())
        note = c.note or (f"refused: {kinds}" if kinds else "")
        yield f"{mode:<21}{c.cases:>8}{c.checks:>10}{refused:>9}{c.failures:>10}{c.seconds:>9.0f}  {note}".rstrip()
