"""What is said where something is named that is no problem: what it is, and which command takes it."""

import gzip
import lzma

import numpy as np
import pytest

import oocbe
from oocbe.errors import UsageError
from oocbe.formats.files import SUFFIXES

NETWORK = oocbe.Problem(
    (oocbe.Variable("rain", 2, ("yes", "no")),),
    (oocbe.Function.from_array((0,), np.array([0.25, 0.75])),),
    semiring=oocbe.SUM_PRODUCT,
)


def test_a_tree_a_table_and_a_run_are_named(tmp_path):
    """Their rooms write the records by which they are told: made here as users make them."""
    oocbe.JunctionTree(NETWORK).save(tmp_path / "tree")
    table = oocbe.Table.from_rows({"a": 2}, [(0,), (1,)], [3, 4])
    oocbe.StoredTable.save(tmp_path / "table", table)
    oocbe.StoredTable.save(tmp_path / "plain", table, codec="zstd")
    grid = oocbe.Problem(
        tuple(oocbe.Variable(f"x{v}", 2) for v in range(4)),
        tuple(oocbe.Function.from_array((v, v + 1), np.array([[0, 3], [2, 1]])) for v in range(3)),
    )
    oocbe.solve(grid, workdir=tmp_path / "run", bounds="none", order_seconds=0.0)
    takes = {"tree": "oocbe query", "table": "oocbe convert", "plain": "stored table", "run": "oocbe inspect"}
    for name, what in takes.items():
        with pytest.raises(UsageError, match=f"{name}: cannot be read: this is .*{what}"):
            oocbe.solve(tmp_path / name)
    with pytest.raises(UsageError, match="this is a folder, expected a file"):
        oocbe.solve(tmp_path)


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
@pytest.mark.parametrize("compression", ["", ".gz"])
def test_files_that_are_no_problems_are_named(tmp_path, suffix, compression):
    path = tmp_path / f"file{suffix}{compression}"
    path.write_bytes(gzip.compress(b"1 2 3\n") if compression else b"1 2 3\n")
    with pytest.raises(UsageError, match=r"oocbe|--evidence"):
        oocbe.read(path)
    if not compression:
        path.write_text("2 0 0\n")
        with pytest.raises(oocbe.OocbeError) as caught:
            oocbe.read(path, format="wcsp")  # a format that is given counts, whatever the name
        assert "no problem" not in str(caught.value)


@pytest.mark.parametrize("begin", ['{"problem":', "{ problem :", '\ufeff\n {\n  "problem" :'])
@pytest.mark.parametrize("compression", ["", ".gz", ".xz"])
def test_a_network_of_cost_functions_may_be_named_json(tmp_path, begin, compression):
    rest = (
        ' {"name": "two", "mustbe": "<9"}, "variables": {"x": 2}, "functions": {"f": {"scope": ["x"], "costs": [3 2]}}}'
    )
    opened = {"": open, ".gz": gzip.open, ".xz": lzma.open}[compression]
    with opened(tmp_path / f"two.json{compression}", "wb") as file:
        file.write((begin + rest).encode())
    assert oocbe.solve(tmp_path / f"two.json{compression}").value == 2


@pytest.mark.parametrize(
    "content", ['{"rain": "yes"}', '[{"problem": 1}]', '{"schema_version": 1, "problem": "x"}', ""]
)
def test_other_json_is_no_problem(tmp_path, content):
    (tmp_path / "cases.json").write_text(content)
    with pytest.raises(UsageError, match=r"this is not a problem, as it does not begin with .*oocbe query --cases"):
        oocbe.read(tmp_path / "cases.json")


def test_a_file_is_no_junction_tree(tmp_path):
    path = tmp_path / "lawn.bif"
    path.write_text("network lawn { }\n")
    with pytest.raises(UsageError, match=r"`oocbe compile .*lawn\.bif TREE`"):
        oocbe.JunctionTree.open(path)
