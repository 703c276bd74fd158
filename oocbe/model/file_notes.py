"""Additional contents of a problem's file: notes for results, and a further question."""

from __future__ import annotations

from oocbe.errors import UnsupportedError
from oocbe.model.count_question import CountQuestion


class FileNotes:
    """Common attributes of problems and linear systems.

    Attributes
    ----------
    notes : sentences about the file, copied into results.
    question : further question of the file, such as weights of a count, with its line; empty: none.
    counting : what it means for the task ``count``; None: no further question, or one that is not supported.
    """

    notes: tuple[str, ...]
    question: str
    counting: CountQuestion | None

    @property
    def notes_of_optimum(self) -> tuple[str, ...]:
        """Notes for results about an optimum, with a remark if the file has a question about a count."""
        question = [f"{self.question}; the optimum does not depend on that"] if self.question else []
        return (*self.notes, *question)

    def refuse_question(self, what: str) -> None:
        """Raise UnsupportedError if the file has a question that ``what``, such as ``the task count``, ignores."""
        if self.question:
            raise UnsupportedError(
                f"{self.question}, which is not supported, and {what} would leave that out; delete the line to ask for"
                " the problem alone"
            )
