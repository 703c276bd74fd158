"""The plan: an order and what each bucket is predicted to cost, before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from oocbe.elimination.buckets.message import checked_tables, expected_work, supported_representations
from oocbe.elimination.buckets.resources import message_memory
from oocbe.elimination.engine.consumption import carried_in_rows
from oocbe.elimination.engine.decision import BucketConstraints, WhyPieces
from oocbe.elimination.orders.order import (
    MESSAGE_CELLS_A_SECOND,
    MESSAGE_ROWS_A_SECOND,
    SECONDS_A_BUCKET,
    OrderChoice,
    judge_order,
    longest_search,
    order_cell_work,
    search_orders,
    speed_of,
)
from oocbe.elimination.orders.primal_graph import MASKED_SIZE, PrimalGraph, extends_always, hidden_supports, leaves_few
from oocbe.elimination.plan.bucket_forecast import BucketForecast, MessageForecast, Passages
from oocbe.elimination.preparation.packing import is_supply
from oocbe.elimination.preparation.prepare import check_signs, without_zeros
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.errors import DiskError
from oocbe.execution.schedule import Simulated, Stage, forecast, piece_rows, predicted_stage
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import content, format_bytes
from oocbe.model.results.progress_curve import PresolveStep
from oocbe.model.semiring import Semiring
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, looked
from oocbe.runtime.pictures.shown import Shown
from oocbe.tables.disk import free_bytes
from oocbe.tables.layout import WORD_BITS, bits_for, key_words
from oocbe.tables.scratch import default_parent

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture


@dataclass(frozen=True)
class PlannedBucket:
    """One bucket of a plan.

    variable : index of the variable eliminated. name : its name.
    separator : variable indices of the message's scope, the one eliminated next at the front.
    bits : of the message's keys. predicted_rows : estimated feasible rows of the message, dominance not counted.
    complete_rows : rows of a complete table over the separator. predicted_bytes : of the message in its form.
    form : ``complete`` (values only) or ``incomplete`` (rows with keys), as is decided by what is predicted.
    passage : how the bucket passes through memory and disk.
    """

    variable: int
    name: str
    separator: tuple[int, ...]
    bits: int
    predicted_rows: int
    complete_rows: int
    predicted_bytes: int
    form: str
    passage: BucketForecast

    @property
    def density(self) -> float:
        """Predicted rows over complete ones."""
        return self.predicted_rows / self.complete_rows

    @property
    def predicted_seconds(self) -> float:
        """Processor time that it takes, about: without bounds, a device, or what disks add."""
        is_complete = self.form == COMPLETE
        rows = self.complete_rows if is_complete else self.predicted_rows
        return SECONDS_A_BUCKET + rows / (MESSAGE_CELLS_A_SECOND if is_complete else MESSAGE_ROWS_A_SECOND)

    def to_json(self, names: Sequence[str]) -> dict[str, object]:
        """Everything as JSON types; ``names`` are those of all variables."""
        return {
            "variable": self.name,
            "separator": [names[v] for v in self.separator],
            **content(self, "bits predicted_rows complete_rows predicted_bytes predicted_seconds form density"),
            **content(self.passage, "input_bytes pieces fits disk_bytes"),
        }


def powers(rows: int) -> str:
    """Row counts beyond a billion as powers of two."""
    return f"{rows:,}" if rows < 10**9 else f"2^{math.log2(rows):.1f}"


def duration_of(seconds: float) -> str:
    """An estimated time in words, no more exact than it is; beyond a year as a power of ten."""
    for unit, length in (("years", 31_557_600.0), ("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            count = seconds / length
            return f"{_two_digits(count)} {unit}" if count < 10_000 else f"10^{math.log10(count):.0f} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{round(number, 1 - math.floor(math.log10(number))):,.0f}"


def size_of(count: int) -> str:
    """Bytes for people, beyond any disk as powers of two."""
    return format_bytes(count) if count < 1 << 60 else f"2^{math.log2(count):.1f} B"


ROWS_A_SECOND = 5_000_000.0
"""Rows of a message that a worker joins in a second: a bucket of ``segment_rows`` takes some 0.2 s. Predicted
efficiency hardly depends on it; predicted seconds do."""


def simulate_plan(buckets: Sequence[PlannedBucket], workers: int) -> Simulated:
    """Prediction of the scheduling model for a plan: buckets one after the other, the large ones shared out.

    Buckets that are not shared out are one worker's, as all that comes before the first is; what a search with bounds
    leaves of the rows is not known.
    """
    stages: list[Stage] = []
    for bucket in buckets:
        after = (len(stages) - 1,) if stages else ()
        rows = float(bucket.predicted_rows)
        if bucket.passage.strategy.why_pieces is WhyPieces.WORKERS:
            stages.append(predicted_stage(bucket.name, rows, 1 / ROWS_A_SECOND, piece_rows(rows), after))
        else:
            stages.append(Stage(bucket.name, np.zeros(0), rows / ROWS_A_SECOND, after))
    return forecast(stages, workers)


SCHEMA_VERSION = 1
"""Version of the plan's JSON."""

PRINTED_BUCKETS = 12
"""Buckets that ``str(plan)`` lists, the largest ones; ``to_json`` has all."""


@dataclass(frozen=True)
class Plan(Shown):
    """An elimination order with its buckets; prints itself.

    problem : to be solved. semiring, dtype : of the messages' values. choice : the order and its heuristic.
    buckets : in elimination order.
    bounds : a sentence about the bounds for pruning rows, or the search that comes first; empty if there is neither.
    memory : limit of messages in bytes. disk : limit of written bytes.
    is_certain : whether all predicted rows are computed: neither dominance nor bounds drop any, and the prediction
        includes every restrictive constraint, also those implied by eliminated variables.
    propagation : removals by propagation and a subsequent reduction; empty without any.
    presolve : entries of the presolve stack, with their removals.
    workers : requested number; None: none, or one for each GPU.
    loop_seconds : approximate processor time if all buckets are eliminated in one loop; else 0.
    """

    problem: Problem
    semiring: str
    dtype: str
    choice: OrderChoice
    buckets: tuple[PlannedBucket, ...]
    bounds: str = ""
    memory: int = 0
    disk: int = 0
    is_certain: bool = False
    propagation: str = ""
    presolve: tuple[PresolveStep, ...] = ()
    workers: int | None = None
    loop_seconds: float = 0.0

    @property
    def predicted_seconds(self) -> float:
        """Processor time that elimination alone takes by what is predicted; a factor of two either way is usual."""
        return self.loop_seconds or math.fsum(b.predicted_seconds for b in self.buckets)

    @property
    def is_bounded(self) -> bool:
        """Whether a solve begins with bounds, or with a search that has bounds of its own."""
        return bool(self.bounds) and not self.bounds.startswith("none")

    @property
    def headline(self) -> str:
        """One sentence about what a solve does."""
        if self.is_bounded:
            return self.bounds
        way = "elimination of all buckets in one loop" if self.loop_seconds else "elimination"
        return f"{way}, about {duration_of(self.predicted_seconds)} of processor time"

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        buckets = self.buckets
        largest = sorted(buckets, key=lambda b: -b.predicted_bytes)[:3]
        to_disk = sum(b.passage.disk_bytes for b in buckets)
        return f"Plan of {self.problem.name}", [
            ("buckets", len(buckets)),
            ("width", max((len(b.separator) for b in buckets), default=0)),
            ("predicted rows", powers(sum(b.predicted_rows for b in buckets))),
            ("predicted bytes", size_of(sum(b.predicted_bytes for b in buckets))),
            ("solve", self.headline),
            ("elimination alone", f"about {duration_of(self.predicted_seconds)}" if self.is_bounded else None),
            ("memory for messages", size_of(self.memory)),
            ("to disk", size_of(to_disk) if to_disk else None),
            *(
                (f"bucket of {b.name}", f"{powers(b.predicted_rows)} rows, {size_of(b.predicted_bytes)}, {b.form}")
                for b in largest
            ),
        ]

    def plot(self) -> Picture:
        """The tree of buckets by bytes of their messages, and the profile of the order; UsageError without matplotlib.

        A bucket's parent is the one that its message goes to: that of the separator's first variable.
        """
        from oocbe.runtime.pictures.plots import bucket_tree

        place = {b.variable: number for number, b in enumerate(self.buckets)}
        return bucket_tree(
            self.problem.name,
            [b.name for b in self.buckets],
            [place[b.separator[0]] if b.separator else None for b in self.buckets],
            [b.predicted_bytes for b in self.buckets],
            [len(b.separator) for b in self.buckets],
        )

    @cached_property
    def on_workers(self) -> Simulated | None:
        """Predicted time of the requested workers, by a scheduling model; None if they get no bucket."""
        shared = any(b.passage.strategy.why_pieces is WhyPieces.WORKERS for b in self.buckets)
        return simulate_plan(self.buckets, self.workers) if shared and self.workers is not None else None

    @cached_property
    def disk_bytes(self) -> int:
        """Bytes that are predicted to be written to disk, before compression."""
        return sum(b.passage.disk_bytes for b in self.buckets)

    @cached_property
    def least_disk_bytes(self) -> int:
        """Fewest bytes that they may take there."""
        return sum(b.passage.least_disk_bytes for b in self.buckets)

    @property
    def disk_refusal(self) -> str:
        """Why this cannot fit the disk, as far as is known before it begins, with the numbers; empty where it may."""
        if not self.is_certain or self.least_disk_bytes <= self.disk:
            return ""
        spilled = [b for b in self.buckets if b.passage.disk_bytes]
        largest = max(spilled, key=lambda b: b.passage.disk_bytes)
        rows = sum(b.predicted_rows for b in spilled)
        return (
            f"{self.problem.name}: by the plan {len(spilled)} messages with {powers(rows)} rows go to disk and take "
            f"{size_of(self.least_disk_bytes)} there at least "
            f"({size_of(self.disk_bytes)} before compression), most of it the bucket of {largest.name} with "
            f"{powers(largest.predicted_rows)} rows; {size_of(self.disk)} may be used (--max-disk, free space). "
            "Use bounds or dominance, raise --memory, or let the search for an order take longer (--order-seconds)"
        )

    @property
    def order(self) -> tuple[int, ...]:
        """Variable indices, the one eliminated first at the front."""
        return self.choice.order

    @cached_property
    def width(self) -> int:
        """Induced width: variables of the largest separator."""
        return max((len(b.separator) for b in self.buckets), default=0)

    @cached_property
    def largest(self) -> PlannedBucket | None:
        """Bucket with the largest predicted message; None without variables."""
        return max(self.buckets, key=lambda b: b.predicted_rows, default=None)

    def to_json(self) -> dict[str, object]:
        """Everything as JSON types; variables by name."""
        names = [v.name for v in self.problem.variables]
        found = self.on_workers
        return {
            "schema_version": SCHEMA_VERSION,
            "problem": self.problem.name,
            **content(self, "semiring dtype"),
            **content(self.choice, "heuristic candidates"),
            "propagation": self.propagation,
            "presolve": [step._asdict() for step in self.presolve],
            "bounds": self.bounds,
            "solve": self.headline,
            "width": self.width,
            "predicted_rows": sum(b.predicted_rows for b in self.buckets),
            "predicted_bytes": sum(b.predicted_bytes for b in self.buckets),
            **content(self, "predicted_seconds memory disk disk_bytes least_disk_bytes"),
            **({} if found is None else {"on_workers": asdict(found) | {"efficiency": found.efficiency}}),
            "order": [names[v] for v in self.order],
            "buckets": [b.to_json(names) for b in self.buckets],
        }

    def __str__(self) -> str:
        rows = sum(b.predicted_rows for b in self.buckets)
        size = sum(b.predicted_bytes for b in self.buckets)
        lines = [
            f"Plan for {self.problem.name}: {len(self.buckets)} variables, order {self.choice.heuristic} "
            f"(best of {self.choice.candidates}), induced width {self.width}, {self.semiring} over {self.dtype}",
            f"  solve: {self.headline}",
        ]
        if self.propagation:
            lines.append(f"  {self.propagation}")
        if self.presolve:
            lines.append(f"  presolve removed: {', '.join(map(str, self.presolve))}")
        predicted = f"{powers(rows)} rows, {size_of(size)} in all messages"
        if self.is_bounded:
            taken = f"about {duration_of(self.predicted_seconds)} of processor time"
            lines.append(f"  elimination alone, which is not what solve begins with: {predicted}, {taken}")
        else:
            lines.append(f"  predicted without dominance: {predicted}")
        if self.bounds and not self.is_bounded:
            lines.append(f"  bounds: {self.bounds}")
        if self.largest is not None:
            largest = self.largest
            lines.append(
                f"  largest message: bucket of {largest.name}, {powers(largest.predicted_rows)} rows predicted, "
                f"{size_of(largest.predicted_bytes)}, complete {powers(largest.complete_rows)}"
            )
        lines.append(
            f"  memory for messages {size_of(self.memory)}; to disk {size_of(self.disk_bytes)}, at least "
            f"{size_of(self.least_disk_bytes)} once packed; {size_of(self.disk)} may be used"
        )
        shared = sum(b.passage.strategy.why_pieces is WhyPieces.WORKERS for b in self.buckets)
        if shared:
            lines.append(f"  {shared} buckets are large enough to be shared out to workers")
        if (found := self.on_workers) is not None:
            lines.append(
                f"  workers {found.workers:,}: {found.seconds:,.1f} s for {found.work:,.1f} s of one worker's work, at "
                f"{ROWS_A_SECOND:,.0f} rows a second each (efficiency {found.efficiency:.2f}, simulated)"
            )
        beyond = sum(not b.passage.fits for b in self.buckets)
        if beyond:
            lines.append(
                f"  {beyond} messages may not fit: rows that carry what they consume of a capacity are not cut into "
                "pieces; raise --memory"
            )
        lines.append(
            f"  {'bucket':>6}  {'variable':<14}{'scope':>6}{'bits':>6}{'rows':>16}{'complete':>14}{'bytes':>12}"
            f"  {'form':<10}{'density':>8}{'pieces':>8}{'to disk':>12}"
        )
        ranked = sorted(range(len(self.buckets)), key=lambda i: -self.buckets[i].predicted_rows)[:PRINTED_BUCKETS]
        for place in sorted(ranked):
            b = self.buckets[place]
            to_disk = size_of(b.passage.disk_bytes) if b.passage.disk_bytes else ""
            lines.append(
                f"  {place + 1:>6}  {b.name:<14.14}{len(b.separator) + 1:>6}{b.bits:>6}{powers(b.predicted_rows):>16}"
                f"{powers(b.complete_rows):>14}{size_of(b.predicted_bytes):>12}  {b.form:<10}{b.density:>8.2g}"
                f"{powers(b.passage.pieces):>8}{to_disk:>12}"
            )
        if len(self.buckets) > len(ranked):
            lines.append(f"  … and {len(self.buckets) - len(ranked)} smaller buckets (--json lists all)")
        return "\n".join(lines)


def make_plan(problem: Problem, options: SolveOptions) -> Plan:
    """Choose an order and predict what it costs.

    Raises FormatError: the file named by ``options.order`` is no order of this problem; ValueRangeError: sums of values
    may leave 64-bit integers, or no room in requested complete tables; UnsupportedError: factors to compare are
    negative.
    """
    problem = problem.in_semiring(options.semiring or problem.semiring)
    check_signs(problem, problem.semiring)
    checked_tables(problem, problem.semiring, value_dtype(problem, problem.semiring), options.tables)
    return plan_of(problem, candidate_orders(problem, options)[0], options)


def plan_of(problem: Problem, choice: OrderChoice, options: SolveOptions) -> Plan:
    """The plan of one order, with what a solve would do about bounds."""
    semiring = options.semiring or problem.semiring
    return plan_for(problem, semiring, choice, bounds_to_come(problem, semiring, choice, options), options)


def candidate_orders(
    problem: Problem, options: SolveOptions, deadline: Deadline | None = None, known: Sequence[int] = ()
) -> list[OrderChoice]:
    """The most promising order of each heuristic that the options allow, the best first.

    deadline : of everything, of which the search takes a part at most; None: there is none.
    known : an order that a search has found before; where there is one, each heuristic is tried once beside it.
    Raises TimeLimitError: the deadline passed; besides the errors of :func:`make_plan`.
    """
    semiring = options.semiring or problem.semiring
    problem = problem.in_semiring(semiring)
    left = math.inf if deadline is None else deadline.remaining
    options = replace(options, order_seconds=0.0) if known else options
    longest = longest_search(options.order_seconds, left) if options.bounds == "none" and not known else 0.0
    choices = thorough_orders(problem, semiring, options, left, longest, deadline)
    if known:
        judged = judge_order(problem, known, "known", options.seed, _cell_work(problem, semiring, options))
        choices = sorted([*choices, judged], key=OrderChoice.cost)
    return choices


def thorough_orders(
    problem: Problem,
    semiring: Semiring,
    options: SolveOptions,
    left: float,
    longest: float,
    deadline: Deadline | None = None,
) -> list[OrderChoice]:
    """Orders for elimination, the best first, searched for as long as the options allow; judged for their backend.

    left : seconds left of a time limit. longest, deadline : as for
        :func:`oocbe.elimination.orders.order.search_orders`.
    Raises TimeLimitError: the deadline passed; FormatError: the file named by ``options.order`` is no order of this
    problem; ValueRangeError: sums of values may leave 64-bit integers.
    """
    search = (problem, options.order, min(options.order_seconds, left), options.seed)
    return search_orders(*search, cell_work=_cell_work(problem, semiring, options), deadline=deadline, longest=longest)


def _cell_work(problem: Problem, semiring: Semiring, options: SolveOptions) -> float:
    """Cost of a joined cell of complete tables, in rows; errors of values as above."""
    tables = supported_representations(problem, semiring, value_dtype(problem, semiring), options.tables)
    return order_cell_work(speed_of(options.backend), tables)


def easy_orders(problem: Problem, options: SolveOptions, graph: PrimalGraph | None = None) -> list[OrderChoice]:
    """An order of each heuristic, the best first, with a known graph; none if all cost too much without bounds."""
    cell_work = math.inf if options.tables == INCOMPLETE else 1 / tuning().cells_a_row
    return search_orders(problem, options.order, 0.0, options.seed, tuning().easy_rows, cell_work, graph=graph)


def needs_no_bounds(problem: Problem, semiring: Semiring, choice: OrderChoice, options: SolveOptions) -> bool:
    """Whether elimination ends before a bound could be computed; nobody foresees the consumptions carried in rows."""
    if carried_in_rows(problem) or (sum(choice.predicted_rows) > tuning().searched_rows and is_supply(problem)):
        return False
    if options.tables == INCOMPLETE or sum(choice.predicted_rows) <= tuning().easy_rows:
        return sum(choice.predicted_rows) <= tuning().easy_rows
    dtype = value_dtype(problem, semiring)
    tables = supported_representations(problem, semiring, dtype, options.tables)
    predicted = (choice.order, choice.separators, choice.predicted_rows)
    work = expected_work(problem.sizes, *predicted, dtype, tables, options.memory_limit, most=tuning().easy_rows)
    return work <= tuning().easy_rows


def bounds_to_come(problem: Problem, semiring: Semiring, choice: OrderChoice, options: SolveOptions) -> str:
    """A solve's expected use of bounds, as far as it can be predicted."""
    if options.bounds == "none" or options.tables == COMPLETE or not semiring.optimises_sums:
        return ""
    if options.bounds != "auto":
        return f"{options.bounds}, in {options.bound_seconds:g} s"
    if needs_no_bounds(problem, semiring, choice, options):
        return "none, as elimination ends sooner"
    return (
        f"incumbent in {options.incumbent_seconds:g} s and the best at the root of constant, local-polytope and lp in "
        f"{options.bound_seconds:g} s, then elimination of what they leave open"
    )


def plan_for(
    problem: Problem, semiring: Semiring, choice: OrderChoice, bounds: str = "", options: SolveOptions | None = None
) -> Plan:
    """The plan of one order; ``bounds`` as in :class:`Plan`."""
    dtype = value_dtype(problem, semiring)
    options = options or SolveOptions()
    # Bounds drop rows as they are made, which complete tables do not have.
    tables = INCOMPLETE if bounds and not bounds.startswith("none") else options.tables
    tables = supported_representations(problem, semiring, dtype, tables)
    room = message_memory(options)
    messages = _forecasts(problem, choice, dtype)
    wishes = BucketConstraints.of(
        tables, options.piece_rows, consumes=bool(carried_in_rows(problem)), has_workers=options.has_workers
    )
    keeps_all = options.workdir is not None
    passages = Passages(room, options.streams, wishes, keeps_all, problem.sizes).of(messages)
    bits = [bits_for(size) for size in problem.sizes]
    planned = tuple(
        PlannedBucket(
            m.variable,
            problem.variables[m.variable].name,
            m.scope,
            sum([bits[v] for v in m.scope]),
            m.rows,
            m.cells,
            passage.nbytes,
            passage.strategy.form,
            passage,
        )
        for m, passage in looked(zip(messages, passages, strict=True))
    )
    drops_rows = (options.dominance and semiring.optimises_sums) or (bounds and not bounds.startswith("none"))
    disk = disk_available(options)
    is_certain = not drops_rows and _knows_every_row(without_zeros(problem))
    workers = options.worker_count
    return Plan(problem, semiring.name, dtype.name, choice, planned, bounds, room, disk, is_certain, workers=workers)


def check_disk(
    problem: Problem, semiring: Semiring, choices: Sequence[OrderChoice], options: SolveOptions, available: int
) -> None:
    """Raise the first order's DiskError if no order fits the ``available`` bytes of the disk."""
    refusals = []
    for choice in choices:
        plan = plan_for(problem, semiring, choice, "", options)
        refusals.append(replace(plan, disk=available).disk_refusal)
        if not refusals[-1]:
            return
    if refusals:
        raise DiskError(refusals[0])


def _knows_every_row(problem: Problem) -> bool:
    """Whether predictions know every constraint that forbids much, also by what it leaves of variables gone."""
    hides = any(leaves_few(problem, s) for s in hidden_supports(problem, MASKED_SIZE))
    return not hides and extends_always(problem)


def disk_available(options: SolveOptions) -> int:
    """Bytes that a new run may write: what is free where it would, or the limit where that is less."""
    free = free_bytes(default_parent() if options.workdir is None else options.workdir)
    return free if options.max_disk is None else min(free, options.max_disk)


def _forecasts(problem: Problem, choice: OrderChoice, dtype: np.dtype[Any]) -> list[MessageForecast]:
    position = {v: place for place, v in enumerate(choice.order)}
    sizes, bits = problem.sizes, [bits_for(size) for size in problem.sizes]
    messages = []
    for v, separator, rows in looked(zip(choice.order, choice.separators, choice.predicted_rows, strict=True)):
        target = position[separator[0]] if separator else None
        cells = math.prod([sizes[u] for u in separator])
        predicted = min(cells, round(rows))
        row_bytes = key_words([bits[u] for u in separator]) * WORD_BITS // 8 + dtype.itemsize
        known = (dtype.itemsize, row_bytes, cells, predicted, predicted, predicted)
        messages.append(MessageForecast(target, v, separator, *known))
    return messages
