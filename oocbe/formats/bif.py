"""Belief networks in the Bayesian interchange format (BIF 0.15), read.

A network, its variables with named values, and for each variable the probabilities of its values given its parents::

    variable rain { type discrete [ 2 ] { yes, no }; }
    probability ( rain | season ) { (winter) 0.4, 0.6; default 0.2, 0.8; }

Rows are listed by the parents' values, in any order and each once, ``*`` for all values of a parent (a later row then
counts in place of an earlier one); ``default`` stands for the rows that are not, and ``table`` for all rows at once,
the last parent changing fastest and the variable itself slowest. Comments and ``property`` statements are passed over.
Rows need not add up to exactly 1: files print rounded numbers, and these are what counts. The bar and commas between
variables, and commas between numbers, may be missing; probabilities may come before their variables. A probability of
zero makes its assignments infeasible. Reading gives a max-product problem, as for UAI files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from oocbe.errors import OocbeError, UnsupportedError, amount
from oocbe.formats.text import LARGEST_DOMAIN, LARGEST_TABLE, Lexer, Text
from oocbe.model.names import SHOWN_NAMES
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_PRODUCT, SUM_PRODUCT
from oocbe.runtime.deadline import check_deadline

MOST_BY_DEFAULT = 2**20
"""Probabilities that defaults and ``*`` stand for, in a whole file, besides one for each of its bytes."""

ANY = "*"
"""In the place of a parent's value: all of them."""

MOST_DIMENSIONS = 64
"""NumPy's limit on the axes of an array."""

TOKENS = re.compile(
    r"\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
    r'|"(?P<quoted>[^"\n]*)"|(?P<mark>[{}()\[\],;|])|(?P<word>(?:(?!//|/\*)[^\s{}()\[\],;|"])+)'
)
"""Spaces and comments, a quoted name, a mark, or a word, which a comment ends."""


@dataclass
class BeliefNetwork:
    """A network that is being read: its variables, their numbers by name, and the function of each.

    what : name of a variable in messages. values : numbers of each variable's labels.
    """

    what: str
    variables: list[Variable] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    values: list[dict[str, int]] = field(default_factory=list)
    functions: dict[int, Function] = field(default_factory=dict)

    def add(self, name: str, labels: Sequence[str], error_of: Callable[[str], OocbeError]) -> None:
        """Add a variable; ``error_of`` makes the error of a message where its name is not new."""
        if name in self.index:
            raise error_of(f"found {self.what} {name!r} a second time, expected each once")
        self.index[name] = len(self.variables)
        self.variables.append(Variable(name, len(labels), tuple(labels)))
        self.values.append({label: value for value, label in enumerate(labels)})

    def problem(self, name: str, error_of: Callable[[str], OocbeError], missing: str) -> Problem:
        """The max-product problem; ``error_of`` makes errors: of a cycle, and of a ``missing`` variable's function."""
        for v, variable in enumerate(self.variables):
            if v not in self.functions:
                raise error_of(f"{missing} {self.what} {variable.name!r}")
        refuse_cycles(error_of, self.variables, self.functions)
        parts = tuple(self.functions.values())
        return Problem(tuple(self.variables), parts, constant=MAX_PRODUCT.one, semiring=MAX_PRODUCT, name=name)


@dataclass
class TokenNetwork(BeliefNetwork):
    """A network that is read token by token; by_default : probabilities that no number of the file stands for."""

    lexer: Lexer = field(kw_only=True)
    by_default: int = 0

    def take(self, what: str, known: str) -> int:
        """Take the name of a known variable, and return its number; ``what``, ``known`` : expected in its place."""
        name = self.lexer.word(what)
        if name not in self.index:
            raise self.lexer.expected(known, self.lexer.place - 1)
        return self.index[name]

    def shape(self, scope: Sequence[int], start: int | None = None) -> tuple[int, ...]:
        """Sizes of variables, the last one given the others, unless a table over them is too large.

        start : the token to name then; None: the one before the next.
        """
        shape = tuple(self.variables[v].size for v in scope)
        if math.prod(shape) > LARGEST_TABLE or len(shape) > MOST_DIMENSIONS:
            raise self.lexer.unsupported(
                f"the probabilities of {self.variables[scope[-1]].name!r} have {math.prod(shape):,} entries over "
                f"{len(shape)} {self.what}s; at most {LARGEST_TABLE:,} and {MOST_DIMENSIONS} are supported",
                start,
            )
        return shape

    def add_by_default(self, name: str, entries: int, start: int | None = None) -> None:
        """Count entries of a variable's table that no number stands for; UnsupportedError: too many up to here."""
        self.by_default += entries
        most = MOST_BY_DEFAULT + len(self.lexer)
        if self.by_default > most:
            raise self.lexer.unsupported(
                f"up to the probabilities of {name!r}, defaults stand for {self.by_default:,} entries; at most "
                f"{most:,} are supported. List them",
                start,
            )


def parse(text: Text) -> Problem:
    """Read a network as a max-product problem; FormatError: malformed; UnsupportedError: not discrete, or too large."""
    lexer = Lexer(text, TOKENS)
    network = TokenNetwork("variable", lexer=lexer)
    lexer.keyword(("network",), "the network")
    name = "" if lexer.sees("{") else lexer.word("the network's name")
    lexer.take("{", "'{' and the network's properties")
    _pass_properties(lexer)
    lexer.take("}", "a property or '}'")
    waiting: list[int] = []  # where the probabilities are that come before one of their variables
    while not lexer.ended:
        if lexer.keyword(("variable", "probability"), "a variable or a probability") == "variable":
            _read_variable(network)
        elif _knows_variables(network):
            _read_probability(network)
        else:
            waiting.append(lexer.place)
            _pass_to(lexer, "}", "'}' at the end of a probability")
    if not network.variables:
        raise lexer.expected("a variable")
    end = lexer.place
    for lexer.place in waiting:
        _read_probability(network)
    lexer.place = end
    title = text.stem if name in ("", "unknown") else name
    return network.problem(title, lexer.error, "the file ends, expected the probability of")


def refuse_cycles(
    error_of: Callable[[str], OocbeError], variables: Sequence[Variable], functions: Mapping[int, Function]
) -> None:
    """Refuse parents (in the scopes of ``functions``) among their own descendants: the product is no distribution."""
    parents = {v: {int(p) for p in function.scope} - {v} for v, function in functions.items()}
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        names = [variables[v].name for v in error.args[1]]
        shown = " -> ".join(names if len(names) <= SHOWN_NAMES else [*names[:SHOWN_NAMES], "…"])
        raise error_of(f"the parents of variables form a cycle: {shown}") from None


def _pass_properties(lexer: Lexer) -> None:
    while lexer.sees_word(("property",)):
        _pass_to(lexer, ";", "';' after a property")


def _pass_to(lexer: Lexer, mark: str, what: str) -> None:
    while not lexer.accept(mark):
        if lexer.ended:
            raise lexer.expected(what)
        lexer.place += 1


def _read_variable(network: TokenNetwork) -> None:
    lexer = network.lexer
    start = lexer.place
    name = lexer.word("a variable's name")
    lexer.take("{", f"'{{' and the type of variable {name!r}")
    _pass_properties(lexer)
    lexer.keyword(("type",), f"the type of variable {name!r}")
    kind = lexer.word("discrete")
    if kind != "discrete":
        raise lexer.unsupported(f"variable {name!r} is of type {kind!r}; only discrete variables are supported")
    lexer.take("[", "'[' and the number of values")
    size = lexer.integer(f"the number of values of variable {name!r}", 1, LARGEST_DOMAIN)
    lexer.take("]", "']'")
    lexer.take("{", f"'{{' and the {size} values of variable {name!r}")
    labels: list[str] = []
    while not lexer.sees("}"):
        if labels:
            lexer.accept(",")
        labels.append(lexer.word(f"a value of variable {name!r}"))
    if len(labels) != size:
        raise lexer.error(f"found {amount(len(labels), 'value')} of variable {name!r}, expected {size}")
    if len(set(labels)) != size:
        raise lexer.error(f"found a value of variable {name!r} twice, expected different ones")
    lexer.take("}", "'}'")
    lexer.take(";", "';'")
    _pass_properties(lexer)
    lexer.take("}", f"'}}' at the end of variable {name!r}")
    network.add(name, labels, lambda message: lexer.error(message, start))


def _knows_variables(network: TokenNetwork) -> bool:
    """Whether all variables of the probability that comes next were read already."""
    lexer = network.lexer
    start, is_known = lexer.place, True
    while not (lexer.ended or lexer.sees("){")):
        is_known &= not lexer.sees_word() or lexer.next_word in network.index
        lexer.place += 1
    lexer.place = start
    return is_known


def _read_probability(network: TokenNetwork) -> None:
    lexer = network.lexer
    lexer.take("(", "'(' and a variable")
    child = network.take("a variable", "a variable of the network")
    if child in network.functions:
        name = network.variables[child].name
        raise lexer.error(f"found a second probability of variable {name!r}, expected one", lexer.place - 1)
    parents: list[int] = []
    # The format ignores bars and commas, and JavaBayes writes no bar.
    if lexer.accept("|,") or lexer.sees_word():
        while not lexer.sees(")"):
            if parents:
                lexer.accept(",")
            parent = network.take("a variable", "a variable of the network")
            if parent == child or parent in parents:
                raise lexer.error(
                    f"found variable {lexer.shown(lexer.place - 1)} twice in a probability", lexer.place - 1
                )
            parents.append(parent)
    lexer.take(")", "'|' and parents, ',' or ')'")
    lexer.take("{", "'{' and the probabilities")
    table = _read_table(network, child, parents, network.shape((*parents, child)))
    network.functions[child] = Function.from_array((*parents, child), table, infeasible=0.0)


def _read_table(network: TokenNetwork, child: int, parents: list[int], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Probabilities float64, an axis for each parent and the last for the variable itself."""
    lexer, name, size = network.lexer, network.variables[child].name, shape[-1]
    table = np.zeros(shape)
    known, listed = (np.zeros(shape[:-1], dtype=np.bool_) for _ in "12")
    default: list[float] | None = None
    while not lexer.accept("}"):
        if lexer.sees_word(("property",)):
            _pass_properties(lexer)
        elif lexer.sees_word(("table",)):
            lexer.place += 1
            if known.any():
                raise lexer.error(f"found a table after rows of {name!r}, expected one or the other", lexer.place - 1)
            entries = np.array(_numbers(lexer, math.prod(shape), f"an entry of the table of {name!r}"))
            table = np.moveaxis(entries.reshape(size, *shape[:-1]), 0, -1)
            known[...] = listed[...] = True
        elif lexer.sees_word(("default",)):
            lexer.place += 1
            default = _numbers(lexer, size, f"a default probability of {name!r}")
        else:
            start = lexer.place
            lexer.take("(", f"a row of the probability of {name!r}: '(', table, default or '}}'")
            row: list[int | slice] = []
            for v in parents:
                if row:
                    lexer.accept(",")
                label = lexer.word(f"a value of {network.variables[v].name!r}")
                if label not in network.values[v] and label != ANY:
                    raise lexer.expected(f"a value of variable {network.variables[v].name!r}", lexer.place - 1)
                row.append(network.values[v].get(label, slice(None)))
            lexer.take(")", f"')' after the values of {len(parents)} parents")
            if slice(None) in row:
                network.add_by_default(name, known[tuple(row)].size * size)
            elif listed[tuple(row)]:
                raise lexer.error(f"found a row of the probability of {name!r} a second time", start)
            else:
                listed[tuple(row)] = True
            known[tuple(row)] = True
            table[tuple(row)] = _numbers(lexer, size, f"a probability of {name!r}")
    unlisted = known.size - int(np.count_nonzero(known))
    if unlisted:
        if default is None:
            missing = np.unravel_index(int(np.argmin(known)), known.shape)
            shown = ", ".join(network.variables[v].label(int(x)) for v, x in zip(parents, missing, strict=True))
            raise lexer.error(f"the probability of {name!r} ends without the row ({shown})", lexer.place - 1)
        network.add_by_default(name, unlisted * size)
        table[~known] = default
    return table


def _numbers(lexer: Lexer, count: int, what: str) -> list[float]:
    numbers: list[float] = []
    check_deadline()
    while not lexer.accept(";"):
        if numbers:
            lexer.accept(",")
        numbers.append(lexer.number(what, 0))
    if len(numbers) != count:
        raise lexer.error(f"found {len(numbers)} numbers, expected {count}: {what} each", lexer.place - 1)
    return numbers


ROUNDING = 0.02
"""By how much the probabilities of a row may miss 1: files print rounded numbers."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9]+")
"""Names that need no quotes."""


def render(problem: Problem) -> str:
    """The problem as a belief network: one table of probabilities a variable, given its parents.

    Raises UnsupportedError: of :func:`conditionals`; or a name that cannot be quoted.
    """
    found = conditionals(problem)
    lines = [f"network {_name(problem.name or 'network')} {{", "}"]
    for variable in problem.variables:
        labels = ", ".join(_name(variable.label(value)) for value in range(variable.size))
        lines += [f"variable {_name(variable.name)} {{", f"  type discrete [ {variable.size} ] {{ {labels} }};", "}"]
    for scope, table in found:
        lines += _probability([problem.variables[v] for v in scope], table)
    return "\n".join(lines) + "\n"


def conditionals(problem: Problem) -> list[tuple[tuple[int, ...], NDArray[np.float64]]]:
    """Scope and float64 table of each function of a belief network: an axis a parent, and the child's, the last one.

    Raises UnsupportedError: no network: another semiring, no variable, constraints, a constant, functions that are not
    the conditional probabilities of one variable each, or such that form a cycle.
    """
    if problem.semiring not in (MAX_PRODUCT, SUM_PRODUCT):
        raise UnsupportedError(f"{problem.name}: the bif format holds probabilities, not a {problem.semiring} problem")
    if problem.constraints or problem.linear_constraints or problem.constant != 1:
        raise _refusal(problem, "a belief network has no constraints and no constant factor")
    if not problem.variables:
        raise _refusal(problem, "a belief network has a variable, and there is none")
    dense = [f.to_array(problem.sizes) for f in problem.functions]
    tables = [np.where(feasible, values, 0).astype(np.float64) for values, feasible in dense]
    children = _children(problem, tables)
    return [
        ((*(v for v in f.scope if v != child), child), np.moveaxis(table, f.scope.index(child), -1))
        for f, table, child in zip(problem.functions, tables, children, strict=True)
    ]


def _refusal(problem: Problem, message: str) -> UnsupportedError:
    return UnsupportedError(f"{problem.name}: {message}; write it as .uai")


def _children(problem: Problem, tables: list[NDArray[np.float64]]) -> list[int]:
    """The variable of each function; each variable once, so that parents come before children in some order."""
    wanted: list[list[int]] = []
    for number, (f, table) in enumerate(zip(problem.functions, tables, strict=True)):
        fits = [v for axis, v in enumerate(f.scope) if (np.abs(table.sum(axis=axis) - 1) <= ROUNDING).all()]
        if not fits:
            names = [problem.variables[v].name for v in f.scope]
            what = "adds up to 1 over none of its variables, so it is no conditional probability"
            raise _refusal(problem, f"function {number} over {names} {what}")
        wanted.append(fits[::-1])  # the last of the scope, as files are read
    owner: dict[int, int] = {}

    def place(number: int) -> bool:
        """Whether a function has a variable after others have moved to their next ones: an augmenting path."""
        seen, chosen, path = set(), dict[int, int](), [(number, iter(wanted[number]))]
        while path:
            mover, options = path[-1]
            chosen[mover] = v = next((v for v in options if v not in seen), -1)
            if v < 0:
                path.pop()
            elif v in owner:
                seen.add(v)
                path.append((owner[v], iter(wanted[owner[v]])))
            else:
                owner.update((chosen[mover], mover) for mover, _ in path)
                return True
        return False

    if not all(map(place, range(len(wanted)))) or len(owner) != len(problem.variables):
        what = f"are not the probabilities of {len(problem.variables)} variables, one each"
        raise _refusal(problem, f"{len(wanted)} functions {what}")
    functions = {v: problem.functions[number] for v, number in owner.items()}
    refuse_cycles(partial(_refusal, problem), problem.variables, functions)
    return sorted(owner, key=owner.__getitem__)


def _probability(scope: list[Variable], table: NDArray[np.float64]) -> list[str]:
    """Rows by the parents' values; a variable without parents has a table."""
    *parents, child = scope
    rows, name = table.reshape(-1, child.size), _name(child.name)
    if not parents:
        return [f"probability ( {name} ) {{", f"  table {_listed(rows[0])};", "}"]
    lines = [f"probability ( {name} | {', '.join(_name(p.name) for p in parents)} ) {{"]
    for values, row in zip(np.ndindex(*(p.size for p in parents)), rows, strict=True):
        given = ", ".join(_name(p.label(x)) for p, x in zip(parents, values, strict=True))
        lines.append(f"  ({given}) {_listed(row)};")
    return [*lines, "}"]


def _listed(row: NDArray[np.float64]) -> str:
    return ", ".join(map(repr, row.tolist()))


def _name(name: str) -> str:
    if _WORD.fullmatch(name):
        return name
    if '"' in name or "\n" in name or not name:
        raise UnsupportedError(f"the name {name!r} cannot be quoted in the bif format; rename it")
    return f'"{name}"'
