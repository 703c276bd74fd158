"""Random constraints, objectives and declarations of XCSP3 over a few variables, as far as Choco 4.10.15 reads them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection
from random import Random

VARIABLES = {
    **dict.fromkeys(("x[0]", "x[1]", "x[2]"), (0, 1, 2)),
    "y": (-2, -1, 1, 3),
    **dict.fromkeys(("b", "c"), (0, 1)),
    "e": (1,),
    **dict.fromkeys(("m[0][0]", "m[0][1]", "m[1][0]", "m[1][1]"), (0, 1)),
}
"""Names, and values of each."""

_REFERENCE = re.compile(r"(?<![\w<\"])([xybcem])((?:\[[0-9.]*\])*)(?![\w=])")
_INDEX = re.compile(r"\[(?:([0-9])(?:\.\.([0-9]))?)?\]")

_PLAIN = ("x[0]", "x[1]", "x[2]", "x[0]", "x[1]", "x[2]", "y", "y", "b", "b", "c", "c", "e")
"""Names as lists draw them: those of few values more often."""

_DECLARED = {
    "x": (
        '<array id="x" size="[3]"> 0..2 </array>',
        '<array id="x" size="[3]" note="a note"> 0 1 2 </array>',
        '<array id="x" size="[3]"> <domain for="x[0] x[2]"> 0..1 2 </domain> <domain for="others"> 0..2 </domain>'
        " </array>",
        '<array id="x" size="[3]" type="integer"> <domain for="x[0..1]"> 0..2 </domain>'
        ' <domain for="x[2]"> 0..2 </domain></array>',
    ),
    "y": (
        '<var id="y"> -2 -1 1 3 </var>',
        '<var id="y">-2..-1 1 3</var>',
        '<var id="y" type="integer"> -2..-1\n1 3</var>',
    ),
    "b": ('<var id="b"> 0 1 </var>', '<var id="b">0..1</var>'),
    "c": ('<var id="c"> 0 1 </var>', '<var id="c" as="b"/>'),
    "e": ('<var id="e"> 1 </var>', '<var id="e"> 1..1 </var>'),
    "m": (
        '<array id="m" size="[2][2]"> 0..1 </array>',
        '<array id="m" size="[2][2]" as="b"/>',
        '<array id="m" size="[2][2]"> <domain for="m[0][]"> 0..1 </domain> <domain for="m[1][0] m[1][1]"> 0 1 </domain>'
        " </array>",
    ),
}
"""Ways to declare them."""


def declarations(random: Random, names: Collection[str]) -> str:
    """What declares all variables of some names, and sometimes others."""
    wanted = {name[0] for name in names}
    some = [name for name in _DECLARED if name in wanted or random.random() < (0.3 if name in "bce" else 0.03)]
    ways = (
        _DECLARED
        if "b" in some
        else {name: [own for own in ways if "as=" not in own] for name, ways in _DECLARED.items()}
    )
    return random.choice((" ", "\n")).join(random.choice(ways[name]) for name in some)


def named(text: str) -> list[str]:
    """The variables that a text names, some of them by parts of arrays."""
    found: set[str] = set()
    for name, indices in _REFERENCE.findall(text):
        boxes = []
        for low, high in _INDEX.findall(indices):
            size = 3 if name == "x" else 2
            boxes.append(range(int(low), int(high or low) + 1) if low else range(size))
        found |= {name + "".join(f"[{i}]" for i in cell) for cell in itertools.product(*boxes)}
    return [name for name in VARIABLES if name in found]


def integer(random: Random, depth: int) -> str:
    """An expression."""
    if depth == 0 or random.random() < 0.3:
        return random.choice([*_PLAIN, str(random.randint(-2, 3))])
    one, other = (integer(random, depth - 1) for _ in range(2))
    return random.choice(
        [
            f"neg({one})",
            f"abs({one})",
            f"sqr({one})",
            f"add({one},{other})",
            f"add({one},{other},b)",
            f"sub({one},{other})",
            f"mul({one},{other})",
            f"mul({one},{other},c)",
            f"dist({one},{other})",
            f"min({one},{other})",
            f"max({one},{other},y)",
            f"div({one},y)",
            f"mod({one},3)",
            f"mod({one},y)",
            f"div({one},sub(y,2))",
            f"pow({one},2)",
            f"if({truth(random, depth - 1)},{one},{other})",
            f"add({truth(random, depth - 1)},{one})",
            f"mul({truth(random, depth - 1)},{one})",
        ]
    )


def truth(random: Random, depth: int) -> str:
    """An expression that is true or false."""
    if depth == 0:
        return random.choice(["b", "c", "eq(x[0],y)", "lt(x[1],x[2])", "ne(y,1)", "gt(m[0][1],b)"])
    one, other = (truth(random, depth - 1) for _ in range(2))
    left, right = (integer(random, depth - 1) for _ in range(2))
    comparison = random.choice(["lt", "le", "gt", "ge", "eq", "ne"])
    return random.choice(
        [f"{comparison}({left},{right})"] * 5
        + [f"in({left},set(1,3,-1))", f"notin({left},set(0,2))", f"in({left},set(2))"]
        + [f"not({one})", f"imp({one},{other})", f"iff({one},{other})"]
        + [f"and({one},{other})", f"or({one},{other},c)", f"xor({one},{other})"]
    )


def _listed(random: Random, least: int = 2, most: int = 4) -> list[str]:
    names = list(dict.fromkeys(random.sample(_PLAIN, len(_PLAIN))))
    return names[: random.randint(least, most)]


def _list(random: Random, least: int = 2, most: int = 4, tree: bool = True) -> str:
    """Names, or a part of an array, or expressions."""
    kind = random.random()
    if kind < 0.12 and least <= 3 <= most:
        return random.choice(("x[]", "x[0..2]", "x[0..1] b", "m[0][] y", "m[][1] c"))
    if tree and kind < 0.3:
        return " ".join(integer(random, 1) for _ in range(random.randint(least, min(most, 3))))
    return " ".join(_listed(random, least, most))


def _condition(
    random: Random,
    low: int = -2,
    high: int = 5,
    tag: str = "condition",
    operators: tuple[str, ...] = ("lt", "le", "gt", "ge", "eq", "ne"),
) -> str:
    right = random.choice([str(random.randint(low, high)), str(random.randint(low, high)), random.choice(["y", "b"])])
    comparison = f"({random.choice(operators)},{right})"
    return f"<{tag}> {comparison} </{tag}>"


def _intension(random: Random) -> str:
    expression = truth(random, random.randint(1, 3))
    if random.random() < 0.1:  # elsewhere, Choco may negate it to "all different"
        equal = f"eq({integer(random, 1)},{integer(random, 1)},x[0])"
        expression = random.choice((equal, f"or({equal},{expression})"))
    if random.random() < 0.1:
        return f"<intension> <function> {expression} </function> </intension>"
    return f"<intension> {expression} </intension>"


def _extension(random: Random) -> str:
    names = _listed(random, 1, 4)
    kind = random.choice(["supports", "conflicts"])
    stars = ["*"] if kind == "supports" else []
    if len(names) == 1:
        cells = sorted(set(random.choices(VARIABLES[names[0]], k=2)))
        text = random.choice((" ".join(map(str, cells)), f"{cells[0]}..{cells[-1]}"))
        return f"<extension> <list> {names[0]} </list> <{kind}> {text} </{kind}> </extension>"
    rows = []
    comma = random.choice((",", ",", ", "))
    for _ in range(random.randint(1, 6)):
        row = [random.choice([*stars, *map(str, VARIABLES[v]), *map(str, VARIABLES[v]), "7"]) for v in names]
        rows.append(f"({comma.join(row)})")
    between = random.choice(("", " ", "\n"))
    return f"<extension> <list> {' '.join(names)} </list> <{kind}> {between.join(rows)} </{kind}> </extension>"


def _sum(random: Random) -> str:
    listed = _list(random, 2, 5)
    count = sum({"x[]": 3, "x[0..2]": 3, "x[0..1]": 2, "m[0][]": 2, "m[][1]": 2}.get(w, 1) for w in listed.split())
    coeffs = " ".join(random.choice(["1", "2", "-1", "-3", "0"]) for _ in range(count))
    coeffs = random.choice((coeffs, coeffs, f"2x{count}"))
    if random.random() < 0.1 and "(" not in listed:
        coeffs = " ".join(random.choice(_PLAIN) for _ in range(count))
    given = f"<coeffs> {coeffs} </coeffs>" if random.random() < 0.7 else ""
    special = ("(in,-1..2)", "(in,{0,2,5})", "(ne,y)", "(ge,x[0])")
    condition = random.choice([_condition(random)] * 2 + [f"<condition> {random.choice(special)} </condition>"])
    return f"<sum> <list> {listed} </list> {given} {condition} </sum>"


def _count(random: Random) -> str:
    values = random.choice(("1 2", "1", "0 3 -1", "y", "b c"))
    return f"<count> <list> {_list(random)} </list> <values> {values} </values> {_condition(random, 0, 3)} </count>"


def _cardinality(random: Random) -> str:
    closed = random.choice(["", ' closed="true"', ' closed="false"'])
    occurs = random.choice(["0..2 1..3", "1 2", "b c", "1x2", "y b"])
    return (
        f"<cardinality> <list> {_list(random, 3, 5, tree=False)} </list> <values{closed}> 0 1 </values>"
        f" <occurs> {occurs} </occurs> </cardinality>"
    )


def _element(random: Random) -> str:
    wanted = random.choice(
        (
            f"<value> {random.choice(['y', 'x[2]', '1', 'e'])} </value>",
            f"<value> {random.choice(['y', 'x[2]', '1'])} </value>",
            _condition(random),
        )
    )
    if random.random() < 0.3:
        cells = random.choice(("(0,1)(1,2)", "(1,-2)(3,1)", "(1,2,0)(3,-1,1)"))  # variables: Choco drops solutions
        indices = random.choice(("b c", "x[0] b", "b x[1]"))
        return f"<element> <matrix> {cells} </matrix> <index> {indices} </index> {wanted} </element>"
    cells = random.choice(["2 -1 3", "x[1] y b", "x[] c", "0x2 1x2", "m[0][] y"])
    first = random.choice(("", ' startIndex="0"', ' startIndex="1"'))
    # Without an index the parser of both programs takes the value for one where all cells are integers.
    has_index = cells in ("2 -1 3", "0x2 1x2") or random.random() < 0.85
    index = f"<index> {random.choice(['x[0]', 'b', 'c', 'y'])} </index>" if has_index else ""
    return f"<element> <list{first}> {cells} </list> {index} {wanted} </element>"


def _regular(random: Random) -> str:
    states = "pqr"
    moves = {f"({s},{v},{random.choice(states)})" for s in states for v in range(3) if random.random() < 0.8}
    moves.add("(p,0,q)")
    return (
        f"<regular> <list> {random.choice(('x[]', 'x[2] x[0] b', 'm[][]'))} </list>"
        f" <transitions> {''.join(sorted(moves))} </transitions> <start> p </start>"
        f" <final> {random.choice(['p', 'q', 'q r'])} </final> </regular>"
    )


def _mdd(random: Random) -> str:
    layers = [["r"], ["p", "q"], ["u", "v"], ["t"]]
    moves = []
    for above, below in itertools.pairwise(layers):
        for own in above:
            values = random.sample(range(3), random.randint(1, 3))
            moves += [f"({own},{value},{random.choice(below)})" for value in values]
    reached = {"r", *(move[1:-1].split(",")[2] for move in moves)}
    while True:  # without what nothing leads to
        kept = [move for move in moves if move[1] in reached]
        if len(kept) == len(moves):
            break
        moves, reached = kept, {"r", *(move[1:-1].split(",")[2] for move in kept)}
    return f"<mdd> <list> x[] </list> <transitions> {''.join(moves)} </transitions> </mdd>"


def _cumulative(random: Random) -> str:
    lengths = random.choice((" ".join(str(random.randint(0, 2)) for _ in range(3)), "b c e", "e b c"))
    heights = random.choice((" ".join(str(random.randint(1, 2)) for _ in range(3)), "b e c", "1x3"))
    limit = random.choice((f"(le,{random.randint(2, 4)})", f"(lt,{random.randint(3, 4)})", "(le,x[0])"))
    return (
        f"<cumulative> <origins> x[] </origins> <lengths> {lengths} </lengths> <heights> {heights} </heights>"
        f" <condition> {limit} </condition> </cumulative>"
    )


def _no_overlap(random: Random) -> str:
    ignored = random.choice(("", ' zeroIgnored="true"', ' zeroIgnored="false"'))
    if random.random() < 0.4:
        lengths = random.choice(("(1,1)(2,1)", "(1,2)(1,1)", "(2,2)(1,1)"))
        return (
            f"<noOverlap{ignored}> <origins> (x[0],x[1])(m[0][0],m[0][1]) </origins> <lengths> {lengths} </lengths>"
            " </noOverlap>"
        )
    zero = () if "false" in ignored else ("0 1 2",)
    lengths = random.choice(("1 2 1", "1 1 1", "2 1 1", "b c e", "e e b", *zero))
    return f"<noOverlap{ignored}> <origins> x[] </origins> <lengths> {lengths} </lengths> </noOverlap>"


def _bin_packing(random: Random) -> str:
    asked = random.choice(
        (
            f"<condition> ({random.choice(('le', 'lt', 'le'))},{random.randint(2, 4)}) </condition>",
            "<limits> 3 2 3 </limits>",
            "<loads> x[0] y e </loads>",
            "<loads> m[0][0] m[0][1] m[1][0] </loads>",
            "<limits> e x[1] y </limits>",
        )
    )
    return f"<binPacking> <list> x[] </list> <sizes> {random.choice(('1 2 2', '1 1 2'))} </sizes> {asked} </binPacking>"


def _knapsack(random: Random) -> str:
    numbers = [" ".join(str(random.randint(0, 3)) for _ in range(3)) for _ in range(2)]
    conditions = [
        f"<condition> ({random.choice(('le', 'ge', 'eq', 'lt'))},{random.randint(2, 7)}) </condition>" for _ in "12"
    ]
    listed = " ".join(random.sample(("b", "c", "m[0][0]", "m[1][1]"), 3))  # Choco drops solutions with larger values
    return (
        f"<knapsack> <list> {listed} </list> <weights> {numbers[0]} </weights> {conditions[0]}"
        f" <profits> {numbers[1]} </profits> {conditions[1]} </knapsack>"
    )


def _channel(random: Random) -> str:
    return random.choice(
        (
            "<channel> x[] </channel>",
            "<channel> <list> x[] </list> <list> m[0][] m[1][0] </list> </channel>",
            '<channel> <list startIndex="1"> x[0..1] </list> </channel>',
            "<channel> <list> b c e </list> <value> x[0] </value> </channel>",
            "<channel> <list> b c </list> <value> x[0] </value> </channel>",
            '<channel> <list startIndex="1"> b c </list> <value> x[1] </value> </channel>',
        )
    )


def _ordered(random: Random) -> str:
    listed = _list(random, 2, 3, tree=False)
    if random.random() < 0.3:
        lengths = random.choice(("b c", " ".join(random.choice(("0", "1", "-1")) for _ in range(2))))
        operator = random.choice(("lt", "le"))
        return (
            f"<ordered> <list> x[] </list> <lengths> {lengths} </lengths> <operator> {operator} </operator> </ordered>"
        )
    operator = random.choice(("lt", "le", "ge", "gt"))
    return f"<ordered> <list> {listed} </list> <operator> {operator} </operator> </ordered>"


def _number_of_values(random: Random) -> str:
    operators = ("lt", "le", "gt", "ge", "eq")  # Choco takes "ne" for no condition
    return f"<nValues> <list> {_list(random)} </list> {_condition(random, 1, 3, operators=operators)} </nValues>"


def _lex(random: Random) -> str:
    lists = random.choice(
        (
            "<list> x[0] y </list> <list> x[1] x[2] </list>",
            "<list> x[0] b </list> <list> x[1] c </list> <list> e x[2] </list>",
            "<list> m[0][] </list> <list> m[1][] </list>",
            "<matrix> m[][] </matrix>",
            "<matrix> (x[0],b)(y,c) </matrix>",
        )
    )
    operators = ("lt", "le") if "matrix" in lists else ("lt", "le", "ge", "gt")
    return f"<lex> {lists} <operator> {random.choice(operators)} </operator> </lex>"


def _all_different(random: Random) -> str:
    return random.choice(
        (
            f"<allDifferent> {_list(random)} </allDifferent>",
            f"<allDifferent> {_list(random)} </allDifferent>",
            f"<allDifferent> <list> {_list(random, tree=False)} </list>"
            f" <except> {random.choice(['0', '0 1', '1'])} </except> </allDifferent>",
            "<allDifferent> <matrix> (x[0],x[1])(x[2],y) </matrix> </allDifferent>",
            "<allDifferent> <matrix> m[][] </matrix> </allDifferent>",
        )
    )


def _precedence(random: Random) -> str:
    covered = random.choice(("", ' covered="true"', ' covered="false"'))
    values = random.choice((f"<values{covered}> 0 1 2 </values>", f"<values{covered}> 2 0 </values>", ""))
    return f"<precedence> <list> {random.choice(('x[]', 'm[][]', 'x[2] x[0] b'))} </list> {values} </precedence>"


def _group(random: Random) -> str:
    return random.choice(
        (
            f"<group> <intension> {random.choice(('ne(%0,%1)', 'le(add(%0,%1),2)', 'lt(%0,%1)', 'or(eq(%0,1),b)'))}"
            " </intension> <args> x[0] x[1] </args> <args> x[2] b </args> </group>",
            "<group> <allDifferent> %... </allDifferent> <args> x[] </args> <args> y b e </args> </group>",
            "<group> <sum> <list> %0 %1 </list> <condition> (le,%2) </condition> </sum> <args> x[0] y 2 </args>"
            " <args> m[0][] x[1] </args> </group>",
            "<group> <sum> <list> %... </list> <coeffs> 1 2 -1 </coeffs> <condition> (ge,%0) </condition> </sum>"
            " <args> 1 x[] </args> <args> b y c x[0] </args> </group>",
            "<group> <extension> <list> %0 %1 </list> <supports> (0,1)(1,*)(2,0) </supports> </extension>"
            " <args> x[0..1] </args> <args> x[2] b </args> </group>",
            "<group> <extension> <list> %... </list> <conflicts> (0,1)(1,1) </conflicts> </extension>"
            " <args> x[0] b </args> <args> m[0][] </args> </group>",
            "<group> <element> <list> %0 %1 e </list> <index> %2 </index> <value> %3 </value> </element>"
            " <args> x[0] y b c </args> <args> x[1..2] x[0] y </args> </group>",
            "<group> <count> <list> x[] %0 </list> <values> %1 </values> <condition> (eq,%2) </condition> </count>"
            " <args> y b c </args> <args> b c x[0] </args> </group>",
            "<group> <instantiation> <list> %0 %1 </list> <values> 2 1 </values> </instantiation>"
            " <args> x[0] b </args> <args> x[1] b </args> </group>",
        )
    )


def _slide(random: Random) -> str:
    circular = random.choice(("", ' circular="true"', ' circular="false"'))
    offset = random.choice(("", ' offset="1"', ' offset="2"'))
    listed = random.choice(("x[]", "x[] b", "m[][]", "y x[0] b x[1]"))
    template = random.choice(
        (
            "<intension> ne(%0,%1) </intension>",
            "<intension> le(add(%0,%1),%2) </intension>",
            "<intension> or(lt(%0,%1),eq(%1,0)) </intension>",
            "<extension> <list> %0 %1 </list> <supports> (0,1)(1,2)(2,0)(1,1) </supports> </extension>",
            "<allDifferent> %0 %1 </allDifferent>",
            "<sum> <list> %0 %1 </list> <condition> (le,2) </condition> </sum>",
        )
    )
    return f"<slide{circular}> <list{offset}> {listed} </list> {template} </slide>"


def _block(random: Random) -> str:
    inner = "".join(random.choice(KINDS[:12])(random) for _ in range(random.randint(1, 2)))
    if random.random() < 0.3:
        inner = f'<block note="inner"> {inner} </block>'
    return f'<block class="{random.choice(("redundant", "one two"))}"> {inner} </block>'


KINDS: tuple[Callable[[Random], str], ...] = (
    _intension,
    _intension,
    _intension,
    _extension,
    _sum,
    _sum,
    _count,
    _cardinality,
    _element,
    _regular,
    _all_different,
    _ordered,
    _mdd,
    _cumulative,
    _no_overlap,
    _bin_packing,
    _knapsack,
    _channel,
    _lex,
    _precedence,
    _group,
    _group,
    _slide,
    _block,
    lambda r: f"<clause> b not(c) {r.choice(['', 'not(b)'])} </clause>",
    _number_of_values,
    lambda r: f"<allEqual> {_list(r, 2, 3)} </allEqual>",
    lambda r: f"<maximum> <list> {_list(r)} </list> {_condition(r)} </maximum>",
    lambda r: f"<minimum> <list> {_list(r)} </list> {_condition(r)} </minimum>",
    lambda r: f'<maximumArg rank="first"> <list> {_list(r, tree=False)} </list> {_condition(r, 0, 3)} </maximumArg>',
    lambda r: f'<minimumArg rank="first"> <list> {_list(r, tree=False)} </list> {_condition(r, 0, 3)} </minimumArg>',
    lambda r: (
        f"<instantiation> <list> x[0] y </list> <values> {r.randint(0, 2)} {r.choice([-2, 1, 3])} </values>"
        " </instantiation>"
    ),
    lambda r: "<instantiation> <list> x[] </list> <values> 1x2 0 </values> </instantiation>",
)
"""What draws a constraint."""


def objective(random: Random) -> str:
    """What is to be small or large."""
    sense = random.choice(("minimize", "maximize"))
    kind = random.choice(("expression", "sum", "sum", "minimum", "maximum", "nValues"))
    if kind == "expression":
        return f"<objectives> <{sense}> {integer(random, 2)} </{sense}> </objectives>"
    listed = _list(random, 2, 4, tree=random.random() < 0.3)
    count = sum({"x[]": 3, "x[0..2]": 3, "x[0..1]": 2, "m[0][]": 2, "m[][1]": 2}.get(w, 1) for w in listed.split())
    coeffs = ""
    if kind == "sum" and random.random() < 0.7:
        coeffs = f"<coeffs> {' '.join(str(random.randint(-3, 3)) for _ in range(count))} </coeffs>"
    return f'<objectives> <{sense} type="{kind}"> <list> {listed} </list> {coeffs} </{sense}> </objectives>'
