"""The tutorials' notebooks run, and show what they say: executed one after the other in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oocbe.runtime.compilation import SENTENCE

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def shown(cell):
    """Text, and kinds of pictures, of what a cell shows, without the note that loops are compiled."""
    outputs = [o for o in cell["outputs"] if o.get("name") != "stderr" or SENTENCE not in "".join(o["text"])]
    data = [output.get("data", {"text/plain": output.get("text", output.get("evalue"))}) for output in outputs]
    return [(own.get("text/plain"), sorted(kind for kind in own if kind != "text/plain")) for own in data]


def test_notebooks_show_what_they_have_kept():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    for needed in ("ipykernel", "matplotlib", "pyarrow", "pandas", "cpmpy"):
        pytest.importorskip(needed)
    paths = sorted(TUTORIALS.glob("*.ipynb"))
    assert len(paths) >= 8
    kept = [cell for path in paths for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in kept)
    home = f"%cd -q {json.dumps(str(TUTORIALS))}\n"  # each begins where a reader begins, whatever the others did
    firsts = {nbformat.read(path, 4).cells[1]["id"] for path in paths}
    again = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell((home if cell["id"] in firsts else "") + cell.source) for cell in kept]
    )
    nbclient.NotebookClient(again, kernel_name="python3", timeout=200).execute()
    for old, new in zip(kept, again.cells, strict=True):
        assert shown(new) == shown(old), old.source
