"""Results of tasks; the same content as ``--json``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from oocbe.model.parts import Variable
from oocbe.model.results.numerals import (
    SCHEMA_VERSION,
    Answer,
    content,
    digits,
    finite,
    labels_of,
    logarithm_of,
    mebibytes,
)
from oocbe.model.results.progress_curve import PresolveStep, RowsRead
from oocbe.runtime.framed import Framed
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture

SHOWN_DIGITS = 60
"""Digits of a count above which a terminal shows its magnitude; --json and --quiet have all digits."""

FLOAT_DIGITS = 300
"""Decimal exponent up to which a fraction is also shown as a decimal number."""

SHOWN_LINES = 10
"""Variables or assignments shown in a notebook; ``plot`` shows more, and the attributes have all."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskResult(Answer, Framed, Shown):
    """Outcome of a task. ``result["rain"]`` has a variable's marginal by label, or its label in the best assignment.

    Attributes
    ----------
    task : ``mpe``, ``count``, ``count-optimal``, ``kbest``, ``logz``, ``marginals`` or ``min-marginals``.
    status : ``exact``, ``infeasible`` if no assignment is feasible, ``interrupted`` after a signal (only ``mpe`` has a
        value then), or, for ``mpe``, ``limit``: a limit was reached before the proof.
    value : the count (an integer of any size; with weights a fraction, or a float if requested), the natural logarithm
        of the partition function or of the probability of the most probable explanation, or the optimum.
    bound : for ``mpe``, no assignment's logarithm exceeds this by more than ``tolerance``.
    tolerance : for ``mpe``, maximum distance of the value from the optimum due to rounding.
    evidence : labels of the fixed values, by variable name (:attr:`oocbe.Problem.evidence`).
    kind : for ``count``, its type: ``mc``, or ``wmc``, ``pmc``, ``pwmc`` with weights, a projection, or both.
    log10 : of counts, decimal logarithm of the absolute value, also beyond float64; -inf for 0.
    optimum : for ``count-optimal``, value of the counted assignments; otherwise None.
    assignments : for ``kbest`` and ``mpe``, value and value indices of each, best first.
    marginals : an array (domain size,) per variable: float64, or, for ``min-marginals`` of integers, Python integers
        (NaN if nothing is feasible) in an array of dtype object.
    temperature : of the weights, if they depend on one.
    variables, problem, semiring : of the problem.
    width, largest_message_rows, total_rows, order, dtype, backend : of the (last) forward pass.
    passes : forward passes over all tables. read_by_workers, presolve : as for :class:`oocbe.Result`.
    seconds : wall time by phase. peak_memory_bytes : largest resident set of the process until the end.
    notes : sentences for display.
    """

    task: str
    status: str
    value: int | float | Fraction | None
    problem: str
    semiring: str
    variables: tuple[Variable, ...]
    width: int
    largest_message_rows: int
    total_rows: int
    order: tuple[int, ...]
    dtype: str
    backend: str
    seconds: Mapping[str, float]
    peak_memory_bytes: int
    passes: int = 1
    optimum: int | float | None = None
    assignments: tuple[tuple[int | float, tuple[int, ...]], ...] = ()
    marginals: tuple[NDArray[Any], ...] = ()
    temperature: float | None = None
    notes: tuple[str, ...] = ()
    bound: float | None = None
    tolerance: float | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    read_by_workers: RowsRead | None = None
    presolve: tuple[PresolveStep, ...] = ()
    kind: str = "mc"
    log10: float | None = None

    def __post_init__(self) -> None:
        if self.log10 is None and self.counts and self.value is not None:
            object.__setattr__(self, "log10", logarithm_of(self.value, math.log10))

    @property
    def counts(self) -> bool:
        """Whether the value is a count."""
        return self.task.startswith("count")

    @property
    def logarithm(self) -> float | None:
        """Natural logarithm of a count's absolute value, -inf for 0; None for other tasks."""
        if self.log10 is None or self.value is None:
            return None
        is_outside = isinstance(self.value, float) and (self.value == 0 or math.isinf(self.value))
        return self.log10 * math.log(10) if is_outside else logarithm_of(self.value)

    @property
    def probability(self) -> float | None:
        """Exponential of ``value``; None for other tasks, without a value, or beyond the range of float64.

        For ``mpe`` the probability of explanation and evidence together; for ``logz`` and ``marginals`` the weight of
        all assignments consistent with the evidence: its probability, if the problem is a network of probabilities.
        """
        if self.task not in ("mpe", "logz", "marginals") or self.value is None:
            return None
        try:
            return math.exp(self.value)
        except OverflowError:
            return None

    @property
    def assignment(self) -> tuple[int, ...] | None:  # type: ignore[override]  # of the best of several
        """The best assignment of ``mpe`` and ``kbest``, value indices; None without one."""
        return self.assignments[0][1] if self.assignments else None

    @property
    def labelled(self) -> tuple[tuple[int | float, dict[str, str]], ...]:
        """All assignments, best first: value, and value label by variable name."""
        return tuple((value, labels_of(self.variables, own) or {}) for value, own in self.assignments)

    @property
    def marginals_by_name(self) -> dict[str, dict[str, int | float]]:
        """Probability, or least value, by value label and variable name; empty for tasks without marginals."""
        if not self.marginals:
            return {}
        pairs = zip(self.variables, self.marginals, strict=True)
        return {v.name: {v.label(i): x for i, x in enumerate(own.tolist())} for v, own in pairs}

    def __getitem__(self, name: str) -> Any:
        return self.marginals_by_name[name] if self.marginals else super().__getitem__(name)

    def _columns(self) -> Iterator[tuple[str, Any]]:
        if self.counts or self.task == "logz":
            is_small = isinstance(self.value, float | int) and abs(self.value) < 2.0**63
            value = self.value if is_small or self.value is None else digits(self.value)
            yield from (("status", [self.status]), ("value", [value]))
            return
        if not self.marginals:  # of assignments, a row each
            yield "value", [value for value, _ in self.labelled]
            yield from ((v.name, [labels[v.name] for _, labels in self.labelled]) for v in self.variables)
            return
        cells = [(name, label, x) for name, own in self.marginals_by_name.items() for label, x in own.items()]
        what = "value" if self.task == "min-marginals" else "probability"
        yield from zip(("variable", "label", what), map(list, zip(*cells, strict=True)), strict=True)

    def facts(self) -> list[tuple[str, object]]:
        """The lines of the command line before the answers, as pairs of name and content; the time by phase."""
        from oocbe.runtime.pictures.html import first_pairs

        return [
            ("problem", self.problem),
            ("task", self.task),
            ("status", self.status),
            *self._value_facts(),
            ("evidence", first_pairs(self.evidence)),
            ("temperature", self.temperature),
            ("width", self.width),
            ("largest message", f"{self.largest_message_rows:,} rows"),
            ("all messages", f"{self.total_rows:,} rows"),
            ("workers", None if self.read_by_workers is None else self.read_by_workers.summary),
            ("passes", self.passes),
            ("time", self.seconds),
            ("presolve removed", ", ".join(map(str, self.presolve))),
            ("peak memory", mebibytes(self.peak_memory_bytes)),
            *(("note", text) for text in self.notes),
        ]

    def _value_facts(self) -> list[tuple[str, object]]:
        if self.value is None and self.status == "interrupted":
            return [("bound", self.bound)]
        if self.counts:
            assert self.value is not None and self.log10 is not None
            exact = digits(self.value)
            sign = "-" * (self.value < 0)
            shown = exact if len(exact) <= SHOWN_DIGITS else f"{sign}10^{self.log10:.6g}"
            if isinstance(self.value, Fraction) and self.value.denominator > 1 and abs(self.log10) < FLOAT_DIGITS:
                shown = f"{shown} = {float(self.value):.12g}" if shown == exact else f"{float(self.value):.12g}"
            kind = self.kind if self.kind != "mc" else None
            return [("type", kind), ("count", shown), ("optimum", self.optimum)]
        if self.task == "mpe":
            return [
                ("log probability", self.value),
                ("bound", None if self.status == "exact" else self.bound),
                ("tolerance", self.tolerance),
            ]
        if self.task in ("logz", "marginals"):
            return [("log Z", self.value)]
        return [("optimum", self.value)]

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        from oocbe.runtime.pictures.html import first_pairs

        facts = [*self.facts()[2:], ("exp(value)", self.probability)]
        by_name = self.marginals_by_name
        for name, own in list(by_name.items())[:SHOWN_LINES]:
            facts.append((name, ", ".join(f"{label}: {x:.4g}" for label, x in own.items())))
        for rank, (value, labels) in enumerate(self.labelled[:SHOWN_LINES], start=1):
            facts.append((f"{rank}", f"{value}: {first_pairs(labels)}"))
        more = max(len(by_name), len(self.assignments)) - SHOWN_LINES
        return f"{self.problem}: {self.task}", [*facts, ("more", f"{more:,}, in the attributes" if more > 0 else "")]

    def plot(self) -> Picture:
        """Plot of marginals as bars by name, or of the best assignments by rank with their differences.

        Raises
        ------
        UsageError : the task has only one number or assignment, or matplotlib is missing.
        """
        from oocbe.errors import UsageError
        from oocbe.runtime.pictures.plots import ranking, shares

        if self.marginals:
            is_best = self.task == "min-marginals"
            what = "best value with this value of the variable" if is_best else "probability"
            return shares(f"{self.problem}: {self.task}", self.marginals_by_name, what, not is_best)
        if len(self.assignments) < 2:
            raise UsageError(f"{self.problem}: the task {self.task} ({self.status}) has nothing to draw")
        labels = [own for _, own in self.labelled]
        return ranking(f"{self.problem}: {self.task}", [value for value, _ in self.assignments], labels)

    @property
    def _json_value(self) -> int | float | str | None:
        if self.value is not None and (self.counts or isinstance(self.value, Fraction)):
            return digits(self.value)
        return finite(self.value)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types, with ``schema_version``.

        Counts are strings, decimal numbers or fractions such as ``1/3``, since JSON readers round large numbers, with
        their logarithms; infinities and NaN are null.
        """
        made: dict[str, object] = {
            "schema_version": SCHEMA_VERSION,
            **content(self, "task status"),
            "value": self._json_value,
            **content(
                self,
                "problem semiring width largest_message_rows total_rows passes read_by_workers seconds "
                "peak_memory_bytes dtype backend evidence presolve notes",
            ),
            "order": [self.variables[v].name for v in self.order],
        }
        if self.counts:
            made |= {"logarithm": finite(self.logarithm), "log10": finite(self.log10)}
        if self.task == "count":
            made["kind"] = self.kind
        if self.task == "count-optimal":
            made["optimum"] = finite(self.optimum)
        if self.task == "mpe":
            made["log_probability"] = self._json_value
            made["probability"] = self.probability
            made["bound"] = finite(self.bound)
            made["tolerance"] = finite(self.tolerance)
            made["assignment"] = self.labels
        if self.temperature is not None:
            made["temperature"] = finite(self.temperature)
        if self.task == "kbest":
            made["assignments"] = [{"value": finite(v), "assignment": labels} for v, labels in self.labelled]
        if self.marginals:
            made["marginals"] = {
                name: {label: finite(x) for label, x in own.items()} for name, own in self.marginals_by_name.items()
            }
        return made
