"""Numbers that stand in a CUDA source and beside the Python code that launches it are the same in both."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from oocbe.kernels.cpu.buckets import walk_loop as cpu_walk_loop
from oocbe.kernels.cpu.packing import bit_pack as cpu_bit_pack
from oocbe.kernels.cpu.propagation import linear_rows as cpu_linear_rows
from oocbe.kernels.cpu.trees import sweeps as cpu_sweeps
from oocbe.kernels.cuda.modules import source_text
from oocbe.kernels.cuda.packing import bit_pack as cuda_bit_pack

PAIRS = [
    ("bit_pack", "MOST_PARTS", "packing.bit_pack.MOST_PARTS"),
    ("bit_pack", "SUMMARY_WORDS", "packing.bit_pack.SUMMARY_WORDS"),
    ("bit_pack", "THREADS", "packing.bit_pack.THREADS"),
    ("bucket_join", "THREADS", "pruning.flags.THREADS"),
    ("bucket_join", "MOST_TABLES", "buckets.bucket_join.MOST_TABLES"),
    ("complete", "MOST_THREADS", "complete.complete.THREADS"),
    ("complete_product", "MOST_BATCHES", "complete.complete_product.MOST_BATCHES"),
    ("complete_product", "MOST_SHARED", "complete.complete_product.MOST_SHARED"),
    ("dominance", "THREADS", "pruning.flags.THREADS"),
    ("sums", "THREADS", "pruning.flags.SUM_THREADS"),
    ("fields", "MOST_MOVES", "packing.fields.MOST_MOVES"),
    ("fields", "ROWS_A_THREAD", "packing.fields.ROWS_A_THREAD"),
    ("filters", "THREADS", "pruning.filters.THREADS"),
    ("groups", "THREADS", "pruning.flags.THREADS"),
    ("groups", "(WARP_ROWS * THREADS / 32)", "pairs.groups.ROWS_A_BLOCK"),
    ("groups", "MOST_WORDS", "pairs.selection.MOST_WORDS"),
    ("join", "PAIR_THREADS", "pairs.join.THREADS"),
    ("join_reduce", "THREADS", "pairs.join_reduce.THREADS"),
    ("linear_rows", "THREADS", "propagation.linear_rows.THREADS"),
    ("prefix", "THREADS", "pairs.selection.PREFIX_THREADS"),
    ("prefix", "TILE", "pairs.selection.PREFIX_TILE"),
    ("reduce", "THREADS", "pairs.reduce.THREADS"),
    ("reduce", "TILE", "pairs.reduce.ROWS_A_BLOCK"),
    ("runs", "THREADS", "pairs.runs.THREADS"),
    ("table_rows", "THREADS", "propagation.table_rows.THREADS"),
    ("table_rows", "RESIDENT_BLOCKS", "propagation.table_rows.RESIDENT_BLOCKS"),
    ("tree_sweeps", "THREADS", "trees.sweeps.THREADS"),
    ("tree_sweeps", "WARPS_A_CLIQUE", "trees.sweeps.WARPS_A_CLIQUE"),
    ("tree_sweeps", "VARIABLE", "trees.layout.VARIABLE"),
    ("tree_sweeps", "CHILD", "trees.layout.CHILD"),
    ("tree_sweeps", "CONSTANT_CHILD", "trees.layout.CONSTANT_CHILD"),
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
    assert value_of(source, expression) == getattr(import_module(f"oocbe.kernels.cuda.{module}"), constant)


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
    assert value_of("bucket_join", "SCANNED_ROWS") == cpu_walk_loop.SCANNED_ROWS
    assert value_of("bit_pack", "BLOCK") == cpu_bit_pack.BLOCK
    assert value_of("bit_pack", "FRONT_WORDS") == cpu_bit_pack.FRONT_WORDS
    assert value_of("bit_pack", "HEADER_WORDS") == cpu_bit_pack.HEADER_WORDS
    assert value_of("bit_pack", "OFFSET_BITS") == cpu_bit_pack.OFFSET_BITS
