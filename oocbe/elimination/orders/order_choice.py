"""A chosen elimination order and its predicted cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OrderChoice:
    """An elimination order and its predicted cost.

    Attributes
    ----------
    order : variable indices, the one eliminated first at the front.
    heuristic : method that found it, such as ``min-fill``, or the file it was read from.
    candidates : number of evaluated orders.
    separators : variable indices of each bucket's separator, by elimination position.
    predicted_rows : estimated feasible rows of each message, by elimination position.
    cell_costs : cost of each bucket as a complete table, in rows; empty if rows alone count.
    """

    order: tuple[int, ...]
    heuristic: str
    candidates: int
    separators: tuple[tuple[int, ...], ...]
    predicted_rows: tuple[float, ...]
    cell_costs: tuple[float, ...] = ()

    def cost(self, first: int = 0, ratio: float = 1.0) -> float:
        """Cost, in rows, of the buckets from ``first`` on, if rows are ``ratio`` times the predicted ones."""
        if not self.cell_costs:
            return ratio * sum(self.predicted_rows[first:])
        pairs = zip(self.predicted_rows[first:], self.cell_costs[first:], strict=True)
        return sum(min(ratio * rows, cells) for rows, cells in pairs)
