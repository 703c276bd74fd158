"""Independent judgement of an assignment: is it feasible, what is it worth, and does that agree with the claim?

Nothing here uses the engine: the problem is evaluated function by function, from the file as it was read. What this
does not show is that no better assignment exists; that is the solve's proof.

UAI files (``.MPE``, ``.MAR`` and ``.PR``): a file has its kind in the first line, the number of samples in the second
where there are several, and then a line a sample: the number of variables and their most probable values; or the number
of variables and, of each, how many values it has and their probabilities; or the decimal logarithm of the partition
function. Other suffixes that are met beside these are refused by name: the tasks ``MMAP`` and ``MLC`` of the
competitions, and ``SUM``, which they never defined.

Solution files: what ``oocbe solve --solution`` writes and ``oocbe verify`` reads.

The text format has one line a variable, its name and its value's label, in any order::

    # oocbe solution, version 1
    # problem: daily
    # semiring: min-sum
    # value: 114
    photograph-0 13
    photograph-1 0

A line that starts with ``#`` is a comment; those of the form ``# key: value`` above are read back, all may be absent.
A name or label that contains white space, or starts with ``#`` or ``"``, is written as a JSON string. The other format
accepted is the JSON object that ``oocbe solve --json`` prints; its ``assignment`` and ``value`` are used.

Labels are read as wherever values are given (:func:`oocbe.model.names.value_index`).

Toulbar2's solution files are read as well: one line with the value index of each variable in the problem's order (its
option ``-w``), value labels in their place (``-w=2``; where all could be indices, they are), or ``name=label`` pairs
(``-w=3``). They are written where a file's name ends in ``.toulbar2.sol``; toulbar2 takes such a file beside the
problem's. Files ``.csv`` have a line ``variable,value``, then a line for each variable, or are schedules.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from oocbe.errors import FormatError, UsageError
from oocbe.formats.files import write_plain
from oocbe.model.names import assignment_of, indices_of, value_index, warn_of_position
from oocbe.model.parts import Variable
from oocbe.model.photographs import CAMERAS, SCHEDULE_HEADER, ImagingDay
from oocbe.model.problem import Problem, violations_of
from oocbe.model.results.numerals import all_digits, digits, finite
from oocbe.model.results.result import Result
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import Combination
from oocbe.runtime.plain_files import read_text

Hint = str | Path | Result | TaskResult | Mapping[str, str | int] | Mapping[int, int]
"""A solution file, a result, or values by variable name (or value indices by variable index)."""

RELATIVE_TOLERANCE = 1e-9
"""Allowed difference of a claimed float: sums of the same floats in another order differ in the last digits."""


@dataclass(frozen=True)
class Verdict:
    """Value of an assignment.

    Attributes
    ----------
    value : the assignment's value, or None where it violates something.
    violations : what it violates, a sentence each; empty where it is feasible.
    claimed_value : the value that the solution file claims, or None where it claims none.
    absolute_tolerance : how far floats may be apart near 0: terms of a sum cancel, factors of a product do not.
    """

    value: int | float | None
    violations: tuple[str, ...]
    claimed_value: int | float | None
    absolute_tolerance: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the claim, where there is one, is the value: exactly for integers, else within the tolerance."""
        if self.claimed_value is None or self.value is None:
            return self.claimed_value is None
        if isinstance(self.value, int) and isinstance(self.claimed_value, int):
            return self.value == self.claimed_value
        if max(abs(self.value), abs(self.claimed_value)) > sys.float_info.max:  # an integer that no float is close to
            return self.value == self.claimed_value
        return math.isclose(self.value, self.claimed_value, rel_tol=RELATIVE_TOLERANCE, abs_tol=self.absolute_tolerance)

    @property
    def accepted(self) -> bool:
        """Feasible, and worth what was claimed."""
        return self.value is not None and self.agrees

    def to_json(self) -> dict[str, object]:
        """The verdict as JSON types."""
        return {
            "schema_version": 1,
            "accepted": self.accepted,
            "value": finite(self.value),
            "claimed_value": self.claimed_value,
            "violations": list(self.violations),
        }


def verify_solution(problem: Problem, solution: Solution) -> Verdict:
    """Judge a solution against a problem.

    Where the solution names another semiring than the problem's own, the problem is read in that one: the claim was
    made there. Raises :class:`oocbe.errors.FormatError` where the two do not have the same variables and values.
    """
    if solution.semiring is not None and solution.semiring != problem.semiring.name:
        problem = problem.in_semiring(solution.semiring)
    assignment = solution.assignment(problem)
    near_zero = 0.0
    if problem.semiring.combination is Combination.ADD:
        magnitude = abs(problem.constant) + sum(abs(f.value_at(assignment) or 0) for f in problem.functions)
        near_zero = RELATIVE_TOLERANCE * min(1.0, magnitude)
    return Verdict(problem.evaluate(assignment), violations_of(problem, assignment), solution.claimed_value, near_zero)


def judge(problem: Problem, solution: str | Path | Result | TaskResult | Mapping[str, str | int]) -> Verdict:
    """Judge what states an assignment; see :func:`oocbe.verify`, also for what is raised."""
    if isinstance(solution, str | Path):
        return verify_solution(problem, read_solution(solution))
    if isinstance(solution, Mapping):
        labels, claimed, semiring = solution, None, None
    else:
        labels, semiring = _labels_of(solution, " to verify"), solution.semiring
        claimed = None if isinstance(solution.value, Fraction) else solution.value
        if isinstance(solution, TaskResult) and solution.task == "mpe":
            claimed = None  # a logarithm, and not what the assignment is worth
    index = assignment_of(problem, labels)
    named = {v.name: v.label(value) for v, value in zip(problem.variables, index, strict=True)}
    return verify_solution(problem, Solution("the result", named, {}, claimed, semiring))


def hint_of(problem: Problem, hint: Hint | None) -> dict[int, int]:
    """Value index by variable index of a hint, see :func:`oocbe.solve`; errors as of :func:`oocbe.verify`."""
    if isinstance(hint, str | Path):
        return read_solution(hint).values(problem)
    if hint is None or isinstance(hint, Mapping):
        return indices_of(problem, hint or {})
    return indices_of(problem, _labels_of(hint, " as a hint"))


def _labels_of(result: Result | TaskResult, use: str) -> Mapping[str, str | int]:
    """Labels by variable name; UsageError for a result without an assignment, or another type."""
    if not isinstance(result, Result | TaskResult):
        raise UsageError(f"{type(result).__name__}: neither a file, a result, nor values by variable{use}")
    if result.labels is None:
        raise UsageError(f"{result.problem}: {result.status}; the result has no assignment{use}")
    return result.labels


TASKS = {".mpe": "mpe", ".mar": "marginals", ".pr": "logz"}
"""The task whose answer a file holds, by its suffix in any case."""

REFUSED = {
    ".sum": "no competition defines such a file; the sum over all assignments is in .PR, by --task logz",
    ".mmap": "marginal maximum a posteriori is no task of solve; the command oocbe uai answers it",
    ".mlc": "multi-label classification is no task here; .MPE has the most probable values of all variables",
}
"""Suffixes that are refused, in lower case, and why."""


def uai_text(kind: str, samples: Sequence[str]) -> str:
    """A file of samples that each are a line; kind : the suffix without its dot."""
    many = [str(len(samples))] if len(samples) > 1 else []
    return "\n".join([kind.upper(), *many, *samples]) + "\n"


def line_of_values(values: Sequence[int]) -> str:
    """The sample of ``.MPE``: value indices of all variables."""
    return " ".join(map(str, [len(values), *values]))


def line_of_pairs(values: Mapping[int, int]) -> str:
    """The sample of ``.MMAP``: variable and value, indices, of each variable of the query."""
    return " ".join(map(str, [len(values), *(number for pair in values.items() for number in pair)]))


def line_of_marginals(marginals: Sequence[Iterable[Any]]) -> str:
    """The sample of ``.MAR``: probabilities of each variable's values, to the last digit."""
    rows = [list(map(float, own)) for own in marginals]
    return " ".join([str(len(rows)), *(word for row in rows for word in [str(len(row)), *map(repr, row)])])


def line_of_logarithm(natural: float) -> str:
    """The sample of ``.PR``: the decimal logarithm of what has a natural one."""
    return repr(float(natural) / math.log(10))


def refuse_kind(flag: str, path: str | Path) -> None:
    """Refuse a file that an option names whose suffix is one of :data:`REFUSED`; UsageError, which says why."""
    suffix = Path(path).suffix
    why = REFUSED.get(suffix.lower())
    if why is not None:
        raise UsageError(f"{flag} {path}: {suffix} cannot be written: {why}")


def check_output(path: str | Path, task: str) -> None:
    """Refuse a file's suffix that is none of these formats, or has another task's answer; UsageError."""
    refuse_kind("--output", path)
    wanted = TASKS.get(Path(path).suffix.lower())
    if wanted is None:
        known = ", ".join(suffix.upper() for suffix in TASKS)
        raise UsageError(
            f"--output {path}: unknown suffix of a file format; known: {known}; --json prints all answers, and "
            "--output competition that of --task count"
        )
    if wanted != task:
        raise UsageError(f"--output {path}: this format holds the answer of --task {wanted}, not of {task}")


def write_task(result: TaskResult, path: str | Path) -> bool:
    """Write a task's answer in the format of the path's suffix; False if there is no answer to write."""
    kind = Path(path).suffix.lower()
    if kind == ".mpe":
        line = None if result.assignment is None else line_of_values(result.assignment)
    elif kind == ".mar":
        line = line_of_marginals(result.marginals) if result.marginals and result.status == "exact" else None
    else:
        line = None if result.value is None or result.status != "exact" else line_of_logarithm(float(result.value))
    if line is None:
        return False
    write_plain(path, uai_text(kind[1:], [line]))
    return True


TOULBAR2 = ".toulbar2.sol"
"""End of the name of a file that is written for toulbar2."""

HEADER = "# oocbe solution, version 1"
"""First line of a solution file."""

CSV_HEADER = ["variable", "value"]
"""First line of a solution file in CSV."""


@dataclass(frozen=True)
class Solution:
    """An assignment as a file states it, before any problem gives meaning to its names.

    path : where it came from. labels : variable name to value label.
    lines : variable name to the 1-based line that states it; empty for JSON.
    claimed_value : the value that the file claims, or None.
    semiring : name of the semiring that it was solved in, or None.
    row : of a file of one line, its words: in the order of the problem's variables, if there are as many.
    """

    path: str
    labels: dict[str, str]
    lines: dict[str, int]
    claimed_value: int | float | None = None
    semiring: str | None = None
    row: tuple[str, ...] = ()

    def assignment(self, problem: Problem) -> tuple[int, ...]:
        """Value index of each variable; FormatError: a variable or label unknown, or a variable left out."""
        values = self.values(problem)
        for number, v in enumerate(problem.variables):
            if number not in values:
                raise FormatError(self.path, None, f"variable {v.name!r} of {problem.name} has no value")
        return tuple(values[number] for number in range(len(problem.variables)))

    def values(self, problem: Problem) -> dict[int, int]:
        """Value index by variable index, of the variables that the file gives one; FormatError as for all."""
        if self.row and len(self.row) == len(problem.variables) and not self._names_one_of(problem.variables):
            pairs = list(zip(problem.variables, self.row, strict=True))
            if all(_is_index(text, v) for v, text in pairs):  # as toulbar2 writes them, whatever the labels are
                for v, text in pairs:
                    warn_of_position(v, int(text))
                return dict(enumerate(map(int, self.row)))
            return {number: self._value(v, text, 1) for number, (v, text) in enumerate(pairs)}
        if self.row and len(self.row) != 2:
            count = len(problem.variables)
            raise FormatError(
                self.path, 1, f"{len(self.row)} values on the only line; {problem.name} has {count} variables"
            )
        known = {v.name for v in problem.variables}
        for name in self.labels:
            if name not in known:
                raise FormatError(self.path, self.lines.get(name), f"{problem.name} has no variable {name!r}")
        given = [(number, v) for number, v in enumerate(problem.variables) if v.name in self.labels]
        return {number: self._value(v, self.labels[v.name], self.lines.get(v.name)) for number, v in given}

    def _names_one_of(self, variables: Sequence[Variable]) -> bool:
        """Whether the only line is a name and its value; of two variables it leaves one out then."""
        if len(self.row) != 2 or self.row[0] not in {v.name for v in variables}:
            return False
        first = variables[0]
        return not _is_index(self.row[0], first) and self.row[0] not in map(first.label, range(first.size))

    def _value(self, variable: Variable, text: str, line: int | None) -> int:
        try:
            return value_index(variable, text)
        except UsageError as error:
            raise FormatError(self.path, line, str(error)) from None


def _is_index(text: str, variable: Variable) -> bool:
    return text.isdecimal() and int(text) < variable.size


def write_solution(result: Result, path: str | Path, day: ImagingDay | None = None) -> None:
    """Write the assignment as text, or a day's schedule as ``.csv``; :class:`UsageError` without assignment."""
    labels = result.labels
    if labels is None:
        raise UsageError(f"{result.problem}: {result.status}; there is no assignment to write to {path}")
    if day is not None and result.schedule is not None and Path(path).suffix.lower() == ".csv":
        write_plain(path, day.csv(result.schedule))
        return
    write_assignment(labels, result.problem, result.semiring, result.value, path, result.assignment)


def write_assignment(
    labels: Mapping[str, str],
    problem: str,
    semiring: str,
    value: float | None,
    path: str | Path,
    assignment: Sequence[int] | None = None,
) -> None:
    """Write an assignment (variable name to value label) as text, with the value that is claimed for it.

    A value that float64 cannot hold is not claimed. ``assignment``, the value indices, is what toulbar2's files hold.
    """
    if Path(path).name.endswith(TOULBAR2) and assignment is not None:
        text = " ".join(map(str, assignment)) + "\n"
    elif Path(path).suffix.lower() == ".csv":
        rows = io.StringIO()
        csv.writer(rows, lineterminator="\n").writerows([CSV_HEADER, *labels.items()])
        text = rows.getvalue()
    else:
        claimed = finite(value)
        lines = [
            HEADER,
            f"# problem: {' '.join(problem.split())}",
            f"# semiring: {semiring}",
            f"# value: {digits(claimed) if isinstance(claimed, int) else claimed}",
            *(f"{_quote(name)} {_quote(label)}" for name, label in labels.items()),
        ]
        text = "\n".join(lines) + "\n"
    write_plain(path, text)


def read_solution(path: str | Path) -> Solution:
    """Read a solution file of either format; FormatError says where it is damaged, UsageError why it cannot be read."""
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise FormatError(path, None, "not a text file; expected a solution file or the JSON of a solve") from None
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise UsageError(f"{path}: cannot be read: {why}; name what `oocbe solve --solution` has written") from None
    if text.lstrip().startswith("{"):
        return _read_json(path, text)
    if Path(path).suffix.lower() == ".csv":
        rows = list(filter(None, csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))))
        if rows[:1] == [[*SCHEDULE_HEADER]]:
            labels = {"left out": "0", **{name: own for own, name in CAMERAS.items()}}
            rows = [CSV_HEADER, *([row[0], *(labels.get(name, name) for name in row[1:2])] for row in rows[1:])]
        if rows[:1] != [CSV_HEADER] or any(len(row) != 2 for row in rows) or len(dict(rows[1:])) < len(rows) - 1:
            raise FormatError(path, None, f"expected a line {','.join(CSV_HEADER)}, then a line for each variable")
        return Solution(str(path), dict(rows[1:]), {})
    return _read_text(path, text)


def _quote(token: str) -> str:
    plain = token and not any(c.isspace() for c in token) and token[0] not in '#"'
    return token if plain else json.dumps(token)


def _tokens(path: str | Path, number: int, line: str) -> list[str]:
    decoder, tokens, rest = json.JSONDecoder(), [], line.strip()
    while rest:
        if rest[0] == '"':
            try:
                token, end = decoder.raw_decode(rest)
            except json.JSONDecodeError:
                raise FormatError(path, number, f"a quoted name does not end: {rest}") from None
        else:
            token = rest.split(maxsplit=1)[0]
            end = len(token)
        tokens.append(token)
        rest = rest[end:].lstrip()
    return tokens


def _read_text(path: str | Path, text: str) -> Solution:
    labels: dict[str, str] = {}
    lines: dict[str, int] = {}
    claims: dict[str, str] = {}
    claimed: int | float | None = None
    filled = [line for line in text.splitlines() if line.strip()]
    row: tuple[str, ...] = ()
    if len(filled) == 1 and not filled[0].startswith("#"):
        row = tuple(filled[0].split())
        if all("=" in word for word in row):
            pairs = [word.rpartition("=")[::2] for word in row]
            return Solution(str(path), dict(pairs), dict.fromkeys((name for name, _ in pairs), 1))
        if len(row) != 2:
            return Solution(str(path), {}, {}, row=row)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            key, colon, content = line[1:].partition(":")
            if colon:
                claims[key.strip()] = content.strip()
            if colon and key.strip() == "value":
                claimed = _number(path, number, content.strip())
            continue
        tokens = _tokens(path, number, line)
        if not tokens:
            continue
        if len(tokens) != 2:
            raise FormatError(path, number, f"expected a variable's name and its value, not {line.strip()!r}")
        name, label = tokens
        if name in labels:
            raise FormatError(path, number, f"variable {name!r} already has a value on line {lines[name]}")
        labels[name], lines[name] = label, number
    return Solution(str(path), labels, lines, claimed, claims.get("semiring"), row)


def _number(path: str | Path, line: int | None, text: str) -> int | float | None:
    if text == "None":
        return None
    for convert in (int, float):
        try:
            with all_digits():
                number = convert(text)
        except ValueError:
            continue
        if finite(number) is not None:
            return number
    raise FormatError(path, line, f"the claimed value {text!r} is not a finite number")


def _read_json(path: str | Path, text: str) -> Solution:
    try:
        with all_digits():
            content = json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.lineno, f"damaged JSON: {error.msg}") from None
    labels = content.get("assignment")
    if not isinstance(labels, dict):
        if content.get("format") == "oocbe certificate":
            raise FormatError(path, None, "is a certificate, not a solution; check it with: oocbe verify --certificate")
        status = content.get("status", "unknown")
        raise FormatError(path, None, f"holds no assignment of variables to values (its status is {status!r})")
    value, semiring = content.get("value"), content.get("semiring")
    claimed = None if value is None else _number(path, None, digits(value) if isinstance(value, int) else str(value))
    return Solution(
        str(path),
        {str(name): str(label) for name, label in labels.items()},
        {},
        claimed,
        semiring if isinstance(semiring, str) else None,
    )
