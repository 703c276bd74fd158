"""Constraints of XCSP3 whose truth is a variable's value: gathered as one expression, which that is compared with.

``reifiedBy="b"`` asks that b is 1 where the constraint holds and 0 where it does not; ``hreifiedFrom`` that it holds
where b is 1; ``hreifiedTo`` that b is 1 where it holds. What a constraint would ask for at once is kept as expressions
instead; what needs a walk, or places along a circuit, has none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.xcsp_expressions import VARIABLE, Expression, Unread, call, constant, variable
from oocbe.formats.xcsp_relation_tables import RelationTables
from oocbe.formats.xcsp_relations import Condition, Relations
from oocbe.formats.xcsp_tables import STAR
from oocbe.formats.xml import Element

COMPARED: dict[str, Callable[[Expression, Expression], Expression]] = {
    "reifiedBy": lambda switch, holds: call("iff", switch, holds),
    "hreifiedFrom": lambda switch, holds: call("imp", switch, holds),
    "hreifiedTo": lambda switch, holds: call("imp", holds, switch),
}
"""Attributes, and what each asks of a variable and of whether the constraint holds."""

MOST_ROWS = 2**10
"""Of a table whose truth is asked for: each is an expression."""


@dataclass
class Gathered:
    """What a constraint asks for; takes the place of :class:`Relations` while it is read.

    Attributes
    ----------
    whole : the file's. asked : expressions that are true where the constraint holds, so far.
    """

    whole: Relations
    asked: list[Expression] = field(default_factory=list)

    @property
    def tables(self) -> RelationTables:
        """The file's tables, for the values of variables."""
        return self.whole.tables

    def value_of(self, expression: Expression) -> int:
        """The variable that has an expression's value, whatever holds."""
        return self.whole.value_of(expression)

    def post(self, expression: Expression, name: str) -> None:
        """Ask that an expression is true."""
        self.asked.append(expression)

    def add_sum(self, terms: Sequence[tuple[int, Expression]], condition: Condition, name: str) -> None:
        """Ask that what terms add up to meets a condition."""
        products = (part if c == 1 else call("mul", constant(c), part) for c, part in terms)
        self.asked.append(condition.of(call("add", constant(0), *products)))

    def new_variable(self, values: Sequence[int]) -> NoReturn:
        """Unread: where the constraint does not hold, such a variable would have any value."""
        raise Unread("a variable for its truth")

    def walk(
        self,
        scope: Sequence[int],
        start: Hashable,
        step: Callable[[int, Hashable, int], Hashable | None],
        is_end: Callable[[Hashable], bool],
        name: str,
    ) -> NoReturn:
        """Unread: where the constraint does not hold, the walk has no end."""
        raise Unread("a variable for its truth")


def is_reified(element: Element) -> bool:
    """Whether a constraint's truth is a variable's value."""
    return not element.attributes.keys().isdisjoint(COMPARED)


def has_a_row(scope: Sequence[int], rows: NDArray[np.int64]) -> Expression:
    """That some variables have the values of one of some rows, int64 (rows, variables) as the file has them."""
    if len(rows) > MOST_ROWS:
        raise Unread(f"a variable for its truth, and {len(rows):,} rows")
    equal = [
        [call("eq", variable(v), constant(value)) for v, value in zip(scope, row, strict=True) if value != STAR]
        for row in rows.tolist()
    ]
    return call("or", constant(0), *(call("and", constant(1), *row) for row in equal))


def is_switch(part: Expression, relations: Relations) -> bool:
    """Whether an expression is a variable of 0 and 1."""
    return part.operator == VARIABLE and set(relations.tables.values(part.value).tolist()) <= {0, 1}
