"""Parts of messages: numbers of things, and how extras are installed today."""

import re
import tomllib
from pathlib import Path

import pytest

from oocbe.errors import amount, install_hint

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("number, text", [(0, "0 clauses"), (1, "1 clause"), (2000, "2,000 clauses")])
def test_one_thing_is_singular(number, text):
    assert amount(number, "clause") == text
    assert amount(number, "probability") == re.sub(
        "clause(s?)", lambda m: "probabilities" if m[1] else "probability", text
    )


def test_every_hint_names_an_extra_that_there_is():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "\n".join(path.read_text() for path in (ROOT / "oocbe").rglob("*.py"))
    named = re.findall(r"'(\w+)'", " ".join(re.findall(r"install_hint\(('.*?)\)", sources)))
    assert len(named) > 5 and set(named) <= set(extras)
    assert "oocbe[" not in sources
    assert install_hint("cuda12", "cuda13").endswith("pip install -e '.[cuda12]' or pip install -e '.[cuda13]'")
