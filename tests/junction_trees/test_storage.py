"""Trees on disk: what comes back, and what is refused."""

import itertools
import json
import shutil

import numpy as np
import pytest

import oocbe
from oocbe.junction_trees import tree
from oocbe.junction_trees.stored import folder
from oocbe.junction_trees.stored.folder import RECORD_NAME
from oocbe.runtime.checksums import crc32
from oocbe.runtime.deadline import Deadline
from oocbe.tables import disk
from oocbe.tables.manifest import render_record
from tests.helpers.killed_trees import network, stored_tree
from tests.helpers.small_networks import random_network, random_product


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_comes_back(seed, tmp_path):
    random = np.random.default_rng(seed)
    problem = random_product(random) if seed % 2 else random_network(random)
    tree = oocbe.JunctionTree(problem, order_seconds=0, space="log" if seed > 3 else "auto")
    tree.save(tmp_path / "a.tree")
    found = oocbe.JunctionTree.open(tmp_path / "a.tree")
    assert repr(found) == repr(tree)
    assert found.cliques == tree.cliques
    for t in (tree, found):
        t.observe({"v1": 0})
    assert found.log_evidence == tree.log_evidence
    for v in problem.variables:
        assert (found.marginal(v.name) == tree.marginal(v.name)).all()
    assert (found.mpe() is None) == (tree.mpe() is None)
    cases = [{"v0": 0}, {}] * 5
    for own, theirs in zip(found.expected_counts(cases), tree.expected_counts(cases), strict=True):
        np.testing.assert_array_equal(own, theirs)


@pytest.mark.parametrize("what", ["linear", "constraint", "function", "bound"])
def test_what_nothing_satisfies_comes_back(what, tmp_path):
    nothing = np.zeros((0, 0), dtype=np.int64)
    parts = {
        "linear": {"linear_constraints": (oocbe.LinearConstraint((), (), -1),)},  # 0 <= -1
        "constraint": {"constraints": (oocbe.Constraint((), nothing, allowed=True),)},
        "function": {"functions": (oocbe.Function((), nothing, []),)},
        "bound": {"constant": 7.5, "upper_bound": 7},
    }[what]
    costs = oocbe.Function.from_array((0, 1), [[1, 2], [3, 4]])
    functions = (costs, *parts.pop("functions", ()))
    problem = oocbe.Problem((oocbe.Variable("a", 2), oocbe.Variable("b", 2)), functions, **parts)
    tree = oocbe.JunctionTree(problem)
    tree.save(tmp_path / "a.tree")
    for t in (tree, oocbe.JunctionTree.open(tmp_path / "a.tree")):
        assert t.log_evidence == -np.inf
        assert t.mpe() is t.marginal_map(["a"]) is None
        assert not t.marginal("a", "b").any()
        assert oocbe.count(t.problem).value == 0


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "a.tree"
    oocbe.JunctionTree(random_network(np.random.default_rng(0)), order_seconds=0).save(folder)
    return folder


def test_every_changed_byte_is_seen(saved):
    random = np.random.default_rng(1)
    for path in sorted(saved.iterdir()):
        data = path.read_bytes()
        for place in random.integers(0, len(data), 6).tolist() if data else ():
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(oocbe.CorruptDataError):
                oocbe.JunctionTree.open(saved)
        path.write_bytes(data)
    oocbe.JunctionTree.open(saved)


def test_truncated_missing_and_foreign_files_are_refused(saved, tmp_path):
    for name in ("rows-000000", "function_values", RECORD_NAME):
        broken = tmp_path / "broken.tree"
        shutil.copytree(saved, broken)
        data = (broken / name).read_bytes()
        (broken / name).write_bytes(data[:-1])
        with pytest.raises(oocbe.CorruptDataError):
            oocbe.JunctionTree.open(broken)
        (broken / name).unlink()
        with pytest.raises(oocbe.CorruptDataError, match=name):
            oocbe.JunctionTree.open(broken)
        shutil.rmtree(broken)
    with pytest.raises(oocbe.UsageError, match="no such folder"):
        oocbe.JunctionTree.open(tmp_path / "none.tree")
    with pytest.raises(oocbe.UsageError, match="exists already"):
        oocbe.JunctionTree.open(saved).save(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["cliques"][0].__setitem__(2, 0),
        lambda r: r["cliques"][0].__setitem__(1, 9),
        lambda r: r["stored"][0].__setitem__(1, 1 << 40),
        lambda r: r["stored"].pop(),
        lambda r: r["stored"].clear(),
        lambda r: r["order"].reverse() or r["order"].pop(),
        lambda r: r["variables"][0].__setitem__(1, 1),
        lambda r: r["files"]["function_values"].__setitem__(0, "|O"),
        lambda r: r["files"].pop("function_values"),
        lambda r: r.__setitem__("semiring", "none"),
        lambda r: r.pop("functions"),
        lambda r: r.__setitem__("is_log", "false"),
        lambda r: r.__setitem__("logarithm", "nan"),
        lambda r: r["cliques"][-1].__setitem__(1, 1),
        lambda r: r["variables"][0].__setitem__(0, 7),
    ],
)
def test_records_with_a_checksum_that_describe_no_tree(saved, change):
    record = json.loads((saved / RECORD_NAME).read_bytes())["content"]
    change(record)
    (saved / RECORD_NAME).write_bytes(render_record(record))
    with pytest.raises(oocbe.CorruptDataError):
        oocbe.JunctionTree.open(saved)


def written(folder, name, change):
    """Change a stored array, and the record with it."""
    record = json.loads((folder / RECORD_NAME).read_bytes())["content"]
    array = change(np.frombuffer((folder / name).read_bytes(), dtype=record["files"][name][0]).copy())
    (folder / name).write_bytes(array.tobytes())
    record["files"][name] = [array.dtype.str, array.nbytes, crc32(array.tobytes())]
    (folder / RECORD_NAME).write_bytes(render_record(record))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("weights", lambda a: a * np.nan, "weights that are none"),
        ("weights", lambda a: -a, "weights that are none"),
        ("weights", lambda a: a * 0, "weights that are none"),
        ("numbers", lambda a: a - np.int32(1), "rows of a message that are none"),
        ("numbers", lambda a: a + np.int32(99), "rows of a message that are none"),
        ("lengths", lambda a: a - np.int32(1), "groups"),
        ("values", lambda a: a + np.uint8(7), "values that its variables have not"),
    ],
)
def test_pieces_with_a_checksum_that_are_none(part, change, message, tmp_path):
    tree = oocbe.JunctionTree(network(), order_seconds=0)
    tree.save(tmp_path / "a.tree")
    path, rows = tmp_path / "a.tree" / RECORD_NAME, tmp_path / "a.tree" / "rows-000000"
    record = json.loads(path.read_bytes())["content"]
    children = {parent for _, _, parent in record["cliques"]}
    sparse = next(c for c, own in enumerate(record["stored"]) if not own[0] and c in children)
    below = sum(parent == sparse for _, _, parent in record["cliques"])
    piece = record["stored"][sparse][5][0]
    sizes = {"weights": 8 * piece[4], "numbers": 4 * below * piece[4], "lengths": 4 * piece[7]}
    begins = dict(zip([*sizes, "values"], itertools.accumulate(sizes.values(), initial=piece[1]), strict=True))
    kinds = {"weights": np.float64, "values": np.uint8}
    data = bytearray(rows.read_bytes())
    end = begins[part] + sizes.get(part, piece[1] + piece[2] - begins[part])
    with np.errstate(invalid="ignore"):
        data[begins[part] : end] = change(np.frombuffer(data[begins[part] : end], kinds.get(part, np.int32))).tobytes()
    rows.write_bytes(data)
    piece[3] = crc32(data[piece[1] : piece[1] + piece[2]])
    path.write_bytes(render_record(record))
    with pytest.raises(oocbe.CorruptDataError, match=message):
        oocbe.JunctionTree.open(tmp_path / "a.tree")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("function_values", lambda a: a * np.inf, "finite"),
        ("function_tuples", lambda a: a.astype(">i8"), "function_tuples are >i8"),
        ("function_tuples", lambda a: a + 9, "not what a tree is made of"),
    ],
)
def test_arrays_with_a_checksum_that_are_no_trees(saved, name, change, message):
    with np.errstate(invalid="ignore"):
        written(saved, name, change)
    with pytest.raises(oocbe.CorruptDataError, match=message):
        oocbe.JunctionTree.open(saved)


def test_a_tree_that_is_opened_too_late_is_not_called_damaged(saved):
    with pytest.raises(oocbe.errors.TimeLimitError), Deadline(0):
        oocbe.JunctionTree.open(saved)


@pytest.mark.parametrize("seed", range(4))
def test_trees_on_disk_and_in_memory_have_one_format(seed, tmp_path, monkeypatch):
    """Each is opened in the form of the other, by the memory that is there, and answers alike."""
    monkeypatch.setattr(tree, "PIECE_ROWS", 5)
    problem = network(seed)
    whole = oocbe.JunctionTree(problem, order_seconds=0, space="log" if seed == 3 else "auto")
    whole.save(tmp_path / "whole.tree")
    stored_tree(problem, tmp_path / "stored.tree")
    with monkeypatch.context() as patch:
        patch.setattr(tree, "ROW_BYTES", 1 << 40)  # too many for the memory
        swept = oocbe.JunctionTree.open(tmp_path / "whole.tree")
    read = oocbe.JunctionTree.open(tmp_path / "stored.tree")
    swept.save(tmp_path / "again.tree")
    again = oocbe.JunctionTree.open(tmp_path / "again.tree")
    assert swept.statistics["is_stored"]
    assert not read.statistics["is_stored"]
    assert again.statistics == whole.statistics | {"seconds": {}}
    for t in (whole, swept, read, again):
        t.observe({"x4": 1, "x7": 0})
        assert t.log_evidence == pytest.approx(whole.log_evidence, abs=1e-12)
        assert t.mpe().logarithm == pytest.approx(whole.mpe().logarithm, abs=1e-12)
        for v in problem.variables:
            np.testing.assert_allclose(t.marginal(v.name), whole.marginal(v.name), atol=1e-12)


@pytest.mark.parametrize("version", [1, 99])
def test_another_version_says_so(saved, version):
    record = json.loads((saved / RECORD_NAME).read_bytes())["content"]
    (saved / RECORD_NAME).write_bytes(render_record({**record, "version": version}))
    with pytest.raises(oocbe.UnsupportedError, match=f"version {version} .* compile the tree again"):
        oocbe.JunctionTree.open(saved)


def test_a_failing_disk_leaves_nothing(tmp_path):
    """Every operation fails once; the name never holds half a tree."""
    tree = oocbe.JunctionTree(random_network(np.random.default_rng(0)), order_seconds=0)
    folder = tmp_path / "a.tree"
    for failing in range(1000):
        count = 0

        def fail(operation, path, failing=failing):
            nonlocal count
            if operation != "remove":
                count += 1
                if count == failing + 1:
                    raise OSError(28, "No space left on device")

        with disk.hooked(fail):
            try:
                tree.save(folder)
            except oocbe.ResourceError as error:
                assert "No space left" in str(error)
            else:
                break
        if folder.exists():  # the last thing to fail is to force the name of a whole tree to disk
            oocbe.JunctionTree.open(folder)
            shutil.rmtree(folder)
        assert list(tmp_path.iterdir()) == []
    assert failing > 10


def test_an_opened_tree_derives_the_dtype_of_values_once(tmp_path, monkeypatch):
    """It is that of all variables: a scan of these for each clique took a quarter of the time to open."""
    variables = tuple(oocbe.Variable(f"x{i}", 2 + i % 3) for i in range(6))
    functions = tuple(
        oocbe.Function.from_array((i, i + 1), np.ones((variables[i].size, variables[i + 1].size))) for i in range(5)
    )
    oocbe.JunctionTree(oocbe.Problem(variables, functions, semiring="sum-product")).save(tmp_path / "tree")
    calls = []
    given = folder.value_kind
    monkeypatch.setattr(folder, "value_kind", lambda sizes: calls.append(1) or given(sizes))
    assert len(oocbe.JunctionTree.open(tmp_path / "tree").cliques) > 2
    assert len(calls) == 1
