"""Belief networks for the formats that have them: random ones, texts of tokens in any style, and what pyAgrum reads.

Each format's mode draws a network and renders it in many styles; what oocbe reads is compared with the network itself,
and with what pyAgrum reads of the same text, for all assignments together, and by posteriors. In other cases pyAgrum
writes the file. Where it refuses a text, the network alone says what is right. Deliberate differences from pyAgrum 3.3:

- It reads numbers as float32, and writes six digits of them.
- It takes rows that a ``.bif`` does not list as zeros, and refuses defaults behind rows; we refuse what is not listed.
- ``.uai`` and ``.xdsl``: it lists the first of several parents fastest; see docs/formats.md. Factors of a ``.uai`` have
  to be in the order of the variables for it, and deterministic nodes of an ``.xdsl`` are left out without a word.
- Like oocbe it neither refuses nor normalises rows that do not add up to 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import DisagreementError, NotAvailableError, Tally

Network = dict[str, Any]
"""``names``, ``labels``, ``parents`` (indices), and ``tables``: rows by the parents' values, the last one fastest."""

Case = dict[str, Any]

FLOAT32 = 2e-6
"""Relative rounding of a product of a few numbers that were read as float32, with room to spare."""

SIX_DIGITS = 1e-4
"""The same of numbers that were written with six digits."""

NAMES = ("rain", "a", "B2", "x_1", "Node", "very_long_name", "z9", "q", "Lung_Cancer", "w")

ODD_NAMES = ("_u", "node", "table", "data", "states", "probability", "default")
"""Words of the formats, which pyAgrum takes for no names."""


def drawn_network(random: Random, least: int = 1, most: int = 5) -> Network:
    """Variables in an order in which parents come first; ``least``: values of each."""
    count = random.randint(1, most)
    names = random.sample(NAMES, count)
    if random.random() < 0.03:
        names[0] = random.choice(ODD_NAMES)
    labels, parents, tables = [], [], []
    for v in range(count):
        size = least if random.random() < 0.04 else random.choice((2, 2, 2, 3, 3, 4))  # pyAgrum refuses single ones
        kind = random.randrange(3)
        labels.append([str(x) if kind == 0 else f"s{x}" if kind == 1 else "ynmo"[x] * 2 for x in range(size)])
        own = random.sample(range(v), min(v, random.choice((0, 1, 1, 2, 2, 3))))
        parents.append(own)
        rows = math.prod(len(labels[p]) for p in own)
        tables.append([drawn_row(random, size) for _ in range(rows)])
    return {"names": names, "labels": labels, "parents": parents, "tables": tables}


def drawn_row(random: Random, size: int) -> list[float]:
    """Probabilities that add up to 1, to nearly 1, or to something else."""
    kind = random.random()
    if kind < 0.15:
        certain = random.randrange(size)
        return [float(x == certain) for x in range(size)]
    if kind < 0.2:
        return [random.randint(0, 4) / 4 for _ in range(size)]
    cuts = sorted(random.randint(0, 1000) for _ in range(size - 1))
    return [(high - low) / 1000 for low, high in itertools.pairwise((0, *cuts, 1000))]


def rows_of(network: Network, v: int) -> list[tuple[tuple[int, ...], list[float]]]:
    """The parents' values and the probabilities of each row."""
    sizes = [range(len(network["labels"][p])) for p in network["parents"][v]]
    return list(zip(itertools.product(*sizes), network["tables"][v], strict=True))


def joint(network: Network, values: Sequence[int]) -> float:
    """The product of all probabilities."""
    found = 1.0
    for v, parents in enumerate(network["parents"]):
        place = 0
        for p in parents:
            place = place * len(network["labels"][p]) + values[p]
        found *= network["tables"][v][place][values[v]]
    return found


def number_text(random: Random, value: float) -> str:
    """A number in one of its notations."""
    plain = repr(value)
    choices = [plain, f"{value:.6f}" if round(value, 6) == value else plain, f"{value:e}"]
    if value == int(value):
        choices += [str(int(value)), f"{int(value)}."]
    found = random.choice(choices)
    if random.random() < 0.005:  # pyAgrum refuses some of these
        found = random.choice((plain.removeprefix("0"), f"+{plain}", f"{value:E}", f"{plain}e0", f"{plain}00"))
    return found if float(found) == value else plain


def joined(random: Random, tokens: Sequence[str], marks: str, comments: Sequence[str]) -> str:
    """Tokens with gaps of any kind; ``marks`` need none around them, ``comments`` are gaps that end themselves."""
    style = random.choice((0.0, 0.05, 0.3))
    text = []
    before = ""
    for token in tokens:
        needs = bool(before) and before[-1] not in marks and token[0] not in marks and '"' not in (before[-1], token[0])
        gap = random.choice((" ", "  ", "\n", "\t", " \r\n")) if random.random() < 0.3 else " " if needs else ""
        if random.random() < style:
            comment = random.choice(comments)
            gap = random.choice(("", gap)) + comment + random.choice(("", gap))
        text.append(gap + token)
        before = token
    return "".join(text) + random.choice(("", "\n", "\n\n"))


def check_text(
    case: Case, folder: Path, tally: Tally, suffix: str, for_agrum: Callable[[Case], str | None] | None = None
) -> None:
    """A text means the network that it was made from, to oocbe and to pyAgrum.

    for_agrum : the text in pyAgrum's order of parents, where that is another; None where it reads something else.
    """
    import oocbe

    gum = _pyagrum()
    network, path = case["network"], folder / f"made.{suffix}"
    path.write_text(case["text"])
    problem = oocbe.read(path)
    index = _same_variables(network, problem, tally, named=suffix != "uai")
    for values in _assignments(network):
        found = problem.evaluate([values[v] for v in index]) or 0.0
        tally.near(f"probability of {values}", joint(network, values), found, 1e-12)
    text = case["text"] if for_agrum is None else for_agrum(case)
    if text is None:
        return
    theirs = folder / f"theirs.{suffix}"
    theirs.write_text(text)
    try:
        other = gum.loadBN(str(theirs))
    except Exception as error:  # its errors have no common class
        tally.refusals[f"pyAgrum: {type(error).__name__}"] += 1
        return
    _same_as(gum, other, network, tally, suffix, FLOAT32)
    has_choices = all(len(labels) > 1 for labels in network["labels"])  # pyAgrum has no posterior of a single value
    if has_choices and all(abs(sum(row) - 1) < 1e-9 for table in network["tables"] for row in table):
        _same_posteriors(gum, other, problem, tally)


def check_written(case: Case, folder: Path, tally: Tally, suffix: str) -> None:
    """What pyAgrum writes of the network means the same here, as far as it has digits."""
    import oocbe

    gum = _pyagrum()
    network, path = case["network"], folder / f"written.{suffix}"
    made = _made(gum, network)
    gum.saveBN(made, str(path), **({"allowModificationWhenSaving": True} if suffix == "uai" else {}))
    problem = oocbe.read(path)
    tally.same("variables", len(network["names"]), len(problem.variables))
    order = list(made.nodes())
    index = [order.index(v) for v in range(len(order))] if suffix == "uai" else _same_variables(network, problem, tally)
    for values in _assignments(network):
        found = problem.evaluate([values[v] for v in index]) or 0.0
        tally.near(f"probability of {values}", joint(network, values), found, SIX_DIGITS)


def draw(
    random: Random, render: Callable[[Random, Network], str], most_parents: int | None = None, least: int = 1
) -> Case:
    """A case of a format: most have a text of ours.

    most_parents : of networks that pyAgrum writes. least : values of each variable of ours.
    """
    if random.random() < 0.25:
        network = drawn_network(random, least=2)  # it leaves out tables of variables with a single value
        network["names"] = [f"v{v}" for v in range(len(network["names"]))]
        for v, parents in enumerate(network["parents"]):
            kept = len(parents) if most_parents is None else min(most_parents, len(parents))
            network["parents"][v] = parents[:kept]
            network["tables"][v] = network["tables"][v][: math.prod(len(network["labels"][p]) for p in parents[:kept])]
        return {"network": network}
    network = drawn_network(random, least)
    return {"network": network, "text": render(random, network)}


def smaller(case: Case) -> Iterator[Case]:
    """Texts with a piece cut out would be other networks: cases stay as they are."""
    return iter(())


def _pyagrum() -> Any:
    try:
        import pyagrum
    except ImportError:
        raise NotAvailableError("pyAgrum is not installed") from None
    return pyagrum


def _assignments(network: Network) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(labels)) for labels in network["labels"]))


def _same_variables(network: Network, problem: Any, tally: Tally, named: bool = True) -> list[int]:
    """Compare names and labels; the network's variable of each of the problem's."""
    if not named:
        tally.same("sizes", [len(labels) for labels in network["labels"]], list(problem.sizes))
        return list(range(len(problem.variables)))
    tally.same("names", sorted(network["names"]), sorted(v.name for v in problem.variables))
    index = [network["names"].index(v.name) for v in problem.variables]
    for v, variable in zip(index, problem.variables, strict=True):
        tally.same(f"labels of {variable.name}", network["labels"][v], list(variable.labels or ()))
    return index


def _made(gum: Any, network: Network) -> Any:
    made = gum.BayesNet("made")
    for name, labels in zip(network["names"], network["labels"], strict=True):
        made.add(gum.LabelizedVariable(name, name, labels))
    for v, parents in enumerate(network["parents"]):
        for p in parents:
            made.addArc(p, v)
    for v, name in enumerate(network["names"]):
        for given, row in rows_of(network, v):
            named = {network["names"][p]: x for p, x in zip(network["parents"][v], given, strict=True)}
            if named:
                made.cpt(name)[named] = row
            else:
                made.cpt(name).fillWith(row)
    return made


def _same_as(gum: Any, other: Any, network: Network, tally: Tally, suffix: str, margin: float) -> None:
    names = [str(v) for v in range(len(network["names"]))] if suffix == "uai" else network["names"]
    tally.same("names of pyAgrum", sorted(names), sorted(other.names()))
    for values in _assignments(network):
        instance = gum.Instantiation()
        for v, name in enumerate(names):
            variable = other.variable(name)
            instance.add(variable)
            labels = list(variable.labels())
            instance.chgVal(name, values[v] if suffix == "uai" else labels.index(network["labels"][v][values[v]]))
        expected = other.jointProbability(instance)
        if abs(expected - joint(network, values)) > margin:
            raise DisagreementError(f"pyAgrum's probability of {values}", joint(network, values), expected)
    tally.checks += 1


def _same_posteriors(gum: Any, other: Any, problem: Any, tally: Tally) -> None:
    import oocbe

    inference = gum.LazyPropagation(other)
    inference.makeInference()
    answer = oocbe.marginals(problem, order_seconds=0, backend="cpu")
    for variable, own in zip(problem.variables, answer.marginals, strict=True):
        theirs = inference.posterior(variable.name).toarray().tolist()
        labels = list(other.variable(variable.name).labels())
        for x, found in enumerate(own.tolist()):
            place = x if variable.labels is None else labels.index(variable.label(x))
            tally.near(f"posterior of {variable.name}={variable.label(x)}", theirs[place], found, 1e-5)
