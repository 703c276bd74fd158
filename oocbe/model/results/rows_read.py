"""Number of rows of stored tables read by workers, and how many of them another worker had written."""

from __future__ import annotations

from typing import NamedTuple

_UNITS = ((10**9, "billion "), (10**6, "million "), (10**3, "thousand "))
"""Units for displaying row counts, and their names."""


class RowsRead(NamedTuple):
    """Number of rows read by workers.

    Attributes
    ----------
    rows : in total; repeated reads count repeatedly.
    changed_owner : of these, rows that another worker of the same cluster had written.
    """

    rows: int = 0
    changed_owner: int = 0

    def and_also(self, other: RowsRead) -> RowsRead:
        """Sum of both."""
        return RowsRead(self.rows + other.rows, self.changed_owner + other.changed_owner)

    def without(self, other: RowsRead) -> RowsRead:
        """Difference to an earlier count."""
        return RowsRead(self.rows - other.rows, self.changed_owner - other.changed_owner)

    @property
    def summary(self) -> str:
        """Both numbers for display; empty if nothing was read."""
        if not self.rows:
            return ""
        size, unit = next(((size, unit) for size, unit in _UNITS if self.rows >= size), (1, ""))
        changed, rows = (f"{count / size:.1f}" if size > 1 else f"{count}" for count in (self.changed_owner, self.rows))
        share = self.changed_owner / self.rows
        return f"{changed} of {rows} {unit}rows read by workers had been written by another one ({share:.0%})"


NOTHING_READ = RowsRead()
"""No rows."""
