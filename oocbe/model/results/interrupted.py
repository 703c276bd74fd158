"""The exception of the library's verbs after Ctrl-C, with the result so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from oocbe.errors import RequestedEndError
from oocbe.runtime.interruption import Interruption, listening

if TYPE_CHECKING:
    from oocbe.model.results.bound_result import BoundResult
    from oocbe.model.results.dcop_result import DcopResult
    from oocbe.model.results.propagation_result import PropagationResult
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult

Answer = TypeVar("Answer", "Result", "TaskResult", "BoundResult", "PropagationResult", "DcopResult")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C interrupted a verb of the library; the result so far is attached.

    Attributes
    ----------
    result : the verb's result, with the status ``interrupted`` (or its own, if it had just ended).
    """

    def __init__(
        self, message: str, result: Result | TaskResult | BoundResult | PropagationResult | DcopResult
    ) -> None:
        super().__init__(message)
        self.result = result


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Within the block Ctrl-C is a request to end; KeyboardInterrupt if the block ends without a result."""
    with listening() as interruption:
        try:
            yield interruption
        except RequestedEndError:
            raise KeyboardInterrupt(interruption.reason) from None


def attach_interruption(answer: Answer, interruption: Interruption) -> Answer:
    """The answer of an :func:`interruptible` block; after Ctrl-C raises :class:`Interrupted` with it."""
    if interruption.is_requested:
        raise Interrupted(interruption.reason, answer)
    return answer
