"""Evidence as ``name=value``, alone and with files."""

import pytest

from oocbe.errors import UsageError
from oocbe.formats import read

NETWORK = """network n { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable a=b { type discrete [ 3 ] { 2, 1, x }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( a=b ) { table 0.5, 0.25, 0.25; }
"""


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "n.bif"
    path.write_text(NETWORK)
    return path


def possible(problem):
    return {(r, a) for r in range(2) for a in range(3) if problem.evaluate((r, a)) is not None}


def test_pairs_by_label_and_number(network, tmp_path):
    assert possible(read(network, evidence="rain=no")) == {(1, 0), (1, 1), (1, 2)}
    assert possible(read(network, evidence=["rain=0", "a=b=x"])) == {(0, 2)}
    assert possible(read(network, evidence=["a=b=2", "a=b=2"])) == {(0, 0), (1, 0)}  # a label comes before a number
    assert possible(read(network, evidence="rain=" + "0" * 5000 + "1")) == {(1, 0), (1, 1), (1, 2)}
    assert possible(read(network, evidence=["a=b=0"])) == {(0, 0), (1, 0)}
    (tmp_path / "n.evid").write_text("1 0 1\n")
    assert possible(read(network, evidence=[str(tmp_path / "n.evid"), "a=b=x"])) == {(1, 2)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["rain=maybe"], "its values are yes, no"),
        (["rain=2"], "its values are"),
        (["snow=yes"], "no variable 'snow'"),
        (["rain=yes", "rain=no"], "another value"),
        (["missing.evid"], "missing.evid"),
        (["snow=" + "y" * 5000], "no such file is there, and .* no variable 'snow'"),
        (["x" * 5000], "cannot be read"),
        (["rain=" + "1" * 5000], "its values are yes, no"),
        (["rain=" + "y" * 5000], "its values are yes, no"),
    ],
)
def test_wrong_evidence_is_refused(network, wrong, message):
    with pytest.raises(UsageError, match=message):
        read(network, evidence=wrong)
