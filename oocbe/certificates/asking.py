"""Certificates for the command line: refused before the solve, or made after it and written as a whole."""

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
"""Keywords of functions of a weighted CSP that the checker reads."""

PROVEN = ("optimal", "infeasible", "nothing-better")
"""Statuses of a result that a certificate can prove."""

SHARE = 2
"""Time limit of making a certificate, as a multiple of ``--bound-seconds``; mostly a fraction of the solve suffices."""


def check_certifiable(path: Path, problem: Problem, options: SolveOptions, evidence: bool, given_format: bool) -> None:
    """Refuse problems and options without certificates, before the solve.

    Raises
    ------
    UnsupportedError : with the reason and the remedy.
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
    """The first keyword of a weighted CSP that the checker does not support, or an empty string."""
    for word in read_bytes(path).split()[1:]:
        if not word.lstrip(b"+-").isdigit() and word not in KEYWORDS:
            return word.decode()
    return ""


def write_certificate(
    path: Path, problem: Problem, result: Result, options: SolveOptions, target: Path, seconds: float | None = None
) -> str:
    """Make the certificate of a result, check it, and write it; returns the reason of a failure, empty on success.

    Parameters
    ----------
    path, problem : the file, and the problem in it. result : of its solve. target : path of the certificate.
    seconds : remaining time limit; None: none.

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
