"""The elements of an XML file, with the line of each at hand; nothing but elements, attributes and text.

A document type could define entities that grow into gigabytes, or that name other files: one that declares any is
refused, one of elements and attributes alone is passed over, and what it may name is not fetched. Only the five
entities that every XML file has are read. Text stays a slice of the file's bytes until it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.text import DEEPEST, LOOK_STEP, Text, shown
from oocbe.runtime.deadline import looked

_NAME = rb"[A-Za-z_][A-Za-z0-9_.:-]*"
_OPEN = re.compile(rb"<(" + _NAME + rb")((?:\s+" + _NAME + rb"\s*=\s*(?:\"[^\"<]*\"|'[^'<]*'))*)\s*(/?)>")
_CLOSE = re.compile(rb"</(" + _NAME + rb")\s*>")
_ATTRIBUTE = re.compile(rb"(" + _NAME + rb")\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_BETWEEN = re.compile(rb"<!--.*?-->|<\?.*?\?>", re.DOTALL)
_BEFORE_ROOT = re.compile(
    rb"(?>\s+|<!--.*?-->|<\?.*?\?>)*+<!DOCTYPE\s+" + _NAME + rb"(?:\s+(?:SYSTEM|PUBLIC)(?:\s+\"[^\"<>]*\")+)?\s*"
    rb"(?:\[(?>[^<\]]+|<!--.*?-->|<!(?:ELEMENT|ATTLIST)\s[^<>]*>)*+\]\s*)?>",
    re.DOTALL,
)
"""The text before the root element, up to a document type that declares only elements and attributes."""

_ENTITY = re.compile(rb"&([^;\s]{0,40};?)")
_KNOWN = {b"lt;": b"<", b"gt;": b">", b"amp;": b"&", b"quot;": b'"', b"apos;": b"'"}
"""Entities that every file has."""


@dataclass(eq=False)
class Element:
    """An element as in the file, with the ``offset`` of its first byte, and where its text begins and ends."""

    file: Text
    tag: str
    attributes: dict[str, str]
    offset: int
    children: list[Element] = field(default_factory=list)
    start: int = 0
    end: int = 0

    @property
    def text(self) -> bytes:
        """The text within it, its entities replaced."""
        content = self.file.data[self.start : self.end]
        if b"<" in content:
            content = _BETWEEN.sub(b" ", content)
        return _replaced(self.file, content, self.start)

    @property
    def line(self) -> int:
        """1-based line on which it begins."""
        return self.file.line_of(self.offset)

    def error(self, message: str) -> FormatError:
        """The error to raise about it."""
        return FormatError(self.file.path, self.line, message)

    def unsupported(self, what: str, remedy: str = "") -> UnsupportedError:
        """The error to raise about it where it has a part that is not supported."""
        return UnsupportedError(f"{self.file.path}, line {self.line}: {what} is not supported{remedy}")

    def in_text(self, error: FormatError) -> FormatError:
        """An error about its text alone, with the line in the file."""
        line = self.file.line_of(self.start) + (error.line or 1) - 1
        return FormatError(error.path, line, str(error).partition(": ")[2])

    def child(self, tag: str) -> Element | None:
        """Its only child of a name, or None; FormatError where there are several."""
        found = [child for child in self.children if child.tag == tag]
        if len(found) > 1:
            raise found[1].error(f"found a second <{tag}> in <{self.tag}>, expected one")
        return found[0] if found else None

    def parts(self, tag: str) -> list[Element]:
        """Children of its only child of a name; none without that."""
        found = self.child(tag)
        return [] if found is None else found.children

    def needed(self, tag: str) -> Element:
        """Its only child of a name; FormatError where there is none."""
        found = self.child(tag)
        if found is None:
            raise self.error(f"found a <{self.tag}> without <{tag}>, expected one")
        return found


def parse_xml(file: Text) -> Element:
    """The root element; FormatError with the line where elements do not nest, or something else is in the file."""
    root: Element | None = None
    inside: list[Element] = []
    document_type = _BEFORE_ROOT.match(file.data)
    before = 0 if document_type is None else document_type.end()
    for start, end in looked(_tags(file, before), LOOK_STEP):
        is_end = file.data.startswith(b"</", start)
        if not (is_end and inside and not inside[-1].children):
            _expect_blank(file, before, start)
        before = end
        if is_end:
            closing = _CLOSE.fullmatch(file.data, start, end)
            if closing is None or not inside or closing[1].decode() != inside[-1].tag:
                expected = f"</{inside[-1].tag}>" if inside else "no end tag"
                raise _error(file, start, f"found {shown(file.data[start:end])}, expected {expected}")
            element = inside.pop()
            element.end = element.start if element.children else start
            continue
        opening = _OPEN.fullmatch(file.data, start, end)
        if opening is None:
            raise _error(file, start, f"found {shown(file.data[start:end])}, expected a tag")
        element = Element(file, opening[1].decode(), _attributes(file, opening), start, start=end, end=end)
        if inside:
            inside[-1].children.append(element)
        elif root is not None:
            raise element.error(f"found a second root <{element.tag}>, expected the end of the file")
        else:
            root = element
        if not opening[3]:
            inside.append(element)
            if len(inside) > DEEPEST:
                raise element.error(f"found elements {len(inside)} deep, expected at most {DEEPEST}")
    if inside:
        raise _error(file, len(file.data), f"the file ends, expected </{inside[-1].tag}>")
    _expect_blank(file, before, len(file.data))
    if root is None:
        raise _error(file, 0, "found no element, expected an XML file")
    return root


def _expect_blank(file: Text, start: int, end: int) -> None:
    rest = _BETWEEN.sub(b"", file.data[start:end]).strip()
    if rest:
        raise _error(file, start, f"found {shown(rest)} outside the elements that have text, expected an element")


def _tags(file: Text, begin: int) -> Iterator[tuple[int, int]]:
    """First byte and the byte after the last of each tag from a byte on; comments and instructions are passed over."""
    data = file.data
    place = data.find(b"<", begin)
    while place >= 0:
        if data.startswith(b"<!--", place):
            end = _after(file, place, b"-->", "a comment")
        elif data.startswith(b"<?", place):
            end = _after(file, place, b"?>", "an instruction")
        elif data.startswith(b"<!", place):
            raise _error(
                file,
                place,
                f"found {shown(data[place : place + 60])}, expected elements only: document types of more than "
                "elements and attributes, entities and character data sections are not read",
            )
        else:
            end = _after(file, place, b">", "a tag")
            opening = _OPEN.match(data, place)
            end = end if opening is None else opening.end()
            yield place, end
        place = data.find(b"<", end)


def _after(file: Text, place: int, mark: bytes, what: str) -> int:
    end = file.data.find(mark, place)
    if end < 0:
        raise _error(file, place, f"the file ends within {what}, expected {mark.decode()}")
    return end + len(mark)


def _attributes(file: Text, opening: re.Match[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(opening[2]):
        name = match[1].decode()
        if name in found:
            raise _error(file, opening.start(), f"found the attribute {name} twice, expected it once")
        value = match[2] if match[2] is not None else match[3]
        found[name] = _replaced(file, value, opening.start()).decode("utf-8", errors="replace")
    return found


def _replaced(file: Text, content: bytes, offset: int) -> bytes:
    if b"&" not in content:
        return content

    def replacement(match: re.Match[bytes]) -> bytes:
        if match[1] not in _KNOWN:
            raise _error(file, offset + match.start(), f"found the entity {shown(match[0])}, expected &lt; or the like")
        return _KNOWN[match[1]]

    return _ENTITY.sub(replacement, content)


def _error(file: Text, offset: int, message: str) -> FormatError:
    return FormatError(file.path, file.line_of(offset), message)
