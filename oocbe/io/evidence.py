"""Evidence files (``.evid``) of the UAI competitions: observed variables and their values."""

from __future__ import annotations

from oocbe.errors import UnsupportedError
from oocbe.io.text import Text
from oocbe.problem import Problem


def parse_evidence(text: Text, problem: Problem) -> dict[int, int]:
    """Variable index to value index.

    Two layouts exist: ``n variable value …``, and an older one with the number of samples before that. A file of one
    sample has an odd number of numbers in the first and an even one in the second, so there is nothing to guess.

    Raises
    ------
    FormatError : malformed, or a variable or value that the problem does not have.
    UnsupportedError : more than one sample.
    """
    observed = text.integer(0, "the number of observed variables", low=0)
    first = 1
    if observed == 1 and len(text) % 2 == 0:
        observed = text.integer(1, "the number of observed variables", low=0)
        first = 2
    elif _holds_samples(text, observed):
        raise UnsupportedError(f"{text.path}: {observed} samples of evidence; split the file, one sample each")
    evidence: dict[int, int] = {}
    for pair in range(first, first + 2 * observed, 2):
        variable = text.integer(pair, "an observed variable", 0, len(problem.variables) - 1)
        if variable in evidence:
            raise text.error(pair, f"found variable {variable} a second time, expected each observed variable once")
        size = problem.variables[variable].size
        evidence[variable] = text.integer(pair + 1, f"a value of variable {variable}", 0, size - 1)
    text.expect_end(first + 2 * observed, f"the {observed} observed variables")
    return evidence


def _holds_samples(text: Text, samples: int) -> bool:
    """Whether the file consists of exactly so many samples in the older layout, and not of one in the newer."""
    if samples < 2 or len(text) == 1 + 2 * samples:
        return False
    cursor = 1
    for _ in range(samples):
        if not text.is_integer(cursor):
            return False
        cursor += 1 + 2 * max(0, text.integer(cursor, "the number of observed variables"))
    return cursor == len(text)
