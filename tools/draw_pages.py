"""Draw the pictures of the documentation, from the examples: ``python tools/draw_pages.py``, into ``docs/pictures/``.

All are made by ``plot()`` of what oocbe returns, but the curve of a cluster, which is drawn of what ``oocbe simulate``
predicts. Pictures have 32 colours, so that each takes some 10 KB.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

import oocbe

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "docs" / "pictures"

WORKERS = (1, 4, 16, 64, 256, 1024)
"""Numbers of workers whose run is predicted."""

SEGMENTS = 4000
"""Segments of a worker's run, of four seconds each."""


def written(figure: Any, name: str) -> None:
    """Write a figure as a PNG file of few colours."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    with Image.open(buffer) as drawn:
        drawn.convert("RGB").quantize(32, dither=Image.Dither.NONE).save(FOLDER / f"{name}.png", optimize=True)


def predicted(workers: int) -> tuple[float, float]:
    """Seconds and efficiency of a run of :data:`SEGMENTS` segments in all."""
    called = ["simulate", "--workers", str(workers), "--segments", str(SEGMENTS // workers), "--json"]
    done = subprocess.run([sys.executable, "-m", "oocbe", *called], check=True, capture_output=True, text=True)
    content = json.loads(done.stdout)
    return content["seconds"], content["efficiency"]


def scaling() -> Figure:
    """Predicted time and efficiency by the number of workers."""
    figure = Figure(figsize=(7.2, 3), layout="constrained")
    time, share = figure.subplots(1, 2)
    seconds, efficiency = zip(*map(predicted, WORKERS), strict=True)
    time.loglog(WORKERS, seconds, "o-", color="#2b6cb0")
    time.loglog(WORKERS, [seconds[0] / n for n in WORKERS], ":", color="#a0aec0")
    time.set(xlabel="workers", ylabel="seconds (dotted: in proportion)")
    share.semilogx(WORKERS, [100 * e for e in efficiency], "o-", color="#dd6b20")
    share.set(xlabel="workers", ylabel="efficiency, %", ylim=(0, 100))
    return figure


def main() -> None:
    """Draw all pictures."""
    matplotlib.use("agg")
    grid = oocbe.read(EXAMPLES / "grid.wcsp")
    written(oocbe.plan(grid).plot(), "plan")
    written(oocbe.bound(grid, [2, 3, 4, 5]).plot(), "bound")
    written(grid.plot(), "graph")
    written(oocbe.marginals(EXAMPLES / "weather.bif", evidence={"ferry": "late"}).plot(), "marginals")
    written(scaling(), "workers")


if __name__ == "__main__":
    main()
