"""Reading Hugin's NET: meaning, what its writers add, and refusals."""

from __future__ import annotations

import itertools

import pytest

import oocbe
from oocbe.errors import FormatError, UnsupportedError
from oocbe.formats import read

SAMPLE = """% a comment
net
{
    node_size = (80 40);
    name = "garden";
    HR_Color_Interface = "2 0";
}
node season
{
    label = "the season; or so";
    position = (10 20);
    states = ("dry" "wet" "very wet");
}
discrete node rain { states = (1 0); subtype = number; state_values = (1 0); }
node grass { states = ( "wet" "dry" ); ID = "g"; }
potential (season) { data = ( 0.5 0.25 0.25 ); }
potential ( rain | season )
{
    data = ((0.1 0.9)  % season=dry
            (0.5 0.5), (1 0));
    experience = (10 10 10);
}
potential (grass | rain season) { data = (((0.9 0.1)(0.8 0.2)(0.7 0.3))((0.2 0.8)(0.3 0.7)(0.4 0.6))); }
"""


def path_of(tmp_path, text):
    path = tmp_path / "sample.net"
    path.write_text(text)
    return path


def test_meaning(tmp_path):
    problem = read(path_of(tmp_path, SAMPLE))
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


def test_comments_as_in_other_languages(tmp_path):
    text = SAMPLE.replace("% a comment", "// a } comment\n/* and { * \n one */").replace("% season=dry", "/**///")
    text = text.replace("potential (season)", "/**/potential/* */(season//\n)")
    found, expected = read(path_of(tmp_path, text)), read(path_of(tmp_path, SAMPLE))
    for row in itertools.product(*map(range, expected.sizes)):
        assert found.evaluate(row) == expected.evaluate(row)


def test_a_potential_without_data_is_uniform(tmp_path):
    text = "net { } node a { states = (x y z); } potential (a) { }"
    assert read(path_of(tmp_path, text)).functions[0].values.tolist() == [1 / 3] * 3


def test_whole_files_that_lack_something(tmp_path):
    with pytest.raises(FormatError, match="the potential of node 'grass'"):
        read(path_of(tmp_path, SAMPLE[: SAMPLE.index("potential (grass")]))
    circle = "node a { states = (x y); } node b { states = (x y); } potential (a | b) { } potential (b | a) { }"
    with pytest.raises(FormatError, match="form a cycle"):
        read(path_of(tmp_path, circle))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("net { }\ncontinuous node a { }", "line 2: continuous is not supported"),
        ("net { }\nutility u { }", "line 2: utility is not supported"),
        ("class c { }", "line 1: class is not supported"),
        (
            "node a { states = (x y); }\npotential (a) { model_nodes = (); model_data = (Normal(1,2)); }",
            "an expression",
        ),
        ("node a { states = (x y); } node b { states = (x y); }\npotential (a b | ) { }", "several nodes together"),
        (
            "".join(f"node a{k} {{ states = (x y); }}\n" for k in range(30))
            + f"potential (a0 | {' '.join(f'a{k}' for k in range(1, 30))}) {{ }}",
            "1,073,741,824 entries",
        ),
        (
            "".join(f"node a{k} {{ states = (x y); }}\n" for k in range(26))
            + f"potential (a0 | {' '.join(f'a{k}' for k in range(1, 26))}) {{ }}",
            "defaults stand for 67,108,864 entries",
        ),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, text, message):
    with pytest.raises(UnsupportedError, match=message):
        read(path_of(tmp_path, text))
