"""What a file says beside its problem: notes for results, and a question that is not the problem's own."""

from __future__ import annotations

from oocbe.errors import UnsupportedError


class FileNotes:
    """What problems and linear systems share.

    Attributes
    ----------
    notes : sentences about the file that results are to carry.
    question : what the file asks beyond the problem, such as weights of a count, and in which line; empty: nothing.
    """

    notes: tuple[str, ...]
    question: str

    @property
    def notes_of_optimum(self) -> tuple[str, ...]:
        """The notes for results about an optimum, which does not depend on what the file asks of a count."""
        question = [f"{self.question}; the optimum does not depend on that"] if self.question else []
        return (*self.notes, *question)

    def refuse_question(self, what: str) -> None:
        """Raise UnsupportedError where the file asks what ``what``, such as ``the task count``, leaves out."""
        if self.question:
            raise UnsupportedError(
                f"{self.question}, which is not supported, and {what} would leave that out; delete the line to ask for"
                " the problem alone"
            )
