"""The page of results is what its files of figures render to, and rows of a benchmark replace those of a table."""

from __future__ import annotations

import json

import pytest

FIGURE = {
    "title": "Sorts",
    "tables": [{"command": ["python sort.py"], "columns": ["rows", "s"], "rows": [["10", "1.5"]], "headline": {}}],
    "notes": ["Warm."],
}


@pytest.fixture
def results(load_benchmark):
    """The module that renders the page."""
    return load_benchmark("render_results")


@pytest.fixture
def folder(results, tmp_path, monkeypatch):
    """A folder with one file of figures, from which the page is rendered."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    (tmp_path / "sorts.json").write_text(results.as_json(FIGURE))
    return tmp_path


def test_the_page_is_rendered_from_the_figures(results):
    assert results.PAGE.read_text() == results.render(), "run python benchmarks/render_results.py"


def test_rows_are_replaced(results, folder):
    results.replace("sorts", 0, ["all checks hold", "| rows | s |", "| --- | ---: |", "| 20 | 2.5 |"])
    changed = json.loads((folder / "sorts.json").read_text())
    assert changed["tables"][0]["rows"] == [["20", "2.5"]]
    assert {"commit", "date", "machine"} < changed["tables"][0].keys()
    assert changed["notes"] == FIGURE["notes"]
    assert "| 20 | 2.5 |" in results.render()


def test_rows_of_other_columns_are_refused(results, folder):
    with pytest.raises(ValueError, match="its columns are"):
        results.replace("sorts", 0, ["| rows | ms |", "| --- | ---: |", "| 20 | 2500 |"])


@pytest.mark.parametrize("headline", [{}, {"rows": ["1", "13"]}])
def test_headlines_of_many_or_missing_rows_are_refused(results, headline):
    table = {"columns": ["rows"], "rows": [[str(number)] for number in range(13)], "headline": headline}
    with pytest.raises(ValueError, match="are allowed"):
        results.headline(table)
