"""Write distributed problems for pyDcop, in YAML: what is forbidden costs ``.inf``, the infinity that both read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.formats.cost_tables import CostTable, cost_tables
from oocbe.formats.yaml_nodes import resolved
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Variable
from oocbe.model.semiring import Marginalisation

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_LABEL = re.compile(r"[^\s|]+")


def render(dcop: Dcop) -> str:
    """The problem as text.

    Raises
    ------
    UnsupportedError : values that are not added and minimised or maximised, a label with white space or a bar, or a
        large linear constraint.
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
    for number, agent in enumerate(dcop.agents):
        own = [_quoted(v.name) for v, owner in zip(problem.variables, dcop.owner, strict=True) if owner == number]
        if own:
            lines.append(f"    {_quoted(agent)}: [{', '.join(own)}]")
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
        rows = [" ".join(own[index] for own, index in zip(labels, row, strict=True)) for row in _rows(table, group)]
        lines.append(f"      {_number(values[group[0]].item())}: {_quoted(' | '.join(rows), always=True)}")
    return lines


def _rows(table: CostTable, group: NDArray[np.int64]) -> Any:
    return table.tuples[group].tolist()


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
