"""Operators on random tables of every form and semiring, in memory and on disk, against loops over dictionaries."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import ADDS, exact
from .outcome import DisagreementError, Exact, Tally
from .solve_options import has_device

OPERATORS = ("join_sum", "maximise", "join_maximise", "convert")
FORMS = ("memory", "shuffled", "packed", "stored", "complete", "stored-complete")
COMPLETE_FORMS = ("complete", "stored-complete")
DTYPES = ("int32", "int64", "float32", "float64")
NAMES = "abcdefg"
SEMIRINGS = ("min-sum", "max-sum", "max-product", "sum-product", "log-sum-exp", "counting")

MOST_ROWS = 60
"""Rows of a table: two of them join to a few thousand pairs."""

Case = dict[str, Any]
Row = frozenset[tuple[str, int]]


def draw(random: Random) -> Case:
    """An operator, its tables and its settings."""
    operator = random.choice((*OPERATORS, "join_sum", "join_maximise"))
    semiring = random.choice(SEMIRINGS)
    family = random.choice(("narrow", "narrow", "narrow", "odd", "wide"))
    sizes = {name: _size(random, family) for name in NAMES}
    kinds = random.choice((["any"], FORMS, ("memory", "shuffled"), ("packed",), COMPLETE_FORMS))
    if family == "wide":
        kinds = ("memory", "shuffled", "packed", "stored")
    elif kinds == ["any"]:
        kinds = (random.choice(FORMS),)
    dtypes = random.choice((DTYPES, ("int32",), ("int64",), ("float64",), ("float32", "float64")))
    palette = random.choice(_palettes(semiring))
    count = 2 if operator.startswith("join") else 1
    tables = [
        _table(random, sizes, semiring, random.choice(kinds), random.choice(dtypes), palette) for _ in range(count)
    ]
    while operator == "convert" and 2**22 < math.prod(tables[0]["sizes"]) < 2**56:
        tables = [
            _table(random, sizes, semiring, random.choice(kinds), random.choice(dtypes), palette)
        ]  # hours of work
    joined = sorted({name for t in tables for name in t["scope"]})
    gone = random.sample(joined, random.randint(0 if operator == "join_maximise" else min(1, len(joined)), len(joined)))
    settings: Case = {"backend": random.choice(("cpu", "auto", "cuda") if has_device() else ("cpu", "auto"))}
    if random.random() < 0.5:
        settings["piece_rows"] = random.choice((1, 2, 7, 30))
    if random.random() < 0.4:
        settings["output"] = "output"
        settings["memory"] = random.choice(("1MiB", "32MiB"))
        settings["streams"] = random.choice((1, 2, 8))
    return {"operator": operator, "semiring": semiring, "tables": tables, "gone": gone, "settings": settings}


def _size(random: Random, family: str) -> int:
    if family == "narrow":
        return random.choice((1, 2, 2, 2, 3, 4))
    return random.choice((1, 2, 3, 5, 9)) if family == "odd" else random.choice((2, 1 << 20, 1 << 40))


def _palettes(semiring: str) -> tuple[str, ...]:
    if semiring == "log-sum-exp":
        return ("small", "halves")
    if semiring in ADDS:
        return ("small", "small", "halves", "large", "edge")
    return ("small", "positive", "halves", "tiny")


def _table(random: Random, sizes: dict[str, int], semiring: str, form: str, dtype: str, palette: str) -> Case:
    scope = random.sample(NAMES, random.choice((0, 1, 2, 2, 3, 3, 4, 5)))
    while form in COMPLETE_FORMS and math.prod(sizes[name] for name in scope) > 2000:
        scope.pop()
    choices = [_choices(random, sizes[name]) for name in scope]
    cells = list(itertools.islice(itertools.product(*choices), 5000))
    share = random.choice((0.0, 0.3, 0.7, 1.0))
    rows = [list(c) for c in cells if random.random() < share]
    rows = random.sample(rows, min(len(rows), MOST_ROWS))
    values = [_value(random, semiring, dtype, palette) for _ in rows]
    return {
        "scope": scope,
        "sizes": [sizes[name] for name in scope],
        "rows": rows,
        "values": values,
        "dtype": dtype,
        "form": form,
        "chunk_rows": random.choice((1, 7, 1000)),
    }


def _choices(random: Random, size: int) -> list[int]:
    return list(range(size)) if size < 10 else sorted({0, 1, size // 3, size - 1})


def _value(random: Random, semiring: str, dtype: str, palette: str) -> float:
    low = -9 if semiring in ADDS else 0
    bits = 31 if dtype == "int32" else 63
    whole = {
        "small": lambda: random.randint(low, 9),
        "positive": lambda: random.randint(1, 9),
        "halves": lambda: random.randint(low, 9),
        "large": lambda: random.choice((0, 1, 2 ** (bits - 2), -(2 ** (bits - 2)), 2**15, 2**30)),
        "edge": lambda: random.choice((0, 1, 2**bits - 1, -(2**bits), 2**bits - 2)),
        "tiny": lambda: random.randint(0, 2),
    }[palette]
    if dtype.startswith("int"):
        return whole()
    number = {"halves": lambda: random.randint(low * 2, 19) / 2, "tiny": lambda: random.choice((1e-30, 1e-160, 2.0))}
    value = float(number.get(palette, whole)())
    return struct.unpack("f", struct.pack("f", value))[0] if dtype == "float32" else value


def check(case: Case, folder: Path, tally: Tally) -> None:
    """Apply the operator, and compare every row."""
    import oocbe
    from oocbe.errors import OocbeError

    operator, settings = case["operator"], dict(case["settings"])
    if settings.get("backend") == "cuda" and not has_device():
        settings["backend"] = "cpu"
    if "output" in settings:
        settings |= {"output": folder / "output", "scratch": folder}
    expected = _expected(case)
    margin = _margin(case)
    try:
        tables = [_made(t, case["semiring"], folder / f"input {i}") for i, t in enumerate(case["tables"])]
        if operator == "join_sum":
            found: Any = oocbe.join_sum(*tables, **settings)
        elif operator == "maximise":
            found = oocbe.maximise(*tables, case["gone"], **settings)
        elif operator == "join_maximise":
            found = oocbe.join_maximise(*tables, case["gone"], **settings)
        else:
            found = _converted(oocbe, tables[0], case, settings, folder)
    except OocbeError as error:
        tally.refused(error, _may_refuse(error, case))
        return
    if "output" in settings and operator != "convert":
        left = {path.name for path in folder.iterdir() if not path.name.startswith("input")}
        tally.same("files left", {"output"}, left)
        found.verify()
    _compare(found, expected, case, margin, tally)


def _made(t: Case, semiring: str, path: Path) -> Any:
    """The engine's table of a described one."""
    import numpy as np

    from oocbe import SEMIRINGS, CompleteTable, PackedTable, StoredCompleteTable, StoredTable, Table

    scope = dict(zip(t["scope"], t["sizes"], strict=True))
    rows = np.array(t["rows"], dtype=np.int64).reshape(len(t["rows"]), len(t["scope"]))
    values = np.array(t["values"], dtype=t["dtype"])
    table = Table.from_rows(scope, rows, values, SEMIRINGS[semiring])
    if t["form"] == "shuffled":
        order = list(range(table.rows))
        Random(len(order)).shuffle(order)
        keys = np.ascontiguousarray(table.keys[:, order])
        return Table(table.layout, keys, table.values[order], table.semiring, is_sorted=table.rows < 2)
    if t["form"] == "packed":
        return PackedTable.pack(table, chunk_rows=t["chunk_rows"])
    if t["form"] == "stored":
        return StoredTable.save(path, table, chunk_rows=t["chunk_rows"])
    if t["form"] == "complete":
        return CompleteTable.from_table(table)
    if t["form"] == "stored-complete":
        return StoredCompleteTable.save(path, CompleteTable.from_table(table), chunk_cells=t["chunk_rows"])
    return table


def _converted(oocbe: Any, table: Any, case: Case, settings: Case, folder: Path) -> Any:
    """There and back through the other form, perhaps on disk."""
    del settings["backend"]
    onward = {**settings, "output": folder / "complete"} if "output" in settings else {}
    if "output" not in settings:
        settings = {}
    if not case["gone"]:
        return oocbe.to_rows(oocbe.to_complete(table, **onward), **settings)
    scope = sorted(case["tables"][0]["scope"], key=lambda name: (name not in case["gone"], name))
    return oocbe.to_rows(oocbe.to_complete(table, scope, **onward), **settings)


def _expected(case: Case) -> dict[Row, Exact | float]:
    models = [
        {
            frozenset(zip(t["scope"], row, strict=True)): exact(value)
            for row, value in zip(t["rows"], t["values"], strict=True)
        }
        for t in case["tables"]
    ]
    adds = case["semiring"] in ADDS
    joined = models[0]
    if len(models) == 2:
        scopes = [set(t["scope"]) for t in case["tables"]]
        shared = scopes[0] & scopes[1]
        partners: dict[Row, list[tuple[Row, Exact]]] = {}
        for row, value in models[1].items():
            partners.setdefault(frozenset(p for p in row if p[0] in shared), []).append((row, value))
        joined = {}
        for row, value in models[0].items():
            for other, more in partners.get(frozenset(p for p in row if p[0] in shared), ()):
                joined[row | other] = value + more if adds else value * more
    if case["operator"] in ("join_sum", "convert"):
        return dict(joined)
    groups: dict[Row, list[Exact]] = {}
    for row, value in joined.items():
        groups.setdefault(frozenset(p for p in row if p[0] not in case["gone"]), []).append(value)
    return {row: _reduced(values, case["semiring"]) for row, values in groups.items()}


def _reduced(values: list[Exact], semiring: str) -> Exact | float:
    if semiring == "min-sum":
        return min(values)
    if semiring in ("max-sum", "max-product"):
        return max(values)
    if semiring == "log-sum-exp":
        top = max(values)
        return Fraction(top) + Fraction(math.log(math.fsum(math.exp(float(v - top)) for v in values)))
    return sum(values)


def _margin(case: Case) -> Fraction | None:
    """How far a value may be off: None for what has to be exact."""
    dtypes = {t["dtype"] for t in case["tables"]}
    if case["semiring"] != "log-sum-exp" and all(d.startswith("int") for d in dtypes):
        return None
    largest = Fraction(1)
    for t in case["tables"]:
        size = max((abs(exact(v)) for v in t["values"]), default=0)
        largest = largest + size if case["semiring"] in ADDS else largest * max(1, size)
    terms = max(1, math.prod(len(t["rows"]) for t in case["tables"])) if case["semiring"] not in ADDS else 8
    return largest * terms / (2**20 if "float32" in dtypes else 2**45)


def _may_refuse(error: Exception, case: Case) -> bool:
    from oocbe.errors import ModelError, ResourceError, ValueRangeError

    if isinstance(error, ResourceError):
        return case["operator"] == "convert" and math.prod(case["tables"][0]["sizes"]) > 2**22
    values = [v for t in case["tables"] for v in t["values"]]
    if isinstance(error, ValueRangeError):
        is_complete = any(t["form"] in COMPLETE_FORMS for t in case["tables"]) or case["operator"] == "convert"
        if is_complete and max(map(abs, values), default=0) >= 2**23:
            return True  # integers that a complete table, or one of floats beside it, cannot hold
        least = math.prod(min((abs(exact(v)) for v in t["values"] if v), default=Fraction(1)) for t in case["tables"])
        if case["semiring"] not in ADDS and any(t["dtype"] == "float32" for t in case["tables"]) and least < 2.0**-126:
            return True
        product = math.prod(max((abs(exact(v)) for v in t["values"]), default=1) or 1 for t in case["tables"])
        total = sum(max((abs(exact(v)) for v in t["values"]), default=0) for t in case["tables"])
        rows = math.prod(max(1, len(t["rows"])) for t in case["tables"])
        return total >= 2**62 or (case["semiring"] not in ADDS and product * rows >= 2**60)
    if isinstance(error, ModelError):
        return case["semiring"] == "max-product" and min(values, default=0) < 0
    return False


def _compare(found: Any, expected: dict[Row, Any], case: Case, margin: Fraction | None, tally: Tally) -> None:
    table = found.to_table() if hasattr(found, "to_table") else found
    scope = {name for t in case["tables"] for name in t["scope"]}
    if case["operator"] in ("maximise", "join_maximise"):
        scope -= set(case["gone"])
    tally.same("scope", scope, set(table.scope))
    rows, values = table.to_rows()
    listed = [
        (frozenset(zip(table.scope, r, strict=True)), v) for r, v in zip(rows.tolist(), values.tolist(), strict=True)
    ]
    got = dict(listed)
    tally.same("rows that occur once", len(listed), len(got))
    if table.is_sorted:
        keys = [int.from_bytes(bytes(key), "little") for key in table.keys.T.copy()]
        tally.same("sorted rows", sorted(keys), keys)
    loses_zeros = case["operator"] == "convert" or any(t["form"] in COMPLETE_FORMS for t in case["tables"])
    if case["semiring"] not in ADDS and loses_zeros:
        # 0 is what is infeasible in a complete table, and a product too small for a float is one beside others.
        least = Fraction(1, 2**149 if values.dtype == "float32" else 2**1074)
        expected = {row: value for row, value in expected.items() if abs(value) >= least}
        got = {row: value for row, value in got.items() if value != 0}
    if expected.keys() != got.keys():
        missing, more = expected.keys() - got.keys(), got.keys() - expected.keys()
        raise DisagreementError(
            "rows", f"{len(expected)} rows, with {_named(missing)}", f"{len(got)} rows, with {_named(more)}"
        )
    for row, value in expected.items():
        if margin is None:
            tally.same("value of a row", value, got[row])
        else:
            tally.near("value of a row", value, got[row], margin)


def _named(rows: set[Row]) -> list[list[tuple[str, int]]]:
    return [sorted(row) for row in itertools.islice(rows, 3)]


def smaller(case: Case) -> Iterator[Case]:
    """Cases with fewer rows, settings and variables to eliminate."""
    for name in case["settings"]:
        if name not in ("backend", "output", "memory", "streams"):
            yield {**case, "settings": {k: v for k, v in case["settings"].items() if k != name}}
    if "output" in case["settings"]:
        kept = {k: v for k, v in case["settings"].items() if k not in ("output", "memory", "streams")}
        yield {**case, "settings": kept}
    for place, table in enumerate(case["tables"]):
        count = len(table["rows"])
        for size in (count // 2, 1):
            for start in range(0, count, max(1, size)):
                keep = [i for i in range(count) if not start <= i < start + size]
                if len(keep) < count:
                    less = {name: [table[name][i] for i in keep] for name in ("rows", "values")}
                    yield {**case, "tables": [{**t, **less} if i == place else t for i, t in enumerate(case["tables"])]}
    for name in case["gone"]:
        yield {**case, "gone": [n for n in case["gone"] if n != name]}
