"""Belief networks in XML, as JavaBayes, SamIam, Weka and pyAgrum write them (XMLBIF 0.3).

A network, its variables with named values, and for each variable a definition, what is probable given its parents::

    <BIF VERSION="0.3"> <NETWORK> <NAME>weather</NAME>
    <VARIABLE TYPE="nature"> <NAME>rain</NAME> <OUTCOME>yes</OUTCOME> <OUTCOME>no</OUTCOME> </VARIABLE>
    <DEFINITION> <FOR>rain</FOR> <GIVEN>season</GIVEN> <TABLE>0.4 0.6 0.2 0.8</TABLE> </DEFINITION>
    </NETWORK> </BIF>

The numbers of a table are listed with the variable's own values fastest, then those of the last parent. Properties are
passed over; decisions and utilities are refused by name. Reading gives a max-product problem, as for UAI files; a
probability of zero makes its assignments infeasible.

XDSL, as GeNIe and SMILE write it: a network's nodes, each with its states, its parents, and its
probabilities given these::

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
over; decisions, utilities, noisy nodes, equations and dynamic networks are refused by name. Reading gives the
same kind of problem.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, amount
from oocbe.formats.bif import MOST_DIMENSIONS, network_problem
from oocbe.formats.text import LARGEST_TABLE, Text
from oocbe.formats.xml import Element, parse_xml
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline

ROOT = "BIF"
"""The root element of such files."""


def parse(text: Text, root: Element) -> Problem:
    """Read a network as a max-product problem. ``root`` is that of the file ``text``.

    FormatError with the line where it is malformed; UnsupportedError for what is no chance node, or too large.
    """
    network = root.needed("NETWORK")
    variables: list[Variable] = []
    index: dict[str, int] = {}
    functions: dict[int, Function] = {}
    for element in network.children:
        if element.tag == "VARIABLE":
            made = _variable(element)
            if made.name in index:
                raise element.error(f"found variable {made.name!r} a second time, expected each once")
            index[made.name] = len(variables)
            variables.append(made)
        elif element.tag not in ("NAME", "PROPERTY", "DEFINITION"):
            raise element.error(f"found <{element.tag}>, expected <VARIABLE> or <DEFINITION>")
    if not variables:
        raise network.error("found a network without <VARIABLE>, expected one")
    for element in network.children:  # after all variables: definitions may come before them
        if element.tag == "DEFINITION":
            child, function = _definition(element, variables, index)
            if child in functions:
                raise element.error(f"found a second definition of {variables[child].name!r}, expected one")
            functions[child] = function
    for v, variable in enumerate(variables):
        if v not in functions:
            raise network.error(f"found no definition of variable {variable.name!r}, expected one")
    name = network.child("NAME")
    title = "" if name is None else word_of(name)
    return network_problem(network.error, variables, functions, title or text.stem)


def _variable(element: Element) -> Variable:
    name = word_of(element.needed("NAME"))
    kind = element.attributes.get("TYPE", "nature")
    if kind != "nature":
        raise element.unsupported(f"variable {name!r} of type {kind!r}")
    labels = tuple(word_of(child) for child in element.children if child.tag == "OUTCOME")
    if not name or not labels or len(set(labels)) != len(labels):
        raise element.error(f"found no name, no <OUTCOME>, or one twice, of variable {name!r}; expected different ones")
    return Variable(name, len(labels), labels)


def _definition(element: Element, variables: list[Variable], index: dict[str, int]) -> tuple[int, Function]:
    """A variable, and what is probable for it given its parents."""
    check_deadline()
    scopes: dict[str, list[int]] = {"FOR": [], "GIVEN": []}
    for part in element.children:
        if part.tag in scopes:
            name = word_of(part)
            if name not in index:
                raise part.error(f"found {name[:40]!r}, expected a variable of the network")
            scopes[part.tag].append(index[name])
        elif part.tag not in ("TABLE", "PROPERTY"):
            raise part.error(f"found <{part.tag}>, expected <FOR>, <GIVEN> or <TABLE>")
    if len(scopes["FOR"]) > 1:
        raise element.unsupported("a definition of several variables together")
    if not scopes["FOR"]:
        raise element.error("found a <DEFINITION> without <FOR>, expected one")
    scope = (*scopes["GIVEN"], *scopes["FOR"])
    name = variables[scope[-1]].name
    if len(set(scope)) != len(scope):
        raise element.error(f"found a variable twice in the definition of {name!r}, expected different ones")
    shape = tuple(variables[v].size for v in scope)
    check_shape(element, shape)
    return scope[-1], Function.from_array(scope, probabilities(element.needed("TABLE"), name, shape), infeasible=0.0)


def word_of(element: Element) -> str:
    """Text of an element, in one line."""
    return " ".join(element.text.decode("utf-8", "replace").split())


def check_shape(element: Element, shape: tuple[int, ...]) -> None:
    """Refuse a table that is too large."""
    if math.prod(shape) > LARGEST_TABLE or len(shape) > MOST_DIMENSIONS:
        raise element.unsupported(f"a table of {math.prod(shape):,} probabilities over {len(shape)} variables")


def probabilities(element: Element, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """An element's numbers, float64 of a shape, of which the last axis is that of the variable ``name``."""
    numbers, what = Text(element.file.path, element.text), f"a probability of {name!r}"
    try:
        if len(numbers) != math.prod(shape):
            raise numbers.error(
                0, f"found {amount(len(numbers), 'probability')} of {name!r}, expected {math.prod(shape)}"
            )
        values = numbers.floats(0, len(numbers), what)
        if (values < 0).any():
            bad = int(np.argmax(values < 0))
            raise numbers.error(bad, f"found {numbers.shown(bad)}, expected {what}, at least 0")
    except FormatError as error:
        raise element.in_text(error) from None
    return values.reshape(shape)


XDSL_ROOT = "smile"
"""The root element of such files."""

PASSED_OVER = ("properties", "property", "extensions", "observationcosts", "observationcost", "cases", "comment")
"""Elements that say nothing about probabilities."""


def parse_xdsl(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError and UnsupportedError with the line."""
    root = parse_xml(text)
    if root.tag != XDSL_ROOT:
        raise root.error(f"found <{root.tag}>, expected <{XDSL_ROOT}>")
    return parse_xdsl_root(text, root)


def parse_xdsl_root(text: Text, root: Element) -> Problem:
    """Read a network, ``root`` of the file ``text``."""
    for child in root.children:
        if child.tag not in ("nodes", *PASSED_OVER):
            raise child.unsupported(f"<{child.tag}> in a network")
    nodes = root.needed("nodes").children
    variables = [_state_variable(node) for node in nodes]
    index: dict[str, int] = {}
    for node, variable in zip(nodes, variables, strict=True):
        if variable.name in index:
            raise node.error(f"found node {variable.name!r} a second time, expected each once")
        index[variable.name] = len(index)
    if not variables:
        raise root.needed("nodes").error("found a network without <cpt>, expected one")
    backwards = _is_by_agrum(root)
    functions = {v: _function(node, v, variables, index, backwards) for v, node in enumerate(nodes)}
    name = root.attributes.get("id", "") or text.stem
    return network_problem(root.needed("nodes").error, variables, functions, name)


def _is_by_agrum(root: Element) -> bool:
    """Whether a file names pyAgrum as its writer."""
    extensions = root.child("extensions")
    genie = None if extensions is None else extensions.child("genie")
    return genie is not None and genie.attributes.get("app", "").startswith("aGrUM")


def _state_variable(node: Element) -> Variable:
    name = node.attributes.get("id", "")
    if node.tag not in ("cpt", "deterministic"):
        raise node.unsupported(f"node {name!r}, a <{node.tag}>,")
    if "dynamic" in node.attributes:
        raise node.unsupported(f"node {name!r} of a dynamic network")
    labels = tuple(child.attributes.get("id", "") for child in node.children if child.tag == "state")
    if not name or not labels or "" in labels or len(set(labels)) != len(labels):
        raise node.error(f"found no id, no <state>, or one twice, of node {name!r}; expected different ones")
    return Variable(name, len(labels), labels)


def _function(
    node: Element, child: int, variables: Sequence[Variable], index: Mapping[str, int], backwards: bool
) -> Function:
    """Conditional probabilities of a node given its parents."""
    check_deadline()
    name = variables[child].name
    wanted = "probabilities" if node.tag == "cpt" else "resultingstates"
    for part in node.children:
        if part.tag not in ("state", "parents", wanted, *PASSED_OVER):
            raise part.unsupported(f"<{part.tag}> of node {name!r}")
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
