"""Edges of the operators: refused arguments, ranges of values, scopes of any width, empty tables, stored tables."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from oocbe.algebra.elimination import JoinElimination
from oocbe.algebra.filters import drop_forbidden
from oocbe.algebra.operators import join_maximise, join_sum, maximise
from oocbe.errors import ModelError, ValueRangeError
from oocbe.model.semiring import COUNTING, LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.tables.layout import Layout
from oocbe.tables.stored import StoredTable
from oocbe.tables.table import Table

GREATEST32, GREATEST64 = 2**31 - 1, 2**63 - 1


def column(values, semiring=MAX_SUM, dtype=np.int32, name="x") -> Table:
    return Table.from_rows({name: 8}, [[i] for i in range(len(values))], np.array(values, dtype=dtype), semiring)


def test_different_semirings_are_refused():
    for operator in (join_sum, lambda a, b: join_maximise(a, b, "x")):
        with pytest.raises(ModelError, match=r"min-sum.*max-sum"):
            operator(column([1], MIN_SUM), column([1], MAX_SUM))


def test_different_domains_are_refused():
    other = Table.from_rows({"x": 9}, [[0]], [1])
    for operator in (join_sum, lambda a, b: join_maximise(a, b, "x")):
        with pytest.raises(ModelError, match="variable x has 8 values in one table and 9 in the other"):
            operator(column([1]), other)


def test_unknown_variables_are_refused():
    with pytest.raises(ModelError, match="variable z is not in scope"):
        maximise(column([1]), "z")
    with pytest.raises(ModelError, match="variable z is in neither scope"):
        join_maximise(column([1]), column([1], name="y"), ["x", "z"])
    with pytest.raises(ModelError, match="variable z is not in scope"):
        drop_forbidden(column([1]), {"z": 2}, [[0]])
    with pytest.raises(ModelError, match=r"row 0 \(the first is 0\): .* lies outside the domain of .*, which is 0 to "):
        drop_forbidden(column([1]), {"x": 8}, [[8]])


class TestRanges:
    def test_sums_that_fit_stay_narrow(self):
        joined = join_sum(column([GREATEST32 - 1]), column([1]))
        assert (joined.values.dtype, joined.values[0]) == (np.int32, GREATEST32)

    @pytest.mark.parametrize("low", [GREATEST32, -(2**31)])
    def test_sums_beyond_32_bits_widen(self, low):
        step = 1 if low > 0 else -1
        for result in (join_sum(column([low]), column([step])), join_maximise(column([low]), column([step]), "x")):
            assert (result.values.dtype, result.values[0]) == (np.int64, low + step)

    @pytest.mark.parametrize("low", [GREATEST64, -(2**63)])
    def test_sums_beyond_64_bits_are_refused(self, low):
        big, step = column([low], dtype=np.int64), column([1 if low > 0 else -1], dtype=np.int64)
        for operator in (join_sum, lambda a, b: join_maximise(a, b, "x")):
            with pytest.raises(ValueRangeError, match="64-bit"):
                operator(big, step)

    def test_products(self):
        a, b = column([-(2**20)], COUNTING), column([2**20], COUNTING)
        assert join_sum(a, b).values.tolist() == [-(2**40)]
        wide = column([2**40], COUNTING, np.int64)
        with pytest.raises(ValueRangeError):
            join_sum(wide, wide)

    def test_marginal_sums(self):
        assert maximise(column([GREATEST32] * 8, COUNTING), "x").values.tolist() == [8 * GREATEST32]
        assert join_maximise(*[column([2**20] * 8, COUNTING)] * 2, "x").values.tolist() == [2**43]
        for operator in (lambda t: maximise(t, "x"), lambda t: join_maximise(t, column([1] * 8, COUNTING), "x")):
            with pytest.raises(ValueRangeError):
                operator(column([2**61] * 8, COUNTING, np.int64))

    def test_dtypes_that_meet(self):
        for dtypes, met in [
            ((np.int32, np.int64), np.int64), ((np.int32, np.float32), np.float64),
            ((np.float32, np.float32), np.float32), ((np.int64, np.float64), np.float64),
        ]:  # fmt: skip
            t1, t2 = (column([1, 2], dtype=dtype) for dtype in dtypes)
            assert join_sum(t1, t2).values.dtype == met
            assert join_maximise(t1, t2, "x").values.dtype == met

    def test_log_sum_exp_of_integers_is_float(self):
        result = maximise(column([0, 0, 0, 0], LOG_SUM_EXP), "x")
        assert result.values.dtype == np.float64
        assert result.values[0] == pytest.approx(np.log(4))

    def test_log_sum_exp_neither_overflows_nor_makes_nans(self):
        for values in ([800.0, 800.0, -800.0], [-np.inf, -np.inf, 1.0], [-np.inf, -np.inf]):
            table = column(values, LOG_SUM_EXP, np.float64)
            expected = pytest.approx(np.logaddexp.reduce(values))
            assert maximise(table, "x").values[0] == expected
            assert join_maximise(table, column([0.0] * 8, LOG_SUM_EXP, np.float64), "x").values[0] == expected

    def test_negative_factors_of_a_maximal_product(self):
        """max over x of f(x) · g is not (max f) · g for g < 0: x must not be eliminated before the join."""
        f, g = column([1, 5], MAX_PRODUCT), column([-3], MAX_PRODUCT, name="y")
        assert join_maximise(f, g, "x").to_dict() == {(0,): -3}
        assert join_maximise(f, g, ["x", "y"]).to_dict() == {(): -3}


SCOPES = {1: [1], 63: [21] * 3, 64: [32] * 2, 65: [32, 32, 1], 128: [32] * 4, 200: [5] * 40}


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "zarr"])
@pytest.mark.parametrize("piece_rows", [None, 3])
@pytest.mark.parametrize("bits", SCOPES)
def test_scopes_of_any_width(bits, piece_rows, stored, tmp_path):
    scope = {f"v{i}": 1 << width for i, width in enumerate(SCOPES[bits])}
    names = list(scope)
    rng = np.random.default_rng(bits)
    # Few different values at both ends of each domain: rows meet, and every bit is used.
    tuples = np.unique(rng.integers(0, 2, (60, len(scope))) * (np.array(list(scope.values())) - 1), axis=0)
    f = Table.from_rows(scope, tuples, np.arange(len(tuples), dtype=np.int32), MIN_SUM)
    other = {name: scope[name] for name in names[::-2]} | {"extra": 3}
    extra = np.unique(np.column_stack([tuples[:, ::-2], rng.integers(0, 3, len(tuples))]), axis=0)
    g = Table.from_rows(other, extra, np.arange(len(extra), dtype=np.int32) % 7, MIN_SUM)
    expected = {}
    columns = [names.index(name) for name in names[::-2]]
    for row, value in f.to_dict().items():
        for row2, value2 in g.to_dict().items():
            if row2[:-1] == tuple(row[c] for c in columns):
                expected[(*row, row2[-1])] = value + value2
    inputs = (f, g)
    if stored:
        inputs = [StoredTable.save(tmp_path / str(i), t, chunk_rows=7) for i, t in enumerate((f, g))]
    joined = join_sum(*inputs, piece_rows=piece_rows)
    assert reordered(joined, [*names, "extra"]) == expected
    gone = [names[-1], names[0]]
    reduced = {}
    for row, value in expected.items():
        key = tuple(v for name, v in zip([*names, "extra"], row, strict=True) if name not in gone)
        reduced[key] = min(value, reduced.get(key, value))
    kept = [name for name in [*names, "extra"] if name not in gone]
    assert reordered(join_maximise(*inputs, gone, piece_rows=piece_rows), kept) == reduced
    assert reordered(maximise(joined, gone, piece_rows=piece_rows), kept) == reduced


def reordered(table: Table, names) -> dict:
    places = [table.scope.index(name) for name in names]
    return {tuple(row[p] for p in places): value for row, value in table.to_dict().items()}


def test_more_eliminated_bits_than_a_word_holds():
    scope = {"a": 1 << 40, "b": 1 << 40, "c": 4}
    rows = [[x, y, z] for x in (0, 2**40 - 1) for y in (1, 2**39) for z in range(4)]
    f = Table.from_rows(scope, rows, range(16))
    assert join_maximise(f, f, ["a", "b"]).to_dict() == {(c,): 2 * (12 + c) for c in range(4)}
    assert join_maximise(f, f, ["a", "b", "c"]).to_dict() == {(): 30}


@pytest.mark.parametrize("semiring", [MIN_SUM, SUM_PRODUCT], ids=str)
def test_empty_tables_and_scopes(semiring):
    empty, full = column([], semiring), column([1, 2], semiring)
    scalar = Table(Layout((), ()), np.zeros((1, 1), dtype=np.uint64), np.array([5]), semiring)
    nothing = Table(Layout((), ()), np.zeros((1, 0), dtype=np.uint64), np.array([], dtype=np.int64), semiring)
    for table in (join_sum(empty, full), join_sum(full, empty), join_maximise(empty, full, "x"), maximise(empty, "x")):
        assert table.rows == 0
    assert join_sum(full, nothing).rows == 0
    assert join_sum(scalar, scalar).to_dict() == {(): semiring.combine(np.array(5), np.array(5))}
    assert join_sum(full, scalar).to_dict() == {(i,): semiring.combine(np.array(5), np.array(i + 1)) for i in range(2)}
    assert join_maximise(full, scalar, []).rows == 2
    assert drop_forbidden(full, {}, np.zeros((1, 0))).rows == 0
    assert drop_forbidden(full, {"x": 8}, []) is full


def test_sorted_tables_in_elimination_order_are_not_sorted_again(monkeypatch):
    from oocbe.kernels.cpu.backend import CpuBackend

    class NoSort(CpuBackend):
        @staticmethod
        def sort_rows(*_, **__):
            raise AssertionError("sorted a sorted table")

    tuples = [[x, y, z] for z in range(3) for y in range(3) for x in range(3)]
    table = Table.from_rows({"x": 3, "y": 3, "z": 3}, tuples, range(27))
    assert maximise(table, "x", backend=NoSort()).to_dict() == maximise(table, ["x"]).to_dict()
    assert maximise(table, ["y", "x"], backend=NoSort()).rows == 3
    with pytest.raises(AssertionError, match="sorted a sorted table"):
        maximise(table, "y", backend=NoSort())


def test_an_unknown_setting_is_named_with_the_known_ones():
    for operator in (lambda t, **s: join_sum(t, t, **s), lambda t, **s: maximise(t, "x", **s)):
        with pytest.raises(TypeError, match=r"argument 'memry'; settings of operators: output, memory"):
            operator(column([1]), memry="1GiB")


@pytest.mark.parametrize(
    ("domain", "is_sorted", "kernels", "matches", "scope", "order"),
    [(100, False, "cuda", False, "eak", "eak"), (8, False, "cuda", False, "eak", "ak"),
     (100, False, "cuda", True, "kea", "eak"), (100, False, "cpu", True, "kea", "ak"),
     (100, True, "cuda", False, "eak", "ak"), (100, True, "cuda", True, "kea", "ak")],
)  # fmt: skip
def test_long_runs_are_sorted_together_with_the_rest_on_a_device(domain, is_sorted, kernels, matches, scope, order):
    """A second sort of the runs took longer than all else before the join. A sorted table stays as it is."""
    layouts = [Layout(("e", own, "k"), (domain, 4, 4)) for own in ("a", "b")]
    keys, values = np.arange(4, dtype=np.uint64)[np.newaxis], np.arange(4, dtype=np.int32)
    tables = [Table(layout, keys, values, MAX_SUM, is_sorted) for layout in layouts]
    step = JoinElimination.of(tables, ("e",), [values[[0, -1]]] * 2)
    found = step._scope_and_order(tables[0], ("a",), SimpleNamespace(name=kernels), matches)
    assert found == (tuple(scope), tuple(order))
