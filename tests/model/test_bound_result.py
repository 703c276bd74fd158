"""Results of bounds as JSON."""

import json

from oocbe.model.parts import Variable
from oocbe.model.results.bound_result import BoundOfZ, BoundResult


def make_bounds(*, log_bound: float | None, log_incumbent: float | None) -> BoundResult:
    """Bounds of one z on a problem with one variable."""
    entry = BoundOfZ(
        z=2,
        status="bounded",
        bound=0.5,
        incumbent=0.25,
        log_bound=log_bound,
        log_incumbent=log_incumbent,
        assignment=(1,),
        method="greedy",
        exact=False,
        split_buckets=1,
        mini_buckets=3,
        width=2,
        largest_message_rows=4,
        total_rows=8,
        seconds={"total": 0.1},
    )
    return BoundResult(
        problem="p",
        semiring="max-product",
        sense="max",
        variables=(Variable("x", 2),),
        entries=(entry,),
        width=2,
        order=(0,),
        partition="scope",
        cost_shifting=False,
        dtype="float64",
        backend="cpu",
        seconds={"total": 0.1},
        peak_memory_bytes=0,
    )


def test_json_of_products_has_logarithms_for_each_z() -> None:
    shown = json.loads(json.dumps(make_bounds(log_bound=-700.0, log_incumbent=-701.0).to_json()))
    (entry,) = shown["bounds"]
    assert (entry["bound"], entry["incumbent"], entry["gap"]) == (-700.0, -701.0, 1.0)
    assert (shown["bound"], shown["value"], shown["logarithms"]) == (-700.0, -701.0, True)


def test_json_of_sums_has_the_values_for_each_z() -> None:
    shown = json.loads(json.dumps(make_bounds(log_bound=None, log_incumbent=None).to_json()))
    (entry,) = shown["bounds"]
    assert (entry["bound"], entry["incumbent"]) == (0.5, 0.25)
    assert shown["logarithms"] is False
