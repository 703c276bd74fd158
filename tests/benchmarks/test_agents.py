"""The benchmark of agents runs from its command, with and without the data folder, and says what is wrong."""

from __future__ import annotations

import json

from oocbe.dcop import Dcop
from oocbe.formats import write
from oocbe.stress import random_network

ARGUMENTS = ("--repeat", "1", "--backend", "cpu")


def test_without_instances_the_command_says_so(tmp_path, run_benchmark):
    assert "no instances in" in run_benchmark("agents", tmp_path, *ARGUMENTS).stderr


def test_instances_are_held_against_their_optima(tmp_path, run_benchmark):
    folder = tmp_path / "dcop"
    (folder / "paper").mkdir(parents=True)
    problem = random_network(5, 3, 0.5, 0.2, seed=4)
    write(Dcop.of(problem), folder / "paper" / "small.xml.gz")
    least = min(
        value
        for number in range(3**5)
        if (value := problem.evaluate([number // 3**v % 3 for v in range(5)])) is not None
    )
    for claimed, code in ((least, 0), (least - 1, 1)):
        (folder / "optima.json").write_text(json.dumps({"small": {"minimum": claimed}}))
        done = run_benchmark("agents", tmp_path, *ARGUMENTS)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("small: the agents' value is" in done.stdout) == bool(code)


def test_widths(tmp_path, run_benchmark):
    done = run_benchmark("agents", tmp_path, *ARGUMENTS, "--widths", "--seeds", "1", "--domain", "3", "--largest", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all values are those of oocbe.solve" in done.stdout
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"random", "scale-free", "grid"}
