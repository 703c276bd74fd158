"""``oocbe stress``: an operator out of core on synthetic tables of any size, checked against the closed form."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocbe.cli.failures import guarded
from oocbe.cli.flags import BackendFlag, DebugFlag, JsonFlag, TraceFlag, check_targets
from oocbe.cli.output import note, print_json, print_rows, seconds
from oocbe.cli.trace import written_to

if TYPE_CHECKING:
    from oocbe.synth.answers import ResultCheck
    from oocbe.synth.tables import SyntheticTable
    from oocbe.tables.stored import StoredTable

OPERATORS = ("join-maximise", "join-sum", "maximise")
"""Operators that can be put under stress."""

EXIT_WRONG = 1
"""Exit code where a row of a result is wrong."""

FIRST_ROWS = 20_000
"""Rows of the tables that the operator is applied to first, so that what a process does once is told apart."""


@guarded
def stress(
    rows: Annotated[str, typer.Option("--rows", metavar="NUMBER", help="Rows of each table, such as 1e8.")] = "1e7",
    operator: Annotated[str, typer.Option("--operator", help=f"One of {', '.join(OPERATORS)}.")] = OPERATORS[0],
    memory: Annotated[str | None, typer.Option("--memory", metavar="BYTES", help="Limit such as 256MiB.")] = None,
    workdir: Annotated[
        Path | None, typer.Option("--workdir", help="Folder for all tables, removed at the end.")
    ] = None,
    backend: BackendFlag = None,
    group_rows: Annotated[int, typer.Option("--group-rows", min=1, help="Mean rows of a group.")] = 32,
    sizes: Annotated[str, typer.Option("--sizes", help="Sizes of groups: uniform or zipf.")] = "uniform",
    in_order: Annotated[bool, typer.Option("--sorted", help="Tables in the order of their keys.")] = False,
    streams: Annotated[int | None, typer.Option("--streams", min=1, help="Pieces at work at a time.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the tables' values.")] = 0,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="WORKERS", help="Processes that share the work: 2, cpus:4, gpus, gpus:2."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="ADDRESS", help="Dask scheduler of workers: tls://node1:8786; or slurm:FILE, jobs."
        ),
    ] = None,
    trace: TraceFlag = None,
    json: JsonFlag = False,
    debug: DebugFlag = False,
) -> int:
    """Make synthetic tables, apply an operator out of core, and check every row of the result."""
    from oocbe.cli.synth import whole_number
    from oocbe.cluster.choice import working_with
    from oocbe.errors import UsageError
    from oocbe.settings.machine import peak_memory, resident_memory
    from oocbe.settings.option_values import parse_bytes, parse_cluster, parse_workers
    from oocbe.synth.segments import write_table
    from oocbe.synth.tables import SyntheticTable
    from oocbe.tables.scratch import ScratchFolder, default_parent

    check_targets(trace=trace)
    if operator not in OPERATORS:
        raise UsageError(f"--operator: {operator!r} is not one of {', '.join(OPERATORS)}")
    count = whole_number("--rows", rows)
    shape: dict[str, Any] = {
        "rows": count,
        "groups": max(1, count // group_rows),
        "sizes": sizes,
        "is_sorted": in_order,
    }
    specs = [SyntheticTable(**shape, own=own, seed=2 * seed + i) for i, own in enumerate("ab")]
    first_rows = min(count, FIRST_ROWS)
    first_shape: dict[str, Any] = {"rows": first_rows, "groups": max(1, first_rows // group_rows)}
    first_specs = [replace(spec, **first_shape) for spec in specs]
    used = slice(0, 1 if operator == "maximise" else 2)
    asked = parse_workers("--workers", workers), parse_cluster("--cluster", cluster), parse_bytes("--memory", memory)
    with closing(ScratchFolder(workdir or default_parent())) as scratch, working_with(*asked):
        folder = scratch.path
        settings = {"memory": memory, "scratch": folder, "backend": backend, "streams": streams}
        tables = [spec.write(folder / f"first-{spec.own}") for spec in first_specs[used]]
        begin = time.perf_counter()
        _apply(operator, tables, first_specs, folder / "first-result", settings)
        started = time.perf_counter()
        tables = [write_table(spec, folder / spec.own) for spec in specs[used]]
        note(f"made {', '.join(map(repr, tables))} in {time.perf_counter() - started:.1f} s")
        before = resident_memory()
        written = time.perf_counter()
        with written_to(trace, f"oocbe stress --rows {rows} --operator {operator}"):
            result = _apply(operator, tables, specs, folder / "result", settings)
        ended = time.perf_counter()
        note(f"made {result!r} in {ended - written:.1f} s")
        verdict = _check(operator, result, specs)
        rows_in = sum(table.rows for table in tables)
        report: dict[str, object] = {
            "operator": operator,
            "rows_in": rows_in,
            "rows_out": result.rows,
            "bytes_in": sum(table.nbytes for table in tables),
            "stored_bytes_in": sum(table.stored_bytes for table in tables),
            "bytes_out": result.nbytes,
            "stored_bytes_out": result.stored_bytes,
            "seconds_starting": started - begin,
            "seconds_making": written - started,
            "seconds": ended - written,
            "seconds_checking": time.perf_counter() - ended,
            "rows_in_per_second": round(rows_in / (ended - written)),
            "memory_before": before,
            "peak_memory": peak_memory(),
            "fault": verdict.fault,
        }
    if json:
        print_json({"schema_version": 1, **report})
    else:
        print_rows((key.replace("_", " "), _text(key, content)) for key, content in report.items())
        print_rows([("answer", "wrong" if verdict.fault else "right: every row checked against the closed form")])
    return EXIT_WRONG if verdict.fault else 0


def _text(key: str, content: object) -> str:
    """A figure of the report for people."""
    from oocbe.tables.table import format_bytes

    if isinstance(content, float):
        return seconds(content)
    if isinstance(content, int):
        return format_bytes(content) if "bytes" in key or "memory" in key else f"{content:,}"
    return "" if content is None else str(content)


def _apply(
    operator: str, tables: list[StoredTable], specs: list[SyntheticTable], output: Path, settings: dict[str, Any]
) -> StoredTable:
    from oocbe.table_algebra import join_maximise, join_sum, maximise

    made: StoredTable
    if operator == "maximise":
        made = maximise(tables[0], specs[0].own, output=output, **settings)
    elif operator == "join-sum":
        made = join_sum(tables[0], tables[1], output=output, **settings)
    else:
        made = join_maximise(tables[0], tables[1], "e", output=output, **settings)
    return made


def _check(operator: str, result: StoredTable, specs: list[SyntheticTable]) -> ResultCheck:
    from oocbe.synth.answers import check_joined, check_marginalised

    return check_marginalised(result, specs[0]) if operator == "maximise" else check_joined(result, *specs)
