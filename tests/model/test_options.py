"""Options: three ways in, one validation, and no name that is silently ignored."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oocbe.errors import UsageError
from oocbe.model.semiring import COUNTING
from oocbe.model.settings.machine import available_memory, control_group_limit
from oocbe.model.settings.options import OTHER_VARIABLES, SolveOptions
from oocbe.runtime.process_memory import peak_memory


def test_precedence_is_argument_then_environment_then_default() -> None:
    options = SolveOptions.from_environment({"OOCBE_SEED": "7", "OOCBE_ORDER_SECONDS": "2", "HOME": "/"})
    assert (options.seed, options.order_seconds, options.order) == (7, 2.0, "auto")
    assert options.with_overrides(seed=8).seed == 8
    assert options.with_overrides(seed=8).order_seconds == 2.0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *[("2GiB", 2 << 30), ("512 MiB", 512 << 20), ("1.5g", 3 << 29), ("2GB", 2 * 10**9), ("2000000", 2_000_000)],
        *[("2e9", 2 * 10**9), ("1e30", 2**63 - 1), ("1e3m", 1000 << 20)],
    ],
)
def test_sizes_in_bytes(text: str, count: int) -> None:
    assert SolveOptions.from_mapping({"memory": text}).memory == count


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("memory", "2", "unit"),
        ("memory", "much", "2GiB"),
        ("memory", "2 XiB", "2GiB"),
        ("memory", True, "number of bytes"),
        ("order", "min-fil", "weighted-min-fill"),
        ("order_seconds", "-1", "0 or more"),
        ("order_seconds", "nan", "seconds"),
        ("order_seconds", None, "seconds"),
        ("order_seconds", 10**400, "seconds"),
        ("time_limit", "9" * 400, "seconds"),
        ("ub", 10**400, "finite number"),
        ("ub", "9" * 5000, "finite number"),
        ("gap", "9" * 400, "no gap"),
        ("seed", "9" * 5000, "integer"),
        ("memory", "9" * 5000 + " GiB", "2GiB"),
        ("memory", "9" * 400 + ".5 GiB", "2GiB"),
        ("seed", "1.5", "integer"),
        ("seed", -1, "at least 0"),
        ("dominance", "perhaps", "truth value"),
        ("semiring", "min-product", "max-product"),
        ("semiring", 3, "semiring"),
        ("chunk_rows", 0, "at least 1"),
        ("workdir", " ", "path"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_accepted(name: str, value: object, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        SolveOptions.from_mapping({name: value})


def test_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean chunk_rows"):
        SolveOptions.from_mapping({"chunk_row": 3})
    with pytest.raises(UsageError, match="known: order"):
        SolveOptions().with_overrides(colour="red")


def test_unknown_environment_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="OOCBE_MEMROY; did you mean OOCBE_MEMORY"):
        SolveOptions.from_environment({"OOCBE_MEMROY": "2GiB"})
    others = dict.fromkeys(OTHER_VARIABLES, "1")
    assert SolveOptions.from_environment(others) == SolveOptions()


def test_bad_environment_value_says_that_it_came_from_there() -> None:
    with pytest.raises(UsageError, match=r"^OOCBE_SEED: 'x'"):
        SolveOptions.from_environment({"OOCBE_SEED": "x"})
    assert SolveOptions.from_environment({"OOCBE_SEED": ""}).seed == SolveOptions().seed


def test_text_is_parsed_whichever_way_it_comes() -> None:
    options = SolveOptions.from_mapping({"semiring": "counting", "dominance": "off", "workdir": "tables"})
    assert (options.semiring, options.dominance, options.workdir) == (COUNTING, False, Path("tables"))
    assert options.to_json()["semiring"] == "counting"
    assert options.to_json()["workdir"] == "tables"
    assert options.to_json()["memory"] is None


def test_order_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "order.txt"
    file.write_text("a\nb\n")
    assert SolveOptions(order=str(file)).order == str(file)
    with pytest.raises(UsageError, match="nor a file that exists"):
        SolveOptions(order=str(tmp_path / "missing"))


def test_memory_limit_follows_the_machine() -> None:
    assert 0 < SolveOptions().memory_limit < available_memory()
    assert SolveOptions(memory=1 << 30).memory_limit == 1 << 30
    assert 0 < peak_memory() < 1 << 50


def test_the_peak_of_memory_is_this_process_s_own():
    large = np.ones(300 << 17)  # 300 MiB, which getrusage of a child includes
    script = "from oocbe.runtime.process_memory import peak_memory; print(peak_memory())"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert 1 << 20 < int(found) < large.nbytes


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    (tmp_path / "job" / "step").mkdir(parents=True)
    (tmp_path / "job" / "memory.max").write_text("4096\n")
    (tmp_path / "job" / "step" / "memory.max").write_text("max\n")
    assert control_group_limit(tmp_path, Path("/job/step")) == 4096
    assert control_group_limit(tmp_path, Path("/other")) is None
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1024\n")
    assert control_group_limit(tmp_path, Path("/job/step")) == 1024
    (tmp_path / "memory" / "job").mkdir()
    (tmp_path / "memory" / "job" / "memory.limit_in_bytes").write_text("512\n")
    assert control_group_limit(tmp_path, Path("/job/step")) == 512
