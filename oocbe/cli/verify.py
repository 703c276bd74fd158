"""``oocbe verify``: an independent judgement of an assignment against the original file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oocbe.cli.flags import ProblemFile, command, load
from oocbe.cli.output import print_answer
from oocbe.errors import EXIT_INFEASIBLE, EXIT_OPTIMAL, EXIT_USAGE, UsageError


@command("verify")
def verify(
    file: ProblemFile,
    solution: Annotated[
        Path | None, typer.Argument(help="A file of solve --solution, or the output of solve --json.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="A file of solve --certificate, instead of SOLUTION.")
    ] = None,
    *,
    evidence: list[str] | None,
    format: str | None,
) -> int:
    """Check the assignment in SOLUTION, or the proof in --certificate, against FILE.

    The assignment is evaluated without any part of the solver. Exit code 0 if it is feasible and has the claimed value,
    10 if it violates a constraint, 2 if its value differs from the claimed one. A certificate proves that no better
    assignment exists: exit code 0 if the proof is valid, else 2.
    """
    if (solution is None) == (certificate is None):
        raise UsageError("verify: name either a SOLUTION or a --certificate to be checked")
    if certificate is not None:
        if evidence or format:
            raise UsageError("--certificate: the checker reads FILE by itself, without --evidence and --format")
        return _verify_certificate(file, certificate)
    assert solution is not None
    from oocbe.formats.solutions import read_solution, verify_solution

    verdict = verify_solution(load(file, format, evidence), read_solution(solution))
    claimed, value = verdict.claimed_value, verdict.value
    judgement = "accepted" if verdict.accepted else "rejected"
    rows = [
        ("verdict", judgement),
        ("value", "none, the assignment is infeasible" if value is None else value),
        ("claimed", "nothing" if claimed is None else f"{claimed}{'' if verdict.agrees else ' (wrong)'}"),
        *(("violated", text) for text in verdict.violations),
    ]
    print_answer(verdict.to_json, rows, judgement, value)
    if verdict.value is None:
        return EXIT_INFEASIBLE
    return EXIT_OPTIMAL if verdict.accepted else EXIT_USAGE


def _verify_certificate(file: Path, certificate: Path) -> int:
    """Check a certificate independently of the engine, and print its claim."""
    import time
    from json import loads

    from oocbe.certificates.check_certificate import check
    from oocbe.certificates.tables import nothing_better
    from oocbe.formats.files import check_there, read_bytes

    check_there(file)
    begin, why = time.perf_counter(), ""
    proven: dict[str, Any] | None = None
    try:
        text = read_bytes(certificate).decode()
        check(file, text, nothing_better)
        content = loads(text)
        proven = {"status": content["status"], "value": None if content["status"] == "infeasible" else content["value"]}
    except ValueError as error:
        why = str(error)
    seconds = time.perf_counter() - begin
    rows: list[tuple[str, object]] = [("verdict", "rejected"), ("because", why)]
    if proven is not None:
        value = "" if proven["value"] is None else f" {proven['value']}"
        rows = [("verdict", "accepted"), ("proven", proven["status"] + value), ("taken on trust", "nothing")]
    content = {"schema_version": 1, "accepted": proven is not None, "proven": proven, "refused": why or None}
    print_answer(lambda: content, [*rows, ("time", f"{seconds:.2f} s")], rows[0][1])
    return EXIT_USAGE if proven is None else EXIT_OPTIMAL
