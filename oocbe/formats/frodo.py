"""XCSP 2.1 with relations: distributed problems as FRODO writes them, with agents, and those of CSP and WCSP without.

Read are domains of integers or names, relations with ``soft``, ``supports`` and ``conflicts`` semantics and infinite
costs, predicates and functions, an agent for each variable where there are any, ``initialCost``, which is added, and
``maximalCost``, which all sums are below. Global constraints and quantifiers are refused by name.

Predicates and functions are expressions with parameters, which constraints give variables and integers:
``<predicate name="P"> <parameters> int X int Y </parameters> <expression> <functional> ne(X,add(Y,1)) </functional>``
forbids where it is false; a ``<function>`` costs what it is worth. Constraints with either are written out as tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError, amount
from oocbe.formats.cost_tables import MOST_VALUES, CostTable, cost_tables, parts_of_listed
from oocbe.formats.text import Text, parse_number
from oocbe.formats.xcsp_expressions import (
    Expression,
    Malformed,
    UnsupportedConstraint,
    bounds_of,
    constant,
    evaluate,
    variable,
)
from oocbe.formats.xcsp_expressions import parse as parse_functional
from oocbe.formats.xml import Element
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.row_numbers import distinct_values
from oocbe.model.semiring import MAX_SUM, MIN_SUM, Marginalisation
from oocbe.runtime.deadline import check_deadline

FORMAT = "XCSP 2.1_FRODO"
"""The presentation of such a file."""

REMEDY = "; write constraints as relations with tuples"

SECTIONS = (
    "presentation",
    "agents",
    "domains",
    "variables",
    "relations",
    "predicates",
    "functions",
    "constraints",
    "probabilities",
    "quantification",
)
"""Elements below the root."""

_RANGE = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_INFINITE = {"infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf}


def is_xcsp2(root: Element) -> bool:
    """Whether a file's root is that of such a problem; FRODO does without a format."""
    if root.tag != "instance" or "format" in root.attributes:
        return False
    presentation = root.child("presentation")
    given = "" if presentation is None else presentation.attributes.get("format", "")
    return given.startswith("XCSP 2.") or (not given and root.child("domains") is not None)


def parse(text: Text, root: Element) -> Dcop | Problem:
    """Read a problem, a distributed one where it has agents; ``root`` is that of the file ``text``.

    FormatError with the line where it is malformed, UnsupportedError for what is not read.
    """
    return _FrodoReader(text, root).read()


@dataclass(eq=False)
class _Relation:
    """A relation as it is written: rows of words, a cost each; infinite costs forbid."""

    element: Element
    semantics: str
    arity: int
    default: int | float | None
    rows: list[list[str]] = field(default_factory=list)
    costs: list[int | float] = field(default_factory=list)


class _FrodoReader:
    def __init__(self, text: Text, root: Element) -> None:
        self._text, self._root = text, root
        self._presentation = root.needed("presentation")
        self._is_max = self._presentation.attributes.get("maximize", "false") == "true"
        kind = self._presentation.attributes.get("type", "")
        if kind.startswith(("QCSP", "WQCSP")):
            raise self._presentation.unsupported(f"the type {kind}", REMEDY)
        for found in root.children:
            if found.tag not in SECTIONS or (found.tag in SECTIONS[-2:] and found.children):
                raise found.unsupported(f"<{found.tag}>", REMEDY)
        self._domains: dict[str, tuple[str, ...]] = {}
        self._variables: list[Variable] = []
        self._index: dict[str, int] = {}
        self._owner: list[int] = []

    def read(self) -> Dcop | Problem:
        known = self._root.child("agents")
        agents = None if known is None else [self._name(a) for a in known.children]
        if known is not None and agents is not None and len(set(agents)) != len(agents):
            raise known.error("found an agent twice, expected different names")
        for element in self._root.needed("domains").children:
            self._domains[self._name(element)] = self._labels(element)
        numbers = None if agents is None else {agent: number for number, agent in enumerate(agents)}
        for element in self._root.needed("variables").children:
            self._read_variable(element, numbers)
        relations = {self._name(element): self._relation(element) for element in self._root.parts("relations")}
        listed = [*self._root.parts("predicates"), *self._root.parts("functions")]
        templates = {self._name(element): Template.read(element) for element in listed}
        functions: list[Function] = []
        constraints: list[Constraint] = []
        for element in self._root.parts("constraints"):
            for part in self._parts(element, relations, templates):
                (functions if isinstance(part, Function) else constraints).append(part)  # type: ignore[arg-type]
        semiring = MAX_SUM if self._is_max else MIN_SUM
        name = self._presentation.attributes.get("name", "")
        if name in ("", "?"):
            name = self._text.stem
        constant, bound = self._limits(self._root.child("constraints"), functions)
        problem = Problem(
            tuple(self._variables),
            tuple(functions),
            tuple(constraints),
            constant=constant,
            semiring=semiring,
            upper_bound=bound,
            name=name,
        )
        return problem if agents is None else Dcop(problem, tuple(agents), tuple(self._owner))

    def _limits(self, listed: Element | None, functions: Sequence[Function]) -> tuple[int | float, int | float | None]:
        """The cost to begin with, and what sums stay below; None: any sum."""
        attributes = {} if listed is None else listed.attributes
        constant = 0 if listed is None else self._cost(listed, attributes.get("initialCost", "0"))
        given = attributes.get("maximalCost")
        if listed is None or given in (None, "infinity"):
            return constant, None
        assert given is not None
        has_negative = any((f.default or 0) < 0 or f.values.min(initial=0) < 0 for f in functions)
        if self._is_max or constant < 0 or has_negative:
            raise listed.unsupported(f"maximalCost={given!r} of utilities, or beside costs below 0,", REMEDY)
        return constant, self._cost(listed, given)

    def _name(self, element: Element) -> str:
        name = element.attributes.get("name", "")
        if not name:
            raise element.error(f"found a <{element.tag}> without a name, expected one")
        return name

    def _labels(self, element: Element) -> tuple[str, ...]:
        labels: list[str] = []
        room = MOST_VALUES - sum(map(len, self._domains.values()))
        for word in element.text.decode("utf-8", errors="replace").split():
            check_deadline()
            ranged = _RANGE.fullmatch(word)
            if ranged is None:
                labels.append(word)
                continue
            low, high = int(ranged[1]), int(ranged[2])
            if low > high:
                raise element.error(f"found the range {word!r}, expected low..high")
            if high - low >= room - len(labels):
                raise element.error(f"found the range {word!r}, expected {MOST_VALUES:,} values in all domains at most")
            labels += map(str, range(low, high + 1))
        if not labels or len(set(labels)) != len(labels):
            raise element.error("found no value, or one twice; expected different values")
        self._check_count(element, "nbValues", len(labels))
        return tuple(labels)

    def _check_count(self, element: Element, attribute: str, found: int) -> None:
        given = element.attributes.get(attribute)
        if given is not None and given != str(found):
            raise element.error(f"found {found:,}, expected {attribute}={given!r}")

    def _read_variable(self, element: Element, agents: Mapping[str, int] | None) -> None:
        name = self._name(element)
        domain, agent = (element.attributes.get(key) for key in ("domain", "agent"))
        if name in self._index:
            raise element.error(f"found a second variable {name}, expected each once")
        if domain not in self._domains:
            raise element.error(
                f"variable {name} has the domain {domain!r}, expected one of {', '.join(self._domains)}"
            )
        if agents is None and agent is not None:
            raise element.error(f"variable {name} has the agent {agent!r}, expected <agents> that list it")
        if agents is not None and agent not in agents:
            what = "no agent" if agent is None else f"the agent {agent!r}"
            shown = ", ".join(list(agents)[:8]) + (", …" if len(agents) > 8 else "")
            raise element.error(f"variable {name} has {what}, expected one of {shown}")
        labels = self._domains[domain]
        self._index[name] = len(self._variables)
        self._variables.append(Variable(name, len(labels), labels))
        if agents is not None and agent is not None:
            self._owner.append(agents[agent])

    def _relation(self, element: Element) -> _Relation:
        attributes = element.attributes
        semantics = attributes.get("semantics", "")
        if element.tag != "relation" or semantics not in ("soft", "supports", "conflicts"):
            raise element.unsupported(f"<{element.tag}> with the semantics {semantics!r}", REMEDY)
        arity = attributes.get("arity", "")
        if not arity.isdecimal() or int(arity) < 1:
            raise element.error(f"found the arity {arity!r}, expected a number, at least 1")
        given = attributes.get("defaultCost") if semantics == "soft" else None  # without one, all others are forbidden
        default = None if given is None else self._cost(element, given)
        relation = _Relation(element, semantics, int(arity), default)
        cost: int | float | None = None if semantics == "soft" else 0
        content = element.text.decode("utf-8", errors="replace")
        for part in content.split("|") if content.strip() else []:
            check_deadline()
            before, colon, row = part.rpartition(":")
            if colon and semantics != "soft":
                raise element.error(f"found the cost {before.strip()!r}, expected tuples without costs")
            if colon:
                cost = self._cost(element, before.strip())
            if cost is None:
                raise element.error(f"found the tuple {row.strip()[:40]!r} with no cost before it, expected one")
            relation.rows.append(row.split())
            relation.costs.append(cost)
        if len({len(words) for words in relation.rows}) == 1:
            relation.arity = len(relation.rows[0])  # as in FRODO, the tuples decide, not the attribute
        for words in relation.rows:
            if len(words) != relation.arity:
                row = " ".join(words)
                found = f"found the tuple {row[:40]!r} with {amount(len(words), 'value')} behind its cost"
                raise element.error(f"{found}, expected {relation.arity}")
        self._check_count(element, "nbTuples", len(relation.rows))
        return relation

    def _cost(self, element: Element, word: str) -> int | float:
        if word in _INFINITE:
            bad = -math.inf if self._is_max else math.inf
            if _INFINITE[word] != bad:
                raise element.error(f"found the cost {word!r}, expected none that is infinitely good")
            return bad
        if _INTEGER.fullmatch(word):
            return int(word)
        found = parse_number(word)
        if found is None:
            raise element.error(f"found the cost {word[:40]!r}, expected a number or infinity")
        return found

    def _parts(
        self, element: Element, relations: Mapping[str, _Relation], templates: Mapping[str, Template]
    ) -> Iterable[Function | Constraint]:
        """Costs and forbidden tuples of a constraint."""
        name = self._name(element)
        reference = element.attributes.get("reference", "")
        template = templates.get(reference)
        if reference.startswith("global:") or (element.children and template is None):
            raise element.unsupported(f"constraint {name} ({reference or 'with parameters'})", REMEDY)
        if reference not in relations and template is None:
            raise element.error(
                f"constraint {name} refers to {reference!r}, which is no relation, predicate or function"
            )
        scope = element.attributes.get("scope", "").split()
        for word in scope:
            if word not in self._index:
                raise element.error(f"constraint {name}: found {word!r} in its scope, expected a variable")
        arity = relations[reference].arity if template is None else len(scope)
        if len(set(scope)) != len(scope) or len(scope) != arity:
            raise element.error(
                f"constraint {name} has the scope {' '.join(scope)!r}, expected {arity} different variables"
            )
        if template is not None:
            given = element.needed("parameters").text.decode("utf-8", "replace").split()
            return [template.written_out(given, [self._index[word] for word in scope], self._variables, element)]
        relation = relations[reference]
        variables = tuple(self._index[word] for word in scope)
        tuples = self._tuples(name, relation, variables)
        if relation.semantics != "soft":
            return [Constraint(variables, tuples, allowed=relation.semantics == "supports")]
        default = None if relation.default is None or math.isinf(relation.default) else relation.default
        cells = math.prod(self._variables[v].size for v in variables)
        return parts_of_listed(variables, tuples, relation.costs, default, cells)

    def _tuples(self, name: str, relation: _Relation, variables: tuple[int, ...]) -> NDArray[np.int64]:
        """The rows of a relation as value indices of a constraint's variables."""
        index = [{label: number for number, label in enumerate(self._variables[v].labels or ())} for v in variables]
        found = np.empty((len(relation.rows), len(variables)), dtype=np.int64)
        for number, row in enumerate(relation.rows):
            for axis, (known, word) in enumerate(zip(index, row, strict=True)):
                if word not in known:
                    variable = self._variables[variables[axis]].name
                    raise relation.element.error(f"constraint {name}: {variable} has no value {word!r}")
                found[number, axis] = known[word]
        if len(distinct_values(found, axis=0)) != len(found):
            raise relation.element.error(f"constraint {name}: found a tuple twice, expected each once")
        return found


def render(dcop: Dcop) -> str:
    """The problem as text; UnsupportedError as for :func:`oocbe.formats.pydcop.render`."""
    problem = dcop.problem
    tables = cost_tables(problem, "FRODO's XCSP")
    is_max = problem.semiring.marginalisation is Marginalisation.MAX
    most = max((len(t.scope) for t in tables), default=1)
    head = f'maxConstraintArity="{most}" maximize="{str(is_max).lower()}" format="{FORMAT}"'
    lines = ["<instance>", f" <presentation name={quoteattr(problem.name)} {head}/>"]
    lines.append(f' <agents nbAgents="{len(dcop.agents)}">')
    lines += [f"  <agent name={quoteattr(agent)}/>" for agent in dcop.agents]
    domains = {_labels(v): "" for v in problem.variables}
    lines += [" </agents>", f' <domains nbDomains="{len(domains)}">']
    for number, labels in enumerate(domains):
        domains[labels] = f"D{number}"
        is_range = labels == tuple(map(str, range(len(labels))))
        content = f"0..{len(labels) - 1}" if is_range else escape(" ".join(labels))
        lines.append(f'  <domain name="D{number}" nbValues="{len(labels)}">{content}</domain>')
    lines += [" </domains>", f' <variables nbVariables="{len(problem.variables)}">']
    for v, owner in zip(problem.variables, dcop.owner, strict=True):
        agent = quoteattr(dcop.agents[owner])
        lines.append(f'  <variable name={quoteattr(_word(v.name))} domain="{domains[_labels(v)]}" agent={agent}/>')
    lines += [" </variables>", f' <relations nbRelations="{len(tables)}">']
    lines += [_relation_text(t, problem, "-infinity" if is_max else "infinity") for t in tables]
    lines += [" </relations>", f' <constraints nbConstraints="{len(tables)}">']
    for t in tables:
        scope = quoteattr(" ".join(problem.variables[v].name for v in t.scope))
        lines.append(f'  <constraint name="{t.name}" arity="{len(t.scope)}" scope={scope} reference="r_{t.name}"/>')
    return "\n".join([*lines, " </constraints>", "</instance>"]) + "\n"


def _relation_text(table: CostTable, problem: Problem, infinity: str) -> str:
    labels = [_labels(problem.variables[v]) for v in table.scope]
    costs = [infinity] * len(table.tuples) if table.values is None else [repr(c) for c in table.values.tolist()]
    rows = [" ".join(own[value] for own, value in zip(labels, row, strict=True)) for row in table.tuples.tolist()]
    content = escape("|".join(f"{cost}: {row}" for cost, row in zip(costs, rows, strict=True)))
    default = infinity if table.default is None else repr(table.default)
    return (
        f'  <relation name="r_{table.name}" arity="{len(table.scope)}" nbTuples="{len(rows)}" semantics="soft" '
        f'defaultCost="{default}">{content}</relation>'
    )


def _labels(v: Variable) -> tuple[str, ...]:
    return tuple(_word(v.label(value)) for value in range(v.size))


def _word(text: str) -> str:
    """A name or label, which the format divides by white space."""
    if not text or re.search(r"[\s|:]|\.\.", text):
        raise UnsupportedError(f"the name {text!r} has white space, a colon, a bar or dots; FRODO's XCSP divides there")
    return text


MOST_CELLS = 1 << 22
"""Tuples that an expression is written out for at most."""


@dataclass(frozen=True)
class Template:
    """An expression with parameters (names), its element and text; ``is_cost``: its value is a cost, no truth."""

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
            return parse_functional(self.text, leaf)
        except Malformed as error:
            raise self.element.error(str(error)) from None

    def written_out(
        self, given: Sequence[str], scope: Sequence[int], variables: Sequence[Variable], owner: Element
    ) -> Function | Constraint:
        """A constraint with this expression over some of all variables, which have integers as labels.

        FormatError: something is malformed; UnsupportedError: too many tuples, or no value of the expression on some.
        """
        own = [variables[v] for v in scope]
        try:
            expression = self.filled(given, [v.name for v in own], owner)
            columns = [_numbers(v, owner) for v in own]
            cells = math.prod(map(len, columns))
            if cells > MOST_CELLS:
                raise UnsupportedConstraint(f"an expression over {cells:,} tuples")
            bounds_of(expression, [(int(column.min()), int(column.max())) for column in columns])
            found = evaluate(expression, np.ix_(*columns) if columns else ())
        except UnsupportedConstraint as unread:
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
