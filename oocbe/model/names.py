"""Conversion of names and labels to indices of variables and values."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from oocbe.errors import ModelError, UsageError
from oocbe.model.parts import Variable, number_of


class Numbered(Protocol):
    """A problem with a name, variables, and an index of them by name."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables, with unique names."""

    @property
    def number_by_name(self) -> Mapping[str, int]:
        """Index of each variable by its name."""


SHOWN_NAMES = 8
"""Number of names or labels listed in a message."""

MOST_CHARACTERS = 80
"""Maximum characters of a wrong name in a message, and in the search for the nearest name."""

MOST_COMPARED = 10_000
"""Maximum names in the search for the nearest one; it then takes some milliseconds."""


def variable_index(problem: Numbered, name: object) -> int:
    """Index of a variable by name, or integer as in other libraries; UsageError: no variable has that name."""
    text = name if isinstance(name, str) else None if _whole(name) is None else str(name)
    number = None if text is None else problem.number_by_name.get(text)
    if number is None:
        raise unknown_variable(problem, name)
    return number


def unknown_variable(problem: Numbered, name: object) -> UsageError:
    """The error for an unknown variable name, with the nearest name, or the first ones."""
    names = [v.name for v in problem.variables]
    near = nearest(str(name), names)
    hint = f"there are: {_listed(names)}" if near is None else f"did you mean {near!r}?"
    return UsageError(f"{problem.name}: there is no variable {_shortened(name)}; {hint}")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The name nearest to an unknown one: equal except for case, or similar; None if there is none."""
    import difflib

    folded: dict[str, str] = {}
    for known in names[:MOST_COMPARED]:
        folded.setdefault(known.casefold(), known)
    wanted = name[:MOST_CHARACTERS].casefold()
    near = [wanted] if wanted in folded else difflib.get_close_matches(wanted, folded, n=1)
    return folded[near[0]] if near else None


def value_index(variable: Variable, value: object) -> int:
    """Index of a value given by its label, or by its position in the domain.

    The same rule holds everywhere: a value equal to a label is that label, a number as well as its text. Numbers are
    compared as numbers: 1, ``"1"``, ``"01"`` and 1.0 all equal the label ``1``, unless a label has the same spelling. A
    whole number that equals no label is a position, counted from 0; ``"#1"`` is always position 1. True and False are
    the labels of that name in either case, and not numbers. If a number is the label of one value and the position of
    another, the logger ``oocbe`` warns once per variable.

    Raises UsageError: the variable has no such value, or several with labels equal to it.
    """
    text = _text_of(value)
    found = [] if text is None else _with_label(variable, text, isinstance(value, str))
    if len(found) > 1:
        labels = _listed([f"{variable.label(v)!r} (#{v})" for v in found])
        raise UsageError(
            f"variable {variable.name!r} has several values equal to {_shortened(value)}: {labels}; give the position"
        )
    position = None if text is None else _position(variable, text)
    if found:
        if position is not None and position != found[0]:
            _warn(variable, f"{text} is the value with that label, not the one at position {position} (#{position})")
        return found[0]
    if position is None:
        raise unknown_value(variable, value)
    if not str(value).startswith("#") and variable.labels is not None and variable.values_by_label[1]:
        label = variable.label(position)
        _warn(variable, f"no label equals {text}: it is taken as a position, of the value with the label {label!r}")
    return position


def warn_of_position(variable: Variable, position: int) -> None:
    """Warn if a position, in a format with positions, equals the label of another value."""
    if variable.labels is not None and (found := _with_label(variable, str(position), True)) and position not in found:
        label = variable.label(position)
        _warn(variable, f"{position} is a position here, of the value with the label {label!r}, and no label")


def _whole(value: object) -> int | None:
    """An integer, including NumPy's, as a Python integer; None for anything else, such as True and text."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _text_of(value: object) -> str | None:
    """A value in the form of a label; None for None and NaN, and for integers of thousands of digits."""
    try:
        return None if value is None or (isinstance(value, float) and value != value) else str(value)
    except ValueError:  # an integer of thousands of digits
        return None


def _with_label(variable: Variable, text: str, is_text: bool) -> Sequence[int]:
    """The values with a label equal to a text, or else equal as numbers, or as truth values."""
    if variable.labels is None:
        number = number_of(text)
        return [int(number)] if number is not None and 0 <= number < variable.size and number == int(number) else []
    by_text, by_number = variable.values_by_label
    found = by_text.get(text, ())
    if not found and (number := number_of(text)) is not None:
        found = by_number.get(number, ())
    if not found and not is_text and text in ("True", "False"):
        found = by_text.get(text.lower(), ()) or by_text.get(text.upper(), ())
    return found


def _position(variable: Variable, text: str) -> int | None:
    written = text.removeprefix("#")
    if not written.isascii() or not written.isdecimal():
        return None
    digits = written.lstrip("0") or "0"
    return int(digits) if len(digits) < 20 and int(digits) < variable.size else None


def _warn(variable: Variable, text: str) -> None:
    """Log a warning about a variable, once: there may be millions of cases."""
    if not variable.warnings:
        variable.warnings.append(text)
        import logging

        logging.getLogger("oocbe").warning("variable %r: %s", variable.name, text)


def unknown_value(variable: Variable, value: object) -> UsageError:
    """The error for an unknown value of a variable, with the first values and the nearest one."""
    shown = _listed([variable.label(i) for i in range(min(SHOWN_NAMES + 1, variable.size))])
    near = nearest(_text_of(value) or "", variable.labels or ())
    hint = "" if near is None else f"; did you mean {near!r}?"
    return UsageError(f"variable {variable.name!r} has no value {_shortened(value)}; its values are {shown}{hint}")


def items_of(values: Mapping[Any, object]) -> Iterable[tuple[Any, object]]:
    """Pairs of names and values of a mapping, or a series of pandas; UsageError for anything else."""
    if not hasattr(values, "items"):
        raise UsageError(f"{values!r:.100}: give values by name, such as {{'rain': 'yes'}}")
    return values.items()


def indices_of(problem: Numbered, values: Mapping[Any, object]) -> dict[int, int]:
    """Value index by variable index, from names and values, or from indices of both.

    values : value by variable name, see :func:`value_index`; or value index (or label, as text) by variable index.

    Raises UsageError: an unknown name or value, or a variable twice with different values.
    """
    found: dict[int, int] = {}
    for name, value in items_of(values):
        if isinstance(name, str):
            v = variable_index(problem, name)
            index = value_index(problem.variables[v], value)
        else:
            v, index = _by_index(problem, name, value)
        if found.setdefault(v, index) != index:
            raise UsageError(f"variable {problem.variables[v].name!r} is given two different values")
    return found


def _by_index(problem: Numbered, name: object, value: object) -> tuple[int, int]:
    v = _whole(name)
    if v is None or not 0 <= v < len(problem.variables):
        raise ModelError(f"{problem.name}: evidence on variable {_shortened(name)}, which does not exist")
    variable = problem.variables[v]
    if problem.number_by_name.get(str(v), v) != v:
        _warn(variable, f"{v} is its index here, and the name of another variable; names are texts")
    index = _whole(value)
    if index is None:
        return v, value_index(variable, value)
    if not 0 <= index < variable.size:
        raise ModelError(f"{problem.name}: evidence {variable.name}={index} is outside 0..{variable.size - 1}")
    warn_of_position(variable, index)
    return v, index


def assignment_of(problem: Numbered, values: Mapping[str, str | int]) -> tuple[int, ...]:
    """Value indices of all variables; UsageError: an unknown name or value, or a variable without a value."""
    found = indices_of(problem, values)
    missing = [v.name for number, v in enumerate(problem.variables) if number not in found]
    if missing:
        raise UsageError(f"{problem.name}: no value is given for {_listed(missing)}")
    return tuple(found[number] for number in range(len(problem.variables)))


def _shortened(name: object) -> str:
    try:
        text = repr(name)
    except ValueError:
        text = "of thousands of digits"
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
