"""What a solve's options come to: the engine that computes buckets, and the memory that messages may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.execution.cluster.workers import current as current_workers
from oocbe.model.settings.machine import give_back_large_blocks, resident_memory
from oocbe.model.settings.tuning import tuning
from oocbe.tables.table import format_bytes

if TYPE_CHECKING:
    from oocbe.model.settings.options import SolveOptions
    from oocbe.runtime.deadline import Deadline


def engine_for(options: SolveOptions, deadline: Deadline) -> BucketEngine:
    """What computes the buckets; errors as for :class:`BucketEngine`."""
    if options.memory is not None:
        give_back_large_blocks()
    return BucketEngine(
        options.backend,
        options.device_memory,
        deadline=deadline,
        streams=options.streams,
        piece_rows=options.piece_rows,
        workers=current_workers(),
    )


def message_memory(options: SolveOptions) -> int:
    """Bytes that messages and the work on them may take: what the limit leaves beside the process as it is now.

    Where that is too little to work with, they may take more, and the limit may not be kept.
    """
    return memory_within(_own_limit(options))


def memory_within(limit: int) -> int:
    """Bytes that messages and the work on them may take in a process that may take so many in all."""
    given = tuning().message_bytes
    return max(_left_to_messages(limit), _least_for_messages(limit)) if given is None else given


def memory_warning(options: SolveOptions) -> str:
    """What to tell where the limit leaves too little to work with; empty otherwise."""
    limit = _own_limit(options)
    least = _least_for_messages(limit)
    if _left_to_messages(limit) >= least:
        return ""
    return (
        f"the memory limit of {format_bytes(limit)} may not be kept: the program itself takes "
        f"{format_bytes(resident_memory())} of it, and tables are given {format_bytes(least)} all the same"
    )


def _own_limit(options: SolveOptions) -> int:
    """Bytes that this process may take: the limit, or its share where workers have the rest."""
    workers = current_workers()
    return options.memory_limit if workers is None else int(options.memory_limit * workers.own_share)


def _left_to_messages(limit: int) -> int:
    return limit - min(tuning().headroom, int(limit * tuning().headroom_share)) - resident_memory()


def _least_for_messages(limit: int) -> int:
    return max(tuning().least_bytes, int(limit * tuning().least_share))
