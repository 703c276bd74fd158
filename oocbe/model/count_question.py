"""The question of a counting file beside its constraints: weights of values, and a projection on some variables.

A weighted count adds up, over all feasible assignments, the product of the weights of their values. A projected count
has a term for each assignment of the shown variables that some values of the others complete; the weights of these
others do not matter. Weights are exact fractions.

Problems and linear systems have such a question, and notes for results, as additional contents of their file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from oocbe.errors import UnsupportedError
from oocbe.model.parts import Variable


@dataclass(frozen=True)
class CountQuestion:
    """Weights and a projection.

    kind : type of the count in the model counting competition: ``mc``, ``wmc``, ``pmc`` or ``pwmc``.
    weights : by name of a variable, the weights of 0 and 1; other variables weigh 1.
    shown : names of the variables on which the count is projected; None: all. notes : sentences for results.
    """

    kind: str = "mc"
    weights: Mapping[str, tuple[Fraction, Fraction]] = field(default_factory=dict)
    shown: frozenset[str] | None = None
    notes: tuple[str, ...] = ()

    def shows(self, variable: Variable) -> bool:
        """Whether the count distinguishes values of a variable."""
        return self.shown is None or variable.name in self.shown

    def weight(self, variable: Variable, value: int) -> Fraction:
        """Weight of a value, by its index; 1 of variables that are not shown."""
        own = self.weights.get(variable.name) if self.shows(variable) else None
        return Fraction(1) if own is None else own[int(variable.label(value))]


class FileNotes:
    """Common attributes of problems and linear systems.

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
