"""Comments of clauses that ask for another count, and headers with a wrong number of clauses."""

from __future__ import annotations

import pytest

import oocbe
from oocbe.api.tasks.questions import TASKS
from oocbe.errors import FormatError, UnsupportedError, amount

CLAUSES = "p cnf 4 2\n1 2 0\n3 4 0\n"


def written(folder, text, name="p.cnf"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "line",
    [
        "c p show 1 2 0",
        "c p show 0",
        "c p weight 1 0.4 0",
        "c p anything 3 0",
        "c p opt-show_2 1 0",
        "c t pmc",
        "c t wmc",
        "c t pwmc",
        "c ind 1 2 0",
        "cr 1 2",
        "c max 1 2 0",
        "c MUST MULTIPLY BY 2**3 0",
    ],
)
@pytest.mark.parametrize("name", ["p.cnf", "p.wcnf"])
def test_another_count_is_refused_with_its_line(tmp_path, line, name):
    text = f"{CLAUSES}{line}\n" if name == "p.cnf" else f"h 1 2 0\nh 3 4 0\nc\n{line}\n"
    path = written(tmp_path, text, name)
    problem = oocbe.read(path)
    for task in TASKS:
        with pytest.raises(UnsupportedError, match=f"{name}, line 4: .*, and the task {task} would leave that out"):
            oocbe.api.tasks.verbs.run_task(task, problem)
    for refused in (
        lambda: oocbe.JunctionTree(problem),
        lambda: oocbe.write(problem, tmp_path / "q.uai"),
        lambda: oocbe.count(oocbe.propagate(problem.with_evidence({"1": "1"})).reduced),
        lambda: oocbe.solve(problem, semiring="sum-product"),
    ):
        with pytest.raises(UnsupportedError, match="line 4: this comment requests"):
            refused()
    assert not (tmp_path / "q.uai").exists()
    result = oocbe.solve(path)
    assert result.value == 0 and f"{path}, line 4: this comment requests" in result.notes[0]
    assert "the optimum does not depend on that" in oocbe.bound(path).notes[0]


@pytest.mark.parametrize(
    "line",
    [
        "c t mc",
        "c p cnf 9 9",
        "c p show 4 3\nc p show 2 1 0",
        "c ind 1 2 3 4 0",
        "c t is a time",
        "c p = 0.5",
        "c MUST MULTIPLY BY 2**0 0",
        "c",
        "c p",
        "cnf",
        "created by 3",
    ],
)
def test_comments_and_projections_on_all_variables_ask_for_the_count(tmp_path, line):
    result = oocbe.count(written(tmp_path, f"{line}\n{CLAUSES}"))
    assert (result.value, result.notes) == (9, ())


@pytest.mark.parametrize(
    ("line", "what"),
    [("w 1 0.3", "weights of literals"), ("vp 1 2 0", "projected"), ("a 1 0", "quantified"), ("x1 -2 0", "exclusive")],
)
def test_lines_that_are_no_clauses_are_refused_by_name(tmp_path, line, what):
    with pytest.raises(UnsupportedError, match=f"line 4: {what}.* are not supported"):
        oocbe.read(written(tmp_path, f"{CLAUSES}{line}\n"))


def test_behind_the_end_comments_are_heard_and_clauses_are_not(tmp_path):
    assert oocbe.count(written(tmp_path, f"{CLAUSES}%\n0\nc\n1 0\n")).value == 9
    with pytest.raises(UnsupportedError, match="line 6: this comment requests"):
        oocbe.count(written(tmp_path, f"{CLAUSES}%\n0\nc p show 1 0\n"))


def test_projections_of_pseudo_boolean_constraints(tmp_path):
    text = "* #variable= 3 #constraint= 1\n{}+1 x1 +1 x2 +1 x3 >= 1 ;\n"
    with pytest.raises(UnsupportedError, match=r"p.opb, line 2: .* \('ind'\)"):
        oocbe.count(written(tmp_path, text.format("* ind x1 x2 ;\n"), "p.opb"))
    assert oocbe.count(written(tmp_path, text.format("* ind 1 2 3 0\n"), "p.opb")).value == 7


@pytest.mark.parametrize("promised", [0, 1, 3, 1000])
@pytest.mark.parametrize("name", ["p.cnf", "p.wcnf"])
def test_clauses_count_and_not_how_many_the_header_promises(tmp_path, promised, name):
    text = CLAUSES if name == "p.cnf" else "p wcnf 4 2 9\n9 1 2 0\n9 3 4 0\n"
    result = oocbe.count(written(tmp_path, text.replace("4 2", f"4 {promised}", 1) + "%\n0\n", name))
    assert result.value == 9
    assert result.notes == (
        f"{tmp_path / name}: the header states {amount(promised, 'clause')}; the 2 of the file are used",
    )


def test_the_number_of_variables_is_part_of_the_problem(tmp_path):
    assert oocbe.count(written(tmp_path, CLAUSES.replace("4 2", "6 2"))).value == 36
    with pytest.raises(FormatError, match="line 3: found 4, expected a literal"):
        oocbe.read(written(tmp_path, CLAUSES.replace("4 2", "3 2")))
    with pytest.raises(FormatError, match=r"line 1: .*expected the line 'p cnf"):
        oocbe.read(written(tmp_path, CLAUSES.removeprefix("p cnf 4 2\n")))
