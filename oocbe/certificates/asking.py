"""Certificates as the command line asks for them: refused at once, or made after a solve and written whole."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from oocbe.errors import UnsupportedError
from oocbe.formats.files import read_bytes, without_compression, write_bytes
from oocbe.runtime.interruption import listening

if TYPE_CHECKING:
    from oocbe.model.problem import Problem
    from oocbe.model.results.result import Result
    from oocbe.model.settings.options import SolveOptions

FORMATS = (".spot", ".wcsp")
"""Suffixes of the files that the checker reads by itself."""

KEYWORDS = (b"knapsack", b"knapsackp")
"""Functions by keyword of a weighted CSP that the checker reads."""

PROVEN = ("optimal", "infeasible", "nothing-better")
"""Statuses of a result that a certificate can prove."""

SHARE = 2
"""Making a certificate may take so many times ``--bound-seconds``; it mostly takes a fraction of the solve's time."""


def check_certifiable(path: Path, problem: Problem, options: SolveOptions, evidence: bool, given_format: bool) -> None:
    """Refuse what has no certificate, before anything is solved.

    Raises
    ------
    UnsupportedError : says what it is, and what to do.
    """
    from oocbe.bounds.forbidden import MOST_LITERALS

    suffix = without_compression(path).suffix
    semiring = (options.semiring or problem.semiring).name
    if semiring != "min-sum":
        raise UnsupportedError(
            f"--certificate: only least sums (min-sum) have certificates, not the {semiring} semiring; "
            "where sums are maximised, write their negatives, shifted up to 0, as .wcsp"
        )
    if suffix not in FORMATS or given_format:
        what = "a file whose format is named by --format" if given_format else f"a {suffix or 'nameless'} file"
        raise UnsupportedError(
            f"--certificate: the checker reads .spot and .wcsp files (also .gz, .xz) by itself, not {what}: "
            "write the problem as .wcsp with oocbe convert, and solve that"
        )
    if path.exists() and not path.is_file():
        raise UnsupportedError(f"--certificate: {path} is no regular file, and the checker reads it once more; copy it")
    keyword = _keyword(path) if suffix == ".wcsp" else ""
    if keyword:
        raise UnsupportedError(
            f"--certificate: the checker reads lists of costs and knapsacks, not the {keyword!r} of {path}: write the "
            "problem as .wcsp with oocbe convert, and solve that"
        )
    if evidence:
        raise UnsupportedError(
            "--certificate: the checker knows the file only, not --evidence; write the fixed problem with oocbe convert"
        )
    if not problem.is_integral:
        raise UnsupportedError(
            f"--certificate: {problem.name} has costs that are no integers, and certificates are exact; scale them"
        )
    if sum(problem.sizes) > MOST_LITERALS:
        raise UnsupportedError(
            f"--certificate: the variables of {problem.name} have {sum(problem.sizes):,} values, and conflicts are "
            f"checked among {MOST_LITERALS:,} at most; solve it without"
        )


def _keyword(path: Path) -> str:
    """The first keyword of a weighted CSP that the checker does not know; nothing where there is none."""
    for word in read_bytes(path).split()[1:]:
        if not word.lstrip(b"+-").isdigit() and word not in KEYWORDS:
            return word.decode()
    return ""


def write_certificate(
    path: Path, problem: Problem, result: Result, options: SolveOptions, target: Path, seconds: float | None = None
) -> str:
    """Make the certificate of a result, check it, and write it; returns what became of it, empty where it is written.

    Parameters
    ----------
    path, problem : the file, and what was read from it. result : of solving it. target : where the certificate goes.
    seconds : what is left of a time limit; None: there is none.

    Raises
    ------
    UsageError, ResourceError : the file cannot be written.
    """
    if result.status not in PROVEN:
        return f"{result.status}: what is not proven has no certificate"
    from oocbe.certificates.making import Claim, Maker

    if result.status == "infeasible":
        value = None
    else:
        value = int(result.bound if result.status == "nothing-better" else result.value)  # type: ignore[arg-type]
    claim = Claim(result.status, value, result.assignment)
    begin = time.perf_counter()
    share = SHARE * options.bound_seconds
    with listening() as interruption:
        try:
            text = Maker(path, problem, claim, options.seed).make(share if seconds is None else min(share, seconds))
        except BaseException as error:
            if not interruption.caused(error):
                raise
            return f"{interruption.reason} before it was made"
    if text is None:
        return (
            f"the proof was not put into a form that can be checked in {time.perf_counter() - begin:.1f} s; "
            "give it more time with --bound-seconds"
        )
    write_bytes(target, text.encode())
    return ""
