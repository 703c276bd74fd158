"""Golden runs: equal answers are equal records, times and places are left out, and a changed or lost one is seen."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tools.golden.canonical import canonical, differences
from tools.golden.main import main
from tools.golden.names import lost_names


def test_what_depends_on_the_run_is_left_out() -> None:
    once = {"value": 3, "seconds": 0.1, "note": "after 0.25 s in /tmp/a/x", "predicted_seconds": 0.5}
    again = {"value": 3, "seconds": 0.2, "note": "after 12 ms in /tmp/b/x", "predicted_seconds": 0.5}
    assert canonical(once, {"/tmp/a": "FOLDER"}) == canonical(again, {"/tmp/b": "FOLDER"})
    assert canonical("induced width 14, min-sum") == "induced width 14, min-sum"


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (0.1 + 0.2, 0.3, "value: '0x1.3333333333334p-2' -> '0x1.3333333333333p-2'"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1]: 2 -> 3"),
        ({"a": 1}, {}, "a: lost (was 1)"),
        (1, True, "value: 1 -> True"),
        (0.0, -0.0, "value: '0x0.0p+0' -> '-0x0.0p+0'"),
    ],
)
def test_differences_are_named(one: object, other: object, line: str) -> None:
    assert list(differences(canonical(one), canonical(one))) == []
    assert list(differences(canonical(one), canonical(other))) == [line]


def test_arrays_differ_by_one_bit_of_one_element() -> None:
    array = np.linspace(0, 1, 100)
    other = array.copy()
    other[50] = np.nextafter(other[50], 2)
    found = list(differences(canonical(array), canonical(other)))
    assert len(found) == 1 and found[0].startswith("digest: ")


def test_a_lost_name_is_seen_and_an_alias_is_not_lost() -> None:
    old = ["oocbe.solve", "oocbe.no_such_name", "oocbe.Result.gap", "oocbe.Result.no_such_field"]
    assert lost_names("names/public", old, ["oocbe.more"]) == [f"lost: {old[1]}", f"lost: {old[3]}"]
    assert lost_names("names/commands", ["solve --order"], ["solve --orders"]) == ["lost: solve --order"]


def test_two_records_are_compared(tmp_path, capsys) -> None:
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, value in zip(paths, (1, 2), strict=True):
        path.write_text(json.dumps({"format": 1, "entries": {"a/x": {"notes": ["n"], "value": value}, "b": 1}}))
    assert main(["between", str(paths[0]), str(paths[0])]) == 0
    assert main(["between", str(paths[0]), str(paths[1]), "--without", "a/x:value"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["between", str(paths[0]), str(paths[1])]) == 1
    assert capsys.readouterr().out == "a/x\n    value: 1 -> 2\n"
