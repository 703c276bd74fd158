"""Operators on tables in every form: values, order of rows and bytes on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import oocbe

from .recorder import Recorder, folder_digest

SIZES = {"a": 7, "b": 5, "c": 11, "d": 3, "e": 1000, "f": 4, "g": 9}
"""Domain sizes of the tables' variables."""

BIG_SIZES = {"k": 3000, "m": 600, "n": 500}
"""Domain sizes of tables of which pieces are made: a few hundred thousand rows."""

WIDE_SIZES = {f"w{i}": 1000 for i in range(9)}
"""Domain sizes of tables whose keys take more than one machine word."""

LITTLE = {"memory": "16MiB", "streams": 1, "backend": "cpu"}
"""Less than the process takes by itself, so that the share of tables is the same whatever that is."""


def drawn(
    seed: int,
    scope: str | tuple[str, ...],
    rows: int,
    semiring: oocbe.Semiring,
    kind: str,
    sizes: dict[str, int] = SIZES,
) -> oocbe.Table:
    """A table of distinct drawn rows, in no order."""
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, sizes[name], size=rows) for name in scope]
    tuples = np.unique(np.stack(columns, axis=1), axis=0)
    generator.shuffle(tuples)
    if kind == "int":
        values: Any = generator.integers(-10_000, 10_000, size=len(tuples))
    elif kind == "long":
        values = generator.integers(-(2**45), 2**45, size=len(tuples))
    else:
        values = generator.random(len(tuples))
    return oocbe.Table.from_rows({name: sizes[name] for name in scope}, tuples, values, semiring)


KINDS = (
    (oocbe.MAX_SUM, "int"),
    (oocbe.MIN_SUM, "int"),
    (oocbe.MIN_SUM, "long"),
    (oocbe.MAX_SUM, "float"),
    (oocbe.MAX_PRODUCT, "float"),
    (oocbe.SUM_PRODUCT, "float"),
    (oocbe.LOG_SUM_EXP, "float"),
    (oocbe.COUNTING, "count"),
)
"""Semirings and numbers that operators are run with."""

PAIRS = (("abc", "bcd", "b"), ("abe", "ecd", "e"), ("ab", "cd", "b"), ("abcd", "bd", "bd"), ("eg", "eg", "e"))
"""Scopes of two tables, and what is eliminated."""


MOST_CELLS = 1e6
"""Tables that would have more cells are not made complete."""


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    for semiring, kind in KINDS:
        for number, (left, right, gone) in enumerate(PAIRS):
            key = f"operators/{semiring.name}-{kind}-{number}"
            make = "int" if kind == "count" else kind
            one, two = drawn(number, left, 300, semiring, make), drawn(number + 50, right, 250, semiring, make)
            if kind == "count":
                one, two = counts(one), counts(two)
            in_memory(recorder, key, one, two, gone)
            if number < 2:
                complete(recorder, key, one, two, gone)
                stored(recorder, key, one, two, gone)
    first, second = (drawn(s, tuple(WIDE_SIZES)[s : s + 7], 400, oocbe.MIN_SUM, "int", WIDE_SIZES) for s in (0, 1))
    in_memory(recorder, "operators/wide", first, second, "w3")
    stored(recorder, "operators/wide", first, second, "w3")
    large(recorder)
    exchange(recorder)
    refusals(recorder)


def counts(table: oocbe.Table) -> oocbe.Table:
    """The same rows with positive integers."""
    tuples, values = table.to_rows()
    sizes = dict(zip(table.scope, table.layout.sizes, strict=True))
    return oocbe.Table.from_rows(sizes, tuples, np.abs(values) % 9 + 1, oocbe.COUNTING)


def in_memory(recorder: Recorder, key: str, one: oocbe.Table, two: oocbe.Table, gone: str) -> None:
    """Operators on rows and on packed rows."""
    add = recorder.add
    add(f"{key}/input", lambda: content(one))
    add(f"{key}/join-sum", lambda: content(oocbe.join_sum(one, two)))
    add(f"{key}/maximise", lambda: content(oocbe.maximise(one, one.scope[-1])))
    add(f"{key}/maximise-two", lambda: content(oocbe.maximise(one, list(one.scope[:2]))))
    add(f"{key}/maximise-all", lambda: content(oocbe.maximise(two, list(two.scope))))
    add(f"{key}/join-maximise", lambda: content(oocbe.join_maximise(one, two, names(one, gone))))
    add(f"{key}/join-maximise-pieces", lambda: content(oocbe.join_maximise(one, two, names(one, gone), piece_rows=20)))
    add(f"{key}/semi-join", lambda: content(oocbe.semi_join(one, two)))
    left, right = (oocbe.PackedTable.pack(t, chunk_rows=64) for t in (one, two))
    add(f"{key}/packed", lambda: [(p.nbytes, p.rows, content(p.to_table())) for p in (left, right)])
    add(f"{key}/packed-join-sum", lambda: content(oocbe.join_sum(left, right)))
    add(f"{key}/packed-join-maximise", lambda: content(oocbe.join_maximise(left, right, names(one, gone))))


def names(table: oocbe.Table, gone: str) -> list[str]:
    """Variables that are eliminated: one of several letters, or one a letter."""
    return [gone] if gone in table.scope else list(gone)


def complete(recorder: Recorder, key: str, one: oocbe.Table, two: oocbe.Table, gone: str) -> None:
    """Operators on complete tables, of two and of one beside rows, and conversions."""
    add = recorder.add

    def both() -> tuple[oocbe.CompleteTable, oocbe.CompleteTable]:
        return oocbe.CompleteTable.from_table(one), oocbe.CompleteTable.from_table(two)

    add(f"{key}/complete", lambda: content(oocbe.to_complete(one)))
    add(f"{key}/complete-turned", lambda: content(oocbe.to_complete(one, tuple(reversed(one.scope)))))
    add(f"{key}/complete-and-back", lambda: content(oocbe.to_rows(oocbe.to_complete(one))))
    add(f"{key}/complete-join-sum", lambda: content(oocbe.join_sum(*both())))
    add(f"{key}/complete-join-maximise", lambda: content(oocbe.join_maximise(*both(), names(one, gone))))
    add(f"{key}/complete-maximise", lambda: content(oocbe.maximise(both()[0], one.scope[0])))
    add(f"{key}/complete-and-rows", lambda: content(oocbe.join_maximise(both()[0], two, names(one, gone))))


def stored(recorder: Recorder, key: str, one: oocbe.Table, two: oocbe.Table, gone: str) -> None:
    """Operators on stored tables that write stored ones: rows as in memory, and bytes as they were."""
    place = recorder.place(f"{key}/x").parent
    tables: list[oocbe.StoredTable] = []

    def save() -> list[Any]:
        tables.extend(oocbe.StoredTable.save(place / f"in-{i}", t, chunk_rows=50) for i, t in enumerate((one, two)))
        return [written(t) for t in tables]

    recorder.add(f"{key}/stored", save)
    if len(tables) < 2:
        return
    settings: dict[str, Any] = LITTLE | {"scratch": place, "piece_rows": 40}
    add = recorder.add
    add(f"{key}/stored-join-sum", lambda: written(oocbe.join_sum(*tables, output=place / "sum", **settings)))
    add(
        f"{key}/stored-join-maximise",
        lambda: written(oocbe.join_maximise(tables[0], tables[1], names(one, gone), output=place / "best", **settings)),
    )
    add(
        f"{key}/stored-maximise",
        lambda: written(oocbe.maximise(tables[0], one.scope[0], output=place / "least", **settings)),
    )
    add(f"{key}/stored-semi-join", lambda: content(oocbe.semi_join(tables[0], two)))
    add(f"{key}/stored-zstd", lambda: written(oocbe.StoredTable.save(place / "zstd", one, codec="zstd")))
    if one.layout.complete_rows > MOST_CELLS:
        return
    complete_settings = {k: v for k, v in settings.items() if k != "backend"}
    add(
        f"{key}/stored-complete",
        lambda: written(oocbe.to_complete(tables[1], output=place / "cells", **complete_settings)),
    )
    add(f"{key}/stored-rows", lambda: reopened(place / "cells", place / "rows", complete_settings))


def reopened(cells: Path, rows: Path, settings: dict[str, Any]) -> Any:
    """Rows of a stored complete table, and their bytes."""
    return written(oocbe.to_rows(oocbe.StoredCompleteTable.open(cells), output=rows, **settings))


def large(recorder: Recorder) -> None:
    """Tables cut into pieces by the memory limit."""
    place = recorder.place("operators/large/x").parent
    one = drawn(70, "km", 120_000, oocbe.MAX_SUM, "int", BIG_SIZES)
    two = drawn(71, "kn", 60_000, oocbe.MAX_SUM, "int", BIG_SIZES)
    floats = [
        drawn(72 + i, scope, 60_000, oocbe.SUM_PRODUCT, "float", BIG_SIZES) for i, scope in enumerate(("km", "kn"))
    ]
    first, second, third, fourth = (
        oocbe.StoredTable.save(place / f"in-{i}", t) for i, t in enumerate((one, two, *floats))
    )
    add = recorder.add
    settings: dict[str, Any] = LITTLE | {"scratch": place}
    add("operators/large/join-sum", applied, oocbe.join_sum, first, second, output=place / "sum", **settings)
    add("operators/large/maximise", applied, oocbe.maximise, first, "k", output=place / "least", **settings)
    for name, left, right in (("join-maximise", first, second), ("sum-product", third, fourth)):
        output = place / name
        add(f"operators/large/{name}", applied, oocbe.join_maximise, left, right, "k", output=output, **settings)


def applied(operator: Any, *arguments: Any, **settings: Any) -> Any:
    """What an operator writes: its rows, and how many bytes they take."""
    return written(operator(*arguments, **settings), in_full=False)


def exchange(recorder: Recorder) -> None:
    """Tables with labels to and from Arrow, pandas, Polars and Parquet, where these are installed."""
    try:
        import pyarrow
    except ImportError:
        recorder.skip("operators/exchange: pyarrow is not installed")
        return
    place, add = recorder.place("operators/exchange/x").parent, recorder.add
    days = ["mon", "tue", "wed", "mon", "tue"]
    source = pyarrow.table({"day": days, "shop": [10, 20, 10, 30, 30], "gain": [5, -2, 9, 1, 4]})
    made = oocbe.Table.from_arrow(source, "gain")
    path = place / "gains.parquet"
    add("operators/exchange/arrow", lambda: content(made))
    add("operators/exchange/to-arrow", lambda: made.to_arrow("gain").to_pylist())
    add(
        "operators/exchange/parquet",
        lambda: (made.to_parquet(path, "gain"), content(oocbe.Table.from_parquet(path, "gain")))[1],
    )
    add("operators/exchange/domains", lambda: oocbe.common_domains(path, values="gain"))
    add(
        "operators/exchange/stored",
        lambda: written(oocbe.StoredTable.from_parquet(path, place / "stored", "gain", memory="64MiB")),
    )
    add("operators/exchange/labels", lambda: content(oocbe.maximise(made, "shop")))
    add("operators/exchange/pandas", lambda: content(oocbe.Table.from_pandas(made.to_pandas("gain"), "gain")))
    add("operators/exchange/polars", lambda: content(oocbe.Table.from_polars(made.to_polars("gain"), "gain")))
    twice = pyarrow.table({"a": [1, 1, 0, 1], "value": [3, 4, 5, 6]})
    add("operators/exchange/duplicates", lambda: content(oocbe.Table.from_arrow(twice)))


def refusals(recorder: Recorder) -> None:
    """What operators say to tables that they do not take."""
    one, two = drawn(1, "abc", 40, oocbe.MAX_SUM, "int"), drawn(2, "bcd", 40, oocbe.MIN_SUM, "int")
    add = recorder.add
    add("operators/refused/semirings", lambda: content(oocbe.join_sum(one, two)))
    add("operators/refused/variable", lambda: content(oocbe.maximise(one, "z")))
    add("operators/refused/memory", lambda: content(oocbe.join_sum(one, one, memory="16MiB")))
    add("operators/refused/value", lambda: one.value_at({"a": 99, "b": 0, "c": 0}))
    add("operators/refused/rows", lambda: oocbe.Table.from_rows({"a": 2}, [[0], [0]], [1, 2]))


def content(table: Any) -> Any:
    """A table's form, scope, dtype and rows or cells in their order."""
    found = {"form": type(table).__name__, "scope": table.scope}
    if isinstance(table, oocbe.CompleteTable):
        cells = {"sizes": table.layout.sizes, "rows": table.rows, "cells": table.window(0, table.cells)}
        return found | cells | {"semiring": table.semiring.name}
    rows = table.to_table() if isinstance(table, oocbe.PackedTable | oocbe.StoredTable) else table
    tuples, values = rows.to_rows()
    layout = {"sizes": rows.layout.sizes, "labels": dict(rows.layout.labels)}
    return found | layout | {"rows": rows.rows, "tuples": tuples, "values": values, "semiring": rows.semiring.name}


def written(table: Any, in_full: bool = True) -> Any:
    """The rows of a stored table, and the bytes that it takes on disk."""
    if isinstance(table, oocbe.StoredCompleteTable):
        found = content(table.to_complete())
    else:
        found = content(table)
    files = folder_digest(Path(table.folder)) if in_full else {"bytes": table.stored_bytes}
    return found | {"form": type(table).__name__, "files": files}
