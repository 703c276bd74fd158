"""Reading BIF networks: meaning, comments, and every kind of damage with its line."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import bif, read
from oocbe.model.parts import Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.semiring import SUM_PRODUCT

HEAD = """network weather { property author "someone; else"; }
// declared before use
variable rain { type discrete [ 2 ] { yes, no }; property position = (1, 2); }
variable season { type discrete[3] { "dry season", wet, 1 }; }
variable grass {
  type discrete [ 2 ] { wet dry };
}
"""
TABLES = """probability ( season ) { table 0.5, 0.25, 0.25; }
probability ( rain | season ) { (wet) 0.5, 0.5; /* one
 row */ default 0.1, 0.9; ("dry season") 0, 1.0; }
probability ( grass | rain, season ) {
  table 1 2 3 4 5 6
        10 20 30 40 50 60;
}
"""


def read_text(tmp_path, text, name="weather.bif"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return read(path)


@pytest.mark.parametrize("name", ["weather.bif", "weather.bif.gz"])
def test_meaning(tmp_path, name):
    problem = read_text(tmp_path, HEAD + TABLES, name)
    assert problem.name == "weather"
    assert problem.semiring.name == "max-product"
    assert [v.name for v in problem.variables] == ["rain", "season", "grass"]
    assert problem.variables[1].labels == ("dry season", "wet", "1")
    season, rain = [0.5, 0.25, 0.25], [[0.0, 1.0], [0.5, 0.5], [0.1, 0.9]]
    # The last parent changes fastest, then the other, and the variable itself slowest.
    grass = np.array([1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60]).reshape(2, 2, 3)
    for r, s, g in np.ndindex(2, 3, 2):
        expected = season[s] * rain[s][r] * grass[g, r, s]
        value = problem.evaluate((r, s, g))
        assert value == pytest.approx(expected) if expected else value is None


def test_probabilities_may_come_before_their_variables(tmp_path):
    usual = read_text(tmp_path, HEAD + TABLES)
    first, *rest = HEAD.splitlines(keepends=True)
    turned = read_text(tmp_path, first + TABLES + "".join(rest))
    assert turned.variables == usual.variables
    for values in np.ndindex(2, 3, 2):
        assert turned.evaluate(values) == usual.evaluate(values)
    with pytest.raises(FormatError, match=r"line 5: found 'sesaon', expected a variable of the network"):
        read_text(tmp_path, first + TABLES.replace("rain, season", "rain, sesaon") + "".join(rest))
    with pytest.raises(FormatError, match=r"'}' at the end of a probability"):
        read_text(tmp_path, first + "probability ( rain ) { table 0.5 0.5;")


def test_a_star_stands_for_all_values_of_a_parent(tmp_path):
    head = "".join(f"variable {v} {{ type discrete [2] {{ f, t }}; }}\n" for v in "abc")
    head = f"network n {{ }}\n{head}probability (a) {{ table 1 1; }} probability (b) {{ table 1 1; }}\n"
    rows = "(*, *) 0.1 0.9; (f, *) 0.2 0.8; (f, t) 0.3 0.7;"
    problem = read_text(tmp_path, f"{head}probability (c | a, b) {{ {rows} }}\n")
    found = {(a, b): problem.evaluate((a, b, 0)) for a in (0, 1) for b in (0, 1)}
    assert found == {(0, 0): 0.2, (0, 1): 0.3, (1, 0): 0.1, (1, 1): 0.1}
    with pytest.raises(FormatError, match=r"line 6: .* ends without the row \(t, f\)"):
        read_text(tmp_path, f"{head}probability (c | a, b) {{ (f, *) 0.2 0.8; (*, t) 1 0; }}\n")
    with pytest.raises(FormatError, match=r"line 6: .* a second time"):
        read_text(tmp_path, f"{head}probability (c | a, b) {{ {rows} (f, t) 1 0; }}\n")


@pytest.mark.parametrize(
    ("damage", "line", "message"),
    [
        (("network", "netwrk"), 1, "the network"),
        (("discrete [ 2 ] { yes, no }", "continuous"), 3, "discrete"),
        (("{ yes, no }", "{ yes }"), 3, "found 1 value"),
        (("{ yes, no }", "{ yes, yes }"), 3, "twice"),
        (("variable grass", "variable rain"), 5, "a second time"),
        (("( rain | season )", "( rain | sesaon )"), 9, "a variable of the network"),
        (("( rain | season )", "( rain | rain )"), 9, "twice"),
        (("(wet) 0.5, 0.5;", "(wet) 0.5;"), 9, "found 1 numbers, expected 2"),
        (("(wet) 0.5, 0.5;", "(wet) 0.5, -0.5;"), 9, "at least 0"),
        (("(wet) 0.5, 0.5;", "(wet) 0.5, nan;"), 9, "a finite number"),
        (("(wet) 0.5, 0.5;", "(damp) 0.5, 0.5;"), 9, "a value of variable 'season'"),
        (("(wet) 0.5, 0.5;", "(wet) 0.5, 0.5; (wet) 0.5, 0.5;"), 9, "a second time"),
        (("default 0.1, 0.9;", ""), 10, "without the row (1)"),
        (("10 20 30 40 50 60", "10 20 30 40 50"), 13, "found 11 numbers, expected 12"),
        (("10 20 30", "10 1e-999 30"), 13, "large enough for a double"),
        (("probability ( season )", "probability ( rain ) { default 1 0; } probability ( rain )"), 8, "a second"),
        (("table 0.5, 0.25, 0.25; }", "table 0.5, 0.25, 0.25;"), 9, "a row of the probability"),
        (("/* one", "/ one"), 9, "expected"),
        (("one\n row */", "one\n row"), 9, "does not end"),
        (("60;\n}", "60;"), 13, "the end of the file"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_its_line(tmp_path, damage, line, message):
    whole = HEAD + TABLES
    assert damage[0] in whole
    with pytest.raises((FormatError, UnsupportedError)) as caught:
        read_text(tmp_path, whole.replace(*damage, 1))
    assert message in str(caught.value)
    assert f"weather.bif, line {line}:" in str(caught.value)


@pytest.mark.parametrize("scope", ["wet | rain", "wet rain", '"wet" "rain"', "wet, rain", "wet|rain"])
def test_parents_may_come_without_a_bar(tmp_path, scope):
    """JavaBayes writes them so."""
    path = tmp_path / "dog.bif"
    path.write_text(
        "network n { }\nvariable rain { type discrete[2] { yes no }; }\nvariable wet { type discrete[2] { yes no }; }\n"
        f"probability ( rain ) {{ table 0.15 0.85 ; }}\nprobability ( {scope} ) {{ table 0.6 0.05 0.4 0.95 ; }}\n"
    )
    table = read(path).functions[1]
    assert table.scope == (0, 1) and table.to_array((2, 2))[0].tolist() == [[0.6, 0.4], [0.05, 0.95]]


def test_a_variable_without_probability_is_named(tmp_path):
    with pytest.raises(FormatError, match="'grass'"):
        read_text(tmp_path, HEAD + TABLES[: TABLES.index("probability ( grass")])


def test_the_same_as_another_reader(tmp_path, data):
    gum = pytest.importorskip("pyagrum")
    for name in ("asia", "alarm", "insurance", "win95pts"):
        path = data(f"bif/{name}.bif.gz")
        problem = read(path)
        plain = tmp_path / f"{name}.bif"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        network = gum.loadBN(str(plain))
        assert {v.name for v in problem.variables} == set(network.names())
        random = np.random.default_rng(5)
        for _ in range(20):
            chosen = [int(random.integers(v.size)) for v in problem.variables]
            labels = {v.name: v.label(x) for v, x in zip(problem.variables, chosen, strict=True)}
            instance = network.completeInstantiation()
            instance.fromdict(labels)
            assert (problem.evaluate(chosen) or 0.0) == pytest.approx(network.jointProbability(instance), rel=1e-6)


def defaulted(parents: int, size: int = 2, copies: int = 1, rows: str = "default 0.5, 0.5;") -> str:
    """A network with variables whose probabilities are a default for all values of their parents."""
    labels = ",".join(f"v{i}" for i in range(size))
    text = "network n { }\n"
    text += "".join(f"variable p{i} {{ type discrete [ {size} ] {{ {labels} }}; }}\n" for i in range(parents))
    text += "".join(f"variable c{i} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for i in range(copies))
    text += "".join(f"probability ( p{i} ) {{ table {'1 ' * size}; }}\n" for i in range(parents))
    given = ",".join(f"p{i}" for i in range(parents))
    return text + "".join(f"probability ( c{i} | {given} ) {{ {rows} }}\n" for i in range(copies))


def test_parents_in_a_circle_are_refused(tmp_path):
    names = "abc"
    text = "network loop { }\n" + "".join(f"variable {n} {{ type discrete [ 1 ] {{ x }}; }}\n" for n in names)
    text += "".join(f"probability ( {n} | {p} ) {{ table 1; }}\n" for n, p in zip(names, "cab", strict=True))
    with pytest.raises(FormatError, match="parents of variables form a cycle: a -> b -> c -> a"):
        read_text(tmp_path, text)


@pytest.mark.parametrize(("parents", "copies"), [(26, 1), (20, 1), (16, 30)])
def test_a_small_file_with_defaults_fills_no_memory(tmp_path, parents, copies):
    """Neither at once nor bit by bit: what defaults stand for is limited in the whole file."""
    with pytest.raises(
        UnsupportedError, match=r"weather.bif, line \d+: up to the probabilities of 'c\d+', defaults stand"
    ):
        read_text(tmp_path, defaulted(parents, copies=copies))


def test_rows_that_are_missing_are_named_without_listing_them(tmp_path):
    row = "(" + ",".join(["v0"] * 26) + ") 1 1;"
    with pytest.raises(FormatError, match=r"ends without the row \((v0, ){25}v1\)"):
        read_text(tmp_path, defaulted(26, rows=row))


def test_what_a_default_may_stand_for(tmp_path):
    problem = read_text(tmp_path, defaulted(12))
    assert problem.functions[-1].values.tolist() == [0.5] * (1 << 13)


@pytest.mark.parametrize("parents", [40, 63, 64, 100])
def test_parents_of_any_number(tmp_path, parents):
    """With one value each: axes are limited, too."""
    text = defaulted(parents, size=1)
    if parents > 63:
        with pytest.raises(UnsupportedError, match=f"'c0' have 2 entries over {parents + 1} variables; at most"):
            read_text(tmp_path, text)
    else:
        assert read_text(tmp_path, text).functions[-1].values.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    "text",
    [
        "{ yes, no// the last one\n  }",
        "{ yes/*it rains*/, no/*dry*/ }",
        '{ yes // "yes"\n, no/* } */}',
        '{ "yes"// first\n "no"/**/ }',
    ],
)
def test_a_comment_ends_a_word(tmp_path, text):
    path = tmp_path / "p.bif"
    path.write_text(
        f"network w// of rain\n {{ }}\nvariable rain {{ type discrete [ 2 ] {text}; }}\n"
        "probability ( rain/* alone */) { table 0.25/**/, 0.75// dry\n; }\n"
    )
    problem = read(path)
    assert problem.variables[0].labels == ("yes", "no")
    assert [problem.evaluate([x]) for x in range(2)] == [0.25, 0.75]


def test_a_root_after_a_long_chain_displaces_all_other_children():
    """Each table adds up to 1 over both of its variables; the search for children recursed once for each."""
    size = 3000
    variables = tuple(Variable(f"x{i}", 2) for i in range(size))
    channel = np.array([[0.9, 0.1], [0.1, 0.9]])
    functions = [Function.from_array((i + 1, i), channel) for i in range(size - 1)]
    problem = Problem(variables, (*functions, Function.from_array((0,), [0.5, 0.5])), semiring=SUM_PRODUCT)
    assert [scope for scope, _ in bif.conditionals(problem)] == [(i, i + 1) for i in range(size - 1)] + [(0,)]
