"""Commands that do not solve: inspect, convert, synth, verify, and the help of all."""

import itertools
import json
import math
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.elimination.runs.run_directory import messages_in
from oocbe.search import bounded, incumbent_search

EXAMPLES = Path(__file__).parents[2] / "examples"
DAILY, GRID = str(EXAMPLES / "daily.spot"), str(EXAMPLES / "grid.wcsp")

COMMANDS = [
    ["completion"],
    ["solve"],
    ["plan"],
    ["verify"],
    ["inspect"],
    ["convert"],
    ["trace"],
    ["synth", "random"],
    ["synth", "scale-free"],
    ["synth", "grid"],
    ["synth", "spot5"],
]

run = CliRunner().invoke


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_shows_an_example_that_parses(command: list[str]) -> None:
    shown = run(app, [*command, "--help"])
    assert shown.exit_code == 0
    example = " ".join(shown.stdout.split("Example: ")[1].split())
    assert example.startswith(" ".join(["oocbe", *command]))
    flags = [word for word in example.split() if word.startswith("-")]
    assert all(flag in shown.stdout.split("Example: ")[0] for flag in flags)


def test_version() -> None:
    assert run(app, ["--version"]).stdout == f"oocbe {oocbe.__version__}\n"


def test_inspect_describes_a_problem() -> None:
    content = json.loads(run(app, ["inspect", DAILY, "--json"]).stdout)
    assert (content["variables"], content["kind"], content["semiring"]) == (120, "problem", "min-sum")
    assert sum(content["constraints_by_arity"].values()) == 624
    text = run(app, ["inspect", GRID]).stdout
    assert "functions by arity  2: 60" in text


def test_inspect_describes_a_run_before_and_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last moment is as long as a slow machine takes for it: what is done in it ends by itself.
    monkeypatch.setattr(bounded, "LAST_BOUND_SECONDS", 600)
    monkeypatch.setattr(incumbent_search, "LAST_SECONDS", 600)
    folder = tmp_path / "run"
    limits = {"time_limit": 0, "bounds": "constant", "incumbent_seconds": 1}
    # A path would be read within the limit.
    result = oocbe.solve(oocbe.read(GRID), workdir=folder, **limits)
    assert result.status == "limit"
    content = json.loads(run(app, ["inspect", str(folder), "--json"]).stdout)
    assert (content["kind"], content["problem"], content["status"]) == ("run", "grid-6x6-d4-s1", "unfinished")
    assert content["options"]["bounds"] == "constant"
    assert (content["value"], content["bound"]) == (result.value, result.bound)
    assert result.value is not None
    oocbe.solve(GRID, workdir=folder, resume=True, bounds="constant")
    content = json.loads(run(app, ["inspect", str(folder), "--json"]).stdout)
    assert (content["status"], content["value"], content["published_messages"]) == ("optimal", 1812, 0)
    assert content["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    text = run(app, ["inspect", str(folder)]).stdout
    assert "options             bounds: constant, " in text
    (folder / "run.json").write_text("{}")
    assert run(app, ["inspect", str(folder)]).exit_code == 40


def test_inspect_of_a_run_whose_value_json_does_not_have(tmp_path: Path) -> None:
    variables = tuple(oocbe.Variable(name, 2) for name in "abc")
    functions = tuple(oocbe.Function.from_array((v,), [1e300, 1e300]) for v in range(3))
    problem = oocbe.Problem(variables, functions, semiring=oocbe.SUM_PRODUCT, name="large", constant=1.0)
    assert oocbe.solve(problem, workdir=tmp_path / "run").value == math.inf
    done = run(app, ["inspect", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["value"] is None


def test_inspect_of_a_folder_in_which_a_run_only_begins(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    done = run(app, ["inspect", str(tmp_path)])
    assert done.exit_code == 2
    assert "no run has published anything yet" in done.stderr


def test_messages_are_counted_while_orders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for order in ("order-a", "order-b"):
        (tmp_path / order).mkdir()
        (tmp_path / order / "message-1.json").touch()
        (tmp_path / order / "message-1").touch()
    assert messages_in(tmp_path) == 2
    glob = Path.glob

    def removing(path: Path, pattern: str) -> list[Path]:
        found = list(glob(path, pattern))
        shutil.rmtree(found[0])
        return found

    monkeypatch.setattr(Path, "glob", removing)
    assert messages_in(tmp_path) == 1


@pytest.mark.parametrize("name", ["folder", "folder/missing", "folder/missing.spot"])
def test_inspect_says_what_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    done = run(app, ["inspect", str(tmp_path / name)])
    assert done.exit_code == 2
    assert ("neither a stored table" if name == "folder" else "there is no such file") in done.stderr


def test_inspect_of_a_table_that_is_not_whole_says_so(tmp_path: Path) -> None:
    table = oocbe.Table.from_rows({"a": 2, "b": 3}, [[0, 0], [1, 2]], [5, 6])
    oocbe.StoredTable.save(tmp_path / "table", table)
    (tmp_path / "table" / "manifest.json").unlink()
    done = run(app, ["inspect", str(tmp_path / "table")])
    assert done.exit_code == 40
    assert "no manifest.json" in done.stderr


def test_inspect_describes_a_stored_table(tmp_path: Path) -> None:
    table = oocbe.Table.from_rows({"a": 2, "b": 3}, [[0, 0], [1, 2]], [5, 6])
    oocbe.StoredTable.save(tmp_path / "table", table)
    content = json.loads(run(app, ["inspect", str(tmp_path / "table"), "--json"]).stdout)
    assert (content["kind"], content["rows"], content["scope"]) == ("table", 2, ["a", "b"])
    assert (content["density"], content["chunks"], content["key_bits"]) == (2 / 6, 1, 3)


def test_inspect_of_a_folder_that_is_no_table(tmp_path: Path) -> None:
    done = run(app, ["inspect", str(tmp_path)])
    assert done.exit_code in (2, 40)
    assert done.stdout == ""
    assert str(tmp_path) in done.stderr


def test_convert_keeps_the_problem(tmp_path: Path) -> None:
    done = run(app, ["convert", DAILY, str(tmp_path / "daily.wcsp.gz")])
    assert (done.exit_code, done.stdout) == (0, "")
    original, copy = oocbe.read(DAILY), oocbe.read(tmp_path / "daily.wcsp.gz")
    nothing_taken = [0] * 120
    assert copy.evaluate(nothing_taken) == original.evaluate(nothing_taken)
    assert copy.evaluate([1] * 120) is None


def test_convert_takes_tables_from_parquet_to_a_stored_table_and_back(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"shop": ["b", "a"], "cost": [5, 7]}
    parquet.write_table(arrow.table(columns), tmp_path / "in.parquet")
    paths = [str(tmp_path / name) for name in ("in.parquet", "stored", "plain", "out.parquet")]
    assert run(app, ["convert", *paths[:2], "--values", "cost", "--semiring", "min-sum"]).exit_code == 0
    assert run(app, ["convert", *paths[1:3], "--to", "zstd"]).exit_code == 0
    assert run(app, ["convert", *paths[2:], "--values", "cost", "--memory", "1MiB"]).exit_code == 0
    for pair in (paths[:2], paths[1:3], paths[2:]):  # again, over what is there
        assert run(app, ["convert", *pair, "--values", "cost", "--semiring", "min-sum"]).exit_code == 2
        again = ["convert", *pair, "--values", "cost", "--semiring", "min-sum", "--overwrite"]
        assert run(app, [*again, *(["--to", "zstd"] if pair == paths[1:3] else [])]).exit_code == 0
    assert parquet.read_table(paths[3]).to_pydict() == columns
    new = str(tmp_path / "x")
    wrong = {
        "'value' is not there": [paths[0], new],
        "Parquet already": [paths[0], f"{new}.parquet"],
        "--to": [paths[1], new, "--to", "ods"],
        "x.csv: tables are written as Parquet": [paths[1], f"{new}.csv"],
        "x.wcsp: tables are written as Parquet": [paths[0], f"{new}.wcsp"],
    }
    for said, arguments in wrong.items():
        done = run(app, ["convert", *arguments])
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_convert_renames_columns_and_drops_rows_as_the_library_does(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"place": ["a", None, "b", "a"], "till": [1, 1, 2, 2], "cost": [5, 7, None, 3]}
    parquet.write_table(arrow.table(columns), tmp_path / "in.parquet")
    out = tmp_path / "stored"
    given = ["convert", str(tmp_path / "in.parquet"), str(out)]
    renamed = ["--rename", "place=shop", "--rename", "cost=value"]
    assert "row 1 (the first is 0)" in run(app, [*given, *renamed]).stderr
    assert run(app, [*given, *renamed, "--drop-nulls", "--scope", "shop", "--duplicates"]).exit_code == 0
    stored = oocbe.StoredTable.open(out)
    assert (stored.layout.scope, stored.rows, stored.layout.labels["shop"]) == (("shop",), 2, ("a", "b"))
    assert oocbe.maximise(stored, [], output=tmp_path / "best").to_table().to_dict() == {(0,): 5}
    for arguments, said in (
        ([*given, "--rename", "cost"], "COLUMN=NAME"),
        ([*given, "--rename", "cost=a", "--rename", "cost=b"], "another --rename"),
        ([*given, "--rename", "price=value"], "no column 'price' to be renamed"),
        (["convert", str(out), str(tmp_path / "x.parquet"), "--drop-nulls"], "--drop-nulls: is for Parquet"),
        (["convert", GRID, str(tmp_path / "grid.cfn"), "--scope", "a"], "--scope: is for Parquet"),
        (["convert", GRID, str(tmp_path / "grid.cfn"), "--values", "a"], "--values: is for Parquet"),
    ):
        done = run(app, arguments)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_convert_writes_a_problem_in_another_semiring(tmp_path: Path) -> None:
    out = tmp_path / "grid.cfn"
    assert run(app, ["convert", GRID, str(out), "--semiring", "max-sum"]).exit_code == 0
    assert oocbe.read(out).semiring == oocbe.MAX_SUM
    done = run(app, ["convert", GRID, str(tmp_path / "grid.wcsp"), "--semiring", "counting"])
    assert (done.exit_code, "counting" in done.stderr) == (2, True), done.stderr


def test_convert_never_writes_over_what_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "grid.wcsp"
    shutil.copy(GRID, path)
    before = path.read_bytes()
    done = run(app, ["convert", str(path), str(path)])
    assert (done.exit_code, "the problem itself" in done.stderr, path.read_bytes() == before) == (2, True, True)


def test_propagation_says_what_it_removed(tmp_path: Path) -> None:
    path = tmp_path / "m.mps"
    path.write_text(
        "ROWS\n N cost\n L weight\nCOLUMNS\n x cost 1 weight 2\n y cost 2 weight 3\nRHS\n b weight 12\nENDATA\n"
    )
    assert "removed  2 bounds in " in run(app, ["propagate", str(path)]).stdout
    assert "removed  0 values in 1 round\n" in run(app, ["propagate", GRID]).stdout


def test_convert_names_formats_explicitly(tmp_path: Path) -> None:
    plain = tmp_path / "problem"
    assert run(app, ["convert", GRID, str(plain)]).exit_code == 2
    assert run(app, ["convert", GRID, str(plain), "--to", "wcsp"]).exit_code == 0
    back = tmp_path / "back.wcsp"
    assert run(app, ["convert", str(plain), str(back), "--format", "wcsp"]).exit_code == 0
    assert back.read_text().split("\n", 1)[1] == plain.read_text().split("\n", 1)[1]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["random", "-n", "7", "-d", "3", "--density", "0.5"], 7),
        (["scale-free", "-n", "8", "-d", "3"], 8),
        (["grid", "--side", "3", "-d", "2", "--tightness", "0.25"], 9),
        (["spot5", "--photographs", "20", "--window", "5"], 20),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_synth_writes_the_same_problem_from_the_same_seed(arguments: list[str], variables: int, tmp_path: Path) -> None:
    command, *rest = arguments
    suffix = "spot" if command == "spot5" else "wcsp"
    files = [tmp_path / f"{name}.{suffix}" for name in ("one", "two", "other")]
    for file, seed in zip(files, ("1", "1", "2"), strict=True):
        done = run(app, ["synth", command, str(file), *rest, "--seed", seed])
        assert done.exit_code == 0, done.stderr
    assert len(oocbe.read(files[0]).variables) == variables
    assert files[0].read_text() == files[1].read_text() != files[2].read_text()


def test_synth_refuses_senseless_arguments(tmp_path: Path) -> None:
    out = tmp_path / "x.wcsp"
    done = run(app, ["synth", "random", str(out), "--density", "2"])
    assert done.exit_code == 2
    assert "density" in done.stderr
    assert not out.exists()


def solution_file(folder: Path, value: int, taken: int = 0) -> str:
    lines = [f"# value: {value}", *(f"{number} 0" for number in range(taken, 120))]
    lines += [f"{v.name} {v.label(1)}" for v in oocbe.read(DAILY).variables[:taken]]
    (folder / "daily.sol").write_text("\n".join(lines))
    return str(folder / "daily.sol")


def test_verify_accepts_what_is_right(tmp_path: Path) -> None:
    done = run(app, ["verify", DAILY, solution_file(tmp_path, 14154)])
    assert done.exit_code == 0
    assert done.stdout.split() == ["verdict", "accepted", "value", "14154", "claimed", "14154"]


def test_verify_refuses_a_wrong_claim(tmp_path: Path) -> None:
    done = run(app, ["verify", DAILY, solution_file(tmp_path, 14153), "--json"])
    assert done.exit_code == 2
    verdict = json.loads(done.stdout)
    assert (verdict["accepted"], verdict["value"], verdict["claimed_value"]) == (False, 14154, 14153)


def test_verify_names_what_is_violated(tmp_path: Path) -> None:
    done = run(app, ["verify", DAILY, solution_file(tmp_path, 14154, taken=120)])
    assert done.exit_code == 10
    assert "rejected" in done.stdout
    named = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("violated")]
    assert named
    assert all(words[0] == "constraint" and words[2] == "forbids" for words in named)


def test_convert_writes_a_linear_system_as_it_was_read(tmp_path: Path) -> None:
    text = (
        "NAME t\nROWS\n N C\n L R\n G S\nCOLUMNS\n M 'MARKER' 'INTORG'\n X C 1.5 R 1\n X S 2\n M 'MARKER' 'INTEND'\n"
        " Y[0] C -1 R 0.5\nRHS\n RHS C 3 R 4\n RHS S 1\nRANGES\n RNG R 2\nBOUNDS\n MI B Y[0]\n UP B X 9\nENDATA\n"
    )
    paths = [tmp_path / name for name in ("a.mps", "b.lp", "c.mps.gz", "d.lp", "e.mps")]
    paths[0].write_text(text)
    for one, other in itertools.pairwise(paths):
        assert run(app, ["convert", str(one), str(other)]).exit_code == 0
    first, last = oocbe.formats.read_model(paths[0]), oocbe.formats.read_model(paths[-1])
    assert (last.names, last.row_names) == (("X", "Y_0_"), ("R_lo", "R_up", "S"))
    assert (last.constant, last.maximises, last.integral.tolist()) == (-3, False, [True, False])
    for name in ("objective", "lower", "upper"):
        assert getattr(last, name).tolist() == getattr(first, name).tolist()
    assert last.row_lower.tolist() == [2, -math.inf, 1] and last.row_upper.tolist() == [math.inf, 4, math.inf]
    assert last.coefficients.tolist() == [1, 0.5, 1, 0.5, 2]
    done = run(app, ["convert", str(paths[0]), str(tmp_path / "f.wcsp")])
    assert done.exit_code == 2 and "variable Y[0] is real" in done.stderr
    done = run(app, ["convert", str(paths[0]), str(tmp_path / "f.lp"), "--evidence", "X=1"])
    assert done.exit_code == 2 and "--evidence" in done.stderr and not (tmp_path / "f.lp").exists()
    done = run(app, ["convert", GRID, str(tmp_path / "f.lp")])
    assert done.exit_code == 2 and "the lp format holds linear systems, and this is none" in done.stderr
