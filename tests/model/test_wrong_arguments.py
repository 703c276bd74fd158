"""Arguments of the wrong kind: each is converted without loss, or refused with its name and a way out."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocbe
from oocbe.dcop import Dcop
from oocbe.errors import ModelError, UnsupportedError, UsageError, ValueRangeError

PAIR = (oocbe.Variable("a", 2), oocbe.Variable("b", 2))
COSTS = [[0, 3], [9, 1]]


def problem(variables: Any = PAIR, costs: Any = COSTS, scope: Any = (0, 1), **more: Any) -> oocbe.Problem:
    return oocbe.Problem(variables, [oocbe.Function.from_array(scope, costs)], **more)


def table() -> oocbe.Table:
    return oocbe.Table.from_rows({"a": 2, "b": 2}, [[0, 1], [1, 1]], [4, 5])


def writer() -> Any:
    one = table()
    return oocbe.StoredTable.create("t", one.layout, one.dtype, one.semiring)


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame({"a": [0, 1], "b": [1, 0], "value": [5, 7]})


def test_lists_generators_names_of_semirings_and_labels_of_other_types_are_converted() -> None:
    made = problem(variable for variable in PAIR)
    assert made.variables == PAIR
    assert oocbe.solve(problem(list(PAIR), semiring="max-sum")).value == 9
    assert oocbe.solve(problem().in_semiring("max-sum")).value == 9
    assert oocbe.Variable("a", 2, [-1, 1]).labels == ("-1", "1")  # type: ignore[arg-type]
    assert oocbe.Variable("a", 2, ("none", 1)).labels == ("none", "1")  # type: ignore[arg-type]
    days = (datetime.date(2026, 1, 1), datetime.date(2026, 1, 2))
    assert oocbe.Variable("a", 2, days).labels == ("2026-01-01", "2026-01-02")  # type: ignore[arg-type]
    pandas = pytest.importorskip("pandas")
    assert oocbe.solve(made, evidence=pandas.Series({"a": 1})).labels == {"a": "1", "b": "1"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problem({"a": 2, "b": 2}), r"problem: variables: 'a' is no oocbe.Variable"),
        (lambda: oocbe.Problem(PAIR, [[0, 3]]), r"functions: \[0, 3\] is no oocbe.Function"),  # type: ignore[list-item]
        (lambda: oocbe.Problem(5, []), "problem: variables must be a list, not 5"),  # type: ignore[arg-type]
        (lambda: oocbe.Table.from_rows(["a"], [[1]], [5]), r"scope: \['a'\]: give the domain size of each"),  # type: ignore[arg-type]
        (lambda: problem(scope=("a", "b")), r"its position in the problem, must be an integer, not 'a'"),
        (lambda: problem(costs=[[1, 2], [3]]), r"function over \(0, 1\): values: rows of different lengths"),
        (lambda: problem(costs=[[1, None], [3, 4]]), r"numbers, not Python objects such as None"),
        (lambda: problem(costs=[[1, Decimal("1.5")], [3, 4]]), r"such as Decimal\('1.5'\)"),
        (lambda: problem(costs=np.ma.masked_array(COSTS, [[1, 0], [0, 0]])), "some are masked; fill them"),
        (lambda: oocbe.Function((0,), np.ma.masked_array([[0], [1]], [[1], [0]]), [1, 2]), "some are masked"),
        (lambda: oocbe.Function((0, 1), [[0, 1], [1]], [1, 2]), "rows of different lengths"),
        (lambda: oocbe.LinearConstraint((0,), (np.ma.masked_array([0, 1], [1, 0]),), 1), "some are masked"),
        (lambda: oocbe.Variable(None, 2), "variable None: a name must be text"),  # type: ignore[arg-type]
        (lambda: oocbe.k_best(problem(), 2.5), "k must be an integer, not 2.5"),  # type: ignore[arg-type]
        (lambda: oocbe.Table.from_rows({"a": 2}, [[1]], np.ma.masked_array([5], [1])), "values: some are masked"),
        (lambda: oocbe.CompleteTable.from_array("a", np.ma.masked_array([5, 6], [1, 0])), "values: some are masked"),
        (lambda: oocbe.StoredTable.create("t", table().layout, "text"), "values must be int32, .*, not text"),
        (lambda: oocbe.StoredTable.create("t", table().layout, np.int8), "values must be int32, .*, not int8"),
        (lambda: oocbe.Table.from_arrow(pandas_frame(), domains={"a": 1.5}), "the size of a domain must be an integer"),  # type: ignore[dict-item]
        (lambda: oocbe.Table.from_rows({"a": 2.5}, [[1]], [5]), "variable a: the size of a domain must be an integer"),  # type: ignore[dict-item]
        (lambda: Dcop(problem(), ("x", "y"), ("x", "y")), "owner of a, its position among the agents, must be an"),  # type: ignore[arg-type]
        (lambda: list(oocbe.solve_many([problem()], jobs="2")), "jobs must be an integer"),  # type: ignore[arg-type]
        (lambda: problem(None), "problem: variables must be a list, not None"),
        (lambda: problem(scope=0, costs=[1, 2]), "a scope must be a list, not 0"),
        (lambda: oocbe.LinearConstraint((0,), 3, 1), "coefficients must be a list, not 3"),  # type: ignore[arg-type]
        (lambda: oocbe.Variable("a", 2, 2), "variable a: labels must be a list, not 2"),  # type: ignore[arg-type]
        (lambda: problem().evaluate((1.5, 0)), "values must be integers, not float64"),  # type: ignore[arg-type]
        (lambda: oocbe.Function.from_array((0,), [1, 2], infeasible="x"), "infeasible must be a number, not 'x'"),  # type: ignore[arg-type]
        (lambda: oocbe.to_complete(table(), 3), "variables must be a list, not 3"),  # type: ignore[arg-type]
        (lambda: oocbe.maximise(table(), None), "variables must be a list, not None"),  # type: ignore[call-overload]
        (lambda: table().value_at(None), r"an assignment to \('a', 'b'\) must be a list, not None"),  # type: ignore[arg-type]
        (lambda: oocbe.anytime("MMAP", problem(), 3), "query must be a list, not 3"),  # type: ignore[arg-type]
        (lambda: problem().evaluate(None), "values must be numbers, not Python objects such as None"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parts_of_problems_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problem(semiring="tropical"), "unknown semiring 'tropical'; known: min-sum"),
        (lambda: oocbe.solve(problem(), observer=print), "observer: .* a class derived from oocbe.Observer"),  # type: ignore[arg-type]
        (lambda: oocbe.bound(problem(), observer=oocbe.Observer), "observer: .* give an instance"),  # type: ignore[arg-type]
        (lambda: oocbe.count(problem(), observer=1), "observer: 1: give an instance"),  # type: ignore[arg-type]
        (lambda: oocbe.dcop.dpop(problem(), observer=1), "observer: 1: give an instance"),  # type: ignore[arg-type]
        (lambda: oocbe.solve(problem(), client="tcp://host:1"), "client: 'tcp://host:1': give a distributed.Client"),  # type: ignore[arg-type]
        (lambda: oocbe.count(problem(), k=3), "k: not of the task count; k is of k_best"),  # type: ignore[call-arg]
        (lambda: oocbe.k_best(problem(), temperature=2.0), "temperature: not of the task kbest"),  # type: ignore[call-arg]
        (lambda: oocbe.solve(problem(), {"memory": "1GiB"}), r"options: .* give each by its name"),  # type: ignore[arg-type]
        (lambda: oocbe.solve(problem(), evidence=[("a", 1)]), "give values by name, {'rain': 'yes'}"),  # type: ignore[list-item]
        (lambda: oocbe.maximise([1], "a"), "an operator takes tables, not list"),  # type: ignore[call-overload]
        (lambda: oocbe.JunctionTree(problem()).observe("a"), "'a': give values by name"),  # type: ignore[arg-type]
        (lambda: oocbe.marginals(problem(), temperature="1"), "temperature: '1' is no number above 0"),  # type: ignore[arg-type]
        (
            lambda: oocbe.log_partition(problem(), 10**400),
            "temperature: 10{11}.* is no number above 0 within the range",
        ),
        (lambda: oocbe.bound(problem(), 2.5), "z: 2.5 is neither auto nor a number"),  # type: ignore[arg-type]
        (lambda: oocbe.marginals(problem(), [1]), r"temperature: \[1\] is no number above 0"),  # type: ignore[arg-type]
        (lambda: problem().in_semiring("tropical"), "unknown semiring 'tropical'; known: min-sum"),
        (lambda: problem(semiring=None), "unknown semiring None; known: min-sum"),
        (lambda: oocbe.propagate(None), "expected a Problem .*, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.propagate(problem(), rounds=2.5), "rounds: 2.5 is not an integer"),  # type: ignore[arg-type]
        (lambda: oocbe.propagate(problem(), tolerance=-1), "tolerance: -1 is not a finite number of at least 0"),
        (lambda: oocbe.propagate(problem(), progress=np.nan), "progress: nan is not a finite number of at least 0"),
        (lambda: oocbe.propagate(problem(), time_limit=np.nan), "time_limit: nan is not a number of seconds"),
        (lambda: oocbe.propagate(problem(), backend="gpu"), "backend: 'gpu' is not one of auto, cpu, cuda"),
        (lambda: oocbe.read(3), "3 is no path: give text, or a pathlib.Path"),  # type: ignore[arg-type]
        (lambda: oocbe.solve(problem(), task="count"), "'task'; tasks are functions, such as oocbe.count"),  # type: ignore[call-arg]
        (lambda: oocbe.solve(problem(), opb=3), "3 is no path"),  # type: ignore[arg-type]
        (lambda: oocbe.solve(problem(), workdir="a\0b"), r"'a\\x00b' is no path"),
        (lambda: oocbe.write("x.wcsp", problem()), "<Problem .* is no path"),  # type: ignore[arg-type]
        (lambda: oocbe.write(problem(), None), "None is no path"),  # type: ignore[arg-type]
        (lambda: oocbe.write(None, "x.wcsp"), "expected a Problem .*, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.to_pyagrum(None), "expected a Problem .*, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.to_pgmpy(3), "expected a Problem .*, not int"),  # type: ignore[arg-type]
        (lambda: oocbe.fit_tables(None, None), "expected a Problem .*, not NoneType"),  # type: ignore[arg-type]
        (lambda: problem().with_values(None), "None: give values by name"),  # type: ignore[arg-type]
        (lambda: oocbe.bound(problem(), cost_shifting="maybe"), "cost_shifting: 'maybe' is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.propagate(problem(), probe=None), "probe: None is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.plan(problem(), temperature="no"), "temperature: 'no' is no number above 0"),  # type: ignore[arg-type]
        (lambda: oocbe.solve_many([problem()], executor="no"), "executor: 'no': give a concurrent"),  # type: ignore[arg-type]
        (lambda: oocbe.solve_many([problem()], format="zzz"), "unknown format 'zzz'"),
        (lambda: oocbe.semi_join(table(), None), "an operator takes tables, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.to_complete(None), "an operator takes tables, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.to_rows("t.oocbe"), "t.oocbe: a path, and no table; open it"),  # type: ignore[arg-type]
        (lambda: oocbe.maximise(table(), "a", piece_rows="x"), "piece_rows: 'x' is not an integer of at least 1"),  # type: ignore[call-overload]
        (lambda: oocbe.semi_join(table(), table(), output="t", overwrite="maybe"), "overwrite: 'maybe' is not a truth"),  # type: ignore[arg-type]
        (lambda: table().to_parquet("t.parquet", overwrite=3), "overwrite: 3 is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.aggregate({}, group_by=["a"], drop_nulls="maybe"), "drop_nulls: 'maybe' is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.einsum("i->", [1], return_argmax="maybe"), "return_argmax: 'maybe' is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.result_memory(None).__enter__(), "memory for results: '' is not a number of bytes"),  # type: ignore[arg-type]
        (lambda: oocbe.trace(3).__enter__(), "3 is no path"),  # type: ignore[arg-type]
        (lambda: oocbe.read(__file__, "wcsp", max_bytes="x"), "max_bytes: 'x' is not an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: oocbe.maximise(table(), "a", output="t", scratch=5), "scratch: 5 is not a path"),  # type: ignore[call-overload]
        (lambda: oocbe.maximise(table(), "a", backend=5), "unknown backend '5'; known: auto, cpu, cuda"),  # type: ignore[call-overload]
        (lambda: oocbe.StoredTable.save("t", [1]), "expected a table of rows in memory .*, not list"),  # type: ignore[arg-type]
        (lambda: oocbe.StoredCompleteTable.save("t", table()), "expected a complete table .*, not Table"),  # type: ignore[arg-type]
        (lambda: oocbe.PackedTable.pack(None), "expected a table of rows in memory .*, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.PackedTable.pack(table(), chunk_rows=0), "chunk_rows: 0 is not an integer of at least 1"),
        (lambda: oocbe.StoredTable.save("t", table(), chunk_rows=1.5), "chunk_rows: 1.5 is not an integer of at"),  # type: ignore[arg-type]
        (lambda: oocbe.StoredTable.save("t", table(), limbs=1.5), "limbs: 1.5 is not an integer of at least 0"),  # type: ignore[arg-type]
        (lambda: oocbe.StoredTable.save("t", table(), codec=[1]), r"chunks can be packed, zstd, not \[1\]"),  # type: ignore[arg-type]
        (lambda: oocbe.StoredTable.save("t", table(), duplicates="x"), "duplicates: 'x' is not a truth value"),  # type: ignore[arg-type]
        (lambda: oocbe.StoredTable.save("/proc/t", table()), "/proc/t: cannot be written: No such file or directory"),
        (lambda: oocbe.join_sum(table(), table(), output="t" * 300, memory="64MiB"), "t: cannot be written: File name"),
        (lambda: oocbe.maximise(table(), "a", output=f"{__file__}/t"), "test_wrong_arguments.py/t: cannot be written"),
        (lambda: oocbe.StoredTable.save("t", table(), budget=5), "expected a DiskBudget, not int"),  # type: ignore[arg-type]
        (lambda: writer().append([[0]], [1]), "expected an array of NumPy, not list"),  # type: ignore[arg-type]
        (lambda: writer().append(table().keys, None), "expected an array of NumPy, not NoneType"),  # type: ignore[arg-type]
        (lambda: oocbe.solve(problem(), cluster="tls://node1:65536"), "no program can listen on port 65536"),
        (lambda: oocbe.solve(problem(), cluster="tcp://localhost:0"), "no program can listen on port 0;"),
        (lambda: oocbe.StoredCompleteTable.save("t", oocbe.to_complete(table()), chunk_cells="x"), "chunk_cells: 'x'"),  # type: ignore[arg-type]
        (lambda: table().to_parquet("t.parquet", rows_per_file=1.5), "rows_per_file: 1.5 is not an integer of at"),  # type: ignore[arg-type]
        (lambda: oocbe.fit_tables(problem(), [], rounds="x"), "rounds: 'x' is not an integer of at least 0"),  # type: ignore[arg-type]
        (lambda: oocbe.JunctionTree(problem(), temperature="x"), "temperature: 'x' is no number above 0"),  # type: ignore[arg-type]
        (lambda: oocbe.dcop.dpop(problem(), workers="x"), "workers: 'x' is not an integer of at least 0"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_of_verbs_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_a_name_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"x\.wcsp: '\\udcff', in a name, is no character of UTF-8"):
        oocbe.write(problem(name="x\udcff"), tmp_path / "x.wcsp")


def test_what_is_no_problem_is_an_outcome_of_many() -> None:
    (outcome,) = oocbe.solve_many([3], jobs=1)  # type: ignore[list-item]
    assert outcome.failure is not None
    assert "expected a Problem" in outcome.failure.message


def test_numbers_of_numpy_are_options_like_those_of_python() -> None:
    options: Any = {
        "seed": np.int64(3),
        "piece_rows": np.int32(2),
        "time_limit": np.float32(9),
        "memory": np.int64(2**30),
    }
    made = oocbe.SolveOptions(**options, ub=np.int64(5), gap=np.float32(0.5))
    assert (made.seed, made.piece_rows, made.time_limit, made.memory, made.ub) == (3, 2, 9.0, 2**30, 5)
    assert {type(made.seed), type(made.ub)} == {int}


def test_scalars_of_numpy_are_arguments_like_numbers_of_python(tmp_path: Path) -> None:
    one: Any = np.int64(1)
    yes: Any = np.True_
    no: Any = np.False_
    small: Any = np.float32(2)
    complete: Any = oocbe.to_complete(table())
    made = oocbe.SolveOptions(workers=one, dominance=yes, resume=no, seed=np.asarray(one))
    assert (made.workers, made.dominance, made.resume, made.seed) == ("1", True, False, 1)
    stored = oocbe.StoredTable.save(tmp_path / "rows", table(), chunk_rows=one, overwrite=yes, duplicates=no)
    assert stored.to_table().to_dict() == table().to_dict()
    cells = oocbe.StoredCompleteTable.save(tmp_path / "cells", complete, chunk_cells=one)
    assert cells.chunk_cells == 1
    assert oocbe.PackedTable.pack(table(), chunk_rows=one).rows == 2
    joined = oocbe.join_sum(table(), table(), output=tmp_path / "joined", streams=one, piece_rows=one)
    assert joined.rows == 2
    tree = oocbe.JunctionTree(problem(), temperature=small, seed=one)
    assert len(tree.sample(one, one)) == 1
    assert [entry.z for entry in oocbe.bound(problem(), np.asarray(one)).entries] == [1]
    assert oocbe.Table.from_rows({"a": one}, [[0]], [5]).layout.sizes == (1,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(oocbe.marginals(problem(), small).temperature) is float


def test_sizes_of_domains_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    frame = pandas_frame()
    domains: Any = {"a": np.int64(3), "b": None}
    assert oocbe.Table.from_arrow(frame, domains=domains).layout.sizes == (3, 2)
    frame.to_parquet(tmp_path / "rows.parquet")
    found = oocbe.StoredTable.from_parquet(tmp_path / "rows.parquet", tmp_path / "rows", domains=domains)
    assert found.layout.sizes == (3, 2)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (np.array([1, 2], np.uint8), np.int32),
        (np.array([1, 2], np.int8), np.int32),
        (np.array([1, 2], np.uint64), np.int64),
        (np.array([1, 2], np.float16), np.float32),
        (np.array([1, 2], np.float32), np.float32),
        (np.array([1, 2], ">f4"), np.float32),
        (np.array([1, 2], np.longdouble), np.float64),
        (np.array([1, 2], object), np.int64),
        (np.array([True, False]), np.int32),
        ([True, False], np.int64),
        ([1, 2], np.int64),
        ([1, 2.5], np.float64),
    ],
)
def test_tables_hold_each_number_that_some_dtype_of_theirs_holds(given: Any, made: Any) -> None:
    rows = oocbe.Table.from_rows({"a": 2}, [[0], [1]], given)
    cells = oocbe.CompleteTable.from_array("a", given)
    assert rows.dtype == cells.dtype == made
    assert list(rows.values) == list(cells.values) == list(given)
    assert list(oocbe.Function.from_array((0,), given).values) == list(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x", "y"], "values must be numbers, not <U1"),
        ([None, 1], "values must be numbers, not Python objects such as None"),
        ([1j, 2], "values must be numbers, not complex128"),
        (np.array(["2020", "2021"], "M8[D]"), "values must be numbers, not datetime64"),
        ([2**63 + 1, 2**63], "values reach 9223372036854775809, beyond 64-bit integers; scale the values down"),
        ([2**63, 0], "values reach 9223372036854775808, beyond 64-bit integers"),
        (np.array([2**63, 0], np.uint64), "values reach 9223372036854775808, beyond 64-bit integers"),
        ([2**70, 1], "values reach 1180591620717411303424, beyond 64-bit integers"),
    ],
)
def test_what_no_dtype_of_tables_holds_is_refused_by_all_constructors(given: Any, message: str) -> None:
    for make in (
        lambda: oocbe.Table.from_rows({"a": 2}, [[0], [1]], given),
        lambda: oocbe.CompleteTable.from_array("a", given),
        lambda: oocbe.Function.from_array((0,), given),
    ):
        with pytest.raises((ModelError, ValueRangeError), match=message):
            make()


def test_lazy_frames_are_refused_without_a_warning() -> None:
    polars = pytest.importorskip("polars")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match=r"LazyFrame .*give what its collect\(\) returns"):
            oocbe.Table.from_polars(polars.LazyFrame({"a": [0], "value": [1]}))


def test_memory_beyond_any_address_is_no_limit() -> None:
    assert oocbe.marginals(problem(), memory=10**30).value == oocbe.marginals(problem()).value
