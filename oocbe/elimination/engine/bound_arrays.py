"""Inputs of a join for pruning rows without a completion better than the incumbent.

A bound on a message is additive over its separator: every completion of a row s with value h(s) costs at least

    (h(s) * scale + constant + sum over the separator's variables v of tables[v][s_v]) / scale

The row is dropped if that reaches the threshold. If rows carry consumption of linear constraints, each unit adds its
price. The join applies the same test to every prefix of a key, with the least value of each table for the remaining
variables and the least value of each joined table's rows that match the prefix. So most rows are dropped long before
they are complete.

A row's tables are looked up in groups of neighbouring bit fields, up to :data:`MERGED_BITS` bits at once. All data is
in flat arrays, which the kernels of both backends use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.join_arrays import BoundArrays
from oocbe.kernels.cpu.buckets.lookups import merge_bound_tables
from oocbe.tables.layout import Field

MERGED_BITS = 8
"""Maximum index bits of a merged table: 256 entries of 8 bytes."""

LARGEST_SUM = 1 << 61
"""Limit of sums of values and bounds, so that they fit in 64 bits."""


@dataclass(frozen=True)
class RowPruning:
    """A bound on the rows of one message, and the pruning threshold.

    Attributes
    ----------
    scale : fixed-point factor: a value h is represented as h * scale; 1 if values are floats.
    constant : bound on everything outside the message's subtree without the separator's part, scaled.
    tables : variable of the separator -> int64 or float64 (domain size,), scaled; variables may be missing.
    threshold : rows whose bound reaches it are dropped, scaled.
    prices : of one unit of each constraint whose consumption rows carry, scaled, at least 0.
    """

    scale: int
    constant: int | float
    tables: Mapping[int, NDArray[Any]]
    threshold: int | float
    prices: tuple[int | float, ...] = ()


def no_bounds(levels: int, dtype: np.dtype[Any]) -> BoundArrays:
    """Bound arrays that prune nothing. dtype : of the message's values."""
    kind = np.dtype(np.float64 if dtype.kind == "f" else np.int64)
    empty, unsigned = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
    start = np.zeros(levels + 1, dtype=np.int64)
    return BoundArrays(start, empty, unsigned, unsigned, empty, np.zeros(1, kind), np.zeros(0, kind), kind.type(1))


def bound_arrays(
    pruning: RowPruning,
    separator: Sequence[int],
    fields: Sequence[Field],
    level_of: Mapping[int, int],
    levels: int,
    dtype: np.dtype[Any],
    least_functions: int | float,
    merged_bits: int = MERGED_BITS,
) -> BoundArrays:
    """A bound as arguments of one bucket's join.

    Parameters
    ----------
    separator, fields : variables and their places in the message's keys, the least significant first.
    level_of : run of each variable. levels : number of runs.
    dtype : of the message's values.
    least_functions : least sum of the bucket's functions.
    merged_bits : at most :data:`MERGED_BITS`; fewer for buckets with few rows.
    """
    kind = np.dtype(np.float64 if dtype.kind == "f" else np.int64)
    least_of = [kind.type(0)] * (levels + 1)
    groups: list[tuple[Field, list[int]]] = []
    starts = [0] * (levels + 1)
    members = [(level_of[v], v, field) for v, field in zip(separator, fields, strict=True) if v in pruning.tables]
    members.sort(key=lambda member: (member[0], member[2].shift))
    previous = -1
    for level, v, field in members:
        least_of[level] += pruning.tables[v].min()
        last = groups[-1][0] if groups else None
        if last is not None and level == previous and field.shift + field.bits - last.shift <= merged_bits:
            groups[-1] = (Field(last.word, last.shift, field.shift + field.bits - last.shift), groups[-1][1])
            groups[-1][1].append(v)
        else:
            groups.append((field, [v]))
            starts[level] += 1
        previous = level
    field_of = dict(zip(separator, fields, strict=True))
    entries, base = _merged_tables(pruning, groups, field_of, kind)
    least_after = [kind.type(0)] * (levels + 1)
    for level in range(levels - 1, -1, -1):
        least_after[level] = least_after[level + 1] + least_of[level]
    number: Any = kind.type
    room = number(pruning.threshold) - number(pruning.constant)
    slack = np.empty(levels + 2, dtype=kind)
    slack[:-1] = room - np.array(least_after) - number(least_functions) * pruning.scale
    slack[-1] = room
    return BoundArrays(
        level_start=np.concatenate([[0], np.cumsum(starts[:levels])]).astype(np.int64),
        word=np.array([f.word for f, _ in groups], dtype=np.int64),
        shift=np.array([f.shift for f, _ in groups], dtype=np.uint64),
        mask=np.array([f.mask for f, _ in groups], dtype=np.uint64),
        base=base,
        entries=entries,
        slack=slack,
        scale=kind.type(pruning.scale),
    )


def _merged_tables(
    pruning: RowPruning, groups: Sequence[tuple[Field, list[int]]], field_of: Mapping[int, Field], kind: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The summed tables of each group of variables, concatenated after a zero, and their positions."""
    base = np.array([1, *(1 << f.bits for f, _ in groups)], dtype=np.int64).cumsum()
    entries = np.zeros(base[-1], dtype=kind)
    if groups:
        parts = [(field_of[v].shift - f.shift, v, g) for g, (f, members) in enumerate(groups) for v in members]
        tables = [pruning.tables[v] for _, v, _ in parts]
        sizes = np.array([len(t) for t in tables], dtype=np.int64)
        merge_bound_tables(
            np.concatenate(tables).astype(kind, copy=False),
            np.cumsum(sizes) - sizes,
            sizes,
            np.array([g for *_, g in parts], dtype=np.int64),
            np.array([place for place, *_ in parts], dtype=np.int64),
            np.array([field_of[v].bits for _, v, _ in parts], dtype=np.int64),
            base,
            entries,
        )
    return entries, base[:-1]
