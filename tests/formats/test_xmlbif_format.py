"""Reading XMLBIF: meaning, document types, and refusals."""

from __future__ import annotations

import itertools

import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read

SAMPLE = """<?xml version="1.0" encoding="US-ASCII"?>
<!-- a <!DOCTYPE> is next -->
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>  <!-- of [whatever]> this is -->
  <!ELEMENT PROPERTY (#PCDATA)>
]>
<BIF VERSION="0.3"><NETWORK><NAME>garden</NAME>
<PROPERTY>author someone</PROPERTY>
<DEFINITION>
  <FOR>rain</FOR> <GIVEN>season</GIVEN>
  <TABLE>
    0.1 0.9 <!-- dry -->
    0.5 0.5 1 0
  </TABLE>
</DEFINITION>
<VARIABLE TYPE="nature"><NAME>season</NAME>
  <OUTCOME>dry</OUTCOME> <OUTCOME>wet</OUTCOME> <OUTCOME>very wet</OUTCOME>
  <PROPERTY>position = (10, 20)</PROPERTY></VARIABLE>
<VARIABLE><NAME> rain </NAME> <OUTCOME>1</OUTCOME> <OUTCOME>0</OUTCOME> </VARIABLE>
<VARIABLE TYPE="nature"><NAME>grass</NAME> <OUTCOME>wet</OUTCOME> <OUTCOME>dry</OUTCOME> </VARIABLE>
<DEFINITION><FOR>season</FOR><TABLE>0.5 0.25 0.25</TABLE></DEFINITION>
<DEFINITION><GIVEN>rain</GIVEN><FOR>grass</FOR><GIVEN>season</GIVEN>
  <TABLE>0.9 0.1 0.8 0.2 0.7 0.3 0.2 0.8 0.3 0.7 0.4 0.6</TABLE></DEFINITION>
</NETWORK></BIF>
"""


def path_of(tmp_path, text, name="sample.xml"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["sample.xml", "sample.xmlbif", "sample.bifxml"])
def test_meaning(tmp_path, name):
    problem = read(path_of(tmp_path, SAMPLE, name))
    assert [(v.name, v.labels) for v in problem.variables] == [
        ("season", ("dry", "wet", "very wet")),
        ("rain", ("1", "0")),
        ("grass", ("wet", "dry")),
    ]
    assert problem.name == "garden"
    rain = [[0.1, 0.9], [0.5, 0.5], [1, 0]]
    grass = [[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [[0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]]
    for s, r, g in itertools.product(range(3), range(2), range(2)):
        expected = [0.5, 0.25, 0.25][s] * rain[s][r] * grass[r][s][g]
        assert (problem.evaluate((s, r, g)) or 0) == pytest.approx(expected)
    answer = oocbe.marginals(problem.with_evidence({2: 0}))
    assert sum(answer.marginals_by_name["season"].values()) == pytest.approx(1)


def test_circles_are_refused(tmp_path):
    given = SAMPLE.replace("<FOR>season</FOR><TABLE>", "<FOR>season</FOR><GIVEN>grass</GIVEN><TABLE>0.5 0.25 0.25 ")
    with pytest.raises(FormatError, match="form a cycle"):
        read(path_of(tmp_path, given))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (('<VARIABLE TYPE="nature"><NAME>grass', '<VARIABLE TYPE="utility"><NAME>grass'), "of type 'utility'"),
        (("<GIVEN>rain</GIVEN><FOR>grass", "<FOR>rain</FOR><FOR>grass"), "several variables together"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, damage, message):
    with pytest.raises(UnsupportedError, match=rf"sample.xml, line [0-9]+: .*{message}.* is not supported"):
        read(path_of(tmp_path, SAMPLE.replace(*damage, 1)))


def test_tables_that_would_fill_the_memory_are_refused(tmp_path):
    wide = "".join(f"<VARIABLE><NAME>a{k}</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>" for k in range(30))
    given = "".join(f"<GIVEN>a{k}</GIVEN>" for k in range(1, 30))
    text = f"<BIF><NETWORK>{wide}<DEFINITION><FOR>a0</FOR>{given}<TABLE>1</TABLE></DEFINITION></NETWORK></BIF>"
    with pytest.raises(UnsupportedError, match="a table of 1,073,741,824 probabilities over 30 variables"):
        read(path_of(tmp_path, text))


def test_a_document_type_that_does_not_end_is_read_in_one_way_only(tmp_path):
    """Comments could end at any of many places, were they tried again in all ways."""
    text = "<!DOCTYPE BIF [" + "<!-- a --> " * 5000 + "<!ELEMENT a" + SAMPLE[SAMPLE.index("<BIF") :]
    with pytest.raises(FormatError, match=r"line 1: .*document types of more"):
        read(path_of(tmp_path, text))
