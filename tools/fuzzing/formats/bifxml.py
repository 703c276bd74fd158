"""XMLBIF against pyAgrum: comments, properties, document types, definitions in any order and before their variables."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, Network, number_text, rows_of, smaller

__all__ = ["check", "draw", "smaller"]

DOCUMENT_TYPE = "<!DOCTYPE BIF [\n <!ELEMENT BIF ( NETWORK )*>\n <!ATTLIST BIF VERSION CDATA #REQUIRED>\n]>\n"


def draw(random: Random) -> Case:
    """A network in a text."""
    return _networks.draw(random, _render)


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum."""
    way = _networks.check_text if "text" in case else _networks.check_written
    way(case, folder, tally, "bifxml")


def _render(random: Random, network: Network) -> str:
    names = network["names"]

    def gap() -> str:
        return random.choice(("", " ", "\n", "\n\t", "<!-- note -->" if random.random() < 0.3 else " "))

    def element(tag: str, content: str) -> str:
        return f"<{tag}>{random.choice(('', ' '))}{content}{random.choice(('', ' '))}</{tag}>"

    variables, definitions = [], []
    for v, name in enumerate(names):
        parts = [element("NAME", name), *(element("OUTCOME", label) for label in network["labels"][v])]
        if random.random() < 0.3:
            parts.append(element("PROPERTY", "position = (1, 2)"))
        kind = random.choice((' TYPE="nature"', " TYPE='nature'", ""))
        variables.append(f"<VARIABLE{kind}>{gap()}{''.join(part + gap() for part in parts)}</VARIABLE>")
        scope = [element("FOR", name), *(element("GIVEN", names[p]) for p in network["parents"][v])]
        numbers = " ".join(
            number_text(random, x) + random.choice(("", "\n")) for _, row in rows_of(network, v) for x in row
        )
        table = element("TABLE", numbers.replace(" ", " <!-- row --> ", 1) if random.random() < 0.1 else numbers)
        definitions.append(f"<DEFINITION>{''.join(part + gap() for part in (*scope, table))}</DEFINITION>")
    if random.random() < 0.8:
        blocks = [*random.sample(variables, len(variables)), *random.sample(definitions, len(definitions))]
    else:
        blocks = random.sample([*variables, *definitions], 2 * len(names))
    head = random.choice(('<?xml version="1.0"?>\n', '<?xml version="1.0" encoding="UTF-8"?>\n', ""))
    head += DOCUMENT_TYPE if random.random() < 0.3 else ""
    body = element("NAME", "n") + "".join(gap() + block for block in blocks)
    return f'{head}<BIF VERSION="0.3">{gap()}<NETWORK>{gap()}{body}{gap()}</NETWORK>{gap()}</BIF>\n'
