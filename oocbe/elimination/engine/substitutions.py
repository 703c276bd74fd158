"""Substitutions of one variable's value by another, and the pass over a table's rows that drops what they dominate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.buckets.consumption_dominance import mark_dominated_consumption
from oocbe.kernels.cpu.buckets.dominance import compact_rows, mark_dominated
from oocbe.kernels.cpu.threads import run_all
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline, current_flag
from oocbe.tables.layout import Field

Substitution = tuple[Field, NDArray[np.int64], NDArray[np.int64], NDArray[Any]]
"""Substitutions of one variable: bit field, and CSR by the replaced value, as in :class:`Substitutions`."""


def arguments_of(variable: Substitution) -> tuple[Any, ...]:
    """A variable's substitutions as arguments of :func:`oocbe.kernels.cpu.buckets.dominance.mark_dominated`."""
    f, start, target, penalty = variable
    return (f.word, np.uint64(f.shift), np.uint64(f.mask)), start, target, penalty


@dataclass
class Substitutions:
    """Permitted substitutions of values, by variable.

    Attributes
    ----------
    variables : bit field, and CSR by the replaced value: start int64 (size + 1,), target int64 (pairs,), penalty int64
        or float64 (pairs,), the target's worst loss in the remaining factors.
    savings : if rows carry consumption, int64 (pairs, constraints) for each variable: consumption of the replaced value
        minus that of the target. parts : in that case (shift, mask), int64 (constraints,), of each in the keys.
    """

    variables: list[Substitution] = field(default_factory=list)
    savings: list[NDArray[np.int64]] = field(default_factory=list)
    parts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def drop_rows(self, keys: NDArray[np.uint64], values: NDArray[Any], sign: int) -> tuple[Any, Any]:
        """Undominated rows, in order; the inputs themselves if no row is dominated.

        Parameters
        ----------
        keys : uint64 (words, rows), ascending. values : (rows,).
        sign : 1 where small values are better, -1 where large ones are.

        Raises
        ------
        TimeLimitError : the deadline of the current block passed.
        """
        dominated, stop = np.zeros(len(values), dtype=np.uint8), current_flag()
        calls: list[tuple[Any, ...]]
        if self.parts is None:
            mark: Callable[..., None] = mark_dominated
            calls = [(keys, values, keys, values, *arguments_of(own), sign, dominated, stop) for own in self.variables]
        else:
            mark = mark_dominated_consumption
            calls = [
                (keys, values, *arguments_of(own), saving, self.parts, sign, dominated, stop)
                for own, saving in zip(self.variables, self.savings, strict=True)
            ]
        if len(values) < tuning().serial_rows:
            for call in calls:
                mark(*call)
        else:
            run_all(mark, calls)
        check_deadline()
        if not dominated.any():
            return keys, values
        kept_keys, kept_values = compact_rows(keys, values, dominated)
        return kept_keys, kept_values

    def flat(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All variables concatenated, as arguments of :func:`oocbe.kernels.cuda.buckets.dominance.drop_dominated`."""
        offsets, starts, end, places = [], [], 0, 0
        for _, start, target, _ in self.variables:
            offsets.append(places)
            starts.append(start + end)
            places += len(start)
            end += len(target)
        return (
            np.array([[f.word, f.shift, f.mask] for f, *_ in self.variables], dtype=np.uint64),
            np.array(offsets, dtype=np.int64),
            np.concatenate(starts),
            np.concatenate([target for _, _, target, _ in self.variables]),
            np.concatenate([penalty for *_, penalty in self.variables]),
        )
