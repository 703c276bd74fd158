"""Belief networks in XML, as JavaBayes, SamIam, Weka and pyAgrum write them (XMLBIF 0.3).

A network, its variables with named values, and for each variable a definition, what is probable given its parents::

    <BIF VERSION="0.3"> <NETWORK> <NAME>weather</NAME>
    <VARIABLE TYPE="nature"> <NAME>rain</NAME> <OUTCOME>yes</OUTCOME> <OUTCOME>no</OUTCOME> </VARIABLE>
    <DEFINITION> <FOR>rain</FOR> <GIVEN>season</GIVEN> <TABLE>0.4 0.6 0.2 0.8</TABLE> </DEFINITION>
    </NETWORK> </BIF>

The numbers of a table are listed with the variable's own values fastest, then those of the last parent. Properties are
passed over; decisions and utilities are refused by name. Reading gives a max-product problem, as for UAI files; a
probability of zero makes its assignments infeasible.
"""

from __future__ import annotations

from oocbe.formats.bif import refuse_cycles
from oocbe.formats.network_elements import check_shape, probabilities, unsupported, word_of
from oocbe.formats.text import Text
from oocbe.formats.xml import Element
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT
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
    refuse_cycles(network.error, variables, functions)
    name = network.child("NAME")
    title = "" if name is None else word_of(name)
    return Problem(
        tuple(variables), tuple(functions.values()), constant=MAX_PRODUCT.one, semiring=MAX_PRODUCT,
        name=title or text.stem,
    )  # fmt: skip


def _variable(element: Element) -> Variable:
    name = word_of(element.needed("NAME"))
    kind = element.attributes.get("TYPE", "nature")
    if kind != "nature":
        raise unsupported(element, f"variable {name!r} of type {kind!r}")
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
        raise unsupported(element, "a definition of several variables together")
    if not scopes["FOR"]:
        raise element.error("found a <DEFINITION> without <FOR>, expected one")
    scope = (*scopes["GIVEN"], *scopes["FOR"])
    name = variables[scope[-1]].name
    if len(set(scope)) != len(scope):
        raise element.error(f"found a variable twice in the definition of {name!r}, expected different ones")
    shape = tuple(variables[v].size for v in scope)
    check_shape(element, shape)
    return scope[-1], Function.from_array(scope, probabilities(element.needed("TABLE"), name, shape), infeasible=0.0)
