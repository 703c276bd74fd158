"""The backward pass: an optimal assignment from the kept messages (Dechter 1999).

Buckets are visited in reverse elimination order. The separator of a bucket is then already assigned, so each value of
its variable is evaluated with one row of every received message and one entry of every function. If rows carry
consumption of linear constraints, a message may have several rows for one assignment of its scope. Each bucket then has
an *allotment*: the pass selects the best value and one row of each message whose consumption stays within it. The
consumption of a selected row is the allotment of the bucket that sent its message.

Cells of *forgotten* messages are recomputed. After the join, the backward pass reads only as many cells of a message as
its receiver's variable has values. Keeping gigabytes on a nearly full device for that is out of proportion. The value
of a message under one assignment of its scope needs, of each message received by its own bucket, one value for each
value of the bucket's variable; kept messages provide them by lookup. So messages may be forgotten as long as chains of
forgotten messages stay short: each link multiplies the lookups by a domain size. With two values a variable and 256
lookups, one message in nine is kept along a path of the bucket tree. Recursive conditioning (Darwiche 2001) trades
memory for repeated work in the same way, and caches as much as fits.

Messages whose rows carry consumption are excluded: for them a row is selected, not only a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.buckets import Bucket, entries_over, reading
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.engine.consumption import Consumption
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.errors import CorruptDataError
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.tracing.recorder import ELIMINATION, spanning


class Recomputation:
    """Decides which messages of one forward pass may be forgotten, and recomputes their cells.

    prepared : the problem, without consumption in its rows. buckets : of the forward pass, in elimination order.
    """

    def __init__(self, prepared: Prepared, buckets: Sequence[Bucket]) -> None:
        self._prepared, self._buckets = prepared, buckets
        self._maker: dict[int, Bucket] = {}

    def made(self, message: Message, bucket: Bucket) -> None:
        """Record the bucket that made a message."""
        self._maker[id(message)] = bucket

    def forget(self, message: Message) -> bool:
        """Forget a joined message if its values take few lookups; returns whether it was forgotten."""
        receiver = self._buckets[self._prepared.position[message.scope[0]]]
        chain_goes_on = receiver.sent is not None and receiver.sent.is_forgotten
        if id(message) not in self._maker or chain_goes_on or self._lookups_without(message) > tuning().most_lookups:
            return False
        message.forget()
        return True

    def _lookups_without(self, message: Message) -> int:
        """Lookups for one value of a message once it is forgotten."""
        bucket = self._maker[id(message)]
        received = 0
        for m in bucket.messages:
            if m.is_forgotten:
                received += self._lookups_without(m)
            else:
                received += 1 if m.is_in_memory and m.is_complete else tuning().slow_lookups
        return self._prepared.problem.sizes[bucket.variable] * max(1, received)

    def cells(
        self, message: Message, chosen: dict[int, int], free: tuple[int, ...]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values of a message for all assignments of some of its variables, the others fixed.

        chosen : value index of each other variable of its scope. free : variables of its scope.
        Returns values, int64 or float64, an axis for each free variable, and feasible, bool of the same shape. Values
        that are not feasible are undefined; those of a forgotten message of products exclude one power of two, the same
        for all.
        """
        if not message.is_forgotten:
            return message.cells_at(chosen, free)
        bucket = self._maker[id(message)]
        return self._marginalised(*values_of(self._prepared, bucket, chosen, (*free, bucket.variable), self))

    def _marginalised(
        self, values: NDArray[Any], feasible: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The best feasible value along the last axis, and a mask of the entries that have one."""
        semiring = self._prepared.semiring
        exists: NDArray[np.bool_] = np.asarray(feasible.any(axis=-1))
        limits = np.iinfo(values.dtype) if values.dtype.kind == "i" else np.finfo(values.dtype)
        worst = limits.max if semiring.marginalisation is Marginalisation.MIN else limits.min
        reduced = semiring.reduce(np.where(feasible, values, worst), axis=-1)
        best: NDArray[Any] = np.where(exists, reduced, semiring.one)
        if semiring.combination is Combination.MULTIPLY and best.dtype.kind == "f":
            # Products along a chain of forgotten messages could leave the range of floats.
            largest = float(np.abs(best).max(initial=0.0))
            best = np.ldexp(best, -np.frexp(largest)[1]) if largest > 0 else best
        return best, exists


@spanning(ELIMINATION, "backward pass")
def backward_pass(
    prepared: Prepared,
    buckets: list[Bucket],
    recomputation: Recomputation | None = None,
    deadline: Deadline | None = None,
) -> tuple[int, ...]:
    """An optimal assignment, one value index a variable, in the problem's order.

    buckets : of a finished forward pass in a selecting semiring, in elimination order.
    recomputation : recomputes the values of forgotten messages; None if there are none.
    deadline : time limit; None: no limit.
    Raises CorruptDataError: a message on disk lacks a row of the forward pass; TimeLimitError: the deadline passed.
    """
    deadline = deadline or Deadline()
    chosen: dict[int, int] = {}
    allotments: dict[int, int] = {}
    consumption, is_better = prepared.consumption, prepared.semiring.is_better
    for bucket in reversed(buckets):
        deadline.check()
        best: tuple[float, int] | None = None
        best_shares: list[int] = []
        with reading(prepared, bucket):
            if consumption is None:
                best = best_value(prepared, bucket, chosen, recomputation)
            else:
                room = consumption.limit if bucket.sent is None else allotments[id(bucket.sent)]
                own, feasible = _own_cells(prepared, bucket, chosen, (bucket.variable,))
                for value in np.flatnonzero(feasible).tolist():
                    chosen[bucket.variable] = value
                    shares = _Shares(prepared, consumption, room, deadline)
                    total, rows = shares.of(bucket, chosen, own[value].item())
                    if total is not None and (best is None or is_better(total, best[0])):
                        best, best_shares = (total, value), rows
        if best is None:
            name = prepared.problem.variables[bucket.variable].name
            raise CorruptDataError(
                f"{prepared.problem.name}, bucket of {name}: no value extends the assignment; a message has changed "
                "since it was made"
            )
        chosen[bucket.variable] = best[1]
        if consumption is not None:
            allotments.update(zip(map(id, bucket.messages), best_shares, strict=True))
    return tuple(chosen[v] for v in range(len(prepared.problem.variables)))


def _own_cells(
    prepared: Prepared, bucket: Bucket, chosen: dict[int, int], axes: tuple[int, ...]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Combined values of a bucket's functions for all assignments of ``axes``, and which its constraints permit.

    chosen : value index of each other variable. Returns int64 or float64, and bool, with an axis for each of ``axes``.
    """
    sizes, semiring = prepared.problem.sizes, prepared.semiring
    shape = tuple(sizes[v] for v in axes)
    values: NDArray[Any] = np.full(shape, semiring.one, dtype=np.int64 if prepared.dtype.kind == "i" else np.float64)
    feasible = np.ones(shape, dtype=np.bool_)
    for c in bucket.constraints:
        feasible &= entries_over(prepared.constraints, c, sizes, chosen, axes) != 0
    for f in bucket.functions:
        values = semiring.combine(values, entries_over(prepared.functions, f, sizes, chosen, axes))
    return values, feasible


def best_value(
    prepared: Prepared, bucket: Bucket, chosen: dict[int, int], recomputation: Recomputation | None = None
) -> tuple[int | float, int] | None:
    """The best of :func:`values_of` and the first value of the bucket's variable with it; None if none is feasible."""
    worths, feasible = values_of(prepared, bucket, chosen, (bucket.variable,), recomputation)
    values = np.flatnonzero(feasible)
    if not len(values):
        return None
    is_least = prepared.semiring.marginalisation is Marginalisation.MIN
    value = int(values[np.argmin(worths[values]) if is_least else np.argmax(worths[values])])
    return worths[value].item(), value


def values_of(
    prepared: Prepared,
    bucket: Bucket,
    chosen: dict[int, int],
    axes: tuple[int, ...],
    recomputation: Recomputation | None = None,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Combined values of a bucket's functions and messages for all assignments of some of its variables.

    chosen : value index of each other variable. recomputation : of forgotten messages; None if there are none.
    Returns values, int64 or float64, with an axis for each of ``axes``, and feasible, bool of the same shape.

    In product semirings the values exclude the powers of two by which functions and messages were divided; this factor
    is the same for all. Rows of the messages must carry no consumption.
    """
    semiring = prepared.semiring
    values, feasible = _own_cells(prepared, bucket, chosen, axes)
    for message in bucket.messages:
        shared = tuple(v for v in axes if v in message.scope)
        cells = message.cells_at if recomputation is None else partial(recomputation.cells, message)
        theirs, exist = cells(chosen, shared)
        broadcast = tuple(slice(None) if v in shared else np.newaxis for v in axes)
        with np.errstate(over="ignore"):  # sums beyond the range of floats are infinite
            values = semiring.combine(values, np.where(exist, theirs, semiring.one)[broadcast])
        feasible = feasible & exist[broadcast]
    return values, feasible


class _Shares:
    """Selects one row of each message: the best combination whose total consumption is within the room.

    room : packed consumption (:mod:`oocbe.elimination.engine.consumption`). deadline : checked periodically.
    """

    def __init__(self, prepared: Prepared, consumption: Consumption, room: int, deadline: Deadline) -> None:
        self._deadline = deadline
        self._semiring = prepared.semiring
        self._dtype = np.dtype(np.int64 if prepared.dtype.kind == "i" else np.float64)
        self._consumption, self._room = consumption, room

    def of(self, bucket: Bucket, chosen: dict[int, int], own: int | float) -> tuple[int | float | None, list[int]]:
        """Value of a bucket under an assignment of its variables, and the consumption of each message's selected row.

        own : value of the bucket's functions. The value is None if no combination fits.
        """
        amounts = self._consumption.own[bucket.variable][[chosen[bucket.variable]]]
        worths: NDArray[Any] = np.array([own], dtype=self._dtype)
        keep = self._fits(amounts)
        amounts, worths = amounts[keep], worths[keep]
        steps: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        for message in bucket.messages:
            theirs, values = message.rows_at(chosen)
            if not len(theirs) or not len(amounts):
                return None, []
            amounts, worths, before, row = self._joined(amounts, worths, theirs, values)
            steps.append((before, theirs[row]))
        if not len(amounts):
            return None, []
        place = int(np.lexsort((amounts, self._as_costs(worths)))[0])
        value: int | float = worths[place].item()
        shares = []
        for before, share in reversed(steps):
            shares.append(int(share[place]))
            place = int(before[place])
        return value, shares[::-1]

    def _fits(self, amounts: NDArray[np.int64]) -> NDArray[np.bool_]:
        fits = self._consumption.fits(amounts)
        fits[fits] = self._consumption.fits(amounts[fits], self._room)
        return fits

    def _as_costs(self, worths: NDArray[Any]) -> NDArray[Any]:
        return -worths if self._semiring.is_better(1, 0) else worths

    def _joined(
        self, amounts: NDArray[np.int64], worths: NDArray[Any], theirs: NDArray[np.int64], values: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Partial choices extended by the candidate rows of a message: amounts, values, choice and row."""
        adds = self._semiring.combination is Combination.ADD
        wide = values.astype(self._dtype)
        found = []
        step = max(1, tuning().many_rows // len(theirs))
        for first in range(0, len(amounts), step):
            self._deadline.check()
            mine, own = amounts[first : first + step], worths[first : first + step]
            sums = (mine[:, None] + theirs).ravel()
            totals = (own[:, None] + wide if adds else own[:, None] * wide).ravel()
            pair = np.flatnonzero(self._fits(sums))
            found.append(self._best(sums[pair], totals[pair], first + pair // len(theirs), pair % len(theirs)))
        parts = [np.concatenate(column) for column in zip(*found, strict=True)]
        return self._best(parts[0], parts[1], parts[2], parts[3])

    def _best(
        self, amounts: NDArray[np.int64], worths: NDArray[Any], before: NDArray[np.int64], row: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """The choices without dominated ones, which consume no less than another and are no better.

        As in the forward pass, only choices that differ in their consumption of the first constraint are compared.
        """
        costs = self._as_costs(worths)
        order = np.lexsort((costs, amounts))
        keep = order[pareto_front(amounts[order] >> self._consumption.widths[0], costs[order])]
        return amounts[keep], worths[keep], before[keep], row[keep]


def pareto_front(groups: NDArray[np.int64], costs: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark rows that cost less than all before of their group: int64 ``groups`` ascending, and ``costs``, (rows,)."""
    keep = np.zeros(len(groups), dtype=bool)
    if not len(groups):
        return keep
    # Ranks of a group are below those of all previous groups, so the running minimum is the minimum within the group.
    _, ranks = np.unique(costs, return_inverse=True)
    _, group = np.unique(groups, return_inverse=True)
    placed = ranks.astype(np.int64) - group.astype(np.int64) * len(groups)
    least = np.minimum.accumulate(placed)
    keep[0] = True
    keep[1:] = placed[1:] < least[:-1]
    return keep
