"""Fixtures of the durability tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.memory_disk import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on a memory disk, in place of pytest's own fixture."""
    with memory_folder() as folder:
        yield folder
