"""Substitution dominance: drop rows for which another row is at least as good, whatever comes.

In a message, take a row s with v = a and the row s' that equals it but for v = b. If replacing a by b can never violate
a hard constraint ahead that a satisfies, and costs at most ``penalty[a, b]`` more in the functions ahead, then s is
useless where h(s') + penalty[a, b] <= h(s): any completion of s is feasible for s', at no greater cost. (Soft
neighbourhood substitutability: Lecoutre, Roussel, Dehani 2012, and Freuder 1991 for the hard case, here with the
message as the local context.) *Ahead* are the factors outside the message's subtree, whose variables all remain free,
so the penalty of a factor is its worst case over all values of its other variables; a hard constraint covered by the
separator is satisfied by s' as well, or s' would have no row.

Ties are broken towards the smaller value. Every replacement then strictly lowers (cost, assignment read from the
variable eliminated last), so that replacements cannot go in circles, in one message or across several. Rounded sums
know no ties: there a replacement must gain more than all rounding errors together, or two messages could each drop what
the other one keeps.

Sound where marginalisation selects and combination adds; other semirings are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.penalties import add_penalties
from oocbe.operators.bucket_engine import BucketEngine
from oocbe.operators.factors import FactorPool, PackedFactor
from oocbe.operators.substitutions import Substitutions
from oocbe.semiring import Combination, Marginalisation, Semiring
from oocbe.tables.layout import bits_for
from oocbe.tables.table import Table

PAIRS_A_VALUE = 8
"""Substitutions tried for a value, the cheapest first: each is one more pass over the rows that have the value."""

LARGEST_DOMAIN = 256
"""Variables with more values are left alone: their matrices grow with the square of the domain, for every factor."""


def applies_to(semiring: Semiring) -> bool:
    """Whether the argument above holds in a semiring."""
    return semiring.selects and semiring.combination is Combination.ADD


class SubstitutionDominance:
    """Penalties of a problem's factors, and the pass that drops dominated rows of a message.

    Parameters
    ----------
    sizes : domain size of each variable. semiring : min-sum or max-sum.
    constraints, functions : packed factors. opaque : scopes of factors that are tables, never substituted into.
    margin : what a substitution must gain beyond its penalty; see :func:`oocbe.elimination.ranges.rounding_margin`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        semiring: Semiring,
        constraints: FactorPool,
        functions: FactorPool,
        opaque: Sequence[tuple[int, ...]],
        margin: float = 0,
    ) -> None:
        self._sizes = sizes
        self._margin = margin
        self._sign = 1 if semiring.marginalisation is Marginalisation.MIN else -1
        integral = functions.entries.dtype.kind == "i"
        self._dtype = np.dtype(np.int64 if integral else np.float64)
        self._blocked = np.iinfo(np.int64).max if integral else np.inf
        scopes = [f.scope for f in constraints.factors] + [f.scope for f in functions.factors] + list(opaque)
        hard = [1] * len(constraints.factors) + [0] * (len(functions.factors) + len(opaque))
        self._is_hard = np.array(hard, dtype=np.uint8)
        self._scopes = scopes
        self._first = np.array([s[0] for s in scopes], dtype=np.int64)
        self._scope_start = np.concatenate([[0], np.cumsum([len(s) for s in scopes])]).astype(np.int64)
        self._scope = np.array([v for s in scopes for v in s], dtype=np.int64)
        self._collect_matrices(constraints, functions)

    def _collect_matrices(self, constraints: FactorPool, functions: FactorPool) -> None:
        """One (size, size) matrix for each factor and variable; factors with the same entries share one."""
        uses: list[list[tuple[int, int]]] = [[] for _ in self._sizes]
        matrices: list[NDArray[Any]] = []
        known: dict[object, int] = {}
        end = 0
        factor = 0
        for pool, is_hard in ((constraints, True), (functions, False)):
            for packed in pool.factors:
                entries = pool.entries[packed.offset : packed.offset + (1 << packed.bits)]
                shape = tuple(self._sizes[v] for v in packed.scope)
                content = entries.tobytes()
                for axis, v in enumerate(packed.scope):
                    if self._sizes[v] > LARGEST_DOMAIN:
                        continue
                    key = (is_hard, axis, shape, content)
                    if key not in known:
                        dense = self._dense(packed, entries, shape)
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
        self._use_start = np.concatenate([[0], np.cumsum([len(u) for u in uses])]).astype(np.int64)
        self._use_factor = np.array([f for u in uses for f, _ in u], dtype=np.int64)
        self._use_offset = np.array([o for u in uses for _, o in u], dtype=np.int64)
        self._matrices = np.concatenate(matrices) if matrices else np.zeros(1, dtype=self._dtype)

    @staticmethod
    def _dense(packed: PackedFactor, entries: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Packed entries as an array with one axis a scope variable, in scope order, padding cut off."""
        padded = entries.reshape([1 << bits_for(n) for n in reversed(shape)])
        return padded[tuple(slice(0, n) for n in reversed(shape))].transpose()

    def _block_matrix(self, permitted: NDArray[Any], axis: int) -> NDArray[Any]:
        """0 where all that a permits b permits too, else blocked."""
        rows = np.moveaxis(permitted, axis, 0).reshape(permitted.shape[axis], -1).astype(bool)
        violates = np.array([(row & ~rows).any(axis=1) for row in rows])
        return np.where(violates, self._blocked, 0).astype(self._dtype)

    def _loss_matrix(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Worst loss of b against a over the values of the other variables."""
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(self._dtype)
        size = len(rows)
        worst = np.empty((size, size), dtype=self._dtype)
        for a in range(size):
            worst[a] = (self._sign * (rows - rows[a])).max(axis=1)
        return worst

    def penalties(self, v: int, separator: Sequence[int], subtree: NDArray[np.uint8]) -> NDArray[Any]:
        """Penalty matrix [a, b] of a variable of a message's separator; see the module.

        Parameters
        ----------
        subtree : uint8 (variables,), 1 for those eliminated in the message's subtree.
        """
        inside = np.zeros(len(self._sizes), dtype=np.uint8)
        inside[list(separator)] = 1
        return self._penalties(v, inside, (1 - subtree[self._first]).astype(np.uint8))

    def _penalties(self, v: int, inside: NDArray[np.uint8], ahead: NDArray[np.uint8]) -> NDArray[Any]:
        total = np.empty((self._sizes[v],) * 2, dtype=self._dtype)
        add_penalties(
            v,
            self._sizes[v],
            self._use_start,
            self._use_factor,
            self._use_offset,
            self._matrices,
            ahead,
            self._scope_start,
            self._scope,
            inside,
            self._is_hard,
            self._blocked,
            total,
        )
        return total

    def drop_dominated(
        self,
        message: Table,
        separator: Sequence[int],
        subtree: NDArray[np.uint8],
        engine: BucketEngine | None = None,
    ) -> Table:
        """The message without dominated rows.

        Parameters
        ----------
        separator : variables in the layout's order, the least significant first.
        subtree : uint8 (variables,), 1 for those eliminated in the message's subtree.
        engine : where to compute; None: on the CPU.
        """
        if message.rows < 2:
            return message
        inside = np.zeros(len(self._sizes), dtype=np.uint8)
        inside[list(separator)] = 1
        ahead = (1 - subtree[self._first]).astype(np.uint8)
        spread = float(message.values.max()) - float(message.values.min())
        substitutions = Substitutions()
        for v, field in zip(separator, message.layout.fields, strict=True):
            if self._sizes[v] > LARGEST_DOMAIN:
                continue
            pairs = self._pairs(self._penalties(v, inside, ahead), spread)
            if pairs is not None:
                substitutions.variables.append((field, *pairs))
        if not substitutions.variables:
            return message
        return (engine or BucketEngine("cpu")).drop_dominated(message, substitutions, self._sign)

    def _pairs(self, penalty: NDArray[Any], spread: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
        """Substitutions worth trying, CSR by the value replaced; None where there is none."""
        size, worth = len(penalty), spread - self._margin
        start, targets, penalties = [0], [], []
        for a in range(size):
            row = penalty[a]
            candidates = [b for b in range(size) if b != a and row[b] != self._blocked and row[b] <= worth]
            candidates.sort(key=lambda b: row[b])
            for b in candidates[:PAIRS_A_VALUE]:
                targets.append(b)
                penalties.append(row[b] + self._margin)
            start.append(len(targets))
        if not targets:
            return None
        return (
            np.array(start, dtype=np.int64),
            np.array(targets, dtype=np.int64),
            np.array(penalties, dtype=self._dtype),
        )
