"""State of a run of agents, their simulated runtime, and the result.

The simulated runtime is that of agents that work in parallel (Sultanik, Lass and Regli 2007).

Each agent has a clock, advanced by its measured work. A message carries the clock of its sender; the receiver's clock
becomes the maximum of both, and messages take no time. The simulated runtime is the last clock at the end, whatever
the number of real processors.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from oocbe.dcop.pseudo_trees import PseudoTree
from oocbe.elimination.preparation.ranges import value_dtype
from oocbe.model.dcop import Dcop
from oocbe.model.results.dcop_result import DcopMetrics, DcopResult, UtilMessage
from oocbe.model.settings.machine import peak_memory


@dataclass
class Progress:
    """Current state of a run."""

    dcop: Dcop
    z: int | None
    status: str = "limit"
    value: int | float | None = None
    bound: int | float | None = None
    assignment: tuple[int, ...] | None = None
    tree: PseudoTree | None = None
    messages: list[UtilMessage] = field(default_factory=list)
    util_seconds: list[float] = field(default_factory=list)
    value_seconds: list[float] = field(default_factory=list)
    value_messages: int = 0
    uses_device: bool = False
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("tree", "util", "value", "total"), 0.0))
    notes: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Clear the messages of an earlier attempt."""
        count = len(self.dcop.problem.variables)
        self.messages, self.value_messages = [], 0
        self.util_seconds, self.value_seconds = [0.0] * count, [0.0] * count

    def result(self, workers: int, notes: tuple[str, ...]) -> DcopResult:
        """The result of the run so far."""
        dcop, tree = self.dcop, self.tree
        problem = dcop.problem
        owner_of = {v.name: owner for v, owner in zip(problem.variables, dcop.owner, strict=True)}
        metrics = DcopMetrics(
            agents=len(dcop.agents),
            variables=len(problem.variables),
            trees=0 if tree is None else len(tree.roots),
            heuristic="" if tree is None else tree.heuristic,
            width=0 if tree is None else tree.width,
            height=0 if tree is None else tree.height,
            util_messages=len(self.messages),
            value_messages=self.value_messages,
            messages_between_agents=sum(owner_of[m.sender] != owner_of[m.receiver] for m in self.messages),
            messages=tuple(self.messages),
            simulated_seconds=0.0
            if tree is None or not self.util_seconds
            else simulated_seconds(tree, dcop.owner, self.util_seconds, self.value_seconds),
            work_seconds=sum(self.util_seconds) + sum(self.value_seconds),
        )
        return DcopResult(
            problem=problem.name,
            semiring=problem.semiring.name,
            sense=problem.sense,
            variables=problem.variables,
            algorithm="dpop" if self.z is None else "adpop",
            z=self.z,
            status=self.status,
            value=self.value,
            bound=self.bound,
            assignment=self.assignment,
            metrics=metrics,
            dtype=value_dtype(problem, problem.semiring).name,
            backend="cuda" if self.uses_device else "cpu",
            workers=workers,
            seconds=dict(self.seconds),
            peak_memory_bytes=peak_memory(),
            notes=notes,
        )


def simulated_seconds(
    tree: PseudoTree, owner: Sequence[int], util_seconds: Sequence[float], value_seconds: Sequence[float]
) -> float:
    """The clock of the last agent at the end.

    owner : agent of each variable; an agent handles its variables one after the other, in the order of messages.
    util_seconds, value_seconds : work for each variable in the phases of UTIL and VALUE messages.
    """
    clocks: dict[int, float] = {}
    missing = [len(children) for children in tree.children]
    arrived = [0.0] * len(missing)
    # The earliest ready task begins first; UTIL before VALUE, then by the variable.
    waiting = [(0.0, 0, v) for v, count in enumerate(missing) if count == 0]
    heapq.heapify(waiting)
    while waiting:
        begin, phase, v = heapq.heappop(waiting)
        clock = clocks.get(owner[v], 0.0)
        if clock > begin:  # its agent is busy with another variable
            heapq.heappush(waiting, (clock, phase, v))
            continue
        end = begin + (value_seconds if phase else util_seconds)[v]
        clocks[owner[v]] = end
        parent = tree.parent[v]
        if phase:
            for child in tree.children[v]:
                heapq.heappush(waiting, (end, 1, child))
        elif parent is None:
            heapq.heappush(waiting, (end, 1, v))
        else:
            arrived[parent] = max(arrived[parent], end)
            missing[parent] -= 1
            if missing[parent] == 0:
                heapq.heappush(waiting, (arrived[parent], 0, parent))
    return max(clocks.values(), default=0.0)
