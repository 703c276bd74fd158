"""Work in pieces: pieces that do not fit are cut beforehand, and halved when an allocation fails.

A *piece* is whatever its caller cuts: ranges of rows, the frontier of a join. The caller says in plain functions how a
piece halves (a :class:`Cutter`), and which errors say that memory could not be had for it. A :class:`Worklist` says
what is next, and the caller computes it:

* Pieces are worked on one after the other, in the order of their results.
* Where an attempt finds no memory, what it held is let go first, with the frames of its error. Then the halves are
  computed in its place, each of them halved where it has to be.
* Where a piece has no half, it is computed alone, if the caller knows how, or refused with its cutter's reason.
* Every other error (a deadline, Ctrl-C, damaged data) passes through, and leaves no piece at work.

Where a piece gives several results, or memory is reserved while it is at work, :func:`run_piece` goes through such a
list: results that a failed attempt has given are not given again, its halves skip as many rows.

Several pieces at a time, each in a stream of its own: :mod:`oocbe.execution.pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from oocbe.errors import ResourceError, without_frames

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Indivisible(Generic[Piece]):
    """A cutter's result for an indivisible piece.

    Attributes
    ----------
    piece : what is left of it to compute: itself, or less of it where some rows meet no others.
    reason : of which table or bucket it is, how large it is and why it is not cut; an error begins with it.
    """

    piece: Piece
    reason: str


class Cutter(Protocol[Piece]):
    """Halves a piece."""

    def __call__(self, piece: Piece, /) -> Iterable[Piece] | Indivisible[Piece]:
        """Smaller pieces whose results, laid end to end, are the piece's; none where no result comes of it.

        They may be generated lazily: the next one is requested when all before it are done.
        """


@dataclass(frozen=True)
class Resumption(Generic[Result]):
    """How a second attempt goes on where the first one ended, for pieces that give several results.

    Attributes
    ----------
    rows : rows of a result; laid end to end they are the same in every attempt, wherever results begin and end.
    after : the result without some of its first rows, perhaps all.
    """

    rows: Callable[[Result], int]
    after: Callable[[Result, int], Result]


def cut_to_fit(piece: Piece, cutter: Cutter[Piece], fits: Callable[[Piece], bool]) -> Generator[Piece, None, None]:
    """A piece cut in halves until all fit, in order; those that have no half as they are."""
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
    """A piece, or where memory cannot be had for it its halves, to be computed one after the other::

        worklist = Worklist(whole, cutter, is_too_large)
        for piece in worklist:
            with worklist:
                results += compute(piece)
            del piece  # what is done is let go before the next piece is made

    Parameters
    ----------
    is_too_large : whether an error in the block says that memory could not be had, or that more comes of the piece than
        there is room for: halves may do. Every other one passes.
    has_alone : whether the caller can compute a piece that has no half once more, in another way.

    Attributes
    ----------
    is_alone : whether the piece at hand is such a one, whose errors pass.

    Raises
    ------
    ResourceError : when the next piece is asked for; memory could not be had for one that has no half.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or self.is_alone or not self._is_too_large(error):
            return False
        self._error = without_frames(error)  # they hold the failed attempt's arrays
        return True

    def __iter__(self) -> Iterator[Piece]:
        while self._todo:
            here = None  # what is done is let go before the next piece is made
            here = next(self._todo[-1], None)
            if here is None:
                self._todo.pop()
                continue
            yield here
            error, self._error = self._error, None
            if error is None:
                continue
            # Out of the block: what the failed attempt held is gone.
            halves = self._cutter(here)
            if not isinstance(halves, Indivisible):
                self._todo.append(iter(halves))
            elif self._has_alone:
                here = None
                self.is_alone = True
                yield halves.piece
                self.is_alone = False
            else:
                said = f": {error}" if str(error) else ""
                raise ResourceError(f"{halves.reason}{said}") from error
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
    """Results of a piece, in order; where memory cannot be had for it, those of its halves.

    Parameters
    ----------
    compute : the results of a piece. is_too_large : whether an error of it, or of ``reserve``, says that memory could
        not be had, or that more comes of the piece than there is room for: halves may do.
    reserve : makes what is held while a piece is at work.
    alone : computes a piece that has no half, once more and in another way; its errors pass. None: there is none.
    resumption : None: an attempt gives one result at most, or fails for want of memory before its first one.

    Raises
    ------
    ResourceError : memory could not be had for a piece that has no half.
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
    """Counts the rows that attempts have given, so that none is given twice."""

    def __init__(self, resumption: Resumption[Result] | None) -> None:
        self._resumption = resumption
        self._given = 0  # rows at the head of what is still to do that failed attempts have given
        self._made = 0  # rows of the last attempt

    @property
    def can_resume(self) -> bool:
        """Whether another attempt may follow the last one."""
        return self._made == 0 or self._resumption is not None

    def beyond_given(self, results: Iterable[Result]) -> Iterator[Result]:
        """An attempt's results but the rows that were given before."""
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
            del result  # it has been taken, and may be large
        self._given, self._made = max(0, self._given - self._made), 0
