"""Numbers that stand in a CUDA source and beside the Python code that launches it are the same in both."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from oocbe.kernels.cpu.buckets import bucket_join as cpu_bucket_join
from oocbe.kernels.cpu.packing import bit_pack as cpu_bit_pack
from oocbe.kernels.cuda.modules import source_text
from oocbe.kernels.cuda.packing import bit_pack as cuda_bit_pack

PAIRS = [
    ("bit_pack", "MOST_PARTS", "bit_pack.MOST_PARTS"),
    ("bit_pack", "SUMMARY_WORDS", "bit_pack.SUMMARY_WORDS"),
    ("bit_pack", "THREADS", "bit_pack.THREADS"),
    ("bucket_join", "THREADS", "flags.THREADS"),
    ("bucket_join", "MOST_TABLES", "bucket_join.MOST_TABLES"),
    ("complete", "MOST_THREADS", "complete.THREADS"),
    ("complete_product", "MOST_BATCHES", "complete_product.MOST_BATCHES"),
    ("complete_product", "MOST_SHARED", "complete_product.MOST_SHARED"),
    ("dominance", "THREADS", "flags.THREADS"),
    ("fields", "MOST_MOVES", "fields.MOST_MOVES"),
    ("fields", "ROWS_A_THREAD", "fields.ROWS_A_THREAD"),
    ("filters", "THREADS", "filters.THREADS"),
    ("groups", "THREADS", "flags.THREADS"),
    ("groups", "(WARP_ROWS * THREADS / 32)", "groups.ROWS_A_BLOCK"),
    ("groups", "MOST_WORDS", "selection.MOST_WORDS"),
    ("join", "PAIR_THREADS", "join.THREADS"),
    ("join_reduce", "THREADS", "join_reduce.THREADS"),
    ("prefix", "THREADS", "selection.PREFIX_THREADS"),
    ("prefix", "TILE", "selection.PREFIX_TILE"),
    ("reduce", "THREADS", "reduce.THREADS"),
    ("reduce", "TILE", "reduce.ROWS_A_BLOCK"),
    ("runs", "THREADS", "runs.THREADS"),
    ("sort", "DIGIT_BITS", "sort.DIGIT_BITS"),
    ("sort", "BINS", "sort.BINS"),
    ("sort", "THREADS", "sort.THREADS"),
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
    module, constant = name.split(".")
    assert value_of(source, expression) == getattr(import_module(f"oocbe.kernels.cuda.{module}"), constant)


@pytest.mark.parametrize("struct", ["Source", "Column", "Target"])
def test_structs_are_as_large_in_the_source_as_here(struct):
    size = re.search(rf"sizeof\({struct}\) == (\d+)", source_text("bit_pack"))
    assert int(size[1]) == getattr(cuda_bit_pack, struct.upper()).itemsize


def test_both_backends_agree():
    assert value_of("bucket_join", "SCANNED_ROWS") == cpu_bucket_join.SCANNED_ROWS
    assert value_of("bit_pack", "BLOCK") == cpu_bit_pack.BLOCK
    assert value_of("bit_pack", "FRONT_WORDS") == cpu_bit_pack.FRONT_WORDS
    assert value_of("bit_pack", "HEADER_WORDS") == cpu_bit_pack.HEADER_WORDS
    assert value_of("bit_pack", "OFFSET_BITS") == cpu_bit_pack.OFFSET_BITS
