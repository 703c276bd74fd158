"""Workers that have a GPU each: the answer and the rows of one process."""

from __future__ import annotations

import pytest

import oocbe
from oocbe.algebra.operators import join_maximise
from oocbe.model.settings.tuning import tuned
from oocbe.stress.tables import SyntheticTable
from tests.elimination.test_segments import clique_problem
from tests.helpers.out_of_core_modes import same_rows
from tests.kernels.conftest import skip_without_gpu

pytest.importorskip("distributed")


def cutting():
    return tuned(segment_rows=1000, first_segments=4, least_segment_seconds=0.5)


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_count_and_an_operator_on_devices(tmp_path):
    skip_without_gpu()
    problem = clique_problem()
    options = {"order_seconds": 0, "tables": "incomplete", "piece_rows": 20}
    expected = oocbe.count(problem, backend="cpu", **options)
    tables = [
        SyntheticTable(100_000, 3000, is_sorted=True, own=own, seed=seed).write(tmp_path / own, chunk_rows=5000)
        for seed, own in enumerate("ab")
    ]
    with cutting():
        found = oocbe.count(problem, workers="gpus:1", workdir=tmp_path / "run", backend="cuda", **options)
        made = join_maximise(*tables, "e", output=tmp_path / "made", workers="gpus:1", backend="cuda")
    assert found.value == expected.value
    assert found.read_by_workers is not None
    same_rows(made, join_maximise(*(table.to_table() for table in tables), "e", backend="cpu"))
