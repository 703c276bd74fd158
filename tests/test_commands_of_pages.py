"""Every command line that README and pages show runs as it is written, on inputs of the names that it gives."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli.main import app
from oocbe.execution.cluster.started_workers import SlurmSettings
from oocbe.tables.layout import Layout
from oocbe.tables.manifest import PART_NAME
from oocbe.tables.parts import PartsWriter

pytestmark = pytest.mark.usefixtures("as_outside_of_the_tests")

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PAGE_OF_PEERS = ROOT / "docs" / "coming-from.md"

AGENTS = """name: paints
objective: min
domains:
  colours: {values: [red, blue]}
variables:
  wall: {domain: colours}
  door: {domain: colours}
constraints:
  alike: {type: intention, function: 5 if wall == door else 0}
agents: [one, two]
"""

NETWORK = """network weather { }
variable season { type discrete [ 2 ] { summer, winter }; }
variable rain { type discrete [ 2 ] { yes, no }; }
variable wind { type discrete [ 2 ] { strong, weak }; }
probability ( season ) { table 0.5, 0.5; }
probability ( rain | season ) { (summer) 0.25, 0.75; (winter) 0.5, 0.5; }
probability ( wind | season ) { (summer) 0.125, 0.875; (winter) 0.75, 0.25; }
"""

MODEL = "ROWS\n N cost\n L weight\nCOLUMNS\n x cost 1 weight 2\n y cost 2 weight 3\nRHS\n b weight 12\nENDATA\n"

OF_HOSTS = ("sbatch", "--cluster", "gpus", "1e8", "1e9", "1e12")
"""In commands for which several hosts, or GPUs, or minutes are needed: ``tests/cluster`` does what they do on one."""

OF_INSTALLATION = ("pip", "python3", ".venv/bin/pip", "podman")
"""Commands that make an environment: what they install is tried by ``tools/check_package.py``."""


def blocks(language: str) -> list[tuple[Path, str]]:
    """Code blocks of a language, with the page of each."""
    return [
        (page, block)
        for page in PAGES
        for found, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        if found == language
    ]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each name that pages use."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in ("examples", "oocbe/certificates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "examples" / "daily.spot", folder / "hard.spot")
    (folder / "agents.yaml").write_text(AGENTS)
    oocbe.write(oocbe.read_model(folder / "agents.yaml"), folder / "agents.xml")
    (folder / "network.bif").write_text(NETWORK)
    formats = (ROOT / "docs" / "formats.md").read_text()
    (folder / "model.cnf").write_text(re.findall(r"^```text\n(.*?)^```", formats, re.DOTALL | re.MULTILINE)[0])
    (folder / "cases.csv").write_text("season\nwinter\n")
    for name in ("sales", "rents"):
        table = oocbe.Table.from_rows({"shop": 2}, [[0], [1]], [5, 4])
        table.to_parquet(folder / f"{name}.parquet", "gain")
    (folder / "days").mkdir()
    for name in ("one.spot", "two.spot"):
        shutil.copy(ROOT / "examples" / "daily.spot", folder / "days" / name)
    (folder / "model.mps.gz").write_bytes(gzip.compress(MODEL.encode()))
    for place in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (folder / place).mkdir(parents=True)
    return folder


TOULBAR2 = """import sys, pytoulbar2
network = pytoulbar2.CFN(verbose=-1)
network.Read(sys.argv[1])
print("values", *network.Solve()[0])
"""
"""In a process of its own, as toulbar2 ends the one that it is in where it fails."""


def as_toulbar2(words: list[str], folder: Path) -> None:
    """What toulbar2's command does with a problem and ``-w``, by its library: the package has no command."""
    pytest.importorskip("pytoulbar2")
    problem, more = words
    done = subprocess.run(
        [sys.executable, "-c", TOULBAR2, problem], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    )
    values = next(line for line in done.stdout.splitlines() if line.startswith("values")).removeprefix("values ")
    if more.startswith("-w="):
        (folder / more.removeprefix("-w=")).write_text(f"{values}\n")
    else:  # where its search begins: a value for each variable
        assert len((folder / more).read_text().split()) == len(values.split())


def run(line: str, folder: Path) -> str:
    """One command of a shell, with its output in a file where it asks for that; what it prints."""
    line = line.replace("--rows 1e7", "--rows 1e5")  # as good a trace, in less time
    words = shlex.split(line.replace("$SLURM_SUBMIT_DIR", str(folder)).replace("~", str(folder)), comments=True)
    words = words[words[0] == "exec" :]
    target = None
    if ">" in words:
        target = folder / words[-1]
        words = words[:-2]
    if words[0] in OF_INSTALLATION or any(word in line for word in OF_HOSTS):
        return ""
    words = [found for word in words for found in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]
    if words[0] == "python":
        called = [sys.executable, *words[1:]]
        return subprocess.run(called, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout
    if words[0] == "toulbar2":
        as_toulbar2(words[1:], folder)
        return ""
    if words[0] == "cat":
        return "".join((folder / name).read_text() for name in words[1:])
    assert Path(words[0]).name == "oocbe", line
    done = CliRunner().invoke(app, words[1:])
    expected = int(line.partition("# exit code ")[2] or 0)
    assert done.exit_code == expected, f"{line}\n{done.output}"
    if target is None:
        return done.stdout if done.stdout else done.output
    target.write_text(done.stdout)
    assert done.stdout
    return ""


SHELL = re.compile(r"^```sh\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
"""Commands, and their output where it is below them. "…" in it stands for any text."""

VARIES = re.compile(
    r"[\d.,]+ (ns|µs|ms|s|min|KiB|MiB|GiB|B)\b|^(time|width|largest message|all messages) .*$|order \S+ \(best of \d+\)"
    r"|induced width \d+",
    re.MULTILINE,
)
"""What depends on the machine and the moment, as the order of elimination does that is found in the time for it."""

LAST_DIGITS = re.compile(r"\d+\.\d{12,}")
"""Floats whose last digits depend on the order of sums."""

MOST_RUNS = 40
"""Runs of a command with a time limit. A run that compiles loops may end before it finds what the page shows, and the
next run has these loops: they take thirty seconds at most, and two minutes on a busy machine, 3 s a run. On such a
machine, a run without compilation may be too slow as well."""

WITH_COMMANDS = [page for page in PAGES if SHELL.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=[str(page.relative_to(ROOT)) for page in WITH_COMMANDS])
def test_commands_run_and_print_what_pages_show(page: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order: a command may read what an earlier one of its page wrote."""
    monkeypatch.chdir(inputs)
    for block, output in SHELL.findall(page.read_text()):
        if "--report" not in block or find_spec("matplotlib"):
            check(page, block, output, inputs)


def check(page: Path, block: str, output: str, inputs: Path) -> None:
    """Run a block of commands, and compare with the output that the page shows."""
    lines = [line for line in block.splitlines() if not line.startswith("#")]
    output = LAST_DIGITS.sub(lambda n: f"{float(n[0]):.10g}", output.strip())
    shown = ".*".join(re.escape(part) for part in VARIES.sub("#", output).split("…"))
    for _ in range(MOST_RUNS):
        printed = "".join(run(command, inputs) for line in lines for command in line.split(" && "))
        rounded = LAST_DIGITS.sub(lambda n: f"{float(n[0]):.10g}", printed.strip())
        found = VARIES.sub("#", "\n".join(line.rstrip() for line in rounded.splitlines()))
        is_equal = not output or re.fullmatch(shown, found, re.DOTALL) is not None
        if is_equal or not ("compiling" in printed or "the time limit was reached" in printed):
            break
    assert is_equal, f"{page}\n{block}\n{printed}"


THEIRS = re.findall(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```", PAGE_OF_PEERS.read_text(), re.MULTILINE | re.DOTALL)
"""Calls of other programs, with their output."""


@pytest.mark.parametrize(("code", "output"), THEIRS, ids=[code.split()[1] for code, _ in THEIRS])
def test_calls_of_other_programs_print_what_the_page_shows(code: str, output: str, inputs: Path) -> None:
    pytest.importorskip(code.split()[1].split(".")[0])
    called = [sys.executable, "-c", code]
    done = subprocess.run(called, cwd=inputs, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == output.strip()


def test_blocks_of_other_languages_are_checked_elsewhere() -> None:
    """Python: tests/test_readme.py. No language: folders, below. YAML: settings of jobs, in the next test. TOML and py:
    tests/formats/test_entry_points.py, test_order_finders.py in tests/elimination, and the test above. Text: output of
    commands, above, and tests/test_path_to_kernel.py."""
    kinds = re.findall(r"^```(\w*)\n.*?^```", "\n".join(page.read_text() for page in PAGES), re.DOTALL | re.MULTILINE)
    assert set(kinds) == {"sh", "python", "py", "dockerfile", "yaml", "toml", "text", ""}
    assert [len(blocks(kind)) for kind in ("dockerfile", "yaml", "")] == [1, 1, 2]


def test_settings_of_jobs_are_read(tmp_path: Path) -> None:
    ((_, block),) = blocks("yaml")
    (tmp_path / "jobs.yaml").write_text(block)
    settings = SlurmSettings.read(tmp_path / "jobs.yaml")
    assert (settings.cores, settings.processes, settings.memory, settings.interface) == (32, 2, "100GB", "ib0")


def test_the_image_of_the_pages_names_what_there_is() -> None:
    """An image cannot be made here; what stays compiled in one is what tests/cli/test_read_only_image.py shows."""
    ((_, block),) = blocks("dockerfile")
    (command,) = re.findall(r"oocbe (\S+)$", block, re.MULTILINE)
    assert command in [registered.name for registered in app.registered_commands]
    from oocbe.kernels.cpu.jit import CACHE_VARIABLE

    assert len(set(re.findall(rf"{CACHE_VARIABLE}=(\S+)", block))) == 1


def test_a_stored_table_has_the_files_that_the_page_lists(tmp_path: Path) -> None:
    (_, block), _ = blocks("")
    oocbe.StoredTable.save(tmp_path / "joined", oocbe.Table.from_rows({"a": 2}, [[0]], [5]))
    first, *lines = block.splitlines()
    assert first == "joined/"
    listed = {line.split()[0] for line in lines}
    there = {str(path.relative_to(tmp_path / "joined")) for path in (tmp_path / "joined").rglob("*") if path.is_file()}
    assert listed <= there
    assert {name.split("/")[0] for name in there} == {name.split("/")[0] for name in listed}


def test_a_table_of_parts_has_the_files_that_the_page_lists(tmp_path: Path) -> None:
    _, (_, block) = blocks("")
    layout = Layout(("a",), (4,))
    with PartsWriter(tmp_path / "joined", layout, np.int64, oocbe.MIN_SUM) as writer:
        for value in (0, 2):
            row = oocbe.Table(layout, layout.pack(np.array([[value]])), np.array([5]), oocbe.MIN_SUM, is_sorted=True)
            path = writer.part_path()
            oocbe.StoredTable.save(path, row)
            writer.add(path)
    first, *lines = block.splitlines()
    assert first == "joined/"
    listed, there = [line.split()[0] for line in lines], [path.name for path in (tmp_path / "joined").iterdir()]
    for names in (listed, there):
        assert len([name for name in names if PART_NAME.fullmatch(name.strip("/"))]) == 2
        assert {name for name in names if not name.startswith("part-")} == {"zarr.json", "manifest.json"}
