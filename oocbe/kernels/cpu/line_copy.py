"""Copies to memory that a device reads: past the caches, or through a ring that stays in them.

An ordinary store first loads the target line into a cache. If the copy is larger than the caches, that wastes a third
of all traffic: eight threads beside a busy bus copied 28 GB/s with ordinary stores, 38 GB/s past the caches. A ring of
48 MiB that is used again and again stays in the caches of a server, and the device reads it from there: ordinary stores
then copied 50 GB/s, the speed of the bus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.kernels.cpu.jit import jit
from oocbe.kernels.cpu.native import (
    LINE_BYTES,
    copy_byte,
    copy_cached_line,
    copy_line,
    finish_lines,
    number_at,
    pause,
    set_number_at,
)

PAUSE_MICROSECONDS = 20
"""Sleep of a thread that waits for a free stretch in a ring; copying a piece takes twenty times as long."""

POLLS = 10
"""Maximum number of such sleeps in one wait for a piece: then the caller looks for errors and free memory."""


@jit
def _copy_lines(target: Any, source: Any, lines: Any) -> Any:
    """Copy ``lines`` lines from one address to another."""
    for line in range(lines):
        copy_line(target + line * LINE_BYTES, source + line * LINE_BYTES)
    finish_lines()
    return lines


def copy_past_caches(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy an array (items,) into another of its dtype and length; both are contiguous and do not overlap."""
    if source.dtype != target.dtype or source.shape != target.shape:
        raise ValueError(f"{source.shape} of {source.dtype} do not fit into {target.shape} of {target.dtype}")
    there, here = target.view(np.uint8), source.view(np.uint8)
    head = min(len(there), -target.ctypes.data % LINE_BYTES)
    lines = (len(there) - head) // LINE_BYTES
    tail = head + lines * LINE_BYTES
    there[:head], there[tail:] = here[:head], here[tail:]
    if lines:
        _copy_lines(target.ctypes.data + head, source.ctypes.data + head, lines)


@jit
def fill_ring(copies: Any, ring: Any, state: Any, thread: Any) -> Any:
    """Copy a thread's share of every piece into a ring of equal stretches of memory, until all are copied.

    A waiting thread polls the other threads' counters, without the interpreter.

    copies : int64 (pieces, columns, 3), address and bytes of each column, and its offset in the piece's memory, a
        multiple of a line. ring : int64 (3,), address of the first stretch, a multiple of a line; bytes of each; number
        of stretches. state : int64 (threads + 2, a line), counters in the first number of each line: pieces copied by
        each thread, written here; pieces whose memory is free again; and a stop flag, nonzero to end.
    """
    threads = len(state) - 2
    line = state.itemsize * state.shape[1]
    begin = state.ctypes.data
    own, freed, stop = begin + thread * line, begin + threads * line, begin + (threads + 1) * line
    for piece in range(len(copies)):
        while number_at(freed) + ring[2] <= piece:
            if number_at(stop) != 0:
                return piece
            pause(PAUSE_MICROSECONDS)
        if number_at(stop) != 0:
            return piece
        for column in range(copies.shape[1]):
            source, nbytes = copies[piece, column, 0], copies[piece, column, 1]
            target = ring[0] + piece % ring[2] * ring[1] + copies[piece, column, 2]
            lines = nbytes // LINE_BYTES
            for at in range(lines * thread // threads, lines * (thread + 1) // threads):
                copy_cached_line(target + at * LINE_BYTES, source + at * LINE_BYTES)
            if thread == threads - 1:
                for at in range(lines * LINE_BYTES, nbytes):
                    copy_byte(target + at, source + at)
        finish_lines()
        set_number_at(own, piece + 1)
    return len(copies)


@jit
def wait_for_piece(state: Any, piece: Any) -> Any:
    """Wait, without the interpreter, until threads of :func:`fill_ring` copied a piece, or for :data:`POLLS`."""
    line = state.itemsize * state.shape[1]
    thread, polls = 0, 0
    while thread < len(state) - 2 and polls < POLLS:
        if number_at(state.ctypes.data + thread * line) > piece:
            thread += 1
        else:
            pause(PAUSE_MICROSECONDS)
            polls += 1
    return thread
