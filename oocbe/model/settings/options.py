"""All settings of a solve in one frozen object, and the three ways to fill it.

Precedence: argument over flag over environment variable over default. The command line's flags arrive as overrides of
:meth:`SolveOptions.from_environment`, a caller's arguments as overrides of whatever object they pass, so that every
way goes through the same validation. Unknown names are refused wherever they come from: a misspelt option that is
silently ignored gives a result that its user misreads.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Unpack

from oocbe.errors import UsageError
from oocbe.model.semiring import Semiring
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_types import OptionValues
from oocbe.model.settings.option_values import (
    NO_GAP,
    WORKERS,
    Gap,
    parse_backend,
    parse_boolean,
    parse_bounds,
    parse_bytes,
    parse_cluster,
    parse_count,
    parse_gap,
    parse_integer,
    parse_number,
    parse_order,
    parse_path,
    parse_seconds,
    parse_semiring,
    parse_tables,
    parse_time_limit,
    parse_workers,
)

ENVIRONMENT_PREFIX = "OOCBE_"
"""How the variables of options begin."""

OTHER_VARIABLES = {
    "OOCBE_DATA": "folder of real instances that tests and benchmarks look in",
    "OOCBE_THREADS": "number of threads of the CPU kernels",
    "OOCBE_MAX_INPUT_BYTES": "largest decompressed input file that is read",
    "OOCBE_FAULT": "where tests kill the process",
}
"""Environment variables with our prefix that other parts read; they are not options of a solve."""


@dataclass(frozen=True)
class SolveOptions:
    """Settings of a solve. Strings are accepted for every field and parsed; the attributes hold the parsed values.

    Attributes
    ----------
    order : ``auto``, ``min-degree``, ``min-fill``, ``weighted-min-fill``, ``linear``, or the path of a file that lists
        variable names in the order in which they are eliminated.
    order_seconds : time limit in seconds for the randomised search of an order; 0 tries each heuristic once. Before
        elimination without bounds the search may take 20 times that, while elimination is expected to take longer.
    seed : of every random choice; the same seed and time-independent settings give the same order.
    dominance : whether substitution dominance drops rows. The optimum is the same with and without.
    memory : limit in bytes for tables and buffers, or None for 80 % of what the control group or machine has.
    workdir : run directory, in which every message is published so that a killed solve can be resumed; or None for
        a temporary folder, used only when memory is short.
    max_disk : limit in bytes on what is written there, or None for what the disk has.
    resume : whether to go on with the run that ``workdir`` holds, if any.
    semiring : solve in this semiring, or None for the problem's own.
    chunk_rows : rows in a chunk of a stored table, at least 1.
    backend : ``cpu``, ``cuda``, or ``auto``: large buckets on a CUDA device where there is one.
    device_memory : limit in bytes on device memory, or None for all of it.
    streams : pieces of a bucket at work at a time where it does not fit in memory, or None for one a thread.
    piece_rows : most rows of a table in a piece, and of what comes of it; buckets with more are joined in pieces. None:
        as many as memory has room for.
    bounds : which lower bound rows are held against, where costs are minimised or values maximised: ``auto``, ``none``,
        ``constant``, ``lp`` (a linear relaxation) or ``local-polytope``.
    incumbent_seconds, bound_seconds : time shares for the search of good assignments and for the bound, before
        elimination; where elimination does not end soon, both get as much again between its attempts. 0: none.
    ub : only assignments strictly better than this count, or None for all.
    time_limit : seconds after which the best bound and assignment so far are returned, or None.
    gap : how far apart they may stay; a difference such as 5 or a part such as ``1%``.
    tables : form of the messages: ``auto``, the cheaper one by density; ``incomplete``, feasible rows with their keys;
        ``complete``, a value for every assignment (then there are no bounds, and dominance drops nothing).
    workers : processes of this host that large buckets are cut into segments for: a number, ``cpus:4``, ``gpus`` (one
        for each) or ``gpus:2``; None: this process works alone.
    cluster : address of a Dask scheduler whose workers do that, or ``slurm:FILE``, settings of jobs for workers.

    Raises
    ------
    UsageError : a value that a field does not accept; the message names the option.
    """

    order: str = "auto"
    order_seconds: float = 0.5
    seed: int = 0
    dominance: bool = True
    memory: int | None = None
    workdir: Path | None = None
    semiring: Semiring | None = None
    chunk_rows: int = 1 << 20
    backend: str = "auto"
    device_memory: int | None = None
    streams: int | None = None
    piece_rows: int | None = None
    bounds: str = "auto"
    incumbent_seconds: float = 1.0
    bound_seconds: float = 20.0
    ub: int | float | None = None
    time_limit: float | None = None
    gap: Gap = NO_GAP
    max_disk: int | None = None
    resume: bool = False
    tables: str = "auto"
    workers: str | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        for name, parse in _PARSERS.items():
            object.__setattr__(self, name, parse(name, getattr(self, name)))

    @property
    def memory_limit(self) -> int:
        """Bytes that tables and buffers may take: the option, or what follows from the machine."""
        return default_memory_limit() if self.memory is None else self.memory

    @property
    def has_workers(self) -> bool:
        """Whether large buckets are shared out to workers."""
        return self.workers is not None or self.cluster is not None

    @property
    def worker_count(self) -> int | None:
        """How many workers are asked for; None where none are, or as many as there are GPUs or a cluster has."""
        found = WORKERS.fullmatch(self.workers or "")
        return int(found[2]) if found is not None and found[2] else None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of all options."""
        return tuple(f.name for f in fields(cls))

    @classmethod
    def from_mapping(cls, settings: Mapping[str, object]) -> SolveOptions:
        """Options from names and values (parsed where they are strings); an unknown name is refused."""
        return cls().replaced(settings)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> SolveOptions:
        """Options from ``OOCBE_`` variables, such as ``OOCBE_ORDER_SECONDS=2``; None reads this process's own.

        An empty variable counts as unset. A variable with our prefix that nothing reads is refused.
        """
        environment = os.environ if environment is None else environment
        known = {ENVIRONMENT_PREFIX + name.upper(): name for name in cls.names()}
        settings: dict[str, object] = {}
        for variable, text in environment.items():
            if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
                continue
            if variable not in known:
                raise UsageError(
                    f"unknown environment variable {variable}{suggest(variable, [*known, *OTHER_VARIABLES])}"
                )
            if text.strip():
                settings[known[variable]] = cls.parsed(known[variable], text, variable)
        return cls.from_mapping(settings)

    @staticmethod
    def parsed(name: str, value: object, spelling: str | None = None) -> object:
        """The value of an option; UsageError, which calls it by ``spelling`` (None: by its name), where it has none."""
        return _PARSERS[name](spelling or name, value)

    def with_overrides(self, **settings: Unpack[OptionValues]) -> SolveOptions:
        """These options with some replaced; an unknown name is refused with the nearest known one."""
        return self.replaced(settings)

    def replaced(self, settings: Mapping[str, object]) -> SolveOptions:
        """The same from names and values that no type checker has seen."""
        values: dict[str, Any] = dict(settings)
        for name in values:
            if name not in self.names():
                raise UsageError(f"unknown option {name!r}{suggest(name, self.names())}")
        return replace(self, **values)

    def to_json(self) -> dict[str, object]:
        """All options as JSON types; the semiring by name, the work folder as text."""
        return {
            f.name: value if isinstance(value := getattr(self, f.name), str | int | float | None) else str(value)
            for f in fields(self)
        }


_PARSERS: dict[str, Callable[[str, object], object]] = {
    "order": parse_order,
    "order_seconds": parse_seconds,
    "seed": parse_integer,
    "dominance": parse_boolean,
    "memory": parse_bytes,
    "workdir": parse_path,
    "semiring": parse_semiring,
    "chunk_rows": lambda name, value: parse_integer(name, value, least=1),
    "backend": parse_backend,
    "device_memory": parse_bytes,
    "streams": parse_count,
    "piece_rows": parse_count,
    "bounds": parse_bounds,
    "incumbent_seconds": parse_seconds,
    "bound_seconds": parse_seconds,
    "ub": parse_number,
    "time_limit": parse_time_limit,
    "gap": parse_gap,
    "max_disk": parse_bytes,
    "resume": parse_boolean,
    "tables": parse_tables,
    "workers": parse_workers,
    "cluster": parse_cluster,
}
"""What makes the value of each option from what is given."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or else all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
