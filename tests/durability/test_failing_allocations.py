"""Memory that cannot be had, at every allocation: an error of oocbe, nothing half-written, and work goes on."""

from __future__ import annotations

import pytest

from tests.helpers.failing_allocations import ends_of, library

NAMED = ("", "ResourceError", "MemoryError")
"""Kinds of ends; MemoryError comes as it is where options are read, before there is a limit to name."""


@pytest.mark.parametrize("what", ["solve", "operator"])
@pytest.mark.parametrize(
    ("least", "step"), [pytest.param(4096, 37, id="some"), pytest.param(1024, 1, id="every", marks=pytest.mark.slow)]
)
def test_an_allocation_that_fails(tmp_path, what, least, step):
    made = library(tmp_path)
    if made is None:
        pytest.skip("needs gcc and glibc")
    folder = tmp_path / "work"
    folder.mkdir()
    ends = ends_of(made, what, folder, least, step)
    assert ends[-1] == ["", ""]
    wrong = [end for end in ends if end[0] not in NAMED or (end[0] == NAMED[1] and not end[1])]
    assert not wrong, wrong[:5]
    assert any(kind == "ResourceError" for kind, _ in ends)
