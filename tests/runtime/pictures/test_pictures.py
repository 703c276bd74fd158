"""Pictures and what notebooks show: the numbers people look for, short, and drawn from what is there."""

import re
import time
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import oocbe
from oocbe.cli import failures
from oocbe.cli.main import app
from oocbe.errors import UsageError
from oocbe.formats import write
from oocbe.model.results.progress_curve import BucketDone, KnownAt
from oocbe.runtime.pictures.html import grid
from oocbe.runtime.pictures.plots import spring, tree_places

pytest.importorskip("matplotlib")

DAY, GRID = "examples/daily.spot", "examples/grid.wcsp"
RAIN = oocbe.Problem(
    (oocbe.Variable("rain", 2, ("yes", "<no>")), oocbe.Variable("grass", 2, ("wet", "dry"))),
    (oocbe.Function.from_array((0,), [0.25, 0.75]), oocbe.Function.from_array((0, 1), [[1, 0], [0.5, 0.5]])),
    semiring=oocbe.SUM_PRODUCT,
    name="rain",
)
SHORT = 5_000
"""Characters of what a notebook shows at most."""


def texts(html: str) -> dict[str, str]:
    """Facts by name of a card."""
    tree = ElementTree.fromstring(html)
    return {row[0].text: row[1].text for row in tree.iter("tr")}


@pytest.fixture(scope="module")
def solved():
    return oocbe.solve(DAY)


def test_a_result_shows_status_optimum_and_photographs(solved):
    facts = texts(solved._repr_html_())
    assert (facts["status"], facts["optimum"]) == ("optimal", "2,112")
    assert facts["photographs"] == f"{len(solved.schedule.taken)} of 120"
    assert facts["width"] == str(solved.width)


def test_a_network_is_drawn_from_parents_to_children_with_posteriors():
    tree = oocbe.JunctionTree(RAIN)
    tree.observe({"grass": "wet"})
    (axes,) = tree.plot().axes
    written = [text.get_text() for text in axes.texts]
    assert written == ["rain", "<no>", "0.6", "yes", "0.4", "", "grass", "wet", "1", "dry", "0"]
    (arrow,) = (text for text in axes.texts if not text.get_text())
    assert arrow.xyann[1] > arrow.xy[1]  # downwards
    boxes = [box for box in axes.patches if box.get_width() == 2.4]
    assert [box.get_edgecolor() != boxes[0].get_edgecolor() for box in boxes] == [False, True]
    (drawn,) = tree.mpe().plot().axes
    assert len([box for box in drawn.patches if box.get_width() == 2.4]) == 2
    assert {"rain", "grass"} < {text.get_text() for text in drawn.texts}


@pytest.mark.parametrize(("network", "message"), [(GRID, "holds probabilities"), (None, "61 variables")])
def test_what_is_no_network_or_too_large_is_not_drawn(network, message):
    many = oocbe.Problem(tuple(oocbe.Variable(f"x{i}", 2) for i in range(61)), (), semiring=oocbe.SUM_PRODUCT)
    with pytest.raises(oocbe.UnsupportedError, match=message):
        oocbe.JunctionTree(network or many).plot()


def test_a_plan_shows_a_page_and_not_its_repr():
    plan = oocbe.plan(DAY)
    html = plan._repr_html_()
    assert len(html) < SHORT
    assert texts(html)["width"] == str(plan.width)
    axes = plan.plot().axes
    width = next(a for a in axes if a.get_title() == f"width {plan.width}")
    assert max(width.lines[0].get_ydata()) == plan.width


def test_buckets_of_a_plan_are_named_where_names_have_room():
    small = oocbe.plan(GRID)
    names = {text.get_text() for text in small.plot().axes[0].texts}
    assert names == {b.name for b in small.buckets}
    large = oocbe.plan(DAY)
    tree = large.plot().axes[0]
    named = [text.get_text() for text in tree.texts]
    assert max(large.buckets, key=lambda b: b.predicted_bytes).name in named
    assert 2 <= len(named) == len(set(named)) <= 6
    places = np.array([text.xy for text in tree.texts])
    extent = np.ptp(np.asarray(tree.collections[-1].get_offsets()), axis=0)
    near = [np.abs((one - other) / extent).max() for one, other in combinations(places, 2)]
    assert min(near) > 0.05


def test_marks_of_a_course_are_within_its_axes():
    from oocbe.runtime.pictures.plots import course

    picture = course("x", [(1.0, 3, None), (2.0, 4, 9), (4.0, 9, 9)], [])
    left, right = picture.axes[0].get_xlim()
    assert left < 0 < 4.0 < right < 4.5
    told = course("x", [(3.99, 3, None), (4.0, 9, 9)], []).get_suptitle()
    assert told == "x; after 4 s, all at once: bound 9, value 9; no elimination took place"
    assert course("x", [], [("v", 3, 24)]).get_suptitle() == "x; no bound and no assignment"


def test_marginals_show_names_and_labels():
    result = oocbe.marginals(RAIN)
    assert texts(result._repr_html_())["rain"] == "yes: 0.25, <no>: 0.75"
    axes = result.plot().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rain", "grass"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.25, 0.75, 0.625, 0.375])


def test_everything_draws_itself(solved):
    problem = oocbe.read(GRID)
    shown = [
        problem,
        oocbe.bound(problem, [2, 3], incumbent_seconds=0),
        oocbe.k_best(problem, 3),
        oocbe.min_marginals(problem),
        oocbe.Table.from_rows({"a": 2}, [[0]], [5]),
        solved,
    ]
    for thing in shown:
        assert len(thing._repr_html_()) < SHORT
        assert thing.plot()._repr_png_().startswith(b"\x89PNG")


def test_what_has_nothing_to_draw_says_so():
    with pytest.raises(UsageError, match="nothing to draw"):
        oocbe.count(GRID).plot()
    with pytest.raises(UsageError, match="nothing to draw"):
        oocbe.most_probable_explanation(RAIN).plot()


def test_the_curve_ends_at_the_result(solved):
    known = (
        replace(solved, anytime=(KnownAt(0.1, 1000, None), KnownAt(0.2, 2000, 2112), *solved.anytime)).plot().axes[0]
    )
    assert {line.get_label(): line.get_ydata()[-1] for line in known.lines} == {"bound": 2112, "value": 2112}


def test_what_was_known_all_at_once_is_said_and_not_drawn(solved):
    picture = replace(solved, anytime=(KnownAt(0.25, 2112, 2112),)).plot()
    assert picture.get_suptitle() == "daily: optimal; after 0.25 s, all at once: bound 2,112, value 2,112"
    assert [axes.get_title() for axes in picture.axes] == ["messages of the last elimination"]


@pytest.mark.parametrize(("rows", "scale"), [((8, 4), "linear"), ((0, 7), "linear"), ((1, 5, 900), "log")])
def test_bars_have_numbers_beside_them(solved, rows, scale):
    picture = replace(solved, buckets=tuple(BucketDone(str(n), n, 8 * n) for n in rows)).plot()
    picture._repr_png_()  # texts are made where it is drawn
    axis = picture.axes[-1]
    low, high = axis.get_ylim()
    shown = [t for t in axis.yaxis.get_major_ticks() if low <= t.get_loc() <= high and t.label1.get_text()]
    assert (axis.get_yscale(), len(shown) >= 2) == (scale, True)


def test_schedules_and_batches_are_shown_in_a_few_words(solved):
    for thing in (solved.schedule, oocbe.read(DAY).day):
        assert len(repr(thing)) < 200
    assert texts(solved.schedule._repr_html_())["profit"] == "12,042 of 14,154"
    batch = oocbe.JunctionTree(RAIN).batch([{"grass": "wet"}, {"rain": "yes", "grass": "dry"}])
    assert repr(batch) == "<BatchResult of 2 cases, 1 of them impossible>"
    assert texts(batch._repr_html_())["marginals of"] == "rain, grass"
    assert repr(solved) == "<Result of daily: optimal 2112>"
    assert repr(oocbe.count(RAIN)).startswith("<TaskResult of ")
    pytest.importorskip("pyarrow")
    rows = solved.to_arrow().to_pylist()
    assert len(rows) == 120 and {row["variable"]: row["value"] for row in rows} == solved.labels
    taken = solved.schedule.to_arrow()
    assert taken.column_names == ["name", "camera", "group", "weight", "memory"]
    assert sum(taken.column("weight").to_pylist()) == 12042


def test_a_tree_and_tables_of_probabilities_are_shown():
    tree = oocbe.JunctionTree(RAIN)
    assert texts(tree._repr_html_())["tree"].startswith("made") or "cliques" in texts(tree._repr_html_())["tree"]
    shown = ElementTree.fromstring(tree.table("grass")._repr_html_())
    rows = [[cell.text for cell in row] for row in shown.iter("tr")]
    assert rows == [["rain", "grass=wet", "grass=dry"], ["yes", "1", "0"], ["<no>", "0.5", "0.5"]]
    with pytest.raises(oocbe.UsageError, match="no variable 'gras'; did you mean 'grass'"):
        tree.table("gras")


def test_a_grid_leaves_empty_columns_out_and_aligns_numbers():
    tree = ElementTree.fromstring(grid(("name", "group", "weight"), [("a", "", 5), ("b", None, 1200)]))
    rows = [[(cell.text, "right" in cell.get("style")) for cell in row] for row in tree.iter("tr")]
    assert rows == [
        [("name", False), ("weight", True)],
        [("a", False), ("5", True)],
        [("b", False), ("1,200", True)],
    ]


def test_a_report_has_all_of_a_day_and_needs_nothing_beside_itself(tmp_path, solved):
    page = tmp_path / "day.html"
    done = CliRunner().invoke(app, ["solve", DAY, "--report", str(page), "--quiet"])
    assert (done.exit_code, done.stdout) == (0, "optimal 2112\n")
    html = page.read_text()
    for heading in ("Schedule", "Course", "Largest messages", "Answer", "Order of elimination", "Settings", "Versions"):
        assert f"<h2>{heading}</h2>" in html
    assert html.count("<svg") == 2
    assert not re.search(r'(src|href)="(?!#)', re.sub(r"<svg.*?</svg>", "", html, flags=re.S))
    assert "<script" not in html
    assert f"{solved.schedule.profit:,} of {solved.schedule.possible:,}" in html
    assert "The value 2,112 is the weight of the photographs left out, which is minimised; the profit 12,042" in html
    assert html.count("<section") == html.count("<h2>") + 1
    assert oocbe.__version__ in html


def test_a_report_has_the_limit_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "begun", time.perf_counter() - 2.5)  # the command's own limit is 57.5 s
    page = tmp_path / "grid.html"
    done = CliRunner().invoke(app, ["solve", GRID, "--report", str(page), "--time-limit", "60", "--quiet"])
    assert done.exit_code == 0
    assert re.search(r"time-limit</th><td[^>]*>60</td>", page.read_text())


def test_a_report_has_what_each_solver_gained(tmp_path):
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(32) for v in range(u)]
    functions = tuple(oocbe.Function.from_array(pair, random.integers(0, 9, (2, 2))) for pair in pairs)
    problem = oocbe.Problem(tuple(oocbe.Variable(f"x{v}", 2) for v in range(32)), functions)
    result = oocbe.solve(problem, backend="cpu")
    assert result.status == "optimal"
    by_name = {solver.name: solver for solver in result.solvers}
    assert by_name["depth"].seconds > 0
    assert sum(solver.raised for solver in result.solvers) > 0
    assert sum(solver.closed for solver in result.solvers) == pytest.approx(1.0, abs=1e-3)
    assert [solver["name"] for solver in result.to_json()["solvers"]] == [*by_name]
    write(problem, tmp_path / "dense.wcsp")
    page = tmp_path / "dense.html"
    done = CliRunner().invoke(app, ["solve", str(tmp_path / "dense.wcsp"), "--report", str(page), "--quiet"])
    assert done.exit_code == 0
    assert "<h2>Solvers</h2>" in page.read_text()


@pytest.mark.parametrize("name", ["day.pdf", "day", "day.svg"])
def test_a_report_is_named_as_what_it_is(tmp_path, name):
    done = CliRunner().invoke(app, ["solve", GRID, "--report", str(tmp_path / name)])
    assert (done.exit_code, "ends in .html or .htm" in done.stderr) == (2, True)
    assert not (tmp_path / name).exists()


def test_a_report_is_never_written_over_the_problem(tmp_path):
    done = CliRunner().invoke(app, ["solve", GRID, "--report", GRID])
    assert (done.exit_code, "this is the problem itself" in done.stderr) == (2, True)


def test_a_schedule_uses_the_recorder_within_its_capacity(tmp_path):
    (tmp_path / "orbits.spot").write_text(
        "3\n0 5 3 1 451.1 2 451.1 3 451.1 101 1\n1 7 1 13 902 101 2\n2 1 1 2 451 102 1\n1\n2 0 1 1 13 3 13\n"
    )
    problem = oocbe.read(tmp_path / "orbits.spot")
    result = oocbe.solve(problem)
    schedule = result.schedule
    assert (schedule.profit, schedule.memory, schedule.capacity) == (13, 4, 200)
    assert [(t.name, t.group) for t in schedule.taken] == [("0", "101"), ("1", "101"), ("2", "102")]
    recorder = problem.day.plot(schedule).axes[1]
    assert recorder.collections[0].get_paths()[0].vertices[:, 1].max() == 4


def test_places_of_trees_and_graphs():
    places = tree_places([2, 2, None, None])
    assert places.tolist() == [[0, -1], [1, -1], [0.5, 0], [2, 0]]
    path = spring(6, np.array([[i, i + 1] for i in range(5)]))
    apart = np.hypot(*(path[:, None] - path[None]).T)
    assert np.isfinite(path).all()
    assert apart[0, 5] == apart.max()


def test_names_with_dollars_are_no_formulas():
    dollars = oocbe.Problem(
        (oocbe.Variable(r"$\frac$", 2, ("$^$", "b")), oocbe.Variable("plain", 2)),
        (oocbe.Function.from_array((0, 1), [[1, 2], [3, 4]]),),
        name="$_$",
    )
    drawn = [dollars.plot(), oocbe.plan(dollars).plot(), oocbe.solve(dollars).plot(), oocbe.k_best(dollars, 3).plot()]
    drawn.append(oocbe.marginals(dollars.in_semiring(oocbe.SUM_PRODUCT)).plot())
    assert all(picture.svg().startswith("<svg") for picture in drawn)
