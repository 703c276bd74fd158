"""A failing, full or stuttering disk at the n-th file operation, for every n: an error with sizes, nothing lost."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import tempfile

import numpy as np
import pytest

from oocbe.errors import CorruptDataError, DiskError, ResourceError
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget, NamelessFile
from tests.helpers.durable_runs import solve_in

TWO_TABLES = {"order": "min-degree", "embedded_bytes": 260}

RUNS = [
    pytest.param(TWO_TABLES, 29, id="two tables, each 29th operation"),
    pytest.param(TWO_TABLES, 1, id="two tables", marks=pytest.mark.slow),
    pytest.param({}, 1, id="a race", marks=pytest.mark.slow),
]


SHORT_RUNS = [pytest.param(TWO_TABLES, 3, id="two tables, each 3rd write"), *RUNS[1:]]


class Injector:
    """Breaks the n-th file operation (from 0), and with ``lasting`` all later ones, too."""

    def __init__(self, place: int, error: int | None, lasting: bool = False) -> None:
        self.place, self.error, self.lasting = place, error, lasting
        self.seen: list[str] = []
        self.broken: list[str] = []

    @property
    def count(self) -> int:
        return len(self.seen)

    def __call__(self, operation: str, path) -> int | None:
        here = self.count == self.place or (self.lasting and self.count > self.place)
        self.seen.append(operation)
        if not here:
            return None
        self.broken.append(operation)
        if self.error is not None:
            # Memory is enough to read and remove files on a full disk.
            if self.error == errno.ENOSPC and operation in ("read", "remove"):
                return None
            raise OSError(self.error, os.strerror(self.error), str(path))
        return 1 if operation == "write" else None


@pytest.fixture(scope="module")
def expected():
    return solve_in(None)


def operations(tmp_path, more) -> list[str]:
    counter = Injector(-1, None)
    with disk.hooked(counter):
        solve_in(tmp_path / "counted", **more)
    return counter.seen


def same(outcome, expected) -> bool:
    names = ("value", "assignment", "rows", "tables")
    return [outcome[n] for n in names] == [expected[n] for n in names]


@pytest.mark.parametrize(("more", "stride"), RUNS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_every_operation(error, lasting, more, stride, tmp_path):
    """Either the run does without, or it ends with a clear error and resumes once the disk works again."""
    count, expected = len(operations(tmp_path, more)), solve_in(None, **more)
    failed = kept = 0
    places = range((2 * lasting + (error == errno.EIO)) % stride, count, stride)
    for place in places:
        folder = tmp_path / "run"
        injector = Injector(place, error, lasting)
        try:
            with disk.hooked(injector):
                outcome = solve_in(folder, **more)
        except (DiskError, CorruptDataError) as caught:
            failed += 1
            assert injector.broken
            assert str(folder) in str(caught), caught
            if isinstance(caught, DiskError):
                assert re.search(r"used [\d.]+ \S*B, limit none, free on disk [\d.]+ \S*B", str(caught)), caught
            if error == errno.ENOSPC:
                assert "the disk is full" in str(caught)
            outcome = solve_in(folder, **more)
        if "--resume computes" in " ".join(outcome["notes"]):  # the answer was there when the disk failed
            kept += 1
            assert same(outcome, expected), (place, injector.broken)
            outcome = solve_in(folder, **more)
        if outcome["tables"]:
            assert same(outcome, expected), (place, injector.broken)
        else:
            assert outcome["value"] == expected["value"]
            assert outcome["assignment"] == expected["assignment"]
        assert {p.name for p in folder.iterdir()} - {"race.json"} == {"lock", "result.json", "run.json"}
        shutil.rmtree(folder)
    assert failed > len(places) // 2
    print(f"{len(places)} operations, {kept} answers without a record of it, {failed} runs failed and were resumed")


@pytest.mark.parametrize(("more", "stride"), SHORT_RUNS)
def test_a_short_write_at_any_place_changes_nothing(more, stride, tmp_path):
    """Several threads work at a time, so that another operation may be at the place of a write."""
    seen, expected = operations(tmp_path, more), solve_in(None, **more)
    shortened, places = 0, [place for place, operation in enumerate(seen) if operation == "write"][::stride]
    for place in places:
        folder = tmp_path / "run"
        injector = Injector(place, None)
        with disk.hooked(injector):
            outcome = solve_in(folder, **more)
        assert same(outcome, expected)
        shortened += injector.broken == ["write"]
        shutil.rmtree(folder)
    assert shortened > 5
    print(f"{len(seen)} operations, {shortened} of {len(places)} writes shortened")


def test_a_write_that_is_cut_short_by_a_full_disk(tmp_path):
    """Half of a file is written, then there is no space: the half is removed and the run resumes."""
    folder, more = tmp_path / "run", TWO_TABLES
    expected = solve_in(None, **more)

    class Halving(Injector):
        def __call__(self, operation, path):
            if operation != "write":
                return None
            self.seen.append(operation)
            if self.count == self.place:
                return 9
            if self.count == self.place + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return None

    failed = 0
    for place in range(1, 200, 3):
        injector = Halving(place, None)
        try:
            with disk.hooked(injector):
                solve_in(folder, **more)
        except DiskError as caught:
            failed += 1
            assert "the disk is full" in str(caught)
            assert not [p for p in folder.rglob("*") if ".partial" in p.name]
            assert same(solve_in(folder, **more), expected)
        if injector.count < place:
            break
        shutil.rmtree(folder)
    assert failed > 4


@pytest.mark.parametrize(
    "stride", [pytest.param(25, id="each 25th operation"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_errors_in_a_scratch_folder_leave_nothing(error, stride, tmp_path, monkeypatch, expected, tune):
    """Without a work folder: messages that memory has no room for; another order may do with less."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tune(message_bytes=1600)
    counter = Injector(-1, None)
    with disk.hooked(counter):
        solve_in(None, order="min-degree")
    assert counter.count > 10, "nothing was spilled"
    for place in range(stride // 2 * (error == errno.EIO), counter.count, stride):
        injector = Injector(place, error)
        try:
            with disk.hooked(injector):
                outcome = solve_in(None, order="min-degree")
            assert outcome["value"] == expected["value"]
        except (ResourceError, CorruptDataError) as caught:
            assert str(tmp_path) in str(caught)
        # What could not be removed is removed by the next run.
        assert list(tmp_path.iterdir()) == [] or injector.broken == ["remove"]
    solve_in(None, order="min-degree")
    assert list(tmp_path.iterdir()) == []


def test_the_disk_limit_ends_a_run_that_resumes_with_more(tmp_path, expected, monkeypatch):
    """Whatever the limit: an error with needed, used, limit and free; then the same answer with more."""
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    folder = tmp_path / "run"
    for limit in (1, 1000, 3000, 6000, 9000, 12_000, 20_000):
        try:
            solve_in(folder, max_disk=limit)
        except DiskError as caught:
            assert "limit" in str(caught)
            assert "--max-disk" in str(caught)
            assert disk.size_of(folder) <= limit + 200, "the lock is not counted"
            assert limit < 20_000
            assert solve_in(folder)["value"] == expected["value"]
        shutil.rmtree(folder)


def test_a_write_that_the_system_refuses(tmp_path):
    """The process's limit on file sizes stands in for a full disk: the system itself refuses the write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
        with pytest.raises(DiskError, match="the disk is full"):
            solve_in(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert same(solve_in(tmp_path / "run"), solve_in(None))


def listed_problem() -> Problem:
    """A problem with a function whose rows are listed in a file before they are a complete table."""
    random = np.random.default_rng(1)
    rows = np.unique(random.integers(0, 2, (80, 7)), axis=0)
    functions = [Function(tuple(range(7)), rows, random.integers(0, 50, len(rows)), None)]
    functions += [Function.from_array((v, v + 1), random.integers(0, 50, (2, 2))) for v in range(9)]
    return Problem(tuple(Variable(f"x{v}", 2) for v in range(10)), tuple(functions), name="listed")


@pytest.fixture
def scratch_files(monkeypatch, tune):
    """Settings of a run that partitions rows in scratch files; those that were made."""
    monkeypatch.setattr("oocbe.elimination.preparation.prepare.LOOKUP_BITS", 3)
    tune(held_share=0.0)
    made = []
    make = NamelessFile.__init__
    monkeypatch.setattr(NamelessFile, "__init__", lambda file, *a: made.append(a[0]) or make(file, *a))
    return made


COMPLETE_PIECES = {"tables": "complete", "piece_rows": 9, "order": "linear", "embedded_bytes": 0, "bounds": "none"}


def test_a_scratch_file_that_fills_the_disk_loses_no_message(tmp_path, scratch_files):
    """It ends the run as a message does for which there is no room: what was published stays, the order, too."""
    problem, folder, published = listed_problem(), tmp_path / "run", []
    expected = solve_in(None, problem=problem, **COMPLETE_PIECES)
    assert scratch_files

    def full(operation, path):
        published[:] = folder.glob("order-*/message-*.json")
        if operation == "write" and path == folder:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with disk.hooked(full), pytest.raises(DiskError, match=r"scratch file in .*: the disk is full"):
        solve_in(folder, problem=problem, **COMPLETE_PIECES)
    assert published
    assert all(path.exists() for path in published)
    outcome = solve_in(folder, problem=problem, **COMPLETE_PIECES)
    assert f"resumed: {len(published)} message" in outcome["notes"][-1]
    assert same(outcome, expected)


def test_the_disk_limit_holds_for_scratch_files(tmp_path, scratch_files, monkeypatch):
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    problem, folder = listed_problem(), tmp_path / "run"
    used, files = [], []
    take = DiskBudget.take

    def taken(budget, count, path):
        take(budget, count, path)
        if "scratch file" in str(path):
            files.append(count)
            used.append(budget.used)

    monkeypatch.setattr(DiskBudget, "take", taken)
    solve_in(folder, problem=problem, **COMPLETE_PIECES)
    assert sum(files) > 0
    with pytest.raises(DiskError, match=r"would pass the disk limit|a complete table of .* or more"):
        solve_in(tmp_path / "limited", problem=problem, max_disk=max(used) - 1, **COMPLETE_PIECES)


@pytest.mark.parametrize(
    ("operation", "error", "lasting", "is_told", "messages_stay"),
    [
        ("write", errno.ENOSPC, False, False, False),
        ("write", errno.ENOSPC, True, True, False),
        ("write", errno.EIO, True, True, True),
        ("synchronise", errno.EIO, False, True, True),
        ("remove", errno.EIO, False, True, True),
    ],
)
def test_an_answer_is_not_lost_because_it_cannot_be_kept(tmp_path, operation, error, lasting, is_told, messages_stay):
    """Messages make room for it; where that is not what is missing, they stay."""
    folder, expected, broken = tmp_path / "run", solve_in(None, order="min-degree"), []

    def breaking(done, path):
        here = ".result.json" in path.name or (operation == "remove" and path.parent == folder)
        if done == operation and here and (lasting or not broken):
            broken.append(path)
            raise OSError(error, os.strerror(error), str(path))

    with disk.hooked(breaking):
        outcome = solve_in(folder, order="min-degree")
    assert broken
    assert same(outcome, expected)
    assert any("--resume computes" in note and str(folder) in note for note in outcome["notes"]) == is_told
    assert bool(list(folder.glob("order-*/message-*.json"))) == messages_stay
    again = solve_in(folder, order="min-degree")
    assert (again["value"], again["assignment"]) == (expected["value"], expected["assignment"])
    assert not list(folder.glob("order-*"))
