"""Draw ``docs/pictures/peers.png`` from the figures in ``results/*.json``: the times of other programs divided by ours.

    python benchmarks/draw_peers.py

All rows of the headline tables with a time of both programs are drawn, those where oocbe is slower as well.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image
from render_results import figures, headline

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "peers.png"

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
    """The ratios by the other program."""
    tables = [
        Ratio(f"{row['case']}, {row['system']}", float(row["time ratio"]))
        for row in rows("operators")
        if row["time ratio"]
    ]
    tables += [Ratio(row["case"], float(row["ratio of seconds"])) for row in rows("parquet_join")]
    single = []
    for row in rows("trees", 1):
        peers = [value for value in map(number, (row["lazy"], row["shafer"], row["elimination"])) if value]
        single.append(Ratio(f"{row['network']}, a case", min(peers) / (number(row["oocbe"]) or 1)))
    batches = [Ratio(f"{row['network']}, batch", float(row["× best"])) for row in rows("trees")]
    phases = ("order", "bounds", "passes")
    return {
        "DuckDB and Polars: joins": tables,
        "pyAgrum (its best engine)": batches + single,
        "CP-SAT: SPOT5": timed("spot5", "instance", phases, "cp-sat"),
        "toulbar2": timed("general", "instance", ("warm",), "toulbar2")
        + timed("families", "family+size", ("oocbe",), "toulbar2"),
    }


def main() -> None:
    """Draw the picture: a plot for each program, side by side in two columns, with bars of one height."""
    figure = Figure(figsize=(9, 10), layout="constrained")
    drawn = list(groups().items())
    for part, pair in zip(figure.subfigures(1, 2), (drawn[:2], drawn[2:]), strict=True):
        plots = part.subplots(2, 1, height_ratios=[len(ratios) + 2 for _, ratios in pair])
        for axes, (title, ratios) in zip(plots, pair, strict=True):
            names, values = [ratio.instance for ratio in ratios], [ratio.value for ratio in ratios]
            axes.barh(names, [v - 1 for v in values], left=1, color=[FASTER if v >= 1 else SLOWER for v in values])
            axes.set(xscale="log", title=title, xlim=(0.05, 500))
            axes.axvline(1, color="black", linewidth=0.8)
            axes.invert_yaxis()
            axes.tick_params(axis="y", labelsize=8)
            for place, ratio in enumerate(ratios):
                text = (
                    f"{'> ' if ratio.is_limit else ''}{ratio.value:.2g}"
                    if ratio.value < 10
                    else f"{'> ' if ratio.is_limit else ''}{ratio.value:.0f}"
                )
                axes.text(max(ratio.value, 1) * 1.1, place, text, va="center", fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(32, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
