"""The picture of a trace: no two kinds of work share a colour without the legend saying so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oocbe.runtime.tracing.picture import OTHER_COLOUR, draw
from oocbe.runtime.tracing.recorder import KERNELS, Span
from oocbe.runtime.tracing.trace_file import Trace

COLOURS = 18


@pytest.mark.parametrize("kinds", [1, COLOURS, COLOURS + 1, 30])
def test_each_colour_is_one_kind_or_the_others(tmp_path, kinds):
    names = [f"kind-{chr(ord('A') + k)}" for k in range(kinds)]  # the first takes longest
    spans = [Span(KERNELS, 0, name, 100 * k, 100 * k + 90 - k, False, {}) for k, name in enumerate(names)]
    draw(Trace(Path("t.json"), spans, 100 * kinds / 1e9, is_whole=True), tmp_path / "t.svg")
    drawn = (tmp_path / "t.svg").read_text()
    told = [name for name in names if f"<!-- {name} -->" in drawn]
    assert told == names[:COLOURS]
    fills = re.findall(r'clip-path="[^"]*" style="fill: (#[0-9a-f]{6})', drawn)  # what is inside the axes
    assert len(fills) == kinds
    assert len(set(fills) - {OTHER_COLOUR}) == len(told)
    assert fills.count(OTHER_COLOUR) == kinds - len(told)
    assert ("other kinds -->" in drawn) == (kinds > COLOURS)
    assert kinds <= COLOURS or f"<!-- {kinds - COLOURS} other kinds -->" in drawn
