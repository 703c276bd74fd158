"""Options of mini-buckets, checked before any computation."""

from __future__ import annotations

from collections.abc import Sequence

from oocbe.bounds.mini_buckets.mini_buckets_partition import PARTITIONS
from oocbe.errors import UsageError
from oocbe.model.settings.options import SolveOptions

AUTO = "auto"
"""In place of a z, or of a method of division: chosen automatically."""


def check_wishes(options: SolveOptions, z: Sequence[int | str], partition: str) -> None:
    """Raise :class:`UsageError` for options that :func:`oocbe.bounds.mini_buckets.mini_buckets_bound.bound` rejects."""
    if partition not in (AUTO, *PARTITIONS):
        raise UsageError(f"partition: {partition!r} is none of {AUTO}, {', '.join(PARTITIONS)}")
    if not z:
        raise UsageError("z: give at least one number, or auto")
    for wanted in z:
        if wanted != AUTO and (isinstance(wanted, str) or wanted < 1):
            raise UsageError(f"z: {wanted!r} is neither {AUTO} nor a number of variables, at least 1")
    idle = "mini-buckets have no use for it; leave it out"
    whole = "mini-buckets are not joined in pieces; leave it out (a lower z takes less memory)"
    for name, why in (("ub", idle), ("workdir", idle), ("piece_rows", whole), ("streams", whole)):
        if getattr(options, name) is not None:
            raise UsageError(f"{name}: {why}")
    if options.resume:
        raise UsageError("resume: a run of mini-buckets is not kept, so there is nothing to resume")
