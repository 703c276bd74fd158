"""A signal while a certificate or a proof is made: the answer is printed all the same, and no file is written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.certificates.making import Maker
from oocbe.certificates.proofs import CountWriter
from oocbe.cli.main import app
from oocbe.errors import EXIT_LIMIT
from oocbe.runtime.deadline import check_deadline
from oocbe.stress.tables import random_network
from tools.fuzzing.proofs_mode import claim_of, scale_and_offset

EXAMPLE = Path(__file__).parents[2] / "examples" / "daily.spot"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_answer_stays_where_the_certificate_is_interrupted(tmp_path, monkeypatch, interrupts_heard, number):
    def endless(maker, seconds):
        signal.raise_signal(number)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.01)
        raise AssertionError("nothing ended it")

    monkeypatch.setattr(Maker, "make", endless)
    target = tmp_path / "proof.json"
    done = CliRunner().invoke(app, ["solve", str(EXAMPLE), "--json", "--certificate", str(target)])
    assert done.exit_code == EXIT_LIMIT
    assert json.loads(done.stdout)["value"] == 2112
    assert "before it was made" in done.stderr
    assert not target.exists()


@pytest.mark.parametrize("checks", [True, False])
def test_the_count_stays_where_its_proof_is_interrupted(tmp_path, monkeypatch, interrupts_heard, checks):
    def endless(writer):
        signal.raise_signal(signal.SIGINT)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.01)
            if checks:
                check_deadline()
        raise AssertionError("nothing ended it")

    monkeypatch.setattr(CountWriter, "write_count", endless)
    path, proof, opb = tmp_path / "small.cnf", tmp_path / "p.pbp", tmp_path / "p.opb"
    path.write_text("p cnf 2 1\n1 2 0\n")
    words = ["solve", str(path), "--task", "count", "--json", "--proof", str(proof), "--opb", str(opb)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == EXIT_LIMIT
    assert json.loads(done.stdout)["value"] == "3"
    assert "no proof was written: interrupted by Ctrl-C" in json.loads(done.stdout)["notes"]
    assert not proof.exists() and opb.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_proof_that_was_killed_is_written_by_the_resumed_solve(tmp_path: Path, number: int) -> None:
    """No file has the proof's name before it is whole; the resumed run keeps the value and writes the proof anew."""
    proof, opb, small = tmp_path / "p.pbp", tmp_path / "p.opb", tmp_path / "small.wcsp"
    problem = random_network(12, 3, 0.4, 0.2, seed=1)
    best = oocbe.solve(problem).value
    oocbe.write(problem, small)
    proof.write_text("an older proof, of another formula")
    program = [
        "import sys, time, oocbe.certificates.veripb as veripb",
        "from oocbe.cli.main import app",
        "def slowly(writer, v, bucket=veripb.ProofWriter._bucket):",
        "    bucket(writer, v)",
        "    print('bucket', file=sys.stderr, flush=True)",
        "    for _ in range(600): time.sleep(0.1); veripb.check_deadline()",
        "veripb.ProofWriter._bucket = slowly",
        "app(sys.argv[1:])",
    ]
    words = [
        "solve",
        str(small),
        "--order-seconds",
        "0.1",
        "--bound-seconds",
        "0",
        "--workdir",
        str(tmp_path / "run"),
    ]
    words += ["--proof", str(proof), "--opb", str(opb)]
    with subprocess.Popen(
        [sys.executable, "-c", "\n".join(program), *words], stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        assert any(line == "bucket\n" for line in child.stderr)
        begun = [path.name for path in tmp_path.iterdir() if path.name not in ("p.opb", "run", "small.wcsp")]
        assert not proof.exists() and len(begun) == 1
        child.send_signal(number)
        printed = child.stderr.read()
    assert not proof.exists() and ("no proof was written" in printed) == (number == signal.SIGTERM)
    done = CliRunner().invoke(app, [*words, "--resume"])
    assert done.exit_code == 0 and f"proof: an optimum of {best}" in done.output
    assert claim_of(opb, proof)[1:] == ((best - scale_and_offset(opb)[1]),) * 2
    assert {path.name for path in tmp_path.iterdir()} - {*begun} == {"p.pbp", "p.opb", "run", "small.wcsp"}
