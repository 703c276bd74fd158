"""Write ``RESULTS.md`` from the figures in ``results/*.json``: the headline tables, and links to the files.

    python benchmarks/render_results.py
    python benchmarks/spot5.py --markdown | python benchmarks/render_results.py --replace spot5 0

A file of figures has a ``title``, ``tables`` and ``notes``. A table has ``columns`` and ``rows`` (strings, as printed),
the ``command``, ``machine``, ``commit``, ``date`` and ``versions`` of its run (absent: the run of the table before it),
and ``reading``, a help for readers. ``headline`` puts the table on the page; its ``columns`` and ``rows`` (by their
first cell) restrict what the page shows. ``--replace`` leaves ``versions`` and ``notes`` as they are: check them.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from measuring import commit, machine, markdown_lines

FOLDER = Path(__file__).resolve().parent / "results"
PAGE = FOLDER.with_suffix(".md").with_name("RESULTS.md")

MOST_ROWS = 12
"""Largest number of rows of a headline table; the file of figures holds further rows."""

INTRODUCTION = """\
# Results

This page shows the headline figures of the benchmarks. Each heading links to the file with all rows, further tables,
and notes; `benchmarks/render_results.py` generates the page from these files. A ratio is the peer's figure divided by
oocbe's: above 1, oocbe is ahead. The machines are shared and their speed varies, so ratios are more reliable than
absolute CPU times. Brackets contain machine, commit, date and versions. `limit` means not proven within the time
limit."""


def figures() -> dict[str, dict[str, Any]]:
    """All files of figures by name, in the order of their titles."""
    found = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    return dict(sorted(found.items(), key=lambda item: item[1]["title"].lower()))


def headline(table: dict[str, Any]) -> list[list[str]]:
    """The heading and the rows of a table that the page shows. ValueError for a column or row that is not there."""
    columns = table["headline"].get("columns", table["columns"])
    firsts = table["headline"].get("rows", [row[0] for row in table["rows"]])
    places = [table["columns"].index(column) for column in columns]
    rows = [[row[place] for place in places] for row in table["rows"] if row[0] in firsts]
    if len({row[0] for row in rows}) != len(set(firsts)) or not 0 < len(rows) <= MOST_ROWS:
        raise ValueError(f"{table.get('title', columns)}: {len(rows)} rows for {firsts}; 1 to {MOST_ROWS} are allowed")
    return [columns, *rows]


def render() -> str:
    """The text of the page."""
    parts, rest = [INTRODUCTION], []
    for name, figure in figures().items():
        link = f"[{figure['title']}](results/{name}.json)"
        tables = [_shown(table) for table in figure["tables"] if "headline" in table]
        if tables:
            parts += [f"## {link}", *tables]
        else:
            rest.append(f"* {link}")
    return "\n\n".join([*parts, "## Further figures", "\n".join(rest)]) + "\n"


def _shown(table: dict[str, Any]) -> str:
    conditions = "; ".join(table[key] for key in ("machine", "commit", "date", "versions") if key in table)
    parts = [f"**{table['title']}.**"] if "title" in table else []
    parts += [f"`{table['command'][0]}` ({conditions})."] if "command" in table else ["Same run."]
    parts += [table["reading"]] if "reading" in table else []
    return _wrapped(" ".join(parts)) + "\n\n" + "\n".join(markdown_lines(headline(table)))


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def replace(name: str, number: int, lines: Sequence[str]) -> None:
    """Replace the rows of a table by those of a Markdown table among ``lines``. ValueError for other columns."""
    rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines if line.startswith("|")]
    path = FOLDER / f"{name}.json"
    figure = json.loads(path.read_text())
    table = figure["tables"][number]
    if not rows or rows[0] != table["columns"]:
        raise ValueError(f"{path.name}, table {number}: its columns are {table['columns']}, not {rows[:1]}")
    table |= {"commit": commit(), "date": date.today().isoformat(), "machine": machine()}
    table["rows"] = rows[2:]
    path.write_text(as_json(figure))


def as_json(figure: dict[str, Any]) -> str:
    """A file of figures as text, with a line for each row and note."""
    tables = []
    for table in figure["tables"]:
        parts = [f"      {_text(key)}: {_text(value)}" for key, value in table.items() if key != "rows"]
        parts.append(f'      "rows": [\n{_lines(table["rows"], 8)}\n      ]')
        tables.append("    {\n" + ",\n".join(parts) + "\n    }")
    return (
        f'{{\n  "title": {_text(figure["title"])},\n  "tables": [\n'
        + ",\n".join(tables)
        + f'\n  ],\n  "notes": [\n{_lines(figure["notes"], 4)}\n  ]\n}}\n'
    )


def _lines(values: Sequence[Any], indent: int) -> str:
    return ",\n".join(" " * indent + _text(value) for value in values)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main() -> None:
    """Write the page, after the rows on standard input have replaced those of a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replace", nargs=2, metavar=("NAME", "NUMBER"), help="table that standard input replaces")
    arguments = parser.parse_args()
    if arguments.replace:
        replace(arguments.replace[0], int(arguments.replace[1]), sys.stdin.read().splitlines())
    PAGE.write_text(render())


if __name__ == "__main__":
    main()
