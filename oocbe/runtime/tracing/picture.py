"""A trace as a picture: one row for each row of a lane, time from left to right, one colour per kind of work."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from oocbe.errors import UsageError, install_hint
from oocbe.runtime.tracing.recorder import LANES, Span
from oocbe.runtime.tracing.summary import TraceSummary, kind_of, summarise
from oocbe.runtime.tracing.trace_file import Trace

WIDTH, ROW_HEIGHT, EDGES = 13.0, 0.24, 1.7
"""Inches: width of the picture, height of a row, height of title, axis and legend together."""

COLUMNS = 3000
"""Resolution: spans of one kind closer than the picture's width divided by this are merged."""

MOST_ROWS = 64
"""Maximum rows drawn per lane, for legibility."""

WAIT_COLOUR = "#e4e4e4"
"""Colour of waiting."""

GREYS = (14, 15)
"""Indices of tab20 colours similar to that of waiting."""
OTHER_COLOUR = "#404040"
"""Colour of the shortest kinds of work, if there are more kinds than colours."""
SHORT_NAMES = {"host to device": "to device", "device to host": "to host"}
"""Short names of lanes, for labels."""


def draw(trace: Trace, path: Path) -> None:
    """Draw a trace as PNG, or another format of matplotlib by the suffix.

    path : the file; overwritten if it exists.
    Raises UsageError: matplotlib is missing, it does not support the suffix, or the trace has no spans.
    """
    if not trace.spans:
        raise UsageError(f"{trace.path}: there is nothing to draw: the trace has no spans")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(f"matplotlib is needed to draw ({error}); {install_hint('trace')}") from None
    summary = summarise(trace)
    rows = _rows(trace.spans)
    figure = Figure(figsize=(WIDTH, EDGES + ROW_HEIGHT * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = _colours(trace.spans)
    scale, unit = (1e-9, "seconds") if summary.seconds >= 1 else (1e-6, "milliseconds")
    for place, spans in enumerate(rows.values()):
        # Waiting first and nested work last, as later bars cover earlier ones.
        for (name, is_wait), mine in _by_kind(spans):
            bars = _merged(mine, summary.seconds * 1e9 / COLUMNS)
            axes.broken_barh(
                [(begin * scale, (end - begin) * scale) for begin, end in bars],
                (place - 0.42, 0.84),
                facecolor=WAIT_COLOUR if is_wait else colours[name],
                linewidth=0,
            )
    _label(axes, summary, rows, unit)
    axes.set_xlim(0, summary.seconds * 1e9 * scale)
    about = trace.about.get("about") or trace.path.name
    axes.set_title(f"{about}\n{summary.bound_by}", loc="left", fontsize=9, wrap=True)
    _legend(figure, colours, any(span.is_wait for span in trace.spans))
    try:
        figure.savefig(path, dpi=110)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def _rows(spans: Iterable[Span]) -> dict[tuple[str, int], list[Span]]:
    """Spans by lane and row, in drawing order from the top."""
    found: dict[tuple[str, int], list[Span]] = {}
    for span in spans:
        if span.row < MOST_ROWS:
            found.setdefault((span.lane, span.row), []).append(span)
    return dict(sorted(found.items(), key=lambda item: (LANES.index(item[0][0]), item[0][1])))


def _by_kind(spans: Iterable[Span]) -> list[tuple[tuple[str, bool], list[Span]]]:
    kinds: dict[tuple[str, bool], list[Span]] = {}
    for span in spans:
        kinds.setdefault((kind_of(span.name), span.is_wait), []).append(span)
    # A span takes longer than the spans within it.
    return sorted(kinds.items(), key=lambda item: (-max(s.end - s.begin for s in item[1]), item[0]))


def _merged(spans: Iterable[Span], gap: float) -> list[tuple[int, int]]:
    bars: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda s: s.begin):
        if bars and span.begin - bars[-1][1] < gap:
            bars[-1] = bars[-1][0], max(bars[-1][1], span.end)
        else:
            bars.append((span.begin, span.end))
    return bars


def _colours(spans: Iterable[Span]) -> dict[str, Any]:
    """Colours of the kinds of work, in descending order of time; :data:`OTHER_COLOUR` beyond the palette."""
    from matplotlib import colormaps

    seconds: dict[str, int] = {}
    for span in spans:
        if not span.is_wait:
            kind = kind_of(span.name)
            seconds[kind] = seconds.get(kind, 0) + span.end - span.begin
    palette = [colormaps["tab20"](place) for place in (*range(0, 20, 2), *range(1, 20, 2)) if place not in GREYS]
    names = sorted(seconds, key=lambda name: -seconds[name])
    return dict(zip_longest(names, palette[: len(names)], fillvalue=OTHER_COLOUR))


def _label(axes: Any, summary: TraceSummary, rows: dict[tuple[str, int], list[Span]], unit: str) -> None:
    """Names on the left, a line between lanes, and each lane's busy share on the right."""
    keys = list(rows)
    shares = {lane.name: lane.share for lane in summary.lanes}
    axes.set_yticks(range(len(keys)), [f"{SHORT_NAMES.get(lane, lane)} {row}" for lane, row in keys], fontsize=8)
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.set_xlabel(unit, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    for place, (above, below) in enumerate(pairwise(keys)):
        if above[0] != below[0]:
            axes.axhline(place + 0.5, color="black", linewidth=0.5)
    for lane, share in shares.items():
        places = [place for place, key in enumerate(keys) if key[0] == lane]
        text = f"{share:.0%} busy"
        axes.text(1.005, float(np.mean(places)), text, transform=axes.get_yaxis_transform(), va="center", fontsize=8)


def _legend(figure: Any, colours: dict[str, Any], waits: bool) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=colour, label=name) for name, colour in colours.items() if colour != OTHER_COLOUR]
    others = len(colours) - len(patches)
    if others:
        patches.append(Patch(facecolor=OTHER_COLOUR, label=f"{others} other kinds"))
    if waits:
        patches.append(Patch(facecolor=WAIT_COLOUR, label="waiting"))
    figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
