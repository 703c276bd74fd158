"""What is told of a complete table before its values are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.tables.layout import Layout


class Cells(Protocol):
    """What is told of a complete table that is written: a :class:`~oocbe.tables.complete.CompleteTable` has it."""

    @property
    def layout(self) -> Layout:
        """Scope and sizes."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""

    @property
    def semiring(self) -> Semiring:
        """Of the values."""


@dataclass(frozen=True)
class DenseTableHeader:
    """A complete table's scope, dtype and semiring while its values are not there yet."""

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
