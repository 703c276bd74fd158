"""What a solve returns: the answer, how it was reached and what it cost; the same content as ``--json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from oocbe.errors import EXIT_INFEASIBLE, EXIT_INTERRUPTED, EXIT_LIMIT, EXIT_NOTHING_BETTER, EXIT_OPTIMAL
from oocbe.model.parts import Variable
from oocbe.model.photographs import Schedule
from oocbe.model.results.numerals import finite, whole_repr
from oocbe.model.results.progress_curve import BucketDone, Consumption, KnownAt, Removed
from oocbe.model.results.rows_read import RowsRead
from oocbe.model.results.schema import SCHEMA_VERSION
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture

Status = Literal["optimal", "exact", "infeasible", "nothing-better", "limit", "interrupted"]
LinearHandling = Literal["none", "enforced", "shown not to bind", "relaxed"]

EXIT_CODES: dict[Status, int] = {
    "optimal": EXIT_OPTIMAL,
    "exact": EXIT_OPTIMAL,
    "infeasible": EXIT_INFEASIBLE,
    "nothing-better": EXIT_NOTHING_BETTER,
    "limit": EXIT_LIMIT,
    "interrupted": EXIT_INTERRUPTED,
}
"""Exit code of the command by the status of its result."""

UNPROVEN: tuple[Status, ...] = ("limit", "interrupted")
"""Statuses of a solve that ended before the proof: its bound and value may be apart."""


@whole_repr
@dataclass(frozen=True, kw_only=True)
class Result(Shown):
    """Outcome of a solve.

    Attributes
    ----------
    status : ``optimal`` (proven), ``exact`` (proven value of a semiring that optimises nothing), ``infeasible``
        (proven that no assignment is feasible), ``nothing-better`` (proven that none is better than the value that the
        option ``ub`` gave), ``limit`` (a limit was reached before the proof), ``interrupted`` (a signal was).
    value : value of the best assignment, or of the whole problem where status is ``exact``; None where none is known.
    bound : proven bound on the optimum: the optimum itself where status is ``optimal``; None where nothing is known, or
        nothing is optimised.
    assignment : value index of each variable, in the problem's order; None where there is none.
    variables : the problem's variables, to name what the assignment means.
    problem : the problem's name.
    semiring : name of the semiring solved in.
    sense : ``min``, ``max`` or ``sum``.
    width : induced width of the order used, or, where no elimination ended, of the one that was planned; 0 where not
        even an order was found.
    order : variable indices in the order in which they were eliminated.
    largest_message_rows : rows of the largest message.
    total_rows : rows of all messages together.
    seconds : wall time by phase (``read``, ``order``, ``bounds``, ``forward``, ``backward``, ``mini-buckets``), and in
        ``total``; absent where not run. ``compiling``: what of the total went into compiling loops, once for a machine.
    peak_memory_bytes : largest resident set of the process until the end of the solve.
    dominance : whether substitution dominance was applied.
    dtype : name of the dtype of message values, such as ``int32``.
    backend : ``cpu``, or ``cuda`` where large buckets could be computed on a device.
    linear_constraints : what became of the linear constraints; ``relaxed`` means that the value is a bound only.
    notes : sentences for people about anything unusual.
    bounds : which bound rows were held against, and what it said; empty where none was.
    anytime : bound and value whenever one of them changed, with seconds since the problem was read.
    buckets : variable, rows and bytes of each message of the last elimination, which a limit may have cut short.
    orders_tried : eliminations that began, each with an order or a row cap of its own.
    linear : what the assignment takes of each linear constraint. propagation : what went before orders were searched
        for; None where the solve ended before.
    read_by_workers : rows that workers have read of stored tables, and how many of these another one had written; None
        where the process worked alone.
    schedule : for SPOT5 files, profit and photographs of the assignment; else None.
    """

    status: Status
    value: int | float | None
    assignment: tuple[int, ...] | None
    variables: tuple[Variable, ...] = field(repr=False)
    problem: str
    semiring: str
    sense: str
    width: int
    order: tuple[int, ...] = field(repr=False)
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
    anytime: tuple[KnownAt, ...] = field(default=(), repr=False)
    buckets: tuple[BucketDone, ...] = field(default=(), repr=False)
    orders_tried: int = 0
    linear: tuple[Consumption, ...] = ()
    propagation: Removed | None = None
    read_by_workers: RowsRead | None = None
    schedule: Schedule | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.status == "optimal" and self.bound is None:  # a proof of the optimum is the best bound there is
            object.__setattr__(self, "bound", self.value)

    @property
    def gap(self) -> int | float | None:
        """Difference between the best assignment's value and the bound; 0 where proven, None where one is missing."""
        if self.value is None:
            return None
        if self.status not in UNPROVEN:
            return 0
        return None if self.bound is None else abs(self.value - self.bound)

    @property
    def exit_code(self) -> int:
        """What the command line returns for this result."""
        return EXIT_CODES[self.status]

    @property
    def labels(self) -> dict[str, str] | None:
        """The assignment as variable name to value label; None where there is no assignment."""
        if self.assignment is None:
            return None
        return {v.name: v.label(value) for v, value in zip(self.variables, self.assignment, strict=True)}

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        from oocbe.runtime.pictures.html import first_pairs

        schedule = self.schedule
        labels = {} if self.labels is None else self.labels
        facts: list[tuple[str, object]] = [
            ("status", self.status),
            ("value", self.value),
            ("bound", self.bound),
            ("gap", self.gap or None),
            ("profit", None if schedule is None else f"{schedule.profit:,} of {schedule.possible:,}"),
            ("photographs", None if schedule is None else f"{len(schedule.taken):,} of {schedule.photographs:,}"),
            ("assignment", first_pairs(labels)),
            ("width", self.width),
            ("largest message", f"{self.largest_message_rows:,} rows of {self.total_rows:,} in all"),
            ("workers", None if self.read_by_workers is None else self.read_by_workers.summary or None),
            ("time", f"{self.seconds.get('total', 0.0):.3g} s"),
            ("peak memory", f"{self.peak_memory_bytes / 2**20:,.0f} MiB"),
            *(("note", note) for note in self.notes),
        ]
        return f"{self.problem}, {self.semiring}", facts

    def plot(self) -> Picture:
        """Bound and value over time, and rows of each bucket's message; UsageError without matplotlib."""
        from oocbe.runtime.pictures.plots import course

        return course(f"{self.problem}: {self.status}", self.anytime, self.buckets)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types, with ``schema_version``; assignment by labels, order by variable names.

        What is infinite, or not a number, is null.
        """
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "value": finite(self.value),
            "bound": finite(self.bound),
            "gap": finite(self.gap),
            "bounds": self.bounds,
            "problem": self.problem,
            "semiring": self.semiring,
            "sense": self.sense,
            "width": self.width,
            "largest_message_rows": self.largest_message_rows,
            "total_rows": self.total_rows,
            "seconds": {phase: round(spent, 6) for phase, spent in self.seconds.items()},
            "peak_memory_bytes": self.peak_memory_bytes,
            "dominance": self.dominance,
            "dtype": self.dtype,
            "backend": self.backend,
            "linear_constraints": self.linear_constraints,
            "linear": [c._asdict() for c in self.linear],
            "propagation": None if self.propagation is None else self.propagation._asdict(),
            "read_by_workers": None if self.read_by_workers is None else self.read_by_workers._asdict(),
            "orders_tried": self.orders_tried,
            "anytime": [{name: finite(number) for name, number in k._asdict().items()} for k in self.anytime],
            "buckets": [b._asdict() for b in self.buckets],
            "schedule": None if self.schedule is None else self.schedule.to_json(),
            "notes": list(self.notes),
            "order": [self.variables[v].name for v in self.order],
            "assignment": self.labels,
        }
