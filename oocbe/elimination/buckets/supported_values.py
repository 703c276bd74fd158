"""Removes values without a row in some message from the remaining buckets, too.

Every solution that bounds and dominance retain has a row in every message, so none has such a value. Buckets that do
not receive the message need no rows with it either. A sample of rows contains most values of most variables at hardly
any cost; only the missing ones are searched for in all rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from oocbe.elimination.buckets.buckets import Bucket
from oocbe.elimination.engine.factors import FactorPool, PackedFactor
from oocbe.elimination.preparation.prepare import Prepared
from oocbe.kernels.cpu.buckets.seen_values import see_values
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import check_deadline
from oocbe.tables.layout import Field, bits_for
from oocbe.tables.table import Table


class SupportedValues:
    """The domains as reduced by the messages of one forward pass.

    Attributes
    ----------
    pool : the problem's packed constraints, followed by one for each variable: the remaining values, which
        :meth:`learn` changes. removed : number of removed values.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._sizes = prepared.problem.sizes
        widths = [1 << bits_for(size) for size in self._sizes]
        begin = len(prepared.constraints.entries)
        self._offsets = [begin, *(begin + end for end in accumulate(widths))]
        own = np.ones(self._offsets[-1] - begin, dtype=np.uint8)
        self.pool = FactorPool(prepared.constraints.factors, np.concatenate([prepared.constraints.entries, own]))
        self._narrowed: dict[int, PackedFactor] = {}
        self.removed = self._looked = 0

    def constraints(self, bucket: Bucket) -> list[PackedFactor]:
        """Constraints to the remaining values, for variables of the bucket with a reduced domain."""
        if not self._narrowed:
            return []
        return [self._narrowed[v] for v in (bucket.variable, *bucket.separator) if v in self._narrowed]

    def learn(self, message: Table, separator: Sequence[int]) -> None:
        """Remove the values without a row in a message in main memory."""
        is_short = message.rows < tuning().supported_sample_rows
        is_idle = self.removed == 0 and self._looked >= tuning().supported_trials and is_short
        if message.rows == 0 or not separator or is_idle or not tuning().narrows:
            return
        self._looked += 1
        sizes = [self._sizes[v] for v in separator]
        cells = math.prod(sizes)
        # A missing value removes its share of all rows.
        if cells - cells // max(sizes, default=1) < message.rows and len(message.layout.scope) == len(separator):
            return
        fields = message.layout.fields[len(message.layout.fields) - len(separator) :]
        step = -(-message.rows // tuning().supported_sample_rows)
        missing = self._missing(message, separator, fields, step)
        for place in missing if step == 1 else missing[-tuning().supported_passes :]:
            self._remove(message, separator[place], fields[place])

    def _missing(self, message: Table, scope: Sequence[int], fields: Sequence[Field], step: int) -> list[int]:
        """Positions of variables with a remaining value that no ``step``-th row has."""
        word = np.array([f.word for f in fields], dtype=np.int64)
        shift = np.array([f.shift for f in fields], dtype=np.uint64)
        mask = np.array([f.mask for f in fields], dtype=np.uint64)
        offsets = [(self._offsets[v], self._sizes[v]) for v in scope]
        start = np.array([0, *accumulate(size for _, size in offsets)], dtype=np.int64)
        seen = np.concatenate([1 - self.pool.entries[offset : offset + size] for offset, size in offsets])
        see_values(message.keys, word, shift, mask, start, step, seen)
        if seen.all():
            return []
        return [place for place in range(len(offsets)) if not seen[start[place] : start[place + 1]].all()]

    def _remove(self, message: Table, v: int, field: Field) -> None:
        """Remove a variable's values that occur in no row."""
        check_deadline()
        offset, size = self._offsets[v], self._sizes[v]
        left = self.pool.entries[offset : offset + size]
        seen = np.zeros(size, dtype=np.uint8)
        values = (message.keys[field.word] >> np.uint64(field.shift)) & np.uint64(field.mask)
        seen[values.astype(np.int64)] = 1
        gone = int(np.count_nonzero(left & (1 - seen)))
        if gone == 0:
            return
        self.removed += gone
        left &= seen
        self._narrowed[v] = PackedFactor((v,), 1 << v, bits_for(size), offset)
