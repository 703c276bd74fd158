"""What results say of runs that were resumed, or shown again."""

import numpy as np
import pytest

import oocbe
from oocbe.api.solving import history
from oocbe.elimination.observer import Observer
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem


def network(count, share, size=3):
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(count) for v in range(u + 1, count) if v == u + 1 or random.random() < share]
    functions = tuple(Function.from_array(pair, random.integers(0, 9, (size, size))) for pair in pairs)
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions)


class EndsAt(Observer):
    def __init__(self, bucket):
        self.bucket = bucket

    def started(self, plan):
        if self.bucket == 0:
            raise KeyboardInterrupt

    def bucket_done(self, number, *_):
        if number == self.bucket:
            raise KeyboardInterrupt


def test_a_finished_run_that_is_shown_again_has_its_width(tmp_path, monkeypatch):
    """Where bounds end a solve, the width is that of an order that was never used: it was 0 when shown again."""
    problem = network(24, 0.5)
    options = {"workdir": tmp_path, "bounds": "auto", "order_seconds": 0.05}
    first = oocbe.solve(problem, **options)
    monkeypatch.setattr(history, "PLAN_SECONDS", 0.0)
    again = oocbe.solve(problem, **options, resume=True)
    assert again.width == first.width > 0
    assert "had ended already" in again.notes[-1]


@pytest.mark.parametrize(("bucket", "text"), [(0, "had published its orders only"), (3, "3 messages")])
def test_a_resumed_run_says_from_where_it_went_on(bucket, text, tmp_path):
    problem, options = network(12, 0.2), {"workdir": tmp_path, "bounds": "none", "order_seconds": 0.0}
    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(problem, **options, observer=EndsAt(bucket))
    result = oocbe.solve(problem, **options, resume=True)
    assert result.value == oocbe.solve(problem).value
    resumed = [note for note in result.notes if note.startswith("resumed: ")]
    assert len(resumed) == 1 and text in resumed[0] and str(tmp_path) in resumed[0]
