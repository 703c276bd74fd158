"""What the pages of the library make of a docstring; its extension of the page builder is not needed for that."""

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

DOCSTRING = """Solve a file that :func:`oocbe.read` takes, see :mod:`oocbe.elimination`.

Parameters
----------
path, name : the file; what
    it is called. limit : seconds. None: none.
**more : options.

Returns
-------
float64 (rows,), ascending.

Raises
------
UsageError : an unknown option.

Examples
--------
>>> 1 + 1
2
"""

MARKDOWN = """Solve a file that [`oocbe.read`][oocbe.read] takes, see `oocbe.elimination`.

**Parameters**

* **path, name**: the file; what
    it is called.
* **limit**: seconds. None: none.
* **\\*\\*more**: options.

**Returns**

float64 (rows,), ascending.

**Raises**

* **UsageError**: an unknown option.

**Examples**

```pycon
>>> 1 + 1
2
```"""


@pytest.fixture
def extension(monkeypatch):
    if "griffe" not in sys.modules:
        monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object, Module=object))
    monkeypatch.delitem(sys.modules, "tools.docstrings_as_markdown", raising=False)
    return import_module("tools.docstrings_as_markdown")


def test_sections_become_lists_and_references_links(extension):
    assert extension.markdown(DOCSTRING, frozenset({"read", "solve"})) == MARKDOWN


def test_every_docstring_of_a_package_is_changed_once(extension):
    own = SimpleNamespace(docstring=SimpleNamespace(value="A :class:`oocbe.Table`."), members={}, is_alias=False)
    other = SimpleNamespace(docstring=SimpleNamespace(value=":class:`oocbe.Table`"), members={}, is_alias=True)
    package = SimpleNamespace(docstring=None, exports=["Table"], members={"Table": own, "other": other}, is_alias=False)
    extension.DocstringsAsMarkdown().on_package(pkg=package)
    assert own.docstring.value == "A [`oocbe.Table`][oocbe.Table]."
    assert other.docstring.value == ":class:`oocbe.Table`"
