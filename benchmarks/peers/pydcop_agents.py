"""DPOP of pyDcop on one file, its agents' messages passed on directly; prints a line of JSON.

    PYTHON benchmarks/peers/pydcop_agents.py FILE.yaml      # PYTHON: an interpreter that has pyDcop

pyDcop's own ways to run agents (threads or processes with queues that are polled) take seconds whatever the problem. So
here the computations are made as it makes them, and each message is handed to its receiver by a loop. Processor seconds
are those from the problem in memory to all values: pseudo-tree, computations, UTIL and VALUE messages.
"""

import collections
import collections.abc
import gzip
import importlib
import json
import logging
import sys
import time
from pathlib import Path


def main() -> None:
    """Solve the file that the command line names."""
    for name in (
        "Iterable",
        "Sized",
        "Callable",
        "Mapping",
        "Sequence",
    ):  # where Python had them when pyDcop was written
        setattr(collections, name, getattr(collections.abc, name))
    logging.disable(logging.CRITICAL)
    from pydcop.algorithms import AlgorithmDef, ComputationDef
    from pydcop.computations_graph.pseudotree import build_computation_graph
    from pydcop.dcop.yamldcop import load_dcop

    dpop = importlib.import_module("pydcop.algorithms.dpop")
    path = Path(sys.argv[1])
    problem = load_dcop((gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode())
    begin = time.process_time()
    graph = build_computation_graph(problem)
    algorithm = AlgorithmDef.build_with_default_param("dpop", mode=problem.objective)
    agents = {node.name: dpop.DpopAlgo(ComputationDef(node, algorithm)) for node in graph.nodes}
    waiting: collections.deque[tuple[str, str, object]] = collections.deque()

    def send(sender: str, receiver: str, message: object, *_: object) -> None:
        waiting.append((sender, receiver, message))

    for agent in agents.values():
        agent.message_sender = send
    for agent in agents.values():
        agent.start()
    while waiting:
        sender, receiver, message = waiting.popleft()
        agents[receiver].on_message(sender, message, 0)
    values = {name: agent.current_value for name, agent in agents.items()}
    seconds = time.process_time() - begin
    hard, soft = problem.solution_cost(values, 1e9)
    print(json.dumps({"seconds": seconds, "violated": hard, "cost": soft}))


if __name__ == "__main__":
    main()
