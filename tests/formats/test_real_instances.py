"""Every real instance reads, has the published shape, and survives being written."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from oocbe.errors import UnsupportedError
from oocbe.formats import read, write

SPOT = {
    "8": (8, 7), "54": (67, 204), "29": (82, 380), "404": (100, 610), "503": (143, 492), "42": (190, 1204),
    "408": (200, 2032), "505": (240, 2002), "412": (300, 4048), "5": (309, 5312), "509": (348, 8276),
    "11": (364, 9744), "1502": (209, 203), "1504": (605, 3583), "1401": (488, 10476), "1403": (665, 12952),
    "1021": (1057, 20730),
}  # fmt: skip


LARGE_DAYS = ("509", "11", "1401", "1403")
"""Days that take longer to read than all others but one, which is of each kind they are of."""


@pytest.fixture(scope="module")
def day(data):
    """The problem of a day, which is read once for all tests."""
    return cache(lambda name: read(data(f"spot5/{name}.spot")))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LARGE_DAYS else ()) for name in SPOT]
)
def test_spot(day, name):
    problem = day(name)
    assert problem.name == name
    # The published number of constraints counts the recorder's capacity.
    assert (len(problem.variables), len(problem.constraints) + len(problem.linear_constraints)) == SPOT[name]
    assert problem.evaluate([0] * len(problem.variables)) == sum(f.values[0] for f in problem.functions)
    assert [c.name for c in problem.linear_constraints] == ["recorder capacity"] * (int(name) > 1000)
    assert all(c.capacity == 200 for c in problem.linear_constraints)


@pytest.mark.parametrize(("name", "largest"), [("1502", 215), ("1504", 581), ("1021", 984)])
def test_recorder_consumption(day, name, largest):
    (capacity,) = day(name).linear_constraints
    assert sum(int(c.max()) for c in capacity.coefficients) == largest


LARGE = ("CELAR6-SUB2", "scen06", "mastermind_04", "GeomSurf", "pedigree18")
"""Beginnings of names of instances that take longer to read than all others, which are of the same kinds."""


@pytest.mark.parametrize("with_large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_all_others(data, with_large):
    paths = [p for kind in ("wcsp", "uai") for p in sorted(data(kind).rglob("*")) if p.is_file()]
    paths = [p for p in paths if with_large or not p.name.startswith(LARGE)]
    assert len(paths) >= 30
    refused = []
    for path in paths:
        try:
            problem = read(path)
        except UnsupportedError as error:
            refused.append(path.name)
            assert re.search(
                rf"{re.escape(path.name)}, line \d+: the global cost function '\w+' is not supported", str(error)
            )
        else:
            assert problem.functions, path
    assert len(refused) <= 1


@pytest.mark.parametrize(
    "name", ["wcsp/iscas89/s386.wcsp", "wcsp/random/0.wcsp", "wcsp/spot5b/408b.wcsp", "uai/pedigree/pedigree1.uai.gz"]
)
def test_written_and_read_again(data, tmp_path, name):
    problem = read(data(name))
    path = tmp_path / Path(name).name
    write(problem, path)
    again = read(path)
    assert again.sizes == problem.sizes
    assert again.upper_bound == problem.upper_bound
    assert len(again.functions) == len(problem.functions)
    for a, b in zip(again.functions, problem.functions, strict=True):
        assert (a.scope, a.default) == (b.scope, b.default)
        assert np.array_equal(a.tuples, b.tuples)
        assert np.array_equal(a.values, b.values)


def test_a_spot_instance_as_wcsp_has_the_known_optimum(data, tmp_path):
    pytoulbar2 = pytest.importorskip("pytoulbar2")
    path = tmp_path / "29.wcsp"
    write(read(data("spot5/29.spot")), path)
    network = pytoulbar2.CFN()
    network.Read(str(path))
    assert network.Solve()[1] == 8059


def test_speed(data):
    # About 26 ms on a busy core; the margin is for machines that do other things too.
    path = data("spot5/5.spot")
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        read(path)
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.25
