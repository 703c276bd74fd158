"""Random ``.wcsp`` files of cost functions in extension, read by toulbar2 and by oocbe.

Left out are negative costs, which toulbar2 (1.4) takes for 0, and numbers of cost functions that are not the header's:
it ignores what is too much. Functions by keyword are in a mode of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from ..outcome import Tally
from ._toulbar2 import compare, solved

Case = dict[str, Any]


def draw(random: Random) -> Case:
    """A file as a list of words for each function."""
    sizes = [random.choice((1, 2, 2, 2, 3, 3, 4)) for _ in range(random.choice((0, *range(1, 6), *range(1, 6))))]
    top = random.choice((0, 1, random.randint(2, 12), random.randint(2, 12), random.randint(10, 60), 10**6, 10**15, -3))
    most = random.choice((1, 3, 9, 9, 10**14 if top > 10**14 else 9))
    shared: list[list[int]] = []
    functions = [
        _function(random, sizes, top, most, shared) for _ in range(random.choice((0, *range(1, 9), *range(1, 9))))
    ]
    return {"sizes": sizes, "top": top, "functions": functions, "style": random.randint(0, 2**32)}


def _function(random: Random, sizes: list[int], top: int, most: int, shared: list[list[int]]) -> list[str]:
    def cost() -> int:
        chosen = random.random()
        if chosen < 0.1:
            return max(0, top + random.choice((-1, 0, 1, 7)))
        return 0 if chosen < 0.3 else random.randint(0, most)

    arity = min(len(sizes), random.choice((0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5)))
    scope = random.sample(range(len(sizes)), arity)
    shape = [sizes[v] for v in scope]
    if arity == 0:
        return ["0", str(cost()), *random.choice((["0"], ["0"], ["1", str(cost())]))]
    fitting = [number for number, own in enumerate(shared) if own == shape]
    if fitting and random.random() < 0.5:
        is_shared_again = random.random() < 0.1 and arity < 4
        return _words(-arity if is_shared_again else arity, *scope, cost(), -1 - random.choice(fitting))
    rows = list(itertools.product(*map(range, shape)))
    rows = random.sample(rows, random.choice((0, len(rows), random.randint(0, len(rows)))))
    if rows and random.random() < 0.1:
        rows.append(random.choice(rows))
    default = cost()
    is_shared = random.random() < 0.4
    if is_shared and (arity < 4 or default or rows):
        shared.append(shape)
    listed = [word for row in rows for word in (*row, cost())]
    return _words(-arity if is_shared else arity, *scope, default, len(rows), *listed)


def _words(*numbers: int) -> list[str]:
    return [str(number) for number in numbers]


def text_of(case: Case) -> str:
    """The file, with white space and signs as programs and people write them."""
    random = Random(case["style"])
    sizes, functions = case["sizes"], case["functions"]
    largest = max(sizes, default=0) - random.choice((0, 0, 0, 1))
    words = [str(len(sizes)), str(max(0, largest)), str(len(functions)), str(case["top"]), *map(str, sizes)]
    lines = [random.choice(("name", "4-queens-2", "-1", "12+3")), *words]
    text = " ".join(lines)
    for own in functions:
        text += random.choice(("\n", "\n", " ", "\r\n", "\n\n")) + own[0]
        for word in own[1:]:
            if word[0] == "-" and random.random() < 0.1:
                text += word
            elif word[0] != "-" and random.random() < 0.03:
                text += random.choice((f" +{word}", f"+{word}", f" 0{word}"))
            else:
                text += random.choice((" ", " ", " ", "\n", "\t", "  ")) + word
    return text + random.choice(("\n", "", " \n \n"))


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Both programs read the file as the same problem, a solve finds its optimum, and what is written says the same."""
    import oocbe
    from oocbe.certificates.check_certificate import read as read_by_checker

    path = folder / "random.wcsp"
    path.write_bytes(text_of(case).encode())
    problem = compare(path, tally)
    if problem is None:
        return
    if case["style"] % 3 == 0:
        solved(problem, tally)
    oocbe.write(problem, folder / "again.wcsp")
    again = oocbe.read(folder / "again.wcsp")
    try:
        functions = read_by_checker(path)[1]
    except ValueError:  # numbers without a space between them
        functions = read_by_checker(folder / "again.wcsp")[1]
    for row in itertools.product(*map(range, problem.sizes)):
        value = problem.evaluate(row)
        tally.same(f"value of {row} in what was written", value, again.evaluate(row))
        costs = [table.get(tuple(row[v] for v in scope), default) for scope, table, default in functions]
        total = None if None in costs or sum(costs) >= case["top"] else sum(costs)
        tally.same(f"value of {row} by the checker of certificates", value, total)


def smaller(case: Case) -> Iterator[Case]:
    """Without functions; references to shared ones may then be wrong, and such files show another failure."""
    functions = case["functions"]
    for number in range(len(functions)):
        yield {**case, "functions": functions[:number] + functions[number + 1 :]}
    if case["style"] != 1:
        yield {**case, "style": 1}
