"""Constraint satisfaction and optimisation problems in XCSP3: what has a form as tables and sums.

Read are variables and arrays of integers, ``extension`` (also with stars, ranges and conditions), ``instantiation``,
``intension`` and the constraints of :mod:`oocbe.formats.xcsp_globals`, :mod:`oocbe.formats.xcsp_walks`
and :mod:`oocbe.formats.xcsp_globals`, in groups, blocks and slides, too; an
objective that is an expression, a sum, or the like. All else is named in what is left out: propagation does without it,
solving refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats import xcsp_globals, xcsp_walks
from oocbe.formats.text import Text
from oocbe.formats.xcsp_expressions import Expression, Unread, call, constant, variable
from oocbe.formats.xcsp_reading import Arguments, Gathered, Reading, has_a_row, is_reified, read_reified, split_words
from oocbe.formats.xcsp_relations import Relations
from oocbe.formats.xcsp_tables import as_indices, read_hybrid_tuples, read_tuples
from oocbe.formats.xcsp_variables import Variables
from oocbe.formats.xml import Element
from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable, distinct
from oocbe.model.parts import Constraint
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import check_deadline

_PARAMETERS = re.compile(rb"%([0-9]{1,6})")


def parse(text: Text, root: Element) -> CompactProblem:
    """Read a problem; FormatError with the line where it is malformed. ``root`` is that of the file ``text``."""
    if root.tag != "instance" or root.attributes.get("format") != "XCSP3":
        raise root.error(f'found <{root.tag}>, expected <instance format="XCSP3">')
    return _XcspReader(text, root).read()


@dataclass(eq=False)
class _Table:
    """A parsed table, and its rows as indices of one combination of domains, made once for all instances of a group."""

    rows: NDArray[np.int64]
    indices: dict[tuple[int, ...], NDArray[np.int64]]


class _XcspReader:
    def __init__(self, text: Text, root: Element) -> None:
        self._text = text
        self._root = root
        self._variables = Variables()
        self._relations = Relations(self._variables)
        self._rest = 0
        self._tables: dict[tuple[int, ...], _Table] = {}
        self._short: list[ShortTable] = []
        self._left_out: list[str] = []
        self._readers: dict[str, Callable[[Reading], None]] = {
            "extension": self._extension,
            "instantiation": self._instantiation,
            **xcsp_globals.READERS,
            **xcsp_walks.READERS,
        }

    def read(self) -> CompactProblem:
        """Read all sections."""
        for child in self._root.children:
            if child.tag not in ("variables", "constraints", "objectives", "annotations"):
                raise child.error(f"found <{child.tag}>, expected <variables>, <constraints> or <objectives>")
        self._variables.read(self._root.needed("variables"))
        constraints, objectives = self._root.child("constraints"), self._root.child("objectives")
        for child in constraints.children if constraints is not None else ():
            self._constraint(child, None)
        if objectives is not None:
            self._objective(objectives)
        relations = self._relations
        problem = Problem(
            tuple(self._variables.variables),
            tuple(relations.functions),
            tuple(relations.tables.constraints),
            tuple(relations.sums.linear),
            semiring=MAX_SUM if relations.maximises else MIN_SUM,
            constant=relations.constant,
            name=self._text.stem,
        )
        return CompactProblem(problem, tuple(self._short), tuple(self._left_out))

    def _constraint(self, element: Element, arguments: Arguments) -> None:
        """Add a constraint, a group's instances, or what is in a block."""
        check_deadline()
        if element.tag == "block" and arguments is None:
            for child in element.children:
                self._constraint(child, None)
        elif element.tag == "group" and arguments is None:
            self._group(element)
        elif element.tag not in self._readers and (element.tag != "slide" or arguments is not None):
            self._leave_out(element, f"<{element.tag}>")
        elif element.attributes.get("type", "hard") == "soft" or "violationCost" in element.attributes:
            self._leave_out(element, f"a soft <{element.tag}>")
        elif is_reified(element) and element.tag == "slide":
            self._leave_out(element, "<slide> with a variable for its truth")
        else:
            try:
                if element.tag == "slide":
                    self._slide(element)
                    return
                read, reading = self._readers[element.tag], Reading(element, arguments, self._relations, self._rest)
                if is_reified(element):
                    read_reified(read, reading)
                else:
                    read(reading)
            except Unread as unread:
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
            words = split_words(args.text.decode("utf-8", "replace"))
            filled = [part for word in words for part in self._argument(args, word)]
            self._constraint(template, filled)

    def _argument(self, element: Element, word: str) -> list[int | str]:
        is_name = "(" not in word and (word[:1].isalpha() or word.startswith("_"))
        return list(self._variables.of(element, word)) if is_name else [word]

    def _slide(self, element: Element) -> None:
        """A constraint on some variables of a list, then on those that follow them, and so on to the list's end."""
        lists, templates = ([own for own in element.children if (own.tag == "list") == is_list] for is_list in (1, 0))
        if len(lists) != 1 or len(templates) != 1 or templates[0].tag not in self._readers:
            self._leave_out(element, "<slide> without exactly one list and one constraint")
            return
        (listed,), (template,) = lists, templates
        offset = listed.attributes.get("offset", "1")
        if not (offset.isascii() and offset.isdecimal() and 0 < int(offset[:9]) == int(offset)):
            raise listed.error(f"found the offset {offset[:40]!r}, expected an integer of at least 1")
        within = self._text.data[template.offset : _end_of(template)]
        arity = 1 + max((int(number) for number in _PARAMETERS.findall(within)), default=-1)
        scope = Reading(listed, None, self._relations).scope(listed)
        if b"%..." in within or not 1 <= arity <= len(scope):
            raise element.error(f"found a <slide> with {arity} parameters over {len(scope)} variables")
        is_circular = element.attributes.get("circular", "false") == "true"
        self._rest = arity
        for start in range(0, len(scope) if is_circular else len(scope) - arity + 1, int(offset)):
            self._constraint(template, [scope[(start + place) % len(scope)] for place in range(arity)])

    def _extension(self, reading: Reading) -> None:
        reading.only("list", "supports", "conflicts")
        element = reading.element
        scope = reading.scope("list")
        supports, conflicts = element.child("supports"), element.child("conflicts")
        if (supports is None) == (conflicts is None):
            raise element.error("found an <extension>, expected either <supports> or <conflicts> in it")
        source = supports if supports is not None else conflicts
        assert source is not None
        table = self._table(element, source, scope)
        if isinstance(reading.relations, Gathered):
            listed = has_a_row(scope, table.rows)
            reading.post(listed if supports is not None else call("not", listed))
            return
        scope = self._relations.distinct(scope)
        domains = [self._variables.domains[v] for v in scope]
        which = tuple(map(id, domains))
        if which not in table.indices:
            indices = as_indices(table.rows, domains)
            table.indices[which] = distinct(indices, tuple(len(d.values) for d in domains))
        rows = table.indices[which]
        if (rows == ANY).any():
            self._short.append(ShortTable(tuple(scope), rows, supports is not None))
        else:
            self._relations.tables.constraints.append(Constraint(tuple(scope), rows, supports is not None))

    def _table(self, element: Element, source: Element, scope: list[int]) -> _Table:
        """The parsed tuples; those of a hybrid table depend on the domains."""
        if element.attributes.get("type", "").startswith("hybrid"):
            domains = [self._variables.domains[v] for v in scope]
            key: tuple[int, ...] = (id(source), len(scope), *map(id, domains))
            if key not in self._tables:
                self._tables[key] = _Table(read_hybrid_tuples(source, [own.values for own in domains]), {})
            return self._tables[key]
        key = (id(source), len(scope))
        if key not in self._tables:
            self._tables[key] = _Table(read_tuples(source, len(scope)), {})
        return self._tables[key]

    def _instantiation(self, reading: Reading) -> None:
        reading.only("list", "values")
        element = reading.element
        scope = reading.scope("list")
        values = reading.integers("values")
        if len(values) != len(scope):
            raise element.error(f"found {len(values)} values for {len(scope)} variables, expected one each")
        for v, value in zip(scope, values, strict=True):
            if isinstance(reading.relations, Gathered):
                reading.post(call("eq", variable(v), constant(value)))
                continue
            indices = np.flatnonzero(self._variables.domains[v].values == value)
            self._relations.tables.constraints.append(Constraint((v,), indices[:, None], allowed=True))

    def _objective(self, section: Element) -> None:
        if len(section.children) > 1:
            self._leave_out_objective(section.children[1], "a second objective")
        for element in section.children[:1]:
            if element.tag not in ("minimize", "maximize"):
                raise element.error(f"found <{element.tag}>, expected <minimize> or <maximize>")
            reading = Reading(element, None, self._relations)
            try:
                self._relations.set_objective(_objective_terms(reading), element.tag == "maximize")
            except (Unread, UnsupportedError) as unread:
                self._leave_out_objective(element, f"<{element.tag}> with {unread}")

    def _leave_out_objective(self, element: Element, what: str) -> None:
        self._left_out.append(f"{self._text.path}, line {element.line}: the objective {what}")


def _end_of(element: Element) -> int:
    """A byte after all text within an element, and before what follows it."""
    return max(element.end, *(_end_of(child) for child in element.children), element.offset)


def _objective_terms(reading: Reading) -> list[tuple[int, Expression]]:
    kind = reading.element.attributes.get("type", "expression")
    reading.only("list", "coeffs", "except")
    terms = xcsp_globals.terms_of(reading)
    if kind == "sum" or (kind == "expression" and len(terms) == 1):
        return terms
    weighted = [part if c == 1 else call("mul", constant(c), part) for c, part in terms]
    if kind in ("minimum", "maximum"):
        return [(1, call(kind[:3], *weighted))]
    if kind == "product":
        return [(1, call("mul", *weighted))]
    if kind == "nValues":
        return [(1, part) for part in xcsp_globals.presences(reading, weighted)]
    raise Unread(f"type {kind}" if kind != "expression" else f"{len(terms)} expressions")
