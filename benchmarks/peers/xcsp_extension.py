"""An XCSP3 file without all but its variables and its tables: what the reference of table fixpoints is about."""

from __future__ import annotations

import gzip
from pathlib import Path
from xml.etree import ElementTree

from oocbe.formats.text import Text
from oocbe.formats.xcsp import parse
from oocbe.formats.xml import parse_xml
from oocbe.model.compact_problem import CompactProblem


def read_extension(path: Path) -> CompactProblem:
    """The variables and constraints in extension of a file that ends in ``.gz``."""
    root = ElementTree.fromstring(gzip.decompress(path.read_bytes()))
    constraints = root.find("constraints")
    assert constraints is not None
    _prune(constraints)
    for objectives in root.findall("objectives"):
        root.remove(objectives)
    text = Text(path.with_suffix(""), ElementTree.tostring(root))
    return parse(text, parse_xml(text))


def _prune(element: ElementTree.Element) -> None:
    """Remove constraints that are not in extension, also from groups and blocks."""
    for child in list(element):
        if child.tag == "block":
            _prune(child)
        elif child.tag != "extension" and not (child.tag == "group" and child.find("extension") is not None):
            element.remove(child)
