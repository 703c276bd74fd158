"""``oocbe synth``: problems and tables made from a seed.

``oocbe stress``: an operator out of core on synthetic tables of any size, checked against the closed form.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocbe.cli.convert import save
from oocbe.cli.flags import command
from oocbe.cli.output import note, print_answer, print_written, seconds, written_to
from oocbe.errors import UsageError
from oocbe.model.settings.machine import use_gpus
from oocbe.model.settings.options import SolveOptions
from oocbe.runtime.process_memory import peak_memory, resident_memory

if TYPE_CHECKING:
    from oocbe.stress.generated_operations import GeneratedOperation
    from oocbe.stress.segments import ResultCheck
    from oocbe.stress.tables import SyntheticTable
    from oocbe.tables.stored import StoredTable

synth_app = typer.Typer(
    help="Generate a problem, or a table, from a seed.",
    epilog="Example: oocbe synth grid grid.wcsp --side 6 --domain 4",
    no_args_is_help=True,
    rich_markup_mode=None,
)

OutFile = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, or -; .gz and .xz compress.")]
ToFlag = Annotated[str | None, typer.Option("--to", help="Format of OUT; default: by its suffix.")]
VariablesOption = Annotated[int, typer.Option("--variables", "-n", min=2, help="Number of variables.")]
DomainOption = Annotated[int, typer.Option("--domain", "-d", min=1, help="Values of each variable.")]
TightnessOption = Annotated[float, typer.Option("--tightness", help="Share of infeasible entries of each function.")]


@synth_app.command("random", epilog="Example: oocbe synth random random.wcsp -n 15 -d 10 --density 0.3")
@command("synth")
def random(
    out: OutFile,
    variables: VariablesOption = 10,
    domain: DomainOption = 10,
    density: Annotated[float, typer.Option(help="Share of all pairs that have a function.")] = 0.3,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a random network of binary cost functions."""
    from oocbe.stress import random_network

    save(random_network(variables, domain, density, tightness, options.seed), out, to)


@synth_app.command("scale-free", epilog="Example: oocbe synth scale-free network.wcsp -n 12 -d 10")
@command("synth")
def scale_free(
    out: OutFile,
    variables: VariablesOption = 10,
    domain: DomainOption = 10,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a scale-free (Barabási–Albert) network of binary cost functions."""
    from oocbe.stress import scale_free_network

    save(scale_free_network(variables, domain, tightness, options.seed), out, to)


@synth_app.command("grid", epilog="Example: oocbe synth grid grid.wcsp --side 6 --domain 4")
@command("synth")
def grid(
    out: OutFile,
    side: Annotated[int, typer.Option("--side", min=1, help="Variables per row and per column.")] = 10,
    domain: DomainOption = 10,
    tightness: TightnessOption = 0.5,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a square grid of binary cost functions."""
    from oocbe.stress import grid_network

    save(grid_network(side, domain, tightness, options.seed), out, to)


@synth_app.command("spot5", epilog="Example: oocbe synth spot5 daily.spot --photographs 120 --window 10")
@command("synth")
def spot5(
    out: OutFile,
    photographs: Annotated[int, typer.Option("--photographs", "-n", min=1, help="Number of photographs.")] = 100,
    window: Annotated[float, typer.Option(help="Distance, in photographs, of possible conflicts.")] = 8.0,
    stereo: Annotated[float, typer.Option(help="Share of stereo photographs.")] = 0.5,
    down_only: Annotated[float, typer.Option(help="Share of the others for camera 2 only.")] = 0.1,
    urgent: Annotated[float, typer.Option(help="Share of photographs with a weight of 1,000.")] = 0.1,
    ternary: Annotated[float, typer.Option(help="Ternary constraints per photograph.")] = 0.3,
    to: ToFlag = None,
    *,
    options: SolveOptions,
) -> None:
    """Generate a day of photographs like those of the SPOT5 satellite."""
    from oocbe.stress import Spot5Settings, spot5_day

    settings = Spot5Settings(photographs, window, stereo, down_only, urgent, ternary, options.seed)
    save(spot5_day(settings), out, to)


@synth_app.command("table", epilog="Example: oocbe synth table big --rows 1e8 --groups 1e6 --sizes zipf")
@command("synth")
def table(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of the table, which must not exist.")],
    rows: Annotated[str, typer.Option(metavar="NUMBER", help="Rows, such as 1e9.")] = "1e6",
    groups: Annotated[str, typer.Option(metavar="NUMBER", help="Combinations of shared values.")] = "1e4",
    variables: Annotated[int, typer.Option("--variables", "-n", min=3, help="Number of variables.")] = 3,
    domain: Annotated[int, typer.Option("--domain", "-d", min=2, help="Values of e, an even number.")] = 8,
    density: Annotated[float, typer.Option(help="Share of the values of the own variable that occur.")] = 0.25,
    sizes: Annotated[str, typer.Option(help="Sizes of groups: uniform or zipf.")] = "uniform",
    in_order: Annotated[bool, typer.Option("--sorted", help="Rows in the order of their keys, not scattered.")] = False,
    own: Annotated[str, typer.Option(help="Name of the own variable; differs in a table to join.")] = "a",
    dtype: Annotated[str, typer.Option(help="Dtype of the values: int32, int64, float32 or float64.")] = "int32",
    *,
    options: SolveOptions,
) -> None:
    """Generate a stored table of any size, chunk by chunk, on all cores."""
    import numpy as np

    from oocbe.stress.tables import SyntheticTable

    if dtype not in ("int32", "int64", "float32", "float64"):
        raise UsageError(f"--dtype: {dtype!r} is not int32, int64, float32 or float64")
    made = SyntheticTable(
        whole_number("--rows", rows),
        whole_number("--groups", groups),
        variables,
        domain,
        density,
        sizes,
        in_order,
        own,
        options.seed,
    )
    print_written(out, made.write(out, np.dtype(dtype)))


def whole_number(name: str, text: str) -> int:
    """A number of rows or groups, such as 1000000 or 1e6."""
    from decimal import Decimal, InvalidOperation

    try:
        number = Decimal(text)
        if number.is_finite() and number == number.to_integral_value() and 0 < number < 1 << 48:
            return int(number)
    except InvalidOperation:
        pass
    raise UsageError(f"{name}: {text!r} is not a whole number from 1 to 2^48; give one such as 1000000 or 1e6")


OPERATORS = ("join-maximise", "join-sum", "maximise")
"""Operators that can be tested."""

EXIT_WRONG = 1
"""Exit code if a row of a result is wrong."""

NOTE_SECONDS = 60.0
"""Time between two progress notes of a run, in seconds."""

FIRST_ROWS = 20_000
"""Rows of the tables of a first application of the operator, which separates one-time costs of the process."""


@command("stress")
def stress(
    rows: Annotated[str, typer.Option(metavar="NUMBER", help="Rows of each table, such as 1e8.")] = "1e7",
    operator: Annotated[str, typer.Option(help=f"One of {', '.join(OPERATORS)}.")] = OPERATORS[0],
    workdir: Annotated[
        Path | None, typer.Option(envvar="OOCBE_WORKDIR", help="Folder of all tables; they are removed at the end.")
    ] = None,
    group_rows: Annotated[int, typer.Option("--group-rows", min=1, help="Mean rows of a group.")] = 32,
    sizes: Annotated[str, typer.Option(help="Sizes of groups: uniform or zipf.")] = "uniform",
    in_order: Annotated[bool, typer.Option("--sorted", help="Tables in the order of their keys.")] = False,
    generated: Annotated[
        bool,
        typer.Option(
            "--generated",
            help="Generate rows when they are read, in order, and check the result's rows when they are computed.",
        ),
    ] = False,
    digest: Annotated[
        bool, typer.Option("--digest", help="Print a digest of the result's rows, independent of cuts and storage.")
    ] = False,
    *,
    options: SolveOptions,
    trace: Path | None,
) -> int:
    """Generate tables, apply an operator out of core, and check every row of the result."""
    from oocbe.api.facade import use_workers_of
    from oocbe.stress.tables import SyntheticTable
    from oocbe.tables.scratch import ScratchFolder, default_parent

    if operator not in OPERATORS:
        raise UsageError(f"--operator: {operator!r} is not one of {', '.join(OPERATORS)}")
    count = whole_number("--rows", rows)
    shape: dict[str, Any] = {
        "rows": count,
        "groups": max(1, count // group_rows),
        "sizes": sizes,
        "is_sorted": in_order or generated,
    }
    specs = [SyntheticTable(**shape, own=own, seed=2 * options.seed + i) for i, own in enumerate("ab")]
    about = f"oocbe stress --rows {rows} --operator {operator}"
    with closing(ScratchFolder(workdir or default_parent())) as scratch:
        settings = {
            "memory": options.memory,
            "scratch": scratch.path,
            "backend": options.backend,
            "streams": options.streams,
        }
        run = _Run(operator, specs, settings, group_rows, scratch.path)
        with use_workers_of(options), use_gpus(options.gpus):
            report, verdict = run.generated(trace, about) if generated else run.stored(trace, about)
        report["fault"] = verdict.fault
        if digest:
            report["digest"] = None if verdict.digest is None else f"{verdict.digest:016x}"
    shown = [(key.replace("_", " "), _text(key, content)) for key, content in report.items()]
    shown.append(("answer", "wrong" if verdict.fault else "right: every row checked against the closed form"))
    print_answer(lambda: {"schema_version": 1, **report}, shown, "wrong" if verdict.fault else "right")
    return EXIT_WRONG if verdict.fault else 0


@dataclass(frozen=True)
class _Run:
    operator: str
    specs: list[SyntheticTable]
    settings: dict[str, Any]
    group_rows: int
    folder: Path

    @property
    def used(self) -> list[SyntheticTable]:
        """Input tables of the operator."""
        return self.specs[: 1 if self.operator == "maximise" else 2]

    @property
    def first_specs(self) -> list[SyntheticTable]:
        """Small tables of the same form."""
        rows = min(self.specs[0].rows, FIRST_ROWS)
        return [replace(spec, rows=rows, groups=max(1, rows // self.group_rows)) for spec in self.specs]

    def stored(self, trace: Path | None, about: str) -> tuple[dict[str, object], ResultCheck]:
        """From tables on disk to a table on disk, which is checked."""
        from oocbe.execution.cluster.workers import read_by_workers, read_since
        from oocbe.stress.segments import check_joined, check_marginalised, write_table

        operator, specs, folder, used = self.operator, self.specs, self.folder, len(self.used)
        tables = [spec.write(folder / f"first-{spec.own}") for spec in self.first_specs[:used]]
        begin = time.perf_counter()
        _apply(operator, tables, self.first_specs, folder / "first-result", self.settings)
        started = time.perf_counter()
        tables = [write_table(spec, folder / spec.own) for spec in self.used]
        note(f"made {', '.join(map(repr, tables))} in {time.perf_counter() - started:.1f} s")
        before = resident_memory()
        written, read_before = time.perf_counter(), read_by_workers()
        with written_to(trace, about):
            result = _apply(operator, tables, specs, folder / "result", self.settings)
        ended = time.perf_counter()
        note(f"made {result!r} in {ended - written:.1f} s")
        if (read := read_since(read_before)) and read.summary:
            note(read.summary)
        verdict = check_marginalised(result, specs[0]) if operator == "maximise" else check_joined(result, *specs)
        report: dict[str, object] = {
            "operator": operator,
            "rows_in": sum(table.rows for table in tables),
            "rows_out": result.rows,
            "bytes_in": sum(table.nbytes for table in tables),
            "stored_bytes_in": sum(table.stored_bytes for table in tables),
            "bytes_out": result.nbytes,
            "stored_bytes_out": result.stored_bytes,
            "seconds_starting": started - begin,
            "seconds_making": written - started,
            "seconds": ended - written,
            "seconds_checking": time.perf_counter() - ended,
        }
        if read is not None:
            report |= {"rows_read_by_workers": read.rows, "rows_changed_owner": read.changed_owner}
        return report | self._pace(sum(table.rows for table in tables), ended - written, before), verdict

    def generated(self, trace: Path | None, about: str) -> tuple[dict[str, object], ResultCheck]:
        """From rows generated as they are read to a result checked as it is computed."""
        from oocbe.execution.cluster.workers import current
        from oocbe.stress.generated_operations import GeneratedOperation, digest_by, digest_here

        operation = GeneratedOperation(self.operator, tuple(self.used))
        first = GeneratedOperation(self.operator, tuple(self.first_specs[: len(self.used)]))
        begin = time.perf_counter()
        digest_here(first, self._context())  # the one-time work of the process
        before, started = resident_memory(), time.perf_counter()
        workers = current()
        with written_to(trace, about):
            if workers is None:
                verdict = digest_here(operation, self._context(), _notes(operation))
            else:
                settings = self.settings["backend"], self.settings["streams"]
                verdict = digest_by(workers, operation, self.folder, *settings, _notes(operation))
        seconds = time.perf_counter() - started
        report: dict[str, object] = {
            "operator": self.operator,
            "rows_in": operation.rows_in,
            "rows_out": verdict.rows,
            "seconds_starting": started - begin,
            "seconds": seconds,
        }
        return report | self._pace(operation.rows_in, seconds, before), verdict

    def _context(self) -> Any:
        from oocbe.algebra.inputs import Execution
        from oocbe.algebra.out_of_core.context import ExecutionContext
        from oocbe.execution.budget import Budget
        from oocbe.kernels import backend_for

        kernels = backend_for(sum(spec.rows for spec in self.used), self.settings["backend"])
        budget = Budget(self.settings["memory"])
        return ExecutionContext.within(
            kernels, budget, self.folder, Execution(streams=self.settings["streams"], backend=kernels)
        )

    @staticmethod
    def _pace(rows_in: int, seconds: float, before: int) -> dict[str, object]:
        return {"rows_in_per_second": round(rows_in / seconds), "memory_before": before, "peak_memory": peak_memory()}


def _notes(operation: GeneratedOperation) -> Callable[[int], None]:
    """A callback that periodically prints the number of result rows."""
    began = printed = time.monotonic()

    def report(rows: int) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= NOTE_SECONDS:
            printed, expected = now, operation.checker.expected
            note(f"{rows:,} of {expected:,} rows ({rows / expected:.1%}) after {seconds(now - began)}")

    return report


def _text(key: str, content: object) -> str:
    from oocbe.model.results.numerals import format_bytes

    if isinstance(content, float):
        return seconds(content) if key.startswith("seconds") else f"{content:.3f}"
    if isinstance(content, int):
        return format_bytes(content) if "bytes" in key or "memory" in key else f"{content:,}"
    return "" if content is None else str(content)


def _apply(
    operator: str, tables: list[StoredTable], specs: list[SyntheticTable], output: Path, settings: dict[str, Any]
) -> StoredTable:
    from oocbe.algebra.operators import join_maximise, join_sum, maximise

    made: StoredTable
    if operator == "maximise":
        made = maximise(tables[0], specs[0].own, output=output, **settings)
    elif operator == "join-sum":
        made = join_sum(tables[0], tables[1], output=output, **settings)
    else:
        made = join_maximise(tables[0], tables[1], "e", output=output, **settings)
    return made
