"""The public interface of junction trees.

A saved tree is a folder of rows and of the problem's arrays, and a record of their sizes and checksums, written last.
The folder is made under a hidden name, synced to disk and renamed, so that it is complete or absent whenever the
process is killed. Trees made in memory and on disk have one format (:mod:`oocbe.junction_trees.stored`): a saved tree
is read into memory if it fits, and else swept over from the disk.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.preparation.temperature import check_rounding, weighted
from oocbe.elimination.reformulation import reduce_arity
from oocbe.errors import CorruptDataError, DiskError, ResourceError, UnsupportedError, UsageError
from oocbe.formats.bif import conditionals
from oocbe.formats.networks import problem_of
from oocbe.formats.registry import read
from oocbe.junction_trees.batches import EXACT, IMPOSSIBLE, Assignments, BatchResult, Counts, Factor, joint_of_cases
from oocbe.junction_trees.case_sweeps import expected_counts, usable_backend
from oocbe.junction_trees.compiled import CompiledTree, assembled, find_order, tree_of
from oocbe.junction_trees.evidence import UNOBSERVED, Case, Likelihoods, cases_of, distinct_variables, is_missing, whole
from oocbe.junction_trees.evidence import likelihood as checked_likelihood
from oocbe.junction_trees.explanations import Explanation, marginal_map, network_picture
from oocbe.junction_trees.query_elimination.answer import large_cost
from oocbe.junction_trees.query_engine import QueryEngine
from oocbe.junction_trees.stored.folder import (
    FORMAT_NAME,
    PROBLEM_DTYPES,
    RECORD_NAME,
    SEGMENT_NAME,
    Piece,
    check_new,
    open_segment,
    packed,
    problem_arrays,
    unfinished,
    write_arrays,
    write_parts,
)
from oocbe.junction_trees.stored.tree import FORMAT_VERSION, StoredTree, make_tree, record_of, tree_from
from oocbe.junction_trees.support import ROW_BYTES, CliqueRows, cliques_of
from oocbe.junction_trees.weights import tabulated
from oocbe.model.names import items_of, value_index, variable_index
from oocbe.model.problem import Problem
from oocbe.model.settings.option_values import parse_integer, parse_order, parse_seconds, parse_temperature
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import looked
from oocbe.runtime.pictures.html import first_pairs
from oocbe.runtime.pictures.shown import Shown
from oocbe.runtime.process_memory import give_back_large_blocks, resident_memory
from oocbe.runtime.temporary_names import temporary_beside
from oocbe.runtime.urls import refuse_url
from oocbe.tables import disk
from oocbe.tables.common_domains import limit_of
from oocbe.tables.manifest import read_record, render_record

if TYPE_CHECKING:
    from oocbe.runtime.pictures.plots import Picture

PIECE_ROWS = 1 << 16
"""Maximum rows of a piece: a few MiB, so that a sweep from the disk fits little memory."""


def save_tree(tree: CompiledTree | StoredTree, folder: str | Path) -> None:
    """Write a tree to a new folder; does nothing if its rows are in that folder already.

    Raises UsageError: the path exists, or its parent folder is missing; DiskError: it cannot be written.
    """
    refuse_url(folder, "a junction tree")
    target = Path(folder).absolute()
    if isinstance(tree, StoredTree) and target == tree.folder:
        return
    check_new(folder)
    try:
        with temporary_beside(target, is_folder=True) as made:
            if isinstance(tree, StoredTree):
                buffer = memoryview(bytearray(1 << 22))
                segments = {SEGMENT_NAME.format(p.segment) for own in tree.stored for p in own.pieces}
                for name in sorted({*segments, *PROBLEM_DTYPES, RECORD_NAME}):
                    disk.copy_file(tree.folder / name, made / name, buffer)
                    disk.synchronise(made / name)
            else:
                _write(tree, made)
            disk.synchronise(made)
            disk.rename(made, target)
            disk.synchronise(target.parent)
    except OSError as error:
        raise DiskError(f"{folder}: the tree cannot be written ({error.strerror or error})") from error


def _write(tree: CompiledTree, made: Path) -> None:
    """Write the rows of a tree to one segment, then its problem and its record."""
    path, offset = made / SEGMENT_NAME.format(0), 0
    is_complete: list[bool] = []
    entries: list[list[Any]] = []
    handle = open_segment(path)
    try:
        for number, (clique, own) in enumerate(zip(tree.cliques, tree.rows, strict=False)):
            cells = math.prod(tree.problem.sizes[v] for v in clique.variables)
            is_complete.append(own.rows == cells and all(is_complete[c] for c in tree.shape.children[number]))
            pieces = []
            for first in looked(range(0, own.rows, PIECE_ROWS)):
                last = min(first + PIECE_ROWS, own.rows)
                group, end = (int(g) for g in np.searchsorted(own.groups, [first, last - 1], side="right"))
                bounds: NDArray[np.int64] = np.clip(own.groups[group - 1 : end + 1], first, last)
                lengths = np.diff(bounds)
                parts = [own.weights[first:last].data.cast("B")]
                if not is_complete[number]:
                    maps = [own.numbers[c][first:last] for c in tree.shape.children[number]]
                    numbers, values = np.array(maps, dtype=np.int32), own.values[:, first:last]
                    parts = packed(own.weights[first:last], numbers, lengths.astype(np.int32), values)
                size, checksum = write_parts(handle, parts, offset, path)
                pieces.append(Piece(0, offset, size, checksum, last - first, first, group - 1, len(lengths)))
                offset += size
            norm = 0.0 if tree.is_log else float(tree.arrays.norms[number])
            entries.append([is_complete[number], own.rows, own.separator_rows, 0, norm, pieces])
    finally:
        os.close(handle)
    disk.synchronise(path)
    files = write_arrays(made, problem_arrays(tree.problem))
    record = record_of(tree.problem, tree.order, tree.cliques, entries, tree.logarithm, tree.is_log)
    disk.write_file(made / RECORD_NAME, render_record({**record, "files": files}))
    disk.synchronise(made / RECORD_NAME)


def open_tree(folder: str | Path, memory: int) -> CompiledTree | StoredTree:
    """A saved tree, read into memory if its rows fit; else they stay on disk.

    memory : bytes for rows, or for sweeps over rows on disk.

    Raises UsageError: there is no such folder; CorruptDataError: it is damaged, or no tree; UnsupportedError: its
    format version is another.
    """
    refuse_url(folder, "a junction tree")
    path = Path(folder)
    if path.is_file():
        raise UsageError(
            f"{path}: this is a file, expected the folder of a junction tree; make one of a network by `oocbe compile "
            f"{path} TREE`, or JunctionTree(…).save in Python"
        )
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such folder; expected a junction tree that was saved (oocbe compile)")
    try:
        record = read_record(path / RECORD_NAME, FORMAT_NAME)
    except FileNotFoundError:
        raise CorruptDataError(
            f"{path}: no {RECORD_NAME}, so this is no junction tree (oocbe compile makes one)"
        ) from None
    if record.get("version") != FORMAT_VERSION:
        raise UnsupportedError(
            f"{path}: version {record.get('version')!r} of the format; this program reads version {FORMAT_VERSION}; "
            "compile the tree again (oocbe compile)"
        )
    tree = tree_from(path, record, memory)
    if isinstance(tree, StoredTree) and ROW_BYTES * tree.total_rows <= memory:
        return _in_memory(tree)
    return tree


def _in_memory(tree: StoredTree) -> CompiledTree:
    rows = []
    for number, own in enumerate(tree.stored):
        parts = list(tree.rows(number))
        groups = np.flatnonzero(np.diff(np.concatenate([p.up for p in parts]), prepend=-1, append=-1))
        values = [np.concatenate([p.values(v) for p in parts]) for v in own.clique.variables]
        numbers = {
            child: np.concatenate([p.numbers((child, scope))[0] for p in parts])
            for child, scope in zip(own.children, own.child_scopes, strict=True)
        }
        weights = np.concatenate([p.weights for p in parts])
        rows.append(CliqueRows(np.array(values, dtype=own.kind), groups, numbers, {}, weights))
    return assembled(tree.problem, tree.order, tree.cliques, rows, tree.logarithm, tree.is_log)


def room_of(memory: int) -> int:
    """Bytes for rows read from disk, given the memory limit of the process."""
    return max(int(tuning().half_share * memory), memory - resident_memory())


def make_or_store(
    problem: Problem,
    wanted: str | Sequence[str],
    memory: int,
    folder: Path | None,
    *,
    order_seconds: float,
    seed: int,
    is_log: bool,
) -> CompiledTree | StoredTree:
    """A problem's tree: in memory if it fits, else on disk.

    folder : of a tree on disk, see :func:`oocbe.junction_trees.stored.tree.make_tree`.
    The rest is as for :func:`oocbe.junction_trees.compiled.find_order` and
    :func:`oocbe.junction_trees.compiled.tree_of`.
    Raises the errors of these three functions.
    """
    choice: OrderChoice | None = None

    def search() -> OrderChoice:
        return find_order(problem, wanted, order_seconds, seed) if choice is None else choice

    if folder is None or not unfinished(folder.absolute()).exists():
        begin = time.perf_counter()
        choice = search()
        spent = time.perf_counter() - begin
        try:
            tree = tree_of(problem, choice.order, choice.separators, memory, is_log=is_log)
            return replace(tree, seconds={"order": spent, **tree.seconds})
        except ResourceError:
            pass
    give_back_large_blocks()
    stored = make_tree(problem, wanted, search, room_of(memory), folder, is_log)
    if stored is not None:
        return stored
    choice = search()
    return assembled(problem, choice.order, cliques_of(choice.order, choice.separators), (), -math.inf, False)


SPACES = ("auto", "log")
"""Representation of numbers: ``auto`` uses probabilities unless they lose precision, ``log`` always logarithms."""


class JunctionTree(Shown):
    """A problem compiled to a tree of cliques, for many queries about its probabilities.

    A large tree is made only when needed: queries about one or a few cases are often answered without it.

    Parameters
    ----------
    problem : the problem, or a path that :func:`oocbe.read` accepts. Its values are weights where they are multiplied;
        else a cost c weighs exp(-c / temperature), a utility u exp(u / temperature).
    order : ``auto``, a heuristic's name, a file of variable names, or a sequence of all variables' names.
    memory : limit of the tree's rows in bytes, such as ``"2GiB"``; None: 80 % of the memory. A larger tree is made on
        disk, and sweeps read it from there.
    backend : for sweeps over batches and joins of large cliques without rows: ``cpu``, ``cuda``, or ``auto``, which
        uses a device, if there is one, where the work is large enough. Everything else runs on the CPU.
    space : one of :data:`SPACES`.
    temperature : above 0. order_seconds, seed : of the search for an order.
    folder : new folder for rows on disk. The tree is saved there as soon as it is made; if the process is killed
        before, the next one with the same problem and folder resumes. None: rows on disk are in the system's temporary
        folder, and are deleted with the tree.

    Raises
    ------
    ResourceError : rows fit neither memory nor disk, or the messages of one clique exceed the memory. It is raised
        later if the tree is made later.
    UnsupportedError : a negative weight, a constraint that no table can hold, or ``cuda`` for rows on disk.
    UsageError : an invalid option, or ``cuda`` without a device.
    """

    def __init__(
        self,
        problem: Problem | str | Path,
        order: str | Path | Sequence[str] = "auto",
        memory: int | str | None = None,
        backend: str = "auto",
        *,
        space: str = "auto",
        temperature: float = 1.0,
        order_seconds: float = 0.5,
        seed: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        if space not in SPACES:
            raise UsageError(f"space: {space!r} is not one of {', '.join(SPACES)}")
        self._backend = usable_backend(backend)
        wanted = parse_order("order", order) if isinstance(order, str | Path) else list(order)
        self._memory = limit_of(memory)
        loaded = read(problem, memory=self._memory) if isinstance(problem, str | Path) else problem_of(problem)
        loaded.refuse_question("a junction tree")
        self._problem = tabulated(weighted(reduce_arity(loaded), parse_temperature(temperature)))
        limit, start = parse_seconds("order_seconds", order_seconds), parse_integer("seed", seed)

        def make() -> CompiledTree | StoredTree:
            place = None if folder is None else Path(folder)
            settings: dict[str, Any] = {"order_seconds": limit, "seed": start, "is_log": space == "log"}
            return self._checked(make_or_store(self._problem, wanted, self._memory, place, **settings))

        cost = large_cost(self._problem) if (space, wanted, folder) == ("auto", "auto", None) else None
        self._set(None if cost is None else make, make() if cost is None else None, cost or 0.0)

    def _checked(self, tree: CompiledTree | StoredTree) -> CompiledTree | StoredTree:
        if isinstance(tree, StoredTree) and self._backend == "cuda":
            raise UnsupportedError("backend: a tree whose rows are on disk is swept over on the CPU; give cpu or auto")
        return tree

    def _set(self, make: Callable[[], CompiledTree | StoredTree] | None, tree: Any, cost: float) -> None:
        self._evidence: dict[int, int] = {}
        self._likelihoods: dict[int, NDArray[np.float64]] = {}
        self._case = QueryEngine(self._problem, self._memory, make, self._backend, tree, cost)

    @property
    def _tree(self) -> CompiledTree | StoredTree:
        """The tree, made if necessary."""
        return self._case.tree

    def save(self, folder: str | Path) -> None:
        """Write the tree, without evidence, to a new folder, for :meth:`open`.

        Does nothing if the tree was made in that folder.

        Raises
        ------
        UsageError : the path exists. DiskError : it cannot be written.
        """
        save_tree(self._tree, folder)

    @classmethod
    def open(cls, folder: str | Path, memory: int | str | None = None, backend: str = "auto") -> JunctionTree:
        """Open a saved tree: in memory if its rows fit, else they are swept over from the disk.

        Parameters
        ----------
        memory : limit of its rows, of trees that queries make, and of sweeps over rows on disk.
        backend : as for a new tree.

        Raises
        ------
        UsageError : there is no such folder, or no device for ``cuda``. CorruptDataError : it is damaged, or no tree.
        UnsupportedError : ``cuda`` for rows on disk.
        """
        found = cls.__new__(cls)
        found._backend = usable_backend(backend)
        found._memory = limit_of(memory)
        tree = found._checked(open_tree(folder, room_of(found._memory)))
        found._problem = tree.problem
        found._set(None, tree, 0.0)
        return found

    @property
    def problem(self) -> Problem:
        """The compiled problem of weights."""
        return self._problem

    @property
    def rows(self) -> int:
        """Rows of all cliques."""
        return self._tree.total_rows

    @property
    def statistics(self) -> dict[str, Any]:
        """Sizes of the tree: ``cliques``, ``rows``, ``cells`` (of the cliques as dense tables), ``width`` (variables of
        the largest clique, less one), ``is_stored`` (whether rows are on disk), ``resumed_rows`` (rows on disk that an
        earlier process had made), and ``seconds`` to make it, by phase.
        """
        sizes = self.problem.sizes
        cliques = self._tree.cliques
        return {
            "cliques": len(cliques),
            "rows": self.rows,
            "cells": sum(math.prod(sizes[v] for v in clique.variables) for clique in cliques),
            "width": self._tree.width,
            "is_stored": isinstance(self._tree, StoredTree),
            "resumed_rows": self._tree.resumed_rows if isinstance(self._tree, StoredTree) else 0,
            "seconds": self._tree.seconds,
        }

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """Names of each clique's variables."""
        names = [v.name for v in self.problem.variables]
        return tuple(tuple(names[v] for v in clique.variables) for clique in self._tree.cliques)

    @property
    def evidence(self) -> dict[str, str]:
        """Observed values: variable name to value label."""
        variables = self.problem.variables
        return {variables[v].name: variables[v].label(value) for v, value in self._evidence.items()}

    @property
    def log_evidence(self) -> float:
        """Natural logarithm of the probability of the evidence (of its weight, if weights are not normalised).

        -inf if it is 0. It has the rounding error of float sums: without evidence, it is about 1e-16 instead of 0.
        """
        return self._case.log_evidence

    def observe(self, values: Case | None = None, *, likelihood: Likelihoods | None = None) -> None:
        """Observe values of variables, or likelihoods of their values; this replaces earlier evidence of them.

        Parameters
        ----------
        values : variable name to value: a label, or a position that equals none (:meth:`Problem.with_evidence`); None,
            NaN: not observed, so that earlier evidence of the variable is retracted, if there is any.
        likelihood : variable name to a number for each value: the probability of the observation given that value. It
            is multiplied with all other evidence; see :meth:`revise` to set posterior probabilities instead.

        Raises
        ------
        UsageError : a name or value that the problem does not have, or an invalid likelihood; the evidence is unchanged
            then.
        """
        found = {}
        for name, value in items_of(values or {}):
            v = variable_index(self.problem, name)
            found[v] = UNOBSERVED if is_missing(value) else value_index(self.problem.variables[v], whole(value))
        soft = {variable_index(self.problem, name): given for name, given in (likelihood or {}).items()}
        checked = {v: checked_likelihood(self.problem.variables[v], given) for v, given in soft.items()}
        both = sorted(v for v in found.keys() & checked.keys() if found[v] != UNOBSERVED)
        if both:
            name = self.problem.variables[both[0]].name
            raise UsageError(f"variable {name!r} has a value and a likelihood; give one of them")
        for v, value in found.items():
            self._likelihoods.pop(v, None)
            if value == UNOBSERVED:
                self._evidence.pop(v, None)
                self._case.change(v, None)
            else:
                self._evidence[v] = value
                self._case.observe(v, value)
        for v, given in checked.items():
            self._evidence.pop(v, None)
            self._likelihoods[v] = given
            self._case.change(v, given)

    def revise(self, name: str, probabilities: Sequence[float]) -> None:
        """Jeffrey's rule: set a variable's marginal, and keep all other probabilities conditional on its value.

        The variable gets the likelihood that turns its current marginal into these probabilities. Later observations
        change them like any marginal.

        Raises
        ------
        UsageError : probabilities that do not add up to 1, or that are above 0 where the marginal is 0.
        """
        v = variable_index(self.problem, name)
        wanted = checked_likelihood(self.problem.variables[v], probabilities)
        if not np.isclose(wanted.sum(), 1.0, rtol=0, atol=1e-9):
            raise UsageError(f"probabilities of {name!r} add up to {wanted.sum():g}, not to 1")
        now = self.marginal(name)
        if (wanted[now == 0] > 0).any():
            value = self.problem.variables[v].label(int(np.flatnonzero((now == 0) & (wanted > 0))[0]))
            raise UsageError(f"variable {name!r}: its value {value!r} is impossible now, which no evidence can change")
        before = self._likelihoods.get(v)
        if v in self._evidence:
            return  # the only possible value has probability 1
        factor = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
        self._likelihoods[v] = factor if before is None else factor * before
        self._case.change(v, self._likelihoods[v])

    def retract(self, *names: str) -> None:
        """Remove the evidence of some variables; without names, of all.

        Raises
        ------
        UsageError : there is no such variable, or it has no evidence.
        """
        given = [variable_index(self.problem, name) for name in names]
        known = self._evidence.keys() | self._likelihoods.keys()
        for v in given:
            if v not in known:
                raise UsageError(f"nothing was observed of variable {self.problem.variables[v].name!r}")
        for v in given if names else sorted(known):
            self._evidence.pop(v, None)
            self._likelihoods.pop(v, None)
            self._case.change(v, None)

    def calibrate(self) -> None:
        """Compute the posteriors of all variables now. Optional: queries compute them on demand, one by one."""
        self._case.calibrate(range(len(self.problem.variables)))

    def marginal(self, *names: str) -> NDArray[np.float64]:
        """Posterior probabilities of a variable, or joint ones of several variables.

        Returns
        -------
        float64, an axis for each variable, in the order of the names; all 0 if the evidence is impossible.

        Raises
        ------
        UsageError : no name, one twice, or one that the problem does not have.
        """
        if len(names) == 1:
            return self._case.posterior(variable_index(self._problem, names[0]))
        targets = distinct_variables(self.problem, names)
        variables = self.problem.variables
        if self._case.may_round:
            check_rounding(self.problem, self.log_evidence)
        soft = {variables[v].name: given for v, given in self._likelihoods.items()}
        cases = cases_of(self.problem, [{variables[v].name: x for v, x in self._evidence.items()}], soft)
        joint: NDArray[np.float64] = joint_of_cases(self.problem, self._case.sweep, cases, targets)[0]
        return joint

    def batch(
        self,
        cases: Sequence[Case] | NDArray[np.integer[Any]] | Any,
        targets: Sequence[str] | None = None,
        joint: Sequence[Sequence[str]] = (),
        *,
        likelihood: Likelihoods | None = None,
    ) -> BatchResult:
        """Posteriors for many cases; the evidence of the tree itself is ignored.

        Parameters
        ----------
        cases : for each its observed values by variable name (None, NaN: unobserved); or a data frame of pandas or
            Polars, or a table of Arrow, with a column for each observed variable (null, NaN: unobserved); or an array
            (cases, variables) of value indices, -1 where a case does not observe a variable.
        targets : variables whose marginals to compute; None: all. joint : groups whose joint posteriors to compute.
        likelihood : by variable name, numbers for each value: (values,) for all cases, or (cases, values).

        Raises
        ------
        UsageError : cases, names or likelihoods that cannot be used. ResourceError : the device has too little memory.
        """
        problem = self.problem
        known = cases_of(problem, cases, likelihood)
        names = [v.name for v in problem.variables] if targets is None else targets
        wanted = distinct_variables(problem, names, some=False)
        groups = [distinct_variables(problem, group) for group in joint]
        shares, logarithms = self._case.sweep(known, wanted)
        if wanted or groups:
            check_rounding(problem, logarithms)
        ends = np.cumsum([0, *(problem.sizes[v] for v in wanted)]).tolist()
        marginals = {
            problem.variables[v].name: shares[:, first:last]
            for v, (first, last) in zip(wanted, pairwise(ends), strict=True)
        }
        joints = {
            tuple(problem.variables[v].name for v in group): joint_of_cases(problem, self._case.sweep, known, group)
            for group in groups
        }
        status = np.where(logarithms == -np.inf, IMPOSSIBLE, EXACT)
        return BatchResult(marginals, joints, logarithms, status, {v.name: v for v in problem.variables}, known.index)

    def predict_proba(self, cases: Any, targets: Sequence[str] | None = None) -> BatchResult:
        """Posteriors of targets in many cases, as :meth:`batch`; None: of all variables that some case leaves open."""
        known = cases_of(self.problem, cases)
        is_open = (known.observed == UNOBSERVED).any(axis=0)
        names = [v.name for v, own in zip(self.problem.variables, is_open, strict=True) if own]
        return self.batch(known, names if targets is None else targets)

    def predict(self, cases: Any, targets: Sequence[str] | None = None) -> Assignments:
        """The most probable value of each target by itself in many cases, as :meth:`predict_proba`; observed ones stay.

        Use :meth:`map_query` for the most probable values together.
        """
        found = self.predict_proba(cases, targets)
        best = [np.where(found.status == IMPOSSIBLE, -1, own.argmax(axis=1)) for own in found.marginals.values()]
        indices = np.array(best, dtype=np.int64).reshape(len(best), len(found.status)).T
        return Assignments(tuple(found.variables[name] for name in found.marginals), indices, found.index)

    def query(self, variables: Sequence[str], evidence: Case | None = None) -> Factor:
        """The joint posterior of some variables given evidence; that of the tree itself is ignored. See :meth:`batch`.

        All numbers are 0 if the evidence is impossible.
        """
        numbers = next(iter(self.batch([evidence or {}], [], [variables]).joints.values()))[0]
        return Factor(tuple(self.problem.variables[variable_index(self.problem, n)] for n in variables), numbers)

    def map_query(self, variables: Sequence[str] | None = None, evidence: Case | None = None) -> dict[str, str] | None:
        """The most probable labels of some variables together given evidence; that of the tree itself is ignored.

        variables : None: all that the evidence leaves open. Errors as for :meth:`marginal_map`; None: impossible.
        """
        seen = cases_of(self.problem, [evidence or {}]).observed[0]
        before = dict(self._evidence), dict(self._likelihoods)
        self.retract()
        names = [v.name for v in self.problem.variables]
        try:
            self.observe({names[v]: f"#{seen[v]}" for v in np.flatnonzero(seen != UNOBSERVED)})
            found = self.mpe() if variables is None else self.marginal_map(variables)
        finally:
            self.retract()
            self.observe(
                {names[v]: f"#{x}" for v, x in before[0].items()},
                likelihood={names[v]: x for v, x in before[1].items()},
            )
        wanted = [names[v] for v in np.flatnonzero(seen == UNOBSERVED)] if variables is None else variables
        return None if found is None else {name: found.values[name] for name in map(str, wanted)}

    def mpe(self) -> Explanation | None:
        """The most probable explanation: the best values of all variables given the evidence; None: impossible."""
        found = self._case.best()
        return None if found is None else self._explanation(*found)

    def marginal_map(self, names: Sequence[str]) -> Explanation | None:
        """The most probable values of some variables together, given the evidence; None: impossible.

        All other variables are summed out first, in cliques other than the tree's. For one variable, this is the
        maximum of its posterior.

        Raises
        ------
        ResourceError : those cliques do not fit the memory. UsageError : no name, one twice, or an unknown one.
        """
        variables = distinct_variables(self.problem, names)
        if len(variables) == 1:
            shares = self._case.posterior(variables[0])
            if not shares.any():
                return None
            best = int(shares.argmax())
            return self._explanation({variables[0]: best}, self.log_evidence + math.log(shares[best]))
        order = None if self._case.made is None else self._case.made.order
        found = marginal_map(self.problem, self._evidence, self._likelihoods, variables, self._memory, order)
        if found is None:
            return None
        check_rounding(self.problem, found[1])
        return self._explanation(*found)

    def plot(self) -> Picture:
        """The belief network with posteriors in its nodes; UnsupportedError: none, or one of more than 60 variables."""
        variables = {v.name: v for v in self.problem.variables}

        def shares(name: str) -> dict[str, float]:
            return {variables[name].label(i): p for i, p in enumerate(self.marginal(name).tolist())}

        return network_picture(self.problem, variables, shares, self.evidence)

    def table(self, name: str) -> Factor:
        """Conditional probabilities of a variable of a belief network: an axis for each parent, its own is the last.

        Raises
        ------
        UsageError : an unknown name. UnsupportedError : no belief network.
        """
        scope, values = self._conditionals[variable_index(self.problem, name)]
        return Factor(tuple(self.problem.variables[v] for v in scope), values.copy())

    @cached_property
    def _conditionals(self) -> dict[int, tuple[tuple[int, ...], NDArray[np.float64]]]:
        return {own[0][-1]: own for own in conditionals(self.problem)}

    def sample(self, n: int, seed: int = 0) -> Assignments:
        """Draw independent assignments of all variables exactly from the posterior.

        Raises
        ------
        UsageError : the evidence is impossible, or n is no number of samples.
        """
        count, start = parse_integer("sample: the number of samples", n), parse_integer("seed", seed)
        calibration = self._case.calibration()
        if calibration is None or calibration.log_evidence == -np.inf:
            raise UsageError(f"{self.problem.name}: what is observed is impossible, so nothing can be drawn")
        check_rounding(self.problem, calibration.log_evidence)
        return Assignments(self.problem.variables, calibration.sample(count, start))

    def expected_counts(
        self, cases: Sequence[Case] | NDArray[np.integer[Any]] | Any, *, likelihood: Likelihoods | None = None
    ) -> Counts:
        """Expected counts of the assignments of each function's scope, over some cases, given the evidence of each.

        Impossible cases are not counted: each function's counts sum to the number of possible cases.

        Returns
        -------
        Counts over each function's scope, in its order; ``counts["grass"]`` are of a network's table of grass.

        Raises
        ------
        UsageError : invalid cases; see :meth:`batch`. LimitError : a function too large for a dense array.
        """
        problem = self.problem
        found, logarithms = expected_counts(self._tree, cases_of(problem, cases, likelihood))
        check_rounding(problem, logarithms)
        scopes = [tuple(problem.variables[v] for v in function.scope) for function in problem.functions]
        return Counts(Factor(scope, own, "count") for scope, own in zip(scopes, found, strict=True))

    def _explanation(self, values: Mapping[int, int], logarithm: float) -> Explanation:
        variables = self.problem.variables
        labels = {variables[v].name: variables[v].label(values[v]) for v in sorted(values)}
        return Explanation(labels, tuple(values[v] for v in sorted(values)), logarithm, self.problem)

    def _summary(self) -> tuple[str, list[tuple[str, object]]]:
        return f"Junction tree of {self.problem.name}", [
            ("variables", len(self.problem.variables)),
            ("tree", repr(self)[1:-1].rpartition(": ")[2]),
            ("evidence", first_pairs(self.evidence)),
        ]

    def __repr__(self) -> str:
        if self._case.made is None:
            return f"<JunctionTree of {self.problem.name}: made when it is needed>"
        found = f"{len(self._tree.cliques)} cliques, {self.rows:,} rows, width {self._tree.width}"
        return f"<JunctionTree of {self.problem.name}: {found}>"
