"""Resources that a solve's options select: the engine that computes buckets, and the memory for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocbe.execution.cluster.workers import current as current_workers
from oocbe.model.results.numerals import format_bytes
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.process_memory import give_back_large_blocks, resident_memory

if TYPE_CHECKING:
    from oocbe.elimination.engine.bucket_engine import BucketEngine
    from oocbe.model.settings.options import SolveOptions


def engine_for(options: SolveOptions, deadline: Deadline) -> BucketEngine:
    """The engine that computes the buckets; errors as for :class:`BucketEngine`."""
    from oocbe.elimination.engine.bucket_engine import BucketEngine

    if options.memory is not None:
        give_back_large_blocks()
    return BucketEngine(
        options.backend,
        options.device_memory,
        deadline=deadline,
        streams=options.streams,
        piece_rows=options.piece_rows,
        workers=current_workers(),
        gpus=options.gpus,
    )


def message_memory(options: SolveOptions) -> int:
    """Bytes for messages and work on them: the limit minus the process's use, with a minimum that may exceed it."""
    return memory_within(_own_limit(options))


def memory_within(limit: int) -> int:
    """Bytes for messages and the work on them in a process with this total limit."""
    given = tuning().message_bytes
    return max(_left_to_messages(limit), _least_for_messages(limit)) if given is None else given


def memory_warning(options: SolveOptions) -> str:
    """Warning text if the limit leaves too little memory for work; otherwise empty."""
    limit = _own_limit(options)
    least = _least_for_messages(limit)
    if _left_to_messages(limit) >= least:
        return ""
    return (
        f"the memory limit of {format_bytes(limit)} may not be kept: the program itself takes "
        f"{format_bytes(resident_memory())} of it, and tables are given {format_bytes(least)} all the same"
    )


def _own_limit(options: SolveOptions) -> int:
    """Limit of this process in bytes: the whole limit, or its share if there are workers."""
    workers = current_workers()
    return options.memory_limit if workers is None else int(options.memory_limit * workers.own_share)


def _left_to_messages(limit: int) -> int:
    return limit - min(tuning().headroom, int(limit * tuning().small_share)) - resident_memory()


def _least_for_messages(limit: int) -> int:
    return max(tuning().least_bytes, int(limit * tuning().quarter_share))
