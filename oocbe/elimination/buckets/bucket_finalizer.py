"""Post-processing that turns the rows of a bucket's join into its message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.row_pruning.dominance import SubstitutionDominance
from oocbe.tables.table import Table


@dataclass(frozen=True)
class BucketFinalizer:
    """Post-processing of the rows of a join.

    Attributes
    ----------
    values : converts joined rows to the message's rows, piece by piece; can be pickled.
    where : name of the bucket, for error messages. may_cancel : whether terms of a sum may have both signs.
    dominance : drops dominated rows, or None. separator, subtree : of the message, as passed to dominance.
    """

    where: str
    may_cancel: bool
    values: Callable[[Table], Table]
    dominance: SubstitutionDominance | None
    separator: tuple[int, ...]
    subtree: NDArray[np.uint8]


def unchanged(table: Table) -> Table:
    """Return the joined rows unchanged."""
    return table
