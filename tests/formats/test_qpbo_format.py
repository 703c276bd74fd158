"""Reading and writing qpbo: meaning by toulbar2, round trips, and every kind of damage with its line."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read, write

PEER = """
import os, sys, pytoulbar2
for path in sys.argv[1:]:
    if os.fork():  # the format leaves settings behind, which the next one would be refused for
        os.wait()
        continue
    network = pytoulbar2.CFN()
    network.Read(path)
    network.CFN.wcsp.sortConstraints()
    network.CFN.solve()  # Solve() refuses the format for the precision that reading it has set
    print(network.CFN.wcsp.getDPrimalBound(), flush=True)
    os._exit(0)
"""


def random_text(rng, count, entries, fractions):
    pairs = rng.integers(1, abs(count) + 1, size=(abs(entries), 2))
    weights = rng.integers(-9, 10, size=abs(entries)) * (0.25 if fractions else 1)
    rows = [f"{i} {j} {w}" for (i, j), w in zip(pairs.tolist(), weights.tolist(), strict=True)]
    return "\n".join([f"{count} {entries}", *rows]) + "\n"


def test_optima_are_those_of_toulbar2(tmp_path):
    pytest.importorskip("pytoulbar2")
    rng = np.random.default_rng(3)
    paths = []
    for number, (count, entries, fractions) in enumerate(
        [(5, 12, False), (-5, 12, False), (5, -12, True), (-4, -9, True)]
    ):
        path = tmp_path / f"{number}.qpbo"
        path.write_text(random_text(rng, count, entries, fractions))
        paths.append((path, count, entries, fractions))
    done = subprocess.run(
        [sys.executable, "-c", PEER, *(path for path, *_ in paths)], capture_output=True, text=True, check=True
    )
    for (path, count, entries, fractions), said in zip(paths, done.stdout.split(), strict=True):
        problem = read(path)
        values = [problem.evaluate(a) for a in itertools.product(range(2), repeat=abs(count))]
        best = min(values) if entries > 0 else max(values)
        assert best == float(said)
        assert isinstance(best, float) == fractions
        assert oocbe.solve(problem).value == best


@pytest.mark.parametrize("seed", range(4))
def test_what_is_written_is_read_back_equal(tmp_path, seed):
    rng = np.random.default_rng(seed)
    (tmp_path / "p.qpbo").write_text(random_text(rng, 4, 9 if seed % 2 else -9, seed > 1))
    problem = read(tmp_path / "p.qpbo")
    write(problem, tmp_path / "q.qpbo")
    again = read(tmp_path / "q.qpbo")
    assert again.semiring == problem.semiring
    for a in itertools.product(range(2), repeat=4):
        assert again.evaluate(a) == problem.evaluate(a)


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        ("2", 1, "expected the number of coefficients"),
        ("c\n2 1\n1 1 1", 1, "expected the number of variables, an integer"),
        ("2 2\n1 1 3\n1 2", 3, "the file ends after 1 coefficients, expected 2"),
        ("2 1\n1 1 3\n1", 3, "after 1 coefficients, expected the end of the file"),
        ("2 1\n\n1 3 3", 3, "found 3, expected a variable, between 1 and 2"),
        ("-2 1\n0 1 3", 2, "found 0, expected a variable, between 1 and 2"),
        ("2 1\n1 2 nan", 2, "found 'nan', expected a coefficient, a finite number"),
        (f"2 1\n1 2 {2**62}", 2, "add up to more than 64 bits hold"),
    ],
)
def test_damage(tmp_path, content, line, expected):
    path = tmp_path / "p.qpbo"
    path.write_text(content)
    with pytest.raises(FormatError, match=re.escape(expected)) as caught:
        read(path)
    assert caught.value.line == line


def test_what_the_format_cannot_hold(tmp_path):
    two, three = oocbe.Variable("a", 2), oocbe.Variable("b", 3)
    for problem, why in [
        (oocbe.Problem((three,), ()), "variable b has other than two values"),
        (oocbe.Problem((two,), (oocbe.Function.from_array((0,), [1, 2]),)), "no constant"),
        (oocbe.Problem((two,), (oocbe.Function((0,), np.array([[0]]), np.array([0])),)), "no constraints"),
        (oocbe.Problem((two,), (), constant=5, upper_bound=5), "upper bound 5 may bind"),
        (oocbe.Problem((two,), (), semiring=oocbe.SUM_PRODUCT), "not a sum-product problem"),
    ]:
        with pytest.raises(UnsupportedError, match=why):
            write(problem, tmp_path / "p.qpbo")
