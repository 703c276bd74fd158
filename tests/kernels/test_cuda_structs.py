"""The structs of the CUDA sources: what the host fills by name, with the fields of the join program."""

from __future__ import annotations

import re
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from oocbe.kernels.cpu.buckets.join_arrays import BoundArrays, LeafArrays, LookupArrays
from oocbe.kernels.cuda import modules
from oocbe.kernels.cuda.modules import source_text

SOURCE = "bucket_join"
SAME = [LookupArrays, LeafArrays, BoundArrays]
POINTERS = {np.int64: {"const i64 *"}, np.uint64: {"const u64 *"}, Any: {"const VALUE *", "const wide *"}}
NUMBERS = {int: {"i64"}, np.uint64: {"u64"}, Any: {"wide"}}


def forget():
    """Have structs looked for anew."""
    for known in (modules.members, modules.words, modules._places):
        known.cache_clear()


@pytest.fixture
def source(monkeypatch):
    """Has structs looked for in a text; nothing of it is kept."""

    def give(text):
        forget()
        monkeypatch.setattr(modules, "source_text", lambda _: text)

    yield give
    forget()


def c_types(field) -> set[str]:
    """What a field of these tuples may be in C."""
    if getattr(field, "__origin__", None) is not np.ndarray:
        return NUMBERS[field]
    return POINTERS[get_args(get_args(field)[1])[0]]


@pytest.mark.parametrize("arrays", SAME, ids=lambda arrays: arrays.__name__)
def test_structs_have_the_fields_of_the_join_program(arrays):
    members = modules.members(SOURCE, arrays.__name__)
    fields = get_type_hints(arrays)
    assert list(members) == [name for name in fields if name in members]
    assert [name for name in members if members[name] not in c_types(fields[name])] == []


def test_all_members_are_found_and_eight_bytes_wide():
    text = source_text(SOURCE)
    names = re.findall(r"^struct (\w+) \{$", text, flags=re.MULTILINE)
    assert {"Level", "Leaf", "Bounds"} < set(names)
    for name in names:
        body = text.partition(f"struct {name} {{")[2].partition("};")[0]
        declared = re.sub(r"//.*", "", body)
        assert len(modules.members(SOURCE, name)) == declared.count(",") + declared.count(";")


def test_a_struct_is_filled_in_the_order_of_its_members(source):
    source(
        "struct Inner {\n    wide a;\n};\nstruct Outer {\n    i64 n; // two\n    const u64 *p, *q;\n    Inner in;\n};\n"
    )
    inner = modules.Struct("any", "Inner").words(a=np.float64(0.5))
    outer = modules.packed("any", "Outer", q=None, n=-1 & ((1 << 64) - 1), **{"in": inner}, p=24)
    assert outer.dtype == np.uint64
    assert outer.tolist() == [(1 << 64) - 1, 24, 0, np.float64(0.5).view(np.uint64)]
    assert modules.packed("any", "Inner", a=np.int64(-2)).view(np.int64).tolist() == [-2]


def test_members_without_a_value_and_values_without_a_member_are_named(source):
    source("struct S {\n    i64 a, b;\n};\n")
    with pytest.raises(TypeError, match="differ in: b, c"):
        modules.packed("any", "S", a=1, c=2)


def test_members_that_are_known_need_not_be_said_again(source):
    source("struct Inner {\n    i64 a, b;\n};\nstruct Outer {\n    i64 n;\n    const u64 *p;\n    Inner in;\n};\n")
    inner, outer = modules.Struct("any", "Inner", b=7), modules.Struct("any", "Outer", n=np.int64(1))
    for a, p in ((2, 3), (4, None)):
        packed = outer.packed(p=p, **{"in": inner.words(a=a)})
        assert packed.dtype == np.uint64
        assert packed.tolist() == [1, p or 0, a, 7]
        assert np.array_equal(packed, modules.packed("any", "Outer", n=1, p=p, **{"in": [a, 7]}))
    with pytest.raises(TypeError, match=r"struct Inner of any\.cu .* differ in: a, b"):
        inner.packed(b=1)
    with pytest.raises(TypeError, match="no c"):
        modules.Struct("any", "Inner", c=1)
    with pytest.raises(TypeError, match="takes 2 words, not 1"):
        outer.packed(p=0, **{"in": [1]})


@pytest.mark.parametrize("kind", ["int", "u32", "float", "Unknown"])
def test_narrow_members_are_refused(source, kind):
    source(f"struct S {{\n    i64 a;\n    {kind} b;\n}};\n")
    with pytest.raises(TypeError, match=kind):
        modules.members("any", "S")
