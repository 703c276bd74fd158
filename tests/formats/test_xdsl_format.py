"""Reading GeNIe's networks: meaning, parents of another program's files, and refusals by node."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read

SAMPLE = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="garden" numsamples="10000" discsamples="10000">
  <properties><property id="author">someone</property></properties>
  <nodes>
    <cpt id="grass" diagtype="observation" ranked="true">
      <state id="wet" label="F1" /><state id="dry" />
      <parents>rain season</parents>
      <probabilities>0.9 0.1 0.8 0.2 0.7 0.3
        0.2 0.8 0.3 0.7 0.4 0.6</probabilities>
      <property id="P">text</property>
    </cpt>
    <cpt id="season" ><state id="dry" /><state id="wet" /><state id="very_wet" />
      <probabilities>0.5 0.25 0.25</probabilities></cpt>
    <cpt id="rain"><state id="s1"/><state id="s0"/><parents>season</parents>
      <probabilities>0.1 0.9 0.5 0.5 1 0</probabilities></cpt>
    <deterministic id="walk"><state id="yes"/><state id="no"/><parents>rain grass</parents>
      <resultingstates>no no no yes</resultingstates></deterministic>
  </nodes>
  <observationcosts><node id="grass"><cost>1</cost></node></observationcosts>
  <extensions>
    <genie version="1.0" app="GeNIe 4.1" name="Garden" faultnameformat="nodestate">
      <node id="rain"><name>Rain &amp; snow</name><position>1 2 3 4</position><comment>Table</comment></node>
    </genie>
  </extensions>
</smile>
"""


def path_of(tmp_path, text, name="sample.xdsl"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["sample.xdsl", "sample.xml"])
def test_meaning(tmp_path, name):
    problem = read(path_of(tmp_path, SAMPLE, name))
    assert [(v.name, v.labels) for v in problem.variables] == [
        ("grass", ("wet", "dry")),
        ("season", ("dry", "wet", "very_wet")),
        ("rain", ("s1", "s0")),
        ("walk", ("yes", "no")),
    ]
    assert problem.name == "garden"
    rain = [[0.1, 0.9], [0.5, 0.5], [1, 0]]
    grass = [[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [[0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]]  # the last parent fastest
    for g, s, r, w in itertools.product(range(2), range(3), range(2), range(2)):
        walks = r == g == 1
        expected = [0.5, 0.25, 0.25][s] * rain[s][r] * grass[r][s][g] * (walks == (w == 0))
        assert (problem.evaluate((g, s, r, w)) or 0) == pytest.approx(expected)
    answer = oocbe.marginals(problem, evidence="walk=yes")
    assert answer.marginals_by_name["grass"] == {"wet": 0, "dry": 1}


def test_files_that_pyagrum_wrote_have_the_first_parent_fastest(tmp_path):
    theirs = SAMPLE.replace('app="GeNIe 4.1"', 'app="aGrUM 3.3.1"').replace("rain season<", "season rain<")
    theirs = theirs.replace("rain grass<", "grass rain<")
    one, other = read(path_of(tmp_path, SAMPLE)), read(path_of(tmp_path, theirs, "theirs.xdsl"))
    for row in np.ndindex(2, 3, 2, 2):
        assert one.evaluate(row) == other.evaluate(row)


def test_parents_in_a_circle_are_refused(tmp_path):
    text = SAMPLE.replace("0.5 0.25 0.25</prob", "0.5 0.25 0.25 0.5 0.25 0.25</prob")
    text = text.replace('<state id="very_wet" />', '<state id="very_wet" /><parents>walk</parents>')
    with pytest.raises(FormatError, match="form a cycle"):
        read(path_of(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<cpt id="season" >', '<noisymax id="season">', "line 12: node 'season', a <noisymax>,"),
        ('<cpt id="season" >', '<noisyadder id="season">', "node 'season', a <noisyadder>"),
        ('<cpt id="season" >', '<decision id="season">', "node 'season', a <decision>"),
        ('<cpt id="season" >', '<utility id="season">', "node 'season', a <utility>"),
        ('<cpt id="season" >', '<equation id="season">', "node 'season', a <equation>"),
        ('<cpt id="season" >', '<cpt id="season" dynamic="plate">', "node 'season' of a dynamic network"),
        ("<nodes>", '<dynamic numslices="3"></dynamic><nodes>', "<dynamic> in a network"),
        ('<property id="P"', '<weights>1</weights><property id="P"', "<weights> of node 'grass'"),
    ],
)
def test_what_is_not_read_is_named_with_its_node(tmp_path, old, new, message):
    assert old in SAMPLE
    text = SAMPLE.replace(old, new, 1)
    tag = new.partition(" ")[0].lstrip("<")
    if old.startswith("<cpt") and tag != "cpt":
        head, _, tail = text.partition(new)
        text = head + new + tail.replace("</cpt>", f"</{tag}>", 1)
    with pytest.raises(UnsupportedError, match=message):
        read(path_of(tmp_path, text))
