"""The commands of the memory fuzz: what each kind is given, and what it leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from .memory_inputs import (
    PROBLEMS,
    write_cases,
    write_parquet,
    write_problem,
    write_solution,
    write_table,
    write_trace,
)
from .memory_operators import OPERATORS

Description = dict[str, Any]
Commands = Iterator[tuple[list[str], list[Path]]]

MIB = 1 << 20

NETWORKS = ("uai", "bif", "net", "xdsl", "lg")

WAYS: dict[str, tuple[str, ...]] = {
    "solve": (*PROBLEMS, "wcsp", "wcsp", "wcsp"),
    "many": ("wcsp", "cfn", "uai"),
    "workdir": ("wcsp",),
    "count": ("wcsp", "cnf", "opb"),
    "count-optimal": ("wcsp", "cfn"),
    "kbest": ("wcsp", "cfn", "spot"),
    "marginals": NETWORKS,
    "logz": NETWORKS,
    "min-marginals": ("wcsp", "wcnf"),
    "mpe": NETWORKS[:-1],
    "certificate": ("wcsp", "spot"),
    "bound": ("wcsp", "cfn", "spot", "uai"),
    "plan": ("wcsp", "uai", "cfn", "opb", "spot"),
    "propagate": ("mps", "wcsp", "lp", "opb", "xml"),
    "inspect": tuple(PROBLEMS),
    "convert": ("wcsp", "uai", "cfn", "cnf", "wcnf", "qpbo", "bif", "spot", "lp", "mps", "yaml", "net"),
    "verify": ("wcsp", "uai"),
    "dcop": ("wcsp", "cfn", "yaml", "xml"),
    "compile": ("uai", "bif", "net"),
    "query": ("uai", "bif"),
    "parquet": (),
    "stress": (),
    "synth": (),
    "trace": (),
    "simulate": (),
    **dict.fromkeys(OPERATORS, ()),
}
"""Kinds of commands, operators among them, and the formats whose problems they are given."""

TASKS = ("count", "count-optimal", "kbest", "marginals", "logz", "min-marginals", "mpe")
"""Kinds that are tasks of ``solve``."""

TARGETS = {
    "uai": "uai",
    "cfn": "wcsp",
    "wcnf": "cfn",
    "lp": "mps",
    "mps": "lp",
    "bif": "uai",
    "net": "uai",
    "yaml": "cfn",
}
"""Formats that problems are written in; cfn where nothing else is named."""

XML_KINDS = {"propagate": 1, "dcop": 2}
"""Number of the maker of XML for commands that take one kind of it."""

JOINED_ROWS = 1 << 26
"""Rows that operators and ``stress``, which have no time limit, join at most, and cells of complete tables."""

MOST_BYTES = MIB
"""Of an input file: small functions take 50 microseconds and a kilobyte each."""

SHORTER = 8
"""Divisor of sizes and of joined rows in narrow cases."""

QUICKLY_READ = {"wcsp": 8 * MIB, "uai": 8 * MIB, "cfn": 4 * MIB, "lg": 4 * MIB, "xml": 2 * MIB, "yaml": MIB // 8}
"""The same, of formats that are read quicker, or slower."""


def draw_details(random: Random, way: str, room: int, is_short: bool) -> Description:
    """What a kind's input is made from, for so many MiB; ``is_short``: which takes a fraction of a second."""
    case: Description = {}
    limit, most = min(room, 64), 6 if is_short else 24
    joined = JOINED_ROWS // (8 * SHORTER if is_short else 1)
    if WAYS[way]:
        suffix = random.choice(WAYS[way])
        size = int(limit * MIB * 10 ** random.uniform(-2.5, -0.3))
        case |= {"suffix": suffix, "kind": random.randrange(60), "is_compressed": random.random() < 0.3}
        if suffix == "xml" and way in XML_KINDS:
            case["kind"] = XML_KINDS[way]
        case["size"] = min(size, QUICKLY_READ.get(suffix, MOST_BYTES) // (SHORTER if is_short else 1))
    if way in OPERATORS:
        case |= {
            "sizes": {name: random.choice((3, 20, 100, 1000)) for name in "abcd"},
            "tables": random.choice((["abc", "bcd"], ["ab", "bc"], ["abc", "cd"], ["bac", "dcb"])),
            "gone": "b",
            "rows": int(min(limit, most) * MIB / 16 * random.choice((0.02, 0.2, 0.5, 1.0, 2.0))),
            "is_sorted": random.random() < 0.5,
            "output": random.random() < 0.75,
        }
        case["on_disk"] = case["output"] and random.random() < 0.7
        if way in ("join_sum", "join_maximise"):
            case["rows"] = min(case["rows"], _most_rows(case, joined))
        while way in ("to_complete", "to_rows") and math.prod(case["sizes"][x] for x in case["tables"][0]) > joined:
            case["sizes"] = {name: (size + 1) // 2 for name, size in case["sizes"].items()}
    if way in ("parquet", "stress", "synth"):
        case["rows"] = int(min(limit, most) * MIB / 16 * random.choice((0.1, 0.5, 1.0, 2.0)))
    if way == "stress":
        groups = random.choice((8, 32, 512 if is_short else 4096))
        case |= {"operator": random.choice(("join-sum", "maximise", "join-maximise")), "groups": groups}
        case["generated"] = random.random() < 0.2
        case["rows"] = max(groups, min(case["rows"], joined // groups))
    if way == "synth":
        case["made"] = random.choice(("random", "scale-free", "grid", "spot5", "table"))
    if way == "solve":
        case["options"] = random.choice(
            ([], [], ["--bounds", "none"], ["--bounds", "lp"], ["--tables", "complete"], ["--tables", "incomplete"])
        )
    if way in ("many", "convert"):
        case["size"] = min(case["size"], MIB // 2)
    if way in ("trace", "simulate"):
        case["size"] = int(limit * MIB * 10 ** random.uniform(-3, -0.8))
    if way == "query":
        case |= {"cases": int(10 ** random.uniform(1, 3 if is_short else 4)), "joined": random.random() < 0.3}
        case["out"] = random.choice(("csv", "parquet", "zarr", "MAR"))
        case["size"] = min(case["size"], MIB // (SHORTER if is_short else 2))
    return case


def _most_rows(case: Description, joined: int) -> int:
    """Rows of each table whose join has about so many rows."""
    first, second = case["tables"]
    return int(math.sqrt(joined * math.prod(case["sizes"][name] for name in set(first) & set(second))))


def commands(case: Description, place: Path) -> Commands:
    """What is run, one after the other, with the outputs that must not be there if it is refused."""
    way = case["way"]
    if way in OPERATORS:
        yield from _operator(case, place)
    elif way in _OF_THEIR_OWN:
        yield from _OF_THEIR_OWN[way](case, place)
    else:
        yield from _of_problem(case, place)


def _program(*arguments: object) -> list[str]:
    return ["-m", "oocbe", *map(str, arguments)]


def _limit(case: Description) -> list[str]:
    return ["--memory", f"{case['memory']}MiB"]


def _problem(case: Description, place: Path, number: int = 0) -> Path:
    seed = case["number"] + number
    return write_problem(place, case["suffix"], case["kind"], seed, case["size"], case["is_compressed"])


def _operator(case: Description, place: Path) -> Commands:
    for i, names in enumerate(case["tables"]):
        path = place / f"in{i}"
        write_table(path, list(names), case["sizes"], case["number"] + i, case["rows"], case["is_sorted"])
    told = {name: case[name] for name in ("way", "memory", "output", "on_disk", "gone")}
    script = Path(__file__).with_name("memory_operators.py")
    yield [str(script), json.dumps(told), str(place)], [place / "out"]


def _parquet(case: Description, place: Path) -> Commands:
    path, keys = write_parquet(place, case["number"], case["rows"]), ["--values", "cost"]
    stored, back = place / "stored", place / "back.parquet"
    yield _program("convert", path, stored, *keys, "--semiring", "min-sum", *_limit(case)), [stored]
    yield _program("convert", stored, back, *keys, *_limit(case)), [back]


def _stress(case: Description, place: Path) -> Commands:
    sized = ["--rows", case["rows"], "--group-rows", case["groups"], "--operator", case["operator"]]
    generated = ["--generated"] if case["generated"] else []
    yield _program("stress", *sized, *generated, *_limit(case), "--workdir", place / "work"), []


def _synth(case: Description, place: Path) -> Commands:
    numbers = Random(case["number"])
    sizes = {
        "random": ["-n", numbers.randint(5, 300), "-d", numbers.randint(5, 60), "--density", "0.5"],
        "scale-free": ["-n", numbers.randint(5, 5000), "-d", numbers.randint(5, 40)],
        "grid": ["--side", numbers.randint(5, 60), "-d", numbers.randint(5, 60)],
        "spot5": ["-n", numbers.randint(100, 20000)],
        "table": ["--rows", case["rows"]],
    }
    out = place / ("made" if case["made"] == "table" else "made.wcsp")
    yield _program("synth", case["made"], out, *sizes[case["made"]]), [out]


def _trace(case: Description, place: Path) -> Commands:
    yield _program("trace", write_trace(place, case["number"], case["size"]), "--json"), []


def _simulate(case: Description, place: Path) -> Commands:
    numbers = Random(case["number"])
    workers = ["--workers", numbers.choice((1, 10, 1000))]
    if numbers.random() < 0.5:
        path = write_trace(place, case["number"], case["size"])
        yield _program("simulate", *workers, "--pieces", path, "--times", numbers.choice((1, 10, 1000))), []
    else:
        yield _program("simulate", *workers, "--segments", 10 ** numbers.randint(0, 6)), []


def _many(case: Description, place: Path) -> Commands:
    files = []
    for i in range(3):
        (place / str(i)).mkdir()
        files.append(_problem(case, place / str(i), i))
    yield _program("solve", *files, "--jobs", 1 + case["number"] % 2, *_limit(case), "--time-limit", "1", "-q"), []


def _workdir(case: Description, place: Path) -> Commands:
    kept = ["--workdir", place / "run", "--resume", "--bounds", "none", "--tables", "incomplete"]
    yield _program("solve", _problem(case, place), *kept, *_timed(case)), []


def _certificate(case: Description, place: Path) -> Commands:
    path, proof = _problem(case, place), place / "proof"
    yield _program("solve", path, "--certificate", proof, *_timed(case)), [proof]
    if proof.exists():
        yield _program("verify", path, "--certificate", proof), []


def _verify(case: Description, place: Path) -> Commands:
    path = _problem(case, place)
    yield _program("verify", path, write_solution(place, path)), []


def _compile(case: Description, place: Path) -> Commands:
    path, tree = _problem(case, place), place / "out"
    yield _program("compile", path, tree, *_limit(case), "--order-seconds", "0.2"), [tree]
    yield _program("query", tree, "--cases", write_cases(place, case["suffix"], 20), *_limit(case)), []


def _query(case: Description, place: Path) -> Commands:
    path, tree, answers = _problem(case, place), place / "out", place / f"answers.{case['out']}"
    yield _program("compile", path, tree, "--order-seconds", "0.2", "--memory", "1GiB"), []
    named = ["--targets", "v1" if case["suffix"] == "bif" else "1"] if case["joined"] and case["out"] != "MAR" else []
    file = write_cases(place, case["suffix"], case["cases"])
    yield _program("query", tree, "--cases", file, *named, "-o", answers, *_limit(case)), [answers]


def _timed(case: Description) -> list[str]:
    return [*_limit(case), "--time-limit", "2" if case["room"] is None else "0.7", "-q"]


def _of_problem(case: Description, place: Path) -> Commands:
    way, path, limit = case["way"], _problem(case, place), _limit(case)
    if way == "solve":
        yield _program("solve", path, *_timed(case), *case["options"], "--json"), []
    elif way in TASKS:
        yield _program("solve", path, "--task", way, *_timed(case)), []
    elif way in ("bound", "dcop"):
        yield _program(way, path, *_timed(case), *(["--z", "3"] if case["kind"] % 2 else [])), []
    elif way == "plan":
        yield _program(way, path, *limit, "--order-seconds", "0.2"), []
    elif way == "propagate":
        out = place / f"tighter.{'mps' if case['suffix'] in ('mps', 'lp', 'opb') else 'wcsp'}"
        kept = ["--output", out] if case["kind"] % 2 else []
        yield _program(way, path, "--time-limit", "2", *kept), [out]
    elif way == "inspect":
        yield _program(way, path), []
    elif way == "convert":
        target = place / f"written.{TARGETS.get(case['suffix'], 'cfn')}{'.gz' if case['kind'] % 3 == 0 else ''}"
        yield _program(way, path, target), [target]


_OF_THEIR_OWN: dict[str, Callable[[Description, Path], Commands]] = {
    "parquet": _parquet,
    "stress": _stress,
    "synth": _synth,
    "trace": _trace,
    "simulate": _simulate,
    "many": _many,
    "workdir": _workdir,
    "certificate": _certificate,
    "verify": _verify,
    "compile": _compile,
    "query": _query,
}
