"""Threads hand the interpreter over quickly inside the block, and as before when the last user has left it."""

import sys

import pytest

from oocbe.kernels.cuda.transfer.conveyor import SECONDS, quick_switching


def test_blocks_may_overlap_in_any_order():
    before = sys.getswitchinterval()
    first, second = quick_switching(), quick_switching()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SECONDS)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_an_error_ends_it():
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), quick_switching():
        raise KeyError
    assert sys.getswitchinterval() == before
