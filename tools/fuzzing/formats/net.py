"""``.net`` against pyAgrum: comments, quotes, attributes, brackets of any depth, and potentials in any order."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, Network, joined, number_text, rows_of, smaller

__all__ = ["check", "draw", "smaller"]

MARKS = "{}()[],;|="
COMMENTS = ("% note\n", "%\n", '% } ; "\n', "// note }\n", "/* note */", "/**/", "/* { * }\n*/")


def draw(random: Random) -> Case:
    """A network in a text."""
    return _networks.draw(random, _render)


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum."""
    way = _networks.check_text if "text" in case else _networks.check_written
    way(case, folder, tally, "net")


def _render(random: Random, network: Network) -> str:
    names, has_more = network["names"], random.random() < 0.3

    def attributes() -> list[str]:
        if not has_more or random.random() < 0.5:
            return []
        return random.choice(
            (
                ["position", "=", "(", "10", "20", ")", ";"],
                ["label", "=", '"A label, (with) marks"', ";"],
                ["HR_Group", "=", '"0"', ";"],
            )
        )

    tokens = ["net", "{", *attributes(), "}"]
    for v in random.sample(range(len(names)), len(names)):
        bare = random.random() < 0.3
        states = [label if bare else f'"{label}"' for label in network["labels"][v]]
        tokens += [*(["discrete"] if random.random() < 0.03 else []), "node", names[v], "{", *attributes()]
        tokens += ["states", "=", "(", *states, ")", ";", *attributes(), "}"]
    for v in random.sample(range(len(names)), len(names)):
        parents = [names[p] for p in network["parents"][v]]
        bar = ["|"] if parents or random.random() < 0.3 else []
        tokens += ["potential", "(", names[v], *bar, *parents, ")", "{", *attributes()]
        tokens += ["data", "=", *_data(random, network, v), ";", "}"]
    return joined(random, tokens, MARKS, COMMENTS)


def _data(random: Random, network: Network, v: int) -> list[str]:
    """Numbers in brackets: one pair for all, or one for each parent's values."""
    numbers = [[number_text(random, x) for x in row] for _, row in rows_of(network, v)]
    if random.random() < 0.3:
        return ["(", *(x for row in numbers for x in row), ")"]
    groups = [["(", *row, ")"] for row in numbers]
    for p in reversed(network["parents"][v]):
        size = len(network["labels"][p])
        groups = [
            ["(", *(x for group in groups[i : i + size] for x in group), ")"] for i in range(0, len(groups), size)
        ]
    return groups[0]
