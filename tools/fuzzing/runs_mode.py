"""Runs that are killed, delayed, or have a failing disk, and are resumed: the same answer, and nothing left over.

What happens is drawn with the case (:mod:`fuzzing.disturbances`), and happens again when the case is replayed. Most
processes are forked from one in which compiled code is loaded already, some are the program ``oocbe`` itself, and some
share the work out to worker processes, which are disturbed too.
"""

from __future__ import annotations

import json
import os
import random as random_module
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import truth_of
from .descriptions import Description, problem_of, random_description, smaller_descriptions
from .disturbances import WORKER, disturbed, environment_of, may_be_unreadable, may_fail, random_disturbance
from .outcome import DisagreementError, Tally
from .solve_mode import check_result
from .solve_options import inside_settings

WAYS = ("solve", "solve", "solve", "solve", "operator", "task", "program", "workers")

LONGEST_SECONDS = 60.0
"""A child that takes longer hangs; its own solves take a fraction of a second."""

KEPT = {"lock", "race.json", "result.json", "run.json", "known.json"}
"""Files that a run directory may have when the answer is there."""

EXIT_RESOURCES, EXIT_CORRUPT = 30, 40
"""Exit codes of the program where the disk is full or fails, and where a file cannot be read."""

REFUSALS = ("ValueRangeError", "FloatRangeError", "UnsupportedError", "ResourceError")
"""Errors that a problem may be the reason for."""

_is_warm = False


def draw(random: Random) -> Description:
    """A problem whose solve publishes several messages, and when its processes are killed."""
    way = random.choice(WAYS)
    problem = random_description(
        random, ("min-sum", "min-sum", "max-sum", "sum-product", "counting"), linear=random.random() < 0.3
    )
    while len(problem["sizes"]) < 4 or len(problem["functions"]) < 2:
        problem = random_description(random, ("min-sum", "min-sum", "max-sum"), linear=False)
    attempts = [_disturbances(random, way) for _ in range(random.choice((1, 1, 2, 4)))]
    options: Description = {
        "order_seconds": 0,
        "backend": "cpu",
        "chunk_rows": random.choice((1, 5, 1000)),
        "tables": random.choice(("incomplete", "incomplete", "auto", "complete")),
        "dominance": random.random() < 0.3,
        "bound_seconds": 0.1,
        "incumbent_seconds": 0.02,
        "inside": {"small_bytes": random.choice((1, 150)), "many_rows": random.choice((4, 8, 1 << 20))},
    }
    options["bounds"] = (
        "none" if options["tables"] == "complete" else random.choice(("none", "none", "constant", "auto", "lp"))
    )
    if problem["semiring"] not in ("min-sum", "max-sum"):
        options["bounds"] = "none"
    if random.random() < 0.3:
        options["piece_rows"] = random.choice((1, 3, 20))
    if random.random() < 0.3:
        options["inside"]["message_bytes"] = 1000
    return {"way": way, "problem": problem, "options": options, "attempts": attempts}


def _disturbances(random: Random, way: str) -> list[Description]:
    """What happens to one attempt at the run: kills at file operations or named points, delays, a failing disk."""
    if way != "workers" and random.random() < 0.4:
        from oocbe.runtime import faults

        return [{"point": f"{random.choice(faults.POINTS)}:{random.choice((1, 1, 2, 3, 5, 8))}"}]
    roles = (WORKER, WORKER, "asks") if way == "workers" else ("asks",)
    return [random_disturbance(random, roles) for _ in range(random.choice((1, 1, 2, 3)))]


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Kill, resume, and compare."""
    os.environ["OOCBE_THREADS"] = "1"  # a forked process has no threads but its own
    _warm_up()
    (folder / "tmp").mkdir()
    ways = {"solve": _check_solve, "operator": _check_operator, "task": _check_task}
    ways |= {"program": _check_program, "workers": _check_workers}
    ways[case["way"]](case, folder, tally)
    tally.same("files left in the scratch folder", [], _left_in(folder / "tmp"))


def _left_in(folder: Path) -> list[str]:
    """What is left there, but folders whose process was killed the moment it had made or emptied them: they are empty,
    and might be somebody else's."""
    return sorted(p.name for p in folder.iterdir() if not p.is_dir() or any(p.iterdir()))


def _warm_up() -> None:
    """Load what solves need, so that a forked one begins at once."""
    global _is_warm
    if _is_warm:
        return
    import oocbe
    import oocbe.bounds.relaxation
    import oocbe.tables.packed_codec

    problem = random_description(Random(3), ("min-sum",), linear=False)
    for settings in ({"bounds": "none"}, {"bounds": "constant"}, {"tables": "complete"}):
        oocbe.solve(problem_of(problem), order_seconds=0, backend="cpu", **settings)
    _is_warm = True


def _check_solve(case: Description, folder: Path, tally: Tally) -> None:
    problem = problem_of(case["problem"])

    def work() -> Description:
        return solved_in(folder / "run", problem, case["options"])

    for attempt in case["attempts"]:
        _check_attempt(attempt, _forked(work, folder, attempt), tally)
    final = _forked(work, folder, [])
    _check_final(case, final, tally)
    if final and "error" not in final:  # a run that was refused keeps what it has
        _check_run_directory(folder, tally)
    again = _forked(work, folder, [])
    same = ("status", "value", "assignment", "bound")
    if final and again and "error" not in final:
        tally.same("the answer once more", {k: final[k] for k in same}, {k: again.get(k) for k in same})


def solved_in(run: Path, problem: Any, settings: Description) -> Description:
    """Solve in a run directory, and go on with what is there."""
    import oocbe

    options = {name: value for name, value in settings.items() if name != "inside"}
    with inside_settings(settings):
        return _answer(oocbe.solve(problem, workdir=run, resume=True, **options))


def _check_attempt(attempt: list[Description], found: Description | None, tally: Tally) -> None:
    """An attempt ends by a kill, with an answer, or with an error that it has a reason for."""
    allowed = [*REFUSALS, *["DiskError"] * may_fail(attempt), *["CorruptDataError"] * may_be_unreadable(attempt)]
    error = None if found is None else found.get("error")
    tally.holds("error of a disturbed process", error is None or error in allowed, "a kill, or an answer", found)


def _check_run_directory(folder: Path, tally: Tally) -> None:
    left = {str(p.relative_to(folder / "run")) for p in (folder / "run").rglob("*")}
    left -= {name for name in left if name.startswith("oocbe-") and not any((folder / "run" / name).iterdir())}
    tally.holds("files left in the run directory", left <= KEPT, sorted(KEPT), sorted(left))


def _answer(result: Any) -> Description:
    names = ("status", "value", "assignment", "bound", "linear_constraints", "sense", "notes")
    return {name: getattr(result, name) for name in names}


class _Answered:
    """A result as :func:`oocbe.solve` gives it, from what came through a pipe."""

    def __init__(self, found: Description) -> None:
        self.__dict__.update(found)


def _check_final(case: Description, final: Description | None, tally: Tally) -> None:
    tally.holds("an end of the resumed run", final is not None, "an answer", final)
    assert final is not None
    if "error" in final:
        if final["error"] not in REFUSALS:
            raise DisagreementError("the resumed run", "an answer", f"{final['error']}: {final['message']}")
        tally.refusals[final["error"]] += 1
        return
    check_result(_Answered(final), case["problem"], truth_of(case["problem"]), case["options"], tally)


def _check_task(case: Description, folder: Path, tally: Tally) -> None:
    """A count that is killed, for which the work folder is a place of scratch folders."""
    description = {**case["problem"], "upper_bound": None, "linear": []}
    problem = problem_of(description)
    (folder / "work").mkdir()

    def work() -> Description:
        from oocbe.api.tasks.verbs import run_task

        options = {"order_seconds": 0, "backend": "cpu", "chunk_rows": case["options"]["chunk_rows"]}
        with inside_settings({"inside": {"message_bytes": 2000}}):
            return {"value": run_task("count", problem, workdir=folder / "work", **options).value}

    for attempt in case["attempts"]:
        _check_attempt(attempt, _forked(work, folder, attempt), tally)
    final = _forked(work, folder, [])
    tally.same("count", {"value": len(truth_of(description).rows)}, final)
    tally.same("files left in the work folder", [], _left_in(folder / "work"))


def _check_operator(case: Description, folder: Path, tally: Tally) -> None:
    """A join on disk that is killed: its table is whole or not there, and the next one clears up."""
    import oocbe

    seed = Random(json.dumps(case["attempts"]))
    sizes = [{"a": 4, "b": 3, "c": 3}, {"b": 3, "c": 3, "d": 5}]
    tables = []
    for size in sizes:
        rows = [[seed.randrange(n) for n in size.values()] for _ in range(60)]
        rows = [list(row) for row in sorted(set(map(tuple, rows)))]
        values = [seed.randint(-9, 99) for _ in rows]
        tables.append(oocbe.Table.from_rows(size, rows, values, oocbe.MIN_SUM))
    expected = {}
    for (a, b, c), first in tables[0].to_dict().items():
        for (b2, c2, d), second in tables[1].to_dict().items():
            if (b, c) == (b2, c2):
                expected[b, c, a, d] = first + second
    output = folder / "joined"

    def work() -> Description:
        pieces = case["options"].get("piece_rows", 7)
        oocbe.join_sum(*tables, output=output, memory="1MiB", scratch=folder / "tmp", piece_rows=pieces, backend="cpu")
        return {}

    for attempt in case["attempts"]:
        if not output.exists():
            _check_attempt(attempt, _forked(work, folder, attempt), tally)
    if not output.exists():
        tally.same("the end of the last join", {}, _forked(work, folder, []))
    else:  # nothing was to be done any more, so nobody cleared up after the one that published it
        _forked(lambda: _published(tables, folder), folder, [])
    stored = oocbe.StoredTable.open(output)
    stored.verify()
    names = stored.scope
    found = {tuple(row[names.index(n)] for n in "bcad"): value for row, value in stored.to_table().to_dict().items()}
    tally.same("rows", expected, found)
    tally.same("files left", {"counts", "joined", "tmp"}, {p.name for p in folder.iterdir()} - {"other"})


def _published(tables: list[Any], folder: Path) -> Description:
    import oocbe

    oocbe.join_sum(*tables, output=folder / "other", memory="1MiB", scratch=folder / "tmp", backend="cpu")
    return {}


def _forked(work: Callable[[], Description], folder: Path, attempt: list[Description]) -> Description | None:
    """What a function comes to in a child process; None where the child was killed, as asked."""
    read, write = os.pipe()
    counts = _new_counts(folder)
    child = os.fork()
    if child == 0:
        _work_in_child(work, folder, attempt, counts, write)
    os.close(write)
    begin = time.monotonic()
    with os.fdopen(read, "rb") as pipe:
        text = b""
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, begin + LONGEST_SECONDS - time.monotonic()))
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise DisagreementError("hang of a child", "an end", f"none within {LONGEST_SECONDS:g} s")
            block = os.read(pipe.fileno(), 1 << 16)
            if not block:
                break
            text += block
    status = os.waitpid(child, 0)[1]
    if text:
        found: Description = json.loads(text)
        return found
    if not attempt or not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        raise DisagreementError("end of a child", "an answer", f"status {status} without one")
    return None


def _new_counts(folder: Path) -> Path:
    """A folder for what one attempt counts."""
    (folder / "counts").mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=folder / "counts"))


def _work_in_child(
    work: Callable[[], Description], folder: Path, attempt: list[Description], counts: Path, write: int
) -> None:
    """Run a function, send what it gives or raises, and end the process without any clearing up of the parent's."""
    code = 70
    try:
        from oocbe.errors import OocbeError

        os.environ["TMPDIR"] = str(folder / "tmp")
        tempfile.tempdir = None
        random_module.seed()
        try:
            with disturbed(attempt, counts):
                found = work()
        except OocbeError as error:
            found = {"error": type(error).__name__, "message": str(error)}
        os.write(write, json.dumps(found).encode())
        code = 0
    except BaseException as error:
        message = {"error": f"crash: {type(error).__name__}", "message": str(error)}
        os.write(write, json.dumps(message).encode())
    finally:
        os._exit(code)


def _check_program(case: Description, folder: Path, tally: Tally) -> None:
    """The program itself, killed and resumed."""
    from .file_texts import render_wcsp, wcsp_description

    description = wcsp_description(Random(json.dumps(case["attempts"])))
    path = folder / "problem.wcsp"
    path.write_text(render_wcsp(description, Random(1)))
    command = ["-m", "oocbe", "solve", str(path), "--json", "--quiet", "--resume"]
    command += ["--workdir", str(folder / "run"), "--bounds", case["options"]["bounds"], "--backend", "cpu"]
    command += ["--order-seconds", "0", "--tables", "incomplete"]
    for attempt in case["attempts"]:
        done = _started(command, folder, attempt)
        codes = [0, 10, -signal.SIGKILL]
        codes += [EXIT_RESOURCES] * may_fail(attempt) + [EXIT_CORRUPT] * may_be_unreadable(attempt)
        tally.holds("exit code of a disturbed process", done.returncode in codes, codes, _end_of(done))
    last = _started(command, folder, [])
    tally.holds("exit code", last.returncode in (0, 10), "0 or 10", _end_of(last))
    answer = json.loads(last.stdout)
    truth = truth_of(description)
    tally.same("status", "optimal" if truth.rows else "infeasible", answer["status"])
    tally.same("value", truth.best, answer["value"])
    _check_run_directory(folder, tally)


def _check_workers(case: Description, folder: Path, tally: Tally) -> None:
    """A run over worker processes: those that are killed are started again, and a run that ends is resumed."""
    path = folder / "case.json"
    path.write_text(json.dumps(case))
    command = ["-m", "tools.fuzzing.workers_run", str(path), str(folder)]
    for attempt in case["attempts"]:
        done = _started(command, folder, attempt)
        if done.returncode != -signal.SIGKILL:
            tally.holds("end of a disturbed run", done.returncode == 0, "a kill, or an answer", _end_of(done))
            _check_attempt(attempt, json.loads(done.stdout), tally)
    last = _started(command, folder, [])
    tally.holds("exit code", last.returncode == 0, 0, _end_of(last))
    final = json.loads(last.stdout)
    _check_final(case, final, tally)
    if "error" not in final:
        _check_run_directory(folder, tally)


def _started(command: list[str], folder: Path, attempt: list[Description]) -> subprocess.CompletedProcess[str]:
    """Run Python, with the package and these modules on its path, and have it disturbed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    own = {"TMPDIR": str(folder / "tmp"), "OOCBE_THREADS": "1", **environment_of(attempt, _new_counts(folder))}
    try:
        return subprocess.run(
            [sys.executable, "-P", *command],
            capture_output=True,
            text=True,
            env=kept | own,
            timeout=LONGEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DisagreementError("hang of a process", "an end", f"none within {LONGEST_SECONDS:g} s") from None


def _end_of(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.returncode}: {done.stderr[-500:]}"


def smaller(case: Description) -> Iterator[Description]:
    """Cases with fewer attempts or disturbances, and parts of the problem left out."""
    attempts = case["attempts"]
    for place, attempt in enumerate(attempts):
        yield {**case, "attempts": attempts[:place] + attempts[place + 1 :]}
        for number in range(len(attempt) if len(attempt) > 1 else 0):
            fewer = attempt[:number] + attempt[number + 1 :]
            yield {**case, "attempts": [*attempts[:place], fewer, *attempts[place + 1 :]]}
    for problem in smaller_descriptions(case["problem"]):
        yield {**case, "problem": problem}
