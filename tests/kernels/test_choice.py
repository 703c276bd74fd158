"""Which backend is taken: names, the environment, automatic choice, and what is said where there is no GPU."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from oocbe.errors import UsageError
from oocbe.kernels import AUTO_ROWS, backend_for, backend_named, choice
from oocbe.kernels.cuda import device
from oocbe.model.settings.machine import device_memory_limit
from oocbe.runtime import writable

REASON = "this machine has no CUDA device"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("OOCBE_BACKEND", raising=False)
    choice.cuda_works.cache_clear()
    yield
    choice.cuda_works.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "why_unavailable", lambda: REASON)
    device.cupy.cache_clear()
    choice._cuda.cache_clear()
    yield
    device.cupy.cache_clear()
    choice._cuda.cache_clear()


def test_names(no_gpu):
    assert backend_named("cpu").name == "cpu"
    with pytest.raises(UsageError, match="unknown backend 'gpu'; known: auto, cpu, cuda"):
        backend_for(1, "gpu")
    with pytest.raises(UsageError, match=f"cuda backend cannot be used: {REASON}"):
        backend_for(1, "cuda")


def test_the_environment_says_which(monkeypatch, no_gpu):
    monkeypatch.setenv("OOCBE_BACKEND", "cuda")
    with pytest.raises(UsageError, match=REASON):
        backend_for(1)
    assert backend_for(1, "cpu").name == "cpu"
    kernels = backend_named("cpu")
    assert backend_for(1, kernels) is kernels


@pytest.mark.parametrize("given", [True, False])
def test_without_a_home_cupy_keeps_its_kernels_among_temporary_files(monkeypatch, tmp_path, given):
    """It fails to compile any kernel where it cannot write; a place that a user has given is left alone."""
    (tmp_path / "home").write_text("a file where a folder should be")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(writable.tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv(device.CACHE_VARIABLE, str(tmp_path / "mine") if given else "")
    device._give_cupy_a_cache()
    found = device.cupy_cache()
    assert found == (str(tmp_path / "mine") if given else f"{tmp_path}/scratch/oocbe-cupy-{os.geteuid()}")
    assert Path(found).is_dir() != given


@pytest.mark.parametrize("asked_for", [False, True])
def test_without_a_gpu_auto_says_why_once(no_gpu, caplog, asked_for):
    caplog.set_level(logging.INFO, logger="oocbe")
    for _ in range(3):
        assert backend_for(AUTO_ROWS, "auto" if asked_for else None).name == "cpu"
    assert [record.levelname for record in caplog.records] == ["WARNING" if asked_for else "INFO"]
    assert REASON in caplog.text


def test_few_rows_stay_on_the_cpu_without_a_look_for_a_gpu(monkeypatch):
    monkeypatch.setattr(device, "why_unavailable", lambda: pytest.fail("looked for a GPU"))
    assert backend_for(AUTO_ROWS - 1, "auto").name == "cpu"


@pytest.mark.gpu
def test_many_rows_go_to_the_gpu(cuda):
    assert backend_for(AUTO_ROWS).name == "cuda"
    assert backend_for(0, "auto", on_device=True).name == "cuda"


def test_the_environment_limits_device_memory_in_bytes(monkeypatch):
    monkeypatch.delenv("OOCBE_DEVICE_MEMORY", raising=False)
    assert device_memory_limit() is None
    monkeypatch.setenv("OOCBE_DEVICE_MEMORY", "")
    assert device_memory_limit() is None
    monkeypatch.setenv("OOCBE_DEVICE_MEMORY", "3GiB")
    assert device_memory_limit() == 3 << 30
    monkeypatch.setenv("OOCBE_DEVICE_MEMORY", "much")
    with pytest.raises(UsageError, match="OOCBE_DEVICE_MEMORY: 'much' is not a number of bytes"):
        device_memory_limit()
