"""From names and labels to the indices of variables and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from oocbe.errors import UsageError

if TYPE_CHECKING:
    from oocbe.model.parts import Variable


class OfVariables(Protocol):
    """What has a name and variables: a problem."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Those that are named."""


class Numbered(OfVariables, Protocol):
    """What knows its variables by name as well."""

    @property
    def number_by_name(self) -> Mapping[str, int]:
        """Index of each variable by its name."""


SHOWN_NAMES = 8
"""Names or labels that a message lists."""

MOST_CHARACTERS = 80
"""Of a wrong name that a message shows, and for which the nearest one is looked for."""

MOST_COMPARED = 10_000
"""Names among which the nearest one is looked for: some milliseconds' work."""


def variable_index(problem: Numbered, name: object) -> int:
    """Index of a variable given by its name.

    Raises
    ------
    UsageError : there is none of that name.
    """
    number = problem.number_by_name.get(name) if isinstance(name, str) else None
    if number is None:
        raise unknown_variable(problem, name)
    return number


def unknown_variable(problem: OfVariables, name: object) -> UsageError:
    """The error to raise where a problem has no variable of some name: with the nearest name, or the first ones."""
    names = [v.name for v in problem.variables]
    near = nearest(str(name), names)
    hint = f"there are: {_listed(names)}" if near is None else f"did you mean {near!r}?"
    return UsageError(f"{problem.name}: there is no variable {_shortened(name)}; {hint}")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """What somebody may have meant by a name that is none of these: that of another case, or a similar one; or None."""
    import difflib

    folded: dict[str, str] = {}
    for known in names[:MOST_COMPARED]:
        folded.setdefault(known.casefold(), known)
    wanted = name[:MOST_CHARACTERS].casefold()
    near = [wanted] if wanted in folded else difflib.get_close_matches(wanted, folded, n=1)
    return folded[near[0]] if near else None


def value_index(variable: Variable, value: object) -> int:
    """Index of a value given by its label or number.

    Raises
    ------
    UsageError : the variable has no such value.
    """
    if isinstance(value, str):
        if variable.labels is not None and value in variable.labels:
            return variable.labels.index(value)
        if value.isascii() and value.isdecimal() and len(value) < 20 and int(value) < variable.size:
            return int(value)
    elif not isinstance(value, bool) and hasattr(value, "__index__") and 0 <= value.__index__() < variable.size:
        return int(value.__index__())
    raise unknown_value(variable, value)


def unknown_value(variable: Variable, value: object) -> UsageError:
    """The error to raise where a variable has no value of some label or number: with the first, and the nearest."""
    shown = _listed([variable.label(i) for i in range(min(SHOWN_NAMES + 1, variable.size))])
    near = nearest(str(value), variable.labels or ())
    hint = "" if near is None else f"; did you mean {near!r}?"
    return UsageError(f"variable {variable.name!r} has no value {_shortened(value)}; its values are {shown}{hint}")


def indices_of(problem: OfVariables, values: Mapping[str, str | int]) -> dict[int, int]:
    """Variable index to value index of what is given by names and labels (or numbers of values).

    Raises
    ------
    UsageError : a name or a value that the problem does not have.
    """
    number = {v.name: index for index, v in enumerate(problem.variables)}
    found = {}
    for name, value in values.items():
        if name not in number:
            raise unknown_variable(problem, name)
        found[number[name]] = value_index(problem.variables[number[name]], value)
    return found


def assignment_of(problem: OfVariables, values: Mapping[str, str | int]) -> tuple[int, ...]:
    """An assignment of all variables, value indices in the problem's order.

    Raises
    ------
    UsageError : a name or a value that the problem does not have, or a variable that has no value here.
    """
    found = indices_of(problem, values)
    missing = [v.name for number, v in enumerate(problem.variables) if number not in found]
    if missing:
        raise UsageError(f"{problem.name}: no value is given for {_listed(missing)}")
    return tuple(found[number] for number in range(len(problem.variables)))


def _shortened(name: object) -> str:
    told = repr(name)
    return told if len(told) <= MOST_CHARACTERS else f"{told[:MOST_CHARACTERS]}…"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
