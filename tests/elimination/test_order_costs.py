"""What orders cost where joined cells count: in the search, in the race, and in the record of a run."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.orders import order as order_module
from oocbe.elimination.orders.order import (
    CPU_SPEED,
    DEVICE_SPEED,
    OrderChoice,
    order_cell_work,
    search_orders,
    speed_of,
)
from oocbe.elimination.orders.primal_graph import PrimalGraph
from oocbe.elimination.plan.plan import candidate_orders
from oocbe.elimination.race import Race
from oocbe.elimination.runs.durability import Run, read_choices
from oocbe.errors import CorruptDataError
from oocbe.model.settings.option_values import COMPLETE, INCOMPLETE
from oocbe.model.settings.options import SolveOptions
from oocbe.stress import grid_network, random_network

CHOICE = OrderChoice((0, 1, 2), "mine", 1, ((1, 2), (2,), ()), (10.0, 4.0, 1.0), (2.0, 100.0, 0.5))


def test_each_bucket_costs_what_its_cheaper_form_does():
    assert CHOICE.cost() == 2 + 4 + 0.5
    assert CHOICE.cost(1, 50.0) == 100 + 0.5
    rows_alone = replace(CHOICE, cell_costs=())
    assert rows_alone.cost() == 15
    assert rows_alone.cost(1, 2.0) == 10


def test_only_a_device_has_cells_judged():
    assert (
        order_cell_work(DEVICE_SPEED, "auto") == order_cell_work(DEVICE_SPEED, COMPLETE) == 1 / DEVICE_SPEED.cells_a_row
    )
    assert order_cell_work(DEVICE_SPEED, INCOMPLETE) == order_cell_work(CPU_SPEED, "auto") == float("inf")


def test_plans_are_of_the_orders_that_a_solve_takes(monkeypatch):
    problem = grid_network(5, 6, seed=0)
    monkeypatch.setattr(order_module, "cuda_works", lambda wanted: True)
    assert speed_of("auto") is speed_of("cuda") is DEVICE_SPEED
    assert speed_of("cpu") is CPU_SPEED
    assert all(c.cell_costs for c in candidate_orders(problem, SolveOptions(order_seconds=0)))
    assert not any(c.cell_costs for c in candidate_orders(problem, SolveOptions(order_seconds=0, backend="cpu")))


def test_found_orders_tell_what_their_cells_cost():
    problem = grid_network(5, 6, seed=0)
    graph = PrimalGraph(problem)
    found = search_orders(problem, "auto", 0.0, 0, cell_work=1e-3)
    for choice in found:
        order = np.array(choice.order)
        assert choice.cell_costs == pytest.approx(1e-3 * graph.joined_cells(order, graph.separators(order)))
    assert [c.cost() for c in found] == sorted(c.cost() for c in found)
    assert not any(c.cell_costs for c in search_orders(problem, "auto", 0.0, 0))


def test_the_order_that_costs_least_runs_first():
    problem = random_network(7, 4, 0.5, seed=1)
    by_rows = search_orders(problem, "auto", 0.0, 0)
    last = by_rows[-1]
    cheap = replace(last, cell_costs=tuple(1e-3 for _ in last.order))
    choices = [*by_rows[:-1], cheap]
    assert cheap.cost() < min(c.cost() for c in choices[:-1])
    started = []
    with Run(problem, SolveOptions()) as run:
        run.memory = 1 << 30
        race = Race(problem, problem.semiring, choices, True, run, BucketEngine("cpu"))
        for attempt in race.rounds():
            started.append(attempt.choice.heuristic)
            with attempt:
                attempt.outcome = attempt.forward.run()
        race.winner.store.close()
    assert started[0] == last.heuristic


def test_a_record_of_a_run_keeps_them():
    (found,) = read_choices([asdict(CHOICE)], 3)
    assert found == CHOICE
    with pytest.raises(CorruptDataError, match="none of this problem"):
        read_choices([{**asdict(CHOICE), "cell_costs": [1.0]}], 3)
