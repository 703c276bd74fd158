"""Plans: what they say is what elimination then does, as text and as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import oocbe
from oocbe.algebra.complete_tables.complete_stream import CompleteStream
from oocbe.api.solving import outlook
from oocbe.api.tasks import count
from oocbe.api.tasks.verbs import run_task
from oocbe.elimination.buckets.forward import Forward
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.engine import consumption as linear
from oocbe.elimination.engine.bucket_engine import BucketEngine
from oocbe.elimination.plan.plan import candidate_orders, duration_of, make_plan
from oocbe.elimination.preparation.prepare import prepare
from oocbe.model.parts import Function, LinearConstraint, Variable
from oocbe.model.problem import Problem
from oocbe.model.settings.options import SolveOptions
from oocbe.model.settings.tuning import tuned
from oocbe.runtime.deadline import current
from oocbe.search import presolve
from tests.helpers.small_problems import clique, star


def chain(count=20, size=3) -> Problem:
    table = np.arange(size * size).reshape(size, size)
    functions = tuple(Function.from_array((v, v + 1), table) for v in range(count - 1))
    return Problem(tuple(Variable(f"x{v}", size) for v in range(count)), functions, name="chain")


def test_a_plan_tells_about_how_long_elimination_takes():
    """More rows take longer, whatever their form, and a bucket takes some time however few it has."""
    small, large = (make_plan(clique(variables, 3), SolveOptions(order_seconds=0)) for variables in (4, 9))
    assert 0 < small.predicted_seconds < large.predicted_seconds
    headline = f"elimination, about {duration_of(large.predicted_seconds)} of processor time"
    assert large.headline == headline and str(large).splitlines()[1] == f"  solve: {headline}"
    buckets = large.to_json()["buckets"]
    assert sum(b["predicted_seconds"] for b in buckets) == pytest.approx(large.predicted_seconds, abs=1e-4)
    assert headline in large._repr_html_()


@pytest.mark.parametrize(
    ("seconds", "headline"),
    [
        (0.0123, "0.012 s"),
        (100, "100 s"),
        (130, "2.2 minutes"),
        (8e3, "2.2 hours"),
        (5e7, "580 days"),
        (1e12, "10^5 years"),
    ],
)
def test_durations_are_no_more_exact_than_they_are(seconds, headline):
    assert duration_of(seconds) == headline


def test_buckets_are_those_of_the_forward_pass(random_problem):
    for seed in range(8):
        problem = random_problem(seed, variables=8)
        plan = make_plan(problem, SolveOptions(order_seconds=0))
        prepared = prepare(problem, problem.semiring, plan.order)
        with MessageStore(1 << 30) as store:
            outcome = Forward(prepared, False, store).run()
        for planned, bucket in zip(plan.buckets, outcome.buckets, strict=False):
            assert planned.variable == bucket.variable
            # A function whose values say nothing has no edge left when elimination begins.
            assert set(planned.separator) >= set(bucket.separator)
        assert outcome.width <= plan.width


def buckets_forms(content) -> set[str]:
    return {bucket["form"] for bucket in content["buckets"]}


def test_json():
    plan = oocbe.plan(chain(), order="min-degree", order_seconds=0)
    content = json.loads(json.dumps(plan.to_json()))
    assert content["schema_version"] == 1
    assert (content["width"], content["dtype"], content["semiring"]) == (1, "int32", "min-sum")
    assert sorted(content["order"]) == sorted(v.name for v in chain().variables)
    buckets = content["buckets"]
    assert [b["variable"] for b in buckets] == content["order"]
    assert content["predicted_rows"] == sum(b["predicted_rows"] for b in buckets) == 19 * 3 + 1
    assert content["predicted_bytes"] == content["predicted_rows"] * 4
    rows = oocbe.plan(chain(), order="min-degree", order_seconds=0, tables="incomplete").to_json()
    assert rows["predicted_bytes"] == content["predicted_rows"] * 12
    assert (buckets_forms(content), buckets_forms(rows)) == ({"complete"}, {"incomplete"})
    assert buckets[0]["bits"] == 2
    assert buckets[0]["complete_rows"] == 3


def test_text():
    text = str(oocbe.plan(chain(), order="min-degree", order_seconds=0))
    assert "chain: 20 variables, order min-degree" in text
    assert "induced width 1, min-sum over int32" in text
    assert "8 smaller buckets" in text
    assert "bounds: none, as elimination ends sooner" in text
    assert len(text.splitlines()) == 7 + 12 + 1


def test_the_plan_says_which_bounds_would_be_had():
    for bounds, part in (("none", ""), ("lp", "lp, in 20 s"), ("constant", "constant, in 20 s")):
        assert oocbe.plan(chain(), order_seconds=0, bounds=bounds).bounds == part
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(20) for v in range(u + 1, 20)]
    dense = Problem(
        tuple(Variable(f"x{v}", 4) for v in range(20)),
        tuple(Function.from_array(pair, random.integers(0, 9, (4, 4))) for pair in pairs),
    )
    plan = oocbe.plan(dense, order_seconds=0)
    assert "the best at the root of constant, local-polytope and lp in 20 s" in plan.bounds
    _, second, *rest = str(plan).splitlines()
    assert second == f"  solve: {plan.bounds}" and plan.to_json()["solve"] == plan.bounds
    assert any(line.startswith("  elimination alone, which is not what solve begins with: ") for line in rest)


def test_text_of_plans_with_astronomical_predictions():
    """Beyond 1,024 bits row counts leave the range of floats, and must still be printed."""
    count = 1100
    problem = Problem(
        tuple(Variable(f"x{v}", 2) for v in range(count)),
        (Function(tuple(range(count)), np.zeros((1, count), dtype=int), [3]),),
    )
    order = tuple(range(count))
    from oocbe.elimination.orders.order import OrderChoice
    from oocbe.elimination.plan.plan import plan_for

    separators = tuple(order[v + 1 :] for v in order)
    choice = OrderChoice(
        order, "by hand", 1, separators, tuple(min(2.0**960, 2.0 ** min(1000, 1099 - v)) for v in order)
    )
    plan = plan_for(problem, problem.semiring, choice)
    text = str(plan)
    assert "2^960.0 rows predicted" in text
    assert "complete 2^1099.0" in text
    assert max(map(len, text.splitlines())) < 420
    json.dumps(plan.to_json())


def test_without_variables():
    plan = oocbe.plan(Problem((), constant=2))
    assert (plan.width, plan.largest, plan.order) == (0, None, ())
    assert "0 variables" in str(plan)


def test_candidates_begin_with_the_plan_itself():
    problem = chain(30)
    options = SolveOptions(order_seconds=0, seed=3)
    choices = candidate_orders(problem, options)
    assert choices[0] == make_plan(problem, options).choice
    predicted = [sum(choice.predicted_rows) for choice in choices]
    assert predicted == sorted(predicted)
    assert len(candidate_orders(problem, SolveOptions(order="min-fill"))) == 1


@pytest.mark.parametrize("semiring", ["counting", "sum-product", "log-sum-exp"])
def test_dtype_of_the_semiring_asked_for(semiring):
    assert oocbe.plan(chain(4), semiring=semiring, order_seconds=0).semiring == semiring


UNPRUNED = {"order": "min-degree", "order_seconds": 0, "dominance": False, "bounds": "none", "tables": "incomplete"}


def test_the_plan_says_what_goes_to_disk_and_in_how_many_pieces(tune, tmp_path):
    """Messages of 4^5, 4^4, … rows of 12 bytes: with room for all, and with room for a few hundred."""
    problem = clique(6, 4, largest=9, has_forbidden=False)
    buckets = oocbe.plan(problem, **UNPRUNED).buckets
    assert [(b.passage.pieces, b.passage.disk_bytes) for b in buckets] == [(1, 0)] * 6
    assert [b.passage.input_bytes for b in buckets] == [0, *(12 * 4**n for n in (5, 4, 3, 2, 1))]
    tune(message_bytes=12 * 700)
    plan = oocbe.plan(problem, **UNPRUNED)
    assert [b.passage.pieces > 1 for b in plan.buckets] == [True, True, *[False] * 4]
    assert [b.passage.disk_bytes > 0 for b in plan.buckets] == [True, True, *[False] * 4]
    assert plan.disk_bytes == 12 * (4**5 + 4**4)
    assert 0 < plan.least_disk_bytes < plan.disk_bytes
    content = plan.to_json()
    assert content["disk_bytes"] == sum(b["disk_bytes"] for b in content["buckets"])
    with MessageStore(12 * 700) as store:
        prepared = prepare(problem, problem.semiring, plan.order)
        outcome = Forward(prepared, False, store).run()
        on_disk = [b.sent is not None and not b.sent.is_in_memory for b in outcome.buckets]
    assert on_disk[:2] == [True, True]
    kept = oocbe.plan(problem, workdir=tmp_path / "run", **UNPRUNED)
    assert all(b.passage.disk_bytes for b in kept.buckets)


def test_the_plan_says_the_same_of_complete_messages(monkeypatch, tmp_path, tune):
    """Messages of 4^5, 4^4, … values of 4 bytes, joined in as many pieces as the forecast says."""
    problem, given = clique(6, 4, largest=9, has_forbidden=False), {**UNPRUNED, "tables": "complete", "streams": 2}
    buckets = oocbe.plan(problem, **given).buckets
    assert [(b.passage.pieces, b.passage.disk_bytes) for b in buckets] == [(1, 0)] * 6
    assert [b.passage.input_bytes for b in buckets] == [0, *(4 * 4**n for n in (5, 4, 3, 2, 1))]
    memory = 4096
    tune(message_bytes=memory)
    plan = oocbe.plan(problem, **given)
    assert {b.form for b in plan.buckets} == {"complete"}
    assert plan.disk_bytes >= 4 * (4**5 + 4**4)
    assert 0 < plan.least_disk_bytes < plan.disk_bytes
    made = []
    values = CompleteStream.values
    monkeypatch.setattr(CompleteStream, "values", lambda stream: made.append(stream.cuts.pieces) or values(stream))
    with MessageStore(memory) as store:
        outcome = Forward(
            prepare(problem, problem.semiring, plan.order), False, store, engine=BucketEngine("cpu"), tables="complete"
        ).run()
        on_disk = [b.sent is not None and not b.sent.is_in_memory for b in outcome.buckets]
    assert [b.passage.pieces for b in plan.buckets[: len(made)]] == made
    assert [b.passage.disk_bytes > 0 for b in plan.buckets[: len(made)]] == on_disk[: len(made)]
    assert f"{plan.buckets[0].passage.pieces}" in str(plan)


def test_rows_that_carry_a_capacity_are_whole_in_plan_and_run(monkeypatch, tune):
    """Messages of at least 4^5 rows, and room for 100: asked for small pieces or not, neither cuts them."""
    monkeypatch.setattr(linear, "TABULATED_BITS", -1)
    problem = clique(6, 4, largest=9, has_forbidden=False)
    capacity = LinearConstraint(tuple(range(6)), (np.arange(4),) * 6, 15)
    problem = replace(problem, linear_constraints=(capacity,))
    assert all(b.passage.fits for b in oocbe.plan(problem, **UNPRUNED).buckets)
    for piece_rows in (None, 50):
        with tuned(message_bytes=12 * 100):
            plan = oocbe.plan(problem, piece_rows=piece_rows, **UNPRUNED)
            assert [b.passage.pieces for b in plan.buckets] == [1] * 6
            assert [b.passage.fits for b in plan.buckets] == [b["fits"] for b in plan.to_json()["buckets"]]
            assert not plan.buckets[0].passage.fits
            assert "messages may not fit: rows that carry what they consume of a capacity are not cut" in str(plan)
            with pytest.raises(oocbe.ResourceError, match="does not fit memory"):
                oocbe.solve(problem, piece_rows=piece_rows, **UNPRUNED)
        plan = oocbe.plan(problem, piece_rows=piece_rows, **UNPRUNED)
        assert all(b.passage.strategy.is_whole and b.passage.pieces == 1 for b in plan.buckets)
        assert "may not fit" not in str(plan)


def test_what_cannot_fit_the_disk_is_refused_with_the_numbers(monkeypatch, tune):
    problem = clique(6, 4, largest=9, has_forbidden=False)
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    tune(message_bytes=12 * 700)
    plan = oocbe.plan(problem, max_disk=100, **UNPRUNED)
    assert "2 messages with 1,280 rows go to disk and take 160 B there at least (15.0 KiB before" in plan.disk_refusal
    assert "100 B may be used (--max-disk, free space)" in plan.disk_refusal
    with pytest.raises(oocbe.ResourceError, match="by the plan 2 messages with 1,280 rows go to disk"):
        oocbe.solve(problem, max_disk=100, **UNPRUNED)
    assert oocbe.plan(problem, max_disk=10**6, **UNPRUNED).disk_refusal == ""
    assert oocbe.plan(problem, max_disk=100, **{**UNPRUNED, "dominance": True}).disk_refusal == ""
    assert oocbe.solve(problem, max_disk=10**6, **UNPRUNED).status == "optimal"


def test_rows_that_eliminated_variables_forbid_are_no_reason_to_refuse(tmp_path, monkeypatch, tune):
    """One variable equals all others and goes first: its message has two of the 4,096 rows that no pair forbids."""
    count = 13
    (tmp_path / "order").write_text(" ".join(f"x{v}" for v in range(count)))
    options = UNPRUNED | {"order": tmp_path / "order", "max_disk": 1000}
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    tune(message_bytes=12 * 700)
    plan = oocbe.plan(star(count), **options)
    assert plan.buckets[0].predicted_rows == 2**12
    assert plan.disk_refusal == ""
    assert oocbe.solve(star(count), **options).value == count


def test_a_plan_leaves_long_preparations_out(monkeypatch, tune):
    """Reduction and a sample of rows took tens of seconds of 100,000 variables, whatever ``order_seconds`` said."""
    monkeypatch.setattr(outlook, "PREPARATION_SECONDS", 0.0)
    monkeypatch.setattr(presolve, "PREPARATION_SECONDS", 0.0)
    random = np.random.default_rng(0)
    pairs = [(u, v) for u in range(20) for v in range(u + 1, 20)] + [(v, v + 1) for v in range(19, 300)]
    functions = tuple(Function.from_array(pair, random.integers(0, 9, (4, 4))) for pair in pairs)
    problem = Problem(tuple(Variable(f"x{v}", 4) for v in range(301)), functions)
    plan = oocbe.plan(problem, order_seconds=0)
    assert "propagated and reduced in part, which a solve does" in plan.propagation and len(plan.buckets) == 301
    fixed = problem.with_evidence({"x300": 1})
    assert len(oocbe.plan(fixed, order_seconds=0).buckets) == 300
    tune(many_parts=1)
    assert len(oocbe.plan(fixed, order_seconds=0).buckets) == 301
    assert plan.bounds.startswith("first depth-first search (a sample of it takes more than 0 s)")


@pytest.mark.parametrize("task", ["count", "logz", "marginals", "kbest", "count-optimal", "min-marginals"])
def test_the_plan_of_a_task_has_the_rows_of_its_tables(task):
    """No row is removed, so the predicted rows are those of the tables that the task computes."""
    random = np.random.default_rng(7)
    tables = [
        oocbe.Function.from_array((v, v + 1, v + 2), random.integers(0, 9, (6, 6, 6)), infeasible=0) for v in range(9)
    ]
    problem = oocbe.Problem(tuple(oocbe.Variable(f"x{v}", 6) for v in range(11)), tuple(tables))
    options = {"order_seconds": 0.0, "backend": "cpu", "tables": "incomplete"}
    plan = oocbe.plan(problem, task=task, **options)
    found = run_task(task, problem, **options)
    assert plan.width == found.width
    if not plan.loop_seconds and task != "marginals":
        assert sum(plan.choice.predicted_rows) == found.total_rows


def test_the_plan_of_a_count_of_clauses_is_that_of_the_preprocessed_clauses(tmp_path, tune):
    """Equal literals leave half of the variables; a plan of all of them would have another width."""
    random = np.random.default_rng(5)
    clauses = [[v, -(v + 20)] for v in range(1, 21)] + [[-v, v + 20] for v in range(1, 21)]
    for _ in range(40):
        chosen = random.choice(40, 3, replace=False) + 1
        clauses.append((chosen * random.choice((-1, 1), 3)).tolist())
    lines = [" ".join(map(str, (*clause, 0))) for clause in clauses]
    (tmp_path / "equal.cnf").write_text("\n".join([f"p cnf 40 {len(lines)}", *lines]) + "\n")
    problem = oocbe.read(tmp_path / "equal.cnf")
    plan, found = oocbe.plan(problem, task="count"), oocbe.count(problem)
    assert (plan.presolve, plan.width, plan.bounds) == (found.presolve, found.width, "")
    assert plan.presolve[0].variables >= 20 and len(plan.buckets) == 40 - plan.presolve[0].variables
    tune(searched_rows=0.0)
    assert oocbe.plan(problem, task="count").headline.startswith("a search")
    assert "counted by a search" in oocbe.count(problem).notes[0]


@pytest.mark.parametrize(
    "question", ["c t wmc\nc p weight 3 2/3 0\nc p weight -3 4 0", "c t pmc\nc p show 1 4 7 10 0", "c ind 2 3 5 8 9 0"]
)
@pytest.mark.parametrize("options", [{}, {"tables": "incomplete"}, {"tables": "incomplete", "float_counts": True}])
def test_the_plan_of_a_weighted_or_projected_count_is_of_what_counts(tmp_path, question, options):
    """Clauses are searched; with a form of tables, hidden variables are the first of the elimination."""
    random = np.random.default_rng(6)
    clauses = [(random.choice(12, 3, replace=False) + 1) * random.choice((-1, 1), 3) for _ in range(24)]
    lines = [" ".join(map(str, (*clause.tolist(), 0))) for clause in clauses]
    (tmp_path / "asked.cnf").write_text("\n".join([f"p cnf 12 {len(lines)}", question, *lines]) + "\n")
    problem = oocbe.read(tmp_path / "asked.cnf")
    plan, found = (f(problem, order_seconds=0.0, **options) for f in (partial(oocbe.plan, task="count"), oocbe.count))
    assert found.value > 0
    if options:
        assert (plan.order, plan.width) == (found.order, found.width)
        assert plan.headline.startswith("elimination")
    else:
        assert plan.headline.startswith("a search")
        assert plan.presolve[-1] == found.presolve[-1]


def test_a_plan_of_clauses_waits_for_loops_that_are_not_compiled(monkeypatch, tmp_path):
    """The seconds of its preprocessing are for work: on a first run, compilation ended the plan with an error."""
    left = []

    def presolve(formula, seconds):
        left.append(current().outermost.remaining)
        return original(formula, seconds)

    original = count.presolve
    monkeypatch.setattr(count, "presolve", presolve)
    path = tmp_path / "three.cnf"
    path.write_text("p cnf 3 2\n1 2 0\n-2 3 0\n")
    count.clauses_left(oocbe.read(path), SolveOptions(), 1.0)
    assert left == [math.inf]


def test_the_plan_of_mpe_is_one_in_logarithms_and_unknown_tasks_are_refused():
    factor = oocbe.Function.from_array((0, 1), [[0.5, 0.25], [0.0, 0.25]], infeasible=0.0)
    problem = oocbe.Problem((oocbe.Variable("a", 2), oocbe.Variable("b", 2)), (factor,), semiring=oocbe.SUM_PRODUCT)
    assert oocbe.plan(problem, task="mpe").width == 1
    with pytest.raises(oocbe.UsageError, match="unknown task 'sum'; known: mpe"):
        oocbe.plan(problem, task="sum")
    with pytest.raises(oocbe.UsageError, match="temperature: 0 is no number above 0"):
        oocbe.plan(problem, task="logz", temperature=0)
