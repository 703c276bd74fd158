"""Hosts of agents: this process, for all agents one after the other, or several processes with some agents each.

Both have one interface of requests and answers for :mod:`oocbe.dcop.protocol`. A process receives the shares of its own
agents only. Small UTIL messages between processes are sent as tables. Larger ones are stored: the folder's path is
sent, and the receiver reads the table.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol, TypeAlias

from oocbe import errors
from oocbe.dcop.agents import Agent, Share, Utility, load_loops
from oocbe.elimination.buckets.message import Message
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.buckets.resources import engine_for, message_memory
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.errors import InternalError, OocbeError, ResourceError
from oocbe.kernels.cpu.threads import thread_count
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuning
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.parents import serving_child
from oocbe.runtime.waiting import LOOK_UP_SECONDS
from oocbe.tables.residence import to_host
from oocbe.tables.scratch import ScratchFolder, default_parent
from oocbe.tables.stored import StoredTable
from oocbe.tables.stored_complete import StoredCompleteTable

Work: TypeAlias = Sequence[Utility] | Mapping[str, int]
"""Input of a request to an agent: the UTIL messages of all children, or the VALUE message of the parent."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Answer to a request: the variable, its UTIL message or value, and the agent's working time in seconds."""

    variable: int
    content: Utility | int | None
    seconds: float


class Hosts(Protocol):
    """Interface of hosts of agents; a context manager."""

    def submit(self, variable: int, work: Work) -> None:
        """Send a request to the agent of a variable."""

    def collect(self) -> Answer:
        """Wait for the next answer; errors as for :class:`oocbe.dcop.agents.Agent`."""


def worked(agent: Agent, variable: int, work: Work) -> Answer:
    """Execute a request of an agent, and measure its time."""
    begin = time.perf_counter()
    content = agent.value(work) if isinstance(work, Mapping) else agent.util(work)
    return Answer(variable, content, time.perf_counter() - begin)


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

    def collect(self) -> Answer:
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
    """Agents in processes of their own; a context manager that leaves no process and no file.

    shares : of each variable. owner : agent of each variable; all variables of an agent are in one process.
    workers : limit of processes. options : ``memory`` is divided among the processes.
    deadline : of the run.
    Raises DiskError: there is no place for messages.
    """

    def __init__(
        self,
        shares: Sequence[Share],
        owner: Sequence[int],
        workers: int,
        options: SolveOptions,
        deadline: Deadline,
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
        self._answers: deque[Answer] = deque()
        self._scratch = ScratchFolder(default_parent() if options.workdir is None else options.workdir)
        memory = message_memory(options)
        sent_bytes = min(tuning().small_bytes, int(memory * tuning().small_share) // max(1, len(shares)))
        memory //= count
        seconds = None if deadline.remaining == float("inf") else deadline.remaining
        try:
            for number in range(count):
                own = {v: share for v, share in enumerate(shares) if self._home[v] == number}
                settings = (replace(options, workdir=None), memory, self._scratch.path, seconds, sent_bytes)
                self._start(Contract(own, *settings), count)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> InProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def submit(self, variable: int, work: Work) -> None:
        """Send a request to the process of the variable's agent, once it has answered those before."""
        number = self._home[variable]
        self._requests[number].append((variable, work))
        self._send_next(number)

    def collect(self) -> Answer:
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

    def _start(self, contract: Contract, count: int) -> None:
        process, ours = serving_child("oocbe.dcop.hosts", max(1, thread_count() // count))
        self._processes.append(process)
        self._connections.append(ours)
        self._contracts.append(contract)
        self._requests.append(deque())
        self._is_idle.append(False)

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
        elif isinstance(answer, Answer):
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
            for variable, work in _requests(connection):
                answer = worked(agents[variable], variable, work)
                if isinstance(answer.content, Utility):
                    _hand_over(answer.content, store)
                connection.send(answer)
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        connection.send((type(error).__name__, str(error)))


def _requests(connection: Connection) -> Iterable[tuple[int, Work]]:
    while True:
        try:
            yield connection.recv()
        except EOFError:
            return


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
