"""The join of a bucket against dictionaries: any tables, constraints and functions, any number of words and blocks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oocbe.elimination.engine.bucket_engine import TooManyRowsError, join_and_eliminate
from oocbe.elimination.engine.factors import PoolBuilder
from oocbe.elimination.engine.join_program import BucketScope, ProgramBuilder
from oocbe.model.semiring import LOG_SUM_EXP, MAX_PRODUCT, MAX_SUM, MIN_SUM, SUM_PRODUCT
from oocbe.tables.layout import Layout, Schema
from oocbe.tables.table import Table
from tests.helpers.effort import in_turns

SEMIRINGS = [MIN_SUM, MAX_SUM, MAX_PRODUCT, SUM_PRODUCT, LOG_SUM_EXP]


class Case:
    """A random bucket: variable 0 is eliminated; ``padding`` variables with huge domains spread keys over words."""

    def __init__(self, seed: int, semiring, sizes, padding=(), dtype=np.int64) -> None:
        random = np.random.default_rng(seed)
        self.semiring, self.dtype = semiring, np.dtype(dtype)
        self.sizes = [*sizes, *([1 << 40] * len(padding))]
        count = len(sizes)
        # Variables of huge domains are fixed to one value each, in every table that has them.
        self.fixed = {count + i: value for i, value in enumerate(padding)}
        everyone = list(range(len(self.sizes)))
        random.shuffle(order := everyone[1:])
        order = [0, *order]
        self.position = [order.index(v) for v in everyone]
        self.separator = tuple(sorted(everyone[1:], key=self.position.__getitem__))

        def numbers(shape):
            return random.integers(1, 9, shape).astype(self.dtype)

        self.tables, self.rows = [], []
        for _ in range(random.integers(1 if padding else 0, 4)):
            scope = [0, *sorted(random.permutation(range(1, count))[: random.integers(0, count)].tolist())]
            scope = sorted([*scope, *self.fixed], key=self.position.__getitem__)
            cells = list(itertools.product(*(range(self.sizes[v]) if v < count else [self.fixed[v]] for v in scope)))
            chosen = [cells[i] for i in np.flatnonzero(random.random(len(cells)) < 0.7)]
            values = numbers(len(chosen))
            names = {f"x{v}": self.sizes[v] for v in scope}
            self.tables.append((tuple(scope), Table.from_rows(names, np.array(chosen).reshape(-1, len(scope)), values)))
            self.rows.append((tuple(scope), dict(zip(chosen, values.tolist(), strict=True))))
        constraints = PoolBuilder(self.sizes, self.position, np.uint8, 0)
        functions = PoolBuilder(self.sizes, self.position, dtype, semiring.one)
        self.constraints, self.functions = [], []
        for _ in range(random.integers(0, 5)):
            scope = tuple(random.permutation(count)[: random.integers(1, 4)].tolist())
            dense = random.random([sizes[v] for v in scope]) < 0.8
            constraints.add(scope, dense)
            self.constraints.append((scope, dense))
        for _ in range(random.integers(0, 4)):
            scope = (0, *random.permutation(range(1, count))[: random.integers(0, 3)].tolist())
            scope = tuple(random.permutation(scope).tolist())
            dense = numbers([sizes[v] for v in scope])
            functions.add(scope, dense)
            self.functions.append((scope, dense))
        self.pools = constraints.build(), functions.build()

    def join(self, row_limit=1 << 30, block_rows=None) -> Table:
        layout = Layout(tuple(f"x{v}" for v in self.separator), tuple(self.sizes[v] for v in self.separator))
        program = ProgramBuilder(self.sizes, *self.pools, self.semiring).build(
            BucketScope(0, self.sizes[0], self.separator, layout),
            [(scope, table.layout) for scope, table in self.tables],
            self.pools[0].factors,
            self.pools[1].factors,
            max((t.rows for _, t in self.tables), default=0),
        )
        tables = [t for _, t in self.tables]
        return join_and_eliminate(program, Schema(layout, self.dtype, self.semiring), tables, row_limit, block_rows)

    def expected(self) -> dict[tuple[int, ...], float]:
        """By the definition of joining and marginalising, over all assignments."""
        found: dict[tuple[int, ...], list[float]] = {}
        everyone = range(len(self.sizes))
        free = [range(self.sizes[v]) if v not in self.fixed else [self.fixed[v]] for v in everyone]
        combine = np.multiply if self.semiring.combination else np.add
        for assignment in itertools.product(*free):
            if not all(dense[tuple(assignment[v] for v in scope)] for scope, dense in self.constraints):
                continue
            values = [rows.get(tuple(assignment[v] for v in scope)) for scope, rows in self.rows]
            if None in values:
                continue
            values += [dense[tuple(assignment[v] for v in scope)] for scope, dense in self.functions]
            total = combine.reduce(values) if values else self.semiring.one
            found.setdefault(tuple(assignment[v] for v in self.separator), []).append(total)
        return {key: self.semiring.reduce(np.array(values)).item() for key, values in found.items()}


def check(case: Case, table: Table) -> None:
    expected = case.expected()
    found = table.to_dict()
    assert found.keys() == expected.keys()
    assert list(found) == sorted(found, key=lambda key: key[::-1])
    if case.dtype.kind == "i":
        assert found == expected
    else:
        assert list(found.values()) == pytest.approx([expected[k] for k in found])


@pytest.mark.parametrize(("semiring", "block_rows"), in_turns(SEMIRINGS, (None, 1, 2, 7)), ids=str)
def test_random_buckets(semiring, block_rows, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "2")
    dtype = np.float64 if semiring is LOG_SUM_EXP else np.int64
    for seed in range(25):
        sizes = np.random.default_rng(seed).integers(1, 5, size=5).tolist()
        case = Case(seed, semiring, sizes, dtype=dtype)
        check(case, case.join(block_rows=block_rows))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_each_dtype_keeps_its_own(dtype):
    case = Case(3, MIN_SUM, [3, 2, 4, 2], dtype=dtype)
    table = case.join()
    assert table.values.dtype == dtype
    check(case, table)


@pytest.mark.parametrize("padding", [(7,), (2**40 - 1, 5), (1, 2**39, 3, 9)])
def test_keys_of_several_words(padding):
    for seed in range(25):
        case = Case(seed, MIN_SUM, [3, 2, 4, 2], padding)
        for block_rows in (None, 1, 5):
            check(case, case.join(block_rows=block_rows))


@pytest.mark.parametrize("size", [63, 64, 65, 127, 128, 129, 200])
def test_eliminated_variables_with_more_values_than_a_word_has_bits(size):
    for seed in range(8):
        case = Case(seed, MAX_SUM, [size, 3, 2])
        check(case, case.join())


@pytest.mark.parametrize("size", [64, 65, 130])
def test_large_domains_in_the_separator(size):
    for seed in range(8):
        case = Case(seed, MIN_SUM, [2, size, 3])
        check(case, case.join(block_rows=3))


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("block_rows", [None, 1, 4])
def test_the_row_limit_is_exact(threads, block_rows, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", threads)
    for seed in range(10):
        case = Case(seed, MIN_SUM, [2, 4, 4, 3])
        rows = case.join().rows
        assert case.join(rows, block_rows).rows == rows
        if rows:
            with pytest.raises(TooManyRowsError) as caught:
                case.join(rows - 1, block_rows)
            assert caught.value.limit == rows - 1


def test_results_own_no_spare_capacity():
    case = Case(1, MIN_SUM, [2, 5, 5, 5])
    table = case.join()
    for array in (table.keys, table.values):
        assert array.base is None
        assert array.flags.c_contiguous
