"""Networks of pyAgrum and pgmpy as problems, by what their objects answer, without importing them; and back.

Names of variables and values stay, as texts, so that evidence and marginals name them: pgmpy's state 1 is the
label ``1``, and evidence of 1 is that state, wherever it comes among the states. A probability of zero makes its
assignments infeasible; the problem is a max-product one, as those of ``.bif`` and ``.uai`` files.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from oocbe.errors import UsageError
from oocbe.formats.bif import conditionals
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT


def problem_of(given: Any) -> Problem:
    """A problem as it is, or that of a network of pyAgrum or pgmpy; UsageError for anything else."""
    of = {"pyagrum": from_pyagrum, "pgmpy": from_pgmpy}.get(type(given).__module__.partition(".")[0])
    if of is None and not isinstance(given, Problem):
        kinds = "a Problem (oocbe.read makes one of a file), a path, or a network of pyAgrum or pgmpy"
        raise UsageError(f"expected {kinds}, not {type(given).__name__}")
    return given if of is None else of(given)


def from_pyagrum(network: Any, name: str | None = None) -> Problem:
    """The problem of a ``pyagrum.BayesNet`` or ``pyagrum.MarkovRandomField``.

    Parameters
    ----------
    network : with its probabilities. name : of the problem; None: the network's, where it has one.

    Returns
    -------
    Problem : a function a table, its child the last of the scope.

    Raises
    ------
    UsageError : it is neither. ModelError : a value that is infinite or no number.
    """
    if not (hasattr(network, "nodes") and hasattr(network, "variable")) or not (
        (hasattr(network, "cpt") and not hasattr(network, "utility")) or hasattr(network, "factors")
    ):
        raise UsageError(f"from_pyagrum: {type(network).__name__} is no network of pyAgrum, which has nodes and tables")
    nodes = list(network.nodes())
    variables = [network.variable(node) for node in nodes]
    if hasattr(network, "cpt"):
        tables = [network.cpt(node) for node in nodes]
    else:
        tables = [network.factor(scope) for scope in network.factors()]
    made = [Variable(v.name(), v.domainSize(), tuple(v.labels())) for v in variables]
    if name is None:
        has_name = hasattr(network, "property") and "name" in network.properties()
        name = network.property("name") if has_name else "network"
    # Arrays have the axes of pyAgrum's names from the last to the first.
    return _problem(made, [(tuple(reversed(table.names)), table.toarray()) for table in tables], name)


def from_pgmpy(model: Any, name: str | None = None) -> Problem:
    """The problem of a discrete network of pgmpy: a ``DiscreteBayesianNetwork`` or a ``DiscreteMarkovNetwork``.

    Parameters
    ----------
    model : with its tables. name : of the problem; None: the model's, or ``network``.

    Returns
    -------
    Problem : a function a table, its child the last of the scope.

    Raises
    ------
    UsageError : it is neither, a variable has no table, its tables disagree about its values, or
        two of these have one text, as 1 and "1".
    """
    if not hasattr(model, "nodes") or not (hasattr(model, "get_cpds") or hasattr(model, "get_factors")):
        raise UsageError(f"from_pgmpy: {type(model).__name__} is no network of pgmpy, which has nodes and tables")
    tables = list(model.get_cpds() if hasattr(model, "get_cpds") else model.get_factors())
    labels: dict[Any, list[Any]] = {}
    for table in tables:
        for variable, size in zip(table.variables, np.shape(table.values), strict=True):
            own = list((table.state_names or {}).get(variable, range(size)))
            if labels.setdefault(variable, own) != own:
                raise UsageError(
                    f"from_pgmpy: the tables of {variable!r} have its values as {labels[variable]} and as {own}; give "
                    "all of them the same state_names"
                )
    missing = [node for node in model.nodes() if node not in labels]
    if missing:
        raise UsageError(f"from_pgmpy: variable {missing[0]!r} has no table; add_cpds or add_factors first")
    for node, own in labels.items():
        if len(set(map(str, own))) < len(own):
            raise UsageError(f"from_pgmpy: values of {node!r} have the same text: {own}; labels are texts, rename one")
    made = [Variable(str(node), len(labels[node]), tuple(map(str, labels[node]))) for node in model.nodes()]
    rolled = []
    for table in tables:
        names = [str(v) for v in table.variables]
        rolled.append(((*names[1:], names[0]), np.moveaxis(np.asarray(table.values, dtype=np.float64), 0, -1)))
    return _problem(made, rolled, name or getattr(model, "name", "") or "network")


def to_pyagrum(problem: Problem) -> Any:
    """The ``pyagrum.BayesNet`` of a belief network.

    Parameters
    ----------
    problem : of max-product or sum-product; its functions are conditional probabilities, one of each variable.

    Raises
    ------
    UnsupportedError : it is no belief network (the message says why). UsageError : pyAgrum is not installed.
    """
    problem = problem_of(problem)
    made, variables, gum = conditionals(problem), problem.variables, _library("pyagrum", "to_pyagrum")
    network = gum.BayesNet(problem.name)
    for v in variables:
        network.add(gum.LabelizedVariable(v.name, v.name, [v.label(value) for value in range(v.size)]))
    for scope, _ in made:
        for parent in scope[:-1]:
            network.addArc(variables[parent].name, variables[scope[-1]].name)
    for scope, table in made:
        own = network.cpt(variables[scope[-1]].name)
        names = [variables[v].name for v in scope]
        own[:] = np.transpose(table, [names.index(name) for name in reversed(own.names)]).copy(order="C")
    return network


def to_pgmpy(problem: Problem) -> Any:
    """The ``DiscreteBayesianNetwork`` of pgmpy of a belief network; parameter and errors as of :func:`to_pyagrum`."""
    problem = problem_of(problem)
    made, variables = conditionals(problem), problem.variables
    model = _library("pgmpy.models", "to_pgmpy").DiscreteBayesianNetwork()
    model.name = problem.name
    model.add_nodes_from([v.name for v in variables])
    for scope, table in made:
        *parents, child = own = [variables[v] for v in scope]
        model.add_edges_from([(parent.name, child.name) for parent in parents])
        states = {v.name: [v.label(value) for value in range(v.size)] for v in own}
        columns, sizes = table.reshape(-1, child.size).T, [p.size for p in parents]
        cpd = _library("pgmpy.factors.discrete", "to_pgmpy").TabularCPD
        model.add_cpds(cpd(child.name, child.size, columns, [p.name for p in parents], sizes, state_names=states))
    return model


def _library(name: str, caller: str) -> Any:
    """A module of another library; UsageError if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"{caller}: {error}; install it with: pip install {name.partition('.')[0]}") from None


def _problem(variables: Sequence[Variable], tables: Sequence[tuple[tuple[str, ...], Any]], name: str) -> Problem:
    index = {v.name: number for number, v in enumerate(variables)}
    functions = tuple(
        Function.from_array([index[own] for own in names], np.asarray(values, dtype=np.float64), infeasible=0.0)
        for names, values in tables
    )
    return Problem(tuple(variables), functions, constant=MAX_PRODUCT.one, semiring=MAX_PRODUCT, name=name)
