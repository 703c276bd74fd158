"""All settings of a solve in one frozen object, and the three ways to fill it.

Precedence: argument over flag over environment variable over default. The command line's flags arrive as overrides of
:meth:`SolveOptions.from_environment`, a caller's arguments as overrides of whatever object they pass, so that every
way goes through the same validation. Unknown names are refused wherever they come from: a misspelt option that is
silently ignored gives a result that its user misreads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack

from oocbe.errors import UsageError
from oocbe.model.settings.machine import default_memory_limit
from oocbe.model.settings.option_types import OptionValues
from oocbe.model.settings.option_values import (
    BACKENDS,
    NO_GAP,
    WORKERS,
    Gap,
    Parser,
    one_of,
    optional,
    parse_boolean,
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
    parse_workers,
)

if TYPE_CHECKING:
    from oocbe.model.semiring import Semiring

ENVIRONMENT_PREFIX = "OOCBE_"
"""Prefix of the environment variables of options."""

OTHER_VARIABLES = {
    "OOCBE_DATA": "folder of the real instances of tests and benchmarks",
    "OOCBE_THREADS": "number of threads of the CPU kernels",
    "OOCBE_INTERPRETED_SECONDS": "processor seconds of interpreted loops before compilation (default 4, if fast)",
    "OOCBE_MAX_INPUT_BYTES": "limit on the size of a decompressed input file",
    "OOCBE_FAULT": "place where tests kill the process",
}
"""Environment variables with the same prefix that are not options of a solve."""

LONG = "solve plan bound propagate verify inspect convert join compile query uai dcop stress"
"""Commands with long computations."""

EVERY = f"{LONG} trace simulate synth warm-up doctor"
"""Commands with a result to report."""

RESUMED = ("optimum", "mpe")
"""Tasks whose runs are saved in a work folder; other tasks only have scratch folders there."""

Value = TypeVar("Value")


class Option(NamedTuple):
    """An option of a solve, apart from its name, type and default, which are those of its field in SolveOptions.

    parse : makes its value. commands : names of the commands that have the flag. metavar : of the flag's value.
    help : its meaning, for the help of commands, the man page and the page of options.
    shown : the default as text; empty: the value. page : of the documentation, with more about it.
    also : further spellings of the flag. given_as : types that callers may give besides the field's own and text.
    is_own : whether it is about the work of one process.
    """

    parse: Parser
    commands: str
    metavar: str | None
    help: str
    shown: str = ""
    page: str = ""
    also: tuple[str, ...] = ()
    given_as: str = ""
    is_own: bool = True


def _option(default: Value, parse: Parser, commands: str, metavar: str | None = None, **more: Any) -> Value:
    """The field of an option; its type for checkers is that of the default."""
    made: Value = field(default=default, metadata={"option": Option(parse, commands, metavar, **more)})
    return made


@dataclass(frozen=True)
class SolveOptions:
    """Settings of a solve. Strings are accepted for every field and parsed; the attributes hold the parsed values.

    Each field is the one declaration of an option: ``tools/write_reference.py`` makes of them the types that callers
    may give, the page of options and the man page; the flags of commands are made of them when a command is called.

    Raises
    ------
    UsageError : a value that a field does not accept; the message names the option.
    """

    # fmt: off
    order: str = _option("auto", parse_order, "solve plan bound compile uai", given_as="Path", help=
        "Elimination order: auto, min-degree, min-fill, weighted-min-fill, linear, an order finder of another package, "
        "or a file of variable names.")
    order_seconds: float = _option(0.5, parse_seconds, "solve plan bound compile uai", "SECONDS", page="limits", help=
        "Time limit of the search for an order; 0 tries each heuristic once. Up to 0.5 s, it ends earlier where "
        "elimination is expected to. Without bounds, it takes up to 20 times as long while elimination would.")
    seed: int = _option(0, parse_integer, "solve plan bound compile uai stress synth simulate", "INTEGER", help=
        "Seed of every random choice; the same seed and settings without time limits give the same result.")
    dominance: bool = _option(True, parse_boolean, "solve plan", help=
        "Drop rows that another row dominates. The optimum does not depend on it.")
    memory: int | None = _option(None, optional(parse_bytes), EVERY, "BYTES", shown="80 % of the memory",
        page="limits", also=("--host-memory",), help=
        "Memory limit of the process, such as 2GiB, including reading, but without the program itself. Tables have at "
        "least a quarter of it. Beyond the limit, messages go to disk and buckets are joined in pieces.")
    workdir: Path | None = _option(None, optional(parse_path), "solve plan", "FOLDER", shown="none", page="long-runs",
        help=
        "Run directory: every message is published in it, so that a killed solve can be resumed. Without it, messages "
        "that exceed the memory go to a temporary folder.")
    semiring: Semiring | None = _option(None, optional(parse_semiring), "solve plan bound convert",
        shown="the problem's own", help=
        "Semiring of the values, such as counting, min-sum or max-sum.")
    chunk_rows: int = _option(1 << 20, parse_count, "solve", "INTEGER", help=
        "Rows in a chunk of a stored table, at least 1.")
    backend: str = _option("auto", one_of(*BACKENDS), "solve bound uai propagate join query dcop stress", page="gpu",
        help=
        "auto, cpu or cuda; auto computes large tables on a CUDA device if there is one.")
    device_memory: int | None = _option(None, optional(parse_bytes), "solve bound dcop", "BYTES", shown="all of it",
        page="gpu", help=
        "Limit on the memory of each device, such as 16GiB.")
    gpus: int | None = _option(None, optional(parse_count), "solve join stress", "INTEGER", shown="all visible ones",
        page="gpu", help=
        "Maximum number of GPUs of this process. They share tables that are streamed through them, and buckets that "
        "are joined in pieces or for long.")
    streams: int | None = _option(None, optional(parse_count), "solve plan stress", "INTEGER",
        shown="one per thread, 2 to 16; fewer in little memory", help=
        "Number of pieces in progress at a time, for buckets that do not fit in memory.")
    piece_rows: int | None = _option(None, optional(parse_count), "solve plan", "INTEGER", shown="as many as fit", help=
        "Rows of a piece: buckets with larger tables or results are joined in pieces of this size.")
    bounds: str = _option("auto", one_of("auto", "none", "constant", "lp", "local-polytope"), "solve plan",
        page="how-it-works", help=
        "Bound that prunes rows if costs are minimised or values maximised: auto, none, constant, lp (a linear "
        "relaxation) or local-polytope. auto selects the best bound for the problem, and adds depth-first "
        "search if costs are over several variables; another value, or an order other than auto, excludes these.")
    incumbent_seconds: float = _option(1.0, parse_seconds, "solve bound", "SECONDS", help=
        "Time limit of the search for good assignments before elimination, and again between attempts at elimination; "
        "0: no search.")
    bound_seconds: float = _option(20.0, parse_seconds, "solve", "SECONDS", help=
        "Time limit of the bound before elimination, and again between attempts at elimination; 0: no bound. It ends "
        "earlier if the bound is tight, or if elimination without it is expected to be faster.")
    ub: int | float | None = _option(None, optional(parse_number), "solve", "VALUE", shown="none", help=
        "Upper bound: only assignments with a value (Problem.evaluate) strictly below it count (min-sum).")
    time_limit: float | None = _option(None, optional(parse_seconds), LONG, "SECONDS", shown="none", page="limits",
        help=
        "Time limit in seconds, including reading. The command ends with the best bound and assignment, or its other "
        "results so far.")
    gap: Gap = _option(NO_GAP, parse_gap, "solve", "GAP", given_as="float", help=
        "Largest accepted gap between bound and value: a difference such as 5, or a share such as 1%.")
    max_disk: int | None = _option(None, optional(parse_bytes), "solve plan bound uai dcop", "BYTES",
        shown="free space", help=
        "Disk limit of the command, such as 50GiB.")
    resume: bool = _option(False, parse_boolean, "solve", page="long-runs", help=
        "Continue the run in --workdir, if there is one.")
    tables: str = _option("auto", one_of("auto", "incomplete", "complete"), "solve plan bound dcop", help=
        "Form of messages: incomplete (feasible rows with keys), complete (a value for every assignment, without "
        "bounds and dominance), or auto (the cheaper form by density).")
    float_counts: bool = _option(False, parse_boolean, "solve", page="tasks", help=
        "Count in floating-point numbers: faster for weights with many digits, and rounded.")
    workers: str | None = _option(None, parse_workers, "solve plan dcop stress simulate", "WORKERS", shown="none",
        page="cluster", given_as="int", is_own=False, help=
        "Worker processes on this host for large buckets, pieces of tables, or agents: 2, cpus:4, gpus (one per GPU) "
        "or gpus:2; 0: none.")
    cluster: str | None = _option(None, optional(parse_cluster), "solve stress", "ADDRESS", shown="none",
        page="cluster", is_own=False, help=
        "Address of a Dask scheduler with workers, such as tls://node1:8786; or slurm:FILE, the settings of jobs to "
        "submit for --workers.")
    # fmt: on

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            object.__setattr__(self, name, option.parse(name, getattr(self, name)))

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
        """Requested number of workers; None without workers, or if GPUs or a cluster decide it."""
        found = WORKERS.fullmatch(self.workers or "")
        return int(found[2]) if found is not None and found[2] else None

    @property
    def number_of_workers(self) -> int:
        """:attr:`worker_count`, where a number is needed: UsageError if there is none."""
        if self.worker_count is None:
            raise UsageError(f"workers: {self.workers or 'none'} is no number of processes; give one, such as 8")
        return self.worker_count

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of all options."""
        return tuple(OPTIONS)

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
        return OPTIONS[name].parse(spelling or name, value)

    def with_overrides(self, **settings: Unpack[OptionValues]) -> SolveOptions:
        """These options with some replaced; an unknown name is refused with the nearest known one."""
        return self.replaced(settings)

    def replaced(self, settings: Mapping[str, object]) -> SolveOptions:
        """The same from names and values that no type checker has seen."""
        values: dict[str, Any] = dict(settings)
        for name in values:
            if name not in self.names():
                how = "; tasks are functions, such as oocbe.count" if name == "task" else suggest(name, self.names())
                raise UsageError(f"unknown option {name!r}{how}")
        return replace(self, **values)

    def to_json(self) -> dict[str, object]:
        """All options as JSON types; the semiring by name, the work folder as text."""
        return {
            f.name: value if isinstance(value := getattr(self, f.name), str | int | float | None) else str(value)
            for f in fields(self)
        }


OPTIONS: dict[str, Option] = {f.name: f.metadata["option"] for f in fields(SolveOptions)}
"""All options of a solve by name."""

SolveOptions.__doc__ = "\n    ".join(
    [f"{SolveOptions.__doc__}\n    Attributes", "----------", *(f"{name} : {o.help}" for name, o in OPTIONS.items())]
)


def default_text(name: str) -> str:
    """The default of an option as text."""
    value = getattr(SolveOptions, name)
    own = ("off", "on")[value] if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
    return OPTIONS[name].shown or own


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or else all of them."""
    import difflib

    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
