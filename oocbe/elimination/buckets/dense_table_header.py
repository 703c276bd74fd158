"""Header of a complete table (scope, dtype, semiring), available before its values are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.tables.layout import Layout


class Cells(Protocol):
    """Metadata of a complete table to be written; :class:`~oocbe.tables.complete.CompleteTable` satisfies it."""

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
    """Scope, dtype and semiring of a complete table whose values are not computed yet."""

    layout: Layout
    dtype: np.dtype[Any]
    semiring: Semiring
