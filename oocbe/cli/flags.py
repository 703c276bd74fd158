"""Flags shared by several commands, declared once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oocbe.formats import Model
    from oocbe.model.problem import Problem
    from oocbe.model.settings.options import SolveOptions

ProblemFile = Annotated[Path, typer.Argument(metavar="FILE", help="The problem, or -; .gz and .xz are decompressed.")]
FormatFlag = Annotated[str | None, typer.Option("--format", help="Format of FILE, where its suffix does not tell.")]
EvidenceFlag = Annotated[
    list[str] | None,
    typer.Option("--evidence", metavar="FILE|NAME=VALUE", help="Fix variables: a .evid file, or a pair; repeatable."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, all else on standard error.")]
DebugFlag = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

OrderFlag = Annotated[
    str | None,
    typer.Option("--order", help="auto, min-degree, min-fill, weighted-min-fill, linear, or a file with an order."),
]
OrderSecondsFlag = Annotated[
    str | None, typer.Option("--order-seconds", metavar="SECONDS", help="Time to search for a good order.")
]
SeedFlag = Annotated[str | None, typer.Option("--seed", metavar="INTEGER", help="Seed of random choices.")]
DominanceFlag = Annotated[
    bool | None, typer.Option("--dominance/--no-dominance", help="Drop rows by substitution dominance.")
]
MemoryFlag = Annotated[
    str | None,
    typer.Option(
        "--memory", "--host-memory", metavar="BYTES", help="Limit such as 2GiB; otherwise 80 % of what there is."
    ),
]
WorkdirFlag = Annotated[
    str | None, typer.Option("--workdir", metavar="FOLDER", help="Keep the run here, to be resumed if it is killed.")
]
MaxDiskFlag = Annotated[
    str | None, typer.Option("--max-disk", metavar="BYTES", help="Limit on what is written, such as 50GiB.")
]
ResumeFlag = Annotated[
    bool | None, typer.Option("--resume/--no-resume", help="Go on with the run in --workdir, if there is one.")
]
SemiringFlag = Annotated[str | None, typer.Option("--semiring", help="Solve in this semiring, such as counting.")]
ChunkRowsFlag = Annotated[
    str | None, typer.Option("--chunk-rows", metavar="INTEGER", help="Rows in a chunk of a table on disk.")
]
BackendFlag = Annotated[
    str | None, typer.Option("--backend", help="auto, cpu, or cuda; auto takes large tables to a CUDA device.")
]
DeviceMemoryFlag = Annotated[
    str | None, typer.Option("--device-memory", metavar="BYTES", help="Limit on device memory, such as 16GiB.")
]
StreamsFlag = Annotated[
    str | None, typer.Option("--streams", metavar="INTEGER", help="Pieces at work at a time where memory is short.")
]
PieceRowsFlag = Annotated[
    str | None,
    typer.Option("--piece-rows", metavar="INTEGER", help="Join buckets with more rows in pieces of so many."),
]
BoundsFlag = Annotated[
    str | None, typer.Option("--bounds", help="Prune rows by: auto, none, constant, lp, local-polytope.")
]
IncumbentSecondsFlag = Annotated[
    str | None, typer.Option("--incumbent-seconds", metavar="SECONDS", help="Time share to search for assignments.")
]
BoundSecondsFlag = Annotated[
    str | None, typer.Option("--bound-seconds", metavar="SECONDS", help="Time share for the bound.")
]
UpperBoundFlag = Annotated[
    str | None, typer.Option("--ub", metavar="VALUE", help="Only strictly better assignments count.")
]
TimeLimitFlag = Annotated[
    str | None, typer.Option("--time-limit", metavar="SECONDS", help="Then end with the best bound and assignment.")
]
TablesFlag = Annotated[
    str | None, typer.Option("--tables", help="Form of messages: auto (the cheaper by density), incomplete, complete.")
]
GapFlag = Annotated[
    str | None, typer.Option("--gap", metavar="GAP", help="End when bound and value are this near, such as 5 or 1%.")
]

WorkersFlag = Annotated[
    str | None,
    typer.Option("--workers", metavar="WORKERS", help="Processes that share large buckets: 2, cpus:4, gpus, gpus:2."),
]
ClusterFlag = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="ADDRESS", help="Dask scheduler of workers: tls://node1:8786; or slurm:FILE, jobs."
    ),
]

TraceFlag = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write what was done when, for oocbe trace and Perfetto; .gz too."),
]

TaskFlag = Annotated[
    str,
    typer.Option(
        "--task",
        help="optimum, mpe, count, count-optimal, kbest, logz, marginals, min-marginals; from count on, with all rows.",
    ),
]
KFlag = Annotated[
    int | None, typer.Option("--k", metavar="INTEGER", help="How many assignments the task kbest finds. [default: 10]")
]
TemperatureFlag = Annotated[
    float | None,
    typer.Option(
        "--temperature", metavar="NUMBER", help="Of the tasks logz and marginals; inf weighs all alike. [default: 1]"
    ),
]
CertificateFlag = Annotated[
    Path | None,
    typer.Option("--certificate", help="Write a proof of the optimum, which oocbe verify and others can check."),
]

DEFAULTS: dict[str, str] = {
    "order": "auto",
    "order_seconds": "0.5",
    "seed": "0",
    "dominance": "on",
    "memory": "80 % of what there is",
    "workdir": "none",
    "semiring": "the problem's own",
    "chunk_rows": "1048576",
    "backend": "auto",
    "device_memory": "all of it",
    "streams": "one a thread",
    "piece_rows": "as many as fit",
    "bounds": "auto",
    "incumbent_seconds": "1",
    "bound_seconds": "20",
    "ub": "none",
    "time_limit": "none",
    "gap": "0",
    "max_disk": "what is free",
    "resume": "off",
    "tables": "auto",
    "workers": "none",
    "cluster": "none",
}
"""Flag and help of each option of a solve. A flag that is not given is None, and the environment variable is used."""


def _say_defaults() -> None:
    """Add default and environment variable to the help of each option's flag."""
    for flag in [flag for name, flag in globals().items() if name.endswith("Flag")]:
        info = flag.__metadata__[0]
        # Typer stores the first name as a default until the flag is a parameter of a command.
        names = [d.split("/")[0].lstrip("-").replace("-", "_") for d in (info.default, *(info.param_decls or ()))]
        for name in names[:1]:
            if name in DEFAULTS:
                info.help = f"{info.help} [default: {DEFAULTS[name]}; OOCBE_{name.upper()}]"


_say_defaults()


def options_from(parameters: Mapping[str, object]) -> SolveOptions:
    """Options from the environment, overridden by the given flags.

    Parameters
    ----------
    parameters : of a command, by name. Those with the name of an option are flags, None if not given.
    """
    from oocbe.model.settings.options import SolveOptions

    flags = {
        name: SolveOptions.parsed(name, parameters[name], f"--{name.replace('_', '-')}")
        for name in SolveOptions.names()
        if parameters.get(name) is not None
    }
    return SolveOptions.from_environment().replaced(flags)


def load(path: Path, format_name: str | None, evidence: list[str] | None = None) -> Problem:
    """Read a problem for a command."""
    from oocbe.api.facade import read_finite

    return read_finite(path, format_name, evidence or None)


def load_model(path: Path, format_name: str | None) -> Model:
    """Read the model in a file, unchanged, for a command."""
    from oocbe.formats import read_model

    return read_model(path, format_name)


def check_targets(
    problem: Path | None = None,
    workdir: Path | None = None,
    solution: Path | None = None,
    trace: Path | None = None,
    certificate: Path | None = None,
    metrics: Path | None = None,
    report: Path | None = None,
    output: Path | None = None,
) -> None:
    """Check, before a run of perhaps hours, for files that would lose its result or input, or conflict with it.

    workdir : a run directory, which must have no other files; None if it is only for scratch folders.

    Raises
    ------
    UsageError : names the flag, and the problem with its file.
    """
    from oocbe.errors import UsageError

    named = (
        ("--solution", solution),
        ("--trace", trace),
        ("--certificate", certificate),
        ("--metrics", metrics),
        ("--report", report),
        ("--output", output),
    )
    targets = [(flag, target) for flag, target in named if target is not None]
    for flag, target in targets:
        if workdir is not None and target.resolve().is_relative_to(workdir.resolve()):
            raise UsageError(
                f"{flag} {target}: lies in the run's work folder, which holds nothing but the run; name another place"
            )
        folder = target.absolute().parent
        if not folder.is_dir():
            raise UsageError(f"{flag} {target}: the folder {folder} does not exist; make it first")
        if target.is_dir():
            raise UsageError(f"{flag} {target}: this is a folder; name a file")
        if problem is not None and _are_one_file(target, problem):
            raise UsageError(f"{flag} {target}: this is the problem itself; name another file")
    for (_, first), (flag, second) in itertools.combinations(targets, 2):
        if first.resolve() == second.resolve() and not first.is_char_device():
            what = "solution" if first is solution else "trace"
            raise UsageError(f"{flag} {second}: the {what} goes there; name another file")


def _are_one_file(one: Path, other: Path) -> bool:
    """Whether two paths name the same regular file; a terminal may be both input and output."""
    return one.is_file() and other.is_file() and one.samefile(other)
