"""Work in pieces: pieces that exceed the memory are cut in advance, and halved when an allocation fails.

A *piece* is defined by its caller: ranges of rows, the frontier of a join. The caller provides plain functions that
halve a piece (a :class:`Cutter`) and classify errors as failed allocations. A :class:`Worklist` yields the pieces, and
the caller computes them:

* Pieces are processed sequentially, in the order of their results.
* After a failed allocation, the memory of the attempt is released first, with the frames of its error. Then the halves
  are computed in its place, and halved further if necessary.
* An indivisible piece is computed alone, if the caller supports it, or refused with its cutter's reason.
* Every other error (a deadline, Ctrl-C, damaged data) is propagated; no piece remains in progress.

For pieces with several results, or with memory reserved during their processing, :func:`run_piece` iterates over such
a list: results yielded by a failed attempt are not repeated; its halves skip as many rows.

Several pieces at a time, each in its own stream: :mod:`oocbe.execution.pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from oocbe.errors import ResourceError, without_frames

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Indivisible(Generic[Piece]):
    """A cutter's result for an indivisible piece.

    piece : the remaining piece to compute: itself, or less of it if some rows have no partners.
    reason : table or bucket, size, and reason why it cannot be cut; beginning of the error message.
    """

    piece: Piece
    reason: str


Cutter: TypeAlias = Callable[[Piece], Iterable[Piece] | Indivisible[Piece]]
"""Halves a piece: smaller pieces whose concatenated results are the piece's; none if the piece has no result.

They may be generated lazily: the next one is requested after the completion of the previous ones.
"""


@dataclass(frozen=True)
class Resumption(Generic[Result]):
    """Resumption of a failed attempt by the next one, for pieces with several results.

    rows : rows of a result; concatenated, they are the same in every attempt, regardless of the results' boundaries.
    after : a result without its first rows, perhaps all.
    """

    rows: Callable[[Result], int]
    after: Callable[[Result, int], Result]


def cut_to_fit(piece: Piece, cutter: Cutter[Piece], fits: Callable[[Piece], bool]) -> Generator[Piece, None, None]:
    """A piece cut in halves until all fit, in order; indivisible ones unchanged."""
    todo: list[Iterator[Piece]] = [iter((piece,))]
    while todo:
        here = next(todo[-1], None)
        if here is None:
            todo.pop()
        elif fits(here):
            yield here
        elif isinstance(halves := cutter(here), Indivisible):
            yield halves.piece
        else:
            todo.append(iter(halves))


class Worklist(Generic[Piece]):
    """A piece, or its halves after a failed allocation, to be computed sequentially::

        worklist = Worklist(whole, cutter, is_too_large)
        for piece in worklist:
            with worklist:
                results += compute(piece)
            del piece  # release the piece before the next one is made

    is_too_large : whether an error in the block means a failed allocation, or a result larger than its room, so that
        halves may succeed. All other errors are propagated.
    has_alone : whether the caller can compute an indivisible piece once more, in another way.
    is_alone : whether the current piece is such a one; its errors are propagated.
    Raises ResourceError: from the iteration; an allocation failed for an indivisible piece.
    """

    def __init__(
        self, piece: Piece, cutter: Cutter[Piece], is_too_large: Callable[[Exception], bool], has_alone: bool = False
    ) -> None:
        self._todo: list[Iterator[Piece]] = [iter((piece,))]
        self._cutter, self._is_too_large, self._has_alone = cutter, is_too_large, has_alone
        self._error: Exception | None = None
        self.is_alone = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or self.is_alone or not self._is_too_large(error):
            return False
        self._error = without_frames(error)  # the frames refer to the failed attempt's arrays
        return True

    def __iter__(self) -> Iterator[Piece]:
        while self._todo:
            here = None  # release the piece before the next one is made
            here = next(self._todo[-1], None)
            if here is None:
                self._todo.pop()
                continue
            yield here
            error, self._error = self._error, None
            if error is None:
                continue
            # Outside the block: the memory of the failed attempt is released.
            halves = self._cutter(here)
            if not isinstance(halves, Indivisible):
                self._todo.append(iter(halves))
            elif self._has_alone:
                here = None
                self.is_alone = True
                yield halves.piece
                self.is_alone = False
            else:
                detail = f": {error}" if str(error) else ""
                raise ResourceError(f"{halves.reason}{detail}") from error
            del halves


def run_piece(
    piece: Piece,
    compute: Callable[[Piece], Iterable[Result]],
    cutter: Cutter[Piece],
    is_too_large: Callable[[Exception], bool],
    *,
    reserve: Callable[[Piece], AbstractContextManager[object]] = nullcontext,
    alone: Callable[[Piece], Iterable[Result]] | None = None,
    resumption: Resumption[Result] | None = None,
) -> Generator[Result, None, None]:
    """Results of a piece, in order; after a failed allocation, those of its halves.

    compute : the results of a piece. is_too_large : whether an error of it, or of ``reserve``, means a failed
        allocation, or a result larger than its room, so that halves may succeed.
    reserve : makes a context that is open during the processing of a piece.
    alone : computes an indivisible piece once more, in another way; its errors are propagated. None: unsupported.
    resumption : None: an attempt gives at most one result, or its allocations fail only before the first.
    Raises ResourceError: an allocation failed for an indivisible piece.
    """
    progress = _Progress(resumption)
    has_alone = alone is not None
    worklist = Worklist(piece, cutter, lambda error: is_too_large(error) and progress.can_resume, has_alone)
    del piece
    for here in worklist:
        if worklist.is_alone and alone is not None:
            yield from progress.beyond_given(alone(here))
        else:
            with worklist, reserve(here):
                yield from progress.beyond_given(compute(here))
        del here


class _Progress(Generic[Result]):
    """Counts the rows yielded by attempts, so that none is repeated."""

    def __init__(self, resumption: Resumption[Result] | None) -> None:
        self._resumption = resumption
        self._given = 0  # leading rows of the remaining work that failed attempts have yielded
        self._made = 0  # rows of the last attempt

    @property
    def can_resume(self) -> bool:
        """Whether another attempt may follow the last one."""
        return self._made == 0 or self._resumption is not None

    def beyond_given(self, results: Iterable[Result]) -> Iterator[Result]:
        """An attempt's results, without the rows yielded before."""
        self._given, self._made = max(self._given, self._made), 0
        for result in results:
            skipped, rows = 0, 1
            if self._resumption is not None:
                rows = self._resumption.rows(result)
                skipped = min(max(0, self._given - self._made), rows)
                if skipped:
                    result = self._resumption.after(result, skipped)
            if skipped < rows or not rows:
                yield result
            self._made += rows
            del result  # the caller has it, and it may be large
        self._given, self._made = max(0, self._given - self._made), 0
