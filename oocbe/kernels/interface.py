"""Protocol of the kernel backends: the loops over rows that the operators use.

In all methods: keys are uint64 (words, rows), C-contiguous, word 0 least significant; values are int32, int64, float32
or float64 (rows,). Complete tables have no keys, and their values may also be int16 (:class:`CompleteBackend`). Arrays
of rows and groups are in the backend's memory: NumPy arrays for the CPU, CuPy arrays for a GPU, converted by
:meth:`Backend.upload` and :meth:`Backend.download`. Results of one kernel are inputs of the next without a copy, and
operators may index and compare them, which both kinds support. Move plans, masks and forbidden tuples are small and
always NumPy's.

Inputs are never written to; results are new arrays owned by the caller, unless a docstring states that an input is
returned unchanged. Results have the values' dtype: the operator has checked by range analysis
(:mod:`oocbe.algebra.inputs`) that it suffices, or widened the inputs. Work is divided into pieces of ``piece_rows``
rows (None: the backend's choice); results do not depend on it. Semiring operations are given as the codes of
:mod:`oocbe.model.semiring`. A backend contains loops only: scopes and names are handled above it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Values = NDArray[Any]
BitRange = tuple[int, int, int]


@dataclass(frozen=True)
class MatchedGroups:
    """Groups of rows that occur in two tables, in ascending order of their shared key.

    starts1, counts1 : int64 (groups,), first row and number of rows of each group in table 1 (P1 and H1 of the paper).
    starts2, counts2 : likewise for table 2.
    """

    starts1: NDArray[np.int64]
    counts1: NDArray[np.int64]
    starts2: NDArray[np.int64]
    counts2: NDArray[np.int64]

    @property
    def joined_rows(self) -> int:
        """Rows of the join: the sum of the products of the counts."""
        return int(np.dot(self.counts1, self.counts2))


@dataclass(frozen=True)
class EliminationPlan:
    """Bit layout of a join that eliminates shared variables.

    outer_eliminated, inner_eliminated : move plans of the eliminated variables of a row into one word, with the same
        layout for both tables.
    outer_run : uint64 (words of outer,), ones at all bits of the outer table but the eliminated ones.
    inner_rank : uint64 (words of inner,), ones at all bits of the inner table but the eliminated ones.
    outer_move, inner_move : move plans into the result's key; the inner one omits the variables of the outer one, but
        on a device, where both have the shared kept variables.
    kept : uint64, ones at the bits of the shared kept variables in the last words of the result's key, as many words as
        have such bits: no more than one of the tables has.
    eliminated_bits : bits of the eliminated variables in that one word. words : words of the result's key.
    """

    outer_eliminated: NDArray[np.int64]
    inner_eliminated: NDArray[np.int64]
    outer_run: NDArray[np.uint64]
    inner_rank: NDArray[np.uint64]
    outer_move: NDArray[np.int64]
    inner_move: NDArray[np.int64]
    kept: NDArray[np.uint64]
    eliminated_bits: int
    words: int


@dataclass(frozen=True)
class CompleteFunction:
    """A complete table for a kernel: values, and their strides along each axis of a bucket.

    values : int16, int32, int64, float32 or float64 (cells,), contiguous; may be part of a larger array.
    strides : for each axis of the bucket, the distance of adjacent values in elements; 0 if the function does not
        depend on the axis. Never negative, in any order: an axis order other than the bucket's is a transposition.
    """

    values: Values
    strides: tuple[int, ...]


def steps_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of contiguous values along each axis, the first axis fastest."""
    steps, step = [], 1
    for size in sizes:
        steps.append(step)
        step *= size
    return tuple(steps)


class Backend(Protocol):
    """The kernels of a device."""

    name: str

    def upload(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array in the backend's memory: itself if it is there already, otherwise a copy."""

    def download(self, array: NDArray[Any]) -> NDArray[Any]:
        """A result in host memory: itself if it is there already, otherwise a copy."""

    def permute(self, keys: Keys, plan: NDArray[np.int64], words: int, piece_rows: int | None = None) -> Keys:
        """Move fields of keys to other positions.

        keys : (source words, rows). plan : int64 (moves, 5), see :func:`oocbe.tables.layout.move_plan`.
        Returns uint64 (words, rows) in the same row order; bits without a move are zero.
        """

    def sort_rows(
        self, keys: Keys, values: Values, ranges: Sequence[BitRange], piece_rows: int | None = None, own: bool = False
    ) -> tuple[Keys, Values]:
        """Stable radix sort of rows on some bits of their keys, together with the values.

        ranges : (word, shift, bits), the least significant first; other bits are ignored.
        own : the caller gives up its keys: they may be overwritten and be part of the result.
        Returns keys and values, sorted; they may be the inputs themselves if all these bits are equal in all rows.
        """

    def group_starts(self, keys: Keys, masks: NDArray[np.uint64], piece_rows: int | None = None) -> NDArray[np.int64]:
        """Starts of groups of adjacent rows with equal masked keys (the histogram's exclusive prefix sum).

        masks : uint64 (words,). Returns int64 (groups + 1,), ascending, the row count last.
        """

    def common_groups(
        self, keys1: Keys, keys2: Keys, masks: NDArray[np.uint64], piece_rows: int | None = None
    ) -> MatchedGroups:
        """Groups of rows with equal masked keys in both tables, ascending; groups of one table are left out.

        Both tables have the masked bits at the same positions and are sorted by them; masks : uint64 (compared words,).
        """

    def join_rows(
        self,
        keys1: Keys,
        values1: Values,
        keys2: Keys,
        values2: Values,
        groups: MatchedGroups,
        words: int,
        combination: int,
        piece_rows: int | None = None,
    ) -> tuple[Keys, Values]:
        """Join sum by gather: row t of group g comes from rows P1[g] + t mod H1[g] and P2[g] + t div H1[g].

        keys1 : (up to ``words``, rows 1) in the result's layout. keys2 : (words, rows 2), the bits that table 2 adds,
            in the
        result's layout, zero elsewhere; the result's keys are the bitwise or of both. Values of both tables have one
        dtype. Returns (words, joined rows) keys and their values, group after group.
        """

    def reduce_groups(
        self,
        keys: Keys,
        values: Values,
        starts: NDArray[np.int64],
        masks: NDArray[np.uint64],
        marginalisation: int,
        piece_rows: int | None = None,
    ) -> tuple[Keys, Values]:
        """Marginalise each group of adjacent rows into one row.

        starts : int64 (groups + 1,), strictly ascending, 0 first and the number of rows last: the groups of all rows.
        masks : uint64 (result words,); the result's key is the first row's, masked.
        Returns keys (result words, groups) and values (groups,), in the groups' order.
        """

    def join_reduce(
        self,
        tables: list[tuple[Keys, Values]],
        groups: MatchedGroups | None,
        plan: EliminationPlan,
        combination: int,
        marginalisation: int,
        piece_rows: int | None = None,
    ) -> tuple[Keys, Values]:
        """Join two tables and marginalise shared variables, without materialising joined rows.

        Both tables are sorted by the shared kept variables (most significant), then by their own variables; groups are
        those of the shared kept variables, with table 1 the outer one; a device finds them itself (None). Values have
        one dtype. ``tables`` are the outer and the inner one; a device empties the list when it no longer needs their
        rows, so that the memory is free.
        Returns keys (plan.words, rows) and values, sorted by the shared kept variables, then the outer table's own,
        then the inner table's own.
        """

    def drop_forbidden(
        self, keys: Keys, values: Values, parts: Keys, forbidden: Keys, bits: int, piece_rows: int | None = None
    ) -> tuple[Keys, Values]:
        """Rows whose part is not a forbidden tuple, in order (the inputs themselves if none is dropped).

        parts : uint64 (part words, rows), each row's key restricted to the constraint's scope. forbidden : uint64 (part
        words, tuples), in any order. bits : of that scope.
        """


class CompleteBackend(Backend, Protocol):
    """A backend with kernels for complete tables."""

    def eliminate_complete(
        self,
        functions: Sequence[CompleteFunction],
        sizes: Sequence[int],
        eliminated: int,
        combination: int,
        marginalisation: int,
        dtype: np.dtype[Any],
        piece_rows: int | None = None,
    ) -> Values:
        """Join complete functions and marginalise axes, without materialising joined rows: a whole bucket at once.

        result[x] = ⊕ over e of ⊗ over f of f.values[x · f.strides (result axes) + e · f.strides (eliminated axes)],
        which is a join sum if ``eliminated`` is 0, a marginalisation if there is one function, and a tropical matrix
        product if two functions share the eliminated axes only. Without functions it marginalises the semiring's ones.


        functions : see :class:`CompleteFunction`; all values of one dtype, ``dtype``; any number of functions.
        sizes : domain size of each axis: the result's axes first, in the order of its scope, the least significant
            (fastest) first, then the eliminated ones. Each at least 1; no axes at all is one cell.
        eliminated : number of eliminated axes, the last ones.
        combination, marginalisation : codes of :mod:`oocbe.model.semiring`: max-sum, min-sum, max-product (of
            non-negative values), sum-product, and log-sum-exp (of floats).
        dtype : int16, int32, int64, float32 or float64, of the functions, the result and intermediate sums. The caller
            has checked by range analysis that sums and products of feasible values fit (:mod:`oocbe.model.infeasible`
            for sums, the dtype's own range for products).
        piece_rows : result cells per piece; None: the backend's choice.

        Infeasible assignments have the value :func:`oocbe.model.infeasible.infeasible_value`, in functions and in the
        result. For integer sums, an intermediate sum of more than :data:`oocbe.model.infeasible.SUMMANDS` functions is
        reset to that value before it can wrap around, as is every result beyond the feasible range.

        Returns a new array (product of the result's sizes,), the first axis fastest.
        """


def is_device_array(array: Any) -> bool:
    """Whether an array is in a device's memory."""
    return not isinstance(array, np.ndarray)


def is_cupy(value: object) -> bool:
    """Whether any object is a CuPy array; no import of CuPy."""
    return "cupy" in sys.modules and isinstance(value, sys.modules["cupy"].ndarray)


def host_array(array: Any) -> NDArray[Any]:
    """An array in host memory: itself, or a copy of a device array; waits for the kernels that write it."""
    return host_arrays([array])[0]


def host_arrays(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Arrays, (items,) or (rows, items), in host memory: themselves, or C-order copies, transferred together."""
    there = [array for array in arrays if is_device_array(array)]
    if not there:
        return list(arrays)
    from oocbe.kernels.cuda.transfer.conveyor import bring_home

    copies = iter(bring_home(there))
    return [next(copies) if is_device_array(array) else array for array in arrays]
