"""Contraction of tables along a path: each step joins two tables and eliminates indices.

A step is one :func:`oocbe.join_marginalise` in memory; if its tables exceed the memory limit, it writes its result to a
scratch folder, piece by piece. Products of dense matrices are computed by BLAS.

An expression is NumPy's (``ij,jk->ik``), or has names of any length between spaces (``day sensor, sensor gain ->
day``). A path contracts two operands at a time, and eliminates each index that no other operand and no output has. It
is the cheaper of two: greedily the pair whose result grows least over its operands (as in opt_einsum), or bucket by
bucket along an elimination order (:mod:`oocbe.elimination.orders`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import combinations, count
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocbe.algebra.elimination import Join
from oocbe.algebra.operators import join_marginalise, marginalise
from oocbe.api.source_messages import Explain
from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.errors import UsageError, amount
from oocbe.kernels import backend_named
from oocbe.kernels.choice import complete_kernels
from oocbe.kernels.cpu.orders import greedy_order as greedy
from oocbe.model.semiring import LOG_SUM_EXP, SUM_PRODUCT
from oocbe.model.settings.option_values import parse_backend
from oocbe.tables.complete import CompleteTable
from oocbe.tables.layout import Layout
from oocbe.tables.residence import is_on_device, to_host, to_kernels
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredCompleteTable, StoredTable
from oocbe.tables.table import Table

IN_MEMORY_SHARE = 0.5
"""Share of the memory limit for the tables of a step that works in memory; the rest is for transposed copies."""


class Contractions:
    """The steps of a path on tables, in memory or through a scratch folder.

    path : the steps. memory : limit of tables in bytes. backend : ``cpu``, ``cuda`` or ``auto``.
    closed : closes the scratch folder; stored results are valid until then.
    inputs : tables of each step that was made, if they are kept.
    """

    def __init__(self, path: ContractionPath, memory: int, backend: str | None, closed: ExitStack) -> None:
        self.path, self._memory, self._closed = path, memory, closed
        self._backend = None if backend is None else parse_backend("backend", backend)
        self._folder: Path | None = None
        self._numbers, self._held = count(), 0
        self.inputs: list[list[Any]] = []

    def run(self, tables: list[Any], output: str | Path | None, keeps: bool = False, explain: Explain = None) -> Any:
        """The table of the last step; written to ``output``, a new stored table, if it is given.

        tables : over the operands of the path's expression. keeps : whether ``inputs`` are kept. explain : called with
        rows and seconds of each step.
        """
        left = list(tables) if keeps else self._placed(tables)
        given = set(map(id, left))
        for number, step in enumerate(self.path.steps):
            own = [left[p] for p in step.positions]
            for p in sorted(step.positions, reverse=True):
                del left[p]
            is_last = number == len(self.path.steps) - 1
            self._held = sum(t.nbytes for t in left if id(t) not in given and isinstance(t, Table | CompleteTable))
            begin = perf_counter()
            left.append(self._contracted(step, own, output if is_last else None))
            if explain:
                explain(f"  step {number + 1}: {left[-1].rows:,} rows in {perf_counter() - begin:.3f} s")
            if keeps:
                self.inputs.append(own)
        made = left[0]
        is_moved = isinstance(made, CompleteTable) and not any(map(_is_on_device, tables))
        return to_host(made) if is_moved else made

    def _placed(self, tables: list[Any]) -> list[Any]:
        """The tables on the device, if all are complete, and it computes the largest step and has room for all."""
        if not all(isinstance(table, CompleteTable) for table in tables):
            return list(tables)
        cells = max(map(self.path.needed, self.path.steps))
        kernels = complete_kernels(cells, self._backend)
        if kernels.name != "cuda":
            return list(tables)
        from oocbe.kernels.cuda.transfer.memory import device_room

        needed = sum(table.nbytes for table in tables) + cells * max(table.dtype.itemsize for table in tables)
        return [to_kernels(table, kernels) for table in tables] if 2 * needed <= device_room() else list(tables)

    def _contracted(self, step: Contraction, tables: list[Any], output: str | Path | None) -> Any:
        operate: Any = marginalise if len(tables) == 1 else join_marginalise
        gone = list(step.eliminated)
        settings: dict[str, Any] = {"backend": self._backend}
        if output is not None or not self._fits(step, tables):
            place = self._scratch() / f"step-{next(self._numbers)}" if output is None else output
            settings |= {"output": place, "memory": self._memory, "scratch": self._scratch()}
        elif len(tables) == 1 and not gone:
            return tables[0]
        elif (self._backend != "cuda" or _is_on_device(tables[0])) and (
            product := _matrix_product(tables, gone)
        ) is not None:
            return product
        made = operate(*tables, gone, **settings)
        if output is None and isinstance(made, StoredTable) and 8 * made.nbytes <= IN_MEMORY_SHARE * self._memory:
            return made.to_table()
        return made

    def _fits(self, step: Contraction, tables: list[Any]) -> bool:
        """Whether a step works in memory: no table is stored, and all with the result take a share of the limit."""
        if any(isinstance(table, StoredTable | StoredCompleteTable) for table in tables):
            return False
        width = max(table.dtype.itemsize for table in tables)
        room = IN_MEMORY_SHARE * self._memory - self._held - sum(table.nbytes for table in tables)
        if not all(isinstance(table, Table) for table in tables):
            return bool(step.cells * width <= room)
        most = room / (width + 8 * math.ceil(math.log2(max(2, step.cells)) / 64))
        return bool(step.cells <= most or _joined_rows(tables) <= most)

    def _scratch(self) -> Path:
        if self._folder is None:
            self._folder = self._closed.enter_context(closing(ScratchFolder(default_parent()))).path
        return self._folder


def _is_on_device(table: Any) -> bool:
    return isinstance(table, CompleteTable) and is_on_device(table)


def _joined_rows(tables: Sequence[Table]) -> int:
    """Rows of the join of one or two incomplete tables."""
    if len(tables) == 1:
        return tables[0].rows
    groups, _ = Join.as_dtype(tables, tables[0].dtype).prepare(tables, backend_named("cpu"))
    return int(groups.joined_rows)


def _matrix_product(tables: Sequence[Any], gone: Sequence[str]) -> CompleteTable | None:
    """A sum of products, or log-sum-exp, of two dense float tables, by BLAS where they are; None if it is no product of
    matrices, or not precise in linear space."""
    if (
        len(tables) != 2
        or not gone
        or any(not isinstance(t, CompleteTable) or t.semiring not in (SUM_PRODUCT, LOG_SUM_EXP) for t in tables)
    ):
        return None
    one, two = tables
    if one.dtype.kind != "f" or two.dtype.kind != "f" or is_on_device(one) != is_on_device(two):
        return None
    shared = [name for name in one.scope if name in two.layout]
    batch = [name for name in shared if name not in gone]
    own = [[name for name in table.scope if name not in shared] for table in tables]
    if not all(own) or set(gone) != set(shared) - set(batch):
        return None
    # The last axis of a C-contiguous array changes fastest, the first variable of a table does.
    left, right = cells_along(one, [*batch, *own[0], *gone]), cells_along(two, [*batch, *gone, *own[1]])
    outer, depth = left.shape[: len(batch)], math.prod(left.shape[-len(gone) :])
    left, right = left.reshape(*outer, -1, depth), right.reshape(*outer, depth, -1)
    scope = (*batch, *own[0], *own[1])
    sizes = {name: size for t in tables for name, size in zip(t.scope, t.layout.sizes, strict=True)}
    layout = Layout(tuple(reversed(scope)), tuple(sizes[name] for name in reversed(scope)))
    made = left @ right if one.semiring == SUM_PRODUCT else _log_product(left, right)
    return None if made is None else CompleteTable(layout, made.reshape(-1), one.semiring)


def _log_product(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any] | None:
    """Log-sum-exp of matrices: a product of exponentials, scaled by the greatest of each row and column; the logarithm
    of an exponential is not computed for each pair. None: a sum is so far below its scales that terms underflow."""
    scales: Any = left.max(axis=-1, keepdims=True), right.max(axis=-2, keepdims=True)
    row, column = (np.where(np.isfinite(scale), scale, 0).astype(scale.dtype) for scale in scales)
    with np.errstate(over="ignore", divide="ignore"):
        sums = np.exp(left - row) @ np.exp(right - column)
        small = sums < np.finfo(sums.dtype).tiny ** LOG_PRECISION
        if small.any() and ((np.isfinite(left) * 1.0) @ (np.isfinite(right) * 1.0))[small].any():
            return None
        found: NDArray[Any] = np.log(sums) + row + column
    return found


def cells_along(table: CompleteTable, names: Sequence[str]) -> NDArray[Any]:
    """The values as an array with an axis for each name, in this order."""
    array = table.values.reshape(tuple(reversed(table.layout.sizes)))
    order = tuple(reversed(table.scope))
    return array.transpose([order.index(name) for name in names])


MOST_SLICES = 4096
"""Slices of an einsum at most."""

PAIRS = 64
"""Operands up to which all pairs are candidates of a greedy step; beyond, only pairs with a common index."""

LOG_PRECISION = 0.75
"""Power of a dtype's least normal number below which scaled sums are not used: a term that underflows is then at most
1e-9 (float32) or 1e-77 (float64) of its sum."""

Positions: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class EinsumExpression:
    """Names of the indices of each operand, and of the output; and the sizes of all indices."""

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, shapes: Sequence[Sequence[int] | Mapping[Any, int]]) -> EinsumExpression:
        """Read an expression about operands of some shapes, or of axes with names and lengths in any order.

        Without ``->``, the output has the indices that occur once, in alphabetical order, as in NumPy.

        Raises UsageError: a malformed expression, or shapes that it does not fit.
        """
        if not isinstance(text, str):
            raise UsageError(
                f"einsum: the expression is text such as 'ij,jk->ik', and the first argument: {text!r:.100}"
            )
        inputs, arrow, result = text.partition("->")
        terms = inputs.split(",")
        # One term of several words has names, and then a single word of another term is a name, too.
        is_named = any(len(words) > 1 and max(map(len, words)) > 1 for words in map(str.split, (*terms, result)))
        operands = tuple(_names(term, is_named) for term in terms)
        if len(operands) != len(shapes):
            raise UsageError(f"einsum: {text!r} has {len(operands)} operands, {len(shapes)} are given")
        uses = Counter(name for names in operands for name in names)
        output = _names(result, is_named) if arrow else tuple(sorted(name for name in uses if uses[name] == 1))
        for name in output:
            if name not in uses:
                raise UsageError(f"einsum: {text!r}: no operand has the output's index {name!r}")
        if len(set(output)) < len(output):
            raise UsageError(f"einsum: {text!r}: an index occurs twice in the output")
        sizes: dict[str, int] = {}
        for number, (names, shape) in enumerate(zip(operands, shapes, strict=True)):
            if isinstance(shape, Mapping):
                if set(names) != set(shape) or len(names) != len(shape):
                    raise UsageError(
                        f"einsum: operand {number} has the dimensions {tuple(shape)}, not those of {names}"
                    )
                shape = [shape[name] for name in names]
            if len(names) != len(shape):
                raise UsageError(
                    f"einsum: operand {number} has {len(shape)} axes, and {len(names)} indices in {text!r}"
                )
            for name, size in zip(names, shape, strict=True):
                if size < 1:
                    raise UsageError(f"einsum: index {name!r} has no value in operand {number}")
                if sizes.setdefault(name, int(size)) != size:
                    raise UsageError(f"einsum: index {name!r} has {sizes[name]} values, and {size} in operand {number}")
        return cls(operands, output, sizes)


def _names(term: str, is_named: bool) -> tuple[str, ...]:
    words = term.split()
    if "..." in term or not all(word.isidentifier() for word in words):
        raise UsageError(f"einsum: {term.strip()!r}: indices are letters, or names between spaces; '...' is none")
    return tuple(words) if is_named else tuple("".join(words))


@dataclass(frozen=True)
class Contraction:
    """A step of a path.

    positions : of its one or two operands in the list of operands; the result is appended to the others.
    inputs, output : index names of the operands, and of the result in no certain order.
    cells : of the result. joined : assignments of all indices of the operands.
    """

    positions: Positions
    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    cells: int
    joined: int

    @property
    def eliminated(self) -> tuple[str, ...]:
        """Indices that the step eliminates."""
        return tuple(dict.fromkeys(name for names in self.inputs for name in names if name not in self.output))


@dataclass(frozen=True)
class ContractionPath:
    """The steps of an einsum; prints itself.

    expression : of the einsum. steps : in order.
    """

    expression: EinsumExpression
    steps: tuple[Contraction, ...]

    @property
    def joined(self) -> int:
        """Assignments that all steps join: the combinations of values that an einsum computes."""
        return sum(step.joined for step in self.steps)

    @property
    def largest(self) -> int:
        """Cells of the largest result of a step."""
        return max((step.cells for step in self.steps), default=0)

    def fits(self, memory: int) -> bool:
        """Whether the tables of each step take their share of a limit in bytes, with 8 bytes a cell."""
        return max(self.needed(step) for step in self.steps) * 8 <= IN_MEMORY_SHARE * memory

    def needed(self, step: Contraction) -> int:
        """Cells of the operands and the result of a step."""
        return sum(_cells_of(own, self.expression.sizes) for own in (*step.inputs, step.output))

    def __str__(self) -> str:
        steps = amount(len(self.steps), "step")
        lines = [f"{self.joined:,} combinations in {steps}, largest result {self.largest:,} cells"]
        for step in self.steps:
            inputs = ", ".join(" ".join(names) or "scalar" for names in step.inputs)
            lines.append(f"  {inputs} -> {' '.join(step.output) or 'scalar'}  {step.joined:,} combinations")
        return "\n".join(lines)


def path_of(expression: EinsumExpression, optimize: Any = "auto", rows: Sequence[int] | None = None) -> ContractionPath:
    """The path that joins the fewest assignments, or a given one.

    optimize : ``auto``; or the steps, each the positions of one, two or more operands of the list of operands, as
        NumPy, opt_einsum and cotengra give them; or an optimizer of one of the latter.
    rows : of incomplete operands; the joins are then estimated from rows, with values independent and equally frequent.
        None: the operands are complete.
    Raises UsageError: an unknown name, or steps that do not contract these operands.
    """
    if callable(optimize):  # as opt_einsum calls it
        optimize = optimize([*map(set, expression.operands)], set(expression.output), expression.sizes)
    if isinstance(optimize, Sequence) and not isinstance(optimize, str):
        given: Sequence[Any] = optimize
        return _path(expression, [step for step in given if not isinstance(step, str)])  # the first one of NumPy's
    if optimize != "auto":
        raise UsageError(f"einsum: optimize: {optimize!r} is neither auto nor a list of steps")
    if rows is not None:
        return _path(expression, _greedy_steps(expression, rows, by_joins=True))
    found = _path(
        expression, _greedy_steps(expression, [_cells_of(set(own), expression.sizes) for own in expression.operands])
    )
    if len(expression.operands) > 2:
        found = min(found, _path(expression, _steps_along_order(expression)), key=lambda path: path.joined)
    return found


def _path(expression: EinsumExpression, steps: Sequence[Positions]) -> ContractionPath:
    left = list(expression.operands)
    made: list[Contraction] = []

    def contract(positions: Positions) -> None:
        if not all(0 <= p < len(left) for p in positions) or len(set(positions)) < len(positions):
            raise UsageError(f"einsum: step {positions} does not fit {len(left)} operands")
        inputs = tuple(left[p] for p in positions)
        for p in sorted(positions, reverse=True):
            del left[p]
        output = _kept(inputs, left, expression.output)
        joined = _cells_of({name for names in inputs for name in names}, expression.sizes)
        made.append(Contraction(positions, inputs, output, _cells_of(output, expression.sizes), joined))
        left.append(output)

    for step in steps:
        positions = tuple(step)
        while len(positions) > 2:  # two at a time, the result is last
            contract(positions[:2])
            positions = (*(p - sum(q < p for q in positions[:2]) for p in positions[2:]), len(left) - 1)
        contract(positions)
    while len(left) > 1:
        contract((0, 1))
    if not made or set(left[0]) != set(expression.output):
        contract((0,))
    return ContractionPath(expression, tuple(made))


def sliced_path(path: ContractionPath, memory: int) -> tuple[list[str], ContractionPath]:
    """Indices, and the same steps without them, which fit the memory and join at most twice as much for all values.

    No indices: the steps fit as they are, or there are none such.
    """
    output, sizes, names, rest = path.expression.output, path.expression.sizes, list[str](), path

    while not rest.fits(memory):
        operands, found, most = rest.expression.operands, [], max(map(rest.needed, rest.steps))
        for name in {name for step in rest.steps if rest.needed(step) == most for own in step.inputs for name in own}:
            if name not in output and all(own.count(name) < 2 for own in operands):
                others = tuple(tuple(other for other in own if other != name) for own in operands)
                made = _path(EinsumExpression(others, output, sizes), [step.positions for step in path.steps])
                slices = _cells_of([*names, name], sizes)
                if slices <= MOST_SLICES and made.joined * slices <= 2 * path.joined:
                    found.append((max(map(made.needed, made.steps)), name, made))
        if not found:
            return [], path
        _, name, rest = min(found)
        names.append(name)
    return names, rest


def _kept(inputs: Sequence[Sequence[str]], others: Sequence[Sequence[str]], output: Sequence[str]) -> tuple[str, ...]:
    needed = {name for names in others for name in names}.union(output)
    return tuple(dict.fromkeys(name for names in inputs for name in names if name in needed))


def _cells_of(names: Sequence[str] | set[str] | frozenset[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in names)


def _greedy_steps(expression: EinsumExpression, rows: Sequence[int], by_joins: bool = False) -> list[Positions]:
    """Pairs whose result has the fewest estimated rows beyond those of the pair; or with those of their join."""
    sizes = expression.sizes
    left = {number: frozenset(names) for number, names in enumerate(expression.operands)}
    lengths: dict[int, float] = dict(enumerate(rows))
    uses = Counter(name for names in left.values() for name in names)
    uses.update(expression.output)
    numbers = count(len(left))
    growth: dict[tuple[int, int], float] = {}

    def result(one: int, two: int) -> tuple[frozenset[str], float]:
        both = left[one] & left[two]
        names = frozenset(n for n in left[one] | left[two] if uses[n] > (2 if n in both else 1))
        return names, min(float(_cells_of(names, sizes)), lengths[one] * lengths[two] / _cells_of(both, sizes))

    def judge(one: int, two: int) -> None:
        joined = lengths[one] * lengths[two] / _cells_of(left[one] & left[two], sizes)
        growth[one, two] = result(one, two)[1] + (joined if by_joins else -lengths[one] - lengths[two])

    for one, two in combinations(left, 2):
        if len(left) <= PAIRS or left[one] & left[two]:
            judge(one, two)
    steps: list[Positions] = []
    while len(left) > 1:
        one, two = min(growth, key=growth.__getitem__) if growth else list(left)[:2]
        positions = list(left)
        steps.append((positions.index(one), positions.index(two)))
        made, length = result(one, two)
        for name in left[one] | left[two]:
            uses[name] += (name in made) - (name in left[one]) - (name in left[two])
        del left[one], left[two]
        growth = {key: value for key, value in growth.items() if one not in key and two not in key}
        new = next(numbers)
        left[new], lengths[new] = made, length
        for other, names in left.items():
            if other != new and (names & made or len(left) <= PAIRS):
                judge(other, new)
    return steps


def _steps_along_order(expression: EinsumExpression) -> list[Positions]:
    """Buckets along a greedy elimination order: the operands of an index two at a time, the smallest first."""
    names = list(expression.sizes)
    number = {name: i for i, name in enumerate(names)}
    scopes = [[number[name] for name in dict.fromkeys(own)] for own in (*expression.operands, expression.output)]
    graph = ScopeGraph("einsum", [scope for scope in scopes if scope], list(expression.sizes.values()))
    order, _ = graph.greedy_order(greedy.WEIGHTED_MIN_FILL, 0)
    left = [tuple(dict.fromkeys(own)) for own in expression.operands]
    steps: list[Positions] = []

    for v in order.tolist():
        name = names[v]
        while name not in expression.output:
            having = [i for i, own in enumerate(left) if name in own]
            if len(having) < 2:
                break
            one, two = sorted(sorted(having, key=lambda i: _cells_of(left[i], expression.sizes))[:2])
            steps.append((one, two))
            left.append(_kept((left.pop(two), left.pop(one)), left, expression.output))
    return steps
