"""Numbers that stand in a CUDA source and beside the Python code that launches it are the same in both."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from oocbe.junction_trees.kernels.cpu import sweeps as cpu_sweeps
from oocbe.kernels.cpu.buckets import bucket_join as cpu_bucket_join
from oocbe.kernels.cpu.packing import bit_pack as cpu_bit_pack
from oocbe.kernels.cuda.modules import source_text
from oocbe.kernels.cuda.packing import bit_pack as cuda_bit_pack
from oocbe.propagation.kernels.cpu import linear_rows as cpu_linear_rows

PAIRS = [
    ("bit_pack", "MOST_PARTS", "oocbe.kernels.cuda.packing.bit_pack.MOST_PARTS"),
    ("bit_pack", "SUMMARY_WORDS", "oocbe.kernels.cuda.packing.bit_pack.SUMMARY_WORDS"),
    ("bit_pack", "THREADS", "oocbe.kernels.cuda.packing.bit_pack.THREADS"),
    ("bucket_join", "THREADS", "oocbe.kernels.cuda.buckets.flags.THREADS"),
    ("bucket_join", "MOST_TABLES", "oocbe.kernels.cuda.buckets.bucket_join.MOST_TABLES"),
    ("complete", "MOST_THREADS", "oocbe.kernels.cuda.complete.complete.THREADS"),
    ("complete_product", "MOST_BATCHES", "oocbe.kernels.cuda.complete.complete.MOST_BATCHES"),
    ("complete_product", "MOST_SHARED", "oocbe.kernels.cuda.complete.complete.MOST_SHARED"),
    ("dominance", "THREADS", "oocbe.kernels.cuda.buckets.flags.THREADS"),
    ("fields", "MOST_MOVES", "oocbe.kernels.cuda.packing.fields.MOST_MOVES"),
    ("fields", "ROWS_A_THREAD", "oocbe.kernels.cuda.packing.fields.ROWS_A_THREAD"),
    ("filters", "THREADS", "oocbe.kernels.cuda.buckets.filters.THREADS"),
    ("groups", "THREADS", "oocbe.kernels.cuda.buckets.flags.THREADS"),
    ("groups", "(WARP_ROWS * THREADS / 32)", "oocbe.kernels.cuda.pairs.groups.ROWS_A_BLOCK"),
    ("groups", "MOST_WORDS", "oocbe.kernels.cuda.pairs.selection.MOST_WORDS"),
    ("join", "PAIR_THREADS", "oocbe.kernels.cuda.pairs.join_reduce.PAIR_THREADS"),
    ("join_reduce", "THREADS", "oocbe.kernels.cuda.pairs.join_reduce.THREADS"),
    ("linear_rows", "THREADS", "oocbe.propagation.kernels.cuda.linear_rows.THREADS"),
    ("prefix", "THREADS", "oocbe.kernels.cuda.pairs.selection.PREFIX_THREADS"),
    ("prefix", "TILE", "oocbe.kernels.cuda.pairs.selection.PREFIX_TILE"),
    ("reduce", "THREADS", "oocbe.kernels.cuda.pairs.reduce.THREADS"),
    ("reduce", "ROWS_A_BLOCK", "oocbe.kernels.cuda.pairs.reduce.ROWS_A_BLOCK"),
    ("reduce", "LOOKED_UP_A_BLOCK", "oocbe.kernels.cuda.pairs.reduce.LOOKED_UP_A_BLOCK"),
    ("runs", "THREADS", "oocbe.kernels.cuda.pairs.join_reduce.THREADS"),
    ("tree_sweeps", "THREADS", "oocbe.junction_trees.kernels.cuda.sweeps.THREADS"),
    ("tree_sweeps", "WARPS_A_CLIQUE", "oocbe.junction_trees.kernels.cuda.sweeps.WARPS_A_CLIQUE"),
    ("tree_sweeps", "VARIABLE", "oocbe.junction_trees.kernels.cuda.sweeps.VARIABLE"),
    ("tree_sweeps", "CHILD", "oocbe.junction_trees.kernels.cuda.sweeps.CHILD"),
    ("tree_sweeps", "CONSTANT_CHILD", "oocbe.junction_trees.kernels.cuda.sweeps.CONSTANT_CHILD"),
]


def value_of(source: str, expression: str) -> int:
    """A number made of a source's macros."""
    text = source_text(source)
    macros = dict(re.findall(r"^#define (\w+) +([^/\n]*(?:/ [^/\n]*)*)", text, flags=re.MULTILINE))
    while re.search(r"[A-Za-z_]", expression):
        expression = re.sub(r"[A-Za-z_]\w*", lambda found: f"({macros[found[0]].strip()})", expression)
    return int(eval(expression.replace("/", "//"), {"__builtins__": {}}))


@pytest.mark.parametrize(("source", "expression", "name"), PAIRS)
def test_the_source_and_its_launches_agree(source, expression, name):
    module, _, constant = name.rpartition(".")
    assert value_of(source, expression) == getattr(import_module(module), constant)


@pytest.mark.parametrize("name", ["CHUNK", "SHORT_ROW", "REAL_ROW", "INTEGER_COEFFICIENTS", "INTEGER_ROW"])
def test_rows_are_added_up_alike(name):
    assert value_of("linear_rows", name) == getattr(cpu_linear_rows, name)


@pytest.mark.parametrize("struct", ["Source", "Column", "Target"])
def test_structs_are_as_large_in_the_source_as_here(struct):
    size = re.search(rf"sizeof\({struct}\) == (\d+)", source_text("bit_pack"))
    assert int(size[1]) == getattr(cuda_bit_pack, struct.upper()).itemsize


@pytest.mark.parametrize("name", ["LEAST", "GREATEST", "TINY"])
def test_messages_are_scaled_alike(name):
    written = re.search(rf"^#define {name} (\S+)$", source_text("tree_sweeps"), flags=re.MULTILINE)
    assert float(written[1]) == getattr(cpu_sweeps, name)


def test_both_backends_agree():
    assert value_of("bucket_join", "SCANNED_ROWS") == cpu_bucket_join.SCANNED_ROWS
    assert value_of("bit_pack", "BLOCK") == cpu_bit_pack.BLOCK
    assert value_of("bit_pack", "FRONT_WORDS") == cpu_bit_pack.FRONT_WORDS
    assert value_of("bit_pack", "HEADER_WORDS") == cpu_bit_pack.HEADER_WORDS
    assert value_of("bit_pack", "OFFSET_BITS") == cpu_bit_pack.OFFSET_BITS
