"""What options may be given as, for type checkers: unknown names and values of other types are found before a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring
    from oocbe.model.settings.option_values import Gap

Seconds: TypeAlias = float | str
"""Seconds, or text that says them."""

Bytes: TypeAlias = int | str | None
"""Bytes, or text such as ``2GiB``; None: no limit of its own."""

Flag: TypeAlias = bool | str
"""A truth value, or text such as ``yes``."""


class OwnValues(TypedDict, total=False):
    """Those options of :class:`OptionValues` that say how one process works."""

    order: str | Path
    order_seconds: Seconds
    seed: int | str
    dominance: Flag
    memory: Bytes
    workdir: str | Path | None
    semiring: Semiring | str | None
    chunk_rows: int | str
    backend: str
    device_memory: Bytes
    streams: int | str | None
    piece_rows: int | str | None
    bounds: str
    incumbent_seconds: Seconds
    bound_seconds: Seconds
    ub: float | str | None
    time_limit: Seconds | None
    gap: Gap | float | str
    max_disk: Bytes
    resume: Flag
    tables: str


class OptionValues(OwnValues, total=False):
    """Keyword arguments that are options; :class:`~oocbe.model.settings.options.SolveOptions` says what each means.

    All may be left out, and all may be text, which is parsed as that of a flag.
    """

    workers: int | str | None
    cluster: str | None
