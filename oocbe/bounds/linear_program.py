"""A linear relaxation over literals, in HiGHS: rows are added and dropped, and multipliers are read.

Each variable has one default value without a column: its literal is one minus the others. HiGHS's values are not
used as bounds: its multipliers are rounded, and the bound is recomputed from them in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.forbidden import Row
from oocbe.runtime.data_limit import data_limit
from oocbe.runtime.deadline import looked
from oocbe.runtime.interruption import current

with data_limit.lifted():
    import highspy

LEAST_OBJECTIVE, LARGEST_OBJECTIVE = 0.1, 1e4
"""Range of the largest cost after scaling: the solver's tolerances are absolute, about 1e-7, and smaller costs are 0 to
it."""

LEAST_MULTIPLIER = 1e-9
"""Minimum multiplier, in scaled costs. Smaller multipliers count as 0."""

LARGEST_NUMBER = 10**14
"""Largest number of a row: the solver rejects coefficients from 10^15 on, and two may be added."""


class LinearProgram:
    """The relaxation: literals between 0 and 1, costs, rows.

    costs : float64 (literals,). owner : int64 (literals,), variable of each. default : int64 (variables,), the literal
        of each variable without a column.
    removed : uint8 (literals,), 1 for literals that are false (never a default).
    unit : divisor of costs for the solver. bound, point : of the last optimum. rows : current rows.
    """

    def __init__(
        self,
        costs: NDArray[np.float64],
        owner: NDArray[np.int64],
        default: NDArray[np.int64],
        removed: NDArray[np.uint8],
    ) -> None:
        self.rows: list[Row] = []
        self._owner, self._default = owner, default
        self._is_column = np.ones(len(costs), dtype=bool)
        self._is_column[default] = False
        self._column = np.cumsum(self._is_column) - 1
        self._literals = np.flatnonzero(self._is_column)
        reduced = costs - costs[default][owner]
        largest = float(np.abs(reduced).max(initial=0))
        self.unit = max(1.0, largest / LARGEST_OBJECTIVE)
        if 0 < largest < LEAST_OBJECTIVE:
            self.unit = largest
        self._constant = float(costs[default].sum())
        self._highs = quiet_solver()
        count = len(self._literals)
        self._highs.addVars(count, np.zeros(count), 1.0 - removed[self._literals].astype(np.float64))
        columns = np.arange(count, dtype=np.int32)
        self._highs.changeColsCost(count, columns, reduced[self._literals] / self.unit)
        self._known: set[tuple[bytes, bytes, int]] = set()
        self._idle: list[int] = []
        self._aside: list[Row] = []
        self.bound = self._constant
        self.point = np.zeros(len(costs))

    def add(self, rows: Sequence[Row]) -> int:
        """Add the rows that are not present yet, with numbers up to :data:`LARGEST_NUMBER`; returns their number."""
        fresh = []
        for row in rows:
            if row.largest > LARGEST_NUMBER:
                continue
            key = row.key()
            if key not in self._known:
                self._known.add(key)
                fresh.append(row)
        if not fresh:
            return 0
        indices, values, upper = zip(*map(self._in_columns, looked(fresh)), strict=True)
        starts = np.cumsum([0, *map(len, indices)], dtype=np.int32)
        status = self._highs.addRows(
            len(fresh),
            np.full(len(fresh), -highspy.kHighsInf),
            np.array(upper, dtype=np.float64),
            int(starts[-1]),
            starts,
            np.concatenate(indices).astype(np.int32),
            np.concatenate(values).astype(np.float64),
        )
        if status == highspy.HighsStatus.kError:  # none was added
            self._known.difference_update(row.key() for row in fresh)
            return 0
        self.rows += fresh
        self._idle += [0] * len(fresh)
        return len(fresh)

    def _in_columns(self, row: Row) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Columns, coefficients and right-hand side after substitution of the defaults by one minus the others."""
        is_default = ~self._is_column[row.literals]
        if not is_default.any():
            return self._column[row.literals], row.coefficients, row.right_hand_side
        full = np.zeros(len(self._owner), dtype=np.int64)
        full[row.literals] = row.coefficients
        limit = row.right_hand_side - sum(full[self._default].tolist())
        full -= full[self._default][self._owner]
        chosen = np.flatnonzero(full)
        return self._column[chosen], full[chosen], limit

    def remove_value(self, literal: int) -> bool:
        """Fix a literal to false; False if it is its variable's default, which only a row can exclude."""
        if not self._is_column[literal]:
            return False
        self._highs.changeColBounds(int(self._column[literal]), 0.0, 0.0)
        return True

    def restrict(self, removed: NDArray[np.uint8]) -> None:
        """Remove these literals and no others, and fix literals that are the only ones left of their variables."""
        left = 1.0 - removed
        is_only = np.bincount(self._owner, left, minlength=len(self._default)) == 1.0
        lower, count = left * is_only[self._owner], len(self._literals)
        columns = np.arange(count, dtype=np.int32)
        self._highs.changeColsBounds(count, columns, lower[self._literals], left[self._literals])

    def solve(self, seconds: float, iterations: int | None = None) -> bool:
        """Solve; sets ``bound`` and ``point``. False if no optimum was found (infeasible, or out of time or of
        iterations of the simplex method)."""
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + max(0.01, seconds))
        self._highs.setOptionValue("simplex_iteration_limit", highspy.kHighsIInf if iterations is None else iterations)
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return False
        self.bound = self._constant + self.unit * self._highs.getInfo().objective_function_value
        solution = self._highs.getSolution()
        self.point[self._literals] = np.clip(np.array(solution.col_value), 0.0, 1.0)
        self.point[self._default] = 0.0
        rest = 1.0 - np.bincount(self._owner, self.point, minlength=len(self._default))
        self.point[self._default] = np.clip(rest, 0.0, 1.0)
        return True

    @property
    def estimate(self) -> float:
        """The optimum as far as the solver came; infinite if the relaxation is infeasible."""
        if self.is_infeasible:
            return math.inf
        return self._constant + self.unit * float(self._highs.getInfo().objective_function_value)

    @property
    def is_infeasible(self) -> bool:
        """Whether the solver reports the relaxation as infeasible."""
        return bool(self._highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible)

    def contradiction(self, seconds: float) -> NDArray[np.float64]:
        """Multipliers of the rows, at most 1 each, that prove infeasibility best; 0 if none were found.

        They are the dual solution of a program without costs in which one common slack relaxes all rows.
        """
        count, columns = len(self.rows), len(self._literals)
        highs = quiet_solver()
        highs.passModel(self._highs.getLp())
        highs.changeColsCost(columns, np.arange(columns, dtype=np.int32), np.zeros(columns))
        every = np.arange(count, dtype=np.int32)
        highs.addCol(1.0, 0.0, highspy.kHighsInf, count, every, np.full(count, -1.0))
        highs.setOptionValue("time_limit", max(0.1, seconds))
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return np.zeros(count)
        duals: NDArray[np.float64] = np.array(highs.getSolution().row_dual)
        return np.maximum(0.0, -duals)

    def multipliers(self) -> NDArray[np.float64]:
        """Multipliers of the rows at the last optimum, in units of cost; never negative."""
        duals = np.array(self._highs.getSolution().row_dual)
        return np.maximum(0.0, -duals * self.unit)

    def recall(self, least_violation: float) -> int:
        """Restore the set-aside rows that the point violates; returns their number."""
        if not self._aside:
            return 0
        number = np.repeat(np.arange(len(self._aside)), [len(row.literals) for row in self._aside])
        literals = np.concatenate([row.literals for row in self._aside])
        coefficients = np.concatenate([row.coefficients for row in self._aside])
        sums = np.bincount(number, coefficients * self.point[literals], minlength=len(self._aside))
        excess = sums - np.array([row.right_hand_side for row in self._aside], dtype=np.float64)
        back = set(np.flatnonzero(excess > least_violation).tolist())
        self.add([self._aside[i] for i in sorted(back)])
        self._aside = [row for i, row in enumerate(self._aside) if i not in back]
        return len(back)

    def drop_idle(self, rounds: int) -> int:
        """Set aside the rows without a multiplier for some rounds; returns their number."""
        used = self.multipliers() > LEAST_MULTIPLIER * self.unit
        self._idle = [0 if u else idle + 1 for u, idle in zip(used.tolist(), self._idle, strict=True)]
        drop = [i for i, idle in enumerate(self._idle) if idle >= rounds]
        if drop:
            self._highs.deleteRows(len(drop), np.array(drop, dtype=np.int32))
            for i in drop:
                self._known.discard(self.rows[i].key())
                self._aside.append(self.rows[i])
            chosen = set(drop)
            self.rows = [row for i, row in enumerate(self.rows) if i not in chosen]
            self._idle = [idle for i, idle in enumerate(self._idle) if i not in chosen]
        return len(drop)


def quiet_solver() -> highspy.Highs:
    """A silent solver with one thread; a signal to the calling thread interrupts it."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    interruption = current()
    if interruption is None:
        return highs

    def look_up(kind: Any, message: str, state: Any, answer: Any, data: Any) -> None:
        answer.user_interrupt = interruption.is_requested

    # Called in every iteration (about 10 microseconds); an iteration of any sizeable program takes longer.
    highs.setCallback(look_up, None)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackSimplexInterrupt)
    return highs
