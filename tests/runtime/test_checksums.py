"""Checksums are those of zlib, whatever computes them: what is on disk was written by another version or machine."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from oocbe.runtime.checksums import crc32


def test_the_fast_one_is_used_where_there_is_one():
    isal_zlib = pytest.importorskip("isal.isal_zlib", reason="ISA-L is not made for this processor")
    assert crc32 is isal_zlib.crc32


def test_the_check_value_of_crc_32():
    assert crc32(b"123456789") == 0xCBF43926


@pytest.mark.parametrize("size", [0, 1, 7, 63, 5000, 1_000_003])
def test_as_zlib_has_it(size):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert crc32(data.data) == zlib.crc32(data.tobytes())
