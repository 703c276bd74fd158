"""Kill -9 at every named point, then resume: the answer and every table are those of a run that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oocbe.errors import amount
from oocbe.runtime.faults import POINTS
from tests.helpers import durable_runs
from tests.helpers.memory_disk import MEMORY_DISK

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ask():
    """Asks one process for all that is killed here: it loads compiled code once."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OOCBE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.durable_runs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **environment,
            "OOCBE_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "TMPDIR": MEMORY_DISK or "",
        },
        cwd=ROOT,
    ) as process:

        def asking(what: str | list[list[str] | dict]):
            print(json.dumps(what), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, f"the process ended with {process.wait()}"
            return json.loads(answer)

        yield asking
    assert process.returncode == 0


@pytest.fixture(scope="module")
def passings(ask) -> dict[str, int]:
    """How often an undisturbed run passes each point."""
    return ask("passings")


@pytest.fixture(scope="module")
def expected() -> dict:
    return durable_runs.solve_in(None)


def check_final(entry: dict, expected: dict) -> None:
    final = entry["final"]
    assert entry["status"] == 0, entry
    if any(fault.startswith("known:") for fault in entry["case"]):
        # With bounds, which optimal assignment is found depends on time.
        assert final["value"] == expected["value"] == durable_runs.small_problem().evaluate(final["assignment"])
        assert set(entry["end"]) >= {"lock", "result.json", "run.json"}
        return
    assert [final[k] for k in ("value", "assignment", "rows")] == [
        expected[k] for k in ("value", "assignment", "rows")
    ], entry
    # A run that had ended already is answered from its record, without tables.
    assert final["tables"] in (expected["tables"], []), entry
    assert final["tables"] or "had ended already" in final["notes"][-1], entry
    assert entry["end"] == ["lock", "race.json", "result.json", "run.json"], entry


def test_every_point_is_passed(passings):
    assert len(POINTS) >= 12
    assert [point for point in POINTS if passings[point] == 0] == []


def kill_everywhere(ask, cases: list[str], expected: dict) -> int:
    report = ask([[fault] for fault in cases])
    for entry in report:
        (status, outcome) = entry["ended"][0]
        assert os.WIFSIGNALED(status), entry
        assert os.WTERMSIG(status) == signal.SIGKILL, entry
        assert outcome is None
        check_final(entry, expected)
    return len(report)


def test_killed_at_each_point_and_resumed(ask, passings, expected):
    """At the last passing of each point, where most is published."""
    cases = [f"{p}:{count}" for p, count in passings.items()]
    assert kill_everywhere(ask, cases, expected) >= len(POINTS)


@pytest.mark.slow
def test_killed_at_every_passing_of_every_point_and_resumed(ask, passings, expected):
    cases = [f"{p}:{n}" for p, count in passings.items() for n in range(1, count + 1)]
    print(f"{kill_everywhere(ask, cases, expected)} kills at {len(POINTS)} points")


@pytest.mark.parametrize("fault", ["message:renamed:2", "table:begin:2"])
def test_killed_again_and_again(ask, fault, expected):
    """Each process gets one step further, and the last one ends."""
    (entry,) = ask([[fault] * 60])
    killed = [os.WIFSIGNALED(status) for status, _ in entry["ended"]]
    assert killed == sorted(killed, reverse=True)
    assert 2 <= sum(killed) < 60
    check_final(entry, expected)


@pytest.mark.parametrize(
    "point", ["table:begin", "table:chunk", "table:manifest-written", "table:done", "message:done"]
)
def test_killed_while_complete_messages_are_listed(ask, point):
    """Their rows go to disk piece by piece; nothing of a message that was not published is taken for one."""
    settings = {"tables": "complete", "embedded_bytes": 0, "order": "linear"}
    expected = durable_runs.solve_in(None, **settings)
    report = ask([{"faults": [f"{point}:{n}"], "settings": settings} for n in (1, 4)])
    for entry in report:
        (status, outcome) = entry["ended"][0]
        assert os.WIFSIGNALED(status), entry
        assert os.WTERMSIG(status) == signal.SIGKILL, entry
        assert outcome is None
        assert entry["status"] == 0, entry
        assert [entry["final"][k] for k in ("value", "tables")] == [expected[k] for k in ("value", "tables")]


def test_what_was_published_is_used(ask, passings, expected):
    """Killed at the last message, a run computes nothing but that one again."""
    (entry,) = ask([[f"message:written:{passings['message:written']}"]])
    check_final(entry, expected)
    count = len(durable_runs.small_problem().variables)
    assert f"resumed: {amount(count - 1, 'message')} found" in entry["final"]["notes"][-1]


def test_orphans_of_a_killed_run_are_removed(ask, passings):
    """Temporary names of any kind are gone when the next process has begun."""
    faults = ["table:manifest-written:1", "message:written:1", "run:written:1", "race:synchronised:1"]
    report = ask([[fault, "lock:taken:1", "forward:done:1"] for fault in faults])
    for entry in report:
        assert not [name for name in entry["left"] if ".partial" in name], entry
    for entry in ask([[fault] for fault in faults]):
        assert [name for name in entry["left"] if ".partial" in name], entry
