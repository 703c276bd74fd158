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
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import FormatError, amount
from oocbe.formats.bif import MOST_DIMENSIONS, BeliefNetwork
from oocbe.formats.text import LARGEST_TABLE, Text
from oocbe.formats.xml import Element, parse_xml
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline

ROOT = "BIF"
"""The root element of such files."""


def parse(text: Text, root: Element) -> Problem:
    """Read a network as a max-product problem. ``root`` is that of the file ``text``.

    FormatError with the line where it is malformed; UnsupportedError for what is no chance node, or too large.
    """
    whole, network = root.needed("NETWORK"), BeliefNetwork("variable")
    for element in whole.children:
        if element.tag == "VARIABLE":
            network.add(*_variable(element), element.error)
        elif element.tag not in ("NAME", "PROPERTY", "DEFINITION"):
            raise element.error(f"found <{element.tag}>, expected <VARIABLE> or <DEFINITION>")
    if not network.variables:
        raise whole.error("found a network without <VARIABLE>, expected one")
    for element in whole.children:  # after all variables: definitions may come before them
        if element.tag == "DEFINITION":
            _read_definition(network, element)
    name = whole.child("NAME")
    title = "" if name is None else word_of(name)
    return network.problem(title or text.stem, whole.error, "found no definition of")


def _variable(element: Element) -> tuple[str, list[str]]:
    """Name and labels of a variable."""
    name = word_of(element.needed("NAME"))
    kind = element.attributes.get("TYPE", "nature")
    if kind != "nature":
        raise element.unsupported(f"variable {name!r} of type {kind!r}")
    labels = [word_of(child) for child in element.children if child.tag == "OUTCOME"]
    if not name or not labels or len(set(labels)) != len(labels):
        raise element.error(f"found no name, no <OUTCOME>, or one twice, of variable {name!r}; expected different ones")
    return name, labels


def _read_definition(network: BeliefNetwork, element: Element) -> None:
    """Read what is probable for a variable given its parents."""
    check_deadline()
    scopes: dict[str, list[int]] = {"FOR": [], "GIVEN": []}
    for part in element.children:
        if part.tag in scopes:
            name = word_of(part)
            if name not in network.index:
                raise part.error(f"found {name[:40]!r}, expected a variable of the network")
            scopes[part.tag].append(network.index[name])
        elif part.tag not in ("TABLE", "PROPERTY"):
            raise part.error(f"found <{part.tag}>, expected <FOR>, <GIVEN> or <TABLE>")
    if len(scopes["FOR"]) > 1:
        raise element.unsupported("a definition of several variables together")
    if not scopes["FOR"]:
        raise element.error("found a <DEFINITION> without <FOR>, expected one")
    scope = (*scopes["GIVEN"], *scopes["FOR"])
    name = network.variables[scope[-1]].name
    if len(set(scope)) != len(scope):
        raise element.error(f"found a variable twice in the definition of {name!r}, expected different ones")
    table = probabilities(element.needed("TABLE"), name, checked_shape(network, scope, element))
    if scope[-1] in network.functions:
        raise element.error(f"found a second definition of {name!r}, expected one")
    network.functions[scope[-1]] = Function.from_array(scope, table, infeasible=0.0)


def word_of(element: Element) -> str:
    """Text of an element, in one line."""
    return " ".join(element.text.decode("utf-8", "replace").split())


def checked_shape(network: BeliefNetwork, scope: Sequence[int], element: Element) -> tuple[int, ...]:
    """Sizes of some variables, unless a table over them is too large."""
    shape = tuple(network.variables[v].size for v in scope)
    if math.prod(shape) > LARGEST_TABLE or len(shape) > MOST_DIMENSIONS:
        raise element.unsupported(f"a table of {math.prod(shape):,} probabilities over {len(shape)} variables")
    return shape


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
            raise numbers.expected(f"{what}, at least 0", int(np.argmax(values < 0)))
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
    whole, network = root.needed("nodes"), BeliefNetwork("node")
    for node in whole.children:
        network.add(*_state_variable(node), node.error)
    if not network.variables:
        raise whole.error("found a network without <cpt>, expected one")
    backwards = _is_by_agrum(root)
    for v, node in enumerate(whole.children):
        network.functions[v] = _function(network, node, v, backwards)
    return network.problem(root.attributes.get("id", "") or text.stem, whole.error, "found no probabilities of")


def _is_by_agrum(root: Element) -> bool:
    """Whether a file names pyAgrum as its writer."""
    extensions = root.child("extensions")
    genie = None if extensions is None else extensions.child("genie")
    return genie is not None and genie.attributes.get("app", "").startswith("aGrUM")


def _state_variable(node: Element) -> tuple[str, list[str]]:
    """Name and states of a node."""
    name = node.attributes.get("id", "")
    if node.tag not in ("cpt", "deterministic"):
        raise node.unsupported(f"node {name!r}, a <{node.tag}>,")
    if "dynamic" in node.attributes:
        raise node.unsupported(f"node {name!r} of a dynamic network")
    labels = [child.attributes.get("id", "") for child in node.children if child.tag == "state"]
    if not name or not labels or "" in labels or len(set(labels)) != len(labels):
        raise node.error(f"found no id, no <state>, or one twice, of node {name!r}; expected different ones")
    return name, labels


def _function(network: BeliefNetwork, node: Element, child: int, backwards: bool) -> Function:
    """Conditional probabilities of a node given its parents."""
    check_deadline()
    name = network.variables[child].name
    wanted = "probabilities" if node.tag == "cpt" else "resultingstates"
    for part in node.children:
        if part.tag not in ("state", "parents", wanted, *PASSED_OVER):
            raise part.unsupported(f"<{part.tag}> of node {name!r}")
    listed = node.child("parents")
    parents = []
    for word in [] if listed is None else word_of(listed).split():
        if listed is not None and word not in network.index:
            raise listed.error(f"found {word[:40]!r}, expected a node of the network")
        parents.append(network.index[word])
    scope = (*(reversed(parents) if backwards else parents), child)
    if len(set(scope)) != len(scope):
        raise node.error(f"found a node twice, or node {name!r} itself, among the parents of {name!r}")
    shape, given = checked_shape(network, scope, node), node.needed(wanted)
    table = probabilities(given, name, shape) if node.tag == "cpt" else _certain(network, given, child, shape)
    return Function.from_array(scope, table, infeasible=0.0)


def _certain(network: BeliefNetwork, element: Element, child: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Probabilities of a node that its parents determine."""
    states, known, name = word_of(element).split(), network.values[child], network.variables[child].name
    count = math.prod(shape[:-1])
    if len(states) != count:
        raise element.error(f"found {len(states)} resulting states of {name!r}, expected {count}")
    for state in states:
        if state not in known:
            raise element.error(f"found {state[:40]!r}, expected a state of {name!r}")
    table = np.zeros((count, shape[-1]))
    table[np.arange(count), [known[state] for state in states]] = 1.0
    return table.reshape(shape)
