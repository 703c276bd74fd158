"""``oocbe.einsum`` against NumPy and against enumeration, in every semiring, with dense and sparse operands."""

from __future__ import annotations

import itertools
import math
import weakref

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe import CompleteTable
from oocbe.api import contraction
from oocbe.api.contraction import Contractions, sliced_path
from oocbe.errors import ModelError, ResourceError, UsageError
from tests.helpers.effort import examples
from tests.kernels.conftest import skip_without_gpu

OPERATIONS = {
    "sum-product": (np.multiply, np.add, 0.0),
    "max-plus": (np.add, np.maximum, -math.inf),
    "min-plus": (np.add, np.minimum, math.inf),
    "max-times": (np.multiply, np.maximum, 0.0),
    "log": (np.add, np.logaddexp, -math.inf),
    "or-and": (np.logical_and, np.logical_or, False),
}


def enumerated(terms, output, arrays, semiring):
    """The result, and the best values of the eliminated indices, by a join of all operands."""
    join, reduce, zero = OPERATIONS[semiring]
    names = sorted({name for term in terms for name in term})
    sizes = {
        name: size for term, a in zip(terms, arrays, strict=True) for name, size in zip(term, a.shape, strict=True)
    }
    result = np.full([sizes[n] for n in output], zero, dtype=bool if semiring == "or-and" else np.float64)
    for values in itertools.product(*(range(sizes[name]) for name in names)):
        at = dict(zip(names, values, strict=True))
        value = None
        for term, array in zip(terms, arrays, strict=True):
            own = array[tuple(at[name] for name in term)]
            value = own if value is None else join(value, own)
        place = tuple(at[name] for name in output)
        result[place] = reduce(result[place], value)
    return result


@st.composite
def contractions(draw):
    """Terms over few letters, an output, and a seed of the operands."""
    letters = "abcdef"[: draw(st.integers(1, 5))]
    sizes = {letter: draw(st.integers(1, 3)) for letter in letters}
    terms = draw(st.lists(st.text(letters, min_size=1, max_size=3), min_size=1, max_size=4))
    used = sorted({letter for term in terms for letter in term})
    output = "".join(draw(st.permutations(draw(st.lists(st.sampled_from(used), unique=True)))))
    return terms, output, sizes, draw(st.integers(0, 2**32 - 1))


def operand(random, shape, semiring, zeros):
    values = random.integers(1, 9, shape).astype(np.float64)
    if semiring == "or-and":
        return random.random(shape) < 0.6
    values[random.random(shape) < zeros] = OPERATIONS[semiring][2]
    return values


@pytest.mark.parametrize("semiring", OPERATIONS)
@settings(max_examples=examples(160))
@given(contractions())
def test_dense_operands(semiring, contraction):
    terms, output, sizes, seed = contraction
    random = np.random.default_rng(seed)
    arrays = [operand(random, [sizes[n] for n in term], semiring, 0.2) for term in terms]
    expected = enumerated(terms, output, arrays, semiring)
    found = oocbe.einsum(f"{','.join(terms)}->{output}", *arrays, semiring=semiring, backend="cpu")
    assert found.shape == expected.shape and found.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@settings(max_examples=examples(160))
@given(contractions(), st.sampled_from(["sum-product", "min-plus"]))
def test_sparse_operands(contraction, semiring):
    terms, output, sizes, seed = contraction
    random = np.random.default_rng(seed)
    arrays = [operand(random, [sizes[n] for n in term], semiring, 0.5) for term in terms]
    expected = enumerated(terms, output, arrays, semiring)
    given = []
    for term, array in zip(terms, arrays, strict=True):
        names = dict.fromkeys(term)
        kept = array != OPERATIONS[semiring][2]
        if len(names) < len(term):
            given.append(array)
            continue
        rows = np.argwhere(kept)
        found = oocbe.SEMIRINGS["min-sum" if semiring == "min-plus" else semiring]
        given.append(oocbe.Table.from_rows({n: sizes[n] for n in names}, rows, array[kept], found))
    result = oocbe.einsum(f"{','.join(terms)}->{output}", *given, semiring=semiring, backend="cpu")
    if isinstance(result, oocbe.Table):
        dense = np.full(expected.shape, OPERATIONS[semiring][2])
        tuples, values = result.to_rows()
        order = [result.scope.index(name) for name in output]
        for row, value in zip(tuples[:, order].tolist(), values.tolist(), strict=True):
            dense[tuple(row)] = value
        result = dense
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_scipy_arrays_give_a_scipy_array():
    random = np.random.default_rng(4)
    one, two = (scipy.sparse.random_array((40, 40), density=0.1, rng=random) for _ in range(2))
    found = oocbe.einsum("ij,jk->ki", one, two)
    assert scipy.sparse.issparse(found)
    np.testing.assert_allclose(found.toarray(), (one @ two).T.toarray())
    mixed = oocbe.einsum("ij,jk->ik", one, two.toarray())
    np.testing.assert_allclose(mixed.toarray() if scipy.sparse.issparse(mixed) else mixed, (one @ two).toarray())


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "max-times"])
def test_the_arguments_have_the_value(semiring):
    random = np.random.default_rng(5)
    terms, output = ["ab", "bc", "cd", "de", "ac"], "ea"
    sizes = dict(zip("abcde", (3, 4, 5, 2, 3), strict=True))
    arrays = [operand(random, [sizes[n] for n in term], semiring, 0.3) for term in terms]
    found, best = oocbe.einsum(f"{','.join(terms)}->{output}", *arrays, semiring=semiring, return_argmax=True)
    np.testing.assert_allclose(found, enumerated(terms, output, arrays, semiring))
    join, _, zero = OPERATIONS[semiring]
    assert set(best) == set("bcd")
    for place in np.ndindex(found.shape):
        at = dict(zip(output, place, strict=True)) | {name: values[place] for name, values in best.items()}
        if found[place] == zero:
            assert all(values[place] == -1 for values in best.values())
            continue
        values = [array[tuple(at[name] for name in term)] for term, array in zip(terms, arrays, strict=True)]
        value = values[0]
        for other in values[1:]:
            value = join(value, other)
        assert value == found[place]


def test_a_single_name_among_names_is_a_name():
    gain, use = np.arange(6.0).reshape(2, 3), np.array([1.0, 0.0, 2.0])
    assert oocbe.einsum("day sensor, sensor -> day", gain, use).tolist() == (gain @ use).tolist()
    assert oocbe.einsum("from via, via from -> from", gain, gain.T).tolist() == (gain**2).sum(1).tolist()
    assert oocbe.einsum("i j, jk -> ki", gain, gain.T).tolist() == (gain @ gain.T).T.tolist()


def test_names_integers_paths_and_scalars():
    random = np.random.default_rng(6)
    gain, use = random.integers(0, 9, (4, 3)), random.integers(0, 9, (3, 5)).astype(np.int16)
    found = oocbe.einsum("day sensor, sensor target -> target day", gain, use, semiring="max-plus")
    assert found.dtype.kind == "i"
    np.testing.assert_array_equal(found, (gain[:, :, None] + use[None]).max(axis=1).T)
    arrays = [random.random((3, 3)) for _ in range(4)]
    expected = np.einsum("ij,jk,kl,li", *arrays)

    def optimizer(inputs, output, sizes, memory_limit=None):  # as those of opt_einsum and cotengra are called
        assert (inputs[1], output, sizes["k"]) == ({"j", "k"}, set(), arrays[1].shape[1])
        return [(1, 2), (0, 2), (0, 1)]

    for optimize in ("auto", np.einsum_path("ij,jk,kl,li", *arrays)[0], [(0, 1, 2, 3)], optimizer):
        assert oocbe.einsum("ij,jk,kl,li", *arrays, optimize=optimize) == pytest.approx(expected, rel=1e-12)
    path = oocbe.einsum_path("ij,jk,kl,li", *arrays, semiring="max-plus", optimize=optimizer)
    assert [step.positions for step in path.steps] == [(1, 2), (0, 2), (0, 1)]
    assert oocbe.einsum("ij,jk,kl,li", *arrays).shape == ()


def labelled():
    """Readings and calibrations of two sensors over three days, and the same numbers as arrays."""
    xarray = pytest.importorskip("xarray")
    random = np.random.default_rng(8)
    gain, use = random.integers(1, 9, (2, 3)).astype(float), random.integers(1, 9, (2, 4)).astype(float)
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[ns]")
    one = xarray.DataArray(gain, {"sensor": ["a", "b"], "day": days, "month": ("day", [1, 1, 1])}, ["sensor", "day"])
    return xarray, one, xarray.DataArray(use, {"sensor": ["a", "b"]}, ["sensor", "target"]), gain, use


def test_labelled_arrays_are_contracted_by_name_and_keep_their_coordinates():
    xarray, one, two, gain, use = labelled()
    for operands in ((one, two), (one.T, two), (one, two.T)):
        found = oocbe.einsum("day sensor, sensor target -> target day", *operands)
        expected = xarray.DataArray((gain.T @ use).T, {"day": one["day"].values}, ["target", "day"])
        xarray.testing.assert_identical(found, expected)
    assert oocbe.einsum("day sensor, sensor target ->", one, two).item() == pytest.approx((gain.T @ use).sum())
    best, places = oocbe.einsum("day sensor -> day", one, semiring="max-plus", return_argmax=True)
    assert best.equals(one.max("sensor").drop_vars("month"))
    assert places["sensor"].equals(best.copy(data=gain.argmax(axis=0)))
    mixed = oocbe.einsum("day sensor, sensor target -> target day", one, use)
    assert isinstance(mixed, np.ndarray) and np.allclose(mixed, (gain.T @ use).T)
    assert oocbe.einsum_path("day sensor, sensor target -> day", one, two).joined == 24


def test_labels_that_differ_are_refused():
    _, one, two, _, _ = labelled()
    for other in (two.assign_coords(sensor=["a", "c"]), two.isel(sensor=[1, 0])):
        with pytest.raises(UsageError, match="operand 1 has other coordinates of 'sensor'"):
            oocbe.einsum("sensor day, sensor target -> day target", one, other)
    with pytest.raises(UsageError, match=r"operand 1 has the dimensions \('sensor', 'target'\), not those of"):
        oocbe.einsum("sensor day, sensor place -> day place", one, two)


def test_sparse_labelled_arrays_stay_sparse():
    sparse, xarray = pytest.importorskip("sparse"), pytest.importorskip("xarray")
    one = xarray.DataArray(sparse.COO.from_numpy(np.eye(3)), {"i": list("abc")}, ["i", "j"])
    found = oocbe.einsum("ij,ik->kj", one, one.rename(j="k"))
    assert found.dims == ("k", "j") and np.array_equal(found.data.todense(), np.eye(3))


@pytest.mark.parametrize("kind", ["coo", "gcxs", "dok"])
def test_a_sparse_result_has_the_kind_of_the_first_operand(kind):
    """Results for compressed arrays, and dictionaries of keys, ended in a TypeError of their constructors."""
    sparse = pytest.importorskip("sparse")
    own = sparse.COO.from_numpy(np.diag([2.0, 3.0, 0.0])).asformat(kind)
    found = oocbe.einsum("ij,jk->ik", own, own)
    assert type(found) is type(own) and found.todense().tolist() == np.diag([4.0, 9.0, 0.0]).tolist()


def test_fill_values_are_kept_or_refused():
    """A fill value of 7 was taken for the semiring's zero, and a result had another one than its operands."""
    sparse = pytest.importorskip("sparse")
    costs = np.array([[-np.inf, 3.0], [1.0, -np.inf]])
    own = sparse.COO.from_numpy(costs, fill_value=-np.inf)
    found = oocbe.einsum("ij,jk->ik", own, own, semiring="max-plus")
    assert found.fill_value == -np.inf
    assert found.todense().tolist() == [[4.0, -np.inf], [-np.inf, 4.0]]
    with pytest.raises(UsageError, match=r"fill value 7\.0, not 0 or -inf"):
        oocbe.einsum("ij->i", sparse.COO.from_numpy(costs, fill_value=7.0), semiring="max-plus")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij->i", np.ma.masked_array([[1.0, 2.0]], [[1, 0]])), "einsum: an operand: some are masked; fill them"),
        (("ij->i", [[1], [1, 2]]), "einsum: an operand: rows of different lengths"),
        ((np.zeros(2), "i->"), "the expression is text such as"),
        (("ij->i", np.zeros((2, 0))), "index 'j' has no value in operand 0"),
    ],
)
def test_operands_of_the_wrong_kind_are_refused(arguments, message):
    """Hidden entries were used, and others ended in errors of Python."""
    with pytest.raises((UsageError, ModelError), match=message):
        oocbe.einsum(*arguments)


def test_a_path_of_a_chain_avoids_the_large_result():
    shapes = [(1000, 2), (2, 1000), (1000, 3)]
    path = oocbe.einsum_path("ij,jk,kl->il", *shapes)
    assert path.joined == 2 * 1000 * 3 * 2 and path.largest == 3000
    assert str(path).splitlines()[0] == "12,000 combinations in 2 steps, largest result 3,000 cells"
    grid = [(2, 2)] * 760
    edges = [((i, j), other) for i in range(20) for j in range(20) for other in ((i + 1, j), (i, j + 1))]
    terms = [f"x{a[0]}_{a[1]} x{b[0]}_{b[1]}" for a, b in edges if max(b) < 20]
    assert oocbe.einsum_path(f"{','.join(terms)} ->", *grid).largest <= 2**22


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8", "bool"])
@pytest.mark.parametrize("semiring", ["sum-product", "max-product"])
def test_products_of_integers_may_be_zero(semiring, dtype):
    """A cell of 0 was refused as one without a value: the product of two identity matrices had no result."""
    result = oocbe.einsum("ab,bc->ac", np.eye(3, dtype=dtype), (1 - np.eye(3)).astype(dtype), semiring=semiring)
    assert result.tolist() == (1 - np.eye(3, dtype=int)).tolist()


def test_results_that_wait_for_later_steps_count_against_the_memory(monkeypatch):
    """Eight outer products of a megabyte each, before any of them is used."""
    alive, contracted = [], Contractions._contracted

    def watched(steps, step, tables, output):
        made = contracted(steps, step, tables, output)
        if isinstance(made, CompleteTable):
            alive.append(weakref.ref(made))
        held = [table for table in (found() for found in alive) if table is not None]
        assert sum(table.nbytes for table in held) <= 4 * 2**20
        return made

    monkeypatch.setattr(Contractions, "_contracted", watched)
    random, letters = np.random.default_rng(5), "abcdefghijklmnop"
    vectors = [random.random(362) for _ in 2 * letters]
    later = [step for k in range(8) for step in ((0, 16 - 2 * k), (0, 22 - 2 * k))]
    path = [(0, 1)] * 8 + later + [(0, 1)] * 7
    found = oocbe.einsum(",".join(2 * letters) + "->", *vectors, optimize=path, memory="8MiB")
    expected = np.prod([one @ two for one, two in zip(vectors[:16], vectors[16:], strict=True)])
    assert float(found) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "semiring", ["sum-product", *(pytest.param(name, marks=pytest.mark.slow) for name in ("max-plus", "log"))]
)
def test_steps_beyond_the_memory_are_done_value_by_value_where_that_costs_nothing(semiring, monkeypatch):
    """The octahedron took two minutes through scratch files; each of its large steps has the indices d, g and i."""
    random, text = np.random.default_rng(8), "abcd,aefg,behi,cfjk,dhjl,gikl->"
    arrays = [random.random((6,) * 4) for _ in range(6)]
    expected = {output: oocbe.einsum(text + output, *arrays, semiring=semiring) for output in ("", "ak")}
    wide, steps = [random.random((200, 200)) for _ in range(4)], [(0, 1), (0, 2), (0, 1)]
    chain = oocbe.einsum("ij,jk,kl,lm->im", *wide, semiring=semiring, optimize=steps)
    used, scratch = [], Contractions._scratch
    monkeypatch.setattr(Contractions, "_scratch", lambda steps: used.append(1) or scratch(steps))
    for output, value in expected.items():
        assert sliced_path(oocbe.einsum_path(text + output, *arrays), 1 << 20)[0]
        found = oocbe.einsum(text + output, *arrays, semiring=semiring, memory="1MiB")
        np.testing.assert_allclose(found, value, rtol=1e-10)
    assert not used
    found = oocbe.einsum("ij,jk,kl,lm->im", *wide, semiring=semiring, optimize=steps, memory="1MiB")
    np.testing.assert_allclose(found, chain, rtol=1e-10)
    assert used  # each index is in two of the steps, and its values by themselves would repeat the third


def test_a_path_beyond_the_memory_is_warned_of_where_the_own_one_is_cheaper(caplog):
    """An octahedron along such a path did not end, and nothing said that another one took two seconds."""
    one = np.ones((20, 20), dtype=np.int64)
    for steps, memory, is_warned in [([(0, 2), (0, 1)], "1MiB", True), ([(0, 2), (0, 1)], "1GiB", False)]:
        caplog.clear()
        assert (oocbe.einsum("ij,jk,kl->il", one, one, one, optimize=steps, memory=memory) == 400).all()
        assert bool(caplog.messages) == is_warned
    oocbe.einsum("ij,jk,kl->il", one, one, one, memory="1MiB")
    oocbe.einsum("ij,jk,kl->il", one, one, one, optimize=[(0, 1), (0, 1)], memory="1MiB")
    assert not caplog.messages


def test_results_beyond_the_memory_go_through_scratch_files_and_to_the_output(tmp_path):
    random = np.random.default_rng(7)
    arrays = [random.random((160, 160, 8)), random.random((160, 8, 160)), random.random((160, 160))]
    expected = np.einsum("abx,ayb,ba->xy", *arrays)
    found = oocbe.einsum("abx,ayb,ba->xy", *arrays, memory="12MiB", optimize=[(0, 1), (0, 1)])
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    stored = oocbe.einsum("abx,ba->xab", arrays[0], arrays[2], memory="8MiB", output=tmp_path / "out")
    assert isinstance(stored, oocbe.StoredCompleteTable)
    made = stored.to_complete().transposed(("x", "a", "b"))
    values = made.values.reshape(tuple(reversed(made.layout.sizes))).transpose()
    np.testing.assert_allclose(values, np.einsum("abx,ba->xab", arrays[0], arrays[2]))
    with pytest.raises(ResourceError, match="give output"):
        oocbe.einsum("abx,ba->xab", arrays[0], arrays[2], memory="1MiB")


@pytest.mark.parametrize(
    "expression, shapes, settings, message",
    [
        ("ij,jk", [(2, 2)], {}, "2 operands, 1 are given"),
        ("ij->ij", [(2, 2, 2)], {}, "3 axes, and 2 indices"),
        ("ij,jk->ik", [(2, 2), (3, 2)], {}, "'j' has 2 values, and 3"),
        ("ij->ik", [(2, 2)], {}, "no operand has the output's index 'k'"),
        ("ij->ii", [(2, 2)], {}, "twice in the output"),
        ("...i->i", [(2, 2)], {}, "'...' is none"),
        ("ij->i", [(2, 2)], {"semiring": "plus"}, "unknown semiring 'plus'; known: sum-product"),
        ("ij->i", [(2, 2)], {"return_argmax": True}, "a semiring that selects"),
        ("ij->i", [(2, 2)], {"optimize": [(3,)]}, "does not fit 1 operands"),
        ("ij->i", [(2, 2)], {"optimize": "best"}, "neither auto nor"),
        ("ij->i", [(2, 2)], {"optimize": True}, "neither auto nor"),
    ],
)
def test_what_is_refused(expression, shapes, settings, message):
    with pytest.raises(UsageError, match=message.replace("...", r"\.\.\.")):
        oocbe.einsum(expression, *(np.ones(shape) for shape in shapes), **settings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sums_far_below_their_operands_are_precise(dtype):
    """Products in linear space would underflow: the greatest of a row and of a column never meet."""
    inf = math.inf
    left = np.array([[0, -50, -2000], [-inf, -inf, 5000], [-inf, -inf, -inf]], dtype=dtype)
    right = np.array([[-2000, -inf], [-1950, 0], [0, -inf]], dtype=dtype)
    expected = [[-2000 + math.log(3), -50], [5000, -inf], [-inf, -inf]]
    np.testing.assert_allclose(oocbe.einsum("ij,jk->ik", left, right, semiring="log", backend="cpu"), expected, 1e-6)
    wide = oocbe.einsum("ij,jk->ik", left[:, 1:], right[1:, 1:], semiring="log", backend="cpu")
    np.testing.assert_allclose(wide, [[-50], [-inf], [-inf]], 1e-6)
    beyond = oocbe.einsum("ij,jk->ik", left[:1], np.full((3, 1), 1e39), semiring="log", backend="cpu")
    assert beyond.tolist() == [[1e39]], "a float64 scale beyond float32, beside either dtype"


@pytest.mark.gpu
@pytest.mark.parametrize("semiring", OPERATIONS)
def test_operands_on_a_device_give_a_result_there(semiring):
    """Also from main memory by the device, and of both kinds; the answers are the CPU's."""
    skip_without_gpu()
    import cupy

    random = np.random.default_rng(5)
    for expression, shapes in DEVICE_CONTRACTIONS.items():
        for dtype in (np.float64, np.float32, np.int64):
            arrays = [operand(random, shape, semiring, 0.0).astype(dtype) for shape in shapes]
            expected = oocbe.einsum(expression, *arrays, semiring=semiring, backend="cpu")
            there = [cupy.asarray(a) for a in arrays]
            for operands, backend in ((there, None), ([*arrays[:1], *there[1:]], None), (arrays, "cuda")):
                found = oocbe.einsum(expression, *operands, semiring=semiring, backend=backend)
                is_there = any(isinstance(array, cupy.ndarray) for array in operands)
                assert isinstance(found, cupy.ndarray if is_there else np.ndarray), (expression, dtype)
                assert found.dtype == expected.dtype and found.shape == expected.shape
                np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=1e-5)


DEVICE_CONTRACTIONS = {
    "ij,jk->ik": [(5, 70), (70, 9)],
    "bij,bjk->bik": [(3, 5, 7), (3, 7, 9)],
    "iij->ij": [(4, 4, 3)],
    "ij,jk,kl,li->": [(6, 5), (5, 4), (4, 3), (3, 6)],
    "i,j->ji": [(6,), (5,)],
    "ij->": [(8, 9)],
}


def test_a_device_without_room_for_the_operands_computes_them_in_pieces(monkeypatch):
    """The CPU computed products of matrices, whatever the backend."""
    operate, asked = contraction.join_marginalise, []

    def noted(*arguments, backend, **settings):
        asked.append(backend)
        return operate(*arguments, backend="cpu", **settings)

    monkeypatch.setattr(contraction, "join_marginalise", noted)
    monkeypatch.setattr(Contractions, "_placed", lambda self, tables: tables)
    arrays = np.ones((3, 4)), np.ones((4, 5))
    for backend, expected in (("cpu", []), ("cuda", ["cuda"])):
        assert (oocbe.einsum("ij,jk->ik", *arrays, backend=backend) == 4).all()
        assert asked == expected


@pytest.mark.gpu
def test_device_operands_beyond_the_memory_limit():
    skip_without_gpu()
    import cupy

    random = np.random.default_rng(6)
    arrays = [random.integers(1, 9, shape).astype(np.float64) for shape in ((300, 40), (40, 300))]
    found = oocbe.einsum("ij,jk->ik", *map(cupy.asarray, arrays), semiring="min-plus", memory="1MiB")
    assert isinstance(found, cupy.ndarray)
    expected = (arrays[0][:, :, None] + arrays[1][None]).min(axis=1)
    assert np.array_equal(found.get(), expected)


def test_joined_rows_are_counted_without_a_sort_of_numpy(monkeypatch):
    """A sort of tuples by NumPy takes three times as long as the step whose rows are counted."""
    random, sorted_rows, original = np.random.default_rng(7), [], np.unique
    matrices = [scipy.sparse.random_array((2000, 2000), density=1e-3, rng=random).tocsr() for _ in range(2)]
    tables = [
        oocbe.Table.from_rows(dict.fromkeys(names, 2000), np.column_stack(matrix.nonzero()), matrix.data)
        for names, matrix in zip(("ij", "jk"), matrices, strict=True)
    ]

    def unique(array, **settings):
        sorted_rows.append(len(array))
        return original(array, **settings)

    monkeypatch.setattr(np, "unique", unique)
    pairs = [matrix.astype(bool).astype(int) for matrix in matrices]
    assert contraction._joined_rows(tables) == (pairs[0] @ pairs[1]).sum() and not sorted_rows
    apart = [tables[0], oocbe.Table.from_rows({"l": 5}, [[1], [3], [4]], [1, 2, 3])]
    assert contraction._joined_rows(apart) == 3 * tables[0].rows
