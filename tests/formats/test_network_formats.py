"""Belief networks in several formats: those of another program mean the same, and damage is refused with its line."""

from __future__ import annotations

import numpy as np
import pytest

from oocbe.errors import FormatError
from oocbe.formats import read
from tests.formats.test_net_format import SAMPLE as NET
from tests.formats.test_xdsl_format import SAMPLE as XDSL
from tests.formats.test_xmlbif_format import SAMPLE as XMLBIF

SAMPLES = {"net": NET, "xdsl": XDSL, "xml": XMLBIF}
"""A whole network, by suffix."""

DAMAGE = {
    "net": [
        (("node season", "mode season"), 8, "expected net, node or potential"),
        (("(80 40);", "(80 40)"), 5, "expected ';'"),
        (('states = ("dry" "wet" "very wet");', ""), 8, "has no states"),
        (('"very wet"', '"wet"'), 12, "one twice"),
        (("node grass", "node rain"), 15, "a second time"),
        (("(0.5 0.5), (1 0)", "(0.5 0.5), (1)"), 19, "found 5 probabilities of 'rain', expected 6"),
        (("(0.1 0.9)", "(0.1 -0.9)"), 19, "at least 0"),
        (("(0.1 0.9)", "(0.1 x)"), 19, "a finite number"),
        (("grass | rain season", "grass | rain seasons"), 23, "a node that was declared before"),
        (("grass | rain season", "grass | rain rain"), 23, "twice in a potential"),
        (("potential (grass | rain", "potential (rain | grass"), 23, "a second potential"),
        (("potential (season) { data", "potential (season | grass) { data"), 16, "found 3 probabilities"),
        (('"garden"', '"garden'), 5, "does not end"),
    ],
    "xdsl": [
        (("<smile", "<smiles"), 25, "expected </smiles>"),
        (('id="season"', 'id="rain"'), 14, "node 'rain' a second time"),
        (('<state id="dry" /><state id="wet" />', '<state id="wet" /><state id="wet" />'), 12, "or one twice"),
        (("rain season", "rain seasons"), 7, "found 'seasons', expected a node"),
        (("rain season", "rain rain"), 5, "found a node twice"),
        (("rain season", "rain grass"), 5, "node 'grass' itself"),
        (("0.7 0.3\n", "0.7\n"), 8, "found 11 probabilities of 'grass', expected 12"),
        (("0.3 0.7 0.4", "0.3 -0.7 0.4"), 9, "at least 0"),
        (("0.3 0.7 0.4", "0.3 much 0.4"), 9, "a probability of 'grass'"),
        (("<parents>season</parents>", "<parents>walk</parents>"), 15, "found 6 probabilities of 'rain', expected 4"),
        (("no no no yes", "no no no"), 17, "found 3 resulting states of 'walk', expected 4"),
        (("no no no yes", "no no no maybe"), 17, "found 'maybe', expected a state of 'walk'"),
        (("<probabilities>0.5 0.25 0.25</probabilities>", ""), 12, "without <probabilities>"),
    ],
    "xml": [
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
}
"""By suffix: what is replaced by what, the line of the error, and a part of its text."""


@pytest.mark.parametrize(
    ("suffix", "damage", "line", "message"), [(suffix, *one) for suffix, listed in DAMAGE.items() for one in listed]
)
def test_damage_is_refused_with_its_line(suffix, damage, line, message, tmp_path):
    path = tmp_path / f"sample.{suffix}"
    path.write_text(SAMPLES[suffix].replace(*damage, 1))
    assert path.read_text() != SAMPLES[suffix]
    with pytest.raises(FormatError, match=rf"sample\.{suffix}, line {line}: .*{message}"):
        read(path)


@pytest.mark.parametrize("suffix", ["net", "xdsl", "bifxml"])
def test_the_same_as_another_reader(suffix, tmp_path):
    gum = pytest.importorskip("pyagrum")
    for seed in range(5):
        gum.initRandom(seed + 1)
        network = gum.fastBN("a[3]->b{x|y|z}->c<-a->d[4];c->e<-d<-b", 2)
        gum.saveBN(network, str(tmp_path / f"made.{suffix}"))
        problem = read(tmp_path / f"made.{suffix}")
        assert {v.name for v in problem.variables} == set(network.names())
        random = np.random.default_rng(seed)
        for _ in range(20):
            chosen = [int(random.integers(v.size)) for v in problem.variables]
            labels = {v.name: v.label(x) for v, x in zip(problem.variables, chosen, strict=True)}
            instance = network.completeInstantiation()
            instance.fromdict(labels)
            assert (problem.evaluate(chosen) or 0.0) == pytest.approx(network.jointProbability(instance), rel=1e-4)
