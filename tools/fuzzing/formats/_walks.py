"""What an assignment of a file's own variables is worth where a problem has variables of states besides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Walks:
    """The values of assignments of the first variables of a problem, each of which has one completion at most.

    Parameters
    ----------
    problem : of oocbe. own : how many of its variables, the first ones, are the file's.
    """

    def __init__(self, problem: Any, own: int) -> None:
        self._problem = problem
        self._own = own
        self._tables: dict[int, list[tuple[tuple[int, ...], set[tuple[int, ...]]]]] = {}
        listed = [(f.scope, f.tuples) for f in problem.functions if f.default is None]
        listed += [(c.scope, c.tuples) for c in problem.constraints if c.allowed]
        for scope, tuples in listed:
            if scope and max(scope) >= own:
                self._tables.setdefault(max(scope), []).append((scope, set(map(tuple, tuples.tolist()))))

    def value(self, row: Iterable[int]) -> float | None:
        """What a row is worth, None where it is not feasible; ValueError where there are several walks."""
        found = [self._problem.evaluate(whole) for whole in self._completed(tuple(row))]
        values = [value for value in found if value is not None]
        if len(values) > 1:
            raise ValueError(f"{tuple(row)} has {len(values)} walks")
        return values[0] if values else None

    def _completed(self, row: tuple[int, ...]) -> list[tuple[int, ...]]:
        if len(row) == len(self._problem.variables):
            return [row]
        rows = [(*row, state) for state in range(self._problem.sizes[len(row)])]
        tables = self._tables.get(len(row), ())
        good = [r for r in rows if all(tuple(r[v] for v in scope) in known for scope, known in tables)]
        return [done for r in good for done in self._completed(r)]
