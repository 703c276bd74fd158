"""What is still to be done with the rows of a bucket's join before they are its message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.row_pruning.dominance import SubstitutionDominance
from oocbe.tables.table import Table


@dataclass(frozen=True)
class BucketFinalizer:
    """What is done with the rows of a join.

    Attributes
    ----------
    values : gives rows as the message has them, piece by piece; can be sent to another process.
    where : the bucket, for messages. may_cancel : whether terms of a sum may have both signs.
    dominance : drops dominated rows, or None. separator, subtree : of the message, as dominance takes them.
    """

    where: str
    may_cancel: bool
    values: Callable[[Table], Table]
    dominance: SubstitutionDominance | None
    separator: tuple[int, ...]
    subtree: NDArray[np.uint8]


def unchanged(table: Table) -> Table:
    """Rows as they were joined."""
    return table
