"""The one way in which loops are compiled here: Numba, without the interpreter lock, cached on disk.

Parallelism comes from :mod:`oocbe.kernels.cpu.threads` (several calls of one compiled loop over row ranges), not from
Numba's own: a compiled loop without the lock is simpler, can be scheduled dynamically and survives a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile a loop over arrays and numbers on its first call (decorator; the type stays the function's own).

    A cached compilation is renewed when the function's own file changes, not when a compiled function that it calls
    from another file does: keep helpers that change together in one module.
    """
    compiled: Function = numba.njit(nogil=True, cache=True)(function)
    return compiled


def inline(function: Function) -> Function:
    """Like :func:`jit` for a small helper that its callers swallow whole, so that no call remains in their loops."""
    compiled: Function = numba.njit(nogil=True, cache=True, inline="always")(function)
    return compiled
