"""Draw ``docs/pictures/peers-*.png`` from the figures in ``results/*.json``: times of other programs divided by ours.

    python benchmarks/draw_peers.py

A picture for each other program, narrow enough for a telephone. All rows of the headline tables with a time of both
programs are drawn, those where oocbe is slower as well.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image
from render_results import figures, headline

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"

DPI = 200
"""Pixels an inch; the pages show half as many, which is sharp on fine displays."""

FASTER, SLOWER = "#2b6cb0", "#dd6b20"

LIMITS = {"spot5": 20.0, "general": 25.0, "families": 10.0}
"""Seconds after which the other program was stopped, by the file of figures."""


class Ratio(NamedTuple):
    """The other program's time divided by oocbe's on an instance; at least that, if it reached its limit."""

    instance: str
    value: float
    is_limit: bool = False


def number(text: str) -> float | None:
    """The first number in a cell; None without one."""
    found = re.match(r"[\d.,]+", text)
    return float(found[0].replace(",", "")) if found else None


def rows(name: str, table: int = 0) -> list[dict[str, str]]:
    """The rows of a headline table by their columns."""
    columns, *lines = headline([t for t in figures()[name]["tables"] if "headline" in t][table])
    return [dict(zip(columns, line, strict=True)) for line in lines]


def timed(name: str, instance: str, ours: tuple[str, ...], peer: str) -> list[Ratio]:
    """Ratios of a table whose columns are times in seconds; ours is the sum of several phases."""
    found = []
    for row in rows(name):
        label = " ".join(row[part] for part in instance.split("+"))
        own, other = sum(number(row[column]) or 0 for column in ours), number(row[peer])
        is_limit = other is None and row[peer].startswith("limit")
        if own and (other or is_limit):
            found.append(Ratio(label, (LIMITS[name] if is_limit else other or 0) / own, is_limit))
    return found


def groups() -> dict[str, list[Ratio]]:
    """The ratios by the other program, which names the picture."""
    tables = []
    for row in rows("aggregates"):
        ratios = {peer: number(row[f"{peer} / oocbe"]) for peer in ("DuckDB", "Polars")}
        tables += [Ratio(f"{row['shape']}, {peer}", ratio) for peer, ratio in ratios.items() if ratio]
    for row in rows("parquet_join"):
        tables.append(Ratio(f"{row['case'].partition(', ')[2]}, DuckDB", float(row["ratio of seconds"])))
    kinds = {"A": "50 million and few rows", "B": "two of 50 million rows"}
    for row in rows("operators"):
        if row["time ratio"]:
            peer = {"duckdb": "DuckDB", "polars": "Polars"}[row["system"]]
            tables.append(Ratio(f"{kinds[row['case']]}, {peer}", float(row["time ratio"])))
    single = []
    for row in rows("trees", 1):
        peers = [value for value in map(number, (row["lazy"], row["shafer"], row["elimination"])) if value]
        single.append(Ratio(f"{row['network']}, a case", min(peers) / (number(row["oocbe"]) or 1)))
    batches = [Ratio(f"{row['network']}, batch", float(row["× best"])) for row in rows("trees")]
    phases = ("order", "bounds", "passes")
    return {
        "duckdb": tables,
        "pyagrum": batches + single,
        "cp-sat": timed("spot5", "instance", phases, "cp-sat"),
        "toulbar2": timed("general", "instance", ("warm",), "toulbar2")
        + timed("families", "family+size", ("oocbe",), "toulbar2"),
    }


def draw(ratios: list[Ratio], path: Path) -> None:
    """Draw bars of the ratios into a file."""
    figure = Figure(figsize=(4.2, 0.5 + 0.19 * len(ratios)), layout="constrained")
    axes = figure.subplots()
    values = [ratio.value for ratio in ratios]
    colours = [FASTER if value >= 1 else SLOWER for value in values]
    axes.barh([ratio.instance for ratio in ratios], [value - 1 for value in values], left=1, color=colours)
    axes.set(xscale="log", xlim=(min(0.5, *values) / 1.3, max(values) * 5))
    axes.set_xlabel("other program's time / oocbe's", fontsize=9)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.tick_params(labelsize=8)
    for place, (_, value, is_limit) in enumerate(ratios):
        text = f"{'> ' if is_limit else ''}{value:.{1 if value < 10 else 0}f}"
        axes.text(max(value, 1) * 1.1, place, text, va="center", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(32, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Draw the picture of each program."""
    for name, ratios in groups().items():
        draw(ratios, PICTURES / f"peers-{name}.png")


if __name__ == "__main__":
    main()
