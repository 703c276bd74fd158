"""Expressions of :func:`oocbe.einsum`, and the order in which their operands are contracted.

An expression is NumPy's (``ij,jk->ik``), or has names of any length between spaces (``day sensor, sensor gain ->
day``). A path contracts two operands at a time: the pair is joined, and each index that no other operand and no output
has is eliminated. It is the cheaper of two: greedily the pair whose result grows least over its operands (as in
opt_einsum), or bucket by bucket along an elimination order (:mod:`oocbe.elimination.orders`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count

from oocbe.elimination.orders.separators import ScopeGraph
from oocbe.errors import UsageError
from oocbe.kernels.cpu.orders import greedy_order as greedy

PAIRS = 64
"""Operands up to which all pairs are candidates of a greedy step; beyond, only pairs with a common index."""

Positions = tuple[int, ...]


@dataclass(frozen=True)
class Expression:
    """Indices of the operands and of the output.

    Attributes
    ----------
    operands : names of the indices of each operand. output : of the result. sizes : of all indices.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: Mapping[str, int]

    @classmethod
    def parse(cls, text: str, shapes: Sequence[Sequence[int]]) -> Expression:
        """Read an expression about operands of some shapes.

        Without ``->``, the output has the indices that occur once, in alphabetical order, as in NumPy.

        Raises
        ------
        UsageError : a malformed expression, or shapes that it does not fit.
        """
        inputs, arrow, result = text.partition("->")
        operands = tuple(_names(term) for term in inputs.split(","))
        if len(operands) != len(shapes):
            raise UsageError(f"einsum: {text!r} has {len(operands)} operands, {len(shapes)} are given")
        uses = Counter(name for names in operands for name in names)
        output = _names(result) if arrow else tuple(sorted(name for name, times in uses.items() if times == 1))
        for name in output:
            if name not in uses:
                raise UsageError(f"einsum: {text!r}: no operand has the output's index {name!r}")
        if len(set(output)) < len(output):
            raise UsageError(f"einsum: {text!r}: an index occurs twice in the output")
        sizes: dict[str, int] = {}
        for number, (names, shape) in enumerate(zip(operands, shapes, strict=True)):
            if len(names) != len(shape):
                raise UsageError(
                    f"einsum: operand {number} has {len(shape)} axes, and {len(names)} indices in {text!r}"
                )
            for name, size in zip(names, shape, strict=True):
                if sizes.setdefault(name, int(size)) != size:
                    raise UsageError(f"einsum: index {name!r} has {sizes[name]} values, and {size} in operand {number}")
        return cls(operands, output, sizes)


def _names(term: str) -> tuple[str, ...]:
    words = term.split()
    if "..." in term or not all(word.isidentifier() for word in words):
        raise UsageError(f"einsum: {term.strip()!r}: indices are letters, or names between spaces; '...' is none")
    return tuple(words[0]) if len(words) == 1 else tuple(words)


@dataclass(frozen=True)
class Contraction:
    """A step of a path.

    Attributes
    ----------
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

    Attributes
    ----------
    expression : of the einsum. steps : in order.
    """

    expression: Expression
    steps: tuple[Contraction, ...]

    @property
    def joined(self) -> int:
        """Assignments that all steps join: the combinations of values that an einsum computes."""
        return sum(step.joined for step in self.steps)

    @property
    def largest(self) -> int:
        """Cells of the largest result of a step."""
        return max((step.cells for step in self.steps), default=0)

    def __str__(self) -> str:
        lines = [f"{self.joined:,} combinations in {len(self.steps)} steps, largest result {self.largest:,} cells"]
        for step in self.steps:
            inputs = ", ".join(" ".join(names) or "scalar" for names in step.inputs)
            lines.append(f"  {inputs} -> {' '.join(step.output) or 'scalar'}  {step.joined:,} combinations")
        return "\n".join(lines)


def path_of(
    expression: Expression, optimize: str | Sequence[Positions] = "auto", rows: Sequence[int] | None = None
) -> ContractionPath:
    """The path that joins the fewest assignments, or a given one.

    Parameters
    ----------
    optimize : ``auto``; or the steps, each the positions of one, two or more operands of the list of operands, as
        NumPy, opt_einsum and cotengra give them.
    rows : of incomplete operands; the joins are then estimated from rows, with values independent and equally frequent.
        None: the operands are complete.

    Raises
    ------
    UsageError : an unknown name, or steps that do not contract these operands.
    """
    if not isinstance(optimize, str):
        return _path(expression, optimize)
    if optimize != "auto":
        raise UsageError(f"einsum: optimize: {optimize!r} is neither auto nor a list of steps")
    if rows is not None:
        return _path(expression, _greedy_steps(expression, rows))
    found = _path(
        expression, _greedy_steps(expression, [_cells(set(own), expression.sizes) for own in expression.operands])
    )
    if len(expression.operands) > 2:
        found = min(found, _path(expression, _steps_along_order(expression)), key=lambda path: path.joined)
    return found


def _path(expression: Expression, steps: Sequence[Positions]) -> ContractionPath:
    left = list(expression.operands)
    made: list[Contraction] = []

    def contract(positions: Positions) -> None:
        if not all(0 <= p < len(left) for p in positions) or len(set(positions)) < len(positions):
            raise UsageError(f"einsum: step {positions} does not fit {len(left)} operands")
        inputs = tuple(left[p] for p in positions)
        for p in sorted(positions, reverse=True):
            del left[p]
        output = _kept(inputs, left, expression.output)
        joined = _cells({name for names in inputs for name in names}, expression.sizes)
        made.append(Contraction(positions, inputs, output, _cells(output, expression.sizes), joined))
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


def _kept(inputs: Sequence[Sequence[str]], others: Sequence[Sequence[str]], output: Sequence[str]) -> tuple[str, ...]:
    needed = {name for names in others for name in names}.union(output)
    return tuple(dict.fromkeys(name for names in inputs for name in names if name in needed))


def _cells(names: Sequence[str] | set[str] | frozenset[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[name] for name in names)


def _greedy_steps(expression: Expression, rows: Sequence[int]) -> list[Positions]:
    """Pairs whose result has the fewest estimated rows beyond those of the pair."""
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
        return names, min(float(_cells(names, sizes)), lengths[one] * lengths[two] / _cells(both, sizes))

    def judge(one: int, two: int) -> None:
        growth[one, two] = result(one, two)[1] - lengths[one] - lengths[two]

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
        growth = {key: value for key, value in growth.items() if not {one, two} & set(key)}
        new = next(numbers)
        left[new], lengths[new] = made, length
        for other, names in left.items():
            if other != new and (names & made or len(left) <= PAIRS):
                judge(other, new)
    return steps


def _steps_along_order(expression: Expression) -> list[Positions]:
    """Buckets along a greedy elimination order: the operands of an index two at a time, the smallest first."""
    names = list(expression.sizes)
    number = {name: i for i, name in enumerate(names)}
    scopes = [[number[name] for name in dict.fromkeys(own)] for own in (*expression.operands, expression.output)]
    graph = ScopeGraph("einsum", [scope for scope in scopes if scope], list(expression.sizes.values()))
    order, _ = graph.greedy_order(greedy.WEIGHTED_MIN_FILL, 0)
    left = [tuple(dict.fromkeys(own)) for own in expression.operands]
    steps: list[Positions] = []

    def cells(own: Sequence[str]) -> int:
        return _cells(own, expression.sizes)

    for v in order.tolist():
        name = names[v]
        while name not in expression.output:
            having = [i for i, own in enumerate(left) if name in own]
            if len(having) < 2:
                break
            one, two = sorted(sorted(having, key=lambda i: cells(left[i]))[:2])
            steps.append((one, two))
            inputs = (left.pop(two), left.pop(one))
            left.append(_kept(inputs, left, expression.output))
    return steps
