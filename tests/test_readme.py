"""README and pages tell the truth: their snippets run, their tables are complete, their files exist."""

import doctest
import re
from pathlib import Path

import pytest

import oocbe
import oocbe.dcop
from oocbe.cli.main import app
from oocbe.formats import formats
from oocbe.model.settings.options import OTHER_VARIABLES

pytestmark = pytest.mark.usefixtures("as_outside_of_the_tests")

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def page(name: str) -> str:
    """The text of a page of the documentation."""
    return (ROOT / "docs" / f"{name}.md").read_text()


JOINS = (ROOT / "README.md", ROOT / "docs" / "tables.md")
"""Pages with the join of two Parquet files."""

MOST_LINES = 80
"""Lines of the README: what is longer belongs on a page."""


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROMPT = re.compile(r"^>>> ", re.MULTILINE)
"""Where an example of a Python prompt begins."""


@pytest.mark.parametrize("page", [p for p in PAGES if PROMPT.search(p.read_text())], ids=lambda page: page.stem)
def test_snippets(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.attempted == len(PROMPT.findall(page.read_text()))
    assert outcome.failed == 0


ELSEWHERE = ('Client("tls:', "with Client() as workers", "solve_many(paths", '"s3://bucket', "oocbe.api.cpmpy")
"""Of blocks that start processes, use an object store or CPMpy; tests/cluster, tests/api/test_many.py,
tests/tables/test_object_stores.py and tests/api/test_cpmpy.py cover these."""


def test_every_block_of_python_is_run() -> None:
    """Those without a prompt are the join of Parquet files, which has a test of its own below, or start processes."""
    for page in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            is_elsewhere = any(words in block for words in ELSEWHERE)
            assert PROMPT.search(block) or (page in JOINS and "sales" in block) or is_elsewhere, block


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    assert len(README.splitlines()) <= MOST_LINES
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_site_has_every_page() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in site] == []


def test_every_public_name_has_one_place_on_the_pages_of_the_library() -> None:
    text = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    told = sorted(re.findall(r"^::: oocbe\.(.+)$", text, re.MULTILINE))
    assert told == sorted([*oocbe.__all__, *(f"dcop.{name}" for name in oocbe.dcop.__all__)])


@pytest.mark.parametrize("page", JOINS, ids=lambda page: page.stem)
def test_the_parquet_join_runs_as_it_is_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    block = next(b for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if "sales.parquet" in b)
    assert len([line for line in block.splitlines() if line]) <= 8
    monkeypatch.chdir(tmp_path)
    sales = {"shop": ["b", "a", "a"], "day": [0, 1, 2], "gain": [1, 2, 3]}
    parquet.write_table(arrow.table(sales), "sales.parquet")
    parquet.write_table(arrow.table({"shop": ["a", "d"], "gain": [10, 20]}), "rents.parquet")
    exec(block, {})
    assert parquet.read_table("best.parquet").to_pydict() == {"shop": ["a"], "gain": [13]}


def test_the_package_s_own_snippet() -> None:
    outcome = doctest.testmod(oocbe)
    assert outcome.attempted >= 4
    assert outcome.failed == 0


def test_other_variables_are_listed_with_the_options() -> None:
    for variable in OTHER_VARIABLES:
        assert f"`{variable}`" in page("options")


def test_every_command_and_format_is_listed() -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        assert re.search(f"`oocbe {command.name or command.callback.__name__}[ `]", page("command-line"))
    for name, form in formats().items():
        if form.writes_problems:  # a format that is only read takes one file and one line
            assert f"`.{name}`" in page("formats")
