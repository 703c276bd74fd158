"""Reading XMLBIF: meaning, another reader's networks, document types, and damage with its line."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.io import read

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


def test_the_same_as_another_reader(tmp_path):
    gum = pytest.importorskip("pyagrum")
    for seed in range(5):
        gum.initRandom(seed + 1)
        network = gum.fastBN("a[3]->b{x|y|z}->c<-a->d[4];c->e<-d", 2)
        gum.saveBN(network, str(tmp_path / "made.bifxml"))
        problem = read(tmp_path / "made.bifxml")
        assert {v.name for v in problem.variables} == set(network.names())
        random = np.random.default_rng(seed)
        for _ in range(20):
            chosen = [int(random.integers(v.size)) for v in problem.variables]
            labels = {v.name: v.label(x) for v, x in zip(problem.variables, chosen, strict=True)}
            instance = network.completeInstantiation()
            instance.fromdict(labels)
            assert (problem.evaluate(chosen) or 0.0) == pytest.approx(network.jointProbability(instance), rel=1e-4)


@pytest.mark.parametrize(
    ("damage", "line", "message"),
    [
        (("<NETWORK>", "<NETWORKS>"), 25, "expected </NETWORKS>"),
        (("<PROPERTY>author someone</PROPERTY>", "<COMMENT/>"), 9, "found <COMMENT>, expected <VARIABLE> or"),
        (("<NAME>grass</NAME>", "<NAME>season</NAME>"), 21, "variable 'season' a second time"),
        (("<NAME>grass</NAME>", ""), 21, "without <NAME>"),
        (("<OUTCOME>very wet", "<OUTCOME>wet"), 17, "or one twice, of variable 'season'"),
        (("<OUTCOME>1</OUTCOME> <OUTCOME>0</OUTCOME>", ""), 20, "no <OUTCOME>"),
        (("0.5 0.5 1 0", "0.5 0.5 1"), 13, "found 5 probabilities of 'rain', expected 6"),
        (("0.1 0.9", "0.1 -0.9"), 13, "at least 0"),
        (("0.1 0.9", "0.1 x"), 13, "a finite number"),
        (("0.1 0.9", "0.1 nan"), 13, "a finite number"),
        (("<GIVEN>rain", "<GIVEN>rains"), 23, "found 'rains', expected a variable of the network"),
        (("<GIVEN>rain", "<GIVEN>season"), 23, "twice in the definition of 'grass'"),
        (("<FOR>grass", "<FOR>season"), 23, "twice in the definition"),
        (("<FOR>season</FOR>", "<FOR>rain</FOR>"), 22, "found 3 probabilities"),
        (("<FOR>season</FOR>", ""), 22, "without <FOR>"),
        (("<TABLE>0.5 0.25 0.25</TABLE>", ""), 22, "without <TABLE>"),
        (("<FOR>season</FOR><TABLE>0.5 0.25 0.25", "<FOR>rain</FOR><TABLE>1 0"), 22, "a second definition of 'rain'"),
        (("<DEFINITION><FOR>season</FOR><TABLE>0.5 0.25 0.25</TABLE></DEFINITION>", ""), 8, "no definition"),
        (("<!ELEMENT PROPERTY (#PCDATA)>", "<!ENTITY a 'b'>"), 3, "document types of more"),
        (("<!ELEMENT PROPERTY (#PCDATA)>", "<!ENTITY % a SYSTEM 'b'> %a;"), 3, "document types of more"),
    ],
)
def test_damage_is_refused_with_its_line(tmp_path, damage, line, message):
    assert damage[0] in SAMPLE
    with pytest.raises(FormatError, match=rf"sample.xml, line {line}: .*{message}"):
        read(path_of(tmp_path, SAMPLE.replace(*damage, 1)))


def test_circles_are_refused(tmp_path):
    given = SAMPLE.replace("<FOR>season</FOR><TABLE>", "<FOR>season</FOR><GIVEN>grass</GIVEN><TABLE>0.5 0.25 0.25 ")
    with pytest.raises(FormatError, match="go round in a circle"):
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
