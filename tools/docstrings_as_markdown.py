"""Turn the package's docstrings into Markdown for the pages of the API; mkdocstrings loads this as an extension.

Docstrings are written to be read in the source: sections are underlined, an entry says what it means behind a colon,
and types stand in the signature alone. Parsers of known styles take such an entry's text for its type, so here sections
become bold lines, entries list items, and examples code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^(?P<title>[A-Z]\w+)\n-{3,}$", re.MULTILINE)
"""A section's title and the line under it."""

_ENTRY = re.compile(r"(?:^|(?<=\.)\s+)(?P<names>\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*) : ", re.MULTILINE)
"""Where an entry begins, on a line of its own or behind another one: names of parameters, attributes or errors."""

_ROLE = re.compile(r":[a-z]+:`~?(?P<target>[\w.]+)`")
"""A reference to an object of the package."""


def markdown(docstring: str, public: frozenset[str]) -> str:
    """A docstring's Markdown.

    Parameters
    ----------
    public : names of the package that have a place on a page, to which references become links.
    """
    first, *sections = _SECTION.split(docstring)
    parts = [_text(first)]
    for title, content in zip(sections[::2], sections[1::2], strict=True):
        parts += [f"**{title}**", _text(content) if title == "Examples" else _entries(content)]
    return _ROLE.sub(lambda role: _reference(role["target"], public), "\n\n".join(part for part in parts if part))


def _reference(target: str, public: frozenset[str]) -> str:
    package, _, rest = target.partition(".")
    return f"[`{target}`][{target}]" if package == "oocbe" and rest.partition(".")[0] in public else f"`{target}`"


def _text(content: str) -> str:
    """Paragraphs; examples of a Python prompt as code."""
    paragraphs = content.strip("\n").split("\n\n")
    return "\n\n".join(f"```pycon\n{own}\n```" if own.startswith(">>>") else own for own in paragraphs)


def _entries(content: str) -> str:
    """A list item for each entry; what is no entry is a paragraph."""
    first, *entries = _ENTRY.split(content.strip("\n"))
    named = ((names.replace("*", r"\*"), text.strip()) for names, text in zip(entries[::2], entries[1::2], strict=True))
    items = "\n".join(f"* **{names}**: {text}" for names, text in named)
    return "\n\n".join(part for part in (first.strip(), items) if part)


class DocstringsAsMarkdown(griffe.Extension):
    """Changes all docstrings of a package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Go through the package's own objects."""
        public = frozenset(str(name) for name in pkg.exports or ())
        waiting: list[Any] = [pkg]
        while waiting:
            found = waiting.pop()
            if found.docstring is not None:
                found.docstring.value = markdown(found.docstring.value, public)
            waiting += [member for member in found.members.values() if not member.is_alias]
