"""Substitution dominance: drop rows for which another row is at least as good in every completion.

In a message, take a row s with v = a and the row s' that equals it but for v = b. If replacing a by b can never violate
a hard constraint ahead that a satisfies, and costs at most ``penalty[a, b]`` more in the functions ahead, then s is
useless where h(s') + penalty[a, b] <= h(s): any completion of s is feasible for s', at no greater cost. (Soft
neighbourhood substitutability: Lecoutre, Roussel, Dehani 2012, and Freuder 1991 for the hard case, here with the
message as the local context.) *Ahead* are the factors outside the message's subtree, whose variables all remain free,
so the penalty of a factor is its worst case over all values of its other variables; a hard constraint covered by the
separator is satisfied by s' as well, or s' would have no row.

Where rows carry what they consume of linear constraints, s' may consume any amount that, with b, is at most what s
consumes with a. Its value is then that of the best such row.

Ties are broken towards less consumption, then the smaller value. Every replacement then strictly lowers (cost,
consumption, assignment read from the variable eliminated last), so that replacements cannot go in circles, in one
message or across several. Rounded sums know no ties: there a replacement must gain more than all rounding errors
together, or two messages could each drop what the other one keeps.

Sound where marginalisation selects and combination adds; other semirings are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.consumption import Consumption
from oocbe.elimination.engine.factors import FactorPool
from oocbe.elimination.engine.substitutions import Substitutions
from oocbe.kernels.cpu.buckets.dominance import collect_substitutions
from oocbe.model.semiring import Marginalisation, Semiring
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.layout import Layout, bits_for
from oocbe.tables.table import Table

LARGEST_DOMAIN = 256
"""Largest domain with substitutions: matrices grow with the square of the domain, for every factor."""


class SubstitutionDominance:
    """Penalties of a problem's factors, and the pass that drops dominated rows of a message.

    sizes : domain size of each variable. semiring : min-sum or max-sum.
    constraints, functions : packed factors. opaque : scopes of factors that are tables, never substituted into.
    margin : what a substitution must gain beyond its penalty; see
        :func:`oocbe.elimination.preparation.ranges.rounding_margin`.
    consumption : carried by rows, a Pareto front for each key without it; None: none.
    sign : 1 where small values are better, -1 where large ones are.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        semiring: Semiring,
        constraints: FactorPool,
        functions: FactorPool,
        opaque: Sequence[tuple[int, ...]],
        margin: float = 0,
        consumption: Consumption | None = None,
    ) -> None:
        self._sizes, self._margin, self._consumption = sizes, margin, consumption
        self.sign = 1 if semiring.marginalisation is Marginalisation.MIN else -1
        integral = functions.entries.dtype.kind == "i"
        self._dtype = np.dtype(np.int64 if integral else np.float64)
        self._blocked = np.iinfo(np.int64).max if integral else np.inf
        scopes = [f.scope for f in constraints.factors] + [f.scope for f in functions.factors] + list(opaque)
        hard = [1] * len(constraints.factors) + [0] * (len(functions.factors) + len(opaque))
        is_hard = np.array(hard, dtype=np.uint8)
        self._scopes = scopes
        self._first = np.array([s[0] for s in scopes], dtype=np.int64)
        scope_start = np.concatenate([[0], np.cumsum([len(s) for s in scopes])]).astype(np.int64)
        scope = np.array([v for s in scopes for v in s], dtype=np.int64)
        self._size_array = np.array(sizes, dtype=np.int64)
        self._factors = (*self._collect_matrices(constraints, functions), scope_start, scope, is_hard)

    def _collect_matrices(
        self, constraints: FactorPool, functions: FactorPool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """One (size, size) matrix for each factor and variable; factors with the same entries share one.

        Returns use_start, use_factor, use_offset and the matrices, as
        :func:`oocbe.kernels.cpu.buckets.dominance.add_penalties` takes them.
        """
        uses: list[list[tuple[int, int]]] = [[] for _ in self._sizes]
        matrices: list[NDArray[Any]] = []
        known: dict[object, int] = {}
        end = factor = 0
        for pool, is_hard in ((constraints, True), (functions, False)):
            for packed in pool.factors:
                entries = pool.entries[packed.offset : packed.offset + (1 << packed.bits)]
                shape = tuple(self._sizes[v] for v in packed.scope)
                content = entries.tobytes()
                for axis, v in enumerate(packed.scope):
                    if self._sizes[v] > LARGEST_DOMAIN:
                        continue
                    check_deadline()
                    key = (is_hard, axis, shape, content)
                    if key not in known:
                        dense = self._dense(entries, shape)
                        matrix = self._block_matrix(dense, axis) if is_hard else self._loss_matrix(dense, axis)
                        matrices.append(matrix.ravel())
                        known[key] = end
                        end += matrix.size
                    uses[v].append((factor, known[key]))
                factor += 1
        for scope in self._scopes[factor:]:
            for v in scope:
                if self._sizes[v] > LARGEST_DOMAIN:
                    continue
                matrix = np.full((self._sizes[v],) * 2, self._blocked, dtype=self._dtype)
                matrices.append(matrix.ravel())
                uses[v].append((factor, end))
                end += matrix.size
            factor += 1
        return (
            np.concatenate([[0], np.cumsum([len(u) for u in uses])]).astype(np.int64),
            np.array([f for u in uses for f, _ in u], dtype=np.int64),
            np.array([o for u in uses for _, o in u], dtype=np.int64),
            np.concatenate(matrices) if matrices else np.zeros(1, dtype=self._dtype),
        )

    @staticmethod
    def _dense(entries: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Packed entries as an array with one axis a scope variable, in scope order, padding cut off."""
        padded = entries.reshape([1 << bits_for(n) for n in reversed(shape)])
        return padded[tuple(slice(0, n) for n in reversed(shape))].transpose()

    def _block_matrix(self, permitted: NDArray[Any], axis: int) -> NDArray[Any]:
        """0 where all that a permits b permits too, else blocked."""
        rows = np.moveaxis(permitted, axis, 0).reshape(permitted.shape[axis], -1).astype(bool).astype(np.float32)
        # How often a permits what b forbids: a sum of ones that may round, but not to zero.
        violates = rows @ (1 - rows).T > 0
        return np.where(violates, self._blocked, 0).astype(self._dtype)

    def _loss_matrix(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Worst loss of b against a over the values of the other variables."""
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(self._dtype)
        size = len(rows)
        worst = np.empty((size, size), dtype=self._dtype)
        for a in range(size):
            worst[a] = (self.sign * (rows - rows[a])).max(axis=1)
        return worst

    def drop_dominated(
        self, message: Table, separator: Sequence[int], subtree: NDArray[np.uint8], engine: BucketEngine | None = None
    ) -> Table:
        """The message without dominated rows.

        separator : variables in the layout's order, the least significant first.
        subtree : uint8 (variables,), 1 for those eliminated in the message's subtree.
        engine : where to compute; None: on the CPU.
        """
        if message.rows < 2:
            return message
        spread = float(message.values.max()) - float(message.values.min())
        substitutions = self.substitutions(message.layout, spread, separator, subtree)
        if not substitutions.variables:
            return message
        return (engine or BucketEngine("cpu")).drop_dominated(message, substitutions, self.sign)

    def substitutions(
        self, layout: Layout, spread: float, separator: Sequence[int], subtree: NDArray[np.uint8]
    ) -> Substitutions:
        """Substitutions that may pay in a message whose values differ by at most ``spread``; the rest as above."""
        inside = np.zeros(len(self._sizes), dtype=np.uint8)
        inside[list(separator)] = 1
        ahead = (1 - subtree[self._first]).astype(np.uint8)
        worth = spread - self._margin
        sizes = [self._sizes[v] if self._sizes[v] <= LARGEST_DOMAIN else 0 for v in separator]
        start = np.empty(sum(sizes) + len(sizes), dtype=np.int64)
        a_value = tuning().pairs_a_value
        most = sum(size * min(size, a_value) for size in sizes)
        target, penalty = np.empty(most, dtype=np.int64), np.empty(most, dtype=self._dtype)
        pairs = np.empty(len(separator), dtype=np.int64)
        scopes = np.array(separator, dtype=np.int64)
        limits = (LARGEST_DOMAIN, self._factors, ahead, inside, self._blocked, worth, self._margin, a_value)
        collect_substitutions(scopes, self._size_array, *limits, start, target, penalty, pairs)
        consumption = self._consumption
        found = Substitutions(parts=None if consumption is None else consumption.parts)
        start_end = pair_end = 0
        fields = layout.fields[len(layout.fields) - len(separator) :]
        for v, size, field, count in zip(separator, sizes, fields, pairs.tolist(), strict=True):
            if count:
                own = slice(pair_end, pair_end + count)
                starts, saving = start[start_end : start_end + size + 1], None
                if consumption is not None:
                    saving = consumption.savings(v, np.repeat(np.arange(size), np.diff(starts)), target[own])
                found.variables.append((field, starts, target[own], penalty[own], saving))
            pair_end += count
            start_end += size + 1 if size else 0
        return found
