"""``.uai`` against pyAgrum: belief networks with their factors in any order.

pyAgrum takes the n-th factor for the n-th variable's, and the first parent as the fastest: its text is written so, and
with plain numbers, as its reader does not always end where it refuses a file.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, number_text, rows_of, smaller

__all__ = ["check", "draw", "smaller"]


def draw(random: Random) -> Case:
    """A network in a text, and where gaps come from."""
    case = _networks.draw(random, lambda own, network: "", most_parents=1, least=2)
    if "text" in case:
        case["style"] = random.randint(0, 2**32)
        case["text"] = _text(case, backwards=False)
    return case


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum."""
    if "text" in case:
        _networks.check_text(case, folder, tally, "uai", _for_agrum)
    else:
        _networks.check_written(case, folder, tally, "uai")


def _for_agrum(case: Case) -> str | None:
    """The text as it takes it; None of Markov networks."""
    return None if case["text"].startswith("MARKOV") else _text(case, backwards=True)


def _text(case: Case, backwards: bool) -> str:
    random, network = Random(case["style"]), case["network"]
    parents = network["parents"]
    count = len(parents)
    order = random.sample(range(count), count) if random.random() < 0.3 else list(range(count))
    if backwards:
        order.sort()
    words = ["MARKOV" if random.random() < 0.03 else "BAYES", str(count)]
    words += [*(str(len(labels)) for labels in network["labels"]), str(count)]
    for v in order:
        scope = [*(reversed(parents[v]) if backwards else parents[v]), v]
        words += [str(len(scope)), *map(str, scope)]
    for v in order:
        rows = rows_of(network, v)
        numbers = [x for _, row in rows for x in row]
        words += [str(len(numbers)), *(repr(x) if backwards else number_text(random, x) for x in numbers)]
    return _gaps(random, words)


def _gaps(random: Random, words: list[str]) -> str:
    kind = random.choice((" ", "\n", None))
    return words[0] + "\n" + "".join(w + (kind or random.choice((" ", "\n", "\t", "  "))) for w in words[1:]) + "\n"
