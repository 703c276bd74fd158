"""Constraint satisfaction and optimisation problems in XCSP3: what has a form as tables and sums.

Read are variables and arrays of integers, ``extension`` (also with stars and ranges), ``instantiation``, ``sum`` with a
constant or a variable on the right, ``allDifferent`` over few values, and these in groups and blocks; an objective that
is a variable or a sum. All else is named in what is left out: propagation does without it, solving refuses it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.io.text import Text
from oocbe.io.xcsp_sums import Sums, Term
from oocbe.io.xcsp_tables import as_indices, read_tuples
from oocbe.io.xcsp_variables import Variables, read_integer
from oocbe.io.xml import Element
from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable, distinct
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.system.deadline import look

MOST_PAIRS = 2**20
"""Forbidden pairs of values that one ``allDifferent`` may take."""

MOST_REPEATS = 2**22
"""Integers that a word such as ``0x100`` may stand for."""

_PARAMETER = re.compile(r"%([0-9]{1,6})")
_PARAMETERS = re.compile(rb"%([0-9]{1,6})")
_REPEATED = re.compile(r"([+-]?[0-9]{1,19})x([0-9]{1,9})")

Arguments = Sequence[int | str] | None
"""What a group's template is filled with: variables by index, anything else as it is written; None outside groups."""


class _Unread(Exception):  # noqa: N818  (no error: what is raised for a constraint that is left out)
    """A part of a constraint that has no form here; its message says which."""


def parse(text: Text, root: Element) -> CompactProblem:
    """Read a problem; FormatError with the line where it is malformed. ``root`` is that of the file ``text``."""
    if root.tag != "instance" or root.attributes.get("format") != "XCSP3":
        raise root.error(f'found <{root.tag}>, expected <instance format="XCSP3">')
    return _Reader(text, root).read()


@dataclass(eq=False)
class _Table:
    """A parsed table, and its rows as indices of one combination of domains, made once for all instances of a group."""

    rows: NDArray[np.int64]
    indices: dict[tuple[int, ...], NDArray[np.int64]]


class _Reader:
    """What has been read so far."""

    def __init__(self, text: Text, root: Element) -> None:
        self._text = text
        self._root = root
        self._variables = Variables()
        self._tables: dict[tuple[int, int], _Table] = {}
        self._constraints: list[Constraint] = []
        self._short: list[ShortTable] = []
        self._left_out: list[str] = []
        self._constant = 0
        self._rest = 0  # the first argument that ``%...`` stands for: those before it have numbers in the template
        self._readers: dict[str, Callable[[Element, Arguments], None]] = {
            "extension": self._extension,
            "instantiation": self._instantiation,
            "sum": self._sum,
            "allDifferent": self._all_different,
        }

    def read(self) -> CompactProblem:
        """Read all sections."""
        for child in self._root.children:
            if child.tag not in ("variables", "constraints", "objectives", "annotations"):
                raise child.error(f"found <{child.tag}>, expected <variables>, <constraints> or <objectives>")
        self._variables.read(self._root.needed("variables"))
        self._sums = Sums(self._variables.domains)
        constraints, objectives = self._root.child("constraints"), self._root.child("objectives")
        for child in constraints.children if constraints is not None else ():
            self._constraint(child, None)
        if objectives is not None:
            self._objective(objectives)
        problem = Problem(
            tuple(self._variables.variables),
            tuple(self._sums.functions),
            tuple(self._constraints),
            tuple(self._sums.linear),
            semiring=MAX_SUM if self._sums.maximises else MIN_SUM,
            constant=self._constant,
            name=self._text.stem,
        )
        return CompactProblem(problem, tuple(self._short), tuple(self._left_out))

    def _constraint(self, element: Element, arguments: Arguments) -> None:
        """Add a constraint, a group's instances, or what is in a block."""
        look()
        if element.tag == "block" and arguments is None:
            for child in element.children:
                self._constraint(child, None)
        elif element.tag == "group" and arguments is None:
            self._group(element)
        elif element.tag not in self._readers:
            self._leave_out(element, f"<{element.tag}>")
        elif element.attributes.get("type", "hard") == "soft" or "violationCost" in element.attributes:
            self._leave_out(element, f"a soft <{element.tag}>")
        else:
            try:
                self._readers[element.tag](element, arguments)
            except _Unread as unread:
                self._leave_out(element, f"<{element.tag}> with {unread}")

    def _leave_out(self, element: Element, what: str) -> None:
        line = f"{self._text.path}, line {element.line}: the constraint {what}"
        if not self._left_out or self._left_out[-1] != line:  # instances of a group are one line
            self._left_out.append(line)

    def _group(self, element: Element) -> None:
        if not element.children:
            raise element.error("found an empty <group>, expected a constraint and <args>")
        template, *instances = element.children
        within = self._text.data[template.offset : instances[0].offset if instances else template.offset]
        self._rest = 1 + max((int(number) for number in _PARAMETERS.findall(within)), default=-1)
        for args in instances:
            if args.tag != "args":
                raise args.error(f"found <{args.tag}>, expected <args>")
            if template.tag not in self._readers:
                self._leave_out(template, f"<{template.tag}>")
                break
            words = args.text.decode("utf-8", "replace").split()
            filled = [part for word in words for part in self._argument(args, word)]
            self._constraint(template, filled)

    def _argument(self, element: Element, word: str) -> Sequence[int | str]:
        return self._variables.of(element, word) if word[:1].isalpha() or word.startswith("_") else (word,)

    def _words(self, element: Element, arguments: Arguments) -> list[int | str]:
        """The words of an element; parameters of a template are what the arguments say."""
        found: list[int | str] = []
        words = element.text.decode("utf-8", "replace").split()
        for word in words:
            match = _PARAMETER.fullmatch(word)
            if arguments is not None and match is not None:
                if int(match[1]) >= len(arguments):
                    raise element.error(f"found {word}, expected one of the {len(arguments)} arguments of each <args>")
                found.append(arguments[int(match[1])])
            elif arguments is not None and word == "%...":
                found += arguments[self._rest :]
            else:
                found.append(word)
        return found

    def _parts(self, element: Element, arguments: Arguments) -> list[int | str]:
        """Variables of a list, by index, and constants as they are written; _Unread where something else is in it."""
        if element.children:
            raise _Unread(f"<{element.children[0].tag}> in <{element.tag}>")
        parts: list[int | str] = []
        for word in self._words(element, arguments):
            if isinstance(word, int) or re.fullmatch(r"[+-]?[0-9]+", word):
                parts.append(word)
            elif "(" in word:
                raise _Unread("expressions")
            else:
                parts += self._variables.of(element, word)
        if not parts:
            raise element.error(f"found an empty <{element.tag}>, expected variables")
        return parts

    def _scope(self, element: Element, arguments: Arguments) -> list[int]:
        """Variables of a list; _Unread where something else is in it."""
        parts = self._parts(element, arguments)
        scope = [part for part in parts if isinstance(part, int)]
        if len(scope) != len(parts):
            raise _Unread("constants among variables")
        return scope

    def _integers(self, element: Element, arguments: Arguments) -> list[int]:
        """Integers of a list, of which ``7x3`` says 7 three times; _Unread where there are variables."""
        found: list[int] = []
        for word in self._words(element, arguments):
            repeated = _REPEATED.fullmatch(word) if isinstance(word, str) else None
            if isinstance(word, int) or word[:1].isalpha():
                raise _Unread(f"variables as {element.tag}")
            times = int(repeated[2]) if repeated is not None else 1
            if len(found) + times > MOST_REPEATS:
                raise element.error(f"found a list of over {MOST_REPEATS:,} integers, expected fewer")
            found += [read_integer(element, repeated[1] if repeated is not None else word)] * times
        return found

    def _list(self, element: Element) -> Element:
        """The list of a constraint, which may be all that it has."""
        lists = [child for child in element.children if child.tag == "list"]
        if len(lists) > 1:
            raise _Unread("several lists")
        return lists[0] if lists or element.children else element

    def _only(self, element: Element, *tags: str) -> None:
        for child in element.children:
            if child.tag not in tags:
                raise _Unread(f"<{child.tag}>")

    def _extension(self, element: Element, arguments: Arguments) -> None:
        self._only(element, "list", "supports", "conflicts")
        scope = self._scope(element.needed("list"), arguments)
        supports, conflicts = element.child("supports"), element.child("conflicts")
        if (supports is None) == (conflicts is None):
            raise element.error("found an <extension>, expected either <supports> or <conflicts> in it")
        source = supports if supports is not None else conflicts
        assert source is not None
        if len(set(scope)) != len(scope):
            raise _Unread("a variable twice in its list")
        key = (id(source), len(scope))
        if key not in self._tables:
            self._tables[key] = _Table(read_tuples(source, len(scope)), {})
        table = self._tables[key]
        domains = [self._variables.domains[v] for v in scope]
        which = tuple(map(id, domains))
        if which not in table.indices:
            indices = as_indices(table.rows, domains)
            table.indices[which] = distinct(indices, tuple(len(d.values) for d in domains))
        rows = table.indices[which]
        if (rows == ANY).any():
            self._short.append(ShortTable(tuple(scope), rows, supports is not None))
        else:
            self._constraints.append(Constraint(tuple(scope), rows, supports is not None))

    def _instantiation(self, element: Element, arguments: Arguments) -> None:
        self._only(element, "list", "values")
        scope = self._scope(element.needed("list"), arguments)
        values = self._integers(element.needed("values"), arguments)
        if len(values) != len(scope):
            raise element.error(f"found {len(values)} values for {len(scope)} variables, expected one each")
        for v, value in zip(scope, values, strict=True):
            indices = np.flatnonzero(self._variables.domains[v].values == value)
            self._constraints.append(Constraint((v,), indices[:, None], allowed=True))

    def _sum(self, element: Element, arguments: Arguments) -> None:
        self._only(element, "list", "coeffs", "condition")
        terms, constant = self._terms(element, arguments)
        condition = element.needed("condition")
        words = self._words(condition, arguments)
        text = "".join(str(word) for word in words)
        match = re.fullmatch(r"\((lt|le|ge|gt|eq|ne|in|notin),(.*)\)", text)
        if match is None:
            raise condition.error(f"found {text[:40]!r}, expected a condition such as (le,7)")
        operator, right = match[1], match[2]
        parameter = _PARAMETER.fullmatch(right)
        if parameter is not None and arguments is not None and int(parameter[1]) < len(arguments):
            given = arguments[int(parameter[1])]
            right = str(given) if isinstance(given, str) else right
            terms += [Term(-1, given)] if isinstance(given, int) else []
            right = "0" if isinstance(given, int) else right
        elif right[:1].isalpha():
            (variable,) = self._variables.of(condition, right)
            terms.append(Term(-1, variable))
            right = "0"
        interval = re.fullmatch(r"([+-]?[0-9]{1,19})\.\.([+-]?[0-9]{1,19})", right) if operator == "in" else None
        if operator in ("ne", "notin") or (operator == "in" and interval is None):
            raise _Unread(f"the condition {operator}")
        if interval is not None:
            low, high = read_integer(condition, interval[1]), read_integer(condition, interval[2])
        else:
            low = high = read_integer(condition, right)
        low, high = low - constant, high - constant
        try:
            name = f"sum of line {element.line}"
            if operator in ("le", "lt", "eq", "in"):
                self._sums.add_at_most(terms, high - (operator == "lt"), name)
            if operator in ("ge", "gt", "eq", "in"):
                self._sums.add_at_most(
                    [Term(-t.coefficient, t.variable) for t in terms], -low - (operator == "gt"), name
                )
        except UnsupportedError as error:
            raise _Unread(str(error)) from None

    def _terms(self, element: Element, arguments: Arguments) -> tuple[list[Term], int]:
        """Terms of a sum, and what the constants in its list add."""
        source = self._list(element)
        parts = self._parts(source, arguments)
        coeffs = element.child("coeffs")
        coefficients = [1] * len(parts) if coeffs is None else self._integers(coeffs, arguments)
        if len(coefficients) != len(parts):
            raise element.error(f"found {len(coefficients)} coefficients of {len(parts)} variables, expected one each")
        pairs = list(zip(coefficients, parts, strict=True))
        constant = sum(c * read_integer(source, part) for c, part in pairs if isinstance(part, str))
        return [Term(c, part) for c, part in pairs if isinstance(part, int)], constant

    def _all_different(self, element: Element, arguments: Arguments) -> None:
        self._only(element, "list")
        scope = self._scope(self._list(element), arguments)
        if len(set(scope)) != len(scope):
            raise _Unread("a variable twice")
        domains = [self._variables.domains[v] for v in scope]
        if len(scope) * sum(len(domain.values) for domain in domains) // 2 > MOST_PAIRS:
            raise _Unread(f"more than {MOST_PAIRS:,} pairs of values")
        shared: dict[tuple[int, int], NDArray[np.int64]] = {}
        for one, other in itertools.combinations(range(len(scope)), 2):
            look()
            key = (id(domains[one]), id(domains[other]))
            if key not in shared:
                _, left, right = np.intersect1d(
                    domains[one].values, domains[other].values, assume_unique=True, return_indices=True
                )
                shared[key] = np.stack([left, right], axis=1)
            if len(shared[key]):
                self._constraints.append(Constraint((scope[one], scope[other]), shared[key]))

    def _objective(self, section: Element) -> None:
        if len(section.children) > 1:
            self._leave_out_objective(section.children[1], "a second objective")
        for element in section.children[:1]:
            if element.tag not in ("minimize", "maximize"):
                raise element.error(f"found <{element.tag}>, expected <minimize> or <maximize>")
            kind = element.attributes.get("type", "expression")
            try:
                if kind not in ("sum", "expression"):
                    raise _Unread(f"type {kind}")
                self._only(element, "list", "coeffs")
                terms, self._constant = self._terms(element, None)
                if kind == "expression" and len(terms) != 1:
                    raise _Unread("an expression")
                self._sums.set_objective(terms, element.tag == "maximize")
            except (_Unread, UnsupportedError) as unread:
                self._leave_out_objective(element, f"<{element.tag}> with {unread}")

    def _leave_out_objective(self, element: Element, what: str) -> None:
        self._left_out.append(f"{self._text.path}, line {element.line}: the objective {what}")
