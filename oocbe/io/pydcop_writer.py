"""Write distributed problems for pyDcop, in YAML.

pyDcop has no infinity: what is forbidden costs 10,000, which is its own default for that, or more where sums of other
costs could be as bad. :mod:`oocbe.dcop` finds such costs again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import UnsupportedError
from oocbe.io.dcop_parts import CostTable, cost_tables
from oocbe.io.yaml_nodes import resolved
from oocbe.model.dcop import Dcop
from oocbe.model.parts import Variable
from oocbe.model.semiring import Marginalisation

INFINITY = 10_000
"""What pyDcop takes for infinity where nothing else is said."""

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
    sign = -1 if problem.semiring.marginalisation is Marginalisation.MAX else 1
    infinity = sign * _infinity(tables)
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


def _constraint(table: CostTable, variables: Sequence[Variable], infinity: int) -> list[str]:
    scope = [variables[v] for v in table.scope]
    default = infinity if table.default is None else table.default
    if infinity >= 1 << 63 and (table.default is None or table.values is None):
        raise UnsupportedError(
            f"{table.name}: the format has no infinite cost, and one above all others, {infinity}, is beyond 64-bit "
            "integers; scale the values down"
        )
    values = np.full(len(table.tuples), infinity) if table.values is None else table.values
    names = ", ".join(_quoted(v.name) for v in scope)
    lines = [f"  {table.name}:", "    type: extensional", f"    variables: [{names}]", f"    default: {default!r}"]
    order = np.argsort(values, kind="stable")
    labels = [_labels(v) for v in scope]
    if len(order):
        lines.append("    values:")
    for group in np.split(order, np.flatnonzero(np.diff(values[order])) + 1) if len(order) else []:
        rows = [" ".join(own[index] for own, index in zip(labels, row, strict=True)) for row in _rows(table, group)]
        lines.append(f"      {values[group[0]].item()!r}: {_quoted(' | '.join(rows), always=True)}")
    return lines


def _rows(table: CostTable, group: NDArray[np.int64]) -> Any:
    return table.tuples[group].tolist()


def _infinity(tables: Sequence[CostTable]) -> int:
    """A cost that no sum of the others reaches."""
    spread = 0.0
    for table in tables:
        values = np.zeros(1) if table.values is None else table.values
        spread += 2 * max(float(np.abs(values).max(initial=0)), abs(table.default or 0))
    beyond: int = 10 ** len(str(int(spread)))
    return max(INFINITY, beyond)


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
