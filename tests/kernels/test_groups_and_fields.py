"""Groups, matches, permutations of fields and filters against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocbe.errors import ModelError
from oocbe.tables.layout import Layout, field_masks, merged_ranges, move_plan
from tests.helpers.effort import examples

ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
PIECES = [None, 1, 3]


def scope_of(bits: int) -> Layout:
    """A layout of so many bits in fields of 21 and what remains, beside the gaps at the ends of words."""
    sizes = [1 << 21] * (bits // 21) + ([1 << bits % 21] if bits % 21 else [])
    return Layout(tuple(f"v{i}" for i in range(len(sizes))), tuple(sizes))


@pytest.mark.parametrize("piece_rows", PIECES)
@pytest.mark.parametrize("bits", [1, 63, 64, 65, 128, 200])
def test_permute(kernels, bits, piece_rows):
    source = scope_of(bits)
    rng = np.random.default_rng(bits)
    destination = source.select(rng.permutation(source.scope).tolist())
    tuples = rng.integers(0, source.sizes, (50, len(source.sizes)))
    moved = kernels.permute(source.pack(tuples), move_plan(source, destination), destination.words, piece_rows)
    order = [source.place(name) for name in destination.scope]
    assert np.array_equal(moved, destination.pack(tuples[:, order]))


def test_neighbours_move_together():
    source = Layout(tuple("abcd"), (4, 8, 16, 2))
    assert move_plan(source, source).tolist() == [[0, 0, 10, 0, 0]]
    assert move_plan(source, source.select("cdab")).tolist() == [[0, 0, 5, 0, 5], [0, 5, 5, 0, 0]]
    assert move_plan(source, source.select("bd")).tolist() == [[0, 2, 3, 0, 0], [0, 9, 1, 0, 3]]
    assert move_plan(source, source.select("ab"), []).shape == (0, 5)


def test_plans_between_different_domains_are_refused():
    with pytest.raises(ModelError, match="different domain sizes"):
        move_plan(Layout(("a",), (4,)), Layout(("a",), (5,)))
    with pytest.raises(ModelError, match="not in scope"):
        move_plan(Layout(("a",), (4,)), Layout(("b",), (4,)), ["a"])


def test_masks_and_ranges():
    layout = Layout(tuple("abcd"), (4, 1 << 62, 8, 2))
    assert layout.words == 2
    assert field_masks(layout, "ac").tolist() == [3, 7]
    assert merged_ranges(map(layout.field, "abcd")) == [(0, 0, 64), (1, 0, 4)]
    assert merged_ranges(map(layout.field, "bd")) == [(0, 2, 62), (1, 3, 1)]


@pytest.mark.parametrize("piece_rows", PIECES)
@settings(max_examples=examples(200))
@given(data=st.data())
def test_group_starts_and_matches(kernels, piece_rows, data):
    words = data.draw(st.sampled_from([1, 2]))
    masks = np.array([6, ONES][:words], dtype=np.uint64)
    columns = []
    for _ in range(2):
        # Bit 0 lies outside the mask: rows of one group may differ in it.
        rows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), max_size=20))
        rows.sort(key=lambda row: (row[1] if words == 2 else 0, row[0]))
        columns.append(np.array([[2 * a + c for a, _, c in rows], [b for _, b, _ in rows]], dtype=np.uint64)[:words])
    groups = []
    for keys in columns:
        masked = [tuple(row) for row in (keys & masks[:, np.newaxis]).T.tolist()]
        firsts = [i for i, key in enumerate(masked) if i == 0 or masked[i - 1] != key]
        found = kernels.group_starts(keys, masks, piece_rows)
        assert found.tolist() == [*firsts, len(masked)] if masked else [0]
        groups.append({masked[i]: (i, masked.count(masked[i])) for i in firsts})
    common = kernels.common_groups(*columns, masks, piece_rows)
    expected = [(*groups[0][key], *groups[1][key]) for key in groups[0] if key in groups[1]]
    assert list(zip(*(part.tolist() for part in vars(common).values()), strict=True)) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_common_groups_of_tables_with_different_numbers_of_words(kernels, order):
    """Masks are as long as the shorter keys; words beyond do not count."""
    low = np.array([[0, 0, 2, 4, 6], [9, 8, 7, 6, 5]], dtype=np.uint64)
    high = np.array([[0, 1, 4, 5, 5, 6]], dtype=np.uint64)
    common = kernels.common_groups(*[low, high][::order], np.array([6], dtype=np.uint64))
    expected = [(0, 2, 0, 2), (3, 1, 2, 3), (4, 1, 5, 1)]
    found = zip(*(part.tolist() for part in vars(common).values()), strict=True)
    assert [group if order == 1 else (*group[2:], *group[:2]) for group in found] == expected


@pytest.mark.parametrize("piece_rows", PIECES)
@pytest.mark.parametrize("bits", [1, 20, 21, 64, 128])
def test_drop_forbidden(kernels, bits, piece_rows):
    layout = scope_of(bits)
    rng = np.random.default_rng(bits)
    # Values at the ends of each domain, so that parts meet forbidden tuples and all words matter.
    tuples = rng.integers(0, 2, (60, len(layout.sizes))) * (np.array(layout.sizes) - 1)
    keys, forbidden = layout.pack(tuples), layout.pack(tuples[rng.integers(0, 60, 9)])
    bad = {tuple(key) for key in forbidden.T.tolist()}
    kept = [row for row, key in enumerate(keys.T.tolist()) if tuple(key) not in bad]
    found_keys, found_values = kernels.drop_forbidden(keys, np.arange(60), keys, forbidden, layout.bits, piece_rows)
    assert found_values.tolist() == kept
    assert np.array_equal(found_keys, keys[:, kept])
    assert len(kept) < 60
