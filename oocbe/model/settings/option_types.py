"""Types of options as callers give them, so that type checkers find unknown names and wrong values.

Written by ``tools/write_reference.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.model.settings.option_values import Gap


class OwnValues(TypedDict, total=False):
    """The options of :class:`OptionValues` for the work of one process."""

    order: str | Path
    order_seconds: float | str
    seed: int | str
    dominance: bool | str
    memory: int | str | None
    workdir: Path | str | None
    semiring: Semiring | str | None
    chunk_rows: int | str
    backend: str
    device_memory: int | str | None
    gpus: int | str | None
    streams: int | str | None
    piece_rows: int | str | None
    bounds: str
    incumbent_seconds: float | str
    bound_seconds: float | str
    ub: float | str | None
    time_limit: float | str | None
    gap: Gap | str | float
    max_disk: int | str | None
    resume: bool | str
    tables: str
    float_counts: bool | str


class OptionValues(OwnValues, total=False):
    """Options as keyword arguments, with the meanings of :class:`~oocbe.model.settings.options.SolveOptions`.

    All may be left out, and all may be text, which is parsed as that of a flag.
    """

    workers: str | int | None
    cluster: str | None
