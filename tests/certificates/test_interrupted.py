"""A signal while a certificate is made: the answer that is proven is printed all the same, and no file is written."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oocbe.certificates.making import Maker
from oocbe.cli.main import app
from oocbe.errors import EXIT_LIMIT

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
