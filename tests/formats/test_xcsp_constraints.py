"""XCSP3's constraints that become tables, sums and variables for what is in between: all that each allows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

import oocbe
from oocbe.errors import FormatError
from oocbe.formats import global_costs, read, read_model, xcsp, xcsp_relations
from oocbe.model.parts import Constraint

VARIABLES = '<array id="x" size="[4]"> 0..2 </array> <var id="y"> -1 0 2 </var> <var id="b"> 0 1 </var>'
DOMAINS = [range(3)] * 4 + [(-1, 0, 2), (0, 1)]


def instance(tmp_path, constraints, objective="", variables=VARIABLES):
    path = tmp_path / "sample.xml"
    path.write_text(
        f'<instance format="XCSP3" type="CSP">\n<variables> {variables} </variables>\n<constraints>\n{constraints}\n'
        f"</constraints>\n{objective}</instance>\n"
    )
    return path


def permitted(constraint):
    """A function that says whether a constraint permits the values of its variables, by a look at its rows."""
    rows = set(map(tuple, constraint.tuples.tolist()))
    return lambda values: (tuple(values[v] for v in constraint.scope) in rows) == constraint.allowed


def solutions(problem, count):
    """Values of the first variables in every solution, with the objective; the other variables have one value each."""
    sizes = problem.sizes
    permits = [(linear.scope, linear.permits) for linear in problem.linear_constraints]
    permits += [(constraint.scope, permitted(constraint)) for constraint in problem.constraints]
    after = [[does for scope, does in permits if max(scope, default=0) == v] for v in range(len(sizes))]
    found = {}

    def search(assignment):
        v = len(assignment)
        if v == len(sizes):
            key = tuple(int(own.label(a)) for own, a in zip(problem.variables[:count], assignment, strict=False))
            assert key not in found, "a solution is there twice"
            found[key] = problem.evaluate(assignment)
            return
        for value in range(sizes[v]):
            trial = [*assignment, value]
            if all(does(trial) for does in after[v]):
                search(trial)

    search([])
    return found


@pytest.fixture(params=["tables", "parts"])
def sizes(request, monkeypatch):
    """Relations as tables, and then with so little room that they are taken apart."""
    if request.param == "parts":
        reader = xcsp._XcspReader
        monkeypatch.setattr(xcsp, "_XcspReader", lambda text, root, is_whole: reader(text, root, is_whole=False))
        monkeypatch.setattr(xcsp_relations, "SMALL_TABLE", 4)
        monkeypatch.setattr(xcsp_relations, "SHORT_TABLE", 4)
        monkeypatch.setattr(xcsp_relations, "DENSE_TABLE", 16)
        monkeypatch.setattr(xcsp_relations, "MOST_CELLS", 24)
        monkeypatch.setattr(xcsp_relations, "MOST_OF_MANY", 9)
        monkeypatch.setattr(global_costs, "MOST_CELLS", 4)


def towards_zero(a, b):
    return int(a / b)


def is_circuit(following):
    """Whether all that do not follow themselves are one round."""
    moving = [v for v, then in enumerate(following) if v != then]
    if not moving or sorted(following) != list(range(len(following))):
        return False
    round_ = [moving[0]]
    while following[round_[-1]] != moving[0]:
        round_.append(following[round_[-1]])
    return len(round_) == len(moving)


INTENSIONS = [
    ("eq(add(x[0],x[1]),x[2])", lambda a, b, c, d, y, z: a + b == c),
    ("eq(x[0],x[1],x[2])", lambda a, b, c, d, y, z: a == b == c),
    ("le(mul(x[0],y),sub(x[1],1))", lambda a, b, c, d, y, z: a * y <= b - 1),
    ("gt(dist(x[0],y),abs(neg(x[1])))", lambda a, b, c, d, y, z: abs(a - y) > abs(b)),
    ("eq(mod(y,2),x[0])", lambda a, b, c, d, y, z: y - 2 * towards_zero(y, 2) == a),
    ("eq(div(y,2),x[0])", lambda a, b, c, d, y, z: towards_zero(y, 2) == a),
    ("ge(pow(x[0],x[1]),sqr(y))", lambda a, b, c, d, y, z: a**b >= y * y),
    ("or(eq(x[0],y),and(lt(x[1],x[2]),not(b)))", lambda a, b, c, d, y, z: a == y or (b < c and not z)),
    ("or(gt(x[0],1),gt(x[1],1),gt(x[2],1),gt(x[3],1),b)", lambda a, b, c, d, y, z: max(a, b, c, d) > 1 or z),
    ("not(or(eq(x[0],x[1]),eq(x[2],x[3])))", lambda a, b, c, d, y, z: a != b and c != d),
    ("imp(eq(x[0],x[1],b),gt(x[2],0))", lambda a, b, c, d, y, z: not a == b == z or c > 0),
    ("imp(b,ne(x[0],x[1]))", lambda a, b, c, d, y, z: not z or a != b),
    ("iff(b,eq(x[0],x[1]))", lambda a, b, c, d, y, z: bool(z) == (a == b)),
    ("iff(b,eq(x[0],x[1]),lt(x[2],x[3]))", lambda a, b, c, d, y, z: bool(z) == (a == b) == (c < d)),
    ("xor(b,lt(x[0],x[1]),eq(x[2],y))", lambda a, b, c, d, y, z: (z + (a < b) + (c == y)) % 2),
    ("in(add(x[0],y),set(1,3))", lambda a, b, c, d, y, z: a + y in (1, 3)),
    ("notin(x[0],set(0,2))", lambda a, b, c, d, y, z: a not in (0, 2)),
    ("eq(if(b,x[0],x[1]),max(x[2],min(x[3],y)))", lambda a, b, c, d, y, z: (a if z else b) == max(c, min(d, y))),
    ("le(add(x[0],x[1],x[2],x[3],mul(3,b)),4)", lambda a, b, c, d, y, z: a + b + c + d + 3 * z <= 4),
    ("ne(mul(x[0],x[1]),mul(x[2],x[3]))", lambda a, b, c, d, y, z: a * b != c * d),
    ("b", lambda a, b, c, d, y, z: z),
    ("eq(div(y,sub(mul(2,b),1)),x[0])", lambda a, b, c, d, y, z: y * (2 * z - 1) == a),
    ("eq(mod(x[0],add(x[1],-3)),x[2])", lambda a, b, c, d, y, z: a % (3 - b) == c),
]
CONSTRAINTS = [
    ("<clause> b not(eq(x[0],1)) </clause>", lambda a, b, c, d, y, z: z or a != 1),
    (
        "<sum> <list> x[] eq(y,2) </list> <coeffs> 1 2 -1 1 3 </coeffs> <condition> (ne,4) </condition> </sum>",
        lambda a, b, c, d, y, z: a + 2 * b - c + d + 3 * (y == 2) != 4,
    ),
    (
        "<sum> <list> x[0] x[1] </list> <coeffs> y b </coeffs> <condition> (ge,x[3]) </condition> </sum>",
        lambda a, b, c, d, y, z: a * y + b * z >= d,
    ),
    ("<sum> <list> x[] y </list> <condition> (in,{1,4,7}) </condition> </sum>", lambda *v: sum(v[:5]) in (1, 4, 7)),
    ("<sum> <list> x[] y </list> <condition> (notin,2..5) </condition> </sum>", lambda *v: not 2 <= sum(v[:5]) <= 5),
    (
        "<count> <list> x[] </list> <values> 1 2 </values> <condition> (le,y) </condition> </count>",
        lambda a, b, c, d, y, z: sum(v in (1, 2) for v in (a, b, c, d)) <= y,
    ),
    (
        "<count> <list> x[] </list> <values> y b </values> <condition> (eq,2) </condition> </count>",
        lambda a, b, c, d, y, z: sum(v in (y, z) for v in (a, b, c, d)) == 2,
    ),
    (
        "<nValues> <list> x[] y </list> <condition> (eq,3) </condition> </nValues>",
        lambda a, b, c, d, y, z: len({a, b, c, d, y}) == 3,
    ),
    (
        "<nValues> <list> x[] y </list> <condition> (ne,3) </condition> </nValues>",
        lambda a, b, c, d, y, z: len({a, b, c, d, y}) != 3,
    ),
    (
        "<nValues> <list> x[] y </list> <except> 0 </except> <condition> (lt,b) </condition> </nValues>",
        lambda a, b, c, d, y, z: len({a, b, c, d, y} - {0}) < z,
    ),
    (
        "<cardinality> <list> x[] </list> <values> 0 1 </values> <occurs> 1..2 b </occurs> </cardinality>",
        lambda a, b, c, d, y, z: 1 <= [a, b, c, d].count(0) <= 2 and [a, b, c, d].count(1) == z,
    ),
    (
        '<cardinality> <list> x[] y </list> <values closed="true"> 0 2 </values> <occurs> 2 3 </occurs> </cardinality>',
        lambda *v: sorted(v[:5]) == [0, 0, 2, 2, 2],
    ),
    ("<allDifferent> add(x[0],1) x[1] y </allDifferent>", lambda a, b, c, d, y, z: len({a + 1, b, y}) == 3),
    (
        "<allDifferent> <list> x[] y </list> <except> 0 2 </except> </allDifferent>",
        lambda a, b, c, d, y, z: all(p != q or p in (0, 2) for p, q in itertools.combinations((a, b, c, d, y), 2)),
    ),
    (
        "<allDifferent> <list> x[0..1] </list> <list> x[2..3] </list> <list> y b </list> </allDifferent>",
        lambda a, b, c, d, y, z: len({(a, b), (c, d), (y, z)}) == 3,
    ),
    (
        "<allDifferent> <list> x[0..1] </list> <list> x[2..3] </list> <except> (0,0)(1,2) </except> </allDifferent>",
        lambda a, b, c, d, y, z: (a, b) != (c, d) or (a, b) in ((0, 0), (1, 2)),
    ),
    (
        "<allDifferent> <matrix> (x[0],x[1])(x[2],x[3]) </matrix> </allDifferent>",
        lambda a, b, c, d, y, z: a != b and c != d and a != c and b != d,
    ),
    ("<allEqual> x[0] x[1] y </allEqual>", lambda a, b, c, d, y, z: a == b == y),
    (
        "<ordered> <list> x[0] x[1] y </list> <operator> lt </operator> </ordered>",
        lambda a, b, c, d, y, z: a < b < y,
    ),
    (
        "<ordered> <list> x[0] x[1] y </list> <lengths> 1 b </lengths> <operator> le </operator> </ordered>",
        lambda a, b, c, d, y, z: a + 1 <= b and b + z <= y,
    ),
    ('<ordered case="decreasing"> <list> x[] </list> </ordered>', lambda a, b, c, d, y, z: a >= b >= c >= d),
    (
        "<maximum> <list> x[] </list> <condition> (eq,y) </condition> </maximum>",
        lambda a, b, c, d, y, z: max(a, b, c, d) == y,
    ),
    ("<maximum> <list> x[] </list> <condition> (le,y) </condition> </maximum>", lambda *v: max(v[:4]) <= v[4]),
    ("<minimum> <list> x[] y </list> <condition> (ne,b) </condition> </minimum>", lambda *v: min(v[:5]) != v[5]),
    ("<minimum> <list> x[] </list> <condition> (gt,b) </condition> </minimum>", lambda *v: min(v[:4]) > v[5]),
    (
        '<extension type="hybrid-1"> <list> x[0..2] y </list> <supports> (0,{1, 2},*,≠0)(1..2,∁{1},≤1,﹥-1) </supports>'
        " </extension>",
        lambda a, b, c, d, y, z: (a == 0 and b in (1, 2) and y) or (a >= 1 and b != 1 and c <= 1 and y > -1),
    ),
    (
        '<extension type="hybrid-2"> <list> x[] y </list> <conflicts> (≥1,c0,≠c1,*,﹤c2-1)(c1+c2,*,≤c4,=2,∁0..1)'
        " </conflicts> </extension>",
        lambda a, b, c, d, y, z: (
            not (a >= 1 and b == a and c != b and y < c - 1)
            and not (a == b + c and c <= y and d == 2 and y not in (0, 1))
        ),
    ),
    (
        '<maximumArg rank="first"> <list> x[] </list> <condition> (eq,y) </condition> </maximumArg>',
        lambda *v: v[:4].index(max(v[:4])) == v[4],
    ),
    (
        '<minimumArg rank="last"> <list> x[0..2] add(y,1) </list> <condition> (in,{1,3}) </condition> </minimumArg>',
        lambda a, b, c, d, y, z: [y + 1, c, b, a].index(min(a, b, c, y + 1)) in (2, 0),
    ),
    (
        "<maximumArg> <list> x[] </list> <condition> (ge,y) </condition> </maximumArg>",
        lambda *v: any(v[i] == max(v[:4]) and i >= v[4] for i in range(4)),
    ),
    (
        "<element> <list> 2 -1 3 5 </list> <index> x[0] </index> <value> y </value> </element>",
        lambda a, b, c, d, y, z: (2, -1, 3, 5)[a] == y,
    ),
    (
        '<element> <list startIndex="1"> x[1..3] </list> <index> x[0] </index> <value> y </value> </element>',
        lambda a, b, c, d, y, z: a >= 1 and (b, c, d)[a - 1] == y,
    ),
    (
        "<element> <list> x[1..2] 2 </list> <index> y </index> <condition> (lt,x[0]) </condition> </element>",
        lambda a, b, c, d, y, z: 0 <= y <= 2 and (b, c, 2)[y] < a,
    ),
    ("<element> <list> x[] </list> <value> y </value> </element>", lambda *v: v[4] in v[:4]),
    (
        "<element> <matrix> (1,2,0)(3,-1,2) </matrix> <index> b x[0] </index> <value> y </value> </element>",
        lambda a, b, c, d, y, z: ((1, 2, 0), (3, -1, 2))[z][a] == y,
    ),
    (
        "<element> <matrix> (x[1],2)(x[2],x[3]) </matrix> <index> b y </index> <value> x[0] </value> </element>",
        lambda a, b, c, d, y, z: 0 <= y <= 1 and ((b, 2), (c, d))[z][y] == a,
    ),
    (
        "<channel> x[0..2] </channel>",
        lambda a, b, c, d, y, z: all(((a, b, c)[i] == j) == ((a, b, c)[j] == i) for i in range(3) for j in range(3)),
    ),
    (
        '<channel> <list startIndex="1"> x[0] x[1] </list> <list> x[2] y x[3] </list> </channel>',
        lambda a, b, c, d, y, z: (c, y, d)[a] == 1 and (c, y, d)[b] == 2,
    ),
    (
        "<channel> <list> x[0..2] </list> <list> x[1..3] </list> </channel>",
        lambda a, b, c, d, y, z: all(((a, b, c)[i] == j) == ((b, c, d)[j] == i) for i in range(3) for j in range(3)),
    ),
    (
        "<channel> <list> b not(b) </list> <value> x[0] </value> </channel>",
        lambda a, b, c, d, y, z: a == 1 - z,
    ),
    (
        "<regular> <list> x[] b </list> <transitions> (p,0,p)(p,1,q)(q,1..2,q)(q,0,r)(r,0,r)(r,1,r) </transitions>"
        "<start> p </start> <final> r </final> </regular>",
        lambda a, b, c, d, y, z: __import__("re").fullmatch("0*1[12]*0[01]*", f"{a}{b}{c}{d}{z}"),
    ),
    (
        "<regular> <list> y x[0] y x[1] </list> <transitions> (p,-1,p)(p,0..3,p)(p,2,q)(q,0,r)(q,2,r) </transitions>"
        "<start> p </start> <final> r </final> </regular>",
        lambda a, b, c, d, y, z: y == 2 and b in (0, 2),
    ),
    (
        "<mdd> <list> x[0] y x[1] </list> <transitions> (r,0,n1)(r,1,n2)(n1,2,n3)(n1,3,n3)(n2,-1,n3)(n3,1,t)(n3,2,t)"
        "</transitions> </mdd>",
        lambda a, b, c, d, y, z: (a, y) in {(0, 2), (0, 3), (1, -1)} and b in (1, 2),
    ),
    (
        "<lex> <list> x[0] y </list> <list> x[1] b </list> <operator> lt </operator> </lex>",
        lambda a, b, c, d, y, z: (a, y) < (b, z),
    ),
    (
        "<lex> <list> x[0..1] </list> <list> x[1..2] </list> <list> x[2..3] </list> <operator> ge </operator> </lex>",
        lambda a, b, c, d, y, z: (a, b) >= (b, c) >= (c, d),
    ),
    (
        "<lex> <matrix> (x[0],x[1])(x[2],x[3]) </matrix> <operator> le </operator> </lex>",
        lambda a, b, c, d, y, z: (a, b) <= (c, d) and (a, c) <= (b, d),
    ),
    (
        "<lex> <matrix> (x[0],x[1])(x[2],x[3]) </matrix> <operator> gt </operator> </lex>",
        lambda a, b, c, d, y, z: (a, b) > (c, d) and (a, c) > (b, d),
    ),
    (
        "<precedence> <list> x[] </list> <values> 1 0 </values> </precedence>",
        lambda *v: 0 not in v[:4] or 1 in v[: v[:4].index(0)],
    ),
    (
        "<cumulative> <origins> x[0..2] </origins> <lengths> 2 1 b </lengths> <heights> 1 2 x[3] </heights>"
        "<condition> (le,2) </condition> </cumulative>",
        lambda a, b, c, d, y, z: all(
            (a <= t < a + 2) + 2 * (b <= t < b + 1) + d * (c <= t < c + z) <= 2 for t in range(6)
        ),
    ),
    (
        "<cumulative> <origins> x[0..1] </origins> <lengths> 1 b </lengths> <ends> x[2] x[3] </ends>"
        "<heights> 1 1 </heights> <condition> (le,1) </condition> </cumulative>",
        lambda a, b, c, d, y, z: c == a + 1 and d == b + z and (a != b or not z),
    ),
    (
        "<noOverlap> <origins> x[0..2] </origins> <lengths> 1 b 1 </lengths> </noOverlap>",
        lambda a, b, c, d, y, z: a != c and (not z or b not in (a, c)),
    ),
    (
        '<noOverlap zeroIgnored="false"> <origins> x[0..2] </origins> <lengths> 0 1 2 </lengths> </noOverlap>',
        lambda a, b, c, d, y, z: (a <= b or b + 1 <= a) and (a <= c or c + 2 <= a) and (b + 1 <= c or c + 2 <= b),
    ),
    (
        "<noOverlap> <origins> (x[0],x[1])(x[2],x[3]) </origins> <lengths> (2,1)(1,2) </lengths> </noOverlap>",
        lambda a, b, c, d, y, z: a + 2 <= c or c + 1 <= a or b + 1 <= d or d + 2 <= b,
    ),
    (
        "<binPacking> <list> x[] </list> <sizes> 3 2 2 1 </sizes> <condition> (le,4) </condition> </binPacking>",
        lambda *v: all(sum(s * (p == n) for s, p in zip((3, 2, 2, 1), v, strict=False)) <= 4 for n in range(3)),
    ),
    (
        "<binPacking> <list> x[0..2] </list> <sizes> 3 2 2 </sizes> <loads> 3 x[3] 2 </loads> </binPacking>",
        lambda a, b, c, d, y, z: (
            [sum(s * (p == n) for s, p in zip((3, 2, 2), (a, b, c), strict=True)) for n in range(3)] == [3, d, 2]
        ),
    ),
    (
        "<knapsack> <list> x[] </list> <weights> 1 2 3 1 </weights> <condition> (le,8) </condition>"
        "<profits> 2 1 3 1 </profits> <condition> (gt,y) </condition> </knapsack>",
        lambda a, b, c, d, y, z: a + 2 * b + 3 * c + d <= 8 and 2 * a + b + 3 * c + d > y,
    ),
    (
        "<knapsack> <list> x[0..2] </list> <weights> 0 3 3 </weights> <condition> (ge,2) </condition>"
        "<profits> 0 0 0 </profits> <condition> (lt,4) </condition> </knapsack>",
        lambda a, b, c, d, y, z: 3 * b + 3 * c >= 2,
    ),
    ("<circuit> x[0..2] </circuit>", lambda a, b, c, d, y, z: is_circuit((a, b, c))),
    (
        '<circuit> <list startIndex="1"> x[1] add(x[0],1) x[3] </list> <size> x[2] </size> </circuit>',
        lambda a, b, c, d, y, z: is_circuit((b - 1, a, d - 1)) and c == (b != 1) + (a != 1) + (d != 3),
    ),
    (
        '<sum reifiedBy="b"> <list> x[] </list> <coeffs> 1 2 1 -1 </coeffs> <condition> (gt,y) </condition> </sum>',
        lambda a, b, c, d, y, z: (a + 2 * b + c - d > y) == z,
    ),
    ('<allDifferent hreifiedFrom="b"> x[0..2] y </allDifferent>', lambda *v: not v[5] or len({*v[:3], v[4]}) == 4),
    (
        '<count hreifiedTo="b"> <list> x[] </list> <values> 1 </values> <condition> (in,1..2) </condition> </count>',
        lambda *v: v[5] or not 1 <= v[:4].count(1) <= 2,
    ),
    (
        '<extension reifiedBy="b"> <list> x[0] y x[0] </list> <conflicts> (1,2,*)(0,*,0)(7,0,7) </conflicts>'
        "</extension>",
        lambda a, b, c, d, y, z: (not (a == 1 and y == 2) and a != 0) == z,
    ),
    (
        '<instantiation reifiedBy="b"> <list> x[1] x[2] </list> <values> 1 9 </values> </instantiation>',
        lambda a, b, c, d, y, z: not z,
    ),
    (
        '<group> <element reifiedBy="%0"> <list> x[] </list> <index> %1 </index> <value> 2 </value> </element>'
        "<args> b y </args> </group>",
        lambda a, b, c, d, y, z: (y >= 0 and (a, b, c, d)[y] == 2) == z,
    ),
    (
        "<slide> <list> x[] </list> <intension> le(dist(%0,%1),1) </intension> </slide>",
        lambda a, b, c, d, y, z: abs(a - b) <= 1 and abs(b - c) <= 1 and abs(c - d) <= 1,
    ),
    (
        '<slide circular="true"> <list offset="2"> x[] </list> <extension> <list> %0 %1 %2 </list>'
        "<conflicts> (*,1,0) </conflicts> </extension> </slide>",
        lambda a, b, c, d, y, z: (b, c) != (1, 0) and (d, a) != (1, 0),
    ),
    (
        "<extension> <list> x[0] x[1] x[0] </list> <supports> (0,1,0)(1,2,2)(2,0,2) </supports> </extension>",
        lambda a, b, c, d, y, z: (a, b) in {(0, 1), (2, 0)},
    ),
    (
        "<group> <intension> %0 </intension> <args> le(x[0], x[1]) </args> <args> eq(b,ne(y,0)) </args> </group>",
        lambda a, b, c, d, y, z: a <= b and z == (y != 0),
    ),
    (
        "<group> <count> <list> %2 %... </list> <values> %0 </values> <condition> %1 </condition> </count>"
        "<args> 1 (eq,2) x[] </args> <args> 0 (ge,b) x[0..1] y </args> </group>",
        lambda a, b, c, d, y, z: [a, b, c, d].count(1) == 2 and [a, b, y].count(0) >= z,
    ),
]


def check(problem, holds):
    found = solutions(problem, len(DOMAINS))
    assert set(found) == {v for v in itertools.product(*DOMAINS) if holds(*v)}
    assert 0 < len(found) < 3**5 * 2


@pytest.mark.parametrize(("text", "holds"), INTENSIONS, ids=[text for text, _ in INTENSIONS])
def test_expressions(tmp_path, sizes, text, holds):
    check(read(instance(tmp_path, f"<intension> {text} </intension>")), holds)


@pytest.mark.parametrize(("text", "holds"), CONSTRAINTS, ids=range(len(CONSTRAINTS)))
def test_constraints(tmp_path, sizes, text, holds):
    check(read(instance(tmp_path, text)), holds)


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        ("", "sub(mul(3,x[0]),mul(x[1],y))", lambda a, b, c, d, y, z: 3 * a - b * y),
        ("", "div(sub(9,x[0]),4)", lambda a, b, c, d, y, z: (9 - a) // 4),
        (
            "sum",
            "<list> x[] eq(x[0],y) </list> <coeffs> 1 1x3 -5 </coeffs>",
            lambda *v: sum(v[:4]) - 5 * (v[0] == v[4]),
        ),
        ("sum", "<list> x[0] b </list> <coeffs> y 2 </coeffs>", lambda a, b, c, d, y, z: a * y + 2 * z),
        ("maximum", "<list> x[] y </list>", lambda *v: max(v[:5])),
        ("minimum", "<list> x[0] x[1] y </list> <coeffs> 2 1 1 </coeffs>", lambda a, b, c, d, y, z: min(2 * a, b, y)),
        ("product", "<list> x[0] y </list>", lambda a, b, c, d, y, z: a * y),
        ("nValues", "<list> x[] </list>", lambda a, b, c, d, y, z: len({a, b, c, d})),
    ],
)
def test_objectives(tmp_path, sizes, kind, content, value):
    element = f"<maximize{kind and f' type={chr(34)}{kind}{chr(34)}'}> {content} </maximize>"
    problem = read(instance(tmp_path, "", f"<objectives> {element} </objectives>"))
    assert problem.semiring.name == "max-sum"
    assert solutions(problem, len(DOMAINS)) == {v: value(*v) for v in itertools.product(*DOMAINS)}


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("<intension> eq(x[0],add(x[1]) </intension>", r"found no '\)'"),
        ("<intension> eq(x[0]) </intension>", "found 1 arguments of eq, expected 2 or more"),
        ("<intension> x[0] x[1] </intension>", "found 2 expressions"),
        ("<intension> eq(x[0],q) </intension>", "found 'q', expected a variable"),
        ("<intension> eq(x[0],,1) </intension>", "found ','"),
        ("<intension> " + "neg(" * 99 + "x[0]" + ")" * 99 + " </intension>", "calls 65 deep"),
        ("<regular> <list> x[] </list> <transitions> (a,0) </transitions> </regular>", "expected a transition"),
        ("<ordered> <list> x[] </list> <operator> up </operator> </ordered>", "expected lt, le, ge or gt"),
        ("<element> <list> x[] </list> </element>", "without <condition>"),
        ("<element> <list> </list> <value> y </value> </element>", "an empty <list>"),
        ("<sum> <list> x[] </list> <condition> (in,{1;2}) </condition> </sum>", "expected an integer"),
        ("<slide> <list> x[] </list> <intension> eq(%0,%7) </intension> </slide>", "8 parameters over 4"),
        ('<allEqual reifiedBy="y"> x[] </allEqual>', "expected one variable of 0 and 1"),
        ('<allEqual reifiedBy="b" hreifiedTo="b"> x[] </allEqual>', "expected one variable of 0 and 1"),
        ('<allEqual reifiedBy="q"> x[] </allEqual>', "found 'q', expected a variable"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path, constraint, message):
    with pytest.raises(FormatError, match=rf"sample.xml, line 4: .*{message}"):
        read_model(instance(tmp_path, constraint))


@pytest.mark.parametrize(
    ("constraint", "what"),
    [
        ("<stretch> <list> x[] </list> <values> 0 1 </values> <widths> 1..2 1..2 </widths> </stretch>", "<stretch>"),
        ("<circuit> " + "x[] " * 26 + " </circuit>", "104 vertices"),
        ("<slide> <list> 1 2 3 </list> <intension> eq(%0,%1) </intension> </slide>", "constants among variables"),
        ("<intension> eq(foo(x[0]),1) </intension>", "the operator foo"),
        ("<intension> eq(div(x[0],x[1]),1) </intension>", "by zero"),
        ("<intension> eq(pow(9,pow(9,x[0])),1) </intension>", "64 bits"),
        ("<intension> eq(mul(w,w[0]),7) </intension>", "assignments"),
        ("<intension> le(mul(4000000000000000000,mul(4000000000000000000,zero)),w[0]) </intension>", "64 bits"),
        ('<allEqual penalty="b"> x[] </allEqual>', "the attribute penalty"),
        ('<circuit reifiedBy="b"> x[] </circuit>', "a variable for its truth"),
        (
            '<lex hreifiedTo="b"> <list> x[] </list> <list> x[] </list> <operator> le </operator> </lex>',
            "a variable for its truth",
        ),
        ('<slide reifiedBy="b"> <list> x[] </list> <intension> ne(%0,%1) </intension> </slide>', "for its truth"),
        (
            '<extension reifiedBy="b"> <list> w[0] w[1] </list> <supports> (0..99,0..99) </supports> </extension>',
            "10,000 rows",
        ),
        ('<element> <list> x[] </list> <index rank="last"> y </index> <value> b </value> </element>', "the rank last"),
        ("<cumulative> <origins> x[] </origins> <lengths> 1x4 </lengths> <heights> 1x4 </heights>"
         "<condition> (ge,1) </condition> </cumulative>", "the condition ge"),
    ],
)  # fmt: skip
def test_what_has_no_form_is_left_out_by_name(tmp_path, constraint, what):
    variables = VARIABLES + '<array id="w" size="[2]"> 0..9999 </array> <var id="zero"> 0 </var>'
    (left_out,) = read_model(instance(tmp_path, constraint.replace("w,w[0]", "w[0],w[1]"), "", variables)).left_out
    assert "sample.xml, line 4: " in left_out and what in left_out


@pytest.mark.parametrize("word", ["m[][]", "m[0..1][0..1]", "n[1][][]", "(m[0][0],m[0][1])(m[1][0],m[1][1])"])
def test_matrices_are_arrays_or_lists_of_rows(tmp_path, word):
    arrays = '<array id="m" size="[2][2]"> 0..1 </array>'
    if word.startswith("n"):
        domains = '<domain for="n[0][][]"> 0 </domain> <domain for="others"> 0 1 </domain>'
        arrays = f'<array id="n" size="[2][2][2]"> {domains} </array>'
    constraint = f"<allDifferent> <matrix> {word} </matrix> </allDifferent>"
    problem = read(instance(tmp_path, constraint, "", arrays))
    first = 4 if word.startswith("n") else 0
    assert {v[first:] for v in solutions(problem, first + 4)} == {(0, 1, 1, 0), (1, 0, 0, 1)}


@pytest.mark.parametrize("word", ["m", "l[]", "h[][]"])
def test_what_is_no_matrix_is_refused(tmp_path, word):
    arrays = (
        '<array id="m" size="[2][2]"> 0..1 </array> <array id="l" size="[4]"> 0..1 </array>'
        '<array id="h" size="[2][2]"> <domain for="h[0][0]"> 0 </domain> </array>'
    )
    with pytest.raises(FormatError, match="line 4: "):
        read_model(instance(tmp_path, f"<allDifferent> <matrix> {word} </matrix> </allDifferent>", "", arrays))


def test_large_sums_and_equalities_stay_linear_or_short(tmp_path):
    """Four variables of ten thousand values: 10^16 assignments, and a row for each value, or none."""
    constraints = (
        "<intension> eq(w[0],add(w[1],5)) </intension> <intension> le(add(w[0],w[1],w[2]),w[3]) </intension>"
        "<intension> ne(w[2],w[3]) </intension>"
    )
    problem = read(instance(tmp_path, constraints, "", '<array id="w" size="[4]"> 0..9999 </array>'))
    assert [len(c.tuples) for c in problem.constraints] == [9995, 10_000]
    assert len(problem.variables) == 4 and len(problem.linear_constraints) == 1


def test_tasks_that_may_begin_at_thousands_of_times(tmp_path):
    """Which of two comes first is a difference of times, not a table of both."""
    variables = '<array id="t" size="[2]"> 0..4999 </array>'
    text = "<noOverlap> <origins> t[] </origins> <lengths> 4000 900 </lengths> </noOverlap>"
    path = instance(
        tmp_path, text, "<objectives> <minimize> add(t[0],mul(3,t[1])) </minimize> </objectives>", variables
    )
    problem = read(path)
    assert sum(c.tuples.size for c in problem.constraints) < 10**5
    for first, second, is_apart in ((0, 4000, True), (900, 0, True), (0, 3999, False), (899, 0, False)):
        assert bool(after_propagation(problem, first, second)) == is_apart


def after_propagation(problem, first, second):
    """Whether two values of the first variables leave any of the others, which follow from these."""
    fixed = tuple(Constraint((v,), [[value]], allowed=True) for v, value in enumerate((first, second)))
    return oocbe.propagate(replace(problem, constraints=(*problem.constraints, *fixed))).status != "infeasible"


def test_circuits_of_more_vertices_have_one_round_each(tmp_path):
    variables = '<array id="x" size="[5]"> 0..4 </array>'
    found = solutions(read(instance(tmp_path, "<circuit> x[] </circuit>", "", variables)), 5)
    assert set(found) == {v for v in itertools.product(range(5), repeat=5) if is_circuit(v)}
    assert len(found) == 10 + 10 * 2 + 5 * 6 + 24  # of two vertices, three, four and five


def test_a_variable_of_many_values_is_true_where_it_is_not_0(tmp_path, monkeypatch):
    monkeypatch.setattr(xcsp_relations, "SMALL_TABLE", 4)
    monkeypatch.setattr(xcsp_relations, "MOST_CELLS", 24)
    variables = '<var id="y"> 0..2 </var> <var id="w"> 0..29 </var>'
    problem = read(instance(tmp_path, "<intension> w </intension>", "", variables))
    assert set(solutions(problem, 2)) == set(itertools.product(range(3), range(1, 30)))


def test_instances_of_a_group_share_their_rows(tmp_path):
    """A copy for each took gigabytes of a file of some megabytes."""
    arguments = "".join(f"<args> x[{k}] x[{k + 1}] </args>" for k in range(9))
    for expression in ("gt(dist(%0,%1),2)", "eq(%0,add(%1,1))", "ne(%0,add(%1,1))"):
        group = f"<group> <intension> {expression} </intension> {arguments} </group>"
        problem = read(instance(tmp_path, group, "", '<array id="x" size="[10]"> 0..99 </array>'))
        assert len(problem.constraints) == 9 and len({id(c.tuples) for c in problem.constraints}) == 1


def test_tables_that_would_fill_the_memory_are_left_out(tmp_path, monkeypatch):
    """Thousands of rows each, all of them different, of a file of a few thousand bytes; the limit is lower here."""
    monkeypatch.setattr(xcsp_relations, "MOST_LISTED", 2**14)
    wide = "".join(f"<intension> gt(dist(x[0],x[1]),{k}) </intension>" for k in range(30, 60))
    model = read_model(instance(tmp_path, wide, "", '<array id="x" size="[2]"> 0..99 </array>'))
    assert 0 < sum(c.tuples.size for c in model.problem.constraints) <= 2**14
    assert model.left_out and all("16,384 values together" in text for text in model.left_out)


def test_relations_of_many_cells_are_whole_for_counts_and_in_parts_for_searches(tmp_path):
    """Elimination counts a ruler's marks with four variables; a search takes no table of 160,000 cells."""
    variables = '<array id="x" size="[4]"> 0..19 </array>'
    constraints = "<intension> ne(sub(x[1],x[0]),sub(x[3],x[2])) </intension>"
    counted = read(instance(tmp_path, constraints, variables=variables))
    assert [len(part.scope) for part in counted.constraints] == [4]
    objective = "<objectives> <minimize> x[3] </minimize> </objectives>"
    searched = read(instance(tmp_path, constraints, objective, variables))
    assert len(searched.variables) > 4
    assert oocbe.count(counted).value == 20**4 - sum((20 - abs(gap)) ** 2 for gap in range(-19, 20))


def test_a_maximum_over_too_many_values_for_a_search_is_a_whole_table(tmp_path):
    """It was left out, and its file refused, as the table of its parts would have been too large."""
    variables = '<array id="x" size="[4]"> 0..20 </array>'
    sums = ("sub(mul(126,x[0]),x[1])", "add(mul(675,x[0]),mul(-1000,x[1]),mul(-1000,x[2]),mul(851,x[3]))")
    objective = f"<objectives> <maximize> max({','.join(sums)}) </maximize> </objectives>"
    constraints = "<intension> le(add(x[0],x[1],x[2],x[3]),5) </intension>"
    problem = read(instance(tmp_path, constraints, objective, variables))
    assert oocbe.solve(problem).value == 5 * 851
