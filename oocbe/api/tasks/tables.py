"""The tables of tasks: one forward pass without dominance or bounds, stored until the task is done.

The backward pass computes global weights of rows, from the root of the bucket tree down. A message has, for every row
of its separator, the sum over the variables eliminated below it. In the backward pass, each row of a bucket's own
message receives a weight for all variables *outside*; the bucket's join splits it among the values of its variable and
passes it to the rows of the joined messages. Weights that are conditional probabilities give marginals without division
(downwards the tree is a directed model, as for sampling), gaps to the best value give min-marginals, and truth values
the rows that occur in an optimal assignment.

Weights are in memory, or in a scratch file if memory is short (:class:`RowWeights`). Both forms use blocks of a fixed
number of rows, so that sums are identical to the last bit. A file has an LRU cache of a few blocks in memory:
neighbouring rows of one message point to neighbouring rows of the next.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import CHUNK_CELLS, CHUNK_ROWS, Bucket, BucketRows, Evaluated, columns_of
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, message_memory
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.consumption import carried_in_rows, left_out, why_left_out
from oocbe.elimination.observer import Observer, bucket_callback
from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.outcome import ForwardPass
from oocbe.elimination.plan.plan import candidate_orders, plan_of
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.elimination.race import Race
from oocbe.elimination.reformulation import reduce_arity
from oocbe.elimination.runs.durability import Run
from oocbe.errors import CorruptDataError, DiskError, UnsupportedError
from oocbe.execution.sources import ChunkCache
from oocbe.formats.global_costs import Decomposed
from oocbe.model.parts import Constraint, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.checksums import crc32
from oocbe.runtime.deadline import Deadline
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget, NamelessFile


@dataclass
class Tables:
    """A finished forward pass.

    prepared, outcome : of the forward pass. store : holds the messages.
    choice : the order. engine : that computed them. deadline : of the engine's calls, including later passes.
    seconds : wall time by phase.

    A context manager that closes the store and ends the deadline's timer.
    """

    prepared: Prepared
    outcome: ForwardPass
    store: MessageStore
    choice: OrderChoice
    engine: BucketEngine
    seconds: dict[str, float]
    deadline: Deadline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.deadline.close()
        self.store.close(interrupted=kind is not None)


def keeping_rows(options: SolveOptions, problem: Problem) -> SolveOptions:
    """Options of an elimination in the problem's semiring that removes no feasible row."""
    return replace(options, semiring=problem.semiring, dominance=False, bounds="none")


def check_constraints(problem: Problem, carries: bool) -> None:
    """Raise UnsupportedError for a linear constraint that can bind, and does not fit the keys or, without ``carries``,
    has more variables than fit a lookup."""
    if relaxed := left_out(problem):
        raise UnsupportedError(f"{problem.name}: the task needs every constraint enforced; {why_left_out(relaxed)}")
    if not carries and (carried := carried_in_rows(problem)):
        c = problem.linear_constraints[carried[0]]
        raise UnsupportedError(
            f"{problem.name}: {c.name} over {len(c.scope)} variables can bind; this task goes back over the tables, "
            "which is not supported yet where their rows carry what they consume of a linear constraint. The optimum, "
            "count and logz are exact there"
        )


def compute_tables(
    problem: Problem,
    options: SolveOptions,
    observer: Observer | None = None,
    *,
    carries: bool = False,
    known: Sequence[int] = (),
    orders: Callable[[Problem, SolveOptions], list[OrderChoice]] | None = None,
    maker: Callable[..., MessageMaker] = MessageMaker,
) -> Tables:
    """Run the forward pass in the problem's semiring, with every feasible row.

    carries : whether the task accepts rows that carry their consumption of linear constraints.
    known : an order from an earlier search, in place of a long one. orders : finds orders, the best first; None: all
        orders are permitted. maker : class that makes the messages.
    Raises errors of :func:`check_constraints`; ResourceError: memory or disk is full; FloatRangeError: products
    leave float64; TimeLimitError: ``options.time_limit``, counted from here, was reached; it includes later passes.
    """
    check_constraints(problem, carries)
    with ExitStack() as failed:
        deadline = Deadline(options.time_limit)
        failed.callback(deadline.close)
        begin = time.perf_counter()
        unpruned = keeping_rows(options, problem)
        choices = candidate_orders(problem, unpruned, deadline, known) if orders is None else orders(problem, unpruned)
        plans = cache(lambda number: plan_of(problem, choices[number], unpruned))
        if all(plans(number).disk_refusal for number in range(len(choices))):
            raise DiskError(plans(0).disk_refusal)
        ordered = time.perf_counter()
        engine = engine_for(options, deadline)
        run = Run(problem, options)
        run.memory = message_memory(options)

        def start(choice: OrderChoice) -> Callable[[int, int, int], None] | None:
            if observer is None:
                return None
            observer.started(plans(next(number for number, own in enumerate(choices) if own is choice)))
            return bucket_callback(observer, problem, choice.order)

        race = Race(problem, problem.semiring, choices, False, run, engine, tables=options.tables, maker=maker)
        for attempt in race.rounds():
            with attempt:
                # Tasks read all rows of the messages in a backward pass, so none may be deleted.
                attempt.outcome = attempt.forward.run(start(attempt.choice), may_forget=False)
        winner = race.winner
        assert winner is not None
        seconds = {"order": ordered - begin, "forward": time.perf_counter() - ordered}
        failed.pop_all()
    return Tables(winner.prepared, winner.outcome, winner.store, winner.choice, engine, seconds, deadline)


def with_walks(problem: Problem) -> Problem:
    """The problem with variables for partial sums, after its own, in place of wide linear constraints."""
    large = [*left_out(problem), *(problem.linear_constraints[number] for number in carried_in_rows(problem))]
    walks = Decomposed(list(problem.sizes))
    for own in large:
        walks.walk(own.name, own.scope, 0, _step_of(own), lambda _: 0)
    states = zip(walks.names, walks.sizes[len(problem.sizes) :], strict=True)
    tables = [Constraint(t.scope, t.tuples, t.default == math.inf) for t in walks.tables]
    decomposed = replace(
        problem,
        variables=(*problem.variables, *(Variable(f"expression.{name}", size) for name, size in states)),
        constraints=(*problem.constraints, *tables),
        linear_constraints=tuple(own for own in problem.linear_constraints if own not in large),
    )
    return reduce_arity(decomposed)


def _step_of(own: LinearConstraint) -> Callable[[int, int, int], tuple[int, int | float]]:
    """The step from a partial sum to the next one, or to the greatest one of those from which nothing is too much."""
    least, most = ([0, *itertools.accumulate(reversed(ends))][::-1] for ends in own.ends)

    def step(place: int, total: int, value: int) -> tuple[int, int | float]:
        total += int(own.coefficients[place][value])
        if total + least[place + 1] > own.capacity:
            return 0, math.inf
        return max(total, own.capacity - most[place + 1]), 0

    return step


Share = Callable[[Bucket, NDArray[np.int64], NDArray[Any], Evaluated], NDArray[Any]]
"""Called with a bucket, row numbers of its own message, their weights and their evaluation; returns the weight of each
row and value (rows, domain size). Infeasible ones have the same ``nothing`` as unreached ones."""


def descend(tables: Tables, start: Any, nothing: Any, reduce: np.ufunc, share: Share) -> None:
    """Visit every bucket from the root down.

    start : weight of the single row of a bucket without a separator. nothing : weight of an unreached row.
    reduce : combines the weights of one row, such as ``np.add``; ``nothing`` is its neutral element.
    share : splits the weights of a bucket's rows; see :data:`Share`.
    """
    dtype = np.asarray(start).dtype
    store = tables.store
    store.free_device_memory()
    numbers = tuning()
    store.make_room(int(store.memory_limit * numbers.half_share))
    most = int(store.memory_limit * numbers.small_share)
    cache = ChunkCache(int(store.memory_limit * numbers.quarter_share))

    def fresh(rows: int) -> RowWeights:
        return RowWeights(rows, nothing, dtype, most, store.budget)

    weights: dict[int, RowWeights] = {}
    for bucket in reversed(tables.outcome.buckets):
        own = bucket.sent
        mine = fresh(1) if own is None else weights.pop(id(own))
        if own is None:
            mine.add(reduce, np.zeros(1, dtype=np.int64), np.array([start], dtype=dtype))
        handed = [fresh(m.rows) if m.is_filtered else None for m in bucket.messages]
        mine_and_theirs = bucket.messages if own is None else [own, *bucket.messages]
        store.list_rows([m for m in mine_and_theirs if m.is_filtered and m.listed_bytes > most])
        rows, sent = BucketRows(tables.prepared, bucket, cache), None if own is None else own.sorted_rows(cache)
        size = tables.prepared.problem.sizes[bucket.variable]
        for piece, weight in _reached(mine, nothing, min(CHUNK_ROWS, max(1, CHUNK_CELLS // size))):
            tables.deadline.check()
            columns = {} if own is None or sent is None else columns_of(own, sent, piece)
            evaluated = rows.evaluate(columns, len(piece))
            if not evaluated.feasible.any(axis=1).all():
                problem = tables.prepared.problem
                raise CorruptDataError(
                    f"{problem.name}, bucket of {problem.variables[bucket.variable].name}: no value extends a row of "
                    "its message; a message has changed since it was made"
                )
            shares = share(bucket, piece, weight, evaluated)
            reached = shares != nothing
            for target, places in zip(handed, evaluated.places, strict=True):
                if target is not None:
                    target.add(reduce, places[reached], shares[reached])
        mine.close()
        for message, target in zip(bucket.messages, handed, strict=True):
            if target is not None:
                weights[id(message)] = target


def _reached(weights: RowWeights, nothing: Any, most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    for start, block in weights.blocks():
        rows = np.flatnonzero(block != nothing)
        for first in range(0, len(rows), most):
            piece = rows[first : first + most]
            yield start + piece, block[piece]


def gaps(tables: Tables, evaluated: Evaluated) -> NDArray[Any]:
    """Gap of each value to its row's best, at least 0, of logarithms for products; infeasible ones are not masked."""
    semiring = tables.prepared.semiring
    values, feasible = evaluated.values, evaluated.feasible
    if semiring.combination is Combination.MULTIPLY:
        with np.errstate(divide="ignore"):
            values = -np.log(np.where(feasible, values, 1).astype(np.float64))
    elif semiring.marginalisation is Marginalisation.MAX:
        values = -values
    worst = np.iinfo(np.int64).max if values.dtype.kind == "i" else np.inf
    best = np.where(feasible, values, worst).min(axis=1)
    found: NDArray[Any] = np.where(feasible, values - best[:, None], 0)
    return found


def multiplies_integers(prepared: Prepared) -> bool:
    """Whether values are products of integers, which are compared exactly, unlike their logarithms."""
    return prepared.dtype.kind == "i" and prepared.semiring.combination is Combination.MULTIPLY


def best_products(evaluated: Evaluated) -> NDArray[np.int64]:
    """The largest feasible value of each row, (rows, 1), of products of integers; none of them is negative."""
    best: NDArray[np.int64] = np.where(evaluated.feasible, evaluated.values, 0).max(axis=1)
    return best[:, None]


def ties(tables: Tables, evaluated: Evaluated, margin: float) -> NDArray[np.bool_]:
    """Mask of the values equal to the best one of their row: integers exactly, other numbers up to a margin of gaps."""
    if multiplies_integers(tables.prepared):
        best: NDArray[np.bool_] = evaluated.values == best_products(evaluated)
    else:
        best = gaps(tables, evaluated) <= margin
    return evaluated.feasible & best


BLOCK_ROWS = 1 << 17
"""Rows of a block: 1 MiB of float64."""


class RowWeights:
    """Weights of all rows of a message; :meth:`close` releases its disk space.

    rows : number of rows. nothing : initial weight of a row. dtype : of the weights.
    most_bytes : limit in memory; larger weights are in a file, with a cache of so many bytes.
    budget : counts the file's bytes, and gives its folder.
    Raises DiskError: the file cannot be made.
    """

    def __init__(self, rows: int, nothing: Any, dtype: np.dtype[Any], most_bytes: int, budget: DiskBudget) -> None:
        self.rows, self._nothing, self._dtype = rows, nothing, dtype
        self._block_bytes = BLOCK_ROWS * dtype.itemsize
        self.is_held = rows * dtype.itemsize <= most_bytes
        self._most_blocks = max(1, most_bytes // self._block_bytes)
        self._blocks: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._written: dict[int, int] = {}  # blocks in the file, and their checksums
        self._file: NamelessFile | None = None
        if not self.is_held:
            disk.make_folder_of_user(budget.folder)  # not made yet if all messages fitted the memory
            self._file = NamelessFile(budget, f"scratch file for the weights of {rows:,} rows")

    def add(self, reduce: np.ufunc, rows: NDArray[np.int64], weights: NDArray[Any]) -> None:
        """Reduce weights into some rows, in their order; a row may occur several times.

        Raises DiskError: the disk is full, or its limit reached; CorruptDataError: data of the file changed.
        """
        numbers = rows // BLOCK_ROWS
        order = np.argsort(numbers, kind="stable")
        found, starts = np.unique(numbers[order], return_index=True)
        for number, mine in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            reduce.at(self._block(number), rows[mine] - number * BLOCK_ROWS, weights[mine])

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """First row and weights of each block that any weight was added to, in order; errors as for :meth:`add`."""
        for number in sorted({*self._blocks, *self._written}):
            yield number * BLOCK_ROWS, self._block(number)

    def close(self) -> None:
        """Discard all weights and release their disk space."""
        self._blocks.clear()
        self._written.clear()
        if self._file is not None:
            self._file.close()

    def _block(self, number: int) -> NDArray[Any]:
        """A block in memory; if there are too many, the least recently used ones are written."""
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        while self._file is not None and len(self._blocks) >= self._most_blocks:
            self._write(self._file, *self._blocks.popitem(last=False))
        count = min(BLOCK_ROWS, self.rows - number * BLOCK_ROWS)
        block = np.full(count, self._nothing, dtype=self._dtype)
        if self._file is not None and number in self._written:
            self._read(self._file, number, block)
        self._blocks[number] = block
        return block

    def _read(self, file: NamelessFile, number: int, block: NDArray[Any]) -> None:
        view = block.view(np.uint8).data
        file.read(view, number * self._block_bytes)
        if crc32(view) != self._written[number]:
            raise CorruptDataError(
                f"{file.name}: rows from {number * BLOCK_ROWS:,} on are not what was written; check the disk"
            )

    def _write(self, file: NamelessFile, number: int, block: NDArray[Any]) -> None:
        view = block.view(np.uint8).data
        file.write(view, number * self._block_bytes, more=0 if number in self._written else len(view))
        self._written[number] = crc32(view)
