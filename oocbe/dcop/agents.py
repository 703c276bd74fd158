"""State and work of an agent for one of its variables: joins, eliminates, sends; later chooses a value.

An agent receives its :class:`Share` only: its variable, the constraints over it and its ancestors in the pseudo-tree,
and the depths of these ancestors. All other data comes from the UTIL messages of its children. The bucket engine does
the work: the share and the received messages form one bucket, whose message it sends (Fioretto et al. 2018, theorem 1).

The host of agents is this process, for all agents one after the other, or several processes with some agents each. Both
have one interface of requests and answers for :mod:`oocbe.dcop.protocol`. A process receives the shares of its own
agents only. Small UTIL messages between processes are sent as tables. Larger ones are stored: the folder's path is
sent, and the receiver reads the table.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from oocbe import errors
from oocbe.bounds.mini_buckets.mini_buckets import ULP, by_scope, parts_of
from oocbe.dcop.pseudo_trees import PseudoTree
from oocbe.elimination.buckets.assignment import best_value
from oocbe.elimination.buckets.bucket_message import MessageMaker
from oocbe.elimination.buckets.buckets import Bucket, fill_buckets
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, message_memory
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.engine.factors import elements_of
from oocbe.elimination.preparation.prepare import Prepared, prepare
from oocbe.errors import InternalError, OocbeError, ResourceError
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import Semiring
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline, looked
from oocbe.runtime.parents import serving_child
from oocbe.runtime.waiting import LOOK_UP_SECONDS
from oocbe.tables.complete import CompleteTable
from oocbe.tables.residence import to_host
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredCompleteTable, StoredTable
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
    known : its variables, in their order. dtype : of all values, common to all agents.
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


def _over(known: Sequence[KnownVariable], place: Mapping[int, int], like: Problem, parts: Iterable[Part]) -> Problem:
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
        self._share, self._store, self._engine, self._tables = share, store, engine, tables
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
        best = best_value(self._prepared, self._bucket, assignment)
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
            for p in by_scope(parts_of(bucket), z)
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


Work: TypeAlias = Sequence[Utility] | Mapping[str, int]
"""Input of a request to an agent: the UTIL messages of all children, or the VALUE message of the parent."""


@dataclass(frozen=True, eq=False)
class AgentAnswer:
    """Answer to a request: the variable, its UTIL message or value, and the agent's working time in seconds."""

    variable: int
    content: Utility | int | None
    seconds: float


def worked(agent: Agent, variable: int, work: Work) -> AgentAnswer:
    """Execute a request of an agent, and measure its time."""
    begin = time.perf_counter()
    content = agent.value(work) if isinstance(work, Mapping) else agent.util(work)
    return AgentAnswer(variable, content, time.perf_counter() - begin)


class InProcess:
    """All agents in this process; their messages stay in memory while they fit."""

    def __init__(
        self, shares: Sequence[Share], options: SolveOptions, store: MessageStore, engine: BucketEngine
    ) -> None:
        if shares:
            load_loops(shares[0].problem.semiring, shares[0].dtype, store, engine)
        self._agents = [Agent(share, store, engine, options.tables) for share in shares]
        self._requests: deque[tuple[int, Work]] = deque()

    def submit(self, variable: int, work: Work) -> None:
        """Append a request to the queue."""
        self._requests.append((variable, work))

    def collect(self) -> AgentAnswer:
        """Execute the first request of the queue; errors as for :class:`oocbe.dcop.agents.Agent`."""
        variable, work = self._requests.popleft()
        return worked(self._agents[variable], variable, work)


@dataclass(frozen=True, eq=False)
class Contract:
    """The first message to a process.

    shares : of its agents' variables, by index. options : of its messages and joins.
    memory : bytes for its messages. folder : parent of its scratch folder. seconds : remaining time limit.
    sent_bytes : size limit of a table that is sent itself.
    """

    shares: Mapping[int, Share]
    options: SolveOptions
    memory: int
    folder: Path
    seconds: float | None
    sent_bytes: int


class InProcesses:
    """Agents in processes of their own; :meth:`close` leaves no process and no file.

    shares : of each variable. owner : agent of each variable; all variables of an agent are in one process.
    workers : limit of processes. options : ``memory`` is divided among the processes. deadline : of the run.
    Raises DiskError: there is no place for messages.
    """

    def __init__(
        self, shares: Sequence[Share], owner: Sequence[int], workers: int, options: SolveOptions, deadline: Deadline
    ) -> None:
        self._deadline = deadline
        owners = list(dict.fromkeys(owner))
        count = max(1, min(workers, len(owners)))
        process_of_owner = {agent: number % count for number, agent in enumerate(owners)}
        self._home = [process_of_owner[agent] for agent in owner]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._contracts: list[Contract] = []
        # A process receives a request only after its previous answer: no write without a reader.
        self._requests: list[deque[tuple[int, Work]]] = []
        self._is_idle: list[bool] = []
        self._answers: deque[AgentAnswer] = deque()
        self._scratch = ScratchFolder(default_parent() if options.workdir is None else options.workdir)
        memory = message_memory(options)
        sent_bytes = min(tuning().small_bytes, int(memory * tuning().small_share) // max(1, len(shares)))
        memory //= count
        seconds = None if deadline.remaining == float("inf") else deadline.remaining
        try:
            for number in range(count):
                own = {v: share for v, share in enumerate(shares) if self._home[v] == number}
                settings = (replace(options, workdir=None), memory, self._scratch.path, seconds, sent_bytes)
                process, ours = serving_child("oocbe.dcop.agents", max(1, thread_count() // count))
                self._processes.append(process)
                self._connections.append(ours)
                self._contracts.append(Contract(own, *settings))
                self._requests.append(deque())
                self._is_idle.append(False)
        except BaseException:
            self.close()
            raise

    def submit(self, variable: int, work: Work) -> None:
        """Send a request to the process of the variable's agent, once it has answered those before."""
        number = self._home[variable]
        self._requests[number].append((variable, work))
        self._send_next(number)

    def collect(self) -> AgentAnswer:
        """Wait for an answer of any process; ResourceError where one has died, else errors as in this process."""
        while not self._answers:
            self._deadline.check()
            for connection in wait(self._connections, LOOK_UP_SECONDS):
                assert isinstance(connection, Connection)
                self._receive(self._connections.index(connection))
        return self._answers.popleft()

    def close(self) -> None:
        """End the processes and remove their files."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.kill()  # its data is no longer needed, and it writes to the scratch folder only
        for process in self._processes:
            process.wait()
        self._scratch.close(interrupted=True)

    def _send_next(self, number: int) -> None:
        if self._is_idle[number] and self._requests[number]:
            self._is_idle[number] = False
            self._send(number, self._requests[number].popleft())

    def _send(self, number: int, content: object) -> None:
        try:
            self._connections[number].send(content)
        except OSError:
            raise self._died(number) from None

    def _receive(self, number: int) -> None:
        """Receive a message of a process: its start, then answers, or the error that ended it."""
        try:
            answer = self._connections[number].recv()
        except (EOFError, OSError):
            raise self._died(number) from None
        if answer is None:
            self._send(number, self._contracts[number])
        elif isinstance(answer, AgentAnswer):
            self._answers.append(answer)
        else:
            raise _as_error(*answer)
        self._is_idle[number] = True
        self._send_next(number)

    def _died(self, number: int) -> ResourceError:
        code = self._processes[number].wait()
        self._deadline.check()
        return ResourceError(
            f"worker {number + 1} of {len(self._processes)} ended before its agents had (exit code {code}); where it "
            "was killed for memory, give less --memory or fewer --workers"
        )


def _as_error(kind: str, text: str) -> Exception:
    """The error that ended a worker, to be raised here."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, OocbeError):
        return found(text)
    return InternalError(f"a worker ended by {kind}: {text}")


def serve(connection: Connection) -> None:
    """Main loop of a process: report the start, receive the contract, then requests until the connection closes."""
    try:
        connection.send(None)
        contract = connection.recv()
    except (EOFError, OSError):
        return
    assert isinstance(contract, Contract)
    options = contract.options
    try:
        with (
            Deadline(contract.seconds) as deadline,
            MessageStore(
                contract.memory,
                contract.folder,
                options.chunk_rows,
                max_disk=options.max_disk,
                small_bytes=contract.sent_bytes,
            ) as store,
        ):
            engine = engine_for(options, deadline)
            share = next(iter(contract.shares.values()))
            load_loops(share.problem.semiring, share.dtype, store, engine)
            agents = {v: Agent(share, store, engine, options.tables) for v, share in contract.shares.items()}
            while True:
                variable, work = connection.recv()
                answer = worked(agents[variable], variable, work)
                if isinstance(answer.content, Utility):
                    _hand_over(answer.content, store)
                connection.send(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        connection.send((type(error).__name__, str(error)))


def _hand_over(utility: Utility, store: MessageStore) -> None:
    """Put its tables, or the folders of stored tables, into a message to another process."""
    for table in utility.tables:
        message = table.content
        if isinstance(message, Message):
            content = message.cells() if message.is_complete else message.rows_on_hand()
            store.drop(message)
            table.content = (
                content.folder if isinstance(content, StoredTable | StoredCompleteTable) else to_host(content)
            )
