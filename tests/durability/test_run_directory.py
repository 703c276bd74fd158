"""Whose a run directory is, what may be in it, and when a run in it is resumed, replaced or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import oocbe
from oocbe.elimination.runs.run_directory import RunDirectory
from oocbe.errors import CorruptDataError, UnsupportedError, UsageError, amount
from oocbe.model.semiring import MAX_PRODUCT, MIN_SUM
from oocbe.tables import scratch
from oocbe.tables.disk import hooked
from oocbe.tables.manifest import render_record
from oocbe.tables.scratch import LOCK_NAME, FolderLock, ScratchFolder
from tests.helpers.durable_runs import small_problem, solve_in


class Killed(BaseException):
    """Ends a run as SIGKILL would, but in this process."""


def kill_after(folder, messages: int, **more) -> None:
    def stop(operation, path):
        if operation == "synchronise" and len(list(folder.glob("order-*/message-*.json"))) == messages:
            raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(folder, **more)


def test_the_folder_is_made_for_this_user_alone(tmp_path):
    solve_in(tmp_path / "deep" / "run")
    assert (tmp_path / "deep" / "run").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    solve_in(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


HOLD = """
import sys, time
from pathlib import Path
from oocbe.elimination.runs.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that works in ``tmp_path / "run"``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_two_processes_on_one_directory(holder, tmp_path):
    with pytest.raises(UsageError, match=rf"in use by process {holder.pid} on .*; wait until"):
        solve_in(tmp_path / "run")
    holder.kill()
    holder.wait()
    lock = FolderLock.take(tmp_path / "run")
    owner = (tmp_path / "run" / LOCK_NAME).read_text()
    assert owner.startswith(f"process {os.getpid()} on"), "a dead owner's lock is taken over"
    lock.release()
    assert solve_in(tmp_path / "run")["value"] == solve_in(None)["value"]


def test_one_process_twice_on_one_directory(tmp_path):
    with RunDirectory(tmp_path / "run"), pytest.raises(UsageError, match=f"in use by process {os.getpid()} on"):
        solve_in(tmp_path / "run")
    solve_in(tmp_path / "run")


def test_a_lock_file_that_was_replaced_does_not_count(tmp_path):
    """Whoever locks a file that was removed meanwhile holds nothing."""
    first = FolderLock.take(tmp_path)
    (tmp_path / "lock").unlink()
    second = FolderLock.take(tmp_path)
    assert isinstance(FolderLock.try_take(tmp_path, create=False), str)
    first.release()
    second.release()


@pytest.mark.parametrize("name", ["notes.txt", "order-0.txt", "data/", ".hidden"])
def test_a_folder_with_other_files_is_left_alone(name, tmp_path):
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    mode = tmp_path.stat().st_mode
    with pytest.raises(UsageError, match="a folder of its own"):
        solve_in(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [name.rstrip("/")]
    assert tmp_path.stat().st_mode == mode


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UsageError, match="another user"):
        solve_in(tmp_path / "run")


def test_an_unfinished_run_is_not_lost_by_forgetting_to_resume(tmp_path):
    run = tmp_path / "run"
    kill_after(run, 3, order="min-fill")
    with pytest.raises(UsageError, match="unfinished run of wheel with 3 published messages; continue it with"):
        solve_in(run, resume=False, order="min-fill")
    assert "resumed: 3 messages" in solve_in(run, order="min-fill")["notes"][-1]


def test_a_run_without_messages_is_replaced(tmp_path):
    run = tmp_path / "run"
    kill_after(run, 1, order="min-fill")
    for path in run.glob("order-*/*.json"):
        path.unlink()
    assert solve_in(run, resume=False, problem=small_problem(5))["value"] is not None


def test_resuming_where_nothing_is_begins(tmp_path):
    begun = solve_in(tmp_path / "run", resume=True)
    assert begun["tables"] == solve_in(None)["tables"]
    assert [note for note in begun["notes"] if f"there is no run in {tmp_path / 'run'}; a new one" in note]
    assert not [note for note in solve_in(tmp_path / "run", resume=True)["notes"] if "there is no run in" in note]


def test_a_finished_run_gives_its_answer_to_resume_and_its_place_to_others(tmp_path):
    run, computed = tmp_path / "run", solve_in(None)
    solve_in(run)
    again = solve_in(run, resume=True)
    assert (again["value"], again["assignment"], again["tables"]) == (computed["value"], computed["assignment"], [])
    assert "had ended already" in again["notes"][-1]
    with pytest.raises(UsageError, match="another problem"):
        solve_in(run, resume=True, problem=small_problem(5))
    assert solve_in(run, resume=False)["tables"] == computed["tables"]
    assert solve_in(run, resume=False, problem=small_problem(5))["tables"]


def test_the_whole_result_comes_back(tmp_path):
    settings = {"order_seconds": 0, "workdir": tmp_path / "run", "resume": True}
    first, second = (oocbe.solve(small_problem(), **settings) for _ in range(2))
    one, other = first.to_json(), second.to_json()
    found, ended = one.pop("notes"), other.pop("notes")
    assert [note for note in found if note not in ended] == [note for note in found if "there is no run in" in note]
    assert [note for note in ended if note not in found] == [note for note in ended if "had ended already" in note]
    for course in ("anytime", "buckets", "orders_tried"):  # of the process that tells: this one has only read
        one.pop(course), other.pop(course)
    one["seconds"].pop("compiling", None)  # so is this, where the cache had not all loops
    assert one == other
    assert first.variables == second.variables


def test_numbers_that_json_does_not_have_come_back(tmp_path):
    """An infeasible problem, a count, and a float with all its digits."""
    infeasible = oocbe.Problem(
        (oocbe.Variable("a", 2),), constraints=(oocbe.Constraint((0,), [[0], [1]]),), name="infeasible"
    )
    third = oocbe.Problem((oocbe.Variable("a", 3),), (oocbe.Function.from_array((0,), [1 / 3, 0.1, 0.7]),))
    for number, (problem, more) in enumerate(
        [(infeasible, {}), (third, {"semiring": "counting"}), (third, {"semiring": "sum-product"}), (third, {})]
    ):
        settings = {"order_seconds": 0, "workdir": tmp_path / str(number), "resume": True, **more}
        first, second = (oocbe.solve(problem, **settings) for _ in range(2))
        assert (first.status, first.value, first.assignment) == (second.status, second.value, second.assignment)
        assert type(first.value) is type(second.value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"seed": 3}, "seed"), ({"dominance": True}, "dominance"), ({"order": "min-degree"}, "order"),
        ({"order_seconds": 1}, "order_seconds"),
    ],
)  # fmt: skip
def test_options_that_change_messages_must_be_the_same(settings, name, tmp_path):
    kill_after(tmp_path / "run", 2, order="min-fill")
    with pytest.raises(UsageError, match=rf"its run has {name} = \S+, this one"):
        solve_in(tmp_path / "run", **{"order": "min-fill", **settings})


def test_an_order_file_counts_by_its_content(tmp_path):
    order, run = tmp_path / "order.txt", tmp_path / "run"
    order.write_text("\n".join(f"x{v}" for v in range(7)))
    kill_after(run, 2, order=str(order))
    order.write_text("\n".join(f"x{v}" for v in reversed(range(7))))
    with pytest.raises(UsageError, match="order = file with SHA-256"):
        solve_in(run, order=str(order))
    order.write_text("\n".join(f"x{v}" for v in range(7)))
    elsewhere = order.rename(tmp_path / "moved.txt")
    assert "resumed: 2 messages" in solve_in(run, order=str(elsewhere))["notes"][-1]


def test_other_options_may_change(tmp_path):
    run = tmp_path / "run"
    kill_after(run, 3, order="min-fill", embedded_bytes=0)
    outcome = solve_in(run, order="min-fill", memory="2GiB", chunk_rows=3, max_disk="1GiB", backend="cpu")
    assert outcome["tables"] == solve_in(None, order="min-fill")["tables"]
    assert "resumed: 3 messages" in outcome["notes"][-1]


def test_another_upper_bound_is_an_option(tmp_path):
    """Though it is part of what the messages depend on."""
    run = tmp_path / "run"
    kill_after(run, 2, order="min-fill")
    with pytest.raises(UsageError, match="its run has ub = None, this one 100000"):
        solve_in(run, order="min-fill", ub=100_000)


def test_another_problem_or_semiring_is_refused(tmp_path):
    run = tmp_path / "run"
    kill_after(run, 2, order="min-fill")
    for other in (small_problem(seed=1), small_problem(5)):
        with pytest.raises(UsageError, match=r"another problem \(wheel in min-sum"):
            solve_in(run, problem=other, order="min-fill")
    with pytest.raises(UsageError, match="this is wheel in max-sum"):
        solve_in(run, order="min-fill", semiring="max-sum")


@pytest.mark.parametrize(
    ("name", "value", "error"), [("version", 2, UnsupportedError), ("program", "0.0.7", UnsupportedError)]
)
def test_other_versions_are_refused(name, value, error, tmp_path):
    run = tmp_path / "run"
    kill_after(run, 2, order="min-fill")
    content = json.loads((run / "run.json").read_bytes())["content"]
    (run / "run.json").write_bytes(render_record(content | {name: value}))
    with pytest.raises(error, match=rf"version {value}"):
        solve_in(run, order="min-fill")


def test_orders_that_are_none_are_refused(tmp_path):
    run = tmp_path / "run"
    kill_after(run, 2, order="min-fill")
    content = json.loads((run / "run.json").read_bytes())["content"]
    content["orders"][0]["order"][0] = content["orders"][0]["order"][1]
    (run / "run.json").write_bytes(render_record(content))
    with pytest.raises(CorruptDataError, match=r"run\.json: an order that is none"):
        solve_in(run, order="min-fill")


def test_a_race_is_resumed_where_it_was(tmp_path, monkeypatch):
    """Attempts that were given up are not made again; the one that was running goes on."""
    from oocbe.elimination.runs.durability import DurableRun

    run, calls = tmp_path / "run", []
    make_store = DurableRun.make_store
    monkeypatch.setattr(DurableRun, "make_store", lambda self: calls.append(self._key) or make_store(self))
    solve_in(tmp_path / "whole", tables="incomplete")
    whole, calls[:] = list(calls), []
    assert len(whole) > 3

    def stop(operation, path):
        if len(calls) == len(whole) and len(list(run.glob("order-*/message-*.json"))) == 4:
            raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(run, tables="incomplete")
    assert calls == whole
    calls[:] = []
    outcome = solve_in(run, tables="incomplete")
    assert calls == whole[-1:]
    assert "resumed: 4 messages" in outcome["notes"][-1]
    given_up = f"given up before this one: {amount(len(whole) - 1, 'run')} with other orders"
    assert given_up in " ".join(outcome["notes"])


@pytest.mark.parametrize(("writes", "dominance"), [(1, True), (40, False)])
def test_a_message_in_the_making_is_begun_again(tmp_path, writes, dominance):
    """Killed while pieces are written: no part of the message is left, and the resumed run joins its bucket again."""
    run, written = tmp_path / "run", []
    small = {"problem": small_problem(8, 4), "piece_rows": 5, "streams": 2, "order": "linear", "dominance": dominance}
    small["tables"] = "incomplete"
    expected = solve_in(None, problem=small["problem"], order="linear", dominance=dominance, tables="incomplete")

    def stop(operation, path):
        if operation == "write" and "/c/" in str(path):
            written.append(path)
            if len(written) > writes:
                raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(run, **small)
    outcome = solve_in(run, **small)
    assert outcome["tables"] == expected["tables"]
    assert outcome["value"] == expected["value"]
    assert sorted(p.name for p in run.iterdir() if p.name.startswith(("oocbe-", "."))) == []


@pytest.mark.parametrize("embedded_bytes", [0, 1 << 16])
@pytest.mark.parametrize("piece_rows", [None, 1, 4])
def test_complete_messages_are_resumed(tmp_path, embedded_bytes, piece_rows):
    run, settings = tmp_path / "run", {"tables": "complete", "embedded_bytes": embedded_bytes, "piece_rows": piece_rows}
    expected = solve_in(None, tables="complete")
    assert expected["tables"] == solve_in(None, order="auto")["tables"]

    def stop(operation, path):
        if len(list(run.glob("order-*/message-*.json"))) == 4:
            raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(run, **settings)
    outcome = solve_in(run, **settings)
    assert "resumed: 4 messages" in outcome["notes"][-1]
    assert (outcome["value"], outcome["tables"]) == (expected["value"], expected["tables"])


@pytest.mark.parametrize(("writes", "semiring"), [(9, MIN_SUM), (90, MAX_PRODUCT)], ids=str)
def test_a_complete_message_in_the_making_is_begun_again(tmp_path, monkeypatch, tune, writes, semiring):
    """Killed while its pieces are written, or, scaled, written once more: nothing of it is left, and nothing else is
    computed again."""
    tune(held_share=0.0)
    run, written = tmp_path / "run", []
    problem = small_problem(8, 4)
    if semiring is MAX_PRODUCT:
        functions = tuple(replace(f, values=(f.values + 1) / 100) for f in problem.functions)
        problem = replace(problem, functions=functions, semiring=semiring, constant=1)
    small = {"problem": problem, "piece_rows": 5, "streams": 2, "order": "linear", "tables": "complete"}
    expected = solve_in(None, **small)

    def stop(operation, path):
        if operation == "write" and "/c/" in str(path):
            written.append(path)
            if len(written) > writes:
                raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(run, **small)
    published = len(list(run.glob("order-*/message-*.json")))
    outcome = solve_in(run, **small)
    assert published == 0 or f"resumed: {amount(published, 'message')} found" in outcome["notes"][-1]
    assert outcome["tables"] == expected["tables"]
    assert outcome["value"] == expected["value"]
    assert sorted(p.name for p in run.iterdir() if p.name.startswith(("oocbe-", "."))) == []


def test_scratch_folders_of_dead_processes_are_removed(tmp_path):
    living, dead, strange = ScratchFolder(tmp_path), ScratchFolder(tmp_path), tmp_path / "oocbe-mine"
    (dead.path / "table").mkdir()
    os.close(dead._lock._handle)  # as its death would
    (tmp_path / "oocbe-abcdefgh").mkdir()  # its process died before it had locked it, or it is somebody's
    strange.mkdir()
    (strange / "file").write_text("")
    removed = scratch.remove_orphans(tmp_path)
    assert removed == [dead.path]
    assert sorted(tmp_path.iterdir()) == sorted([living.path, tmp_path / "oocbe-abcdefgh", strange])
    living.close()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "oocbe-abcdefgh", strange]


def test_scratch_goes_where_the_batch_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    assert scratch.default_parent() == tmp_path
    (tmp_path / "job").mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "job"))
    assert scratch.default_parent() == tmp_path / "job"
    monkeypatch.setenv("SLURM_TMPDIR", str(tmp_path / "gone"))
    assert scratch.default_parent() == tmp_path
