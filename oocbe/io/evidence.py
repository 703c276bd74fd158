"""Evidence files (``.evid``) of the UAI competitions: observed variables and their values."""

from __future__ import annotations

from oocbe.errors import UnsupportedError
from oocbe.io.text import Text
from oocbe.problem import Problem


def parse_evidence(text: Text, problem: Problem) -> dict[int, int]:
    """Variable index to value index.

    Two layouts exist: ``n variable value …``, and an older one with the number of samples before that. With one sample
    the number of numbers is odd in the first and even in the second, so there is nothing to guess.

    Raises
    ------
    FormatError : malformed, or a variable or value that the problem does not have.
    UnsupportedError : more than one sample.
    """
    observed = text.integer(0, "the number of observed variables", low=0)
    first = 1
    if len(text) != 1 + 2 * observed and len(text) % 2 == 0:
        if observed != 1:
            raise UnsupportedError(f"{text.path}: {observed} samples of evidence; split the file, one sample each")
        observed = text.integer(1, "the number of observed variables", low=0)
        first = 2
    evidence: dict[int, int] = {}
    for pair in range(first, first + 2 * observed, 2):
        variable = text.integer(pair, "an observed variable", 0, len(problem.variables) - 1)
        if variable in evidence:
            raise text.error(pair, f"found variable {variable} a second time, expected each observed variable once")
        size = problem.variables[variable].size
        evidence[variable] = text.integer(pair + 1, f"a value of variable {variable}", 0, size - 1)
    text.expect_end(first + 2 * observed, f"the {observed} observed variables")
    return evidence
