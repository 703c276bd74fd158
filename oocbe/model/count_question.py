"""What a file asks of a count beside its constraints: weights of values, and a projection on some variables.

A weighted count adds up, over all feasible assignments, the product of the weights of their values. A projected count
has a term for each assignment of the shown variables that some values of the others complete; the weights of these
others do not matter. Weights are exact fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from oocbe.model.parts import Variable


@dataclass(frozen=True)
class CountQuestion:
    """Weights and a projection.

    Attributes
    ----------
    kind : type of the count in the model counting competition: ``mc``, ``wmc``, ``pmc`` or ``pwmc``.
    weights : by name of a variable, the weights of 0 and 1; other variables weigh 1.
    shown : names of the variables on which the count is projected; None: all.
    notes : sentences for results.
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
