"""Files: what writers write is read back, and whatever happens to a file, reading it gives a problem or an error."""

from __future__ import annotations

import base64
import gzip
import itertools
import lzma
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from . import file_texts
from .brute_force import truth_of
from .descriptions import MOST_ASSIGNMENTS, Description, description_of, problem_of, random_description
from .mutations import mutated
from .outcome import Tally
from .real_files import EVIDENCE, real_files

WAYS = ("round trip", "text", "damage", "damage", "damage", "solution", "stored table")

WRITTEN = ("wcsp", "uai", "spot")

MOST_GROWTH = 1 << 31
"""Bytes that reading a damaged file may add to the process: the files are some KB, the largest some 100."""


def draw(random: Random) -> Description:
    """A way of looking at files, and a file."""
    way = random.choice(WAYS)
    if way == "round trip":
        return _drawn_round_trip(random)
    if way == "text":
        kind = random.choice(tuple(file_texts.KINDS))
        problem = file_texts.KINDS[kind].draw(random)
        return {"way": way, "suffix": kind, "problem": problem, "style": random.randint(0, 2**32)}
    if way == "solution":
        problem = random_description(random, ("min-sum", "max-sum", "max-product"), most=300)
        assignment = [random.randrange(size) for size in problem["sizes"]]
        return {"way": way, "problem": problem, "assignment": assignment, "change": random.randint(0, 2**32)}
    if way == "stored table":
        cells = random.randint(1, 200)
        values = [random.choice((0, 1, 5, 2**40, -3)) for _ in range(cells)]
        return {
            "way": way,
            "form": random.choice(("rows", "complete")),
            "chunk_rows": random.choice((1, 10, 1000)),
            "values": values,
            "change": random.randint(0, 2**32),
        }
    name, data = random.choice(_sources(random))
    data = mutated(random, data, name)
    return {"way": way, "name": name, "data": base64.b64encode(data).decode()}


def _drawn_round_trip(random: Random) -> Description:
    suffix = random.choice(WRITTEN)
    if suffix == "spot":
        problem = file_texts.spot_description(random)
    else:
        semirings = ("min-sum",) if suffix == "wcsp" else ("max-product", "sum-product")
        problem = random_description(random, semirings)
    return {"way": "round trip", "suffix": suffix + random.choice(("", ".gz", ".xz")), "problem": problem}


def _sources(random: Random) -> list[tuple[str, bytes]]:
    """Files to damage: small ones of every format, written by us, and real ones."""
    made = []
    for kind, text in file_texts.KINDS.items():
        made.append((f"made.{kind}", text.render(text.draw(random), Random(random.random())).encode()))
    name, data = random.choice(made)
    made += [(f"{name}.gz", gzip.compress(data, mtime=0)), (f"{name}.xz", lzma.compress(data))]
    made.append(("made.evid", random.choice(EVIDENCE)))
    real = real_files()
    return made if not real or random.random() < 0.6 else [random.choice(real)]


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Look at the case's file in its way."""
    {
        "round trip": _check_round_trip,
        "text": _check_text,
        "damage": _check_damage,
        "solution": _check_solution,
        "stored table": _check_stored,
    }[case["way"]](case, folder, tally)


def _check_round_trip(case: Description, folder: Path, tally: Tally) -> None:
    import oocbe
    from oocbe.errors import UnsupportedError, ValueRangeError

    description = case["problem"]
    path = folder / f"problem.{case['suffix']}"
    try:
        oocbe.write(problem_of(description), path)
    except (UnsupportedError, ValueRangeError) as error:
        tally.refused(error, _may_not_be_written(description, case["suffix"]))
        tally.same("files of a refused problem", [], list(folder.iterdir()))
        return
    found = description_of(oocbe.read(path))
    if case["suffix"].startswith("spot"):
        # Values are numbered anew, the one that leaves a photograph out first.
        tally.same("values of all assignments", sorted(truth_of(description).values), sorted(truth_of(found).values))
        return
    _same_problem(description, found, tally)


def _may_not_be_written(description: Description, suffix: str) -> bool:
    """Whether a format has no place for something."""
    numbers = [
        v for f in description["functions"] for v in [*f["values"], *([] if f["default"] is None else [f["default"]])]
    ]
    constant = description["constant"] or 0
    if suffix.startswith("wcsp"):
        fractions = any(isinstance(v, float) for v in [*numbers, description["constant"]])
        weights = [w for c in description["linear"] for w in [c["capacity"], *itertools.chain(*c["coefficients"])]]
        if max(map(abs, weights), default=0) >= 2**63 - 1:  # a lower limit is written, of the negative numbers
            return True
        return fractions or min([*numbers, constant], default=0) < 0 or _largest_sum(description) >= 2**62
    if suffix.startswith("uai"):
        cells = max((math.prod(description["sizes"][v] for v in c["scope"]) for c in description["linear"]), default=0)
        widest = max(
            (len(p["scope"]) for k in ("functions", "constraints", "linear") for p in description[k]), default=0
        )
        refused = min([*numbers, constant], default=0) < 0 or max(numbers, default=0) > 2**53
        return refused or cells > 2**27 or widest > 63
    return False


def _largest_sum(description: Description) -> float:
    bound = abs(description["upper_bound"] or 0) + abs(description["constant"] or 0)
    return bound + sum(
        max([*map(abs, f["values"]), abs(f["default"] or 0)], default=0) for f in description["functions"]
    )


def _same_problem(expected: Description, found: Description, tally: Tally) -> None:
    """Both give every assignment the same value; floats of products exactly, as they are printed."""
    tally.same("domain sizes", expected["sizes"], found["sizes"])
    first, second = truth_of(expected), truth_of(found, expected["semiring"])
    tally.same("feasible assignments", [a for a, _ in first.rows], [a for a, _ in second.rows])
    # Constants of several functions are added as they are read.
    margin = 0 if first.integral or not first.adds else first.margin()
    for (assignment, value), other in zip(first.rows, second.values, strict=True):
        tally.holds(f"value of {assignment}", abs(value - other) <= margin, value, other)


def _check_text(case: Description, folder: Path, tally: Tally) -> None:
    """A file of our own writing is read as what it was written from."""
    import oocbe

    kind = file_texts.KINDS[case["suffix"]]
    path = folder / f"made.{case['suffix']}"
    path.write_text(kind.render(case["problem"], Random(case["style"])))
    found = description_of(oocbe.read(path))
    if case["suffix"] == "spot":
        found["linear"] = found["linear"] or []
    _same_problem(case["problem"], found, tally)


def _check_damage(case: Description, folder: Path, tally: Tally) -> None:
    import oocbe
    from oocbe.errors import FormatError, OocbeError, UnsupportedError
    from oocbe.runtime.process_memory import peak_memory

    path = folder / case["name"]
    path.write_bytes(base64.b64decode(case["data"]))
    before = peak_memory()
    try:
        if case["name"].endswith(".evid"):
            network = folder / "network.uai"
            network.write_text(file_texts.NETWORK)
            problem = oocbe.read(network, evidence=path)
        else:
            problem = oocbe.read(path)
    except OocbeError as error:
        tally.same("exit code", 2, error.exit_code)
        tally.holds("the file's name in the message", str(path) in str(error), path, error)
        if isinstance(error, FormatError):
            binary = path.suffix in (".gz", ".xz") or b"\0" in path.read_bytes()
            tally.holds("a line", error.line is not None or binary, "a line", error)
        elif isinstance(error, UnsupportedError):
            tally.holds("a line", "line " in str(error) or "samples" in str(error), "a line", error)
        tally.refused(error, True)
        return
    finally:
        grown = peak_memory() - before
        tally.holds("memory for reading", grown < MOST_GROWTH, f"less than {MOST_GROWTH:,} bytes", f"{grown:,}")
    if math.prod(problem.sizes) > MOST_ASSIGNMENTS or len(problem.functions) + len(problem.constraints) > 200:
        _check_evaluation(problem, tally)
        return
    _check_solve(problem, folder, tally)


def _check_evaluation(problem: Any, tally: Tally) -> None:
    value = problem.evaluate([0] * len(problem.sizes))
    tally.holds("a value", value is None or isinstance(value, int | float), "a number or None", value)


def _check_solve(problem: Any, folder: Path, tally: Tally) -> None:
    """What was read of a damaged file is solved as brute force says."""
    from .solve_mode import check as check_solve

    case = {"problem": description_of(problem), "options": {"inside": {}, "order_seconds": 0, "backend": "cpu"}}
    check_solve(case, folder, tally)


def _check_solution(case: Description, folder: Path, tally: Tally) -> None:
    """A solution file, whole and damaged: accepted is only what brute force says, too."""
    import oocbe
    from oocbe.errors import OocbeError
    from oocbe.formats.solutions import read_solution, verify_solution, write_assignment

    problem, assignment = problem_of(case["problem"]), tuple(case["assignment"])
    truth = truth_of(case["problem"])
    if truth.is_doubtful():
        return
    value = truth.value_of.get(assignment)
    claimed = 0 if value is None else int(value) if value == int(value) and truth.integral else float(value)
    labels = {f"x{v}": str(x) for v, x in enumerate(assignment)}
    path = folder / "solution"
    write_assignment(labels, "described", truth.semiring, claimed, path)
    verdict = oocbe.verify(problem, path)
    if not (truth.semiring == "max-product" and value is None):  # a product of 0 has a value
        tally.same("accepted", value is not None, verdict.accepted)
    path.write_bytes(mutated(Random(case["change"]), path.read_bytes(), "solution"))
    try:
        solution = read_solution(path)
        verdict = verify_solution(problem, solution)
    except OocbeError as error:
        tally.same("exit code", 2, error.exit_code)
        tally.refused(error, True)
        return
    if verdict.accepted:
        semiring = solution.semiring or truth.semiring
        other = truth_of(case["problem"], semiring).value_of.get(solution.assignment(problem))
        if other is None and semiring in ("max-product", "sum-product"):
            return  # a product of 0 has a value
        tally.holds("a feasible assignment", other is not None, "rejected", "accepted")
        assert other is not None
        if solution.claimed_value is not None and math.isfinite(solution.claimed_value):
            tally.near("accepted value", other, solution.claimed_value, 0 if truth.integral else abs(other) / 10**6 + 1)


def _check_stored(case: Description, folder: Path, tally: Tally) -> None:
    """A stored table of which a byte changes, or a file goes, is found damaged, or has the same rows."""
    import numpy as np

    from oocbe import MIN_SUM, CompleteTable, StoredCompleteTable, StoredTable, Table
    from oocbe.errors import OocbeError
    from oocbe.tables.stored import open_table

    count, path = len(case["values"]), folder / "table"
    rows = [[i % 2, i // 2] for i in range(count)]
    values = np.array(case["values"], dtype=np.int64)
    table = Table.from_rows({"a": 2, "b": (count + 1) // 2}, rows, values, MIN_SUM)
    if case["form"] == "rows":
        StoredTable.save(path, table, chunk_rows=case["chunk_rows"])
    else:
        StoredCompleteTable.save(path, CompleteTable.from_table(table), chunk_cells=case["chunk_rows"])
    whole = open_table(path).to_table().to_dict()
    tally.same("rows of a stored table", table.to_dict(), whole)
    random = Random(case["change"])
    victim = random.choice(sorted(p for p in path.rglob("*") if p.is_file()))
    if random.random() < 0.15:
        victim.unlink()
    elif random.random() < 0.1:
        other = random.choice(sorted(p for p in path.rglob("*") if p.is_file()))
        shutil.copyfile(other, folder / "copy")
        (folder / "copy").replace(victim)
    else:
        victim.write_bytes(mutated(random, victim.read_bytes(), victim.name))
    try:
        opened = open_table(path)
        opened.verify()
        found = opened.to_table().to_dict()
    except OocbeError as error:
        tally.holds("exit code", error.exit_code in (2, 40), "2 or 40", f"{error.exit_code}: {error}")
        tally.holds("the table's name", str(path) in str(error), path, error)
        tally.refused(error, True)
        return
    tally.same(f"rows after damage to {victim.name}", whole, found)


def smaller(case: Description) -> Iterator[Description]:
    """Damaged files with pieces cut out; problems with parts left out."""
    from .descriptions import smaller_descriptions

    if "data" in case:
        data = base64.b64decode(case["data"])
        for size in (len(data) // 2, len(data) // 8, 16, 1):
            for start in range(0, len(data), max(1, size)):
                less = data[:start] + data[start + size :]
                if size and len(less) < len(data):
                    yield {**case, "data": base64.b64encode(less).decode()}
    elif case["way"] == "round trip" and not case["suffix"].startswith("spot"):
        for problem in smaller_descriptions(case["problem"]):
            yield {**case, "problem": problem}
