"""Reading MPS: meaning, both layouts, conventions, and every kind of damage with its line."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from oocbe import LinearSystem, write
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats.files import read_bytes
from oocbe.formats.mps import parse
from oocbe.formats.text import Text

INF = np.inf
PROGRAM = """* a comment
NAME          sample
OBJSENSE
    MAX
ROWS
 N  COST
 E  EQ
 L  LE
 G  GE
 N  OTHER
COLUMNS
    X         COST              1.5    EQ                2.0
    X         LE               -1.0    OTHER             3.0
    MARKER                 'MARKER'                 'INTORG'
    Y         EQ                1.0    GE                1e1
    Z         GE                4.0    LE                0.0
    B         LE                7.0
    MARKER                 'MARKER'                 'INTEND'
    W         GE               .125
RHS
    RHS       COST             -9.0    EQ                4.0
    RHS       LE                8.0    GE               -1.0
RANGES
    RNG       EQ               -2.5    LE                3.0
    RNG       GE                5.0
BOUNDS
 UP BND       X                 4.0
 LO BND       Y                -3.0
 UI BND       Y                 6.0
 FR BND       W
 UP BND       Z                -2.0
ENDATA
what follows counts no more
"""


def read_text(content, path="program.mps"):
    return parse(Text(path, content.encode() if isinstance(content, str) else content))


def row(system, name):
    number = system.row_names.index(name)
    entries = range(system.starts[number], system.starts[number + 1])
    terms = {system.names[system.columns[e]]: float(system.coefficients[e]) for e in entries}
    return terms, float(system.row_lower[number]), float(system.row_upper[number])


def bounds(system, name):
    number = system.names.index(name)
    return float(system.lower[number]), float(system.upper[number]), bool(system.integral[number])


def check_meaning(system):
    assert (system.name, system.maximises, system.constant) == ("sample", True, 9)
    assert system.names == ("X", "Y", "Z", "B", "W") and system.row_names == ("EQ", "LE", "GE")
    assert system.objective.tolist() == [1.5, 0, 0, 0, 0]
    assert row(system, "EQ") == ({"X": 2, "Y": 1}, 1.5, 4)
    assert row(system, "LE") == ({"X": -1, "B": 7}, 5, 8)
    assert row(system, "GE") == ({"Y": 10, "Z": 4, "W": 0.125}, -1, 4)
    assert bounds(system, "X") == (0, 4, False)
    assert bounds(system, "Y") == (-3, 6, True)
    assert bounds(system, "Z") == (0, -2, True)
    assert bounds(system, "B") == (0, 1, True)
    assert bounds(system, "W") == (-INF, INF, False)


def test_meaning_in_both_layouts():
    check_meaning(read_text(PROGRAM))
    free = "\n".join(line if not line[:1].isspace() else " " + " ".join(line.split()) for line in PROGRAM.split("\n"))
    check_meaning(read_text(free))
    check_meaning(read_text(PROGRAM.replace("\n", "\r\n")))
    without_vectors = (
        PROGRAM.replace("    RHS  ", "         ").replace("    RNG  ", "         ").replace(" BND ", "     ")
    )
    check_meaning(read_text(without_vectors))


def test_names_with_blanks_are_read_by_columns():
    content = PROGRAM.replace(" LE               -1.0", " LE               -1.0").replace(
        "    X         ", "    X 1       "
    )
    content = content.replace("       X      ", "       X 1    ").replace(" EQ   ", " E Q  ").replace("E  EQ", "E  E Q")
    system = read_text(content)
    assert system.names[0] == "X 1" and system.row_names[0] == "E Q"
    assert row(system, "E Q") == ({"X 1": 2, "Y": 1}, 1.5, 4)
    assert bounds(system, "X 1") == (0, 4, False)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (" MI BND X", (-INF, INF)),
        (" PL BND X", (0, INF)),
        (" BV BND X", (0, 1)),
        (" BV BND X 1", (0, 1)),
        (" FX BND X 2.5", (2.5, 2.5)),
        (" LI BND X 2", (2, INF)),
        (" UP BND X 1e30", (0, INF)),
        (" UP BND X Inf", (0, INF)),
        (" LO BND X -1e20", (-INF, INF)),
        (" LO BND X -Infinity", (-INF, INF)),
        (" UP BND X 0", (0, 0)),
        (" UP BND X -1", (0, -1)),
        (" UP BND X -1\n MI BND X", (-INF, -1)),
        (" UP BND X 3d0", (0, 3)),
        (" LO BND X -5\n UP BND X -1", (-5, -1)),
        (" UP X 4", (0, 4)),
        (" FR X", (-INF, INF)),
    ],
)
def test_bounds(line, expected):
    content = f"NAME a\nROWS\n N C\n L R\nCOLUMNS\n X R 1\nRHS\nBOUNDS\n{line}\nENDATA\n"
    assert bounds(read_text(content), "X")[:2] == expected


def test_what_a_file_says_twice_counts_once_as_in_highs():
    changes = [
        ("    X         LE               -1.0", "    X         EQ               -1.0    EQ 3\n    X  LE -1.0"),
        ("    RHS       LE                8.0", "    RHS       EQ                7.0\n    RHS  LE 8.0"),
        ("    RNG       GE                5.0", "    RNG       LE                1.0    COST  4.0\n    RNG  GE 5.0"),
        (" FR BND       W", " FR BND       W\n UP BND  W 4.0\n BV BND  Y"),
    ]
    content = PROGRAM
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    system = read_text(content)
    check_meaning(system)
    assert "line 13: a second coefficient of 'X' in 'EQ' is left out" in system.notes[0]
    assert system.notes[3] == "program.mps: 5 more lines like that"
    assert "PuLP's comment" in read_text("*SENSE:Maximize\n" + PROGRAM.replace("    MAX", "    MIN")).notes[-1]
    assert "upper bound below 0" in read_text(PROGRAM).notes[0]


@pytest.mark.parametrize("lines", ["OBJSENSE\nMAX", "OBJSENSE MAXIMIZE", "OBJSENSE\n  maximise", " OBJSENSE\n MAX"])
def test_sections_by_their_keywords_wherever_these_stand(lines):
    content = PROGRAM.replace("OBJSENSE\n    MAX", lines)
    check_meaning(read_text(content))
    check_meaning(read_text("\n".join(line.strip() for line in content.split("\n"))))
    named = content.replace(" X  ", " RHS").replace("X         COST              1.5", "RHS COST 1.5")
    assert read_text(named).names[0] == "RHS"


@pytest.mark.parametrize("section", ["QUADOBJ", "SOS", "SOS2", "LAZYCONS", "QSECTION COST", "INDICATORS"])
def test_sections_that_are_refused_may_be_empty(section):
    check_meaning(read_text(PROGRAM.replace("ENDATA", f"{section}\n* nothing\n\nENDATA")))
    with pytest.raises(UnsupportedError, match="the section"):
        read_text(PROGRAM.replace("ENDATA", f"{section}\n X Y 1\nENDATA"))


def test_the_objective_that_is_named():
    for section in ("OBJNAME\n    OTHER\n", "OBJNAME OTHER\n"):
        system = read_text(PROGRAM.replace("ROWS\n", f"{section}ROWS\n", 1))
        assert (system.objective.tolist(), system.constant) == ([3, 0, 0, 0, 0], 0)
    for name, line in (("LE", 34), ("NONE", 34)):
        with pytest.raises(FormatError, match=f"line {line}: found no row '{name}' of kind N, which OBJNAME names"):
            read_text(PROGRAM.replace("ROWS\n", f"OBJNAME\n    {name}\nROWS\n", 1))
    with pytest.raises(FormatError, match=r"line 12: .*before ROWS"):
        read_text(PROGRAM.replace("COLUMNS\n", "OBJNAME\n    OTHER\nCOLUMNS\n"))


def test_numbers_of_fortran_and_infinite_sides():
    content = PROGRAM.replace("1.5", "1.5D0").replace("1e1", "1.0d+1").replace("-9.0", "-90.0D-1")
    check_meaning(read_text(content))
    system = read_text(
        PROGRAM.replace(" LE                8.0", " LE                Inf").replace("LE                3.0", "")
    )
    assert row(system, "LE")[2] == INF


def test_names_with_blanks_are_written_without(tmp_path):
    system = LinearSystem.from_rows(
        [({0: 1.0}, 1.0, 2.0), ({1: 1.0}, -INF, 2.0)], [0, 0], [2, 2], names=("a b", "*a_b"), row_names=("r s", "r_s")
    )
    write(system, tmp_path / "p.mps")
    again = read_text((tmp_path / "p.mps").read_bytes())
    assert (again.names, again.row_names) == (("a_b", "_*a_b"), ("r_s_2", "r_s"))
    assert row(again, "r_s_2") == ({"a_b": 1}, 1, 2)


DAMAGES = [
    (("NAME          sample", "NUMBER sample"), 2, "expected a section"),
    (("    MAX", "    MOST"), 4, "expected MIN or MAX"),
    (("ROWS\n", "LINES\n"), 5, "expected a section"),
    ((" E  EQ", " E  EQ 7 8"), 7, "found 4 fields"),
    ((" E  EQ", " X  EQ"), 7, "expected a row's kind"),
    ((" L  LE", " L  EQ"), 8, "a second time"),
    (("COLUMNS\n", "RHS\n"), 11, "expected COLUMNS before it"),
    (("ROWS\n", "COLUMNS\n"), 5, "expected ROWS before it"),
    (("EQ                2.0", "EK                2.0"), 12, "found 'EK', expected a row"),
    (("EQ                2.0", "EQ                two"), 12, "found 'two', expected a finite number"),
    (("EQ                2.0", "EQ                nan"), 12, "expected a finite number"),
    (("EQ                2.0", "EQ                inf"), 12, "expected a finite number"),
    (("EQ                2.0", "EQ              1_000"), 12, "expected a finite number"),
    (("EQ                2.0", "EQ"), 12, "found 4 fields"),
    (("    Z         GE", "    X         GE"), 16, "expected all its entries together"),
    (("'INTORG'", "'INTOUT'"), 14, "expected 'INTORG' or 'INTEND'"),
    (("'INTEND'", "'INTORG'"), 18, "in turn"),
    (("'INTORG'", "'INTEND'"), 14, "in turn"),
    (("    RHS       LE                8.0", "    RHS       LE                8.0 GE"), 22, "found 6 fields"),
    (("    RHS       LE                8.0    GE               -1.0", "    RHS       LX 8"), 22, "expected a row"),
    ((" LO BND       Y", " LW BND       Y"), 28, "expected a bound's type"),
    ((" LO BND       Y", " LO BND       V"), 28, "expected a variable of the section COLUMNS"),
    ((" LO BND       Y                -3.0", " LO BND       Y                many"), 28, "expected a number"),
    ((" LO BND       Y                -3.0", " LO BND       Y                nan"), 28, "expected a number"),
    ((" LO BND       Y                -3.0", " LO BND       Y                1e30"), 28, "leaves it a value"),
    ((" UP BND       X                 4.0", " UP BND       X                -inf"), 27, "leaves it a value"),
    ((" FR BND       W", " FR"), 30, "found 1 fields"),
    ((" FR BND       W", " FR BND       W 1 2"), 30, "found 5 fields"),
    (("ENDATA\nwhat follows counts no more\n", "* no end"), 31, "the file ends, expected ENDATA"),
    (("RANGES", "RHS"), 23, "the section RHS a second time"),
    (("sample", "sam\0ple"), 2, "binary data"),
]


@pytest.mark.parametrize(("damage", "line", "message"), DAMAGES)
def test_damage_is_named_with_its_line(damage, line, message):
    assert damage[0] in PROGRAM
    with pytest.raises(FormatError, match=rf"program.mps, line {line}: .*{message}"):
        read_text(PROGRAM.replace(*damage, 1))


@pytest.mark.parametrize("content", ["ENDATA\n", "NAME x\n", " X 1\n", "\n\n", "ROWS\n N C\nENDATA\n"])
def test_files_with_little_in_them(content):
    with pytest.raises(FormatError):
        read_text(content)


@pytest.mark.parametrize(
    ("damage", "line", "what"),
    [
        ((" UP BND       X", " SC BND       X"), 27, "semicontinuous"),
        ((" UP BND       X", " SI BND       X"), 27, "semicontinuous"),
        (("RANGES", "SOS1"), 23, "special ordered sets"),
        (("RANGES", "QUADOBJ"), 23, "quadratic parts"),
        (("RANGES", "INDICATORS"), 23, "indicator constraints"),
        (("'INTORG'", "'SOSORG'"), 14, "special ordered set"),
        (("    RHS       LE", "    RHT       LE"), 22, "a second vector of right-hand sides"),
        ((" LO BND       Y", " LO BNE       Y"), 28, "a second vector of bounds"),
    ],
)
def test_what_is_not_linear_is_refused_by_name(damage, line, what):
    assert damage[0] in PROGRAM
    with pytest.raises(UnsupportedError, match=rf"program.mps, line {line}: .*{what}"):
        read_text(PROGRAM.replace(*damage, 1))


HIGHS = """
import json, sys, highspy
highs = highspy.Highs()
highs.silent()
highs.readModel(sys.argv[1])
lp = highs.getLp()
by_columns = lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise
kinds = [kind == highspy.HighsVarType.kInteger for kind in lp.integrality_] or [False] * lp.num_col_
print(json.dumps([list(lp.col_names_), list(lp.row_names_), list(lp.col_lower_), list(lp.col_upper_),
    list(lp.row_lower_), list(lp.row_upper_), kinds, list(lp.col_cost_), lp.offset_, by_columns,
    list(lp.a_matrix_.start_), list(lp.a_matrix_.index_), list(lp.a_matrix_.value_)]))
"""
"""A program of its own: HiGHS and other solvers do not bear one another in one process."""


@pytest.mark.parametrize("name", ["bell3a", "bore3d", "dsbmip", "egout", "mod011", "rentacar", "stocfor3", "gt2"])
def test_real_instances_read_as_by_highs(data, tmp_path, name):
    pytest.importorskip("highspy")
    import json

    path = data(f"mps/{name}.mps.gz")
    content = read_bytes(path, None)
    (tmp_path / "p.mps").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", HIGHS, str(tmp_path / "p.mps")], capture_output=True, text=True, check=True
    )
    names, row_names, lower, upper, row_lower, row_upper, kinds, costs, offset, by_columns, *matrix = json.loads(
        done.stdout
    )
    system = read_text(content)
    assert (system.names, system.row_names) == (tuple(names), tuple(row_names))
    for ours, theirs in (
        (system.lower, lower),
        (system.upper, upper),
        (system.row_lower, row_lower),
        (system.row_upper, row_upper),
    ):
        assert ours.tolist() == [x if abs(x) < 1e20 else float(np.copysign(INF, x)) for x in theirs]
    assert system.integral.tolist() == kinds and system.objective.tolist() == costs and system.constant == offset
    starts, indices, values = matrix
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).tolist()
    pairs = zip(indices, owners, strict=True) if by_columns else zip(owners, indices, strict=True)
    theirs = dict(zip(pairs, values, strict=True))
    owners = np.repeat(np.arange(system.rows), np.diff(system.starts)).tolist()
    assert (
        dict(zip(zip(owners, system.columns.tolist(), strict=True), system.coefficients.tolist(), strict=True))
        == theirs
    )


def test_sides_are_written_exactly(tmp_path):
    sides = [(-0.1, 0.4), (0.4, 0.7), (2.0, 1.0), (1e-9, 1e9), (-0.1, 1e9 / 3), (2.0, 2.0), (-INF, 1.0), (0.1, INF)]
    rows = [({0: 1.0, 1: 0.5 + place}, *pair) for place, pair in enumerate(sides)]
    write(LinearSystem.from_rows(rows, [0, 0], [2, 2]), tmp_path / "p.mps")
    again = read_text((tmp_path / "p.mps").read_bytes())
    found: dict[float, tuple[float, float]] = {}
    for name in again.row_names:
        terms, low, high = row(again, name)
        before = found.get(terms["x1"], (-INF, INF))
        found[terms["x1"]] = (max(before[0], low), min(before[1], high))
    assert found == {0.5 + place: pair for place, pair in enumerate(sides)}
    assert len(again.row_names) > len(sides)
