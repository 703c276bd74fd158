"""Answers of all tasks about small problems; as a program, all in one process, by loops that are interpreted."""

from __future__ import annotations

import json
import sys
from typing import Any

import oocbe
from oocbe.api.tasks.verbs import run_task
from oocbe.elimination.narrow import narrow_problem
from oocbe.kernels.cpu import interpreter

TASKS: dict[str, dict[str, Any]] = {
    "count": {}, "kbest": {"k": 5}, "logz": {}, "marginals": {}, "min-marginals": {}
}  # fmt: skip
"""Tasks with their own settings."""

FIGURES = ("value", "status", "count", "solutions", "minimum", "marginals", "variables", "log")
"""What is compared of an answer."""


def answers(example: str, small: str) -> dict[str, dict[str, Any]]:
    """By task the figures of the answer about a small problem, and of the optimum of an example."""
    found = {task: run_task(task, small, **own, order_seconds=0).to_json() for task, own in TASKS.items()}
    found |= {name: oocbe.solve(name, order_seconds=0).to_json() for name in (small, example)}
    return {task: {name: own[name] for name in FIGURES if name in own} for task, own in found.items()}


if __name__ == "__main__":
    interpreter.LEFT_SECONDS = interpreter.BACKGROUND_SECONDS = interpreter.LOOP_SECONDS = 60.0
    narrow_problem.INTERPRETED_CELLS = 1 << 30  # else another process begins to compile the loop, and may end in time
    print(json.dumps(answers(*sys.argv[1:])))
