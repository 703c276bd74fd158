"""Values that float64 cannot hold and counts of thousands of digits: printed, as JSON and in solution files."""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.api.facade import solve
from oocbe.api.tasks.verbs import count, count_optimal
from oocbe.cli.main import app
from oocbe.cli.output import printing
from oocbe.cli.solve import print_task
from oocbe.errors import UsageError, ValueRangeError
from oocbe.formats.solutions import read_solution, write_assignment
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.numerals import all_digits, digits, finite
from oocbe.model.results.task_result import TaskResult
from oocbe.model.semiring import COUNTING

FAST = ["--order-seconds", "0", "--backend", "cpu"]
TABLES = "MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n1 2\n"
PAIR = "4 1e300 2e300 3e300 4e300\n"

run = CliRunner().invoke


@pytest.fixture
def big(tmp_path: Path) -> str:
    """Products of three values of 1e300."""
    file = tmp_path / "big.uai"
    file.write_text(TABLES + PAIR + PAIR + "2 1e300 2.0\n")
    return str(file)


@pytest.mark.parametrize("flags", [[], ["--semiring", "sum-product"], ["--semiring", "max-product"]])
def test_values_beyond_float64_are_null_in_json(big: str, flags: list[str], tmp_path: Path) -> None:
    solution = tmp_path / "big.sol"
    done = run(app, ["solve", big, "--json", *flags, *FAST, "--solution", str(solution)])
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["value"] is None
    assert any("outside the range of float64" in text for text in content["notes"])
    assert solution.exists() == (content["assignment"] is not None)
    if solution.exists():
        verdict = run(app, ["verify", big, str(solution), "--json"])
        assert verdict.exit_code == 0, verdict.stderr
        assert json.loads(verdict.stdout)["value"] is None


def test_a_probability_beyond_float64_has_its_logarithm(big: str) -> None:
    done = run(app, ["solve", big, "--task", "mpe", "--json", *FAST])
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["probability"] is None
    assert content["value"] == pytest.approx(math.log(12) + 900 * math.log(10))


def test_the_best_beyond_float64_come_in_their_order(big: str) -> None:
    done = run(app, ["solve", big, "--task", "kbest", "--k", "4", "--json", "--semiring", "max-product", *FAST])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["assignments"]
    assert [b["value"] for b in found] == [None] * 4
    products = {(x, y): (1 + 2 * x + y) * (1 + 2 * y) for x in range(2) for y in range(2)}  # the third is 0
    expected = sorted(products, key=lambda pair: -products[pair])
    assert [tuple(int(label) for label in b["assignment"].values()) for b in found] == [(*p, 0) for p in expected]


@pytest.mark.parametrize("task", ["count-optimal", "logz", "marginals"])
def test_other_tasks_beyond_float64(big: str, task: str) -> None:
    done = run(app, ["solve", big, "--task", task, "--json", "--semiring", "max-product", *FAST])
    assert done.exit_code == 0, done.stderr
    content = json.loads(done.stdout)
    if task == "count-optimal":
        assert (content["value"], content["optimum"]) == ("1", None)


def counted(number: int) -> TaskResult:
    """A count as if it had that many assignments."""
    return replace(
        count(Problem((Variable("x", 2),)), order_seconds=0.0, backend="cpu"), value=number, log10=None, presolve=()
    )


def test_counts_of_more_digits_than_python_converts(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.get_int_max_str_digits()
    with printing(json=True, quiet=False):
        print_task(counted(2**15000))
    shown = capsys.readouterr()
    assert json.loads(shown.out)["value"] == digits(2**15000)
    assert "count            10^4515.45\n" in shown.err
    with printing(json=False, quiet=True):
        print_task(counted(2**15000))
    assert capsys.readouterr().out == f"exact {digits(2**15000)}\n"
    assert sys.get_int_max_str_digits() == before


@pytest.fixture
def few_digits() -> Iterator[int]:
    """Digits that Python converts: the fewest that it can be told, as problems of such counts are large."""
    before, fewest = sys.get_int_max_str_digits(), sys.int_info.str_digits_check_threshold
    sys.set_int_max_str_digits(fewest)
    yield fewest
    sys.set_int_max_str_digits(before)


def test_results_with_such_counts_are_shown(few_digits: int) -> None:
    """As text, in a notebook, and where the semiring counts; also those of optimal assignments."""
    variables = tuple(Variable(f"x{v}", 64) for v in range(400))
    problem = Problem(variables, (Function.from_array((0,), [1] + [2] * 63),))
    counts = Problem(variables, (), semiring=COUNTING)
    for result in (count(problem), count_optimal(problem), solve(counts)):
        number = digits(64 ** (400 - (result.semiring == "min-sum" and result.optimum is not None)))
        assert digits(result.value) == number and len(number) > few_digits
        assert repr(result).endswith(f": {result.status} {number}>") and str(result) == repr(result)
        html = result._repr_html_()
        assert f"{number[0]}.{number[1:5]}" in html or f"10^{len(number) - 1}." in html


def test_sums_of_such_numbers_are_refused_with_their_length() -> None:
    problem = Problem((Variable("x", 2),), (Function.from_array((0,), [1, 2]),), constant=10**5000)
    with pytest.raises(ValueRangeError, match=r"can reach 100000000000… \(5,001 digits\)"):
        solve(problem)
    with pytest.raises(UsageError, match="is not a finite number"):
        solve(replace(problem, constant=0), ub=10**5000)


@pytest.mark.parametrize(("number", "text"), [(10**60 - 1, "9" * 60), (10**60, "10^60"), (0, "0")])
def test_counts_of_up_to_sixty_digits_are_shown_in_full(
    number: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_task(counted(number))
    assert f"count            {text}\n" in capsys.readouterr().out


def test_numbers_of_any_size(tmp_path: Path) -> None:
    huge = 3**20000
    assert finite(huge) == huge
    assert [finite(x) for x in (None, math.inf, -math.inf, math.nan, 1.5, 0)] == [None, None, None, None, 1.5, 0]
    with all_digits():
        assert int(digits(huge)) == huge
    with pytest.raises(ValueError, match="limit"):
        str(huge)
    write_assignment({"a": "0"}, "p", "max-product", huge, tmp_path / "huge.sol")
    assert read_solution(tmp_path / "huge.sol").claimed_value == huge
    write_assignment({"a": "0"}, "p", "max-product", math.inf, tmp_path / "inf.sol")
    assert read_solution(tmp_path / "inf.sol").claimed_value is None
