"""Constraint satisfaction and optimisation problems in XCSP3: what has a form as tables and sums.

Read are variables and arrays of integers, ``extension`` (also with stars, ranges and conditions), ``instantiation``,
``intension`` and the constraints of :mod:`oocbe.formats.xcsp_globals` and those of walks, in groups, blocks and slides,
too; an objective that is an expression, a sum, or the like. All else is named in what is left out: propagation does
without it, solving refuses it.

Some constraints are walks from state to state: automata, decision diagrams, orders of lists, circuits. A ``circuit``
goes through all vertices that are not their own successors. Vertices have *places*, counted from the first one of the
circuit, the vertex with the lowest index: 1 for that, one more for each that follows, and 0 for those that follow
themselves. A successor's place is one more, or it is the first one; so no second circuit can close. Places have one
value for each circuit, and counts stay what they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats import xcsp_globals
from oocbe.formats.global_costs import State
from oocbe.formats.text import Text
from oocbe.formats.xcsp_expressions import Expression, UnsupportedConstraint, call, constant, variable
from oocbe.formats.xcsp_globals import differ, matrix_of, operator_of
from oocbe.formats.xcsp_reading import Arguments, Gathered, Reading, has_a_row, is_reified, read_reified, split_words
from oocbe.formats.xcsp_relations import Condition, Relations
from oocbe.formats.xcsp_variables import Variables, as_indices, read_hybrid_tuples, read_range, read_tuples
from oocbe.formats.xml import Element
from oocbe.model.compact_problem import ANY, CompactProblem, ShortTable, distinct
from oocbe.model.parts import Constraint
from oocbe.runtime.deadline import check_deadline

MOST_VERTICES = 100
"""Most vertices of a circuit: each two of them get a relation over two places and a successor."""


def _circuit(reading: Reading) -> None:
    reading.only("list", "size")
    listed = [variable(reading.relations.value_of(part)) for part in reading.listed()]
    first, count = reading.first_index(reading.list_element), len(listed)
    if count > MOST_VERTICES:
        raise UnsupportedConstraint(f"{count:,} vertices, more than {MOST_VERTICES}")
    vertices = [constant(first + number) for number in range(count)]
    for part in listed:
        reading.post(call("in", part, *vertices))
    differ(reading, listed, set())
    moves = [call("ne", part, own) for part, own in zip(listed, vertices, strict=True)]
    places = [variable(reading.relations.new_variable(range(count + 1))) for _ in listed]
    begun = constant(0)  # whether the circuit has a vertex so far
    for part, own, move, place in zip(listed, vertices, moves, places, strict=True):
        reading.post(call("iff", call("eq", place, constant(0)), call("eq", part, own)))
        reading.post(call("iff", call("eq", place, constant(1)), call("and", move, call("not", begun))))
        begun = variable(reading.relations.value_of(call("or", begun, move)))
    reading.post(begun)
    for number, (part, place) in enumerate(zip(listed, places, strict=True)):
        for other, (own, following) in enumerate(zip(vertices, places, strict=True)):
            if other != number:
                is_next = call("eq", following, call("add", place, constant(1)))
                arrives = call("or", is_next, call("eq", following, constant(1)))
                reading.post(call("imp", call("eq", part, own), arrives))
    if reading.element.child("size") is not None:
        terms = [(1, move) for move in moves]
        for size in reading.expressions("size"):
            reading.relations.add_sum(terms, Condition("eq", size), reading.name)


MOST_TRANSITIONS = 2**20
"""Transitions of an automaton at most, those that ranges stand for among them."""

_TRANSITION = re.compile(r"\(\s*([^(),\s]+)\s*,\s*([^(),\s]+)\s*,\s*([^(),\s]+)\s*\)\s*")

Moves = dict[tuple[str, int], set[str]]
"""From a state and a value to the next states."""


def _moves(element: Element) -> tuple[Moves, list[str]]:
    """Transitions, and the states that they come from in the file's order."""
    text = element.text.decode("utf-8", "replace").strip()
    moves: Moves = {}
    origins: dict[str, None] = {}
    place = count = 0
    while place < len(text):
        match = _TRANSITION.match(text, place)
        if match is None:
            raise element.error(f"found {text[place : place + 40]!r}, expected a transition such as (a,0,b)")
        low, high = read_range(element, match[2])
        count += high - low + 1
        if count > MOST_TRANSITIONS:
            raise element.error(f"found {count:,} transitions, expected at most {MOST_TRANSITIONS:,}")
        for value in range(low, high + 1):
            moves.setdefault((match[1], value), set()).add(match[3])
        origins.setdefault(match[1])
        place = match.end()
    if not moves:
        raise element.error("found no transition, expected one such as (a,0,b)")
    return moves, list(origins)


def _accept(reading: Reading, moves: Moves, start: str, ends: set[str]) -> None:
    """The values of the list are a word that some run accepts; states of the walk are sets of states."""

    def step(place: int, state: State, value: int) -> State | None:
        return frozenset(q for own in state for q in moves.get((own, value), ())) or None

    scope = [reading.relations.value_of(part) for part in reading.listed()]
    reading.relations.walk(scope, frozenset([start]), step, lambda state: not ends.isdisjoint(state), reading.name)


def _regular(reading: Reading) -> None:
    reading.only("list", "transitions", "start", "final")
    moves, _ = _moves(reading.element.needed("transitions"))
    start = reading.element.needed("start").text.decode("utf-8", "replace").split()
    if len(start) != 1:
        raise reading.element.error(f"found {len(start)} start states, expected one")
    ends = set(reading.element.needed("final").text.decode("utf-8", "replace").split())
    _accept(reading, moves, start[0], ends)


def _mdd(reading: Reading) -> None:
    reading.only("list", "transitions")
    moves, origins = _moves(reading.element.needed("transitions"))
    reached = {state for following in moves.values() for state in following}
    starts = [state for state in origins if state not in reached]
    if len(starts) != 1:
        raise reading.element.error(f"found {len(starts)} states that no transition leads to, expected one, the root")
    _accept(reading, moves, starts[0], reached - set(origins))


def _lex(reading: Reading) -> None:
    reading.only("list", "matrix", "operator", attributes=("case",))
    operator = operator_of(reading)
    if reading.element.child("matrix") is not None:
        rows = matrix_of(reading)
        groups: list[list[Sequence[Expression]]] = [list(rows), list(zip(*rows, strict=True))]
    else:
        groups = [[reading.expressions(own) for own in reading.lists]]
    for lists in groups:
        for one, other in itertools.pairwise(lists):
            if len(one) != len(other):
                raise reading.element.error("found lists of different lengths, expected the same")
            if operator in ("gt", "ge"):
                one, other = other, one
            _before(reading, one, other, operator in ("lt", "gt"))


def _before(reading: Reading, one: Sequence[Expression], other: Sequence[Expression], strictly: bool) -> None:
    """The first list is before the second one, as words of a dictionary are."""
    pairs = [part for pair in zip(one, other, strict=True) for part in pair]
    scope = [reading.relations.value_of(part) for part in pairs]

    # States: that one is before the other already, that both are equal, and then the value that the other has to reach.
    def step(place: int, state: State, value: int) -> State | None:
        if state == "before":
            return state
        if place % 2 == 0:
            return value
        return None if value < state else ("before" if value > state else "equal")

    reading.relations.walk(scope, "equal", step, lambda state: state == "before" or not strictly, reading.name)


def _precedence(reading: Reading) -> None:
    reading.only("list", "values", attributes=("covered",))
    scope = [reading.relations.value_of(part) for part in reading.listed()]
    values = reading.element.child("values")
    if values is None:
        ordered = sorted({value for v in scope for value in reading.relations.tables.values(v).tolist()})
    else:
        ordered = reading.integers("values")
    rank = {value: number for number, value in enumerate(ordered)}
    owner = reading.element if values is None else values
    is_covered = "true" in (owner.attributes.get("covered"), reading.element.attributes.get("covered"))

    # A state: how many of the values, in their order, have been seen.
    def step(place: int, state: State, value: int) -> State | None:
        number = rank.get(value, -1)
        return None if number > state else max(state, number + 1)

    reading.relations.walk(scope, 0, step, lambda state: not is_covered or state == len(ordered), reading.name)


READERS: dict[str, Callable[[Reading], None]] = {
    "regular": _regular,
    "mdd": _mdd,
    "lex": _lex,
    "precedence": _precedence,
    "circuit": _circuit,
}
"""Reader of each constraint."""


_PARAMETERS = re.compile(rb"%([0-9]{1,6})")


def parse(text: Text, root: Element) -> CompactProblem:
    """Read a problem; FormatError with the line where it is malformed. ``root`` is that of the file ``text``."""
    if root.tag != "instance" or root.attributes.get("format") != "XCSP3":
        raise root.error(f'found <{root.tag}>, expected <instance format="XCSP3">')
    # What has no objective is often counted: whole tables, if all constraints have one; other tables take other parts.
    is_whole = root.child("objectives") is None
    found = _XcspReader(text, root, is_whole).read()
    if not found.left_out:
        return found
    other = _XcspReader(text, root, not is_whole).read()
    return other if len(other.left_out) < len(found.left_out) + is_whole else found


@dataclass(eq=False)
class _Table:
    """A parsed table, and its rows as indices of one combination of domains, made once for all instances of a group."""

    rows: NDArray[np.int64]
    indices: dict[tuple[int, ...], NDArray[np.int64]]


class _XcspReader:
    def __init__(self, text: Text, root: Element, is_whole: bool) -> None:
        self._text, self._root = text, root
        self._variables = Variables()
        self._relations = Relations(self._variables, is_whole=is_whole)
        self._rest = 0
        self._tables: dict[tuple[int, ...], _Table] = {}
        self._short: list[ShortTable] = []
        self._left_out: list[str] = []
        self._readers: dict[str, Callable[[Reading], None]] = {
            "extension": self._extension,
            "instantiation": self._instantiation,
            **xcsp_globals.READERS,
            **READERS,
        }

    def read(self) -> CompactProblem:
        """Read all sections."""
        for child in self._root.children:
            if child.tag not in ("variables", "constraints", "objectives", "annotations"):
                raise child.error(f"found <{child.tag}>, expected <variables>, <constraints> or <objectives>")
        self._variables.read(self._root.needed("variables"))
        for child in self._root.parts("constraints"):
            self._constraint(child, None)
        self._objective(self._root.parts("objectives"))
        problem = self._relations.problem(self._text.stem)
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
            except UnsupportedConstraint as unread:
                self._leave_out(element, f"<{element.tag}> with {unread}")

    def _leave_out(self, element: Element, what: str, part: str = "constraint") -> None:
        line = f"{self._text.path}, line {element.line}: the {part} {what}"
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
        is_hybrid = element.attributes.get("type", "").startswith("hybrid")
        domains = [self._variables.domains[v] for v in scope] if is_hybrid else []
        key = (id(source), len(scope), *map(id, domains))
        if key not in self._tables:
            values = [own.values for own in domains]
            rows = read_hybrid_tuples(source, values) if is_hybrid else read_tuples(source, len(scope))
            self._tables[key] = _Table(rows, {})
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

    def _objective(self, listed: Sequence[Element]) -> None:
        if len(listed) > 1:
            self._leave_out(listed[1], "a second objective", "objective")
        for element in listed[:1]:
            if element.tag not in ("minimize", "maximize"):
                raise element.error(f"found <{element.tag}>, expected <minimize> or <maximize>")
            reading = Reading(element, None, self._relations)
            try:
                self._relations.set_objective(_objective_terms(reading), element.tag == "maximize")
            except (UnsupportedConstraint, UnsupportedError) as unread:
                self._leave_out(element, f"<{element.tag}> with {unread}", "objective")


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
    raise UnsupportedConstraint(f"type {kind}" if kind != "expression" else f"{len(terms)} expressions")
