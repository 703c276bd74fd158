"""Functions with a ``type`` in ``cfn`` files: their parameters, in the order and the words of the ``wcsp`` format.

``{scope: [x y z] type: samong params: {metric: var cost: 0.3 min: 1 max: 2 values: [0 1]}}``: parameters have names
here, which files without quotes and colons leave out. Their order is that of toulbar2; values are numbers. What each
means, and which decompose, stands in :mod:`oocbe.formats.wcsp`.

Costs may be decimals. They are taken in units of the last place that ``mustbe`` has, so that they are integers. Where a
sum is maximised, toulbar2 takes the costs with the other sign: what is charged for a violation is then a number below
0, which is added.

Costs as ``cfn`` files print them: decimals with a precision, and a limit on their sum.

The limit's decimals are the precision of all costs: further decimals are truncated toward zero, as in toulbar2. All
sums are then multiples of the last place. A limit that is half a place lower separates the sums below the limit from
the sums at it, although additions of floats are rounded.

The limit bounds the *sum*. A single cost forbids its tuple only if it reaches the limit together with the minima of all
other costs, which are negative in energy problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.cost_tables import parts_of
from oocbe.formats.global_costs import Cost, Decomposed, GlobalReader, ListedCosts
from oocbe.formats.text import Lexer, Text, parse_number
from oocbe.formats.wcsp import read_global
from oocbe.model.parts import Constraint, Function, Variable

Parameter: TypeAlias = "str | list[Parameter]"
"""A word, or a list."""

Words: TypeAlias = "list[str | int]"
"""Words of the wcsp format in the place of parameters; the integers among them are the costs."""

MOST_DEPTH = 3
"""Lists within lists of a parameter; more are damage."""

SIGNATURES = {
    "alldiff": "exceptedvalues:[v] deltacosts:[vC]",
    "gcc": "bounds:[vNN] deltacosts:[vC]",
    "knapsack": "capacity:N weights:(N)",
    "knapsackv": "capacity:N weightedvalues:[VvN]",
    **dict.fromkeys(("salldiff", "salldiffdp", "salldiffkp", "walldiff", "wsame"), "metric:K cost:C"),
    **dict.fromkeys(("sgcc", "sgccdp", "sgcckp", "wgcc", "wsamegcc"), "metric:K cost:C bounds:[vNN]"),
    "sregular": "metric:K cost:C nb_states:N starts:[N] ends:[N] transitions:[NvN]",
    **dict.fromkeys(("samong", "samongdp"), "metric:K cost:C min:N max:N values:[v]"),
    **dict.fromkeys(("max", "smaxdp"), "defaultcost:C tuples:[VvC]"),
    **dict.fromkeys(("MST", "smstdp"), ""),
    "wregular": "nb_states:N starts:[NC] ends:[NC] transitions:[NvNC]",
    "wamong": "metric:K cost:C values:[v] min:N max:N",
    "wvaramong": "metric:K cost:C values:[v]",
    **dict.fromkeys(("woverlap", "wsum"), "metric:K cost:C comparator:K to:N"),
    "wvarsum": "metric:K cost:C comparator:K",
    **dict.fromkeys(("wdiverse", "whdiverse", "wtdiverse"), "distance:N values:(v)"),
    "clique": "rhs:N values:(v+)",
    "ssame": "cost:C vars1:[V] vars2:[V]",
    **dict.fromkeys(
        ("sgrammar", "sgrammardp"),
        "metric:K cost:C nb_symbols:N nb_values:N start:N terminals:[Nv] non_terminals:[NNN]",
    ),
    **dict.fromkeys((">=", ">", "="), "N N"),
    "disj": "N N C",
    "sdisj": "N N N N C C",
}
"""Types and their parameters: K a word, N an integer, v a value, V a variable, C a cost. ``[vN]`` is a list of pairs,
with its length before it in the wcsp format; ``(v)`` one with an entry for each variable, without it; ``v+`` a list."""

WITH_COSTS = {"wdec": ("vNN", "vNNCC"), "weight": ("Nv", "NvC", "NNN", "NNNC")}
"""Metrics with costs in their lists: entries without, and with them."""

_EXCHANGED = "as toulbar2 reads it with the variables exchanged, against its manual; use >= or >"
MISREAD = {
    "<=": _EXCHANGED,
    "<": _EXCHANGED,
    "sregulardp": "as toulbar2 charges its cost whatever the values are, against its manual; use sregular",
}
"""Types that have a meaning in toulbar2's manual and another one in toulbar2, and why they are not read."""


class _Context(NamedTuple):
    """Context for reading parameters: names of the file's variables, precision and sign of its costs."""

    names: Sequence[str]
    precision: Precision
    sign: int


@dataclass(frozen=True)
class GlobalCall:
    """A function by its type, as it is read.

    path, line : where it is. title : what it is called there. kind : its type. scope : indices of variables.
    parameters : in the file's order, names included.
    """

    path: str
    line: int
    title: str
    kind: str
    scope: tuple[int, ...]
    parameters: list[Parameter]

    def error(self, message: str) -> FormatError:
        """The error to raise about the function."""
        return FormatError(self.path, self.line, f"{self.title} of type {self.kind!r}: {message}")

    def words(self, names: Sequence[str], precision: Precision, sign: int) -> Words:
        """The parameters as the wcsp format has them. names : of the file's variables. sign : of its costs."""
        signature = SIGNATURES[self.kind].split()
        left = list(self.parameters)
        found: list[Words] = []
        metric = ""
        for field in signature:
            name, _, shape = field.rpartition(":")
            if name and left and left[0] == name:
                del left[0]
            if not left:
                raise self.error(f"the parameters end, expected {' '.join(signature)}")
            for before, after in zip(*[iter(WITH_COSTS.get(metric, ()))] * 2, strict=True):
                shape = f"[{after}]" if shape == f"[{before}]" else shape
            found.append(self._values(left.pop(0), shape, name or shape, _Context(names, precision, sign)))
            metric = str(found[-1][0]) if name == "metric" else metric
        if left:
            raise self.error(f"found {_shown(left[0])} after its parameters, expected {' '.join(signature) or 'none'}")
        return _REORDERED[self.kind](metric, found) if self.kind in _REORDERED else [w for own in found for w in own]

    def _values(self, given: Parameter, shape: str, name: str, context: _Context) -> Words:
        if shape[0] not in "[(":
            return [self._value(given, shape, name, context)]
        if isinstance(given, str):
            raise self.error(f"found {given!r}, expected {name}, a list")
        if shape[0] == "(" and len(given) != len(self.scope):
            raise self.error(f"found {len(given)} of {name}, expected {len(self.scope)}, one for each variable")
        entry = shape[1:-1]
        words: Words = [str(len(given))] if shape[0] == "[" else []
        for item in given:
            if entry.endswith("+"):
                words += self._values(item, f"[{entry[:-1]}]", name, context)
                continue
            parts = [item] if len(entry) == 1 else item
            if isinstance(parts, str) or len(parts) != len(entry):
                raise self.error(f"found {_shown(item)} in {name}, expected a list of {len(entry)}")
            words += [self._value(part, kind, name, context) for part, kind in zip(parts, entry, strict=True)]
        return words

    def _value(self, given: Parameter, kind: str, name: str, context: _Context) -> str | int:
        if not isinstance(given, str):
            raise self.error(f"found a list in the place of {name}, expected a number or word")
        if kind == "V":
            return str(context.names.index(given)) if given in context.names else given
        if kind != "C":
            return given
        cost = None if parse_number(given) is None else context.precision.units(given)
        if cost is None or abs(cost) >= LARGEST_INTEGER:
            raise self.error(f"found {given!r}, expected {name}, a finite cost")
        return context.sign * cost


def _grammar(metric: str, found: list[Words]) -> Words:
    """Rules of both kinds in one list, each with its kind before it."""
    head, lists = [word for own in found[:-2] for word in own], found[-2:]
    rules: Words = []
    for kind, (count, *rest) in enumerate(lists):
        length = len(rest) // int(str(count)) if rest else 1
        for k in range(0, len(rest), length):
            rules += [str(kind + 2 * (metric == "weight")), *rest[k : k + length]]
    return [*head, str(sum(int(str(own[0])) for own in lists)), *rules]


def _two_lists(metric: str, found: list[Words]) -> Words:
    cost, left, right = found
    return [*cost, left[0], right[0], *left[1:], *right[1:]]


_REORDERED: dict[str, Callable[[str, list[Words]], Words]] = {
    "sgrammar": _grammar,
    "sgrammardp": _grammar,
    "ssame": _two_lists,
}
"""Types whose words have another order in the wcsp format."""


def decomposed(
    calls: Sequence[GlobalCall], sign: int, precision: Precision, limit: int | float, variables: Sequence[Variable]
) -> Decomposed:
    """Decomposition of all functions, with costs to minimise in units of the precision's last place.

    States have names that no variable has.

    sign : by which costs of the file become those to minimise. limit : what a function may cost below it, if no cost
        is below 0.
    """
    whole = Decomposed([v.size for v in variables])
    if not calls:
        return whole
    if not precision.scale:
        raise UnsupportedError(
            f"{calls[0].path}, line {calls[0].line}: {calls[0].title} has costs with the precision of mustbe, which is "
            "a number with an exponent here; write it without"
        )
    names = [v.name for v in variables]
    listed = [call.words(names, precision, sign) for call in calls]
    if all(word >= 0 for words in listed for word in words if isinstance(word, int)):
        whole.top = Fraction(limit) * precision.scale if math.isfinite(limit) else limit
    labels = [v.labels for v in variables]
    for call, words in zip(calls, listed, strict=True):
        text = _OneLine(call.path, " ".join(map(str, [call.kind, *words])).encode(), call.line)
        reader = GlobalReader(text, 0, call.scope, whole, precision.scale, True, labels)
        text.expect_end(read_global(reader), f"the parameters of {call.title}")
    while not set(names).isdisjoint(whole.names):
        whole.names = [f"{name}'" for name in whole.names]
    return whole


def read_parameters(lexer: Lexer, opening: str, closing: str, title: str, depth: int = 0) -> list[Parameter]:
    """Parameters behind their opening bracket, to their closing one, names included; ``depth``: lists around them."""
    values: list[Parameter] = []
    while not lexer.accept(closing):
        if not lexer.sees(opening):
            values.append(lexer.word(f"a parameter of {title}, or '}}'"))
            continue
        if depth == MOST_DEPTH:
            raise lexer.error(f"found a list within {depth} others in {title}, expected fewer")
        lexer.take(opening, "'['")
        values.append(read_parameters(lexer, opening, closing, title, depth + 1))
    return values


def _shown(given: Parameter) -> str:
    return repr(given) if isinstance(given, str) else "a list"


class _OneLine(Text):
    """Words that all are of one line of a file."""

    def __init__(self, path: str, data: bytes, line: int) -> None:
        super().__init__(path, data)
        self._line = line

    def line(self, token: int) -> int:
        """The line, whatever the word."""
        return self._line


LARGEST_INTEGER = 2**62
"""Integers from here on are read as floats."""

FORBIDDEN = "inf"
"""In the place of a cost: the tuple is forbidden, whether sums are minimised or maximised."""

MOST_DIGITS = 400
"""Digits before the point of a double at most, and some more."""


class Precision:
    """The precision that a limit, a finite number as printed, gives to costs; none where it has an exponent."""

    def __init__(self, limit: str) -> None:
        self._limit = limit
        self._decimals = None if "e" in limit.lower() else len(limit.partition(".")[2])
        self._context = Context(prec=MOST_DIGITS + len(limit), rounding=ROUND_DOWN)

    @property
    def is_whole(self) -> bool:
        """Whether all costs are integers, but for those that 64 bits do not hold."""
        return self._decimals == 0

    @property
    def scale(self) -> int:
        """Units of the last place in a cost of 1; 0 for costs without a last place."""
        return 0 if self._decimals is None else 10**self._decimals

    def units(self, text: str) -> int:
        """A finite cost in units of the last place, without the decimals that are too many."""
        return int(Decimal(text).scaleb(self._decimals or 0, self._context))

    def bound(self, minimises: bool) -> Cost:
        """Strict upper limit of sums (lower limit if they are maximised): the file's limit, half a place nearer."""
        if not self._decimals:
            return self.cost(self._limit)
        half = Decimal(5).scaleb(-self._decimals - 1)
        return float(self._context.subtract(Decimal(self._limit), half if minimises else -half))

    def cost(self, text: str) -> Cost:
        """A cost without the decimals that are too many: an integer where it is one, else float64; infinity of inf."""
        if text == FORBIDDEN:
            return math.inf
        if "e" in text.lower():
            if self._decimals is None:
                return float(text)
            last = Decimal(1).scaleb(-self._decimals)
            text = format(Decimal(text).quantize(last, context=self._context), "f")
        whole, point, decimals = text.partition(".")
        if self.is_whole or not point:
            return _integer(whole)
        return float(f"{whole}.{decimals[: self._decimals] or 0}") + 0.0  # not -0.0


def _integer(text: str) -> Cost:
    """Digits with a sign or none, of any number (Python converts so many only), as an integer if 62 bits do."""
    significant = text.lstrip("+-").lstrip("0") or "0"
    if len(significant) > 19 or int(significant) >= LARGEST_INTEGER:
        return float(text)
    return -int(significant) if text.startswith("-") else int(significant)


def room(bound: Cost, constant: Cost, tables: Sequence[ListedCosts]) -> Cost:
    """Cost of one function above its least cost from which no assignment stays below the bound.

    All in terms of costs to minimise. Negative infinity where a function forbids everything.
    """
    numbers = [bound, -constant, *(-_least(t) for t in tables)]
    margin = 2.0**-50 * math.fsum(abs(n) for n in numbers if abs(n) < math.inf)  # of rounded differences to the least
    return sum(numbers) if all(isinstance(n, int) for n in numbers) else math.fsum(numbers) + margin


def split(
    tables: Sequence[ListedCosts], bound: Cost, constant: Cost, sign: int, dtype: type[Any]
) -> tuple[list[Function], list[Constraint]]:
    """Costs and forbidden tuples of tables; parts without an effect are left out.

    tables, bound, constant : in terms of costs to minimise. sign : by which these are turned into the file's.
    dtype : of values.
    """
    most = room(bound, constant, tables)
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for t in tables:
        least = _least(t)
        keep = np.array(t.costs, np.float64) < math.inf
        costs = np.array(t.costs if keep.all() else [c if c < math.inf else 0 for c in t.costs], dtype)
        keep &= costs - (least if least < math.inf else 0) < most
        default = sign * t.default if t.rest - least < most else None
        for part in parts_of(t.scope, t.tuples, sign * costs, keep, default, t.size):
            (functions if isinstance(part, Function) else constraints).append(part)  # type: ignore[arg-type]
    return functions, constraints


def _least(table: ListedCosts) -> Cost:
    """Its least cost; infinity if it forbids everything."""
    return min(min(table.costs, default=math.inf), table.rest)
