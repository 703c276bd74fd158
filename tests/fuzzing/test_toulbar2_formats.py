"""Random files of toulbar2's formats mean what toulbar2 makes of them, assignment by assignment."""

from __future__ import annotations

import pytest

from tests.helpers.effort import examples
from tools.fuzzing.outcome import Tally
from tools.fuzzing.runner import check_case, draw_case

CASES = examples(120)


@pytest.mark.parametrize("mode", ["cfn", "wcsp", "wcnf", "qpbo", "opb"])
def test_random_files_are_read_as_toulbar2_reads_them(mode, tmp_path):
    pytest.importorskip("pytoulbar2")
    tally = Tally()
    for number in range(CASES):
        case = draw_case(mode, 34, 0, number)
        failure = check_case(case, tally, tmp_path)
        assert failure is None, (failure, case)
    assert tally.checks > 5 * CASES
