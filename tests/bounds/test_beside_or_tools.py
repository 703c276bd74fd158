"""OR-tools brings a HiGHS of its own; a process can have both."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oocbe.bounds import linear_program

pytest.importorskip("cpmpy")  # needs OR-tools

LOADS = ("from ortools.sat.python import cp_model", f"import {linear_program.__name__}")


@pytest.mark.parametrize("order", [1, -1])
def test_linear_programs_are_solved_in_a_process_with_or_tools(order):
    script = "\n".join([*LOADS[::order], f"{linear_program.__name__}.quiet_solver(), cp_model.CpSolver()"])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
