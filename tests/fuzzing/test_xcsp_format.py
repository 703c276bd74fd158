"""Random XCSP3 files leave out what Choco reads otherwise than ACE, which does not read all files."""

from __future__ import annotations

import ast
import re
from random import Random

import pytest

from tools.fuzzing.formats import _xcsp_constraints as drawn

MISREAD = {
    "_knapsack": r"<list>[^<]*[xy]",
    "_element": r"<matrix>[^<]*[a-z]",
    "_number_of_values": r"\(ne,",
    "_lex": r"<matrix>.*(ge|gt)",
    "_no_overlap": r'"false".*<lengths> 0',
}


@pytest.mark.parametrize("kind", MISREAD)
def test_constraints_that_choco_misreads_are_not_drawn(kind):
    for seed in range(300):
        text = getattr(drawn, kind)(Random(seed))
        assert not re.search(MISREAD[kind], text), text


def test_no_expression_has_an_equality_of_three_that_may_be_negated():
    for seed in range(300):
        text = drawn.truth(Random(seed), 3)
        calls = [
            node
            for node in ast.walk(ast.parse(re.sub(r"([a-z]+)\(", r"\1_(", text), mode="eval"))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert calls and not any(call.func.id == "eq_" and len(call.args) == 3 for call in calls), text
