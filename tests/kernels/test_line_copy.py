"""Copies past the caches: every byte, wherever both arrays begin, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.kernels.cpu.line_copy import copy_past_caches, wait_for_piece
from oocbe.kernels.cpu.native import LINE_BYTES


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000, 10_007])
def test_every_byte_is_copied_and_no_other(count):
    bytes_of_all = np.random.default_rng(count).integers(1, 255, 2 * count + 300, dtype=np.uint8)
    for first in (0, 1, 8, 63):
        for source in (bytes_of_all[count:], bytes_of_all[count + 3 :]):
            target = np.zeros(count + 300, dtype=np.uint8)
            copy_past_caches(target[first : first + count], source[:count])
            assert (target[first : first + count] == source[:count]).all()
            assert not target[:first].any() and not target[first + count :].any()


def test_items_of_several_bytes():
    source = np.random.default_rng(0).random(1001)
    target = np.zeros(1003)
    copy_past_caches(target[1:1002], source)
    assert target.tolist() == [0, *source.tolist(), 0]


def test_other_arrays_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        copy_past_caches(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="do not fit"):
        copy_past_caches(np.zeros(3, dtype=np.int64), np.zeros(3))


def test_a_wait_for_a_piece_ends_when_all_threads_have_copied_it_or_after_some_sleeps():
    state = np.zeros((3 + 2, LINE_BYTES // 8), dtype=np.int64)
    state[:3, 0] = 5, 4, 5
    assert wait_for_piece(state, 3) == 3
    assert wait_for_piece(state, 4) == 1  # the second thread is late
    state[1, 0] = 5
    assert wait_for_piece(state, 4) == 3
