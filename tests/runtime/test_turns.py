"""Threads pass results on in the order of their pieces, and end when an earlier piece failed."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocbe.runtime.turns import StoppedError, Turns


def test_results_come_in_order_and_a_piece_may_be_alone():
    turns, found, at_work = Turns(), [], set()

    def piece(number):
        turns.begin(number)
        at_work.add(number)
        time.sleep(random.Random(number).random() / 500)
        if number % 3 == 0:
            at_work.discard(number)
            turns.be_alone(number)
            assert not at_work
            at_work.add(number)
            time.sleep(0.001)
        at_work.discard(number)
        turns.wait(number)
        found.append(number)
        turns.end(number)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(piece, range(30)))
    assert found == list(range(30))


def test_an_error_ends_later_pieces_and_no_earlier_one():
    turns, waiting = Turns(), threading.Barrier(3)

    def piece(number):
        turns.begin(number)
        waiting.wait()
        if number == 1:
            turns.fail(number)
            raise KeyError(number)
        turns.end(number)

    with ThreadPoolExecutor(3) as threads:
        first, second, third = (threads.submit(piece, number) for number in range(3))
        first.result()
        with pytest.raises(KeyError):
            second.result()
        with pytest.raises(StoppedError):
            third.result()
