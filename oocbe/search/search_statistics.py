"""Resources used by a bounded search."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Statistics:
    """Resources used by a bounded solve.

    Attributes
    ----------
    seconds : by phase. attempts : abandoned runs.
    order, width, total_rows, dtype : of the last finished run; fixed variables come first in the order.
    largest_rows : of any finished run.
    bounds : the bound used, a sentence. stopped : why the search ended before the proof, a sentence, or empty.
    spoiled : the best assignment without the linear constraints that elimination left out violates one of them.
    """

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("order", "bounds", "forward", "backward"), 0.0)
    )
    attempts: int = 0
    order: tuple[int, ...] = ()
    width: int = 0
    total_rows: int = 0
    dtype: str = ""
    largest_rows: int = 0
    bounds: str = ""
    stopped: str = ""
    spoiled: bool = False
