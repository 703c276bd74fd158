"""``.bif`` against pyAgrum: comments, quotes, properties, defaults, tables, rows and probabilities in any order."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, Network, joined, number_text, rows_of, smaller

__all__ = ["check", "draw", "smaller"]

MARKS = "{}()[],;|"
COMMENTS = ("// note\n", "/* note */", "/**/", "//\n", '// "quoted" } ;\n', "/* { * } \n */")


def draw(random: Random) -> Case:
    """A network in a text."""
    return _networks.draw(random, _render)


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum."""
    way = _networks.check_text if "text" in case else _networks.check_written
    way(case, folder, tally, "bif")


def _render(random: Random, network: Network) -> str:
    quotes, properties = random.random() < 0.1, random.random() < 0.2
    names = [f'"{name}"' if quotes and random.random() < 0.5 else name for name in network["names"]]
    labels = [[f'"{x}"' if quotes and random.random() < 0.5 else x for x in own] for own in network["labels"]]

    def property_tokens() -> list[str]:
        return ["property", "position", "=", "(1, 2)", ";"] if properties and random.random() < 0.4 else []

    tokens = ["network", random.choice(("n", '"a b"', "unknown")), "{", *property_tokens(), "}"]
    variables, probabilities = [], []
    for v, name in enumerate(names):
        listed = _with_commas(random, labels[v], always=True)
        variables.append(
            [
                *("variable", name, "{", *property_tokens(), "type", "discrete", "[", str(len(labels[v])), "]"),
                *("{", *listed, "}", ";", *property_tokens(), "}"),
            ]
        )
        probabilities.append(_probability(random, network, v, names, labels, property_tokens()))
    if random.random() < 0.9:
        blocks = [*random.sample(variables, len(variables)), *random.sample(probabilities, len(probabilities))]
    else:
        blocks = random.sample([*variables, *probabilities], 2 * len(variables))
    for block in blocks:
        tokens += block
    return joined(random, tokens, MARKS, COMMENTS)


def _with_commas(random: Random, words: list[str], always: bool = False) -> list[str]:
    commas = always or random.random() < 0.8
    found = [words[0]]
    for word in words[1:]:
        found += [",", word] if commas else [word]
    return found


def _probability(
    random: Random, network: Network, v: int, names: list[str], labels: list[list[str]], more: list[str]
) -> list[str]:
    parents = network["parents"][v]
    head = [names[v]]
    if parents:
        head += [
            random.choice("|||||||||,"),
            *_with_commas(random, [names[p] for p in parents], always=random.random() < 0.95),
        ]
    tokens = ["probability", "(", *head, ")", "{", *more]
    rows = rows_of(network, v)
    if not parents or random.random() < 0.3:  # the last parent fastest, the variable itself slowest
        numbers = [number_text(random, row[x]) for x in range(len(labels[v])) for _, row in rows]
        return [*tokens, "table", *_with_commas(random, numbers), ";", "}"]
    groups = []
    if random.random() < 0.5:
        common = random.choice(rows)[1]
        kept = [item for item in rows if item[1] != common or random.random() < 0.3]
        rows = kept if len(kept) < len(rows) else rows
        head = random.choice((["default"], ["(", *_with_commas(random, ["*"] * len(parents)), ")"]))
        groups.append([*head, *_with_commas(random, [number_text(random, x) for x in common]), ";"])
    for given, row in random.sample(rows, len(rows)):
        words = [labels[p][x] for p, x in zip(parents, given, strict=True)]
        numbers = [number_text(random, x) for x in row]
        groups.append(
            ["(", *_with_commas(random, words, always=random.random() < 0.98), ")", *_with_commas(random, numbers), ";"]
        )
    if groups[0][0] == "default" and random.random() < 0.05:  # pyAgrum wants defaults first
        groups = random.sample(groups, len(groups))
    return [*tokens, *(token for group in groups for token in group), "}"]
