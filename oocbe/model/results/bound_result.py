"""Results of bounds; the same content as ``oocbe bound --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oocbe.errors import EXIT_LIMIT, EXIT_OPTIMAL
from oocbe.model.parts import Variable
from oocbe.model.results.numerals import BOUND_SCHEMA_VERSION, EXIT_CODES, content, finite, labels_of
from oocbe.runtime.pictures.shown import Shown

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture


@dataclass(frozen=True, kw_only=True)
class BoundOfZ:
    """Outcome of mini-bucket elimination with one z.

    z : maximum variables of a mini-bucket, including the eliminated one; 0: no message was made before the time limit.
    status : ``bounded``; ``optimal`` if the assignment's value is proven to be the optimum; ``infeasible``.
    bound : no assignment is better than this; None if nothing is feasible.
    incumbent : value of ``assignment``, evaluated by the problem; None without one.
    log_bound, log_incumbent : natural logarithms of products, which cannot underflow; otherwise None.
    assignment : value index of each variable, or None.
    method : origin of the assignment: ``greedy`` (the backward pass), or the local search used after dead ends.
    exact : no bucket was partitioned, so that the bound is the optimum (of floats, up to rounding).
    split_buckets, mini_buckets : number of partitioned buckets, and of mini-buckets in all.
    width, largest_message_rows, total_rows : of the messages.
    seconds : wall time by phase (``forward``, ``backward``, ``total``).
    """

    z: int
    status: str
    bound: int | float | None
    incumbent: int | float | None
    log_bound: float | None
    log_incumbent: float | None
    assignment: tuple[int, ...] | None = field(repr=False)
    method: str | None
    exact: bool
    split_buckets: int
    mini_buckets: int
    width: int
    largest_message_rows: int
    total_rows: int
    seconds: Mapping[str, float]

    @property
    def claimed_bound(self) -> int | float | None:
        """The bound as printed: its natural logarithm if values are multiplied."""
        return self.bound if self.log_bound is None else self.log_bound

    @property
    def claimed_value(self) -> int | float | None:
        """The incumbent as printed: its natural logarithm if values are multiplied."""
        return self.incumbent if self.log_incumbent is None else self.log_incumbent

    @property
    def gap(self) -> int | float | None:
        """Distance between bound and incumbent, or between their logarithms if present; 0 for a proven optimum."""
        if self.status == "optimal":
            return 0
        if self.log_bound is not None and self.log_incumbent is not None:
            return self.log_bound - self.log_incumbent
        return None if self.bound is None or self.incumbent is None else abs(self.incumbent - self.bound)


@dataclass(frozen=True, kw_only=True)
class BoundResult(Shown):
    """Bounds on a problem's optimum for one or several z.

    Attributes
    ----------
    problem, semiring, sense, variables : of the problem. entries : one per z, in the order given.
    width : induced width of the order. order : variable indices in the order of elimination.
    partition : method of partitioning. cost_shifting : whether costs were to be shifted: notes say where not.
    dtype : of the costs. backend : ``cpu``, or ``cuda`` if large mini-buckets could run on a device.
    seconds : wall time (``read`` if a file was read, ``order``, ``total``).
    peak_memory_bytes : largest resident set of the process.
    notes : sentences for display. interrupted : a signal arrived before all z were done.
    """

    problem: str
    semiring: str
    sense: str
    variables: tuple[Variable, ...] = field(repr=False)
    entries: tuple[BoundOfZ, ...]
    width: int
    order: tuple[int, ...] = field(repr=False)
    partition: str
    cost_shifting: bool
    dtype: str
    backend: str
    seconds: Mapping[str, float]
    peak_memory_bytes: int
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def status(self) -> str:
        """``infeasible`` or ``optimal`` if an entry proves it, or bounds of different z meet.

        Otherwise ``bounded``, or ``interrupted`` if a signal arrived before all z were done.
        """
        found = {entry.status for entry in self.entries}
        if "infeasible" in found:
            return "infeasible"
        best, value = self.best_bound, self.best
        met = best is not None and value is not None and best.claimed_bound == value.claimed_value
        if "optimal" in found or met:
            return "optimal"
        return "interrupted" if self.interrupted else "bounded"

    @property
    def best_bound(self) -> BoundOfZ | None:
        """The entry with the best bound; None without any."""
        known = [e for e in self.entries if e.bound is not None]
        sign = 1 if self.sense == "min" else -1
        return max(known, key=lambda e: sign * _rank(e.log_bound, e.bound), default=None)

    @property
    def best(self) -> BoundOfZ | None:
        """The entry with the best assignment; None without any."""
        known = [e for e in self.entries if e.incumbent is not None]
        sign = 1 if self.sense == "min" else -1
        return min(known, key=lambda e: sign * _rank(e.log_incumbent, e.incumbent), default=None)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: infeasibility, interruption and a limit before all messages differ."""
        done = EXIT_LIMIT if any(entry.z == 0 for entry in self.entries) else EXIT_OPTIMAL
        return EXIT_CODES.get(self.status, done)

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        what = "logarithms: " if any(e.log_bound is not None for e in self.entries) else ""
        facts: list[tuple[str, object]] = [("status", self.status), ("width", self.width)]
        facts += [
            (f"z = {e.z}", f"{what}bound {e.claimed_bound}, assignment {e.claimed_value}, gap {e.gap}")
            for e in self.entries
        ]
        facts.append(("time", f"{self.seconds.get('total', 0.0):.3g} s"))
        return f"{self.problem}, {self.semiring}", [*facts, *(("note", note) for note in self.notes)]

    def plot(self) -> Picture:
        """Plot of bound and value by z, and rows of the largest messages; UsageError without matplotlib."""
        from oocbe.runtime.pictures.plots import bounds

        entries = [(e.z, e.claimed_bound, e.claimed_value, e.largest_message_rows) for e in self.entries]
        return bounds(f"{self.problem}: {self.status}", entries)

    def labels(self, entry: BoundOfZ | None) -> dict[str, str] | None:
        """An entry's assignment: value label by variable name."""
        return None if entry is None else labels_of(self.variables, entry.assignment)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types; ``value`` and ``assignment`` are those of the best incumbent.

        If values are multiplied, ``value``, ``bound`` and ``incumbent`` are natural logarithms, and ``logarithms`` is
        true: products of many factors exceed the range of float64.
        """
        best, best_bound = self.best, self.best_bound
        return {
            "schema_version": BOUND_SCHEMA_VERSION,
            "status": self.status,
            "value": None if best is None else finite(best.claimed_value),
            "bound": None if best_bound is None else finite(best_bound.claimed_bound),
            "logarithms": any(e.log_bound is not None for e in self.entries),
            **content(
                self,
                "problem semiring sense width partition cost_shifting dtype backend seconds peak_memory_bytes notes",
            ),
            "bounds": [
                {
                    **content(e, "z status"),
                    "bound": finite(e.claimed_bound),
                    "incumbent": finite(e.claimed_value),
                    **content(
                        e,
                        "gap log_bound log_incumbent method exact split_buckets mini_buckets width "
                        "largest_message_rows total_rows seconds",
                    ),
                }
                for e in self.entries
            ],
            "order": [self.variables[v].name for v in self.order],
            "assignment": self.labels(best),
        }


def _rank(logarithm: float | None, value: float | None) -> float:
    """Sort key of entries: logarithms if present, since products may underflow."""
    return logarithm if logarithm is not None else float("nan") if value is None else value
