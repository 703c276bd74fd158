"""Whatever happens to a file, reading it gives a problem or an error raised on purpose."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oocbe.errors import OocbeError
from oocbe.formats import read
from oocbe.formats import text as text_module
from oocbe.formats.text import Text
from oocbe.model.problem import Problem
from tests.helpers.effort import examples

VALID = {
    "spot": b"3\n0 10 3 1 0 2 902.5 3 0 9 1\n7 20 1 13 0\n2 5 2 1 0 2 0\n3\n2 0 7 1 13 3 13\n3 0 7 2 1 13 2\n90000\n",
    "uai": b"MARKOV\n3\n2 3 2\n2\n2 1 0\n2 1 2\n\n6\n 0.5 0 1e-3\n 1 2.25 0.125\n\n6\n1 2 3 4 5 6\n",
    "wcsp": b"p 3 3 9 100\n2 3 2\n-2 0 1 5 2\n0 0 7\n1 2 100\n1 1 100 2\n0 4\n1 0\n0 9 0\n3 0 1 2 0 1\n1 1 1 250\n"
    b"2 2 1 5 -1\n3 0 1 2 -1 knapsackp 2 1 1 3 2 1 1 2 5 0\n3 0 1 2 -1 samong var 7 1 2 1 1\n"
    b"2 1 0 -1 wsum quad 3 <= 1\n3 2 1 0 -1 sregular var 4 2 1 0 1 1 3 0 0 0 0 1 1 1 1 1\n",
    "bif": b"network n { property p; }\nvariable a { type discrete [ 2 ] { yes, no }; }\n// note\nvariable b {\n"
    b'type discrete[3] { x, y, "z z" };\n}\nprobability ( a ) { table 0.25, 0.75; }\n/* and */\nprobability (b|a) {\n'
    b" (yes) 0.5, 0, 0.5;\n default 1e-3 0.5 0.499;\n}\n",
    "net": b'net { name = n; }\nnode a { states = ("yes" no); position = (1 2); }\n% note\n'
    b"node b { states = (x, y, z); }\npotential (a) { data = (0.25 0.75); }\npotential ( b | a ) {\n"
    b"data = ((0.5 0 0.5)  % a=yes\n (1e-3 0.5 0.499)); }\n",
    "cfn": b'{ "problem": { "name": "p", "mustbe": "<20.5" },\n# note\n"variables": {"x": ["a", "b"], "y": 3, z: 2},\n'
    b'"functions": {\n"f": {"scope": ["x", "y"], "costs": "g"},\n "h": {scope: [z x], defaultcost: -1.5 '
    b"costs: [0 a 3, 1 1 30]}\n"
    b'"g": {"scope": [x, y] "costs": [1, 2, 3, 4, 5, 6.25]},\n'
    b'"s": {"scope": [x, z], type: sgcc params: {metric: dec, cost: 3,\n'
    b' bounds: [[0 1 1] [1, 0, 1]]}},\n"c": {"scope": [], "costs": [0.5]}} }\n',
    "lp": b"\\ note\nmax c: 2 x - .5 y + 3\nsubject to\n r: x + 2y <= 8\n -1 <= x - y <= 2\nbounds\n x <= 3\n"
    b" -1 <= y <= 2\ngeneral\n x\ny\nbin z\nend\n",
    "mps": b"NAME n\nOBJSENSE\n MAX\nROWS\n N C\n E R\n L S\nCOLUMNS\n M 'MARKER' 'INTORG'\n X C 1 R 2\n X S -1.5\n"
    b" Y R 1 S 4\n M 'MARKER' 'INTEND'\nRHS\n RHS R 3 S 8\nRANGES\n RNG R -2\nBOUNDS\n UP B X 3\n LI B Y -1\n"
    b" UI B Y 2\nENDATA\n",
    "opb": b"* #variable= 3 #constraint= 2\nmin: +1 x1 -2 ~x2 x3 ;\n+1 x1 +2 ~x2 >= 1 ;\n* note\n-3 x1 +4 x3 <= 2 ;\n",
    "qpbo": b"-3 -4\n1 1 -2\n1 2 3\n2 3 0.5\n3 3 1e2\n",
    "xml": b'<?xml version="1.0"?>\n<instance format="XCSP3" type="COP">\n<variables> <array id="x" size="[2][2]">'
    b' 0..2 </array>\n<var id="y"> 1 4..5 </var> </variables>\n<constraints> <group> <extension> <list> %0 %1 </list>\n'
    b"<supports> (0,1)(1,*)(2..2,0) </supports> </extension> <args> x[0][] </args> <args> x[][1] </args> </group>\n"
    b"<block> <sum> <list> x[][] y </list> <coeffs> 1 1 1 2 -1 </coeffs> <condition> (le,3) </condition> </sum>\n"
    b"<allDifferent> x[0][0] x[1][0] </allDifferent> </block> <!-- note --> <instantiation> <list> x[1][1] </list>\n"
    b'<values> 1 </values> </instantiation> </constraints>\n<objectives> <minimize type="sum"> <list> x[][] </list>\n'
    b"</minimize> </objectives> </instance>\n",
    "constraints.xml": b'<instance format="XCSP3" type="COP">\n<variables> <array id="x" size="[4]"> 0..2 </array>\n'
    b"</variables> <constraints>\n<intension> or(lt(x[0],add(x[1],1)),in(x[2],set(1,2))) </intension>\n"
    b"<count> <list> x[] </list> <values> 1 2 </values> <condition> (ge,x[3]) </condition> </count>\n"
    b"<regular> <list> x[] </list> <transitions> (a,0..2,b)(b,1,a)(b,2,b) </transitions> <start> a </start>\n"
    b"<final> a b </final> </regular>\n"
    b"<element> <list> x[] </list> <index> x[0] </index> <value> 1 </value> </element>\n"
    b"<cumulative> <origins> x[0..1] </origins> <lengths> 1 2 </lengths> <heights> 1 x[2] </heights>\n"
    b"<condition> (le,2) </condition> </cumulative> </constraints>\n"
    b"<objectives> <minimize> mul(x[0],x[1]) </minimize> </objectives>\n"
    b"</instance>\n",
    "xdsl": b'<smile id="n"><nodes>\n<cpt id="a"><state id="x"/><state id="y"/>\n'
    b'<probabilities>0.25 0.75</probabilities></cpt>\n<deterministic id="b"> <state id="s"/>\n'
    b'<state id="t"/> <parents>a c</parents>\n'
    b'<resultingstates>s t t s</resultingstates></deterministic> <cpt id="c"><state id="u"/> <state id="v"/>\n'
    b"<parents>a</parents><probabilities>1e-3 0.999 0 1</probabilities></cpt></nodes>\n<extensions>"
    b"<genie><node><name>A</name></node></genie></extensions></smile>\n",
    "network.xml": b'<?xml version="1.0"?>\n<!DOCTYPE BIF [ <!ELEMENT BIF (NETWORK)*> <!-- note --> ]>\n'
    b"<BIF><NETWORK>\n<NAME>n</NAME> <VARIABLE><NAME>a</NAME> <OUTCOME>x</OUTCOME> <OUTCOME>y</OUTCOME></VARIABLE>\n"
    b'<VARIABLE TYPE="nature"><NAME>b</NAME> <OUTCOME>x</OUTCOME> <OUTCOME>y</OUTCOME></VARIABLE>\n<DEFINITION>\n'
    b"<FOR>b</FOR> <GIVEN>a</GIVEN> <TABLE>0.5 0.5 1e-1 0.9</TABLE></DEFINITION> <DEFINITION><FOR>a</FOR>\n"
    b"<TABLE>0.3 0.7</TABLE></DEFINITION></NETWORK></BIF>\n",
    "frodo.xml": b'<instance>\n<presentation format="XCSP 2.1_FRODO" maximize="false"/>\n<agents> <agent name="a"/>\n'
    b'</agents> <domains>\n<domain name="D" nbValues="3">0..2</domain> </domains>\n<variables>\n'
    b'<variable name="x" domain="D" agent="a"/> <variable name="y" domain="D" agent="a"/> </variables>\n<relations>\n'
    b'<relation name="r" arity="2" semantics="soft" defaultCost="infinity">3: 0 1|1 1|2.5: 2 0</relation>\n'
    b'</relations> <constraints>\n<constraint name="c" scope="x y" reference="r"/> </constraints> </instance>\n',
    "yaml": b"objective: min\ndomains:\n  d: {values: [R, G]}\n  e:\n    values: [0 .. 2]\nvariables:\n"
    b"  x: {domain: d}\n  y: {domain: e, cost_function: 2 * y}\n"
    b"constraints:\n  c: {type: intention, function: 1 if x == 'R' else y}\n"
    b"  t:\n    type: extensional\n    variables: [x, y]\n    default: 5\n    values:\n      1: R 0 | G 1\n"
    b"agents: [a]\n",
    "cnf": b"c note\np cnf 3 3\n1 -2 0\n3 -3 0 2 1 -3 0\n%\n",
    "wcnf": b"c note\np wcnf 3 3 9\n9 1 -2 0\n4 3 0\n2 0\n",
    "new.wcnf": b"c note\nh 1 -2 0\n4 3 0\n2 0\n",
    "evid": b"2\n2 1\n0 1\n",
    "uai.gz": gzip.compress(b"MARKOV\n1\n2\n1\n1 0\n2\n0.25 0.75\n", mtime=0),
}
TOKENS = [b"-1", b"0", b"1", b"99999999999999999999", b"9223372036854775807", b"-9223372036854775808", b"nan", b"1e5",
          b"knapsack", b"x", b"-", b"+", b"", b"1\n2", b"\xff",
          b"{", b"}", b"]", b'"', b"/*", b"#", b";", b"<5", b"default",
          b"1e30", b"'MARKER'", b"~x1", b">=", b"&a;", b"<list>", b"</list>", b"0..99999999",
          b"*", b"%9", b"[]",
          b"2..1", b"|", b"if", b"**", b"&b", b"- "]  # fmt: skip


@st.composite
def mutations(draw, original: bytes) -> bytes:
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "truncate", "delete", "repeat", "token"]))
        if kind == "flip" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "truncate":
            del data[place:]
        elif kind == "delete":
            del data[place : place + draw(st.integers(1, 8))]
        elif kind == "repeat":
            data[place:place] = data[place : place + draw(st.integers(1, 8))]
        else:
            words = bytes(data).split(b" ")
            words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(TOKENS))
            data = bytearray(b" ".join(words))
    return bytes(data)


@pytest.mark.parametrize("suffix", VALID)
def test_any_damage_reads_or_is_refused(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    network = tmp_path / "network.uai"
    network.write_bytes(VALID["uai"])

    def read_it() -> Problem:
        return read(network, evidence=path) if suffix == "evid" else read(path)

    path.write_bytes(VALID[suffix])
    assert isinstance(read_it(), Problem)

    @settings(max_examples=examples(125), database=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(mutations(VALID[suffix]))
    def check(content: bytes) -> None:
        Path(path).write_bytes(content)
        try:
            problem = read_it()
        except OocbeError as error:
            assert str(path) in str(error)
        else:
            assert isinstance(problem, Problem)

    check()


@pytest.mark.parametrize("suffix", ["bif", "cfn", "spot", "uai", "wcsp"])
def test_no_truncation_loses_a_line_unnoticed(tmp_path, suffix):
    whole = VALID[suffix]
    path = tmp_path / f"p.{suffix}"
    last_line = whole.rstrip(b"\n").rindex(b"\n") + 1
    for kept in range(last_line):
        path.write_bytes(whole[:kept])
        with pytest.raises(OocbeError):
            read(path)


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-99, 99)), min_size=1), st.data())
@settings(max_examples=examples(200))
def test_integers_are_parsed_exactly_wherever_windows_end(numbers, data):
    with patch.object(text_module, "WINDOW_BYTES", data.draw(st.sampled_from([1, 2, 3, 7, 16, 2**20]))):
        check_integers(numbers, data)


def check_integers(numbers, data):
    spaces = st.sampled_from([" ", "\n", "\t", "\r\n", "  "])
    written = "".join(f"{data.draw(spaces)}{n:+d}" if n % 2 else f"{data.draw(spaces)}{n:05d}" for n in numbers)
    text = Text("p", written.encode())
    assert len(text) == len(numbers)
    assert text.integers(0, len(numbers), "a number").tolist() == numbers
    assert [text.integer(i, "a number") for i in range(len(text))] == numbers
    assert text.floats(0, len(numbers), "a number").tolist() == [float(n) for n in numbers]
    assert text.line(len(numbers) - 1) == 1 + written.count("\n")
    assert [text.word(i, "a word") for i in range(len(text))] == written.split()
    assert [written.split()[a:b] for a, b in text.rows()] == [w.split() for w in written.split("\n") if w.strip()]
    lines = [line for line, words in enumerate(written.split("\n"), 1) for _ in words.split()]
    assert [text.line(i) for i in range(len(text))] == lines
