"""A run directory that was damaged while nobody looked: the same answer, or an error that names the file."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from oocbe.elimination.buckets import forward
from oocbe.errors import CorruptDataError, UsageError
from oocbe.tables.disk import hooked
from oocbe.tables.manifest import render_record
from tests.helpers.durable_runs import small_problem, solve_in

MORE = {"order": "min-degree", "embedded_bytes": 260}


@pytest.fixture(scope="module")
def expected():
    return solve_in(None, **MORE)


class Killed(BaseException):
    """Ends a run as SIGKILL would, but in this process."""


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A run directory in which every message is published and the backward pass has not begun."""
    folder = tmp_path_factory.mktemp("durability") / "run"
    published = len(small_problem().variables)

    def stop(operation, path):
        if operation == "synchronise" and len(list(folder.glob("order-*/message-*.json"))) == published:
            raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(folder, **MORE)
    assert len(list(folder.glob("order-*/message-*.json"))) == published
    return folder


@pytest.fixture
def run(unfinished, tmp_path):
    return shutil.copytree(unfinished, tmp_path / "run")


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def same(outcome, expected) -> bool:
    return all(outcome[n] == expected[n] for n in ("value", "assignment", "rows", "tables"))


def damages(data: bytes):
    """A flipped bit at several places, and lost ends."""
    for place in sorted({0, len(data) // 2, len(data) - 1}) if data else ():
        yield data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]
    yield data[: len(data) // 2]
    yield b""


def test_there_is_something_to_damage(unfinished):
    files = files_of(unfinished)
    assert len([f for f in files if "/c/" in f]) >= 8
    assert len([f for f in files if f.endswith("manifest.json")]) == 2


def test_an_undamaged_run_computes_nothing_again(run, expected, monkeypatch):
    monkeypatch.setattr(forward.Forward, "cheapest_message", lambda *_: pytest.fail("a bucket was computed"))
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)


def test_damage_to_any_file_is_seen_and_its_message_is_computed_again(unfinished, tmp_path, expected):
    tried = 0
    for number, name in enumerate(files_of(unfinished)):
        # There are several files of each kind: each is damaged in another third of the ways than the one before.
        for data in [*damages((unfinished / name).read_bytes()), None][number % 3 :: 3]:
            run = shutil.copytree(unfinished, tmp_path / "run")
            if data is None:
                (run / name).unlink()
            else:
                (run / name).write_bytes(data)
            tried += 1
            if name == "run.json":
                with pytest.raises(CorruptDataError, match=r"run\.json") as caught:
                    solve_in(run, **MORE)
                assert "start anew" in str(caught.value)
            else:
                outcome = solve_in(run, **MORE)
                assert same(outcome, expected), (name, data)
                told = " ".join(outcome["notes"])
                if name != "lock" and not (data is None and re.fullmatch(r"order-\w+/message-\d+\.json", name)):
                    assert "computed again" in told, name
                    assert re.search(r"order-\w+/message-\d+", name)[0] in told, (name, told)
                    assert name.endswith("manifest.json") or name in told, (name, told)
            shutil.rmtree(run)
    print(f"{tried} damages to {len(files_of(unfinished))} files")


@pytest.mark.slow
def test_every_bit_of_every_record_and_manifest(unfinished, tmp_path, expected):
    """One flipped bit a byte of every small file, and one in 16 of the others."""
    tried = 0
    for name in files_of(unfinished):
        content = (unfinished / name).read_bytes()
        for place in range(0, len(content), 16):
            run = shutil.copytree(unfinished, tmp_path / "run")
            flipped = bytes([content[place] ^ 1 << (place // 16) % 8])
            (run / name).write_bytes(content[:place] + flipped + content[place + 1 :])
            tried += 1
            try:
                assert same(solve_in(run, **MORE), expected), (name, place)
            except CorruptDataError as error:
                assert name == "run.json"
                assert "run.json" in str(error)
            shutil.rmtree(run)
    print(f"{tried} flipped bits in {len(files_of(unfinished))} files")


def test_several_damaged_messages_are_computed_in_turn(run, expected):
    """Also where the input of a damaged message is damaged itself."""
    for path in run.glob("order-*/message-*.json"):
        path.write_bytes(path.read_bytes()[:-3])
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert sum("computed again" in note for note in outcome["notes"]) == len(small_problem().variables)


@pytest.mark.parametrize("what", ["records", "tables", "both"])
def test_swapped_messages(run, what, expected):
    first, second = sorted(p.parent for p in run.glob("order-*/message-*/manifest.json"))
    pairs = [(first, second)] if what != "records" else []
    if what != "tables":
        pairs.append((first.with_name(f"{first.name}.json"), second.with_name(f"{second.name}.json")))
    for one, other in pairs:
        aside = run / "aside"
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert sum("computed again" in note for note in outcome["notes"]) == 2


def test_messages_of_another_run_are_not_taken(unfinished, run, tmp_path, expected):
    """The same problem with other costs: everything fits but the identity."""
    other = solve_in(tmp_path / "other", problem=small_problem(seed=5), **MORE)
    assert other["value"] != expected["value"]
    stranger = tmp_path / "stranger"

    def stop(operation, path):
        if operation == "synchronise" and len(list(stranger.glob("order-*/message-*.json"))) == 7:
            raise Killed
        return

    with hooked(stop), pytest.raises(Killed):
        solve_in(stranger, problem=small_problem(seed=5), **MORE)
    (mine,), (theirs,) = run.glob("order-*"), stranger.glob("order-*")
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert "another bucket or run" in " ".join(outcome["notes"])


def rewrite(path, **changes) -> None:
    """Change a record and its checksum: an attack, or a mistake in this program."""
    content = json.loads(path.read_bytes())["content"]
    path.write_bytes(render_record(content | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 1 << 50}, {"rows": -1}, {"keys": ""}, {"keys": "AAAA"}, {"values": ""}, {"values": "%"}, {"place": 3},
        {"scope": []}, {"keys": 7}, {"exponent": "x"}, {"exponent": None},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_records_are_refused(run, changes, expected):
    path = next(p for p in sorted(run.glob("order-*/message-*.json")) if b'"keys"' in p.read_bytes())
    rewrite(path, **changes)
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert "computed again" in " ".join(outcome["notes"])


def test_a_damaged_result_is_computed_again(tmp_path, expected):
    run = tmp_path / "run"
    solve_in(run, **MORE)
    data = (run / "result.json").read_bytes()
    (run / "result.json").write_bytes(data.replace(b'"value":', b'"valve":'))
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert any("result.json" in note for note in outcome["notes"])


def test_a_lost_run_record_is_no_new_beginning(run):
    (run / "run.json").unlink()
    with pytest.raises(CorruptDataError, match=r"run\.json is missing"):
        solve_in(run, **MORE)
    with pytest.raises(CorruptDataError, match=r"run\.json is missing"):
        solve_in(run, resume=False, **MORE)


def test_links_are_refused(run, tmp_path, expected):
    table = next(run.glob("order-*/message-*/manifest.json")).parent
    shutil.move(table, tmp_path / "outside")
    table.symlink_to(tmp_path / "outside")
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert "a link" in " ".join(outcome["notes"])
    assert (tmp_path / "outside" / "manifest.json").exists(), "what a link leads to is left alone"


@pytest.mark.parametrize("name", ["order-1", "run.json", "lock", "result.json"])
def test_links_in_the_folder_itself_are_refused(run, name, tmp_path):
    if (run / name).exists():
        shutil.move(run / name, tmp_path / "outside")
    else:
        (tmp_path / "outside").write_bytes(b"")
    (run / name).symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="which no run has made"):
        solve_in(run, **MORE)
    assert (tmp_path / "outside").exists()


def test_damage_during_a_run_names_bucket_table_and_file(tmp_path, expected):
    """A chunk that changes after its message was published: an error, and a run that mends it."""
    run, done = tmp_path / "run", []

    def flip(operation, path):
        if operation == "rename" and path.suffix == ".json" and path.name.startswith("message-"):
            chunk = path.with_suffix("") / "values" / "c" / "0"
            if chunk.exists() and not done:
                data = bytearray(chunk.read_bytes())
                data[-1] ^= 1
                chunk.write_bytes(data)
                done.append(chunk)
        return

    with hooked(flip), pytest.raises(CorruptDataError) as caught:
        solve_in(run, **MORE)
    assert re.search(r"wheel, a message to the bucket of x\d: chunk 0 of values is damaged", str(caught.value))
    assert str(done[0]) in str(caught.value)
    assert "--resume goes on from there" in caught.value.__notes__[0]
    outcome = solve_in(run, **MORE)
    assert same(outcome, expected)
    assert "computed again" in " ".join(outcome["notes"])


def test_conserved_rows_in_memory_and_on_disk(tmp_path):
    """The same tables from a run in memory and one whose every message went through tables of five rows a chunk."""
    for seed in range(3):
        problem = small_problem(9, 3, seed)
        inside = solve_in(None, problem=problem)
        outside = solve_in(tmp_path / str(seed), problem=problem, embedded_bytes=0)
        assert same(outside, inside)
        assert np.prod(inside["rows"]) > 0
