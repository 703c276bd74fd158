"""Common parts of all verbs: limits, the time of reading, and the exception after Ctrl-C with the partial result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from oocbe.errors import RequestedEndError
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.interruption import listening
from oocbe.runtime.memory import MemoryLimit

if TYPE_CHECKING:
    from oocbe.model.results.anytime_result import AnytimeResult
    from oocbe.model.results.bound_result import BoundResult
    from oocbe.model.results.dcop_result import DcopResult
    from oocbe.model.results.propagation_result import PropagationResult
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult

Given = TypeVar("Given")
Read = TypeVar("Read")
Answer = TypeVar("Answer", bound="Result | TaskResult | BoundResult | PropagationResult | DcopResult | AnytimeResult")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C interrupted a verb of the library; the result so far is attached.

    Attributes
    ----------
    result : the verb's result, with the status ``interrupted`` (or its own, if it had just ended).
    """

    def __init__(
        self, message: str, result: Result | TaskResult | BoundResult | PropagationResult | DcopResult | AnytimeResult
    ) -> None:
        super().__init__(message)
        self.result = result


def run_verb(
    given: Given,
    read: Callable[[Given], Read],
    work: Callable[[Read], Answer],
    time_limit: float | None,
    memory_limit: int | None = None,
) -> Answer:
    """The result of a verb of the library: a problem is read, and worked on.

    given, time_limit : as for :func:`read_and_work`. memory_limit : bytes; None: no limit.
    Raises Interrupted: Ctrl-C was pressed; its ``result`` is the one so far; KeyboardInterrupt: there is none yet.
    """
    limited = nullcontext() if memory_limit is None else MemoryLimit(memory_limit)
    with limited, listening() as interruption:
        try:
            _, answer = read_and_work(given, read, work, time_limit)
        except RequestedEndError:
            raise KeyboardInterrupt(interruption.reason) from None
    if interruption.is_requested:
        raise Interrupted(interruption.reason, answer)
    return answer


def read_and_work(
    given: Given, read: Callable[[Given], Read], work: Callable[[Read], Answer], time_limit: float | None
) -> tuple[Read, Answer]:
    """A problem, and the result of work on it with the seconds of reading: as ``read`` and in the ``total``.

    given : the problem, which has no seconds of reading if it stays as it is, or a path.
    time_limit : seconds for both; None: no limit.
    """
    begin = time.perf_counter()
    with Deadline(time_limit):
        loaded = read(given)
        reading, is_read = time.perf_counter() - begin, loaded is not given
        answer = work(loaded)
    seconds: Any = answer.seconds
    if is_read and isinstance(seconds, float):
        seconds += reading
    elif is_read:
        own = {"read": reading, "total": reading + seconds.get("total", 0.0)}
        seconds = {"read": 0.0, **seconds} | own
    return loaded, replace(answer, seconds=seconds) if is_read else answer
