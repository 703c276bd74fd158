"""What the readers of belief networks in XML share: words, and probabilities with the line of a wrong one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, UnsupportedError, amount
from oocbe.formats.bif import LARGEST_TABLE, MOST_DIMENSIONS
from oocbe.formats.text import Text
from oocbe.formats.xml import Element


def word_of(element: Element) -> str:
    """What an element says, in one line."""
    return " ".join(element.text.decode("utf-8", "replace").split())


def unsupported(element: Element, what: str) -> UnsupportedError:
    """The error to raise about an element that is not read."""
    return UnsupportedError(f"{element.file.path}, line {element.line}: {what} is not supported")


def check_shape(element: Element, shape: tuple[int, ...]) -> None:
    """Refuse a table that is too large."""
    if math.prod(shape) > LARGEST_TABLE or len(shape) > MOST_DIMENSIONS:
        raise unsupported(element, f"a table of {math.prod(shape):,} probabilities over {len(shape)} variables")


def probabilities(element: Element, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """An element's numbers, float64 of a shape, of which the last axis is that of the variable ``name``."""
    numbers, what = Text(element.file.path, element.text), f"a probability of {name!r}"
    try:
        if len(numbers) != math.prod(shape):
            raise numbers.error(
                0, f"found {amount(len(numbers), 'probability')} of {name!r}, expected {math.prod(shape)}"
            )
        values = numbers.floats(0, len(numbers), what)
        if (values < 0).any():
            bad = int(np.argmax(values < 0))
            raise numbers.error(bad, f"found {numbers.shown(bad)}, expected {what}, at least 0")
    except FormatError as error:
        line = element.file.line_of(element.start) + (error.line or 1) - 1
        raise FormatError(error.path, line, str(error).partition(": ")[2]) from None
    return values.reshape(shape)
