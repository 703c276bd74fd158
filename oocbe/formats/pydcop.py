"""Distributed problems as pyDcop writes them, in YAML.

Read are domains (values, or a range such as ``[0 .. 10]``), variables with a ``cost_function``, external variables
(which keep their initial value), constraints in extension and as expressions (:mod:`oocbe.formats.expressions`),
agents, and ``distribution_hints`` that say which agent hosts a variable. Variables that no hint is about are dealt out:
one to each agent that hosts none, in the file's order, then to those that host fewest. ``noise_level`` (random numbers
that pyDcop adds), capacities, routes and hosting costs say nothing about the optimum and are passed over.

In files that are written, what is forbidden costs ``.inf``, the infinity that both read.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.cost_tables import MOST_VALUES, CostTable, cost_tables, parts_of_listed
from oocbe.formats.expressions import KNOWN_FUNCTIONS, ExpressionError, PythonExpression, parse_expression
from oocbe.formats.text import Text
from oocbe.formats.yaml_nodes import Scalar, YamlNode, parse_yaml, resolved
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.dcop_result import DcopResult
from oocbe.model.semiring import MAX_SUM, MIN_SUM, Marginalisation
from oocbe.runtime.deadline import check_deadline, looked

MOST_CELLS = 1 << 24
"""Assignments that a constraint is written out for at most."""

LOOK_STEP = 1 << 4
"""Assignments after which reading looks whether the time limit has come."""

SECTIONS = (
    "name",
    "description",
    "objective",
    "domains",
    "variables",
    "external_variables",
    "constraints",
    "agents",
    "distribution_hints",
    "hosting_costs",
    "routes",
)
"""Keys at the top of a file."""

_VARIABLE_KEYS = ("domain", "initial_value", "cost_function", "noise_level", "type")
_CONSTRAINT_KEYS = ("type", "function", "variables", "values", "default", "source")
_NAME_OR_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.])[A-Za-z_]\w*")
"""A quoted text, which starts with no letter, or a name."""

_RANGE = re.compile(r"\s*(-?[0-9]{1,9})\s*\.\.\s*(-?[0-9]{1,9})\s*")


def parse(text: Text) -> Dcop:
    """Read a distributed problem; FormatError with the line where it is malformed."""
    return _PydcopReader(text).read()


@dataclass(eq=False)
class _Domain:
    """Values of a domain, and their index by label."""

    values: list[Scalar]
    labels: tuple[str, ...]
    index: Mapping[str, int] = field(default_factory=dict)


class _PydcopReader:
    def __init__(self, text: Text) -> None:
        self._text = text
        root = parse_yaml(text)
        if root.kind != "mapping":
            raise root.error(f"found {root.shown()}, expected a mapping with objective, domains, variables, agents")
        self._top = root.mapping("the file", SECTIONS)
        self._root = root
        self._domains: dict[str, _Domain] = {}
        self._variables: dict[str, _Domain] = {}
        self._index: dict[str, int] = {}
        self._external: dict[str, Scalar] = {}
        self._functions: list[Function] = []
        self._constraints: list[Constraint] = []
        self._sign = 1
        self._known: dict[Hashable, tuple[list[Function | Constraint], list[int]]] = {}

    def read(self) -> Dcop:
        name = self._top["name"].word("the problem's name") if "name" in self._top else self._text.stem
        objective = self._section("objective")
        if objective.text not in ("min", "max"):
            raise objective.error(f"found {objective.shown()}, expected the objective, min or max")
        semiring = MAX_SUM if objective.text == "max" else MIN_SUM
        self._sign = -1 if objective.text == "max" else 1
        for key, node in self._section("domains").mapping("domains").items():
            check_deadline()
            room = MOST_VALUES - sum(len(domain.values) for domain in self._domains.values())
            given = node.mapping(f"domain {key}", ("values", "type", "initial_value"))
            self._domains[key] = _domain(given, node, key, room)
        self._read_variables()
        constraints = self._top.get("constraints")
        for key, node in {} if constraints is None else constraints.mapping("constraints").items():
            self._read_constraint(key, node)
        variables = tuple(Variable(v, len(d.values), d.labels) for v, d in self._variables.items())
        agents = self._agents()
        return Dcop(
            Problem(variables, tuple(self._functions), tuple(self._constraints), semiring=semiring, name=name),
            tuple(agents),
            self._owners(agents),
        )

    def _section(self, name: str) -> YamlNode:
        found = self._top.get(name)
        if found is None:
            raise FormatError(self._text.path, self._root.line, f"the file has no {name}, expected one")
        return found

    def _read_variables(self) -> None:
        declared = {"variables": self._section("variables")}
        if "external_variables" in self._top:
            declared["external_variables"] = self._top["external_variables"]
        costs: list[tuple[str, YamlNode]] = []
        for section, mapping in declared.items():
            for key, node in mapping.mapping(section).items():
                given = node.mapping(f"variable {key}", _VARIABLE_KEYS)
                if key in self._variables or key in self._external:
                    raise node.error(f"found a second variable {key}, expected each once")
                if "domain" not in given:
                    raise node.error(f"variable {key} has no domain, expected one of {', '.join(self._domains)}")
                named = given["domain"].word("the name of a domain")
                if named not in self._domains:
                    known = ", ".join(self._domains)
                    raise given["domain"].error(f"found {named!r} as the domain of {key}, expected one of {known}")
                domain = self._domains[named]
                initial = given.get("initial_value")
                if initial is not None and not initial.is_empty and initial.text not in domain.index:
                    raise initial.error(f"found {initial.shown()} as the value of {key}, which {named} does not have")
                if section == "external_variables":
                    if initial is None:
                        raise node.error(f"the external variable {key} has no initial_value, expected one")
                    self._external[key] = domain.values[domain.index[initial.text]]
                    continue
                self._index[key] = len(self._variables)
                self._variables[key] = domain
                if "cost_function" in given:
                    costs.append((key, given["cost_function"]))
        if not self._variables:
            raise declared["variables"].error("found no variable, expected one at least")
        for key, node in costs:
            self._add_expression(f"the cost of {key}", node, (key,))

    def _read_constraint(self, name: str, node: YamlNode) -> None:
        given = node.mapping(f"constraint {name}", _CONSTRAINT_KEYS)
        kind = given["type"].text if "type" in given else ""
        if kind == "intention":
            if "source" in given:
                raise UnsupportedError(
                    f"{self._text.path}, line {given['source'].line}: constraint {name} is code in another file, which "
                    "is not run; write its function as an expression"
                )
            if "function" not in given:
                raise node.error(f"constraint {name} has no function, expected an expression")
            self._add_expression(f"constraint {name}", given["function"], None)
        elif kind == "extensional":
            self._add_table(name, node, given)
        else:
            raise node.error(f"constraint {name} has the type {kind!r}, expected intention or extensional")

    def _add_expression(self, what: str, node: YamlNode, scope: tuple[str, ...] | None) -> None:
        """Write an expression out; ``scope`` is what it may be about, None for any variables."""
        text = node.word(f"{what}, an expression")
        key, written = self._template(text)
        if key is not None and key in self._known:
            known, order = self._known[key]
            names = [written[place] for place in order]
            if scope is None or set(names) <= set(scope):
                indices = tuple(self._index[name] for name in names)
                self._add(replace(part, scope=indices) for part in known)
                return
        try:
            expression = parse_expression(text)
        except ExpressionError as error:
            inner = node.line + (error.line if "\n" in node.text.strip() else error.line - 1)
            raise FormatError(self._text.path, inner, f"{what}: {error}") from None
        allowed = self._variables if scope is None else scope
        for name in expression.names:
            if name not in allowed and name not in self._external:
                raise node.error(f"{what}: found {name!r}, expected a variable" + (f", {scope[0]}" if scope else ""))
        names = [name for name in expression.names if name in self._variables]
        domains = [self._variables[name] for name in names]
        cells = math.prod(len(d.values) for d in domains)
        if cells > MOST_CELLS:
            raise UnsupportedError(
                f"{self._text.path}, line {node.line}: {what} is over {len(names)} variables with more than "
                f"{MOST_CELLS:,} assignments, which are not written out"
            )
        values = self._evaluated(expression, what, node, names, domains)
        every = np.indices([len(d.values) for d in domains]).reshape(len(names), cells).T
        parts = self._parts(names, every, values, None, node)
        self._add(parts)
        if key is not None and set(names) <= set(written):
            self._known[key] = parts, [written.index(name) for name in names]

    def _template(self, text: str) -> tuple[Hashable, list[str]]:
        """The common form of expressions that differ only in names of variables, and the names in text order.

        Files of generators have the same expression thousands of times; each is evaluated once for each domain. None
        where it is not plain what is a name: with comments, or special characters in texts.
        """
        if any(mark in text for mark in ("#", "\\", "$", "'''", '"""')):
            return None, []
        written: dict[str, int] = {}

        def numbered(match: re.Match[str]) -> str:
            name = match[0]
            if name not in self._variables or name in KNOWN_FUNCTIONS:
                return name
            return f"${written.setdefault(name, len(written))}"

        template = _NAME_OR_TEXT.sub(numbered, text)
        return (template, tuple(id(self._variables[name]) for name in written)), list(written)

    def _evaluated(
        self, expression: PythonExpression, what: str, node: YamlNode, names: Sequence[str], domains: Sequence[_Domain]
    ) -> list[int | float]:
        """The value of every assignment, the last variable changing fastest."""
        found = []
        trial: dict[str, Scalar] = dict(self._external)
        for assigned in looked(itertools.product(*(d.values for d in domains)), LOOK_STEP):
            trial.update(zip(names, assigned, strict=True))
            try:
                found.append(expression.value(trial))
            except ExpressionError as error:
                where = ", ".join(f"{name} = {value}" for name, value in zip(names, assigned, strict=True))
                raise node.error(f"{what}{f' at {where}' if where else ''}: {error}") from None
        return found

    def _add_table(self, name: str, node: YamlNode, given: Mapping[str, YamlNode]) -> None:
        if "variables" not in given:
            raise node.error(f"constraint {name} has no variables, expected some")
        listed = given["variables"]
        nodes = listed.items if listed.kind == "list" else [listed]
        names = [item.word("the name of a variable") for item in nodes]
        for item, variable in zip(nodes, names, strict=True):
            if variable not in self._variables:
                raise item.error(f"constraint {name}: found {variable!r}, expected a variable")
        if len(set(names)) != len(names) or not names:
            raise listed.error(
                f"constraint {name}: found {', '.join(names) or 'nothing'}, expected different variables"
            )
        domains = [self._variables[variable] for variable in names]
        default = given["default"].number(f"the default of constraint {name}") if "default" in given else None
        rows: dict[tuple[int, ...], int | float] = {}
        costs = given["values"].mapping(f"the values of constraint {name}") if "values" in given else {}
        pairs = given["values"].pairs if costs else []
        for key, tuples in pairs:
            cost = key.number(f"a cost of constraint {name}")
            for words in _tuples(tuples):
                check_deadline()
                row = self._row(tuples, name, words, domains)
                if row in rows:
                    raise tuples.error(f"constraint {name}: found {' '.join(words)} twice, expected each tuple once")
                rows[row] = cost
        cells = math.prod(len(d.values) for d in domains)
        if default is None and len(rows) < cells:
            raise node.error(
                f"constraint {name} lists {len(rows):,} of {cells:,} assignments, expected all of them, or a default"
            )
        tuples_array = np.array(list(rows), dtype=np.int64).reshape(len(rows), len(names))
        if default is not None and math.isinf(default):
            self._refuse_infinity(node, name, default)
            default = None
        self._add(self._parts(names, tuples_array, list(rows.values()), default, node))

    def _row(self, node: YamlNode, name: str, words: Sequence[str], domains: Sequence[_Domain]) -> tuple[int, ...]:
        if len(words) != len(domains):
            raise node.error(f"constraint {name}: found {' '.join(words)!r}, expected {len(domains)} values")
        for word, domain in zip(words, domains, strict=True):
            if word not in domain.index:
                shown = ", ".join(domain.labels[:8]) + (", …" if len(domain.labels) > 8 else "")
                raise node.error(f"constraint {name}: found the value {word!r}, expected one of {shown}")
        return tuple(domain.index[word] for word, domain in zip(words, domains, strict=True))

    def _refuse_infinity(self, node: YamlNode, name: str, value: float) -> None:
        if value * self._sign < 0:
            raise node.error(f"{name}: found {value}, expected no value that is infinitely good")

    def _add(self, parts: Iterable[Function | Constraint]) -> None:
        for part in parts:
            (self._functions if isinstance(part, Function) else self._constraints).append(part)  # type: ignore[arg-type]

    def _parts(
        self,
        names: Sequence[str],
        tuples: NDArray[np.int64],
        values: list[int | float],
        default: int | float | None,
        node: YamlNode,
    ) -> list[Function | Constraint]:
        """Costs and forbidden tuples of a table."""
        scope = tuple(self._index[name] for name in names)
        for value in {value for value in values if isinstance(value, float) and math.isinf(value)}:
            self._refuse_infinity(node, "a constraint", value)
        cells = math.prod(len(self._variables[name].values) for name in names)
        try:
            return list(parts_of_listed(scope, tuples, values, default, cells))
        except OverflowError:
            raise node.error("found an integer beyond 64 bits, expected a smaller one") from None

    def _agents(self) -> list[str]:
        section = self._top.get("agents")
        if section is None or section.is_empty or (section.kind != "value" and not section.items):
            first = next(iter(self._variables))
            where = self._root if section is None else section
            raise where.error(f"variable {first} has no agent: the file names none under agents, expected one at least")
        if section.kind == "list":
            agents = [item.word("the name of an agent") for item in section.items]
        else:
            agents = list(section.mapping("agents"))
        if len(set(agents)) != len(agents):
            raise section.error("found an agent twice, expected different names")
        return agents

    def _owners(self, agents: Sequence[str]) -> tuple[int, ...]:
        """The agent of each variable: as hints say, then dealt out."""
        number = {agent: index for index, agent in enumerate(agents)}
        owner: dict[str, int] = {}
        hints = self._top.get("distribution_hints")
        given = {} if hints is None else hints.mapping("distribution_hints", ("must_host", "host_with"))
        hosting = given["must_host"].mapping("must_host") if "must_host" in given else {}
        for agent, listed in hosting.items():
            if agent not in number:
                raise listed.error(f"must_host: found {agent!r}, expected an agent")
            nodes = listed.items if listed.kind == "list" else [listed]
            for item in nodes:
                name = item.word("the name of a variable or constraint")
                if name in self._variables and owner.setdefault(name, number[agent]) != number[agent]:
                    raise item.error(f"must_host: found {name} with a second agent, expected one")
        hosted = Counter(owner.values())
        least = [(hosted[agent], agent) for agent in number.values()]  # a heap: files have thousands of agents
        heapq.heapify(least)
        for name in self._variables:
            if name not in owner:
                variables, owner[name] = least[0]
                heapq.heapreplace(least, (variables + 1, owner[name]))
        return tuple(owner[name] for name in self._variables)


def _domain(given: Mapping[str, YamlNode], node: YamlNode, name: str, room: int) -> _Domain:
    if "values" not in given:
        raise node.error(f"domain {name} has no values, expected a list")
    items = given["values"].sequence(f"the values of domain {name}")
    ranged = _RANGE.fullmatch(items[0].text) if len(items) == 1 else None
    if ranged is not None:
        low, high = int(ranged[1]), int(ranged[2])
        if low > high:
            raise given["values"].error(f"domain {name}: found the range {ranged[0].strip()!r}, expected low .. high")
        _check_room(given["values"], high - low + 1, room)
        values: list[Scalar] = list(range(low, high + 1))
        labels = tuple(map(str, range(low, high + 1)))
    else:
        _check_room(given["values"], len(items), room)
        values = [item.scalar if item.kind == "value" else None for item in items]
        labels = tuple(item.word(f"a value of domain {name}") for item in items)
    if not labels or len(set(labels)) != len(labels):
        raise given["values"].error(f"domain {name}: found no value, or one twice; expected different values")
    return _Domain(values, labels, {label: index for index, label in enumerate(labels)})


def _check_room(node: YamlNode, count: int, room: int) -> None:
    if count > room:
        raise node.error(f"found {count:,} values, expected at most {MOST_VALUES:,} in all domains together")


def _tuples(node: YamlNode) -> list[list[str]]:
    """Tuples between bars, or one a list item."""
    texts = [item.text for item in node.items] if node.kind == "list" else node.text.split("|")
    return [text.split() for text in texts]


STATUSES = {"limit": "TIMEOUT", "interrupted": "STOPPED"}
"""pyDcop's words for statuses; all others are ``FINISHED``."""


def result_of(dcop: Dcop, result: DcopResult, infinity: float = math.inf) -> dict[str, object]:
    """A result as ``pydcop solve --algo dpop`` prints it in JSON; its messages are those between different agents.

    infinity : cost of a violation, which pyDcop counts, and leaves out of the cost. The size of a UTIL message is the
        number of its cells, of a VALUE message two for each variable. Messages of pyDcop's runtime itself do not exist.
    """
    names = [v.name for v in dcop.problem.variables]
    agent = {name: dcop.agents[owner] for name, owner in zip(names, dcop.owner, strict=True)}
    sent: dict[str, list[int]] = {}
    for message in result.metrics.messages:
        pairs = [(message.sender, message.cells)]
        if result.metrics.value_messages:
            pairs.append((message.receiver, 2 * len(message.separator)))
        for sender, size in pairs if agent[message.sender] != agent[message.receiver] else ():
            count, total = sent.get(sender, (0, 0))
            sent[sender] = [count + 1, total + size]
    violation, found = None, result.assignment
    if found is not None:
        violation = sum(f.value_at(found) == infinity for f in dcop.problem.functions)
    per_agent = {}
    for name in dcop.agents:
        own = [v for v in names if agent[v] == name]
        work = sum(m.seconds for m in result.metrics.messages if agent[m.sender] == name)
        per_agent[name] = {
            "activity_ratio": work / max(result.seconds["total"], work, 1e-9),
            "count_ext_msg": {v: sent[v][0] for v in own if v in sent},
            "cycles": dict.fromkeys(own, 0),
            "size_ext_msg": {v: sent[v][1] for v in own if v in sent},
        }
    return {
        "agt_metrics": per_agent,
        "assignment": {name: resolved(label) for name, label in (result.labels or {}).items()},
        "cost": result.value - violation * infinity if violation and result.value is not None else result.value,
        "cycle": 0,
        "msg_count": sum(count for count, _ in sent.values()),
        "msg_size": sum(size for _, size in sent.values()),
        "status": STATUSES.get(result.status, "FINISHED"),
        "time": result.seconds["total"],
        "violation": violation,
    }


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LABEL = re.compile(r"[^\s|]+")


def render(dcop: Dcop) -> str:
    """The problem as text.

    Raises UnsupportedError: values that are not added and minimised or maximised, a label with white space or a bar, or
    a large linear constraint.
    """
    problem = dcop.problem
    tables = cost_tables(problem, "pyDcop's YAML")
    infinity = -math.inf if problem.semiring.marginalisation is Marginalisation.MAX else math.inf
    lines = [f"name: {_quoted(problem.name)}", f"objective: {problem.sense}", "domains:"]
    domain_of: dict[tuple[str, ...], str] = {}
    for v in problem.variables:
        labels = _labels(v)
        if labels not in domain_of:
            domain_of[labels] = f"d{len(domain_of)}"
            lines.append(f"  {domain_of[labels]}: {{values: [{', '.join(map(_value, labels))}], type: d}}")
    lines.append("variables:")
    lines += [f"  {_quoted(v.name)}: {{domain: {domain_of[_labels(v)]}}}" for v in problem.variables]
    lines.append("constraints:" if tables else "constraints: {}")
    for table in tables:
        lines += _constraint(table, problem.variables, infinity)
    lines.append("agents:")
    lines += [f"  {_quoted(agent)}: {{}}" for agent in dcop.agents]
    lines += ["distribution_hints:", "  must_host:"]
    owned: list[list[str]] = [[] for _ in dcop.agents]
    for v, owner in zip(problem.variables, dcop.owner, strict=True):
        owned[owner].append(_quoted(v.name))
    lines += [f"    {_quoted(agent)}: [{', '.join(own)}]" for agent, own in zip(dcop.agents, owned, strict=True) if own]
    return "\n".join(lines) + "\n"


def _constraint(table: CostTable, variables: Sequence[Variable], infinity: float) -> list[str]:
    scope = [variables[v] for v in table.scope]
    default = infinity if table.default is None else table.default
    values = np.full(len(table.tuples), infinity) if table.values is None else table.values
    names = ", ".join(_quoted(v.name) for v in scope)
    lines = [
        f"  {table.name}:",
        "    type: extensional",
        f"    variables: [{names}]",
        f"    default: {_number(default)}",
    ]
    order = np.argsort(values, kind="stable")
    labels = [_labels(v) for v in scope]
    if len(order):
        lines.append("    values:")
    for group in np.split(order, np.flatnonzero(values[order][1:] != values[order][:-1]) + 1) if len(order) else []:
        own = table.tuples[group].tolist()
        rows = [" ".join(names[index] for names, index in zip(labels, row, strict=True)) for row in own]
        lines.append(f"      {_number(values[group[0]].item())}: {_quoted(' | '.join(rows), always=True)}")
    return lines


def _number(value: int | float) -> str:
    """A number as YAML 1.1 has it, which takes none for one that has an exponent and no point."""
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _labels(v: Variable) -> tuple[str, ...]:
    labels = tuple(v.label(value) for value in range(v.size))
    for label in labels:
        if not _LABEL.fullmatch(label):
            raise UnsupportedError(f"variable {v.name}: the label {label!r} has white space or a bar, as no value may")
    return labels


def _value(label: str) -> str:
    """A label as a value of a domain, read back with the same letters."""
    return label if re.fullmatch(r"-?(0|[1-9][0-9]*)", label) else _quoted(label)


def _quoted(text: str, always: bool = False) -> str:
    """A text that YAML reads as this text."""
    plain = _PLAIN.fullmatch(text) and isinstance(resolved(text), str) and not always
    return text if plain else json.dumps(text, ensure_ascii=False)
