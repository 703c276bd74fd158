"""A small file of each format, with what its readers treat apart: bounds, defaults, globals, comments, refusals."""

from __future__ import annotations

_BIF = """network garden { }
variable season { type discrete [ 3 ] { dry, wet, very_wet }; }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 2 ] { wet, dry }; }
probability ( season ) { table 0.5, 0.25, 0.25; }
probability ( rain | season ) { (dry) 0.1, 0.9; (wet) 0.5, 0.5; (very_wet) 1, 0; }
probability ( grass | rain, season ) {
  (yes, dry) 0.9, 0.1; (yes, wet) 0.8, 0.2; (yes, very_wet) 0.7, 0.3;
  (no, dry) 0.2, 0.8; (no, wet) 0.3, 0.7; (no, very_wet) 0.4, 0.6;
}
"""

_NET = """% a comment
net { node_size = (80 40); name = "garden"; }
node season { label = "the season; or so"; states = ("dry" "wet" "very wet"); }
discrete node rain { states = (1 0); subtype = number; state_values = (1 0); }
node grass { states = ( "wet" "dry" ); ID = "g"; }
potential (season) { data = ( 0.5 0.25 0.25 ); }
potential ( rain | season ) { data = ((0.1 0.9) (0.5 0.5), (1 0)); experience = (10 10 10); }
potential (grass | rain season) { data = (((0.9 0.1)(0.8 0.2)(0.7 0.3))((0.2 0.8)(0.3 0.7)(0.4 0.6))); }
"""

_XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="garden"><nodes>
  <cpt id="season"><state id="dry" /><state id="wet" /><probabilities>0.75 0.25</probabilities></cpt>
  <cpt id="rain"><state id="s1"/><state id="s0"/><parents>season</parents>
    <probabilities>0.1 0.9 0.5 0.5</probabilities></cpt>
  <deterministic id="walk"><state id="yes"/><state id="no"/><parents>rain season</parents>
    <resultingstates>no no no yes</resultingstates></deterministic>
</nodes></smile>
"""

_XMLBIF = """<?xml version="1.0"?>
<BIF VERSION="0.3"><NETWORK><NAME>garden</NAME>
<VARIABLE TYPE="nature"><NAME>season</NAME><OUTCOME>dry</OUTCOME><OUTCOME>wet</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>rain</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
<DEFINITION><FOR>season</FOR><TABLE>0.75 0.25</TABLE></DEFINITION>
<DEFINITION><FOR>rain</FOR><GIVEN>season</GIVEN><TABLE>0.1 0.9 0.5 0.5</TABLE></DEFINITION>
</NETWORK></BIF>
"""

_XCSP = """<instance format="XCSP3" type="COP">
 <variables>
  <var id="w"> 0..4 </var>
  <array id="x" size="[4]"> 1..5 </array>
  <array id="b" size="[3]"> 0 1 </array>
 </variables>
 <constraints>
  <allDifferent> x[] </allDifferent>
  <sum> <list> x[0] x[1] w </list> <coeffs> 2 1 -1 </coeffs> <condition> (le,9) </condition> </sum>
  <extension> <list> x[2] x[3] </list> <conflicts> (1,2)(2,3)(5,*) </conflicts> </extension>
  <intension> or(eq(b[0],1),gt(dist(x[0],x[3]),1)) </intension>
  <count> <list> b[] </list> <values> 1 </values> <condition> (ge,2) </condition> </count>
  <element> <list> x[] </list> <index> w </index> <condition> (ne,3) </condition> </element>
  <regular> <list> b[] </list>
   <transitions> (q,0,r)(q,1,q)(r,1,q) </transitions> <start> q </start> <final> q r </final> </regular>
 </constraints>
 <objectives>
  <minimize type="sum"> <list> x[0] x[1] w b[0] </list> <coeffs> 3 -2 1 4 </coeffs> </minimize>
 </objectives>
</instance>
"""

_FRODO = """<?xml version="1.0"?>
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
 </relations>
 <constraints nbConstraints="3">
  <constraint name="c0" arity="2" scope="x y" reference="r"/>
  <constraint name="c1" arity="2" scope="x z" reference="s"/>
  <constraint name="c2" arity="1" scope="x" reference="t"/>
 </constraints>
</instance>
"""

_YAML = """name: lights
objective: min
domains:
  colors: {values: [R, G], type: color}
  level: {values: [0 .. 3]}
variables:
  v1: {domain: colors, initial_value: R, cost_function: "-0.1 if v1 == 'R' else 0.1"}
  v2: {domain: colors}
  l1: {domain: level}
constraints:
  differ: {type: intention, function: 5 if v1 == v2 else 0}
  near: {type: intention, function: 3 * abs(l1 - 2)}
  table:
    type: extensional
    variables: [v2, l1]
    default: 7
    values: {1: R 0 | G 3, 2.5: "R 1"}
agents: [a1, a2]
distribution_hints: {must_host: {a2: [v1, differ]}}
"""

_MPS = """* a comment
NAME          sample
OBJSENSE
    MAX
ROWS
 N  COST
 E  EQ
 L  LE
 G  GE
COLUMNS
    MARKER                 'MARKER'                 'INTORG'
    X         COST              3.0    EQ                2.0
    X         LE               -1.0
    Y         EQ                1.0    GE                1e1
    Z         GE                4.0    LE                1.0
    B         LE                7.0    COST             -2.0
    MARKER                 'MARKER'                 'INTEND'
RHS
    RHS       COST             -9.0    EQ                4.0
    RHS       LE                8.0    GE               -1.0
RANGES
    RNG       LE                9.0    GE               30.0
BOUNDS
 UP BND       X                 4.0
 LO BND       Y                -3.0
 UI BND       Y                 6.0
 UP BND       Z                 2.0
 BV BND       B
ENDATA
"""

_LP = r"""\ a comment
Maximize
 value: 3 x + 2 y + 4 z + 0.5
Subject To
 room: 2 x + y + 3 z <= 7
 some: x + z >= 1
Bounds
 0 <= x <= 2
 -1 <= y <= 3
 z <= 2
General
 x y z
End
"""

_LP_REALS = r"""Minimize
 cost: 2 a - b + 3 c
Subject To
 one: a + b - c >= 2.5
 two: 0.1 a - 0.3 b <= 4
 three: -3 <= a - c <= 8.25
Bounds
 a >= 0.5
 b <= 7
 c free
General
 b
End
"""

_CFN = """{"problem": {"name": "small", "mustbe": "<100.00"},
 "variables": {"a": ["x", "y", "z"], "b": 2, "c": 3, "d": ["p", "q", "r"]},
 "functions": {
  "f": {"scope": ["a", "b"], "costs": [1.5, 0, 2.25, 7.1, 0, 3]},
  "g": {"scope": ["b", "c"], "defaultcost": 2.5, "costs": [0, 1, 0.25, 1, 2, 100]},
  "h": {"scope": ["c"], "costs": [0.5, 1.25, 0]},
  "apart": {"scope": ["a", "c", "d"], "type": "salldiff", "params": {"metric": "var", "cost": 4.5}},
  "limit": {"scope": ["a", "b", "d"], "type": "knapsack", "params": {"capacity": 2, "weights": [1, 2, 1]}}}}
"""

_WCSP = """sample 4 3 5 1000
3 2 3 3
2 0 1 0 3
0 0 12
1 1 40
2 0 1000
2 1 2 5 2
0 0 0
1 2 30
1 3 2 2
0 7
2 1
3 0 2 3 -1 salldiff var 25
2 2 3 -1 >= 1 0
"""

_WCSP_KNAPSACK = """knapsack 4 3 5 500
2 3 2 2
4 0 1 2 3 -1 knapsackp 5 1 1 2 2 1 1 2 4 1 1 3 1 1 2
1 0 0 1
1 10
1 1 0 2
1 15
2 30
1 2 0 1
1 8
1 3 0 1
1 4
"""

_SPOT = """6
0 10 2 1 0 2 0
1 5 1 3 0
2 7 2 1 0 3 0
3 9 1 2 0
4 20 3 1 0 2 0 3 0
5 2 1 13 0
4
2 1 0 3 1 2 2
2 2 1 1 3
2 3 0 2 2
3 4 2 0 1 1 1
"""

_UAI = """MARKOV
4
2 3 2 2
3
2 1 0
2 1 2
3 0 2 3

6
 0.5 0 1e-3
 1 2.25 0.125

6
1 2 3 4 5 6

8
0.3 0.7 1 0 0.25 0.5 2 1
"""

TEXTS = {
    "garden.bif": _BIF,
    "garden.net": _NET,
    "garden.xdsl": _XDSL,
    "garden.xmlbif": _XMLBIF,
    "cop.xml": _XCSP,
    "frodo.xml": _FRODO,
    "lights.yaml": _YAML,
    "sample.mps": _MPS,
    "sample.lp": _LP,
    "reals.lp": _LP_REALS,
    "small.cfn": _CFN,
    "sample.wcsp": _WCSP,
    "knapsack.wcsp": _WCSP_KNAPSACK,
    "small.spot": _SPOT,
    "markov.uai": _UAI,
    "logarithms.lg": _UAI.replace("0.5 0 1e-3", "-0.7 -1e39 -6.9"),
    "clauses.cnf": "c a comment\np cnf 5 6\n1 -2 3 0\n-1 4 0\n2 5 0\n-3 -4 -5 0\n1 2 3 4 5 0\n-2 -5 0\n",
    "projected.cnf": "c t pmc\np cnf 3 2\nc p show 1 2 0\n1 -2 3 0\n-1 2 0\n",
    "soft.wcnf": "p wcnf 4 6 50\n50 1 -2 0\n50 2 3 0\n7 -1 0\n9 -3 4 0\n3 2 0\n4 -4 -2 0\n",
    "newer.wcnf": "c a comment\nh 1 -2 0\nh 2 3 0\n7 -1 0\n9 -3 4 0\n3 2 0\n",
    "sums.opb": "* #variable= 4 #constraint= 3\nmin: 3 x1 2 ~x2 4 x1 x3 ;\n1 x1 2 x2 -3 ~x3 >= -1 ;\n"
    "-1 x1 1 x1 x2 ~x3 2 x4 <= 1 ;\n+1 x2 +1 x3 +1 x4 = 2 ;\n",
    "soft.wbo": "* #variable= 3 #constraint= 3\nsoft: 20 ;\n[5] 1 x1 1 x2 >= 2 ;\n"
    "[7] -1 x1 -1 x3 >= -1 ;\n1 x2 1 x3 >= 1 ;\n",
    "pairs.qpbo": "5 8\n1 1 -3\n1 2 4\n2 3 -5\n3 3 2\n4 5 -7\n2 5 6\n4 4 1\n1 5 -2\n",
    "signs.qpbo": "-4 5\n1 2 3\n2 3 -4\n3 4 2\n1 1 1\n4 1 -6\n",
    "broken.wcsp": "broken 2 2 1 10\n2 2\n2 0 1 0 1\n0 5 3\n",
    "unsupported.wcsp": "globals 3 2 1 100\n2 2 2\n3 0 1 2 -1 sregular edit 5 2\n",
    "free.lp": "Minimize\n obj: x\nSubject To\n c: x + y >= 1\nGeneral\n x y\nEnd\n",
}
"""Texts by file name; some are refused, and what the refusal says is recorded."""

EVIDENCE = "2 0 1 2 0\n"
"""Evidence of ``markov.uai``: as in the competitions, a number of observations and pairs."""
