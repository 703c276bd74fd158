"""Many problems side by side: the answers of one after the other, and what goes wrong with one stops no other."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import oocbe
from oocbe.api.tasks import many, solving_processes
from oocbe.errors import EXIT_RESOURCES, UsageError
from oocbe.formats import write
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime import parents
from tests.helpers.small_problems import clique

OPTIONS = SolveOptions(order_seconds=0.0, backend="cpu", memory=1 << 28)


def problems(count):
    return [clique(4 + n, 3, largest=9 + n) for n in range(count)]


@pytest.fixture
def files(tmp_path):
    """Two problems, and between them a file that is none."""
    paths = [tmp_path / name for name in ("one.wcsp", "broken.wcsp", "two.wcsp")]
    one, two = problems(2)
    write(one, paths[0])
    paths[1].write_text("nothing\n")
    write(two, paths[2])
    return paths


def answers(outcomes):
    return {o.number: (o.problem, o.result and o.result.value, o.result and o.result.assignment) for o in outcomes}


def test_processes_give_the_answers_of_one_after_the_other(files):
    expected = {
        number: (str(path), result.value, result.assignment)
        for number, path in enumerate(files)
        if number != 1
        for result in [oocbe.solve(path, OPTIONS)]
    }
    outcomes = list(oocbe.solve_many(files, OPTIONS, jobs=2))
    assert answers(o for o in outcomes if o.number != 1) == expected
    [failed] = [o for o in outcomes if o.number == 1]
    assert failed.failure.kind == "FormatError" and "broken.wcsp" in failed.failure.message
    assert (failed.result, failed.exit_code) == (None, 2)
    (files[0].parent / "notes.txt").write_text("no problem\n")
    found = oocbe.solve_many(files[0].parent, OPTIONS, executor=ThreadPoolExecutor(1))  # the files of a folder, by name
    assert {Path(o.problem).name for o in found} == {path.name for path in files}


def test_an_executor_of_the_callers():
    given = problems(4)
    with ThreadPoolExecutor(2) as executor:
        outcomes = list(oocbe.solve_many(given, OPTIONS, executor=executor))
        assert executor.submit(int).result() == 0  # still there
    assert answers(outcomes) == {
        n: (p.name, r.value, r.assignment) for n, p in enumerate(given) for r in [oocbe.solve(p, OPTIONS)]
    }


def test_what_there_is_is_shared_out(monkeypatch):
    seen = []
    monkeypatch.setattr(many, "solve", lambda problem, options: seen.append(options) or oocbe.solve(problem, options))
    options = SolveOptions(order_seconds=0.0, memory=1 << 30, max_disk=1 << 22, device_memory=1 << 22, backend="cpu")
    with ThreadPoolExecutor(4) as executor:
        list(oocbe.solve_many(problems(8), options, executor=executor))
    assert {(o.memory, o.max_disk, o.device_memory) for o in seen} == {(1 << 28, 1 << 20, 1 << 20)}
    seen.clear()
    with ThreadPoolExecutor(4) as executor:
        list(oocbe.solve_many(problems(1), options, executor=executor))
    assert [o.memory for o in seen] == [1 << 30]


def test_run_directories_are_those_of_the_files(files, tmp_path):
    folder = tmp_path / "runs"
    options = {"workdir": folder, "bounds": "none", "backend": "cpu", "order_seconds": 0.0}
    with ThreadPoolExecutor(2) as executor:
        list(oocbe.solve_many(files, executor=executor, **options))
        made = sorted(path.name for path in folder.iterdir())
        assert [name.rsplit("-", 1)[0] for name in made] == ["one.wcsp", "two.wcsp"]
        again = list(oocbe.solve_many(list(reversed(files)), executor=executor, resume=True, **options))
    assert sorted(path.name for path in folder.iterdir()) == made
    resumed = [o.result for o in again if o.result is not None]
    assert len(resumed) == 2 and all(result.status == "optimal" for result in resumed)


def test_one_file_twice_has_two_run_directories(files, tmp_path):
    assert len(set(many._run_directories(tmp_path, [files[0], files[0], *problems(2), *problems(2)]))) == 6


@pytest.mark.parametrize("wrong", ["one.wcsp", clique(3, 2)])
def test_one_problem_is_not_many(wrong):
    with pytest.raises(UsageError, match="several"):
        oocbe.solve_many(wrong)


def test_no_jobs():
    with pytest.raises(UsageError, match="jobs must be at least 1"):
        oocbe.solve_many([], jobs=0)
    with pytest.raises(UsageError, match="give jobs"):
        oocbe.solve_many([], replace(OPTIONS, workers="2"))
    assert list(oocbe.solve_many([])) == []


class Dying:
    """A problem that ends the process that receives it."""

    name = "dying"

    def __reduce__(self):
        return (_end_process, ())


def _end_process():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_takes_no_other_problem_with_it():
    given = [*problems(2), Dying(), *problems(1)]
    outcomes = {o.number: o for o in oocbe.solve_many(given, OPTIONS, jobs=2)}
    assert outcomes[2].failure.exit_code == EXIT_RESOURCES and "dying" in outcomes[2].failure.message
    for number in (0, 1, 3):
        assert outcomes[number].result.value == oocbe.solve(given[number], OPTIONS).value


@pytest.fixture
def started(monkeypatch):
    """Processes that are started, and those who asked for them."""
    made = []
    start = parents.subprocess.Popen

    def recorded(*arguments, **settings):
        made.append(start(*arguments, **settings))
        return made[-1]

    monkeypatch.setattr(parents.subprocess, "Popen", recorded)
    return made


HARD = clique(12, 8, largest=50)
"""Its solve ends when it is asked to, and not before: the suite has no time for it."""


def test_processes_end_with_the_iterator(started):
    outcomes = oocbe.solve_many([clique(3, 2), HARD, HARD], OPTIONS, jobs=2, bounds="none", dominance=False)
    assert next(outcomes).number == 0
    outcomes.close()
    assert started and not any(process.poll() is None for process in started)


def test_a_process_that_dies_again_and_again_is_no_other_problem_s_fault(started):
    given = [Dying(), *problems(2), Dying()]
    outcomes = {o.number: o for o in oocbe.solve_many(given, OPTIONS, jobs=1)}
    assert [outcomes[n].exit_code for n in range(4)] == [EXIT_RESOURCES, 0, 0, EXIT_RESOURCES]
    assert len(started) == 1 + 1 + 2  # at first, after the first death, and each of both once more, alone


class NotToBeSent:
    name = "not to be sent"

    def __reduce__(self):
        raise TypeError("this stays here")


class NotToBeRead:
    name = "not to be read"

    def __reduce__(self):
        return (int, ("nothing of this kind",))


def test_problems_that_cannot_be_sent_or_read(started):
    given = [NotToBeSent(), NotToBeRead(), NotToBeSent(), *problems(1), NotToBeSent()]
    outcomes = {o.number: o for o in oocbe.solve_many(given, OPTIONS, jobs=1)}
    assert "this stays here" in outcomes[0].failure.message and "nothing of this kind" in outcomes[1].failure.message
    assert [o.failure is None for _, o in sorted(outcomes.items())] == [False, False, False, True, False]
    assert len(started) == 1


@pytest.mark.usefixtures("interrupts_heard")
def test_ctrl_c_gives_what_is_known_of_those_at_work(started, monkeypatch, tmp_path):
    """One is done, one is at work, and one has not begun."""
    more = {"bounds": "constant", "workdir": tmp_path}
    outcomes = oocbe.solve_many([clique(3, 2), HARD, HARD], OPTIONS, jobs=1, **more)
    found = [next(outcomes)]
    ready = solving_processes.SolvingProcesses._ready

    def pressed(self):
        if any('"assignment":[' in path.read_text() for path in tmp_path.glob("*-2/known.json")):
            monkeypatch.setattr(solving_processes.SolvingProcesses, "_ready", ready)
            signal.raise_signal(signal.SIGINT)
        return ready(self)

    monkeypatch.setattr(solving_processes.SolvingProcesses, "_ready", pressed)
    with pytest.raises(KeyboardInterrupt, match="interrupted by Ctrl-C"):
        found.extend(outcomes)
    assert [outcome.number for outcome in found] == [0, 1]
    assert (found[1].result.status, found[1].exit_code) == ("interrupted", 130)
    assert "interrupted by Ctrl-C" in found[1].result.notes
    assert HARD.evaluate(found[1].result.assignment) == found[1].result.value
    assert not any(process.poll() is None for process in started)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
