"""Reading XCSP3: meaning of each part, what is left out, real instances, and damage with its line."""

from __future__ import annotations

import itertools

import pytest

import oocbe
from oocbe.errors import FormatError, OocbeError, UnsupportedError
from oocbe.formats import read, read_model, xcsp_variables
from oocbe.formats.text import Text
from oocbe.formats.xml import parse_xml

HEAD = '<instance format="XCSP3" type="CSP">\n'
SAMPLE = """<?xml version="1.0"?>
<!-- a comment with <tags> -->
<instance format="XCSP3" type="COP">
  <variables>
    <array id="x" size="[2][2]"> 0..2 </array>
    <array id="y" size="[3]" startIndex="1">
      <domain for="y[1]"> -1 4 </domain>
      <domain for="y[3]"> 5 </domain>
    </array>
    <var id="z"> 1..3 7 </var>
    <var id="w" as="z"/>
  </variables>
  <constraints>
    <group>
      <extension>
        <list> %0 %1 </list>
        <supports> (0,1)(1,2)
          (2,*)(9,9) </supports>
      </extension>
      <args> x[0][] </args>
      <args> x[][1] </args>
    </group>
    <block class="rest">
      <extension>
        <list> z y[] </list>
        <conflicts> (1..2,-1,5)(7,4,*) </conflicts>
      </extension>
      <extension> <list> w </list> <supports> 1 2..3 </supports> </extension>
      <instantiation> <list> x[1][0] </list> <values> 1 </values> </instantiation>
    </block>
    <sum> <list> x[][] y[1] </list> <coeffs> 1 2 1 -1 3 </coeffs> <condition> (le,w) </condition> </sum>
    <sum> <list> z w </list> <condition> (in,3..9) </condition> </sum>
    <allDifferent> x[0][0] z w </allDifferent>
  </constraints>
  <objectives>
    <maximize type="sum"> <list> z x[0][1] </list> <coeffs> 2 5 </coeffs> </maximize>
  </objectives>
</instance>
"""


def path_of(tmp_path, text):
    path = tmp_path / "sample.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def solutions(problem):
    found = {}
    for assignment in itertools.product(*(range(size) for size in problem.sizes)):
        value = problem.evaluate(assignment)
        if value is not None:
            found[tuple(int(v.label(a)) for v, a in zip(problem.variables, assignment, strict=True))] = value
    return found


def expected():
    found = {}
    table = {(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)}
    for values in itertools.product(range(3), range(3), range(3), range(3), (-1, 4), (5,), (1, 2, 3, 7), (1, 2, 3, 7)):
        a, b, c, d, y, _, z, w = values
        kept = (a, b) in table and (b, d) in table
        kept &= not (z in (1, 2) and y == -1) and not (z == 7 and y == 4)
        kept &= w in (1, 2, 3) and c == 1
        kept &= a + 2 * b + c - d + 3 * y <= w and 3 <= z + w <= 9 and len({a, z, w}) == 3
        if kept:
            found[values] = 2 * z + 5 * b
    return found


def test_meaning(tmp_path):
    problem = read(path_of(tmp_path, SAMPLE))
    assert [v.name for v in problem.variables] == ["x[0][0]", "x[0][1]", "x[1][0]", "x[1][1]", "y[1]", "y[3]", "z", "w"]
    assert problem.semiring.name == "max-sum"
    assert solutions(problem) == expected() != {}
    assert oocbe.solve(problem, order_seconds=0).value == max(expected().values())
    model = read_model(path_of(tmp_path, SAMPLE))
    assert len(model.short_tables) == 2 and model.left_out == ()


def instance(constraints, variables='<array id="x" size="[3]"> 0..2 </array>', more=""):
    return (
        f"{HEAD}<variables> {variables} </variables>\n<constraints>\n{constraints}\n</constraints>{more}\n</instance>\n"
    )


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("(lt,3)", lambda s: s < 3),
        ("(le,3)", lambda s: s <= 3),
        ("(gt,3)", lambda s: s > 3),
        ("(ge,3)", lambda s: s >= 3),
        ("(eq,3)", lambda s: s == 3),
        ("(in,2..4)", lambda s: 2 <= s <= 4),
    ],
)
def test_conditions(tmp_path, condition, holds):
    text = instance(f"<sum> <list> x[] </list> <coeffs> 1 2 1 </coeffs> <condition> {condition} </condition> </sum>")
    found = solutions(read(path_of(tmp_path, text)))
    assert set(found) == {v for v in itertools.product(range(3), repeat=3) if holds(v[0] + 2 * v[1] + v[2])}


def test_arrays_like_others(tmp_path):
    arrays = (
        '<array id="x" size="[2][2]" startIndex="1"> <domain for="x[1][]"> 0 </domain> <domain for="x[2][1]"> 4 7 '
        '</domain> </array> <array id="y" as="x"/>'
    )
    problem = read(path_of(tmp_path, instance("<allDifferent> x[2][1] y[2][1] </allDifferent>", arrays)))
    assert [v.name for v in problem.variables[3:]] == ["y[1][1]", "y[1][2]", "y[2][1]"]
    assert set(solutions(problem)) == {(0, 0, 4, 0, 0, 7), (0, 0, 7, 0, 0, 4)}
    with pytest.raises(FormatError, match="line 2: found as='z'"):
        read(path_of(tmp_path, instance("", '<array id="y" as="z"/>')))


def test_domains_of_variables_and_arrays_are_those_of_each_other(tmp_path):
    declared = (
        '<array id="x" size="[2]"> 1 2 </array> <var id="y" as="x"/> <var id="z"> 3..4 </var>'
        ' <array id="u" size="[2]" as="z" startIndex="1"/> <array id="w" size="[1][2]" as="x"/>'
    )
    problem = read(path_of(tmp_path, instance("", declared)))
    assert [(v.name, v.labels) for v in problem.variables[2:]] == [
        ("y", ("1", "2")),
        *((name, ("3", "4")) for name in ("z", "u[1]", "u[2]")),
        *((name, ("1", "2")) for name in ("w[0][0]", "w[0][1]")),
    ]
    mixed = '<array id="x" size="[2]"> <domain for="x[0]"> 0 </domain> </array> <var id="y" as="x"/>'
    with pytest.raises(FormatError, match=r"line 2: found as='x', expected .* an array with one domain"):
        read(path_of(tmp_path, instance("", mixed)))
    with pytest.raises(FormatError, match="line 2: found the size ''"):
        read(path_of(tmp_path, instance("", '<var id="z"> 0 </var> <array id="x" as="z"/>')))


def test_constants_in_a_sum_count_with_their_coefficients(tmp_path):
    text = instance(
        "<sum> <list> x[0] 3 x[1] -1 </list> <coeffs> 2 1 1 2 </coeffs> <condition> (eq,5) </condition> </sum>",
        more="<objectives> <minimize type='sum'> <list> x[2] 7 </list> <coeffs> 1 3 </coeffs> </minimize></objectives>",
    )
    found = solutions(read(path_of(tmp_path, text)))
    assert found == {v: v[2] + 21 for v in itertools.product(range(3), repeat=3) if 2 * v[0] + v[1] + 1 == 5}


def test_groups_fill_lists_conditions_and_coefficients(tmp_path):
    text = instance(
        "<group> <sum> <list> %2 %... </list> <coeffs> %0 1 </coeffs> <condition> (eq,%1) </condition> </sum>\n"
        "<args> 2 3 x[0] x[1] </args> <args> 1 x[2] x[0] x[1] </args> </group>"
    )
    found = solutions(read(path_of(tmp_path, text)))
    assert set(found) == {
        v for v in itertools.product(range(3), repeat=3) if 2 * v[0] + v[1] == 3 and v[0] + v[1] == v[2]
    }


def test_empty_supports_are_infeasible(tmp_path):
    for supports in ("<supports> </supports>", "<supports/>", "<supports> (7,7,7) </supports>"):
        text = instance(f"<extension> <list> x[] </list> {supports} </extension>")
        assert oocbe.solve(path_of(tmp_path, text)).status == "infeasible"
    text = instance("<instantiation> <list> x[0] </list> <values> 9 </values> </instantiation>")
    assert oocbe.solve(path_of(tmp_path, text)).status == "infeasible"


@pytest.mark.parametrize(
    ("constraint", "what"),
    [
        ("<stretch> x[] </stretch>", "<stretch>"),
        (
            "<sum> <list> x[0] </list> <coeffs> 9223372036854775807 </coeffs> <condition> (le,3) </condition> </sum>",
            "64 bits",
        ),
        ('<extension type="soft"> <list> x[0] </list> <supports> 1 </supports> </extension>', "a soft <extension>"),
        ("<group> <slide/> <args> x[] </args> </group>", "<slide>"),
    ],
)
def test_what_has_no_form_is_left_out_by_name(tmp_path, constraint, what):
    path = path_of(tmp_path, instance(constraint))
    (left_out,) = read_model(path).left_out
    assert "sample.xml, line " in left_out and what in left_out
    with pytest.raises(UnsupportedError, match="is not supported"):
        read(path)


DAMAGES = [
    (('format="XCSP3"', 'format="XCSP2"'), 3, "expected <instance"),
    (('size="[2][2]"', 'size="2,2"'), 5, "expected such as"),
    (('id="x"', 'id="1x"'), 5, "expected a letter"),
    (("0..2", "2..0"), 5, "expected an integer"),
    (("0..2", "zero"), 5, "expected an integer"),
    (("0..2", "0..99999999999999999999"), 5, "expected an integer"),
    (("0..2", "0..999999999"), 5, "expected between 1 and"),
    (("0..2", "0 1 0"), 5, "a value of a domain twice"),
    (("0..2", ""), 5, "expected between 1 and"),
    (('startIndex="1"', 'startIndex="a"'), 6, "expected an integer"),
    (('for="y[3]"', 'for="y[4]"'), 8, "expected indices from 1 to 3"),
    (('for="y[3]"', 'for="y[1]"'), 8, "a second domain"),
    (('for="y[3]"', 'for="x[0][0]"'), 8, "expected cells of the array y"),
    (('id="w"', 'id="z"'), 11, "a second time"),
    (('as="z"', 'as="q"'), 11, "expected the name of a variable"),
    (("</variables>", "</variable>"), 12, "expected </variables>"),
    (("<list> %0 %1 </list>", "<list> %0 %2 </list>"), 16, "expected one of the 2 arguments"),
    (("(0,1)(1,2)", "(0,1)(1,2"), 17, "expected a tuple of 2"),
    (("(0,1)(1,2)", "(0,1)(1;2)"), 17, "expected a tuple of 2"),
    (("(0,1)(1,2)", "(0,1)(1,2,3)"), 17, "expected a tuple of 2"),
    (("(0,1)(1,2)", "(0,1) 7 (1,2)"), 17, "expected a tuple of 2"),
    (("(0,1)(1,2)", "(0,1)(1,)"), 17, "expected a tuple of 2"),
    (("(2,*)(9,9)", "(2,a)"), 18, "found 'a', expected a value"),
    (("(2,*)(9,9)", "(2,,)"), 18, "expected a tuple of 2"),
    (("(1..2,-1,5)", "(1..1000000000,-1,5)"), 26, "expected at most"),
    (("(1..2,-1,5)", "(2..1,-1,5)"), 26, "expected an integer"),
    (("<args> x[0][] </args>", "<args> q[0][] </args>"), 20, "expected a variable"),
    (("<args> x[0][] </args>", "<args> x[0] </args>"), 20, "expected 2 indices"),
    (("<args> x[0][] </args>", "<arg> x[0][] </arg>"), 20, "expected <args>"),
    (("<values> 1 </values>", "<values> 1 2 </values>"), 29, "2 values for 1 variables"),
    (("<coeffs> 1 2 1 -1 3 </coeffs>", "<coeffs> 1 2 </coeffs>"), 31, "2 coefficients of 5"),
    (("<coeffs> 1 2 1 -1 3 </coeffs>", "<coeffs> 1 2 1 - 3 </coeffs>"), 31, "expected an integer"),
    (("(in,3..9)", "3..9"), 32, "expected a condition"),
    (("(le,w)", "(le,v)"), 31, "expected a variable"),
    (("<maximize", "<optimize"), 36, "expected </"),
    (("<constraints>", "<constraints> text"), 13, "outside the elements that have text"),
    (("</instance>", ""), 39, "the file ends"),
    (("</instance>", "</instance><more/>"), 38, "a second root"),
    (("<?xml version", "<!DOCTYPE a [<!ENTITY b 'c'>]><?xml version"), 1, "document types of more"),
    (("<!-- a comment with <tags> -->", '<!DOCTYPE instance SYSTEM "other.dtd"> text'), 2, "found 'text' outside"),
    ((" 0..2 ", " &bomb; "), 5, "found the entity"),
    ((" 0..2 ", " <![CDATA[0]]> "), 5, "character data"),
    (("<!-- a comment with <tags> -->", "<!-- no end"), 2, "the file ends within a comment"),
]


@pytest.mark.parametrize(("damage", "line", "message"), DAMAGES)
def test_damage_is_named_with_its_line(tmp_path, damage, line, message):
    assert damage[0] in SAMPLE
    with pytest.raises(FormatError, match=rf"sample.xml, line {line}: .*{message}"):
        read_model(path_of(tmp_path, SAMPLE.replace(*damage, 1)))


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]>' + instance(""),
        instance("", '<array id="x" size="[1000000][1000000]"> 0 1 </array>'),
        instance("", '<array id="x" size="[' + "9" * 100 + ']"> 0 1 </array>'),
        instance("", "<var id='x'> 0..1000000000 </var>"),
        instance("", "".join(f'<var id="x{i}"> {i}..{i + 2**14} </var>' for i in range(40))),
        instance("<extension> <list> x[0] </list> <supports> 1..1000000000 </supports> </extension>"),
        instance("<extension> <list> x[] </list> <supports> (0..999,0..999,0..999) </supports> </extension>"),
        instance("<instantiation> <list> x[0] </list> <values> 0x999999999 </values> </instantiation>"),
        "<a>" * 100_000,
        instance("<sum> <list> " + "x[] " * 200 + "</list> <condition> (le,1) </condition> </sum>").replace(
            'size="[3]"', 'size="[5000]"'
        ),
    ],
)
def test_small_files_that_ask_for_much_are_refused_before(tmp_path, monkeypatch, text):
    """One large part, or many small ones. These are counted up to an eighth of the program's limit."""
    for name in ("MOST_VALUES", "MOST_LISTED"):
        monkeypatch.setattr(xcsp_variables, name, 2**19)
    path = path_of(tmp_path, text)
    with pytest.raises(OocbeError, match=r"sample\.xml"):
        read_model(path)


def reference(data):
    lines = data("xcsp/tables_reference.txt").read_text().split("\n")
    return {words[0]: dict(zip(words[1::2], words[2::2], strict=False)) for line in lines if (words := line.split())}


def test_real_instances_have_the_published_shape(data):
    names = {name: entry for name, entry in reference(data).items() if not name.startswith("Sudoku")}
    assert len(names) >= 14
    for name, entry in names.items():
        model = read_model(data(f"xcsp/{name}.gz"))
        problem = model.problem
        variables = int(entry["vars"])
        assert sum(problem.sizes[:variables]) == int(entry["values"]), name
        assert all(v.name.startswith(("expression.", "state.")) for v in problem.variables[variables:]), name
        assert model.left_out == (), name


def test_a_knapsack_is_read_whole(data):
    problem = read(data("xcsp/Knapsack-50-200-01.xml.gz"))
    assert len(problem.variables) == len(problem.functions) == 50 and len(problem.linear_constraints) == 1


def test_lines_are_counted_once():
    """Every sum is named by its line: counting from the start each time took minutes for a hundred thousand."""

    class Counted(bytes):
        bytes_counted = 0

        def count(self, part, begin, end):
            Counted.bytes_counted += end - begin
            return super().count(part, begin, end)

    text = Text("a.xml", b"<a>\n" + b"<b/>\n<b/><b\n/>\n" * 100 + b"</a>\n")
    text.data = Counted(text.data)
    root = parse_xml(text)
    assert [b.line for b in root.children][:7] == [2, 3, 3, 5, 6, 6, 8]
    assert root.children[-1].line == 300
    assert root.children[0].line == 2
    assert Counted.bytes_counted < 3 * len(text.data)
