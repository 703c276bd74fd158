"""Forgotten messages, whose cells are recomputed when the backward pass needs them.

After the join, the backward pass reads only as many cells of a message as its receiver's variable has values. Keeping
gigabytes on a nearly full device for that is out of proportion. The value of a message under one assignment of its
scope needs, of each message received by its own bucket, one value for each value of the bucket's variable; kept
messages provide them by lookup. So messages may be forgotten as long as chains of forgotten messages stay short: each
link multiplies the lookups by a domain size. With two values a variable and 256 lookups, one message in nine is kept
along a path of the bucket tree. Recursive conditioning (Darwiche 2001) trades memory for repeated work in the same way,
and caches as much as fits.

Messages whose rows carry consumption are excluded: for them a row is selected, not only a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.buckets.buckets import Bucket, entries_over
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.model.semiring import Combination, Marginalisation
from oocbe.model.settings.tuning import tuning


class Recomputation:
    """Decides which messages of one forward pass may be forgotten, and recomputes their cells.

    prepared : the problem, without consumption in its rows. buckets : of the forward pass, in elimination order.
    """

    def __init__(self, prepared: Prepared, buckets: Sequence[Bucket]) -> None:
        self._prepared = prepared
        self._buckets = buckets
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

        Parameters
        ----------
        chosen : value index of each other variable of its scope. free : variables of its scope.

        Returns
        -------
        values : int64 or float64, an axis for each free variable; undefined where not feasible. For a forgotten message
            of products they exclude a power of two, the same for all of these values.
        feasible : bool of the same shape.
        """
        if not message.is_forgotten:
            return message.cells_at(chosen, free)
        prepared, bucket = self._prepared, self._maker[id(message)]
        sizes, semiring = prepared.problem.sizes, prepared.semiring
        axes = (*free, bucket.variable)
        shape = tuple(sizes[v] for v in axes)
        values: NDArray[Any] = np.full(
            shape, semiring.one, dtype=np.int64 if prepared.dtype.kind == "i" else np.float64
        )
        feasible = np.ones(shape, dtype=np.bool_)
        for c in bucket.constraints:
            feasible &= entries_over(prepared.constraints, c, sizes, chosen, axes) != 0
        for f in bucket.functions:
            values = semiring.combine(values, entries_over(prepared.functions, f, sizes, chosen, axes))
        for received in bucket.messages:
            shared = tuple(v for v in axes if v in received.scope)
            theirs, exist = self.cells(received, chosen, shared)
            broadcast = tuple(slice(None) if v in shared else np.newaxis for v in axes)
            values = semiring.combine(values, np.where(exist, theirs, semiring.one)[broadcast])
            feasible = feasible & exist[broadcast]
        return self._marginalised(values, feasible)

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
