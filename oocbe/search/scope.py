"""Restrictions of a problem by bounds, recorded so that a resumed run reproduces them exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oocbe.elimination.row_pruning.row_bounds import BoundSource
from oocbe.model.problem import Problem
from oocbe.propagation.value_removal import remove_values

Values = tuple[tuple[int, int], ...]
"""Pairs of variable and value."""


@dataclass(frozen=True)
class Scope:
    """A restricted problem, and a bound on it.

    Attributes
    ----------
    source : None before the first bound.
    lift : maps an assignment to one of the whole problem. variables : the variables' indices there.
    removals : values removed by each restriction; variables are numbered as before it.
    """

    problem: Problem
    source: BoundSource | None
    lift: Callable[[Sequence[int]], tuple[int, ...]]
    variables: tuple[int, ...]
    removals: tuple[Values, ...] = ()

    @classmethod
    def whole(cls, problem: Problem) -> Scope:
        """The scope of the whole problem."""
        return cls(problem, None, tuple, tuple(range(len(problem.variables))))

    def below(self, threshold: int | float) -> Scope | None:
        """The scope restricted to assignments below a threshold; None if there are none."""
        assert self.source is not None
        if self.source.root >= threshold:
            return None
        return self._without(threshold, self.source.fixed_values(threshold))

    def _without(self, threshold: int | float, removed: Iterable[tuple[int, int]]) -> Scope | None:
        removed = tuple((int(v), int(value)) for v, value in removed)
        made = remove_values(self.problem, removed)
        if made.is_infeasible:
            return None
        return Scope(
            made.problem.below(threshold),
            None if self.source is None else made.source(self.source),
            lambda a: self.lift(made.lift(a)),
            tuple(self.variables[v] for v in made.variables),
            (*self.removals, removed),
        )

    def after(self, removals: Iterable[Values], threshold: int | float) -> Scope | None:
        """The scope after removals that a run has proven valid below the threshold; None if it is empty."""
        scope: Scope | None = self
        for removed in removals:
            scope = None if scope is None else scope._without(threshold, removed)
        return scope


@dataclass(frozen=True)
class RunningOrder:
    """An order running on a scope, as published for a resumed run.

    Attributes
    ----------
    removals : of the scope. threshold : of the run.
    order : of the scope's variables. cap : maximum rows of a message.
    """

    removals: tuple[Values, ...]
    threshold: int | float
    order: tuple[int, ...]
    cap: int

    def as_record(self) -> dict[str, Any]:
        """The order as a record of JSON types."""
        return {"removals": self.removals, "threshold": self.threshold, "order": self.order, "cap": self.cap}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> RunningOrder:
        """Restore an order from the record of :meth:`as_record`."""
        removals = tuple(tuple((v, value) for v, value in removed) for removed in record["removals"])
        return cls(removals, record["threshold"], tuple(record["order"]), record["cap"])
