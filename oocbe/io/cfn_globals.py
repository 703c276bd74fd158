"""Functions with a ``type`` in ``cfn`` files: their parameters, told as the ``wcsp`` format tells them.

``{scope: [x y z] type: samong params: {metric: var cost: 3 min: 1 max: 2 values: [0 1]}}``: parameters have names here
and an order there; values are numbers in both. What each means, and which decompose, says
:mod:`oocbe.io.wcsp_globals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from oocbe.errors import FormatError, UnsupportedError
from oocbe.io.global_costs import Decomposed
from oocbe.io.lexer import Lexer
from oocbe.io.text import Text
from oocbe.io.wcsp_globals import GlobalReader
from oocbe.model.parts import Variable

Parameter: TypeAlias = "str | list[Parameter]"
"""A word, or a list."""

MOST_DEPTH = 3
"""Lists within lists of a parameter; more are damage."""


@dataclass(frozen=True)
class GlobalCall:
    """A function by its type, as it is read.

    Attributes
    ----------
    path, line : where it is. title : what it is called there. kind : its type. scope : indices of variables.
    parameters : by name, in the file's order.
    """

    path: str
    line: int
    title: str
    kind: str
    scope: tuple[int, ...]
    parameters: dict[str, Parameter]

    def add_to(self, whole: Decomposed, limit: int | float, names: Sequence[str]) -> None:
        """Add what it comes to; costs from ``limit`` on forbid. names : of the file's variables."""
        if self.kind not in _TOLD:
            raise UnsupportedError(
                f"{self.path}, line {self.line}: {self.title} is of type {self.kind!r}, which is not supported; "
                f"those that are: {', '.join(_TOLD)}"
            )
        cost = self.parameters.get("cost")
        if isinstance(cost, str) and "." in cost:
            raise UnsupportedError(
                f"{self.path}, line {self.line}: {self.title} of type {self.kind!r} costs {cost}; only integers are "
                "supported there: scale all costs"
            )
        try:
            keyword, words = _TOLD[self.kind](self, names, whole.sizes)
        except (KeyError, TypeError, ValueError):
            known = ", ".join(self.parameters)
            raise self._error(f"found the parameters {known}, expected those of {self.kind!r}") from None
        text = _OneLine(self.path, " ".join([keyword, *words]).encode(), self.line)
        end = GlobalReader(text, 0, self.scope, limit, whole).read()
        text.expect_end(end, f"the parameters of {self.title}")

    def _error(self, message: str) -> FormatError:
        return FormatError(self.path, self.line, message)

    def words(self, *names: str) -> list[str]:
        """Parameters one after the other, lists with their lengths before them."""
        told: list[str] = []
        for name in names:
            value = self.parameters[name]
            told += [value] if isinstance(value, str) else [str(len(value)), *_flat(value)]
        return told

    def triplets(self, names: Sequence[str]) -> list[str]:
        """Weights of values, as variable, value and weight each."""
        told = []
        weights = self.parameters["weightedvalues"]
        for name, value, weight in map(list, weights):
            known = {own: v for v, own in enumerate(names)}
            told += [str(known[name] if name in known else int(str(name))), str(value), str(weight)]
        return [*self.words("capacity"), str(len(weights)), *told]

    def products(self, sizes: Sequence[int]) -> list[str]:
        """Weights of variables, as those of their values."""
        weights = self.parameters["weights"]
        told = [
            f"{v} {value} {int(str(weight)) * value}"
            for v, weight in zip(self.scope, weights, strict=True)
            for value in range(sizes[v])
        ]
        return [*self.words("capacity"), str(len(told)), *told]


def decomposed(
    calls: Sequence[GlobalCall], minimises: bool, limit: int | float, variables: Sequence[Variable]
) -> Decomposed:
    """What all functions by their types come to, with names of states that no variable has.

    UnsupportedError where the sum is maximised: their costs are to be small. limit : costs from it on forbid.
    """
    whole = Decomposed([v.size for v in variables])
    names = [v.name for v in variables]
    if calls and not minimises:
        first = calls[0]
        raise UnsupportedError(
            f"{first.path}, line {first.line}: {first.title} is of type {first.kind!r}; types are supported where "
            "costs are minimised (mustbe '<…')"
        )
    for call in calls:
        call.add_to(whole, limit, names)
    while not set(names).isdisjoint(whole.names):
        whole.names = [f"{name}'" for name in whole.names]
    return whole


def read_parameters(lexer: Lexer, opening: str, closing: str, title: str) -> dict[str, Parameter]:
    """Parameters from their opening bracket to their closing one."""
    lexer.take(opening, f"'{{' and the parameters of {title}")
    found: dict[str, Parameter] = {}
    while not lexer.accept(closing):
        name = lexer.word(f"a parameter of {title}, or '}}'")
        found[name] = _read_value(lexer, opening, closing, title, 0)
    return found


def _read_value(lexer: Lexer, opening: str, closing: str, title: str, depth: int) -> Parameter:
    if not lexer.sees(opening):
        return lexer.word(f"a parameter of {title}")
    if depth == MOST_DEPTH:
        raise lexer.error(f"found a list within {depth} others in {title}, expected fewer")
    lexer.take(opening, "'['")
    values: list[Parameter] = []
    while not lexer.accept(closing):
        values.append(_read_value(lexer, opening, closing, title, depth + 1))
    return values


def _flat(values: list[Parameter]) -> list[str]:
    return [word for value in values for word in ([value] if isinstance(value, str) else _flat(value))]


class _OneLine(Text):
    """Words that all are of one line of a file."""

    def __init__(self, path: str, data: bytes, line: int) -> None:
        super().__init__(path, data)
        self._line = line

    def line(self, token: int) -> int:
        """The line, whatever the word."""
        return self._line


def _in_order(*names: str) -> Callable[[GlobalCall, Sequence[str], Sequence[int]], tuple[str, list[str]]]:
    return lambda call, variables, sizes: (call.kind, call.words(*names))


def _clique(call: GlobalCall, variables: Sequence[str], sizes: Sequence[int]) -> tuple[str, list[str]]:
    told = call.words("rhs")
    for values in call.parameters["values"]:
        told += [str(len(values)), *_flat(list(values))]
    return call.kind, told


_TOLD: dict[str, Callable[[GlobalCall, Sequence[str], Sequence[int]], tuple[str, list[str]]]] = {
    **dict.fromkeys(("salldiff", "salldiffdp", "walldiff"), _in_order("metric", "cost")),
    **dict.fromkeys(("samong", "samongdp"), _in_order("metric", "cost", "min", "max", "values")),
    "wamong": _in_order("metric", "cost", "values", "min", "max"),
    **dict.fromkeys(("sgcc", "sgccdp", "wgcc"), _in_order("metric", "cost", "bounds")),
    "wsum": _in_order("metric", "cost", "comparator", "to"),
    "sregular": _in_order("metric", "cost", "nb_states", "starts", "ends", "transitions"),
    "wregular": _in_order("nb_states", "starts", "ends", "transitions"),
    "clique": _clique,
    "knapsack": lambda call, variables, sizes: ("knapsackv", call.products(sizes)),
    "knapsackv": lambda call, variables, sizes: (call.kind, call.triplets(variables)),
}
"""Types, and how their parameters are told in the order of the wcsp format."""
