"""FRODO's XCSP 2.1: read and written with agents, refused with the line where it is malformed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oocbe
from oocbe.dcop import Dcop, dpop, read_dcop
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import write
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import MAX_SUM, MIN_SUM

WHOLE = """<?xml version="1.0"?>
<instance>
 <presentation name="?" maxConstraintArity="2" maximize="false" format="XCSP 2.1_FRODO"/>
 <agents nbAgents="2"><agent name="a"/><agent name="b"/></agents>
 <domains nbDomains="2"><domain name="D" nbValues="3">1..2 7</domain>
  <domain name="C" nbValues="2">R G</domain></domains>
 <variables nbVariables="3">
  <variable name="x" domain="D" agent="a"/>
  <variable name="y" domain="C" agent="b"/>
  <variable name="z" domain="D" agent="a"/>
 </variables>
 <relations nbRelations="3">
  <relation name="r" arity="2" nbTuples="4" semantics="soft">3: 1 R|2 R|-1: 7 G|infinity: 1 G</relation>
  <relation name="s" arity="2" nbTuples="2" semantics="soft" defaultCost="4">0: 1 1| infinity: 2 2</relation>
  <relation name="t" arity="1" nbTuples="1" semantics="conflicts">7</relation>
  <relation name="u" arity="1" nbTuples="2" semantics="supports">1|2</relation>
 </relations>
 <constraints nbConstraints="4">
  <constraint name="c0" arity="2" scope="x y" reference="r"/>
  <constraint name="c1" arity="2" scope="x z" reference="s"/>
  <constraint name="c2" arity="1" scope="x" reference="t"/>
  <constraint name="c3" arity="1" scope="z" reference="u"/>
 </constraints>
</instance>
"""


def test_everything_is_read(tmp_path):
    (tmp_path / "p.xml").write_text(WHOLE)
    dcop = read_dcop(tmp_path / "p.xml")
    assert (dcop.agents, dcop.owner, dcop.problem.name) == (("a", "b"), (0, 1, 0), "p")
    assert [v.labels for v in dcop.problem.variables] == [("1", "2", "7"), ("R", "G"), ("1", "2", "7")]
    evaluate = dcop.problem.evaluate
    assert evaluate([0, 0, 0]) == 3  # 1 R costs 3, 1 1 nothing
    assert evaluate([1, 0, 0]) == 7
    assert evaluate([1, 0, 1]) is None
    assert evaluate([0, 1, 0]) is None
    assert evaluate([2, 1, 0]) is None
    assert evaluate([0, 0, 2]) is None
    assert dpop(dcop).value == 3


EXPRESSIONS = (
    WHOLE.replace(
        " <constraints nb",
        """ <predicates nbPredicates="1"> <predicate name="p"> <parameters> int A int B int k </parameters>
  <expression> <functional> or(gt(A,add(B,k)), eq(A,7)) </functional> </expression> </predicate> </predicates>
 <functions> <function name="f" return="int"> <parameters>int A int B</parameters>
  <expression><functional>mul(abs(sub(A,B)),3)</functional></expression> </function> </functions>
 <constraints nb""",
    )
    .replace(
        '<constraint name="c0"',
        """<constraint name="e0" arity="2" scope="z x" reference="p"> <parameters>x z -1</parameters> </constraint>
  <constraint name="e1" arity="2" scope="x z" reference="f"><parameters> x z </parameters></constraint>
  <constraint name="c0\"""",
    )
    .replace('reference="t"', 'reference="u"')
)


def test_predicates_and_functions(tmp_path):
    """They were refused; FRODO's own generators write them."""
    (tmp_path / "p.xml").write_text(EXPRESSIONS)
    dcop = read_dcop(tmp_path / "p.xml")
    (tmp_path / "q.xml").write_text(WHOLE.replace('reference="t"', 'reference="u"'))
    plain = read_dcop(tmp_path / "q.xml").problem
    found = 0
    for row in itertools.product(range(3), range(2), range(3)):
        x, z = (1, 2, 7)[row[0]], (1, 2, 7)[row[2]]
        before = plain.evaluate(row)
        expected = None if before is None or not (x > z - 1 or x == 7) else before + 3 * abs(x - z)
        assert dcop.problem.evaluate(row) == expected
        found += expected is not None
    assert found > 0
    assert dpop(dcop).value == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("int A int B int k", "int A int B bool k", "line 18: found the parameters"),
        ("int A int B int k", "int A int A int k", "line 18: found a parameter twice"),
        ("eq(A,7)", "eq(A,Q)", "line 18: found 'Q', expected one of the parameters"),
        ("eq(A,7)", "eq(A,7", "line 18: found no"),
        ("x z -1", "x z", "line 23: found 2 parameters, expected 3"),
        ("x z -1", "x z y", "line 23: found the parameter 'y'"),
        ("mul(abs", "div(abs", None),
        ("mul(abs(sub(A,B)),3)", "div(A,sub(B,2))", "line 24: a division that may be by zero is not supported"),
        ('scope="x z" reference="f"', 'scope="x y" reference="f"', "line 24: found the parameter 'z'"),
        ("mul(abs(sub(A,B)),3)", "cut(A)", "line 24: the operator cut is not supported"),
    ],
)
def test_malformed_expressions(tmp_path, old, new, message):
    (tmp_path / "p.xml").write_text(EXPRESSIONS.replace(old, new, 1))
    if message is None:
        assert read_dcop(tmp_path / "p.xml").problem.variables
        return
    with pytest.raises((FormatError, UnsupportedError), match=message):
        read_dcop(tmp_path / "p.xml")


def test_what_is_written_reads_back(tmp_path):
    random = np.random.default_rng(5)
    variables = (Variable("x<1", 3, ("a", "b&", "c")), Variable("y", 2), Variable("z", 4, ("3", "4", "5", "6")))
    functions = (
        Function.from_array((0, 1, 2), random.random((3, 2, 4))),
        Function((1, 2), [[0, 1]], np.array([2]), default=-1),
        Function((0, 2), [[0, 1], [1, 1], [2, 0]], np.array([1, 2, 3])),
    )
    hard = (Constraint((0,), [[1]]),)
    for semiring in (MIN_SUM, MAX_SUM):
        dcop = Dcop(Problem(variables, functions, hard, constant=2, semiring=semiring), ("a", "b"), (1, 0, 1))
        write(dcop, tmp_path / "p.xml.gz")
        again = read_dcop(tmp_path / "p.xml.gz")
        assert (again.agents, again.owner) == (dcop.agents, dcop.owner)
        assert [v.label(v.size - 1) for v in again.problem.variables] == ["c", "1", "6"]
        for assignment in np.ndindex(3, 2, 4):
            expected = dcop.problem.evaluate(assignment)
            found = again.problem.evaluate(assignment)
            assert found == (expected if expected is None else pytest.approx(expected, rel=1e-12))


def test_names_that_cannot_be_written(tmp_path):
    with pytest.raises(UnsupportedError, match="the name 'x 1' has white space"):
        write(Problem((Variable("x 1", 2),)), tmp_path / "p.xml")


MALFORMED = [
    ('name="x" domain="D" agent="a"', 'name="x" domain="D"', 8, "variable x has no agent, expected one of a, b"),
    ('domain="D" agent="a"', 'domain="D" agent="c"', 8, "variable x has the agent 'c', expected one of a, b"),
    ('"x" domain="D"', '"x" domain="E"', 8, "variable x has the domain 'E', expected one of D, C"),
    ('variable name="y"', 'variable name="x"', 9, "found a second variable x"),
    ('agent name="b"', 'agent name="a"', 4, "found an agent twice"),
    ('"D" nbValues="3"', '"D" nbValues="4"', 5, "found 3, expected nbValues='4'"),
    ("1..2 7", "2..1 7", 5, "found the range '2..1'"),
    ("1..2 7", "1..1000000 2000000..3000000", 5, "the range '2000000..3000000', expected 1,048,576 values in all"),
    ("1..2 7", "1..2 2", 5, "found no value, or one twice"),
    ('nbTuples="4"', 'nbTuples="5"', 13, "found 4, expected nbTuples='5'"),
    ("3: 1 R|", "1 R|", 13, "with no cost before it"),
    ("3: 1 R|", "much: 1 R|", 13, "found the cost 'much', expected a number or infinity"),
    ("3: 1 R|", "-infinity: 1 R|", 13, "expected none that is infinitely good"),
    ("3: 1 R|", "3: 1 R R|", 13, "found the tuple '1 R R' with 3 values"),
    ("3: 1 R|", "3: 1 B|", 13, "constraint c0: y has no value 'B'"),
    ("3: 1 R|2 R", "3: 1 R|1 R", 13, "constraint c0: found a tuple twice"),
    ('arity="1" nbTuples="1" semantics', 'arity="none" nbTuples="1" semantics', 15, "found the arity 'none'"),
    ('reference="r"', 'reference="q"', 19, "constraint c0 refers to 'q', which is no relation"),
    ('scope="x y"', 'scope="x w"', 19, "constraint c0: found 'w' in its scope"),
    ('scope="x y"', 'scope="x"', 19, "has the scope 'x', expected 2 different variables"),
    ("<agents", "<agent2", None, "agent"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MALFORMED)
def test_malformed(tmp_path, old, new, line, message):
    assert old in WHOLE
    (tmp_path / "p.xml").write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(FormatError, match=message) as caught:
        read_dcop(tmp_path / "p.xml")
    assert str(tmp_path / "p.xml") in str(caught.value)
    assert line is None or caught.value.line == line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('reference="r"/>', 'reference="global:allDifferent"/>', r"line 19: constraint c0 \(global:allDifferent\)"),
        (
            'semantics="conflicts"',
            'semantics="fuzzy"',
            "line 15: <relation> with the semantics 'fuzzy' is not supported",
        ),
    ],
)
def test_parts_that_are_not_read(tmp_path, old, new, message):
    (tmp_path / "p.xml").write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(UnsupportedError, match=message):
        read_dcop(tmp_path / "p.xml")


def test_a_file_of_frodo_without_a_format(tmp_path):
    """A presentation without a format, utilities without a default, an arity that tuples have not: FRODO solves it."""
    (tmp_path / "p.xml").write_text(
        '<instance>\n <presentation maximize="true" />\n <agents nbAgents="1"><agent name="a"/></agents>\n'
        ' <domains nbDomains="1"><domain name="D" nbValues="2">1 2</domain></domains>\n'
        ' <variables nbVariables="1"><variable name="V" domain="D" agent="a"/></variables>\n'
        ' <relations nbRelations="1"><relation name="R" arity="2" nbTuples="1" semantics="soft">4:1</relation>'
        "</relations>\n"
        ' <constraints nbConstraints="1"><constraint name="C" arity="1" scope="V" reference="R"/></constraints>\n'
        "</instance>\n"
    )
    dcop = read_dcop(tmp_path / "p.xml")
    assert (dcop.agents, dcop.owner, dcop.problem.semiring) == (("a",), (0,), oocbe.MAX_SUM)
    assert [dcop.problem.evaluate([x]) for x in range(2)] == [4, None]


PLAIN = """<instance>
<presentation maxConstraintArity="2" format="XCSP 2.1" type="WCSP"/>
<domains nbDomains="1"><domain name="D" nbValues="3">0..2</domain></domains>
<variables nbVariables="2"><variable name="x" domain="D"/><variable name="y" domain="D"/></variables>
<relations nbRelations="2">
<relation name="R" arity="2" nbTuples="4" semantics="soft" defaultCost="2">9:0 0|5:0 1|1 1|infinity:2 2</relation>
<relation name="S" arity="1" nbTuples="1" semantics="conflicts">1</relation>
</relations>
<constraints nbConstraints="2" maximalCost="9" initialCost="3">
<constraint name="c" arity="2" scope="x y" reference="R"/>
<constraint name="d" arity="1" scope="y" reference="S"/>
</constraints>
</instance>
"""


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ('maximalCost="9" initialCost="3"', [None, None, 5, 5, None, 5, 5, None, None]),
        ('maximalCost="9"', [None, None, 2, 2, None, 2, 2, None, None]),
        ('maximalCost="infinity"', [9, None, 2, 2, None, 2, 2, None, None]),
        ('initialCost="3" maximalCost="5"', [None] * 9),
        ("", [9, None, 2, 2, None, 2, 2, None, None]),
    ],
)
def test_weighted_problems_without_agents(tmp_path, limits, expected):
    (tmp_path / "p.xml").write_text(PLAIN.replace('maximalCost="9" initialCost="3"', limits))
    problem = oocbe.read_model(tmp_path / "p.xml")
    assert isinstance(problem, Problem)
    assert [problem.evaluate(row) for row in np.ndindex(3, 3)] == expected
    best = min((value for value in expected if value is not None), default=None)
    assert oocbe.solve(tmp_path / "p.xml", order_seconds=0).value == best


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('type="WCSP"', 'type="QCSP"', UnsupportedError, "line 2: the type QCSP is not supported"),
        ('type="WCSP"', 'maximize="true"', FormatError, "line 6: .*infinitely good"),
        ("9:0 0", "-9:0 0", UnsupportedError, "line 9: maximalCost='9' of utilities, or beside costs below 0"),
        ('maximalCost="9"', 'maximalCost="much"', FormatError, "line 9: found the cost 'much'"),
        ('name="x" domain="D"', 'name="x" domain="D" agent="a"', FormatError, "line 4: .*expected <agents> that list"),
        ("<relations", "<quantification><block/></quantification><relations", UnsupportedError, "<quantification>"),
        ("<relations", "<objectives/><relations", UnsupportedError, "line 5: <objectives> is not supported"),
    ],
)
def test_what_is_not_read_of_problems_without_agents(tmp_path, old, new, error, message):
    assert old in PLAIN
    (tmp_path / "p.xml").write_text(PLAIN.replace(old, new, 1))
    with pytest.raises(error, match=message):
        oocbe.read(tmp_path / "p.xml")


def test_limits_of_costs_count_beside_agents_as_well(tmp_path):
    with_agents = PLAIN.replace("<domains", '<agents nbAgents="1"><agent name="a"/></agents>\n<domains')
    (tmp_path / "p.xml").write_text(with_agents.replace('domain="D"/>', 'domain="D" agent="a"/>'))
    dcop = read_dcop(tmp_path / "p.xml")
    assert (dcop.problem.constant, dcop.problem.upper_bound, dcop.agents) == (3, 9, ("a",))
