"""Lookups for local search: each factor is an array indexed by strides, or sorted keys if the array is too large."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.kernels.cpu.search_state import Factors
from oocbe.elimination.preparation.listed_factors import ListedFactor, starts_of
from oocbe.runtime.deadline import check_deadline

LARGEST_DENSE = 1 << 20
"""Maximum entries of a factor in a dense table; larger factors are searched by key."""

DENSE_ENTRIES = 1 << 26
"""Maximum total entries of the dense tables of one kind; further factors are searched by key."""

TUPLES_AT_ONCE = 1 << 19
"""Tuples written into dense tables between two deadline checks (about 0.1 s)."""

LARGEST_INDEX = 1 << 62
"""Largest index of a tuple; larger factors get random strides, and an index is a hash of the tuple."""


def lay_out(sizes: tuple[int, ...], parts: Sequence[ListedFactor]) -> Factors:
    """Lookups of factors; dense factors of one scope are merged.

    Soft parts of one scope are added. Hard parts have entries of 0 or 1, and a nonzero sum forbids a tuple if any part
    forbids it.
    """
    number_of: dict[tuple[int, ...], int] = {}
    factors: list[tuple[int, ...]] = []
    dense_size: list[int] = []
    members: list[list[ListedFactor]] = []
    total = 0
    for part in parts:
        check_deadline()
        scope = tuple(sorted(part.scope))
        number = number_of.get(scope)
        if number is None:
            number = len(factors)
            entries = math.prod([sizes[v] for v in scope])
            is_dense = entries <= LARGEST_DENSE and total + entries <= DENSE_ENTRIES
            total += entries if is_dense else 0
            factors.append(scope)
            dense_size.append(entries if is_dense else 0)
            members.append([])
            if is_dense:
                number_of[scope] = number
        members[number].append(part)
    strides = [_strides(sizes, scope, size > 0) for scope, size in zip(factors, dense_size, strict=True)]
    offsets = np.cumsum([0, *dense_size])[:-1].astype(np.int64) if factors else np.zeros(0, dtype=np.int64)
    table = np.zeros(max(1, total))
    _fill_tables(members, strides, offsets, dense_size, table)
    keys: list[NDArray[np.int64]] = []
    key_values: list[NDArray[np.float64]] = []
    default = np.zeros(len(factors))
    for number, own in enumerate(members):
        check_deadline()
        if dense_size[number] == 0:
            (part,) = own
            index = _index(part, factors[number], strides[number])
            order = np.argsort(index)
            keys.append(index[order])
            key_values.append(part.values[order])
            default[number] = part.default
            offsets[number] = -1
        else:
            keys.append(np.zeros(0, dtype=np.int64))
            key_values.append(np.zeros(0))
    lengths = [len(k) for k in keys]
    arity = [len(s) for s in factors]
    scope_array = np.array([v for s in factors for v in s], dtype=np.int64)
    stride_array = np.concatenate([*strides, np.zeros(0, dtype=np.int64)])
    by_variable = np.argsort(scope_array, kind="stable")
    owner = np.repeat(np.arange(len(factors)), arity).astype(np.int64)
    return Factors(
        use_start=starts_of(np.bincount(scope_array, minlength=len(sizes))),
        use_factor=owner[by_variable],
        use_stride=stride_array[by_variable],
        scope_start=starts_of(arity),
        scope=scope_array,
        stride=stride_array,
        offset=offsets,
        table=table,
        key_start=starts_of(lengths),
        keys=np.concatenate([*keys, np.zeros(0, dtype=np.int64)]),
        key_values=np.concatenate([*key_values, np.zeros(0)]),
        default=default,
    )


def _strides(sizes: tuple[int, ...], scope: tuple[int, ...], is_dense: bool) -> NDArray[np.int64]:
    if not is_dense and math.prod([sizes[v] for v in scope]) > LARGEST_INDEX:
        return np.random.default_rng(len(scope)).integers(1, 1 << 63, size=len(scope), dtype=np.int64) | 1
    strides = [1] * len(scope)
    for place in range(1, len(scope)):
        strides[place] = strides[place - 1] * sizes[scope[place - 1]]
    return np.array(strides, dtype=np.int64)


def _index(part: ListedFactor, scope: tuple[int, ...], strides: NDArray[np.int64]) -> NDArray[np.int64]:
    stride_of = dict(zip(scope, strides.tolist(), strict=True))
    own = np.array([stride_of[v] for v in part.scope], dtype=np.int64)
    index: NDArray[np.int64] = (part.tuples * own).sum(axis=1)
    return index


def _fill_tables(
    members: list[list[ListedFactor]],
    strides: list[NDArray[np.int64]],
    offsets: NDArray[np.int64],
    dense_size: list[int],
    table: NDArray[np.float64],
) -> None:
    """Write dense factors, all parts of one arity together: a problem may have tens of thousands of small ones."""
    by_arity: dict[int, list[tuple[int, ListedFactor]]] = {}
    for number, own in enumerate(members):
        if dense_size[number]:
            for part in own:
                by_arity.setdefault(len(part.scope), []).append((number, part))
                if part.default:
                    table[offsets[number] : offsets[number] + dense_size[number]] += part.default
    for group in (piece for same in by_arity.values() for piece in _pieces(same)):
        check_deadline()
        numbers = [number for number, _ in group]
        stride = np.array([strides[number] for number in numbers])
        given = np.array([part.scope for _, part in group])
        rank = np.argsort(np.argsort(given, axis=1), axis=1)
        own_stride = np.take_along_axis(stride, rank, axis=1)
        rows = [len(part.tuples) for _, part in group]
        tuples = np.concatenate([part.tuples for _, part in group])
        index = np.repeat(offsets[numbers], rows) + (tuples * np.repeat(own_stride, rows, axis=0)).sum(axis=1)
        values = np.concatenate([part.values for _, part in group])
        np.add.at(table, index, values - np.repeat([part.default for _, part in group], rows))


def _pieces(parts: list[tuple[int, ListedFactor]]) -> Iterator[list[tuple[int, ListedFactor]]]:
    """Batches of consecutive parts with at most :data:`TUPLES_AT_ONCE` tuples, or one part."""
    first = tuples = 0
    for place, (_, part) in enumerate(parts):
        if tuples + len(part.tuples) > TUPLES_AT_ONCE and place > first:
            yield parts[first:place]
            first, tuples = place, 0
        tuples += len(part.tuples)
    yield parts[first:]
