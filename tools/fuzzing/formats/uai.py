"""``.uai`` against pyAgrum: belief networks with their factors in any order; and Markov networks, also ``.LG``.

Markov networks have factors over any variables, none or the same ones again, and are read by toulbar2, whose costs are
logarithms in units of 1e-7. Of belief networks pyAgrum takes the n-th factor for the n-th variable's, and the first
parent as the fastest: its text is written so, and with plain numbers, as its reader does not always end where it
refuses a file. Left out are tables over more than three variables where a 0 forbids a value, which toulbar2 (1.4) takes
for those of other tuples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

from ..outcome import Tally
from . import _networks
from ._networks import Case, number_text, rows_of
from ._toulbar2 import answer

NUMBERS = {
    "uai": ("0", "0", "1", "0.5", "2", "1e-3", "3.25", "10", ".125", "1E2", "7.", "+0.75", "6.25e-2"),
    "LG": ("0", "-1", "-0.5", "1.5", "2", "-1e39", "-3.25e0", "-1e+40", ".25", "-7.", "+1"),
}
"""Entries of factors; logarithms from -1e38 down are those of 0."""


def draw(random: Random) -> Case:
    """A network in a text, and where gaps come from."""
    if random.random() < 0.3:
        return _markov(random)
    case = _networks.draw(random, lambda own, network: "", most_parents=1, least=2)
    if "text" in case:
        case["style"] = random.randint(0, 2**32)
        case["text"] = _text(case, backwards=False)
    return case


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Compare what is read with the network, and with pyAgrum or toulbar2."""
    if "factors" in case:
        _check_markov(case, folder, tally)
    elif "text" in case:
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
    kind = random.choice((" ", "\n", "\r\n", None))
    return words[0] + "\n" + "".join(w + (kind or random.choice((" ", "\n", "\t", "  "))) for w in words[1:]) + "\n"


def smaller(case: Case) -> Iterator[Case]:
    """Without factors."""
    factors = case.get("factors", ())
    for number in range(len(factors)):
        yield {**case, "factors": factors[:number] + factors[number + 1 :]}


def _markov(random: Random) -> Case:
    """A Markov network: sizes, and a scope and entries of each factor."""
    suffix = random.choice(("uai", "uai", "LG"))
    sizes = [random.choice((1, 2, 2, 3, 4)) for _ in range(random.choice((0, 1, 2, 3, 4, 4)))]
    factors = []
    for _ in range(random.randint(0, 5)):
        scope = random.sample(range(len(sizes)), min(len(sizes), random.choice((0, 1, 1, 2, 2, 3, 4))))
        entries = [random.choice(NUMBERS[suffix]) for _ in range(math.prod(sizes[v] for v in scope))]
        factors.append([scope, entries])
    if any(number in entries for _, entries in factors for number in ("0", "-1e39", "-1e+40")):
        factors = [factor for factor in factors if len(factor[0]) < 4]
    return {"suffix": suffix, "sizes": sizes, "factors": factors, "style": random.randint(0, 2**32)}


def _check_markov(case: Case, folder: Path, tally: Tally) -> None:
    import oocbe

    sizes, factors, is_log = case["sizes"], case["factors"], case["suffix"] == "LG"
    words = ["MARKOV", str(len(sizes)), *map(str, sizes), str(len(factors))]
    words += [str(word) for scope, _ in factors for word in (len(scope), *scope)]
    words += [str(word) for _, entries in factors for word in (len(entries), *entries)]
    path = folder / f"markov.{case['suffix']}"
    path.write_bytes(_gaps(Random(case["style"]), words).encode())
    theirs, problem = answer(path), oocbe.read(path)
    tally.same("sizes", tuple(sizes), problem.sizes)
    tally.same("toulbar2 reads it", "read", theirs.kind)

    def logarithm(number: str) -> float:
        value = float(number)
        return value if is_log else math.log(value) if value else -math.inf

    # What toulbar2 takes away from each factor: logarithms below 0 stay.
    most = sum(max([*map(logarithm, entries), *([0.0] if is_log else [])]) for _, entries in factors)
    expected = {row: most - cost / 1e7 for row, cost in theirs.rows}
    for row in itertools.product(*map(range, sizes)):
        value = problem.evaluate(row)
        tally.same(f"{row} is possible", row in expected, bool(value) if not is_log else value is not None)
        if row in expected:
            found = value if is_log else math.log(value)
            tally.near(f"logarithm of {row}", Fraction(expected[row]), found, 1e-6 * (1 + abs(found)))
