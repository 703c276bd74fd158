"""Predicates and functions of XCSP 2.1: expressions with parameters, which constraints give variables and integers.

``<predicate name="P"> <parameters> int X int Y </parameters> <expression> <functional> ne(X,add(Y,1)) </functional>``
forbids where it is false; a ``<function>`` costs what it is worth. Constraints with either are written out as tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import Expression, Malformed, Unread, bounds_of, constant, evaluate, parse, variable
from oocbe.formats.xml import Element
from oocbe.model.parts import Constraint, Function, Variable

MOST_CELLS = 1 << 22
"""Tuples that an expression is written out for at most."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Template:
    """An expression with parameters.

    Attributes
    ----------
    element : where it is. is_cost : whether its value is a cost, not a truth. parameters : names. text : as it is.
    """

    element: Element
    is_cost: bool
    parameters: tuple[str, ...]
    text: str

    @classmethod
    def read(cls, element: Element) -> Template:
        """A ``<predicate>`` or ``<function>``; FormatError where it is malformed."""
        if element.tag not in ("predicate", "function"):
            raise element.error(f"found <{element.tag}>, expected <predicate> or <function>")
        words = element.needed("parameters").text.decode("utf-8", "replace").split()
        if len(words) % 2 or any(kind != "int" for kind in words[::2]):
            raise element.error(f"found the parameters {' '.join(words)[:40]!r}, expected such as int X int Y")
        names = tuple(words[1::2])
        if len(set(names)) != len(names):
            raise element.error("found a parameter twice, expected different names")
        text = element.needed("expression").needed("functional").text.decode("utf-8", "replace")
        return cls(element, element.tag == "function", names, text)

    def filled(self, given: Sequence[str], scope: Sequence[str], owner: Element) -> Expression:
        """The expression with variables, numbered as in a constraint's scope, and integers as parameters.

        FormatError with the line of ``owner``, the constraint, where these are wrong.
        """
        if len(given) != len(self.parameters):
            raise owner.error(f"found {len(given)} parameters, expected {len(self.parameters)}")
        arguments = {}
        for name, word in zip(self.parameters, given, strict=True):
            if word not in scope and not _INTEGER.fullmatch(word):
                raise owner.error(f"found the parameter {word[:40]!r}, expected a variable of the scope or an integer")
            arguments[name] = variable(scope.index(word)) if word in scope else constant(int(word))

        def leaf(word: str) -> tuple[Expression]:
            if word in ("true", "false"):
                return (constant(int(word == "true")),)
            if word not in arguments and not _INTEGER.fullmatch(word):
                raise Malformed(f"found {word[:40]!r}, expected one of the parameters {', '.join(self.parameters)}")
            return (arguments[word] if word in arguments else constant(int(word)),)

        try:
            return parse(self.text, leaf)
        except Malformed as error:
            raise self.element.error(str(error)) from None

    def written_out(
        self, given: Sequence[str], scope: Sequence[int], variables: Sequence[Variable], owner: Element
    ) -> Function | Constraint:
        """A constraint with this expression over some of all variables, which have integers as labels.

        FormatError where something is malformed; UnsupportedError where there are too many tuples, or the expression
        has no value on some.
        """
        own = [variables[v] for v in scope]
        try:
            expression = self.filled(given, [v.name for v in own], owner)
            columns = [_numbers(v, owner) for v in own]
            cells = math.prod(map(len, columns))
            if cells > MOST_CELLS:
                raise Unread(f"an expression over {cells:,} tuples")
            bounds_of(expression, [(int(column.min()), int(column.max())) for column in columns])
            found = evaluate(expression, np.ix_(*columns) if columns else ())
        except Unread as unread:
            raise owner.unsupported(str(unread), "; write the constraint as a relation") from None
        values = np.broadcast_to(found, tuple(map(len, columns)))
        if self.is_cost:
            return Function.from_array(tuple(scope), values)
        return Constraint(tuple(scope), np.argwhere(values == 0))


def _numbers(owner: Variable, element: Element) -> NDArray[np.int64]:
    labels = owner.labels or ()
    for label in labels:
        if not _INTEGER.fullmatch(label):
            raise element.error(f"variable {owner.name} has the value {label[:40]!r}, expected integers in expressions")
    return np.array([int(label) for label in labels], dtype=np.int64)
