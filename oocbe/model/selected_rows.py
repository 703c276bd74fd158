"""The row of each part of a problem that an assignment selects, found for all parts at once.

A SPOT5 problem has thousands of constraints of one to three rows. A few NumPy calls for each would take longer than
reading the file, and searches evaluate assignments often; therefore rows of small parts of one arity are concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oocbe.model.model_checks import FEW_ROWS

if TYPE_CHECKING:
    from oocbe.model.parts import Constraint, Function


@dataclass(frozen=True)
class _Rows:
    """Concatenated rows of parts of one arity.

    Attributes
    ----------
    scopes, tuples : int64 (rows, arity), the part's scope for each of its rows, and the rows.
    part, place : int64 (rows,), index of the row's part, and of the row within the part.
    """

    scopes: NDArray[np.int64]
    tuples: NDArray[np.int64]
    part: NDArray[np.int64]
    place: NDArray[np.int64]


class SelectedRows:
    """Finds the row of each part selected by an assignment; rows must be unique within each part."""

    def __init__(self, parts: Sequence[Constraint | Function]) -> None:
        self._count = len(parts)
        self._large: list[tuple[int, Constraint | Function]] = []
        small: dict[int, list[tuple[int, Constraint | Function]]] = {}
        for number, part in enumerate(parts):
            if part.scope and len(part.tuples) < FEW_ROWS:
                small.setdefault(len(part.scope), []).append((number, part))
            else:
                self._large.append((number, part))
        self._groups = [_end_to_end(members) for members in small.values()]

    def of(self, assignment: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each part, int64 (parts,), -1 if no row matches.

        Parameters
        ----------
        assignment : int64 (variables,), value indices.
        """
        found = np.full(self._count, -1, dtype=np.int64)
        for group in self._groups:
            hits = np.flatnonzero((group.tuples == assignment[group.scopes]).all(axis=1))
            found[group.part[hits]] = group.place[hits]
        for number, part in self._large:
            hits = np.flatnonzero((part.tuples == assignment[list(part.scope)]).all(axis=1))
            if len(hits):
                found[number] = hits[0]
        return found


def _end_to_end(members: Sequence[tuple[int, Constraint | Function]]) -> _Rows:
    lengths = np.array([len(part.tuples) for _, part in members])
    ends = np.cumsum(lengths)
    return _Rows(
        scopes=np.repeat(np.array([part.scope for _, part in members], dtype=np.int64), lengths, axis=0),
        tuples=np.concatenate([part.tuples for _, part in members]),
        part=np.repeat(np.array([number for number, _ in members], dtype=np.int64), lengths),
        place=np.arange(ends[-1]) - np.repeat(ends - lengths, lengths),
    )
