"""Results of propagation; the same content as ``--json``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from oocbe.errors import EXIT_OPTIMAL
from oocbe.model.compact_problem import CompactProblem
from oocbe.model.linear_system import LinearSystem
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import EXIT_CODES, SCHEMA_VERSION, content


@dataclass(frozen=True, kw_only=True)
class PropagationResult:
    """Outcome of a propagation.

    Attributes
    ----------
    status : ``fixpoint``, ``infeasible``, ``limit`` or ``interrupted`` (by a signal).
    reason : reason for the status; empty for a fixpoint.
    problem : its name.
    rounds : removals in each round: values of domains, or improvements of a linear system's bounds.
    removed : values removed, or bounds improved, in total, including probing.
    constraint, variable : names of those that show infeasibility; None otherwise.
    reduced : the reduced problem or system, with all variables and fewer values; None if it is infeasible.
    left_out : unsupported parts of the file: removals are valid without them, but may be fewer.
    probes : single assignments that were propagated. failures : number of contradictions among them.
    seconds : wall time, including reading.
    """

    status: str
    reason: str
    problem: str
    rounds: tuple[int, ...]
    removed: int
    constraint: str | None = None
    variable: str | None = None
    reduced: Problem | CompactProblem | LinearSystem | None = field(default=None, repr=False)
    left_out: tuple[str, ...] = field(default=(), repr=False)
    probes: int = 0
    failures: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """Exit code of the command."""
        return EXIT_CODES.get(self.status, EXIT_OPTIMAL)

    @property
    def domains(self) -> dict[str, list[str]] | dict[str, tuple[int | float, int | float]] | None:
        """Remaining domain of each variable: values and integer ranges (``3..8``), or two bounds; None: infeasible."""
        if self.reduced is None:
            return None
        if isinstance(self.reduced, LinearSystem):
            system = self.reduced
            pairs = zip(system.lower.tolist(), system.upper.tolist(), strict=True)
            return dict(zip(system.names, pairs, strict=True))
        problem = self.reduced.problem if isinstance(self.reduced, CompactProblem) else self.reduced
        return {v.name: _ranges(v) for v in problem.variables}

    def to_json(self) -> dict[str, object]:
        """The content as JSON types; infinite bounds are null."""
        domains: dict[str, list[str] | list[int | float | None]] | None = None
        if self.domains is not None:
            domains = {
                name: left if isinstance(left, list) else [None if math.isinf(bound) else bound for bound in left]
                for name, left in self.domains.items()
            }
        return {
            "schema_version": SCHEMA_VERSION,
            **content(self, "problem status"),
            "reason": self.reason or None,
            **content(self, "constraint variable rounds removed probes failures left_out"),
            "domains": domains,
            "seconds": self.seconds,
        }


def _ranges(variable: Variable) -> list[str]:
    """A variable's values, consecutive integers as ranges."""
    if variable.labels is None:
        return ["0" if variable.size == 1 else f"0..{variable.size - 1}"]
    found: list[str] = []
    first = last = None
    for label in variable.labels:
        number = int(label) if label.lstrip("-").isdecimal() and len(label) < 20 else None
        if number is not None and last is not None and number == last + 1:
            last = number
            found[-1] = f"{first}..{last}"
        else:
            first = last = number
            found.append(label)
    return found
