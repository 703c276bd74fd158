"""``oocbe solve``: the optimum of a problem, proven, and an assignment that has it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocbe.cli.flags import SolutionFlag, check_targets, command, load
from oocbe.cli.output import defer_signals, print_answer, times, warn, written_to
from oocbe.cli.progress import observer_for
from oocbe.cli.report import check_report, traced_for, write_report
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.certificates.proofs import ProofTask
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult

COMPETITION = Path("competition")
"""Output of the task ``count`` that is no file: lines of the model counting competition, on standard output."""


@command("solve", is_partial=True)
def solve(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="The problem, or -; .gz and .xz are decompressed. Several files are solved in parallel.",
        ),
    ],
    solution: SolutionFlag = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the answer of the task mpe, marginals or logz, as .MPE, .MAR and .PR of the UAI competitions; "
            "competition prints that of the task count as lines of the model counting competition.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", help="Write a proof of the optimum, for oocbe verify and other checkers."),
    ] = None,
    proof: Annotated[
        Path | None,
        typer.Option(
            "--proof",
            metavar="FILE",
            help="Write a proof of the optimum, or of bounds, in the format of VeriPB, of the formula in --opb; .gz "
            "compresses.",
        ),
    ] = None,
    opb: Annotated[
        Path | None,
        typer.Option("--opb", metavar="FILE", help="Write the problem as a pseudo-Boolean formula, for --proof."),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            help="optimum, mpe, count, count-optimal, kbest, logz, marginals or min-marginals; tasks from count on "
            "keep all rows.",
        ),
    ] = "optimum",
    k: Annotated[
        int | None,
        typer.Option("--k", metavar="INTEGER", help="Number of assignments of the task kbest. [default: 10]"),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="NUMBER",
            help="Temperature of the tasks logz and marginals; inf: equal weights. [default: 1]",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write an HTML page about the solve; needs matplotlib (the extra plot)."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", metavar="INTEGER", help="Number of files solved at a time. [default: one per core]"
        ),
    ] = None,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
    trace: Path | None,
    json: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Solve FILE exactly by bucket elimination.

    Several files are solved in parallel, each with a share of the memory; each has a line of output when it ends.

    Exit code 0 if the optimum is proven, 10 if the problem is infeasible, 11 if no assignment is better than --ub, 20
    if a limit was reached (with the best bound and assignment), before the --certificate was made, or if the --proof
    has a gap, 30 if memory or disk ran out, 40 for corrupt data, 2 for wrong usage or input.
    """
    file = files[0]
    if len(files) > 1:
        from oocbe.cli.many import solve_files

        of_one: dict[str, object] = {"solution": solution, "output": output, "certificate": certificate, "trace": trace}
        of_one |= {"proof": proof, "opb": opb}
        of_one |= {"report": report, "evidence": evidence, "k": k, "temperature": temperature, "verbose": verbose}
        of_one["task"] = task != "optimum"
        return solve_files(files, options, format, jobs, json, quiet, of_one)
    from oocbe.api.facade import use_workers_of
    from oocbe.api.tasks.verbs import RESUMED, why_from_the_start
    from oocbe.errors import EXIT_LIMIT, UnsupportedError, UsageError
    from oocbe.model.run_verb import read_and_work

    # Other tasks save no run: their work folder only has scratch folders.
    run_directory = options.workdir if task in RESUMED else None
    is_printed = output == COMPETITION and task == "count"
    if is_printed and json:
        raise UsageError(f"--output {output}: prints lines, and --json an object; leave one of them out")
    output = None if is_printed else output
    named = {"solution": solution, "trace": trace, "certificate": certificate, "report": report, "output": output}
    named |= {"proof": proof, "opb": opb}
    check_targets(file, run_directory, **named)
    check_report(report)
    about = f"oocbe solve {file.name}" + (f" --task {task}" if task != "optimum" else "")
    of_task = _settings_of(task, k, temperature)
    if why := why_from_the_start(task, options):
        warn(why)  # before a run of perhaps hours
    if output is not None:
        from oocbe.formats.solutions.verification import check_output

        check_output(output, task)
    if task != "optimum":
        if certificate is not None:
            raise UnsupportedError(f"--certificate: only the optimum has one, not the task {task}; leave out --task")
        if proof is not None or opb is not None:
            raise UnsupportedError(f"--proof, --opb: only the optimum has them, not the task {task}; leave out --task")
        with traced_for(report, trace) as traced:
            with written_to(traced, about):
                problem, answer = _run_task(
                    task, file, format, evidence, options, of_task, (quiet, verbose), solution, output, is_printed
                )
            if report is not None:
                write_report(report, problem, answer, options, traced)
        return answer.exit_code

    proofs: list[ProofTask] = []

    def read(path: Path) -> Problem:
        problem = load(path, format, evidence)
        if proof is not None or opb is not None:
            from oocbe.certificates.proofs import ProofTask

            proofs.append(ProofTask(problem, options, proof, opb))
        if certificate is not None:
            from oocbe.certificates.making import check_certifiable

            check_certifiable(path, problem, options, bool(evidence), format is not None)
        return problem

    def work(problem: Problem) -> Result:
        from oocbe.api.solving.solve import solve as run  # after reading: a malformed file need not wait for Numba

        defer_signals()
        with use_workers_of(options):
            return run(problem, options, observer)

    begin = time.perf_counter()
    with traced_for(report, trace) as traced:
        with written_to(traced, about), observer_for(quiet, verbose) as observer:
            problem, result = read_and_work(file, read, work, options.time_limit)
        if report is not None:
            write_report(report, problem, result, options, traced)
    if solution is not None and result.assignment is not None:
        from oocbe.formats.solutions.solution_file import write_solution

        write_solution(result, solution)  # before anything is printed, which may fail
    missing = unproven = ""
    left = None if options.time_limit is None else begin + options.time_limit - time.perf_counter()
    for task_of_proof in proofs:
        result, unproven = task_of_proof.write(result, left)
    if certificate is not None:
        from oocbe.certificates.making import write_certificate

        missing = write_certificate(file, problem, result, options, certificate, left)
    print_answer(result.to_json, _rows(result), result.status, result.value)
    if solution is not None and result.assignment is None:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    if missing:
        warn(f"no certificate was written to {certificate}: {missing}")
    if unproven:
        warn(unproven)
    return result.exit_code or (EXIT_LIMIT if missing or unproven else 0)


def _settings_of(task: str, k: int | None, temperature: float | None) -> dict[str, Any]:
    """The given settings of particular tasks; UsageError if this task does not use them."""
    from oocbe.errors import UsageError

    if task != "optimum":
        from oocbe.api.tasks.questions import TASKS

        if task not in TASKS:
            raise UsageError(f"--task {task}: no such task; known: optimum, {', '.join(TASKS)}")
    given: dict[str, Any] = {}
    for name, value, tasks in (("k", k, ("kbest",)), ("temperature", temperature, ("logz", "marginals"))):
        if value is None:
            continue
        if task not in tasks:
            raise UsageError(f"--{name} {value}: the task {task} has no use for it; it is for {' and '.join(tasks)}")
        given[name] = value
    return given


def _run_task(
    task: str,
    file: Path,
    format_name: str | None,
    evidence: list[str] | None,
    options: SolveOptions,
    of_task: dict[str, Any],
    is_shown: tuple[bool, bool],
    solution: Path | None,
    output_file: Path | None,
    in_lines: bool,
) -> tuple[Problem, TaskResult]:
    from oocbe.api.facade import use_workers_of
    from oocbe.api.tasks.verbs import answered, load_engine
    from oocbe.cli.task import print_count, print_task
    from oocbe.errors import UsageError
    from oocbe.formats.solutions.solution_file import write_assignment
    from oocbe.model.run_verb import read_and_work
    from oocbe.model.semiring import semiring_by_name

    if solution is not None and task != "mpe":
        raise UsageError(
            "--solution: only the tasks optimum and mpe have one assignment to write; kbest prints them with --json"
        )

    def work(problem: Problem) -> TaskResult:
        load_engine()
        defer_signals()
        with use_workers_of(options):
            return answered(task, problem, options, observer=observer, **of_task)

    with observer_for(*is_shown) as observer:
        problem, result = read_and_work(file, lambda p: load(p, format_name, evidence), work, options.time_limit)
    if solution is not None and result.assignments:  # before anything is printed, which may fail
        chosen = result.assignments[0][1]
        value = problem.in_semiring(semiring_by_name(result.semiring)).evaluate(chosen)
        write_assignment(result.labels or {}, problem.name, result.semiring, value, solution, chosen)
    is_written = True
    if output_file is not None:
        from oocbe.formats.solutions.verification import write_task

        is_written = write_task(result, output_file)
    if in_lines:
        print_count(result)
    else:
        print_task(result, problem.day)
    if not is_written:
        warn(f"{result.status}; there is no answer to write to {output_file}")
    if solution is not None and not result.assignments:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    return problem, result


def _rows(result: Result) -> list[tuple[str, object]]:
    from oocbe.tables.table import format_bytes

    value_name = {"optimal": "optimum", "exact": "value"}.get(result.status, "best value")
    linear = "" if result.linear_constraints == "none" else result.linear_constraints
    return [
        ("problem", result.problem),
        ("status", result.status),
        (value_name, result.value),
        ("bound", None if result.status == "optimal" else result.bound),
        ("gap", result.gap or None),
        ("bounds", result.bounds),
        ("width", result.width),
        ("largest message", f"{result.largest_message_rows:,} rows"),
        ("all messages", f"{result.total_rows:,} rows"),
        ("workers", None if result.read_by_workers is None else result.read_by_workers.summary),
        ("time", times(result.seconds)),
        ("peak memory", format_bytes(result.peak_memory_bytes)),
        ("linear constraints", linear),
        ("presolve removed", ", ".join(map(str, result.presolve))),
        *(("note", text) for text in result.notes),
        *(() if result.schedule is None else result.schedule.facts()),
    ]
