"""Results of :func:`oocbe.api.tasks.anytime.anytime`; the same content as ``oocbe uai --json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from oocbe.errors import EXIT_INFEASIBLE, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_OPTIMAL
from oocbe.model.parts import Variable
from oocbe.model.results.numerals import SCHEMA_VERSION, content, finite

EXACT, BOUNDED, ESTIMATED, INFEASIBLE = "exact", "bounded", "estimated", "infeasible"


@dataclass(frozen=True, kw_only=True)
class AnytimeResult:
    """The best answer to a task of the UAI competitions within the limits.

    Attributes
    ----------
    task : ``PR``, ``MAR``, ``MAP`` or ``MMAP``.
    status : ``exact``; ``bounded`` (the value is between two finite bounds); ``estimated``; ``infeasible`` (every
        weight is 0, which is exact, too).
    value : natural logarithm of the partition function (``PR``, ``MAR``) or of the assignment's weight, the variables
        outside of the query summed out; an estimate unless exact. None: unknown.
    lower, upper : proven bounds of the exact value, natural logarithms, infinite without one.
    marginals : of ``MAR``, float64 (domain size,) for each variable. assignment : variable index to value index, of the
        query or of all variables.
    method : origin of the value. interrupted : a signal arrived. evidence : by name.
    seconds : wall time by phase (``read``, ``total``).
    """

    problem: str
    task: str
    status: str
    variables: tuple[Variable, ...] = field(repr=False)
    value: float | None
    lower: float
    upper: float
    method: str
    seconds: Mapping[str, float]
    peak_memory_bytes: int
    marginals: tuple[NDArray[Any], ...] = field(default=(), repr=False)
    assignment: Mapping[int, int] | None = field(default=None, repr=False)
    evidence: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 20 for an answer that is not exact."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        return {EXACT: EXIT_OPTIMAL, INFEASIBLE: EXIT_INFEASIBLE}.get(self.status, EXIT_LIMIT)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types; infinities are null."""
        made: dict[str, object] = {
            "schema_version": SCHEMA_VERSION,
            **content(self, "task status problem method interrupted seconds peak_memory_bytes evidence notes"),
            **{name: finite(getattr(self, name)) for name in ("value", "lower", "upper")},
            "log10": None if self.value is None else finite(self.value / math.log(10)),
        }
        if self.marginals:
            pairs = zip(self.variables, self.marginals, strict=True)
            made["marginals"] = {v.name: {v.label(i): x for i, x in enumerate(own.tolist())} for v, own in pairs}
        if self.assignment is not None:
            made["assignment"] = {
                self.variables[v].name: self.variables[v].label(x) for v, x in self.assignment.items()
            }
        return made
