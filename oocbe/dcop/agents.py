"""State and work of an agent for one of its variables: joins, eliminates, sends; later chooses a value.

An agent receives its :class:`Share` only: its variable, the constraints over it and its ancestors in the pseudo-tree,
and the depths of these ancestors. All other data comes from the UTIL messages of its children. The bucket engine does
the work: the share and the received messages form one bucket, whose message the agent sends (Fioretto et al. 2018,
theorem 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from oocbe.bounds.mini_buckets.mini_buckets import ULP, by_scope, parts_of
from oocbe.dcop.pseudo_trees import PseudoTree
from oocbe.elimination.buckets.assignment import value_of
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket, elements_of, fill_buckets
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.decision import COMPLETE, INCOMPLETE
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Semiring
from oocbe.runtime.deadline import looked
from oocbe.tables.complete import CompleteTable
from oocbe.tables.residence import to_host
from oocbe.tables.table import Table

Part: TypeAlias = Function | Constraint | LinearConstraint


@dataclass(frozen=True)
class KnownVariable:
    """A variable in messages between agents: its name, number of values, and depth in the pseudo-tree."""

    name: str
    size: int
    depth: int


@dataclass(frozen=True, eq=False)
class Share:
    """The input of an agent for one of its variables.

    problem : over the variable, which comes first, and its neighbours among the ancestors; it contains the constraints
        over the variable and ancestors only.
    known : its variables, in their order.
    dtype : of all values, common to all agents.
    z : limit of the variables of a mini-bucket, the agent's own included; None: buckets are not divided.
    """

    problem: Problem
    known: tuple[KnownVariable, ...]
    dtype: np.dtype[Any]
    z: int | None


@dataclass(eq=False)
class UtilTable:
    """One table of a UTIL message: its variables, the deepest first; rows and bytes as stored.

    content : the message in this process; between processes, its table or the folder of the stored table.
    """

    scope: tuple[KnownVariable, ...]
    rows: int
    nbytes: int
    content: Message | Table | CompleteTable | Path

    @property
    def cells(self) -> int:
        """Assignments of its variables: the cells of a dense table."""
        return math.prod(known.size for known in self.scope)


@dataclass(eq=False)
class Utility:
    """A UTIL message: the optimum of the sender's subtree for each assignment of the separator.

    tables : to be added up: one, or none of a root; several where the sender divided its bucket.
    constant : to be added, too.
    is_infeasible : whether the subtree has no feasible assignment; there are no tables then.
    is_divided : whether it is a bound only, because some bucket of the subtree was divided.
    error, magnitude : bounds on the rounding error of floats, and on their absolute values.
    """

    tables: list[UtilTable] = field(default_factory=list)
    constant: int | float = 0
    is_infeasible: bool = False
    is_divided: bool = False
    error: float = 0.0
    magnitude: float = 0.0

    @property
    def cells(self) -> int:
        """Cells of its tables in dense form."""
        return sum(t.cells for t in self.tables)

    @property
    def rows(self) -> int:
        """Rows of its tables."""
        return sum(t.rows for t in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes of its tables, as they are stored."""
        return sum(t.nbytes for t in self.tables)


def shares(problem: Problem, tree: PseudoTree, dtype: np.dtype[Any], z: int | None) -> list[Share]:
    """The share of each variable's agent: a constraint belongs to the deepest of its variables."""
    owned: list[list[Part]] = [[] for _ in problem.variables]
    for part in looked(_parts(problem)):
        if part.scope:
            owned[max(part.scope, key=tree.depth.__getitem__)].append(part)
    found = []
    for v, own in enumerate(looked(owned)):
        scope = sorted({v}.union(*(part.scope for part in own)), key=lambda u: -tree.depth[u])
        known = tuple(KnownVariable(problem.variables[u].name, problem.sizes[u], tree.depth[u]) for u in scope)
        place = {u: index for index, u in enumerate(scope)}
        found.append(Share(_over(known, place, problem, own), known, dtype, z))
    return found


def _parts(problem: Problem) -> list[Part]:
    return [*problem.functions, *problem.constraints, *problem.linear_constraints]


def _over(
    known: Sequence[KnownVariable],
    place: Mapping[int, int],
    like: Problem,
    parts: Iterable[Part],
) -> Problem:
    """A problem over some variables; ``place`` maps the parts' variables to their positions among these."""
    moved = [replace(part, scope=tuple(place[v] for v in part.scope)) for part in parts]
    return Problem(
        tuple(Variable(k.name, k.size) for k in known),
        tuple(part for part in moved if isinstance(part, Function)),
        tuple(part for part in moved if isinstance(part, Constraint)),
        tuple(part for part in moved if isinstance(part, LinearConstraint)),
        semiring=like.semiring,
        name=like.name,
    )


_LOADED: set[tuple[Semiring, np.dtype[Any], bool]] = set()
"""Keys (semiring, dtype, presence of a device) of the loops already loaded in this process."""


def load_loops(semiring: Semiring, dtype: np.dtype[Any], store: MessageStore, engine: BucketEngine) -> None:
    """Run a small agent, so that measured work excludes the loading or compiling of loops."""
    key = (semiring, dtype, engine.uses_device)
    if key in _LOADED:
        return
    _LOADED.add(key)
    array = np.ones((2, 2), dtype=np.int64 if dtype.kind == "i" else np.float64)
    two = Problem((Variable("a", 2), Variable("b", 2)), (Function.from_array((0, 1), array),), semiring=semiring)
    one = Problem((Variable("b", 2),), semiring=semiring)
    child, parent = KnownVariable("a", 2, 1), KnownVariable("b", 2, 0)
    for tables in (INCOMPLETE, COMPLETE):
        sent = Agent(Share(two, (child, parent), dtype, None), store, engine, tables).util([])
        root = Agent(Share(one, (parent,), dtype, None), store, engine, tables)
        root.util([sent])
        root.value({})


class Agent:
    """The agent of a variable: its input, message store and engine, and the form of its messages, ``tables``."""

    def __init__(self, share: Share, store: MessageStore, engine: BucketEngine, tables: str) -> None:
        self._share = share
        self._store = store
        self._engine = engine
        self._tables = tables
        self._known: list[KnownVariable] = list(share.known)
        self._prepared: Prepared | None = None
        self._bucket = Bucket(0)

    def util(self, received: Sequence[Utility]) -> Utility:
        """Join the share and the children's messages, and eliminate the variable; returns the message to the parent.

        Raises ResourceError: memory or disk ran out; TimeLimitError: the engine's deadline came; UnsupportedError: a
        constraint too large to be written out.
        """
        sent = Utility(is_infeasible=any(r.is_infeasible for r in received))
        if sent.is_infeasible:
            return sent
        prepared = self._prepare(received)
        sent.constant = sum((r.constant for r in received), prepared.constant)
        sent.is_divided = any(r.is_divided for r in received)
        place = {known.name: index for index, known in enumerate(self._known)}
        own = self._known[0].name
        for table in (t for r in received for t in r.tables):
            if all(known.name != own for known in table.scope):
                sent.tables.append(table)  # of a divided bucket: passed on to the agents of its variables
                continue
            self._bucket.messages.append(self._received(table, tuple(place[known.name] for known in table.scope)))
        buckets = self._divided()
        sent.is_divided |= len(buckets) > 1
        self._bound_errors(sent, received, len(buckets))
        sent.is_infeasible = prepared.is_infeasible
        for bucket in buckets:
            if not sent.is_infeasible:
                self._add_message(bucket, prepared, sent)
        if sent.is_infeasible:
            sent.tables = []
        for message in self._bucket.messages:
            message.is_filtered = True  # no further join: the store may move it as all that has been joined
            self._store.joined(message)
        return sent

    def value(self, chosen: Mapping[str, int]) -> int | None:
        """The best value of the variable, given those of ancestors by name; None where each is forbidden."""
        assert self._prepared is not None
        assignment = {index: chosen[known.name] for index, known in enumerate(self._known) if index}
        best: tuple[int | float, int] | None = None
        near = replace(self._bucket, messages=[m.near(assignment, 0) for m in self._bucket.messages])
        for value in range(self._known[0].size):
            worth = value_of(self._prepared, near, assignment | {0: value})
            if worth is not None and (best is None or self._prepared.semiring.is_better(worth, best[0])):
                best = (worth, value)
        return None if best is None else best[1]

    def _prepare(self, received: Sequence[Utility]) -> Prepared:
        """Pack the share for all variables of it and the messages, the nearest ancestor first."""
        own = self._known[0]
        mentioned = {k for r in received for t in r.tables if own in t.scope for k in t.scope}
        known = sorted({*self._share.known, *mentioned}, key=lambda k: -k.depth)
        place = {k: index for index, k in enumerate(known)}
        given = self._share.problem
        moves = {index: place[k] for index, k in enumerate(self._share.known)}
        problem = _over(known, moves, given, _parts(given))
        self._known = known
        order = range(len(known))
        self._prepared = prepare(problem, given.semiring, order, carries=False, dtype=self._share.dtype)
        self._bucket = fill_buckets(self._prepared, self._store)[0]
        return self._prepared

    def _received(self, table: UtilTable, scope: tuple[int, ...]) -> Message:
        """A received table in the bucket's form, which reflects constraints that its sender did not have."""
        content = table.content
        if isinstance(content, Path):
            message = Message.stored_at(content, scope)
        else:
            message = content if isinstance(content, Message) else self._store.add(scope, content)
        message.scope, message.is_filtered = scope, False
        return message

    def _divided(self) -> list[Bucket]:
        z, bucket = self._share.z, self._bucket
        members = bucket.scope_members()
        if z is None or members.bit_count() <= z:
            return [replace(bucket, separator=tuple(elements_of(members & ~1)))]
        return [
            Bucket(0, tuple(elements_of(p.members & ~1)), p.functions, p.constraints, p.messages)
            for p in by_scope(parts_of(bucket, bucket.constraints), z)
        ]

    def _add_message(self, bucket: Bucket, prepared: Prepared, sent: Utility) -> None:
        maker = MessageMaker(prepared, False, self._store, engine=self._engine, tables=self._tables)
        message, _ = maker.make(0, bucket, np.zeros(len(self._known), dtype=np.uint8))
        if message.rows == 0:
            sent.is_infeasible = True
        elif bucket.separator:
            scope = tuple(self._known[v] for v in bucket.separator)
            sent.tables.append(UtilTable(scope, message.rows, message.nbytes, message))
        else:
            value = prepared.semiring.reduce(to_host(message.table()).values).item()
            sent.constant = sent.constant + value

    def _bound_errors(self, sent: Utility, received: Sequence[Utility], buckets: int) -> None:
        if self._share.dtype.kind != "f":
            return
        functions = self._share.problem.functions
        largest = [max(abs(f.default or 0), float(np.abs(f.values).max(initial=0.0))) for f in functions]
        sent.magnitude = float(sum(largest)) + sum(r.magnitude for r in received)
        terms = len(functions) + sum(len(r.tables) for r in received) + len(received) + buckets + 1
        sent.error = sum(r.error for r in received) + terms * ULP * sent.magnitude
