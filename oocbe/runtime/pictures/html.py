"""Facts as HTML: for notebooks, and as parts of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape

STYLE = (
    "border-collapse:collapse;font-size:90%;margin:0.3em 0",
    "text-align:left;padding:1px 12px 1px 0;vertical-align:top;font-weight:normal;opacity:0.7",
    "text-align:left;padding:1px 12px 1px 0;vertical-align:top",
)
"""Styles of a table, of the name of a fact, and of its content; inline, as notebooks remove style sheets."""

MOST_CHARACTERS = 300
"""Maximum characters of a text; longer ones are cut, since cards are summaries."""


def card(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """A title and facts, one per line; facts without content are omitted."""
    lines = "".join(
        f'<tr><th style="{STYLE[1]}">{escape(name)}</th><td style="{STYLE[2]}">{shown(content)}</td></tr>'
        for name, content in facts
        if content not in (None, "")
    )
    return f'<div><strong>{escape(title)}</strong><table style="{STYLE[0]}"><tbody>{lines}</tbody></table></div>'


def grid(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a header; columns of numbers are right-aligned, empty ones are omitted."""
    listed = list(rows)
    columns = [place for place in range(len(names)) if any(row[place] not in (None, "") for row in listed)]
    numeric = {place for place in columns if all(isinstance(row[place], int | float) for row in listed)}

    def cell(tag: str, style: str, place: int, text: str) -> str:
        return f'<{tag} style="{style}{";text-align:right" * (place in numeric)}">{text}</{tag}>'

    head = "".join(cell("th", STYLE[1], place, escape(names[place])) for place in columns)
    body = "".join(
        "<tr>" + "".join(cell("td", STYLE[2], place, shown(row[place])) for place in columns) + "</tr>"
        for row in listed
    )
    return f'<table style="{STYLE[0]}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def paragraph(text: str) -> str:
    """A paragraph of text."""
    return f"<p>{escape(text)}</p>"


def shown(content: object) -> str:
    """A number with thousands separators, the total of seconds by phase, or else a text; long texts are cut."""
    if isinstance(content, bool):
        text = "yes" if content else "no"
    elif isinstance(content, int) and abs(content) < 10**30:
        text = f"{content:,}"
    elif isinstance(content, int) and abs(content) >= 10**MOST_CHARACTERS:
        text = f"{Decimal(content):.12g}"  # Python refuses to convert integers of thousands of digits
    elif isinstance(content, float):
        text = f"{content:.6g}"
    else:
        text = f"{content.get('total', 0.0):.3g} s" if isinstance(content, Mapping) else str(content)
    return escape(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…")


def first_words(words: Sequence[str], most: int = 12) -> str:
    """The first names, and the number of the others."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more:,} more" if more > 0 else "")


def first_pairs(labels: Mapping[str, str]) -> str:
    """The first pairs of an assignment as ``name=label``, and the number of the others."""
    return first_words([f"{name}={label}" for name, label in labels.items()])
