"""Fixtures of the durability tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from durable_runs import fast_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on a memory disk, in place of pytest's own fixture."""
    with tempfile.TemporaryDirectory(dir=fast_folder(), prefix="pytest-oocbe-") as folder:
        yield Path(folder)
