"""The nodes of a YAML file with the line of each: mappings, sequences and plain values, nothing else.

Files are read event by event, so that time limits are heeded, and nothing is ever constructed but texts, numbers and
truth values. Tags, anchors and aliases (which can name code, or grow into gigabytes) are refused, and so are keys that
come twice, of which parsers silently keep one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from oocbe.errors import FormatError
from oocbe.formats.text import DEEPEST, LOOK_STEP, SHOWN_CHARACTERS, Text, shown
from oocbe.runtime.deadline import looked

Scalar = str | int | float | bool | None
"""Types of a plain value."""


@dataclass(eq=False)
class YamlNode:
    """A mapping, a sequence or a plain value.

    file, line : where it begins. kind : ``mapping``, ``list`` or ``value``.
    text : of a value, as it is written. is_plain : whether it is written without quotes.
    items : of a list; of a mapping, keys and values in turn.
    """

    file: Text
    line: int
    kind: str
    text: str = ""
    is_plain: bool = True
    items: list[YamlNode] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[YamlNode, YamlNode]]:
        """Keys and values of a mapping, in the file's order."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))

    def error(self, message: str) -> FormatError:
        """The error to raise about it."""
        return FormatError(self.file.path, self.line, message)

    def shown(self) -> str:
        """Its kind, for messages."""
        return f"a {self.kind}" if self.kind != "value" else shown(self.text)

    @property
    def scalar(self) -> Scalar:
        """A value as YAML 1.1 understands it; without quotes, ``yes`` is True and ``~`` is None."""
        return resolved(self.text) if self.is_plain else self.text

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written where a mapping or list may be."""
        return self.kind == "value" and self.scalar is None

    def mapping(self, what: str, known: Iterable[str] | None = None) -> dict[str, YamlNode]:
        """A mapping's nodes by key, empty where nothing is written; FormatError unless keys are among the known ones.

        what : the mapping, for messages. known : None where any key may be.
        """
        if self.is_empty:
            return {}
        if self.kind != "mapping":
            raise self.error(f"found {self.shown()}, expected {what}, a mapping")
        found: dict[str, YamlNode] = {}
        for key, value in self.pairs:
            if key.kind != "value":
                raise key.error(f"found {key.shown()} as a key of {what}, expected a name")
            if key.text in found:
                raise key.error(f"found {key.shown()} twice in {what}, expected it once")
            if known is not None and key.text not in known:
                raise key.error(f"found {key.shown()} in {what}, expected one of {', '.join(known)}")
            found[key.text] = value
        return found

    def sequence(self, what: str) -> list[YamlNode]:
        """A list's nodes; empty where nothing is written."""
        if self.is_empty:
            return []
        if self.kind != "list":
            raise self.error(f"found {self.shown()}, expected {what}, a list")
        return self.items

    def word(self, what: str) -> str:
        """A value's text, which is not empty."""
        if self.kind != "value" or not self.text:
            raise self.error(
                f"found {self.shown() if self.text or self.kind != 'value' else 'nothing'}, expected {what}"
            )
        return self.text

    def number(self, what: str) -> int | float:
        """A value that is a number, infinity included, which digits do not say."""
        found = self.scalar if self.kind == "value" else None
        if isinstance(found, bool) or not isinstance(found, int | float):
            # In YAML 1.1, 1e3 is a string: a float needs a point.
            try:
                found = float(self.text) if self.is_plain and self.kind == "value" else None
            except ValueError:
                found = None
        is_too_large = found in (math.inf, -math.inf) and any(map(str.isdecimal, self.text))
        if found is None or found != found or is_too_large:
            raise self.error(f"found {self.shown()}, expected {what}, a number")
        return found


def parse_yaml(file: Text) -> YamlNode:
    """The root of a file; FormatError with the line where it is no YAML, or has what is not read."""
    import yaml  # only for files of this format

    content = file.decoded()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _root(file, yaml.parse(content, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, [error.context, error.problem]))
        raise FormatError(file.path, None if mark is None else mark.line + 1, f"no YAML: {what}") from None
    except yaml.YAMLError as error:
        raise FormatError(file.path, None, f"no YAML: {error}") from None


def _root(file: Text, events: Iterator[Any]) -> YamlNode:
    inside: list[YamlNode] = []
    root: YamlNode | None = None
    for event in looked(events, LOOK_STEP):
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            inside.pop()
            continue
        if kind not in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent", "AliasEvent"):
            continue
        _refuse_names(file, line, event, kind)
        if kind == "ScalarEvent":
            node = YamlNode(file, line, "value", event.value, event.implicit[0])
        else:
            node = YamlNode(file, line, "mapping" if kind == "MappingStartEvent" else "list")
        if inside:
            inside[-1].items.append(node)
        elif root is None:
            root = node
        else:
            raise FormatError(file.path, line, "found a second document, expected the end of the file")
        if node.kind != "value":
            inside.append(node)
            if len(inside) > DEEPEST:
                raise node.error(f"found nodes {len(inside)} deep, expected at most {DEEPEST}")
    if root is None:
        raise FormatError(file.path, 1, "found nothing but comments, expected a mapping")
    return root


def _refuse_names(file: Text, line: int, event: Any, kind: str) -> None:
    def refuse(what: str, name: str) -> NoReturn:
        raise FormatError(file.path, line, f"found the {what} {name[:SHOWN_CHARACTERS]!r}, expected plain values only")

    if kind == "AliasEvent":
        refuse("alias", f"*{event.anchor}")
    if event.anchor is not None:
        refuse("anchor", f"&{event.anchor}")
    if event.tag is not None:
        refuse("tag", str(event.tag))


@lru_cache(maxsize=1 << 12)
def resolved(text: str) -> Scalar:
    """Value of a text without quotes by YAML 1.1; dates and the like stay texts."""
    import yaml

    resolver = yaml.SafeLoader("")
    try:
        tag = resolver.resolve(yaml.ScalarNode, text, (True, False))
        found = resolver.construct_object(yaml.ScalarNode(tag, text))
    except (ValueError, yaml.YAMLError):
        return text
    finally:
        resolver.dispose()
    return found if found is None or isinstance(found, str | int | float | bool) else text
