"""Stretches of memory: never over one another, free when the last array is gone, and joined again."""

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocbe.runtime.stretches import ALIGNMENT, Region, rounded, shorten


def region(pages, given_up=None):
    gone = [] if given_up is None else given_up
    return Region(np.zeros(pages * ALIGNMENT, np.uint8), lambda: gone.append(pages))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6 * ALIGNMENT)), max_size=40))
def test_arrays_are_apart_and_what_is_gone_is_free_again(steps):
    memory = region(20)
    living = []
    for number, (choice, size) in enumerate(steps, start=1):
        if choice < 3 and living:
            living.pop(size % len(living))
        elif choice < 5 and living:
            array, length, own = living[size % len(living)]
            shorten(array, length // 2)
            living[size % len(living)] = array, length // 2, own
        else:
            array = memory.take(size)
            if array is None:
                assert memory.largest() < rounded(size)
            else:
                array[:] = number
                living.append((array, size, number))
        array = None
        assert all((array[:length] == own).all() for array, length, own in living)
    living.clear()
    assert memory.is_free()


def test_a_view_keeps_its_stretch():
    memory = region(4)
    view = memory.take(3 * ALIGNMENT)[10:20].view(np.uint16)
    assert memory.largest() == ALIGNMENT
    assert memory.take(2 * ALIGNMENT) is None
    del view
    assert memory.is_free()


def test_what_lies_behind_a_shortened_array_is_free():
    memory = region(8)
    array = memory.take(8 * ALIGNMENT)
    shorten(array, ALIGNMENT + 1)
    assert memory.largest() == 6 * ALIGNMENT
    behind = memory.take(6 * ALIGNMENT)
    behind[:] = 1
    array[: ALIGNMENT + 1] = 2
    assert (behind == 1).all()
    del array, behind
    assert memory.is_free()


def test_closed_memory_is_given_up_once_with_its_last_array():
    given_up = []
    memory = region(4, given_up)
    first, second = memory.take(5), memory.take(5)
    memory.close()
    del first
    assert given_up == []
    del second
    assert given_up == [4]
    memory.close()
    assert given_up == [4]


def test_closed_memory_hands_out_nothing_more():
    memory = region(4)
    held = memory.take(1)
    memory.close()
    assert memory.take(1) is None
    assert memory.largest() == 0
    assert not memory.is_free()
    del held


def test_an_interrupt_while_an_array_is_shortened_gives_nothing_back_twice(monkeypatch):
    memory = region(8)
    array = memory.take(8 * ALIGNMENT)
    give_back = Region._give_back

    def interrupted(self, start, stop):
        monkeypatch.setattr(Region, "_give_back", give_back)
        give_back(self, start, stop)
        raise KeyboardInterrupt

    monkeypatch.setattr(Region, "_give_back", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shorten(array, ALIGNMENT)
    behind = memory.take(7 * ALIGNMENT)
    del array
    assert memory.largest() == ALIGNMENT
    del behind
    assert memory.is_free()


def test_an_array_that_dies_while_others_are_taken_back_is_taken_back_too():
    """The garbage collector may run at any moment, also inside the region's methods."""
    given_up = []
    memory = region(4, given_up)
    arrays = [memory.take(1) for _ in range(4)]

    class Returned(deque):
        def popleft(self):
            if len(arrays) > 1:
                arrays.pop()
            return super().popleft()

    memory._returned = Returned()
    arrays.pop()
    assert memory.largest() == 3 * ALIGNMENT
    memory.close()
    assert given_up == []
    arrays.pop()
    assert given_up == [4]


def test_threads_take_and_give_back_at_once():
    memory = region(64)

    def work(number):
        for size in range(200):
            array = memory.take(1 + size * 37 % (4 * ALIGNMENT))
            if array is not None:
                array[:] = number
                assert (array == number).all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.is_free()
