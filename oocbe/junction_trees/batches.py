"""Many cases at once, in blocks of cases that are swept together, and answers by names and labels.

A joint posterior of several variables needs no common clique. The variable with the largest domain is the target, and
the others are observed: one extra case for each combination of their values. The joint posterior is the target's
posterior times the probability of that evidence relative to the case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import LimitError
from oocbe.junction_trees.case_sweeps import swept, takes_device
from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.conditioning import Conditioned, condition
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.query_elimination.answer import answer_cases, group_limit, group_work
from oocbe.junction_trees.query_elimination.factors import written_out
from oocbe.junction_trees.stored.tree import StoredTree
from oocbe.model.names import value_index, variable_index
from oocbe.model.parts import Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.machine import available_memory
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import looked
from oocbe.runtime.framed import Framed
from oocbe.runtime.pictures.html import first_words, grid, paragraph
from oocbe.runtime.pictures.shown import Shown

SHOWN_ROWS = 60
"""Rows of numbers in a notebook."""


def labels_of(variable: Variable) -> list[str]:
    """The labels of all values."""
    return [variable.label(i) for i in range(variable.size)]


@dataclass(frozen=True, eq=False)
class Assignments(Framed):
    """Assignments of some variables, such as samples: a row each. ``rows["rain"]`` has a variable's labels.

    variables : of the columns. indices : int64 (rows, variables), value indices; -1 where a case is impossible.
    index : of the cases' pandas frame, which :meth:`to_pandas` keeps; None: they were none.
    """

    variables: tuple[Variable, ...]
    indices: NDArray[np.int64]
    index: Any = None

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The labels of a variable, text or None (rows,); UsageError for an unknown name."""
        v = variable_index(Problem(self.variables), name)
        return np.array([*labels_of(self.variables[v]), None], dtype=object)[self.indices[:, v]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.indices, dtype=dtype, copy=copy)

    def _columns(self) -> Iterable[tuple[str, Any]]:
        return ((v.name, (own, labels_of(v))) for v, own in zip(self.variables, self.indices.T, strict=True))

    def __repr__(self) -> str:
        return f"<Assignments: {len(self):,} rows of {len(self.variables):,} variables>"


@dataclass(frozen=True, eq=False)
class Factor(Framed):
    """Numbers over a scope, such as a posterior: ``factor["wet", "yes"]`` has one, by a label or position each.

    variables : of the axes. values : float64, an axis for each variable, in their order.
    what : the name of the numbers in a data frame, which has a row for each assignment.
    """

    variables: tuple[Variable, ...]
    values: NDArray[np.float64]
    what: str = "probability"

    def __getitem__(self, labels: object) -> float:
        """The number of an assignment; UsageError for an unknown label, ValueError for a wrong number of them."""
        given = labels if isinstance(labels, tuple) else (labels,)
        return float(self.values[tuple(value_index(v, x) for v, x in zip(self.variables, given, strict=True))])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def _columns(self) -> Iterable[tuple[str, Any]]:
        axes = np.indices(self.values.shape).reshape(len(self.variables), self.values.size)
        yield from ((v.name, (own, labels_of(v))) for v, own in zip(self.variables, axes, strict=True))
        yield self.what, self.values.ravel()

    def _repr_html_(self) -> str:
        """A table for notebooks, with a column for each value of the last variable."""
        *others, last = self.variables
        rows = self.values.reshape(-1, last.size)
        at = zip(*np.unravel_index(np.arange(min(len(rows), SHOWN_ROWS)), self.values.shape[:-1] or (1,)), strict=True)
        cells = [
            [*(v.label(int(i)) for v, i in zip(others, own, strict=False)), *row.tolist()]
            for own, row in zip(at, rows, strict=False)
        ]
        more = paragraph(f"{len(rows) - len(cells):,} rows more: to_pandas()") if len(rows) > len(cells) else ""
        return grid([*(v.name for v in others), *(f"{last.name}={label}" for label in labels_of(last))], cells) + more

    def __repr__(self) -> str:
        return f"<{self.what} of {', '.join(v.name for v in self.variables)}: {self.values.size:,} numbers>"


class Counts(tuple[Factor, ...]):
    """Counts of functions; ``counts["rain"]`` are those of the first one whose last variable is rain (KeyError)."""

    @cached_property
    def _by_name(self) -> dict[str, Factor]:
        return {own.variables[-1].name: own for own in reversed(self) if own.variables}

    def __getitem__(self, key: Any) -> Any:
        return self._by_name[key] if isinstance(key, str) else super().__getitem__(key)


EXACT, IMPOSSIBLE = "exact", "impossible"
"""Status of a case: its numbers are correct up to rounding, or its evidence has probability 0."""

_CONDITIONED: WeakKeyDictionary[CompiledTree | StoredTree, dict[tuple[bytes, frozenset[int]], Conditioned | None]]
_CONDITIONED = WeakKeyDictionary()
"""Tree of a group by tree, observed variables and targets; None where there is no better one."""


@dataclass(frozen=True, eq=False)
class BatchResult(Framed, Shown):
    """The answers for a batch of cases. ``answers["rain"]["yes"]`` has a probability of each case (cases,).

    marginals : by target, float64 (cases, domain size): posterior probabilities, 0 in impossible cases.
    joints : by pair of variables, float64 (cases, first's size, second's size); likewise.
    log_evidence : float64 (cases,), natural logarithm of the probability of the evidence; -inf where it is 0.
    status : str (cases,), :data:`EXACT` or :data:`IMPOSSIBLE`.
    variables : of the problem, by name. index : as of :class:`Assignments`.
    """

    marginals: Mapping[str, NDArray[np.float64]]
    joints: Mapping[tuple[str, ...], NDArray[np.float64]]
    log_evidence: NDArray[np.float64]
    status: NDArray[np.str_]
    variables: Mapping[str, Variable] = field(default_factory=dict, repr=False)
    index: Any = field(default=None, repr=False)

    def __getitem__(self, name: str | tuple[str, ...]) -> dict[Any, NDArray[np.float64]]:
        """Posterior of a variable by label, or of a group by labels: float64 (cases,); KeyError: no target, no group"""
        if isinstance(name, tuple):
            found = self.joints[name]
            keys: Iterable[Any] = itertools.product(*(labels_of(self.variables[own]) for own in name))
        else:
            found, keys = self.marginals[name], labels_of(self.variables[name])
        return dict(zip(keys, found.reshape(len(found), math.prod(found.shape[1:])).T, strict=True))

    def columns(self) -> tuple[list[str], NDArray[np.float64]]:
        """Names such as ``rain=yes`` or ``rain=yes,wind=no``, and posteriors (cases, names)."""
        names: list[str] = []
        numbers = [np.zeros((len(self.status), 0))]
        for group, found in self.groups():
            labels = [[f"{name}={label}" for label in labels_of(self.variables[name])] for name in group]
            names += [",".join(combined) for combined in itertools.product(*labels)]
            numbers.append(found.reshape(len(found), math.prod(found.shape[1:])))
        return names, np.concatenate(numbers, axis=1)

    def groups(self) -> list[tuple[tuple[str, ...], NDArray[np.float64]]]:
        """Names of variables, and their posteriors: of each target, then of each group."""
        return [*(((name,), found) for name, found in self.marginals.items()), *self.joints.items()]

    def _columns(self) -> Iterable[tuple[str, Any]]:
        names, numbers = self.columns()
        yield from (("status", self.status.tolist()), ("log_evidence", self.log_evidence))
        yield from zip(names, np.ascontiguousarray(numbers.T), strict=True)

    def __repr__(self) -> str:
        impossible = int((self.status == IMPOSSIBLE).sum())
        return f"<BatchResult of {len(self.status):,} cases, {impossible:,} of them impossible>"

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        possible = int((self.status == EXACT).sum())
        return "Batch", [
            ("cases", len(self.status)),
            ("impossible", len(self.status) - possible),
            ("marginals of", first_words(list(self.marginals))),
            ("joints of", first_words([" and ".join(names) for names in self.joints])),
        ]


def sweep_cases(
    tree: CompiledTree | StoredTree, cases: Cases, targets: Sequence[int], backend: str = "cpu"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    backend : for sweeps over rows in memory, see :func:`oocbe.junction_trees.case_sweeps.takes_device`.

    Raises ResourceError: the device has no room for the tree and a few cases; TimeLimitError: the deadline passed.
    """
    sizes = tree.problem.sizes
    found = np.zeros((len(cases), sum(sizes[v] for v in targets)))
    logarithms = np.full(len(cases), -np.inf)
    if not tree.is_possible:
        return found, logarithms
    rest = np.ones(len(cases), dtype=bool)
    is_there = isinstance(tree, CompiledTree) and takes_device(tree, len(cases), backend)
    seconds = tree.work * (tuning().device_case_row_seconds if is_there else tuning().case_row_seconds)
    if isinstance(tree, CompiledTree) and not is_there:
        for group, answers in _groups_alone(tree, cases, targets, seconds):
            rest[group] = False
            found[group], logarithms[group] = answers
        if not rest.any():
            return found, logarithms
    kept = np.flatnonzero(rest)
    for own, conditioned in _conditioned_groups(tree, cases.some(kept), targets, seconds):
        group = kept[own]
        rest[group] = False
        found[group], logarithms[group] = _sweep_conditioned(sizes, conditioned, cases.some(group), targets, backend)
    if rest.all():
        return swept(tree, cases, targets, backend)
    if rest.any():
        found[rest], logarithms[rest] = swept(tree, cases.some(np.flatnonzero(rest)), targets, backend)
    return found, logarithms


def _groups_alone(
    tree: CompiledTree, cases: Cases, targets: Sequence[int], case_seconds: float
) -> Iterator[tuple[NDArray[np.int64], tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Groups too small for a tree of their own whose cases are faster one by one than with the whole tree."""
    factors = written_out(tree.problem) if group_limit(tree, len(cases), case_seconds) else None
    if factors is None:
        return
    for group in _groups(cases):
        limit = group_limit(tree, len(group), case_seconds)
        answers = answer_cases(factors, cases.some(group), targets, limit, available_memory(), "cpu")
        if answers is not None:
            yield group, answers


def _conditioned_groups(
    tree: CompiledTree | StoredTree, cases: Cases, targets: Sequence[int], case_seconds: float
) -> Iterator[tuple[NDArray[np.int64], Conditioned]]:
    """Groups of cases that observe the same variables and for which a tree of their own pays off, with that tree.

    If rows are on disk, this includes the group without evidence: a tree of the relevant variables may fit the memory.

    case_seconds : approximate time of a case with the whole tree.
    """
    if not group_work(tree, len(cases), case_seconds):
        return
    for group in looked(_groups(cases)):
        pattern = cases.observed[group[0]] != UNOBSERVED
        observed = np.flatnonzero(pattern).tolist()
        most_work = group_work(tree, len(group), case_seconds)
        if not (observed or isinstance(tree, StoredTree)) or not most_work:
            continue
        needed = frozenset({*targets, *cases.likelihoods} - set(observed))
        known = _CONDITIONED.setdefault(tree, {})
        key = (pattern.tobytes(), needed)
        if key not in known:
            if len(known) == tuning().cached:
                known.pop(next(iter(known)))
            room = tuning().work_bytes
            if isinstance(tree, StoredTree):
                room = min(room, tree.memory // 4)
            known[key] = condition(tree, observed, needed, most_work, room)
        made = known[key]
        if made is not None:
            yield group, made


def _groups(cases: Cases) -> list[NDArray[np.int64]]:
    """For each set of observed variables, the numbers of its cases, ascending."""
    bits = np.ascontiguousarray(np.packbits(cases.observed != UNOBSERVED, axis=1))
    if not bits.size:  # no case, or no variable
        return [np.arange(len(cases))] if len(cases) else []
    _, group_of = np.unique(bits.view(np.dtype((np.void, bits.shape[1]))).ravel(), return_inverse=True)
    order = np.argsort(group_of, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group_of[order])) + 1)


def _sweep_conditioned(
    sizes: Sequence[int], conditioned: Conditioned, cases: Cases, targets: Sequence[int], backend: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors and logarithms of evidence of cases that observe the variables removed from a conditioned tree."""
    number = {v: i for i, v in enumerate(conditioned.hidden)}
    seen = cases.observed
    hidden = np.full((len(cases), len(number)), UNOBSERVED)
    likelihoods = {number[v]: given for v, given in cases.likelihoods.items() if v in number}
    inputs = [(entered, entered.columns(seen)) for entered in conditioned.inputs]
    unknown = [v for v in targets if v in number]
    known = Cases(hidden, likelihoods)
    posteriors, logarithms = swept(conditioned.tree, known, [number[v] for v in unknown], backend, inputs)
    with np.errstate(divide="ignore"):
        for scalar in conditioned.scalars:
            logarithms = logarithms + np.log(scalar.weights[0, scalar.columns(seen)])
        for v, given in cases.likelihoods.items():
            if v not in number:
                logarithms = logarithms + np.log(given[np.arange(len(cases)), seen[:, v]])
    found = np.zeros((len(cases), sum(sizes[v] for v in targets)))
    ends = np.cumsum([0, *(sizes[v] for v in unknown)])
    places = {v: (first, last) for v, first, last in zip(unknown, ends, ends[1:], strict=False)}
    start = 0
    for v in targets:
        if v in places:
            first, last = places[v]
            found[:, start : start + sizes[v]] = posteriors[:, first:last]
        else:
            found[np.arange(len(cases)), start + seen[:, v]] = 1.0
        start += sizes[v]
    found[logarithms == -np.inf] = 0.0
    return found, logarithms


MOST_NUMBERS = 1 << 27
"""Maximum numbers of a joint posterior of all cases together: one GiB, and as much again while it is computed."""

Sweep = Callable[[Cases, Sequence[int]], tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Signature of :meth:`oocbe.junction_trees.query_engine.QueryEngine.sweep`."""


def joint_of_cases(problem: Problem, sweep: Sweep, cases: Cases, variables: Sequence[int]) -> NDArray[np.float64]:
    """Joint posteriors of different variables: float64 (cases, size of each), 0 in impossible cases.

    Raises LimitError: more numbers than :data:`MOST_NUMBERS`; TimeLimitError: the deadline passed.
    """
    sizes = problem.sizes
    shape = [sizes[v] for v in variables]
    numbers = float(np.prod(shape, dtype=np.float64))
    if len(cases) * numbers > MOST_NUMBERS:
        raise LimitError(
            f"{problem.name}: the joint posterior of {len(variables)} variables has {numbers:.3g} numbers a "
            f"case, more than {MOST_NUMBERS:,} in all; query fewer variables or cases at a time"
        )
    largest = max(variables, key=lambda v: sizes[v])
    others = [v for v in variables if v != largest]
    many = math.prod(sizes[v] for v in others)
    found = np.zeros((len(cases) * many, sizes[largest]))
    logarithms = np.full(len(found), -np.inf)
    length = max(1, tuning().joint_piece_numbers // len(sizes))
    for first in looked(range(0, len(found), length)):
        rows = np.arange(first, min(first + length, len(found)))
        own, combinations = np.divmod(rows, many)
        part = cases.some(own)
        contradicts = np.zeros(len(rows), dtype=bool)
        for v in reversed(others):
            combinations, values = np.divmod(combinations, sizes[v])
            contradicts |= (part.observed[:, v] != UNOBSERVED) & (part.observed[:, v] != values)
            part.observed[:, v] = values
        left = np.flatnonzero(~contradicts)
        found[rows[left]], logarithms[rows[left]] = sweep(part.some(left), [largest])
    weights = logarithms.reshape(len(cases), many)
    greatest = weights.max(axis=1, keepdims=True)
    shares = np.exp(weights - np.where(greatest == -np.inf, 0.0, greatest))
    total = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    found *= shares.reshape(-1, 1)
    joint = found.reshape(len(cases), *(sizes[v] for v in others), sizes[largest])
    axes = [*others, largest]
    return np.ascontiguousarray(joint.transpose(0, *(1 + axes.index(v) for v in variables)))
