"""Trees whose rows are on disk: the answers of trees in memory, what a killed process leaves, and what they take."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.errors import DiskError
from oocbe.junction_trees.stored import answers, tree
from oocbe.junction_trees.stored import folder as folders
from oocbe.junction_trees.stored.folder import RECORD_NAME, SEGMENT_NAME
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.model.settings.tuning import tuned
from oocbe.runtime import faults
from oocbe.tables import disk, disk_budget
from oocbe.tables.manifest import render_record
from tests.helpers.effort import examples
from tests.helpers.killed_trees import network, stored_tree
from tests.helpers.small_networks import random_network, random_product


def same_answers(tree, stored, cases):
    problem = tree.problem
    names = [v.name for v in problem.variables]
    own, theirs = tree.batch(cases, joint=[names[:2]]), stored.batch(cases, joint=[names[:2]])
    assert own.status.tolist() == theirs.status.tolist()
    np.testing.assert_allclose(theirs.log_evidence, own.log_evidence, rtol=1e-9, atol=1e-9)
    for name in names:
        np.testing.assert_allclose(theirs.marginals[name], own.marginals[name], atol=1e-10)
    np.testing.assert_allclose(theirs.joints[tuple(names[:2])], own.joints[tuple(names[:2])], atol=1e-10)
    for mine, other in zip(tree.expected_counts(cases), stored.expected_counts(cases), strict=True):
        np.testing.assert_allclose(other, mine, atol=1e-9)
    for case in cases:
        for t in (tree, stored):
            t.retract()
            t.observe(
                {n: x for n, x in case.items() if n != names[2]}, likelihood={names[2]: LIKELIHOOD[: problem.sizes[2]]}
            )
        np.testing.assert_allclose(stored.log_evidence, tree.log_evidence, rtol=1e-9, atol=1e-9)
        for name in names:
            np.testing.assert_allclose(stored.marginal(name), tree.marginal(name), atol=1e-10)
        np.testing.assert_allclose(stored.marginal(*names[1:4]), tree.marginal(*names[1:4]), atol=1e-10)
        best, other = tree.mpe(), stored.mpe()
        assert (best is None) == (other is None)
        if best is not None:
            assert other.logarithm == pytest.approx(best.logarithm, rel=1e-9, abs=1e-9)
            check = dict(other.values)
            tree.observe({n: x for n, x in check.items() if n != names[2]})
            assert tree.marginal(names[2])[other.indices[2]] > 0


LIKELIHOOD = [0.25, 1.0, 0.5]


@pytest.mark.parametrize("seed", range(examples(48)))
def test_the_answers_are_those_of_trees_in_memory(seed, monkeypatch):
    """Rows in pieces of five, and messages on disk in every second test."""
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random)
    space = "log" if seed % 4 == 3 else "auto"
    if seed % 3 == 0:
        store = answers.StoredMessages
        monkeypatch.setattr(answers, "StoredMessages", lambda memory: store(0))
    tree = oocbe.JunctionTree(problem, order_seconds=0, space=space)
    stored = stored_tree(problem, space=space)
    assert repr(stored).split(" cliques")[0] == repr(tree).split(" cliques")[0]
    cases = [{}] + [
        {v.name: int(random.integers(v.size)) for v in problem.variables if random.random() < 0.4} for _ in range(3)
    ]
    same_answers(tree, stored, cases)


def test_samples_have_the_frequencies_of_the_posterior():
    stored = stored_tree(network())
    assert isinstance(stored._tree, StoredTree)
    assert {own.is_complete for own in stored._tree.stored} == {True, False}
    assert max(len(own.pieces) for own in stored._tree.stored) > 2
    stored.observe({"x4": 1})
    drawn = stored.sample(20_000, seed=5).indices
    assert (drawn[:, 4] == 1).all()
    for v in range(8):
        found = np.bincount(drawn[:, v], minlength=3) / len(drawn)
        np.testing.assert_allclose(found, stored.marginal(f"x{v}"), atol=0.02)
    pair = np.histogram2d(drawn[:, 2], drawn[:, 3], bins=[range(4)] * 2)[0] / len(drawn)
    np.testing.assert_allclose(pair, stored.marginal("x2", "x3"), atol=0.02)
    assert stored.sample(0).indices.shape == (0, 8)


def test_weights_that_leave_the_range_of_floats_are_logarithms():
    """Three hundred factors of 10^-300 each over one variable, and of a message that underflows without logarithms."""
    tiny = [oocbe.Function.from_array((0, 1), [[1e-300, 2e-300], [3e-300, 1.0]]) for _ in range(300)]
    problem = oocbe.Problem((oocbe.Variable("a", 2), oocbe.Variable("b", 2)), tuple(tiny), semiring=oocbe.SUM_PRODUCT)
    stored = stored_tree(problem)
    tree = oocbe.JunctionTree(problem, order_seconds=0)
    case = {"a": 0, "b": 0}
    for t in (tree, stored):
        t.observe(case)
    assert stored.log_evidence == pytest.approx(300 * math.log(1e-300), rel=1e-12)
    assert stored.log_evidence == pytest.approx(tree.log_evidence, rel=1e-12)


def test_a_maker_killed_anywhere_is_followed_by_one_that_goes_on(memory_folder):
    environment = {**os.environ, "OOCBE_THREADS": "1", "TMPDIR": str(memory_folder)}
    script = Path(__file__).parents[1] / "helpers" / "killed_trees.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    whole, *lines = map(json.loads, done.stdout.splitlines())
    assert {line["fault"][0] for line in lines} == set(faults.TREE_POINTS)
    pieces = {}
    for line in lines:
        point, passing = line["fault"]
        then = line["then"]
        assert line["killed"], line
        assert line["there"] == point.startswith("tree-folder"), line
        assert then["logarithms"] == pytest.approx(whole["logarithms"][: len(then["logarithms"])], abs=1e-12)
        assert then["left"] == ["a.tree"]
        pieces[point, passing] = then["pieces"]
    for point in ("tree-rows:renamed", "tree-rows:done"):
        assert 0 < pieces[point, 2] < pieces[point, 1] < whole["pieces"]
    assert pieces["tree-rows:begin", 2] == pieces["tree-rows:renamed", 1]
    assert pieces["tree-record:begin", 1] == 0


def unfinished_tree(target, monkeypatch):
    """What a maker leaves that fails when everything but the last record is there."""

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders.TreeFolder, "finish", fail)
        with pytest.raises(KeyboardInterrupt):
            stored_tree(network(), target)
    return folders.unfinished(target)


def test_an_unfinished_tree_of_another_problem_is_left_alone(tmp_path, monkeypatch):
    target = tmp_path / "a.tree"
    unfinished_tree(target, monkeypatch)
    with pytest.raises(
        oocbe.UsageError, match=r"made from another problem.*\.a\.tree\.unfinished|\.a\.tree\.unfinished"
    ):
        stored_tree(network(seed=4), target)
    assert stored_tree(network(), target).log_evidence == pytest.approx(0, abs=1e-9)


def test_damaged_segments_of_an_unfinished_tree_are_made_again(tmp_path, monkeypatch):
    target = tmp_path / "a.tree"
    left = unfinished_tree(target, monkeypatch)
    segment = left / SEGMENT_NAME.format(1)
    segment.write_bytes(segment.read_bytes()[:-1] + b"\xff")
    (left / f"{SEGMENT_NAME.format(3)}.json").write_text("{")
    tree = stored_tree(network(), target)
    assert tree.log_evidence == pytest.approx(0, abs=1e-9)
    tree.calibrate()


def test_a_tree_that_another_process_makes_is_refused(tmp_path):
    with closing(folders.TreeFolder(tmp_path / "a.tree")), pytest.raises(oocbe.UsageError, match="in use by"):
        stored_tree(network(), tmp_path / "a.tree")


@pytest.fixture
def saved(tmp_path):
    stored_tree(network(), tmp_path / "a.tree")
    return tmp_path / "a.tree"


def test_every_changed_byte_of_rows_is_seen(saved):
    for path in sorted(saved.glob("rows-*")):
        data = path.read_bytes()
        for place in range(0, len(data), 37):
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(oocbe.CorruptDataError, match="checksum"):
                oocbe.JunctionTree.open(saved).calibrate()
        path.write_bytes(data)
    oocbe.JunctionTree.open(saved).calibrate()


@pytest.mark.parametrize("what", ["truncated", "missing", "of another length"])
def test_a_damaged_folder_is_an_error(saved, what):
    path = saved / SEGMENT_NAME.format(1)
    if what == "truncated":
        path.write_bytes(path.read_bytes()[:-3])
    elif what == "missing":
        path.unlink()
    else:
        (saved / "function_values").write_bytes(b"1234567")
    with pytest.raises(oocbe.CorruptDataError, match="compile"):
        oocbe.JunctionTree.open(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["stored"].pop(),
        lambda content: content["stored"][0][5].pop(),
        lambda content: content["stored"][-1].__setitem__(1, 10**12),
        lambda content: content["stored"][-1].__setitem__(0, True),
        lambda content: content.__setitem__("order", [0] * 8),
        lambda content: content["stored"][2][5][0].__setitem__(4, -1),
        lambda content: content.__setitem__("is_log", 1),
        lambda content: content.__setitem__("logarithm", "x"),
    ],
)
def test_a_record_of_something_else_is_no_tree(saved, change):
    content = json.loads((saved / RECORD_NAME).read_text())["content"]
    change(content)
    (saved / RECORD_NAME).write_bytes(render_record(content))
    with pytest.raises(oocbe.CorruptDataError):
        oocbe.JunctionTree.open(saved)


def test_a_copy_is_the_same_tree(saved, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("oocbe.junction_trees.tree.ROW_BYTES", 1 << 40)  # too many for the memory
        tree = oocbe.JunctionTree.open(saved)
    assert tree.statistics["is_stored"]
    tree.save(saved)
    tree.save(tmp_path / "b.tree")
    assert {p.name: p.read_bytes() for p in (tmp_path / "b.tree").iterdir()} == {
        p.name: p.read_bytes() for p in saved.iterdir()
    }
    with pytest.raises(oocbe.UsageError, match="exists already"):
        tree.save(tmp_path / "b.tree")
    scratch = stored_tree(network())
    scratch.save(tmp_path / "c.tree")
    assert oocbe.JunctionTree.open(tmp_path / "c.tree").log_evidence == scratch.log_evidence


def test_a_tree_that_nobody_named_goes_with_its_object(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    tree = stored_tree(network())
    assert [p for p in tmp_path.iterdir() if p.is_dir()]
    del tree
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_nothing_is_possible(tmp_path):
    first = oocbe.Function.from_array((0, 1), [[1.0, 0.0], [0.0, 0.0]], infeasible=0)
    second = oocbe.Function.from_array((0, 1), [[0.0, 0.0], [0.0, 1.0]], infeasible=0)
    variables = (oocbe.Variable("a", 2), oocbe.Variable("b", 2))
    problem = oocbe.Problem(variables, (first, second), semiring=oocbe.SUM_PRODUCT)
    assert stored_tree(problem, tmp_path / "a.tree").log_evidence == -math.inf
    assert list(tmp_path.iterdir()) == []


def dense(count):
    """One clique over so many variables of two values."""
    random = np.random.default_rng(2)
    blocks = [tuple(range(first, count, 4)) for first in range(4)]
    scopes = [a + b for a, b in itertools.combinations(blocks, 2)]
    functions = [oocbe.Function.from_array(scope, 0.5 + random.random([2] * len(scope))) for scope in scopes]
    variables = tuple(oocbe.Variable(f"x{v}", 2) for v in range(count))
    return oocbe.Problem(variables, tuple(functions), semiring=oocbe.SUM_PRODUCT)


def test_a_tree_larger_than_the_memory_takes_no_more_than_that(tmp_path):
    """A clique of 2^19 rows, 4 MiB of weights, within 2 MiB; in memory it is counted as 48."""
    problem = dense(19)
    whole = oocbe.JunctionTree(problem, order_seconds=0)
    # Its loops are compiled before memory is traced.
    oocbe.JunctionTree(problem, memory="2MiB", order_seconds=0, folder=tmp_path / "first.tree").calibrate()
    tracemalloc.start()
    try:
        tree = oocbe.JunctionTree(problem, memory="2MiB", order_seconds=0, folder=tmp_path / "a.tree")
        tree.calibrate()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert tree.statistics["is_stored"]
    assert not whole.statistics["is_stored"]
    assert peak < 1 << 21
    assert tree.log_evidence == pytest.approx(whole.log_evidence, rel=1e-12)
    for v in (0, 7, 18):
        np.testing.assert_allclose(tree.marginal(f"x{v}"), whole.marginal(f"x{v}"), rtol=1e-9)


def test_messages_of_a_clique_that_memory_has_no_room_for():
    """Two cliques of 17 variables that share 16: a message of 65,536 rows is half a MiB."""
    base = dense(16)
    more = [oocbe.Function.from_array((v, 16 + i), [[1.0, 2.0], [2.0, 1.0]]) for i in range(2) for v in range(16)]
    variables = tuple(oocbe.Variable(f"x{v}", 2) for v in range(18))
    problem = oocbe.Problem(variables, (*base.functions, *more), semiring=oocbe.SUM_PRODUCT)
    order = [f"x{v}" for v in reversed(range(18))]
    tree = oocbe.JunctionTree(problem, order, memory="1MiB")
    with pytest.raises(oocbe.ResourceError, match="messages of one clique take"):
        tree.calibrate()
    enough = oocbe.JunctionTree(problem, order, memory="16MiB")
    assert enough.statistics["is_stored"]
    whole = oocbe.JunctionTree(problem, order)
    assert enough.log_evidence == pytest.approx(whole.log_evidence, rel=1e-12)


def test_a_tree_that_the_disk_has_no_room_for_is_refused_before_a_row_is_made(monkeypatch):
    monkeypatch.setattr(disk_budget, "free_bytes", lambda _: 1 << 20)
    monkeypatch.setattr(tree, "number_rows", None)
    with pytest.raises(oocbe.ResourceError, match="the disk"):
        oocbe.JunctionTree(dense(19), memory="1MiB", order_seconds=0)


def test_a_full_disk_is_told_and_leaves_what_is_safe(tmp_path):
    written = 0

    def full(operation, path):
        nonlocal written
        if operation == "write" and SEGMENT_NAME[:4] in path.name:
            written += 1
            if written > 20:
                raise OSError(28, "No space left on device")

    with disk.hooked(full), pytest.raises(DiskError, match="disk is full"):
        stored_tree(network(), tmp_path / "a.tree")
    resumed = stored_tree(network(), tmp_path / "a.tree")
    assert resumed.log_evidence == pytest.approx(0, abs=1e-9)
    assert resumed.statistics["resumed_rows"] < resumed.rows
    assert stored_tree(network(), tmp_path / "b.tree").statistics["resumed_rows"] == 0


def test_a_resumed_compilation_says_from_where_it_went_on(tmp_path):
    """It printed the same lines as one from the start."""
    oocbe.write(dense(17), tmp_path / "dense.uai")
    arguments = ["compile", str(tmp_path / "dense.uai"), str(tmp_path / "a.tree"), "--memory", "1MiB"]
    written = 0

    def full(operation, path):
        nonlocal written
        written += operation == "write" and SEGMENT_NAME[:4] in path.name
        if written > 3:
            raise OSError(28, "No space left on device")

    with tuned(many_rows=1 << 14, few_rows=1 << 14, buffered_bytes=1 << 17):
        with disk.hooked(full):
            assert CliRunner().invoke(app, arguments).exit_code == 30
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert re.search(r"resumed +after [\d,]+ rows of an earlier process", done.output)


def test_the_commands(tmp_path):
    """A tree made on disk under a small limit answers as one made in memory does."""
    problem = dense(17)
    oocbe.write(problem, tmp_path / "dense.uai")
    names = [v.name for v in oocbe.read(tmp_path / "dense.uai").variables]
    (tmp_path / "cases.json").write_text(json.dumps([{names[3]: 1, names[9]: 0}, {}]))
    answers = []
    for name, memory in (("small", "1MiB"), ("large", "1GiB")):
        target = tmp_path / f"{name}.tree"
        done = CliRunner().invoke(
            app, ["compile", str(tmp_path / "dense.uai"), str(target), "--memory", memory, "--json"]
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["is_stored"] == (name == "small")
        done = CliRunner().invoke(
            app,
            [
                "query",
                str(target),
                "--cases",
                str(tmp_path / "cases.json"),
                "--targets",
                f"{names[0]},{names[16]}",
                "--memory",
                memory,
            ],
        )
        assert done.exit_code == 0, done.output
        answers.append([line.split(",") for line in done.output.splitlines()])
    assert answers[0][0] == answers[1][0]
    for own, other in zip(answers[0][1:], answers[1][1:], strict=True):
        assert own[:2] == other[:2]
        np.testing.assert_allclose([float(x) for x in own[2:]], [float(x) for x in other[2:]], rtol=1e-9)
