"""What a solve's options come to: the engine that computes buckets, and the memory that messages may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocbe.machine import resident_memory
from oocbe.operators.bucket_engine import BucketEngine

if TYPE_CHECKING:
    from oocbe.deadline import Deadline
    from oocbe.options import SolveOptions

LEAST_BUDGET = 1 << 24
"""Bytes that messages may take even where the process itself has used up the memory limit."""

LEAST_SHARE = 0.25
"""Share of the memory limit that messages may take even then."""


def engine_for(options: SolveOptions, deadline: Deadline) -> BucketEngine:
    """What computes the buckets; errors as for :class:`BucketEngine`."""
    return BucketEngine(
        options.backend,
        options.device_memory,
        deadline=deadline,
        streams=options.streams,
        piece_rows=options.piece_rows,
    )


def message_memory(options: SolveOptions) -> int:
    """Bytes that messages and the work on them may take: what the limit leaves beside the process as it is now."""
    limit = options.memory_limit
    return max(LEAST_BUDGET, limit - resident_memory(), int(limit * LEAST_SHARE))
