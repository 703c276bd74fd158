"""Belief networks as GeNIe and SMILE write them (XDSL).

A network's nodes, each with its states, its parents, and what is probable given these::

    <smile version="1.0" id="weather"> <nodes>
    <cpt id="rain"> <state id="yes" /> <state id="no" /> <parents>season</parents>
    <probabilities>0.4 0.6 0.2 0.8</probabilities> </cpt>
    <deterministic id="walk"> <state id="yes" /> <state id="no" /> <parents>rain</parents>
    <resultingstates>no yes</resultingstates> </deterministic>
    </nodes> </smile>

Probabilities are listed with the node's own states fastest, then those of the last parent; resulting states are one for
each assignment of the parents, in this order. pyAgrum (3.3) writes and reads the first parent fastest: files that say
``app="aGrUM …"`` mean that, and are read so. Nodes may come before their parents. Variables have the nodes' identifiers
as names. What is shown of a network (``extensions``), properties, saved cases and costs of observations are passed
over; decisions, utilities, noisy nodes, equations and dynamic networks are refused by name. Reading gives a max-product
problem, as for UAI files; a probability of zero makes its assignments infeasible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.formats.bif import refuse_cycles
from oocbe.formats.network_elements import check_shape, probabilities, unsupported, word_of
from oocbe.formats.text import Text
from oocbe.formats.xml import Element, parse_xml
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
from oocbe.runtime.deadline import check_deadline

ROOT = "smile"
"""The root element of such files."""

PASSED_OVER = ("properties", "property", "extensions", "observationcosts", "observationcost", "cases", "comment")
"""Elements that say nothing about probabilities."""


def parse(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError and UnsupportedError with the line."""
    root = parse_xml(text)
    if root.tag != ROOT:
        raise root.error(f"found <{root.tag}>, expected <{ROOT}>")
    return parse_root(text, root)


def parse_root(text: Text, root: Element) -> Problem:
    """Read a network, ``root`` of the file ``text``."""
    for child in root.children:
        if child.tag not in ("nodes", *PASSED_OVER):
            raise unsupported(child, f"<{child.tag}> in a network")
    nodes = root.needed("nodes").children
    variables = [_variable(node) for node in nodes]
    index: dict[str, int] = {}
    for node, variable in zip(nodes, variables, strict=True):
        if variable.name in index:
            raise node.error(f"found node {variable.name!r} a second time, expected each once")
        index[variable.name] = len(index)
    if not variables:
        raise root.needed("nodes").error("found a network without <cpt>, expected one")
    backwards = _is_by_agrum(root)
    functions = {v: _function(node, v, variables, index, backwards) for v, node in enumerate(nodes)}
    refuse_cycles(root.needed("nodes").error, variables, functions)
    name = root.attributes.get("id", "") or text.stem
    return Problem(
        tuple(variables), tuple(functions.values()), constant=MAX_PRODUCT.one, semiring=MAX_PRODUCT, name=name
    )


def _is_by_agrum(root: Element) -> bool:
    """Whether a file says that pyAgrum wrote it."""
    extensions = root.child("extensions")
    genie = None if extensions is None else extensions.child("genie")
    return genie is not None and genie.attributes.get("app", "").startswith("aGrUM")


def _variable(node: Element) -> Variable:
    name = node.attributes.get("id", "")
    if node.tag not in ("cpt", "deterministic"):
        raise unsupported(node, f"node {name!r}, a <{node.tag}>,")
    if "dynamic" in node.attributes:
        raise unsupported(node, f"node {name!r} of a dynamic network")
    labels = tuple(child.attributes.get("id", "") for child in node.children if child.tag == "state")
    if not name or not labels or "" in labels or len(set(labels)) != len(labels):
        raise node.error(f"found no id, no <state>, or one twice, of node {name!r}; expected different ones")
    return Variable(name, len(labels), labels)


def _function(
    node: Element, child: int, variables: Sequence[Variable], index: Mapping[str, int], backwards: bool
) -> Function:
    """What is probable for a node given its parents."""
    check_deadline()
    name = variables[child].name
    wanted = "probabilities" if node.tag == "cpt" else "resultingstates"
    for part in node.children:
        if part.tag not in ("state", "parents", wanted, *PASSED_OVER):
            raise unsupported(part, f"<{part.tag}> of node {name!r}")
    listed = node.child("parents")
    parents = []
    for word in [] if listed is None else word_of(listed).split():
        if listed is not None and word not in index:
            raise listed.error(f"found {word[:40]!r}, expected a node of the network")
        parents.append(index[word])
    scope = (*(reversed(parents) if backwards else parents), child)
    if len(set(scope)) != len(scope):
        raise node.error(f"found a node twice, or node {name!r} itself, among the parents of {name!r}")
    shape = tuple(variables[v].size for v in scope)
    check_shape(node, shape)
    given = node.needed(wanted)
    table = probabilities(given, name, shape) if node.tag == "cpt" else _certain(given, variables[child], shape)
    return Function.from_array(scope, table, infeasible=0.0)


def _certain(element: Element, variable: Variable, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Probabilities of a node that its parents determine."""
    states = word_of(element).split()
    count = math.prod(shape[:-1])
    if len(states) != count:
        raise element.error(f"found {len(states)} resulting states of {variable.name!r}, expected {count}")
    known = {label: value for value, label in enumerate(variable.labels or ())}
    for state in states:
        if state not in known:
            raise element.error(f"found {state[:40]!r}, expected a state of {variable.name!r}")
    table = np.zeros((count, variable.size))
    table[np.arange(count), [known[state] for state in states]] = 1.0
    return table.reshape(shape)
