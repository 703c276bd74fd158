"""Belief networks in the NET language of Hugin, which GeNIe, SamIam and pyAgrum write, too.

A network's attributes, its nodes with their states, and for each node a potential, what is probable given its parents::

    net { name = "weather"; }
    node rain { states = ("yes" "no"); }
    potential ( rain | season ) { data = ((0.4 0.6) (0.2 0.8)); }   % what follows a percent sign is a comment

The numbers of ``data`` are listed with the node's own states fastest, then those of the last parent; brackets only help
people, as do commas. As in pyAgrum, ``//`` and ``/* */`` are comments, too. A potential without data is uniform. Other
attributes are passed over, except ``model_nodes`` (data by an expression). Continuous nodes, decisions, utilities,
functions and classes are refused by name. Reading gives a max-product problem, as for UAI files; a probability of zero
makes its assignments infeasible.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import amount
from oocbe.formats.bif import TokenNetwork
from oocbe.formats.text import Lexer, Text
from oocbe.model.parts import Function
from oocbe.model.problem import Problem
from oocbe.runtime.deadline import check_deadline

TOKENS = re.compile(
    r"\s+|(?:%|//)[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
    r'|"(?P<quoted>[^"\n]*)"|(?P<mark>[{}()\[\];,|=])|(?P<word>(?:(?!//|/\*)[^\s{}()\[\];,|=%"])+)'
)
"""Spaces and comments, a quoted text, a mark, or a word."""

REFUSED = ("continuous", "decision", "utility", "function", "class", "temporal", "instance")
"""Definitions of a file that are no discrete nodes."""


def parse(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError, with the line; UnsupportedError: no discrete node."""
    lexer = Lexer(text, TOKENS)
    network = TokenNetwork("node", lexer=lexer)
    name = ""
    while not lexer.ended:
        check_deadline()
        start = lexer.place
        word = lexer.word("net, node or potential")
        if word in REFUSED:
            raise lexer.unsupported(f"{word} is not supported; only discrete nodes are", start)
        if word == "net":
            name = _attributes(network).get("name", "")
        elif word == "node" or (word == "discrete" and lexer.keyword(("node",), "node")):
            _read_node(network)
        elif word == "potential":
            _read_potential(network)
        else:
            raise lexer.expected("net, node or potential", start)
    if not network.variables:
        raise lexer.expected("a node")
    return network.problem(name or text.stem, lexer.error, "the file ends, expected the potential of")


def _attributes(network: TokenNetwork) -> dict[str, str]:
    """Attributes in braces that are one word each; others are passed over."""
    lexer = network.lexer
    found: dict[str, str] = {}
    lexer.take("{", "'{' and attributes")
    while not lexer.accept("}"):
        key = _attribute(lexer)
        words = _words(lexer)
        if len(words) == 1:
            found[key] = words[0]
    return found


def _attribute(lexer: Lexer) -> str:
    """The name of an attribute, and its equals sign."""
    key = lexer.word("an attribute or '}'")
    lexer.take("=", f"'=' after {key!r}")
    return key


def _words(lexer: Lexer) -> list[str]:
    """Words of an attribute to its semicolon, without brackets and commas."""
    found: list[str] = []
    while not lexer.accept(";"):
        if lexer.ended or lexer.sees("{}|="):
            raise lexer.expected("';' at the end of an attribute")
        if lexer.sees_word():
            found.append(lexer.word("a value"))
        else:
            lexer.place += 1
    return found


def _read_node(network: TokenNetwork) -> None:
    lexer = network.lexer
    start = lexer.place
    name = lexer.word("a node's name")
    lexer.take("{", f"'{{' and the states of node {name!r}")
    labels: list[str] = []
    while not lexer.accept("}"):
        place = lexer.place
        key = _attribute(lexer)
        words = _words(lexer)
        if key == "states":
            labels = words
            if not labels or len(set(labels)) != len(labels):
                raise lexer.error(f"found no state of node {name!r}, or one twice; expected different ones", place)
    if not labels:
        raise lexer.error(f'node {name!r} has no states, expected such as states = ("yes" "no");', start)
    network.add(name, labels, lambda message: lexer.error(message, start))


def _read_potential(network: TokenNetwork) -> None:
    lexer = network.lexer
    start = lexer.place
    lexer.take("(", "'(' and a node")
    scope = [network.take("a node", "a node that was declared before")]
    has_bar = False
    while not lexer.accept(")"):
        if not has_bar and lexer.accept("|"):
            has_bar = True
        elif not lexer.accept(","):
            place = lexer.place
            scope.append(network.take("a node", "a node that was declared before"))
            if not has_bar:
                raise lexer.unsupported("a potential of several nodes together is not supported", start)
            if scope.count(scope[-1]) > 1:
                raise lexer.error(f"found node {lexer.shown(place)} twice in a potential", place)
    child, *parents = scope
    name = network.variables[child].name
    if child in network.functions:
        raise lexer.error(f"found a second potential of node {name!r}, expected one", start)
    shape = network.shape((*parents, child), start)
    table = _read_data(network, name, shape, start)
    network.functions[child] = Function.from_array((*parents, child), table, infeasible=0.0)


def _read_data(network: TokenNetwork, name: str, shape: tuple[int, ...], start: int) -> NDArray[np.float64]:
    """Probabilities float64, an axis for each parent and the last for the node itself."""
    lexer = network.lexer
    numbers: list[float] | None = None
    lexer.take("{", f"'{{' and the data of {name!r}")
    while not lexer.accept("}"):
        place = lexer.place
        key = _attribute(lexer)
        if key == "model_nodes":
            raise lexer.unsupported(f"data of {name!r} by an expression are not supported", place)
        if key != "data":
            _words(lexer)
            continue
        numbers = []
        while not lexer.accept(";"):
            if not lexer.accept("(),"):
                numbers.append(lexer.number(f"a probability of {name!r}", 0))
        if len(numbers) != math.prod(shape):
            raise lexer.error(
                f"found {amount(len(numbers), 'probability')} of {name!r}, expected {math.prod(shape)}", place
            )
    if numbers is None:
        network.add_by_default(name, math.prod(shape), start)
        return np.full(shape, 1 / shape[-1])
    return np.array(numbers).reshape(shape)
