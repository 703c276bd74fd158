"""``.xdsl`` against pyAgrum, which leaves deterministic nodes out, and has the parents the other way."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, number_text, rows_of, smaller

__all__ = ["check", "draw", "smaller"]


def draw(random: Random) -> Case:
    """A network in a text, and what its style is drawn from."""
    case = _networks.draw(random, lambda own, network: "")
    if "text" in case:
        case["style"] = random.randint(0, 2**32)
        case["text"] = _text(case, backwards=False)
    return case


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum."""
    if "text" in case:
        _networks.check_text(case, folder, tally, "xdsl", _for_agrum)
    else:
        _networks.check_written(case, folder, tally, "xdsl")


def _for_agrum(case: Case) -> str | None:
    """The text with parents backwards; None of deterministic nodes, which pyAgrum leaves out without a word."""
    return None if "<deterministic" in case["text"] else _text(case, backwards=True)


def _text(case: Case, backwards: bool) -> str:
    random, network = Random(case["style"]), case["network"]
    names, has_deterministic = network["names"], random.random() < 0.3

    def gap() -> str:
        return random.choice(("", " ", "\n", "\n\t", "<!-- note -->" if random.random() < 0.3 else " "))

    nodes = []
    for v, name in enumerate(names):
        labels, rows = network["labels"][v], rows_of(network, v)
        parents = [names[p] for p in network["parents"][v]]
        certain = all(sorted(row) == [0.0] * (len(labels) - 1) + [1.0] for _, row in rows)
        tag = "deterministic" if certain and has_deterministic else "cpt"
        attributes = random.choice(("", ' diagtype="target" ranked="true"', ' mandatory="false"'))
        parts = [f'<state id="{label}"{random.choice(("", " "))}/>' for label in labels]
        if parents:
            parts.append(f"<parents>{' '.join(reversed(parents) if backwards else parents)}</parents>")
        if tag == "cpt":
            numbers = " ".join(number_text(random, x) for _, row in rows for x in row)
            parts.append(f"<probabilities>{numbers}</probabilities>")
        else:
            states = " ".join(labels[row.index(1.0)] for _, row in rows)
            parts.append(f"<resultingstates>{states}</resultingstates>")
        if random.random() < 0.2:
            parts.append('<property id="p">text</property>')
        nodes.append(f'<{tag} id="{name}"{attributes}>{"".join(gap() + part for part in parts)}{gap()}</{tag}>')
    if random.random() < 0.3:
        nodes = random.sample(nodes, len(nodes))
    shown = "".join(f'<node id="{name}"><name>{name}</name><position>1 2 3 4</position></node>' for name in names)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<smile version="1.0" id="n" numsamples="1000">{gap()}<nodes>'
        f"{''.join(gap() + node for node in nodes)}{gap()}</nodes>{gap()}<extensions>"
        f'<genie version="1.0" app="GeNIe 4.1" name="n">{shown}</genie></extensions>{gap()}</smile>\n'
    )
