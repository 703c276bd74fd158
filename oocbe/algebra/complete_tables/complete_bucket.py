"""A bucket of complete tables: its functions fused where that is cheap, then joined and reduced by one kernel call.

A bucket has one or two large messages and many small functions. Each joined cell would look all of them up, so the
small ones are joined among themselves first, and into a larger one that has all their variables: that costs a pass
over a table far smaller than the bucket's joined one, and leaves two or three functions to combine a cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.interface import CompleteFunction, steps_of
from oocbe.model.semiring import Semiring
from oocbe.model.settings.tuning import tuning

if TYPE_CHECKING:
    from oocbe.kernels.interface import CompleteBackend


@dataclass(frozen=True)
class BucketFunction:
    """A function of a bucket.

    Attributes
    ----------
    scope : variable indices, in any order. values : of the bucket's dtype, with :mod:`oocbe.model.infeasible` in it.
    strides : elements between neighbours along each variable of the scope.
    """

    scope: tuple[int, ...]
    values: NDArray[Any]
    strides: tuple[int, ...]

    def over(self, axes: Sequence[int]) -> CompleteFunction:
        """The function as the kernel sees it in a bucket with these axes."""
        steps = dict(zip(self.scope, self.strides, strict=True))
        return CompleteFunction(self.values, tuple(steps.get(v, 0) for v in axes))


class CompleteBucket:
    """Axes of a bucket, and how its functions are joined.

    Parameters
    ----------
    separator : variable indices of the result, the fastest first. eliminated : those that are marginalised out.
    sizes : domain size of each variable, by index.
    """

    def __init__(
        self,
        separator: Sequence[int],
        eliminated: Sequence[int],
        sizes: Sequence[int] | Mapping[int, int],
        semiring: Semiring,
        dtype: np.dtype[Any],
        kernels: CompleteBackend,
    ) -> None:
        self._axes = (*separator, *eliminated)
        self._eliminated = len(eliminated)
        self._sizes = sizes
        self._semiring = semiring
        self._dtype = dtype
        self._kernels = kernels

    @property
    def joined_cells(self) -> int:
        """Assignments of all its variables."""
        return math.prod(self._sizes[v] for v in self._axes)

    def eliminate(self, functions: Sequence[BucketFunction]) -> NDArray[Any]:
        """Values of the result (cells,), where the kernels work."""
        here = [BucketFunction(f.scope, self._kernels.upload(f.values), f.strides) for f in functions]
        return self._call(self.fused(here), self._axes, self._eliminated)

    def fused(self, functions: Sequence[BucketFunction]) -> list[BucketFunction]:
        """Fewer functions with the same combination, whose values are where the kernels work."""
        place = {v: i for i, v in enumerate(self._axes)}
        limit = max(tuning().fused_cells, self.joined_cells // tuning().fused_part)
        groups: list[tuple[set[int], list[BucketFunction]]] = []
        # The largest first: a small one joins the group that grows least by it.
        for f in sorted(functions, key=lambda f: -self._cells(f.scope)):
            best, least = None, math.inf
            for group in groups:
                cells = self._cells(group[0] | set(f.scope))
                growth = cells / self._cells(group[0])
                if cells <= limit and growth < least and cells <= 2 * (self._cells(group[0]) + self._cells(f.scope)):
                    best, least = group, growth
            if best is None:
                groups.append((set(f.scope), [f]))
            else:
                best[0].update(f.scope)
                best[1].append(f)
        return [self._joined(sorted(scope, key=place.__getitem__), members) for scope, members in groups]

    def _joined(self, scope: Sequence[int], members: list[BucketFunction]) -> BucketFunction:
        if len(members) == 1:
            return members[0]
        values = self._call(members, scope, 0)
        return BucketFunction(tuple(scope), values, steps_of([self._sizes[v] for v in scope]))

    def _cells(self, scope: Sequence[int] | set[int]) -> int:
        return math.prod(self._sizes[v] for v in scope)

    def _call(self, functions: list[BucketFunction], axes: Sequence[int], eliminated: int) -> NDArray[Any]:
        values: NDArray[Any] = self._kernels.eliminate_complete(
            [f.over(axes) for f in functions],
            [self._sizes[v] for v in axes],
            eliminated,
            self._semiring.combination,
            self._semiring.marginalisation,
            self._dtype,
        )
        return values
