"""Results of solving: answer, course and cost; the same content as ``--json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from oocbe.model.parts import Variable
from oocbe.model.results.numerals import SCHEMA_VERSION, Answer, content, mebibytes
from oocbe.model.results.progress_curve import (
    BucketDone,
    ConstraintUse,
    KnownAt,
    PresolveStep,
    Removed,
    RowsRead,
    SolverShare,
)
from oocbe.runtime.framed import Framed
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.model.photographs import Schedule
    from oocbe.runtime.pictures.plots import Picture

Status = Literal["optimal", "exact", "infeasible", "nothing-better", "limit", "interrupted"]
LinearHandling = Literal["none", "enforced", "shown not to bind", "relaxed"]

UNPROVEN: tuple[Status, ...] = ("limit", "interrupted")
"""Statuses without a proof: bound and value may differ."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Answer, Framed, Shown):
    """Outcome of a solve; as a data frame, a row for each variable.

    Attributes
    ----------
    status : ``optimal`` (proven), ``exact`` (proven value of a semiring without optimisation), ``infeasible`` (proven
        that no assignment is feasible), ``nothing-better`` (proven that none is better than the option ``ub``),
        ``limit`` (a limit was reached before the proof), ``interrupted`` (by a signal before the proof).
    value : value of the best assignment, or of the whole problem if status is ``exact``; None if unknown.
    bound : proven bound on the optimum; the optimum itself if status is ``optimal``; None if unknown, or if nothing is
        optimised.
    assignment : value index of each variable, in the problem's order; None without one.
    variables : the problem's variables, with the names and labels of the assignment.
    problem : the problem's name.
    semiring : name of the semiring solved in.
    sense : ``min``, ``max`` or ``sum``.
    width : induced width of the order used, or of the planned one if no elimination was completed; 0 if no order was
        found.
    order : variable indices in the order of elimination.
    largest_message_rows : rows of the largest message.
    total_rows : rows of all messages.
    seconds : wall time by phase (``read``, ``order``, ``bounds``, ``forward``, ``backward``, ``mini-buckets``), and
        ``total``; skipped phases are absent. ``compiling``: part of the total for compiling loops, once per machine.
    peak_memory_bytes : largest resident set of the process until the end of the solve.
    dominance : whether substitution dominance was applied.
    dtype : name of the dtype of message values, such as ``int32``.
    backend : ``cpu``, or ``cuda`` if large buckets could run on a device.
    linear_constraints : treatment of the linear constraints; ``relaxed`` means that the value is only a bound.
    notes : sentences for display, about anything unusual.
    bounds : kind and value of the bound used for dropping rows; empty without one.
    anytime : bound and value at each change, with seconds since reading the problem.
    buckets : variable, rows and bytes of each message of the last elimination, possibly incomplete after a limit.
    orders_tried : number of eliminations begun, each with its own order or row cap.
    linear : consumption of each linear constraint by the assignment. propagation : reduction before the search for
        orders; None if the solve ended before.
    presolve : entries of the presolve stack, with their removals.
    solvers : of a search with bounds, what each took and gained.
    read_by_workers : rows of stored tables read by workers, and how many of these another worker had written; None
        without workers.
    schedule : for SPOT5 files, profit and photographs of the assignment; otherwise None.
    """

    status: Status
    value: int | float | None
    assignment: tuple[int, ...] | None
    variables: tuple[Variable, ...]
    problem: str
    semiring: str
    sense: str
    width: int
    order: tuple[int, ...]
    largest_message_rows: int
    total_rows: int
    seconds: Mapping[str, float]
    peak_memory_bytes: int
    dominance: bool
    dtype: str
    backend: str = "cpu"
    linear_constraints: LinearHandling = "none"
    bound: int | float | None = None
    notes: tuple[str, ...] = ()
    bounds: str = ""
    anytime: tuple[KnownAt, ...] = ()
    buckets: tuple[BucketDone, ...] = ()
    orders_tried: int = 0
    linear: tuple[ConstraintUse, ...] = ()
    propagation: Removed | None = None
    presolve: tuple[PresolveStep, ...] = ()
    solvers: tuple[SolverShare, ...] = ()
    read_by_workers: RowsRead | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if self.status == "optimal" and self.bound is None:  # a proven optimum is its own bound
            object.__setattr__(self, "bound", self.value)

    @property
    def gap(self) -> int | float | None:
        """Difference between value and bound; 0 if proven, None if either is missing."""
        if self.value is None:
            return None
        if self.status not in UNPROVEN:
            return 0
        return None if self.bound is None else abs(self.value - self.bound)

    def facts(self) -> list[tuple[str, object]]:
        """The lines of the command line, as pairs of name and content; the time as seconds by phase."""
        value_name = {"optimal": "optimum", "exact": "value"}.get(self.status, "best value")
        return [
            ("problem", self.problem),
            ("status", self.status),
            (value_name, self.value),
            ("bound", None if self.status == "optimal" else self.bound),
            ("gap", self.gap or None),
            ("bounds", self.bounds),
            ("width", self.width),
            ("largest message", f"{self.largest_message_rows:,} rows"),
            ("all messages", f"{self.total_rows:,} rows"),
            ("workers", None if self.read_by_workers is None else self.read_by_workers.summary),
            ("time", self.seconds),
            ("peak memory", mebibytes(self.peak_memory_bytes)),
            ("linear constraints", "" if self.linear_constraints == "none" else self.linear_constraints),
            ("presolve removed", ", ".join(map(str, self.presolve))),
            *(("note", text) for text in self.notes),
            *(() if self.schedule is None else self.schedule.facts()),
        ]

    def _columns(self) -> Iterator[tuple[str, Any]]:
        labels = self.labels or {}
        yield from (("variable", [*labels]), ("value", [*labels.values()]))

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        from oocbe.runtime.pictures.html import first_pairs

        return f"{self.problem}, {self.semiring}", [*self.facts()[1:], ("assignment", first_pairs(self.labels or {}))]

    def plot(self) -> Picture:
        """Plot of bound and value over time, and rows of each bucket's message; UsageError without matplotlib."""
        from oocbe.runtime.pictures.plots import course

        return course(f"{self.problem}: {self.status}", self.anytime, self.buckets)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types, with ``schema_version``; assignment by labels, order by variable names.

        Infinities and NaN become null.
        """
        fields = (
            "status value bound gap bounds problem semiring sense width largest_message_rows total_rows seconds "
            "peak_memory_bytes dominance dtype backend linear_constraints linear propagation presolve read_by_workers "
            "orders_tried solvers anytime"
        )
        return {
            "schema_version": SCHEMA_VERSION,
            **content(self, fields),
            "buckets": [bucket._asdict() for bucket in self.buckets],  # there may be a million
            **content(self, "schedule notes"),
            "order": [self.variables[v].name for v in self.order],
            "assignment": self.labels,
        }
