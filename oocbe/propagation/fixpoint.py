"""The fixpoint over all constraints of a problem: a constraint is propagated again when its variables lose values.

Constraints are propagated in rounds, the cheap ones first. They remove infeasible values only, and are monotonic: the
fixpoint does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import TimeLimitError, UnsupportedError
from oocbe.kernels import backend_for
from oocbe.model.compact_problem import CompactProblem, ShortTable
from oocbe.model.parts import Constraint, Function
from oocbe.model.problem import Problem
from oocbe.model.semiring import Combination
from oocbe.model.settings.tuning import tuning
from oocbe.propagation.bounds import FIXPOINT, INFEASIBLE, LIMIT, how_time_ended
from oocbe.propagation.domains import Domains, TableBatch, TableRows
from oocbe.propagation.tables import (
    AllowedRows,
    CompactTable,
    ForbiddenPatterns,
    ForbiddenRows,
    LinearFilter,
    Propagator,
    bytes_of,
    codes_of,
)
from oocbe.runtime.deadline import looked

if TYPE_CHECKING:
    from oocbe.propagation.device_tables import DeviceTable

BIT_SET_ROWS = 1 << 9
"""Rows from which bit sets are quicker than scans in probing: it took 0.02 s with them and
0.10 s with scans of 27,720 rows (Steiner3-7), 4.6 s and 1.8 s of 10 rows (Sat-dual)."""


@dataclass(eq=False)
class Fixpoint:
    """Domains that were reached.

    status : ``fixpoint``, ``infeasible``, ``limit`` or ``interrupted`` (by a signal).
    reason : text of the status; empty for a fixpoint.
    domains : remaining values; where infeasible, those at the end of propagation.
    rounds : number of values removed in each round.
    constraint, variable : the proof of infeasibility, by name and index; None where there is none.
    """

    status: str
    reason: str
    domains: Domains
    rounds: list[int] = field(default_factory=list)
    constraint: str | None = None
    variable: int | None = None


class Network:
    """A problem's hard constraints, prepared for propagation and probing.

    bit_set_bytes : memory for tables as bit sets, which pay in repeated propagation. Tables beyond it, and all by
        default, are scanned. bit_set_rows : tables with fewer rows are always scanned.
    batch_rows : tables of at most so many rows are propagated in one batch; none where the failing table matters, or
        in probing.
    backend : where tables of feasible rows are propagated: ``cpu``, ``cuda``, ``auto`` (a CUDA device where there is
        one and the tables have many rows in total), or None for the value of ``OOCBE_BACKEND``. A device propagates
        them together.
    """

    def __init__(
        self,
        model: Problem | CompactProblem,
        bit_set_bytes: int = 0,
        bit_set_rows: int = BIT_SET_ROWS,
        batch_rows: int = -1,
        backend: str | None = "cpu",
    ) -> None:
        compact = model if isinstance(model, CompactProblem) else CompactProblem(model)
        self.problem = compact.problem
        self.domains = Domains.of_sizes(self.problem.sizes)
        self.propagators: list[Propagator] = []
        self.is_infeasible = False
        self._bit_set_bytes, self._bit_set_rows, self._batch_rows = bit_set_bytes, bit_set_rows, batch_rows
        self._batch: list[TableRows] = []
        # Tables that a device propagates together, where it pays for all of them.
        feasible = [c.tuples for c in self.problem.constraints if c.allowed]
        feasible += [t.tuples for t in compact.short_tables if t.allowed]
        feasible += [f.tuples for f in self.problem.functions if f.default is None]
        rows = sum(map(len, feasible))
        self._has_device = rows > 0 and backend_for(rows // tuning().scanned_rows_a_row, backend).name == "cuda"
        self._on_device: list[DeviceTable] = []
        self._device_bytes = 0
        self._asked: set[int] | None = None  # within a trial, the constraints to be restored
        # Keeps the rows alive, because their identity is the key.
        self._codes: dict[tuple[int, tuple[int, ...]], tuple[NDArray[np.int64], NDArray[Any]]] = {}
        for number, constraint in enumerate(self.problem.constraints):
            self._add_table(f"constraint {number}", constraint)
        for number, function in enumerate(self.problem.functions):
            self._add_function(f"function {number}", function)
        for number, table in enumerate(compact.short_tables):
            self._add_table(f"short table {number}", table)
        for linear in self.problem.linear_constraints:
            if linear.scope:
                self.propagators.append(LinearFilter(linear, self.domains))
            self.is_infeasible |= not linear.scope and linear.capacity < 0
        if self._batch:
            self.propagators.append(TableBatch(self._batch, self.domains))
        if self._on_device:
            from oocbe.propagation.device_tables import DeviceTables

            self.propagators.append(DeviceTables(self._on_device, self.domains))
        self._uses: list[list[int]] = [[] for _ in self.problem.variables]
        for number, propagator in enumerate(self.propagators):
            for v in propagator.scope:
                self._uses[v].append(number)

    def _add_function(self, name: str, function: Function) -> None:
        """A function without a default is a table of its rows; in products, an assignment worth 0 is infeasible."""
        rows = function.tuples
        semiring = self.problem.semiring
        multiplies = semiring.combination is Combination.MULTIPLY and not semiring.counts
        if multiplies and (function.values == 0).any():
            if function.default is None or function.default == 0:
                rows = rows[function.values != 0]
            else:
                self._add_table(name, Constraint(function.scope, rows[function.values == 0]))
                return
        if function.default is None or (multiplies and function.default == 0):
            self._add_table(name, Constraint(function.scope, rows, allowed=True))

    def _add_table(self, name: str, table: Constraint | ShortTable) -> None:
        scope, tuples = table.scope, table.tuples
        if not scope:
            self.is_infeasible |= bool(len(tuples)) != table.allowed
            return
        sizes = tuple(self.problem.sizes[v] for v in scope)
        if not table.allowed and isinstance(table, ShortTable):  # rows that overlap must not be counted twice
            try:
                tuples = table.expanded(name, self.problem.sizes).tuples
            except UnsupportedError:
                self.propagators.append(ForbiddenPatterns(scope, tuples, name))
                return
        if isinstance(table, Constraint) and len(tuples) <= self._batch_rows:
            self._batch.append((scope, tuples, table.allowed))
            return
        # Constraints that share their rows, as in a group, share their codes.
        key = (id(tuples), sizes)
        if key not in self._codes:
            self._codes[key] = tuples, codes_of(tuples, sizes)
        codes = self._codes[key][1]
        if not table.allowed or not self._put_on_device(scope, codes, name):
            self.propagators.append(self._made(scope, codes, table.allowed, name))

    def _put_on_device(self, scope: tuple[int, ...], codes: NDArray[Any], name: str) -> bool:
        """Whether a table of feasible rows was added to those on the device."""
        if not self._has_device:
            return False
        from oocbe.propagation import device_tables

        if not device_tables.fits(scope, codes, self.domains, self._device_bytes):
            return False
        if all(codes is not other for _, other, _ in self._on_device):
            self._device_bytes += device_tables.bytes_of(codes)
        self._on_device.append((scope, codes, name))
        return True

    def _made(self, scope: tuple[int, ...], codes: NDArray[Any], is_allowed: bool, name: str) -> Propagator:
        """The engine for a table: bit sets where there is memory for them."""
        if not is_allowed:
            return ForbiddenRows(scope, codes, self.domains, name)
        if self._bit_set_bytes and len(codes) >= self._bit_set_rows:
            needed = bytes_of(codes, [self.problem.sizes[v] for v in scope])
            if needed <= self._bit_set_bytes:
                self._bit_set_bytes -= needed
                return CompactTable(scope, codes, self.domains, name)
        return AllowedRows(scope, codes, self.domains, name)

    def propagate(self, rounds: int | None = None) -> Fixpoint:
        """Propagate all constraints to the fixpoint, or up to a limit of rounds (None: no limit)."""
        found = Fixpoint(FIXPOINT, "", self.domains)
        if self.is_infeasible:
            found.status, found.reason = INFEASIBLE, "a constraint without variables cannot be satisfied"
            return found
        self._continue(found, set(range(len(self.propagators))), rounds)
        return found

    def propagate_without(self, removed: Iterable[tuple[int, int]]) -> Fixpoint:
        """Remove some values (pairs of variable and value) from full domains, and propagate."""
        domains = self.domains
        for v, value in removed:
            domains.counts[v] -= domains.alive[domains.offsets[v] + value]
            domains.alive[domains.offsets[v] + value] = 0
        if (domains.counts == 0).any():
            v = int(domains.counts.argmin())
            return Fixpoint(INFEASIBLE, f"{self.problem.variables[v].name} has no value left", domains, variable=v)
        return self.propagate()

    def tried(self, v: int, value: int) -> Fixpoint:
        """The fixpoint after an assignment of one variable, without its domains; the domains here are restored."""
        domains = self.domains
        alive, counts = domains.alive.copy(), domains.counts.copy()
        self._asked = set()
        found = Fixpoint(FIXPOINT, "", domains)
        domains.keep(v, np.arange(len(domains.flags(v))) == value)
        self._continue(found, set(self._uses[v]), None)
        domains.alive[:], domains.counts[:] = alive, counts
        for number in self._asked:
            self.propagators[number].pop()
        self._asked = None
        return found

    def remove(self, v: int, value: int, found: Fixpoint) -> None:
        """Remove an infeasible value, propagate, and add the removals to a fixpoint."""
        found.rounds.append(self.domains.keep(v, np.arange(len(self.domains.flags(v))) != value))
        if self.domains.counts[v] == 0:
            found.status, found.variable = INFEASIBLE, v
            found.reason = f"{self.problem.variables[v].name} has no value that can be propagated"
            return
        self._continue(found, set(self._uses[v]), None)

    def _continue(self, found: Fixpoint, waiting: set[int], rounds: int | None) -> None:
        """Propagate some constraints, and those affected by their removals."""
        try:
            while waiting:
                if rounds is not None and len(found.rounds) >= rounds:
                    found.status, found.reason = LIMIT, f"the limit of {rounds} rounds was reached"
                    return
                found.rounds.append(0)
                waiting = self._round(waiting, found)
        except TimeLimitError as error:
            found.status, found.reason = how_time_ended() or (LIMIT, str(error))

    def _round(self, waiting: set[int], found: Fixpoint) -> set[int]:
        """Propagate some constraints once; returns those of the next round."""
        domains = found.domains
        again: set[int] = set()
        for number in looked(sorted(waiting, key=lambda n: (self.propagators[n].cost, n))):
            propagator = self.propagators[number]
            if self._asked is not None and number not in self._asked:
                propagator.push()
                self._asked.add(number)
            before = domains.counts[list(propagator.scope)]
            changed = propagator.filter(domains)
            if changed is None:
                found.status, found.constraint = INFEASIBLE, propagator.name
                found.reason = f"{propagator.name} cannot be satisfied by the values left of its variables"
                return set()
            found.rounds[-1] += int((before - domains.counts[list(propagator.scope)]).sum())
            for v in changed:
                if domains.counts[v] == 0:
                    name = self.problem.variables[v].name
                    found.status, found.constraint, found.variable = INFEASIBLE, propagator.name, v
                    found.reason = f"{propagator.name} leaves {name} no value"
                    return set()
                again.update(self._uses[v])
            if propagator.is_idempotent:
                again.discard(number)
        return again
