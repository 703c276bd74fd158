"""``oocbe solve``: the optimum of a problem, proven, and an assignment that has it; or the answer of another task.

``oocbe plan``: a forecast of a solve.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocbe.cli.flags import COMPETITION, ProblemFile, SolutionFlag, command, load
from oocbe.cli.output import beside_answer, defer_signals, print_answer, prints_json, warn, written_to
from oocbe.cli.progress import observer_for
from oocbe.cli.report import check_report, traced_for, write_report
from oocbe.errors import EXIT_LIMIT, DiskError, UnsupportedError, UsageError
from oocbe.model.results.numerals import all_digits, digits
from oocbe.model.settings.options import SolveOptions

if TYPE_CHECKING:
    from oocbe.certificates.proofs import ProofTask
    from oocbe.model.photographs import ImagingDay
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult


@command("solve", is_partial=True)
def solve(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="The problem, or -; .gz and .xz are decompressed. Several files, or those of a folder, are solved in "
            "parallel.",
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
        Path | None, typer.Option(help="Write a proof of the optimum, for oocbe verify and other checkers.")
    ] = None,
    proof: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a proof of the optimum, of bounds, or of a count, in the format of VeriPB, of the formula in "
            "--opb; .gz compresses.",
        ),
    ] = None,
    opb: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the problem as a pseudo-Boolean formula, for --proof.")
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            help="optimum, mpe, count, count-optimal, kbest, logz, marginals or min-marginals; tasks from count on "
            "keep all rows."
        ),
    ] = "optimum",
    k: Annotated[
        int | None, typer.Option(metavar="INTEGER", help="Number of assignments of the task kbest. [default: 10]")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Temperature of the tasks logz and marginals; inf: equal weights. [default: 1]"
        ),
    ] = None,
    hint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Begin with the assignment of a solution file, of some variables or all. The optimum does not depend "
            "on it.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write an HTML page about the solve; needs matplotlib (the extra plot)."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", metavar="INTEGER", help="Number of files solved at a time. [default: one per core]"
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a table of several files, with a row for each answer.")
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
    has a gap or is missing, 30 if memory or disk ran out, 40 for corrupt data, 2 for wrong usage or input.
    """
    file = files[0]
    if len(files) > 1 or file.is_dir() or csv is not None:
        from oocbe.api.tasks.many import problem_files
        from oocbe.cli.many import solve_files

        files = problem_files(files, format)

        of_one: dict[str, object] = {"solution": solution, "output": output, "certificate": certificate, "trace": trace}
        of_one |= {"proof": proof, "opb": opb, "hint": hint}
        of_one |= {"report": report, "evidence": evidence, "k": k, "temperature": temperature, "verbose": verbose}
        of_one["task"] = task != "optimum"
        return solve_files(files, options, format, jobs, json, quiet, csv, of_one)
    from oocbe.api.facade import solver_from, use_workers_of
    from oocbe.api.tasks.verbs import answered, load_engine, why_from_the_start
    from oocbe.model.results.result import Result
    from oocbe.model.run_verb import read_and_work

    is_printed = output == COMPETITION and task == "count"
    if is_printed and json:
        raise UsageError(f"--output {output}: prints lines, and --json an object; leave one of them out")
    output = None if is_printed else output
    check_report(report)
    about = f"oocbe solve {file.name}" + (f" --task {task}" if task != "optimum" else "")
    of_task = _settings_of(task, k, temperature)
    if why := why_from_the_start(task, options):
        warn(why)  # before a run of perhaps hours
    if output is not None:
        from oocbe.formats.solutions import check_output

        check_output(output, task)
    if task != "optimum":
        if certificate is not None:
            raise UnsupportedError(f"--certificate: only the optimum has one, not the task {task}; leave out --task")
        if task == "count":
            of_task |= {"proof": proof, "opb": opb, "beside": beside_answer}
        elif proof is not None or opb is not None:
            raise UnsupportedError(f"--proof, --opb: only the optimum and counts have them, not the task {task}")
        if hint is not None:
            raise UnsupportedError(f"--hint: only the optimum uses one, not the task {task}; leave out --task")
        if solution is not None and task != "mpe":
            raise UsageError(
                "--solution: only the tasks optimum and mpe have one assignment to write; kbest prints them with --json"
            )

    proofs: list[ProofTask] = []

    def read(path: Path) -> Problem:
        problem = load(path, format, evidence)
        if task == "optimum" and (proof is not None or opb is not None):
            from oocbe.certificates.proofs import ProofTask

            proofs.append(ProofTask(problem, options, proof, opb))
        if certificate is not None:
            from oocbe.certificates.making import check_certifiable

            check_certifiable(path, problem, options, bool(evidence), format is not None)
        return problem

    def work(problem: Problem) -> Result | TaskResult:
        if options.backend == "cuda":
            from oocbe.kernels.cuda.device import load_driver

            load_driver()
        if task != "optimum":
            load_engine()
            defer_signals()
            with use_workers_of(options):
                return answered(task, problem, options, observer=observer, **of_task)
        run = solver_from(hint)  # after reading: a malformed file need not wait for Numba
        defer_signals()
        with use_workers_of(options):
            return run(problem, proofs[0].options if proofs else options, observer)

    begin = time.perf_counter()
    with traced_for(report, trace) as traced:
        with written_to(traced, about), closing(observer_for(quiet, verbose)) as observer:
            problem, result = read_and_work(file, read, work, options.time_limit)
        if report is not None:
            with beside_answer(report):
                write_report(report, problem, result, options, traced)
    if not isinstance(result, Result):
        return _finish_task(result, problem, solution, output, is_printed, quiet)
    if solution is not None and result.assignment is not None:
        from oocbe.formats.solutions import write_solution

        with beside_answer(solution):  # before anything is printed, which may fail
            write_solution(result, solution, problem.day)
    missing = unproven = ""
    left = None if options.time_limit is None else begin + options.time_limit - time.perf_counter()
    for task_of_proof in proofs:
        with beside_answer(proof or opb or file):
            result, unproven = task_of_proof.write(result, left)
    if certificate is not None:
        from oocbe.certificates.making import write_certificate

        with beside_answer(certificate):
            missing = write_certificate(file, problem, result, options, certificate, left)
    print_answer(result.to_json, result.facts(), result.status, result.value)
    if solution is not None and result.assignment is None:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    if missing:
        warn(f"no certificate was written to {certificate}: {missing}")
    if unproven:
        warn(unproven)
    return result.exit_code or (EXIT_LIMIT if missing or unproven else 0)


def _settings_of(task: str, k: int | None, temperature: float | None) -> dict[str, Any]:
    """The given settings of particular tasks; UsageError if this task does not use them."""
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


def _finish_task(
    result: TaskResult, problem: Problem, solution: Path | None, output: Path | None, in_lines: bool, quiet: bool
) -> int:
    """Write a task's answer to files and print it; returns the exit code."""
    from oocbe.formats.solutions import write_assignment, write_task

    if solution is not None and result.assignments:  # before anything is printed, which may fail
        chosen = result.assignments[0][1]
        value = problem.in_semiring(result.semiring).evaluate(chosen)
        with beside_answer(solution):
            write_assignment(result.labels or {}, problem.name, result.semiring, value, solution, chosen)
    is_written = True
    with beside_answer(output):
        is_written = output is None or write_task(result, output)
    if in_lines:
        print_count(result)
    else:
        print_task(result, problem.day)
    if not is_written:
        warn(f"{result.status}; there is no answer to write to {output}")
    if solution is not None and not result.assignments:
        warn(f"{result.status}; there is no assignment to write to {solution}")
    missing = next((note for note in result.notes if note.startswith("no proof was written: ")), "")
    if missing and (quiet or in_lines):  # without notes
        warn(missing)
    return result.exit_code or (EXIT_LIMIT if missing else 0)


@command("plan")
def plan(
    file: ProblemFile,
    *,
    options: SolveOptions,
    evidence: list[str] | None,
    format: str | None,
    task: Annotated[str, typer.Option(help="A task, as for oocbe solve.")] = "optimum",
    temperature: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Temperature of the tasks logz and marginals. [default: 1]")
    ] = None,
) -> None:
    """Predict time, memory and disk of solving FILE, or of another task.

    Prints the elimination order, its width, and for each bucket scope, bits, predicted rows, complete rows, bytes,
    form and density of the message, number of pieces, and bytes on disk. Computes only the order, and bounds of a
    sample of rows. Exit code 30 if the messages do not fit the disk. With --quiet, prints the width.
    """
    from oocbe.api.solving.outlook import plan_task

    given = _settings_of(task, None, temperature)
    made = plan_task(load(file, format, evidence), task, options, **given)
    print_answer(made.to_json, str(made), made.width)
    if made.disk_refusal:
        raise DiskError(made.disk_refusal)


def print_task(result: TaskResult, day: ImagingDay | None = None) -> None:
    """Print a task's result as ``solve`` does, and its answers; ``day``: of SPOT5, to print photographs."""
    print_answer(result.to_json, result.facts(), result.status, result.value)
    if not prints_json():
        for line in task_answers(result, day):
            typer.echo(line)


def print_count(result: TaskResult) -> None:
    """Print a count as lines of the model counting competition (its data format 1.2, 2025)."""
    if result.value is None or result.log10 is None:
        typer.echo("s UNKNOWN")
        return
    is_float = isinstance(result.value, float)
    form = "arb frac" if isinstance(result.value, Fraction) else "double float" if is_float else "arb int"
    typer.echo(f"s {'UN' * (result.status == 'infeasible')}SATISFIABLE")
    typer.echo(f"c s type {result.kind}")
    typer.echo(f"c s {'neg' * (result.value < 0)}log10-estimate {result.log10:.15g}")
    typer.echo(f"c s exact {form} {digits(result.value)}")


def task_answers(result: TaskResult, day: ImagingDay | None) -> Iterator[str]:
    """A line an assignment, or a variable of marginals; of a day the photographs taken, and the profit."""
    for (value, labels), (_, assignment) in zip(result.labelled, result.assignments, strict=True):
        with all_digits():
            shown = f"{value}  "
        if day is None:
            yield shown + " ".join(f"{name}={label}" for name, label in labels.items())
        else:
            schedule = day.schedule(assignment)
            yield f"{shown}profit {schedule.profit}: " + " ".join(f"{t.name}:{t.camera}" for t in schedule.taken)
    for name, own in result.marginals_by_name.items():
        parts = (f"{label}: {x if isinstance(x, int) else f'{x:.6g}'}" for label, x in own.items())  # integers in full
        yield f"{name}  " + "  ".join(parts)
