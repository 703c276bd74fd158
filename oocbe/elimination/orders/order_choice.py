"""An elimination order that was chosen, and what it is predicted to cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OrderChoice:
    """An elimination order and what it is predicted to cost.

    Attributes
    ----------
    order : variable indices, the one eliminated first at the front.
    heuristic : how it was found, such as ``min-fill``, or the file it was read from.
    candidates : orders judged.
    separators : variable indices of each bucket's separator, by elimination position.
    predicted_rows : estimated feasible rows of each message, by elimination position.
    cell_costs : what each bucket costs as a complete table, in rows; none where rows alone count.
    """

    order: tuple[int, ...]
    heuristic: str
    candidates: int
    separators: tuple[tuple[int, ...], ...]
    predicted_rows: tuple[float, ...]
    cell_costs: tuple[float, ...] = ()

    def cost(self, first: int = 0, ratio: float = 1.0) -> float:
        """What the buckets from that at ``first`` on cost, in rows, where there are ``ratio`` times those predicted."""
        if not self.cell_costs:
            return ratio * sum(self.predicted_rows[first:])
        pairs = zip(self.predicted_rows[first:], self.cell_costs[first:], strict=True)
        return sum(min(ratio * rows, cells) for rows, cells in pairs)
