"""Simulated runtime of agents that work in parallel (Sultanik, Lass and Regli 2007).

Each agent has a clock, advanced by its measured work. A message carries the clock of its sender; the receiver's clock
becomes the maximum of both, and messages take no time. The simulated runtime is the last clock at the end, whatever
the number of real processors.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from oocbe.dcop.pseudo_trees import PseudoTree


def simulated_seconds(
    tree: PseudoTree, owner: Sequence[int], util_seconds: Sequence[float], value_seconds: Sequence[float]
) -> float:
    """The clock of the last agent at the end.

    Parameters
    ----------
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
