"""Restrictions of a problem by bounds, recorded so that a resumed run reproduces them exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from oocbe.elimination.reformulation import Stack
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
    stack : the restrictions of the whole problem. source : None before the first bound.
    removals : values removed by each restriction; variables are numbered as before it.
    """

    stack: Stack
    source: BoundSource | None = None
    removals: tuple[Values, ...] = ()

    @property
    def problem(self) -> Problem:
        """The restricted problem."""
        return self.stack.problem

    @property
    def variables(self) -> tuple[int, ...]:
        """Index in the whole problem of each variable."""
        count = len(self.problem.variables)
        return self.stack.lift_order(range(count))[-count:] if count else ()

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
        source = None if self.source is None else made.source(self.source)
        stack = self.stack.then(replace(made, problem=made.problem.below(threshold)))
        return Scope(stack, source, (*self.removals, removed))

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
