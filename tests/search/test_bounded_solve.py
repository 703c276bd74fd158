"""Solving with bounds: the optimum with every source, upper bound and incumbent; limits end with what is known."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocbe
from oocbe.api.solving import strategies as solving
from oocbe.bounds import incumbent
from oocbe.bounds.incumbent import Incumbent
from oocbe.elimination.race import Race
from oocbe.elimination.runs.run_directory import describe_run
from oocbe.errors import ResourceError, TimeLimitError, UnsupportedError, UsageError
from oocbe.model.parts import Constraint, Function, Variable
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.semiring import MAX_PRODUCT, MAX_SUM, MIN_SUM
from oocbe.runtime.deadline import current
from oocbe.search import bounded, depth_search, incumbent_search, presolve
from oocbe.search.incumbent_search import IncumbentSearch
from oocbe.search.subsolver import Portfolio
from tests.helpers.effort import examples
from tests.helpers.small_problems import brute_force, check, clique, make_problem, structures, without_bound

SOURCES = ["constant", "lp", "local-polytope"]


def solve(problem: Problem, **options) -> Result:
    return oocbe.solve(problem, **{"order_seconds": 0, "incumbent_seconds": 0.002, "bound_seconds": 0.05, **options})


@settings(max_examples=examples(60))
@given(structures((MIN_SUM, MAX_SUM)), st.sampled_from(SOURCES), st.booleans(), st.booleans())
def test_the_optimum_with_every_source(structure, source, with_incumbent, dominance):
    problem = make_problem(structure)
    expected = brute_force(problem)
    seconds = 0.002 if with_incumbent else 0
    result = solve(problem, bounds=source, incumbent_seconds=seconds, dominance=dominance, seed=structure["seed"])
    if expected is None:
        assert (result.status, result.value, result.assignment) == ("infeasible", None, None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


@settings(max_examples=examples(60))
@given(structures((MIN_SUM,)), st.sampled_from(SOURCES), st.sampled_from([-2, 0, 1, 30]))
def test_only_what_is_better_than_the_upper_bound(structure, source, above):
    problem = without_bound(make_problem({**structure, "integral": True}))
    expected = brute_force(problem)
    ub = (0 if expected is None else expected) + above
    result = solve(problem, bounds=source, ub=ub)
    if expected is None or above <= 0:
        assert (result.status, result.value, result.assignment) == ("nothing-better", None, None)
        assert (result.exit_code, result.bound) == (11, ub)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


@settings(max_examples=examples(60))
@given(structures((MIN_SUM,)), st.integers(1, 40), st.integers(1, 7))
def test_tiny_caps_blocks_and_memory(structure, cap, threads):
    """Every round gives up at first, so that bounds of what is left and more incumbents come in between."""
    problem = make_problem(structure)
    expected = brute_force(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOCBE_THREADS", str(threads))
        patch.setattr(bounded, "QUICK_CAP", cap)
        patch.setattr(bounded, "CAP_FACTOR", 2)
        result = solve(problem, bounds="constant", incumbent_seconds=0)
    if expected is None:
        assert (result.status, result.value) == ("infeasible", None)
        return
    assert result.status == "optimal"
    check(problem, result.value, result.assignment, expected)


def test_all_searches_for_orders_share_one_budget(monkeypatch):
    """Each round of elimination below a threshold orders what is left anew."""
    asked, spent, search = [], iter(range(0, 1000, 2)), bounded.search_orders

    def record(problem, wanted, seconds, *given, **more):
        asked.append(seconds)
        return search(problem, wanted, 0.0, *given, **more)

    monkeypatch.setattr(bounded, "QUICK_CAP", 1)
    monkeypatch.setattr(bounded, "CAP_FACTOR", 2)
    monkeypatch.setattr(bounded, "search_orders", record)
    monkeypatch.setattr(bounded, "working_time", lambda: float(next(spent)))  # 2 s each
    solve(chain(14, 4), bounds="constant", incumbent_seconds=0, order_seconds=13.0)
    longer = [seconds for seconds in asked if seconds]
    assert longer[0] > 2
    assert longer == sorted(longer, reverse=True)
    assert longer[-1] == 0.5


def chain(count=24, size=5, seed=0) -> Problem:
    """Costs over triples along a line, a few of them forbidden, and crossings that make separators wide."""
    random = np.random.default_rng(seed)
    scopes = [(v, v + 1, v + 2) for v in range(count - 2)] + [(v, (v + count // 2) % count) for v in range(count // 2)]
    return Problem(
        tuple(Variable(f"x{v}", size) for v in range(count)),
        tuple(Function.from_array(s, random.integers(0, 100, [size] * len(s))) for s in scopes),
        tuple(Constraint(s, [random.integers(0, size, len(s))]) for s in scopes),
        name="chain",
    )


def test_a_time_limit_ends_with_bound_and_assignment(monkeypatch):
    # The last moment is as long as a slow machine takes for it: what is done in it ends by itself.
    monkeypatch.setattr(bounded, "LAST_BOUND_SECONDS", 600)
    monkeypatch.setattr(incumbent_search, "LAST_SECONDS", 600)
    problem = chain(60, 12)
    result = solve(problem, time_limit=0.3, incumbent_seconds=1, bound_seconds=0.05)
    assert (result.status, result.exit_code) == ("limit", 20)
    assert result.bound is not None
    assert result.value == problem.evaluate(result.assignment)
    assert result.bound < result.value
    assert result.gap == result.value - result.bound
    assert any("time limit" in note for note in result.notes)


def test_no_time_at_all_still_gives_a_bound(monkeypatch):
    monkeypatch.setattr(bounded, "LAST_BOUND_SECONDS", 600)
    result = solve(chain(60, 6), time_limit=0)
    assert result.status == "limit"
    assert result.bound is not None


def out_of_time_after(searches, monkeypatch) -> list[Incumbent | None]:
    """Elimination whose time ends once so many searches for assignments have ended; what all of them find."""
    found = []
    original = depth_search.find_incumbent  # which stays, as its module has been imported before
    monkeypatch.setattr(
        incumbent, "find_incumbent", lambda *given, **named: found.append(original(*given, **named)) or found[-1]
    )

    class LateRace(Race):
        def rounds(self):
            while len(found) < searches:
                time.sleep(0.01)
            self._engine.deadline.interrupt()  # which is that of the solve
            raise TimeLimitError("the time limit was reached")

    monkeypatch.setattr(solving, "Race", LateRace)
    return found


@pytest.mark.parametrize("values", [[[7, 3], [4, 9]], [[0.7, 0.3], [0.4, 0.9]]])
def test_where_no_bound_can_be_compiled_in_time_the_minima_are_one(values, monkeypatch):
    """With nothing compiled, p2756 ended after 10 s without a bound."""

    def too_late(*_):
        raise TimeLimitError

    monkeypatch.setattr(bounded.BoundedSolve, "_bound", too_late)
    functions = tuple(Function.from_array((v, v + 1), values) for v in range(4))
    problem = Problem(tuple(Variable(f"x{v}", 2) for v in range(5)), functions)
    result = oocbe.solve(problem, bounds="constant", incumbent_seconds=0)
    least = 4 * min(map(min, values))
    assert result.status == "limit"
    assert least * (1 - 1e-9) <= result.bound <= least


def test_a_time_limit_without_bounds_ends_with_an_assignment(monkeypatch):
    problem = chain(60, 12)
    out_of_time_after(1, monkeypatch)
    result = solve(problem, time_limit=100, incumbent_seconds=0.2, bounds="none", order="min-fill")
    assert (result.status, result.bound) == ("limit", None)
    assert result.value == problem.evaluate(result.assignment)


@pytest.mark.parametrize("shift", [0, -200])
def test_what_a_search_finds_of_a_maximum_without_bounds_is_its_best(shift, monkeypatch):
    """Values below 0, too."""
    least = chain(60, 12)
    functions = tuple(Function(f.scope, f.tuples, f.values + shift, f.default) for f in least.functions)
    problem = Problem(least.variables, functions, least.constraints, semiring=MAX_SUM)
    found = out_of_time_after(1, monkeypatch)
    result = solve(problem, time_limit=100, incumbent_seconds=0.2, bounds="none", order="min-fill")
    assert result.status == "limit"
    values = [problem.evaluate(f.assignment) for f in found if f is not None]
    assert result.value == max(values) == problem.evaluate(result.assignment)


class CutShort:
    """Interrupts a solve behind a bucket of an order: of the first that gets so far from some run on."""

    def __init__(self, run=0, bucket=0):
        self.run, self.bucket, self.runs = run, bucket, []

    def started(self, plan):
        self.runs.append(len(plan.buckets))

    def bucket_done(self, number, *_):
        if len(self.runs) >= self.run and number == self.bucket:
            raise KeyboardInterrupt

    def bounds_changed(self, *_):
        pass

    def finished(self, result):
        pass


@pytest.mark.parametrize("run", [1, 2, 4])
def test_a_round_that_was_cut_short_goes_on_with_its_order_and_messages(run, monkeypatch, tmp_path):
    """Whatever bounds and orders a resumed run comes to: both depend on time."""
    monkeypatch.setattr(bounded, "QUICK_CAP", 200)
    problem = chain(24, 4)
    options = {"bounds": "lp", "workdir": tmp_path, "incumbent_seconds": 0.05, "order_seconds": 0.01}
    expected = oocbe.solve(problem, bounds="none", order_seconds=0.01).value
    with pytest.raises(KeyboardInterrupt):
        oocbe.solve(problem, **options, bound_seconds=0.3, observer=CutShort(run, 7))
    assert len(list(tmp_path.glob("order-*/message-*.json"))) == 7
    search, resumed = bounded.search_orders, CutShort()

    def others(problem, *given, **more):
        assert resumed.runs  # the order that was at work comes first
        return search(problem, *given, **more)[::-1]

    monkeypatch.setattr(bounded, "search_orders", others)
    result = oocbe.solve(problem, **options, bound_seconds=0.02, resume=True, observer=resumed)
    assert result.value == expected
    assert result.status == "optimal"
    assert f"resumed: 7 messages found in {tmp_path}" in result.notes


def test_what_is_found_before_time_ends_is_known_to_bounds(monkeypatch):
    """Elimination that needs no bounds gives up: its bound is still asked for, and the assignment is not lost."""
    problem = chain(60, 6)
    found = out_of_time_after(1, monkeypatch)
    monkeypatch.setattr(solving, "needs_no_bounds", lambda *_: True)
    monkeypatch.setattr(presolve, "LARGEST", 0)
    result = solve(problem, time_limit=60, incumbent_seconds=0.2)
    assert result.status == "limit"
    assert result.bound is not None
    assert result.value <= min(f.value for f in found[:1] if f is not None)
    assert result.value == problem.evaluate(result.assignment)


def test_a_time_limit_stops_what_has_no_incumbent():
    problem = chain(60, 12)
    with pytest.raises(TimeLimitError):
        solve(problem, time_limit=0.2, semiring="log-sum-exp")


@pytest.mark.parametrize("gap", ["100%", 100_000])
def test_a_gap_ends_the_search(gap, monkeypatch):
    problem = chain(60, 6)
    result = solve(problem, gap=gap, incumbent_seconds=0.5, tables="incomplete")
    assert (result.status, result.exit_code) == ("limit", 20)
    assert result.value == problem.evaluate(result.assignment)
    assert result.bound < result.value


def test_too_little_disk_still_gives_a_bound_and_an_assignment(monkeypatch, tune):
    tune(message_bytes=200_000)
    monkeypatch.setattr("oocbe.model.settings.option_values.LEAST_MEMORY", 1)
    problem = chain(60, 6)
    result = solve(problem, max_disk=20_000, incumbent_seconds=0.2, bounds="constant")
    assert result.status == "limit"
    assert result.bound < result.value == problem.evaluate(result.assignment)
    assert any("--max-disk" in note for note in result.notes)


def test_the_observer_hears_of_bounds_in_the_problem_s_own_sense():
    problem = chain(14, 3)
    negative = Problem(
        problem.variables,
        tuple(Function(f.scope, f.tuples, -f.values, f.default) for f in problem.functions),
        problem.constraints,
        semiring=MAX_SUM,
    )

    class Listening(oocbe.Observer):
        def __init__(self):
            self.heard = []

        def bounds_changed(self, lower, value, why, assignment):
            self.heard.append((lower, value))

    least, greatest = Listening(), Listening()
    result = solve(problem, bounds="local-polytope", observer=least)
    assert solve(negative, bounds="local-polytope", observer=greatest).value == -result.value
    for listening, sign in ((least, 1), (greatest, -1)):
        assert listening.heard[-1] == (sign * result.value, sign * result.value)
        lower = [sign * bound for bound, _ in listening.heard if bound is not None]
        values = [sign * value for _, value in listening.heard if value is not None]
        assert lower == sorted(lower)
        assert values == sorted(values, reverse=True)
        assert max(lower) <= result.value <= min(values)


def test_an_upper_bound_needs_min_sum():
    with pytest.raises(UsageError, match="max-sum"):
        oocbe.solve(chain(5, 2), semiring="max-sum", ub=3)


@pytest.mark.parametrize("largest", [1 << 40, 1 << 52, 1 << 61])
def test_values_near_the_end_of_64_bits(largest):
    """Where a relaxation's sums would leave 64 bits the problem is solved without it."""
    pair = Function.from_array((0, 1), [[largest, 3], [largest - 1, largest]])
    problem = Problem((Variable("a", 2), Variable("b", 2)), (pair, Function.from_array((0,), [4, 0])))
    for source in SOURCES:
        result = solve(problem, bounds=source)
        assert (result.status, result.value, result.assignment) == ("optimal", 7, (0, 1))


def test_a_failure_of_the_search_for_assignments_is_no_failure_of_the_solve(monkeypatch):
    def refuse(*arguments):
        raise UnsupportedError("no such search")

    monkeypatch.setattr(incumbent, "LocalSearch", refuse)
    problem = chain(14, 3)
    assert solve(problem, bounds="local-polytope").value == oocbe.solve(problem, bounds="none").value


def test_an_error_in_the_search_for_assignments_is_raised(monkeypatch):
    def fail(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(incumbent, "LocalSearch", fail)
    with pytest.raises(ZeroDivisionError):
        solve(chain(14, 3), bounds="local-polytope")


@pytest.mark.parametrize("limit", [{"time_limit": 0}, {"gap": 1e9}], ids=str)
def test_what_is_known_is_kept_also_where_a_limit_comes_before_the_first_round(tmp_path, limit):
    settings = {"workdir": tmp_path / "run", "bounds": "constant"}
    ended = solve(chain(30, 4), **settings, incumbent_seconds=0.2, **limit)
    assert (ended.status, ended.value is None) == ("limit", False)
    kept = describe_run(tmp_path / "run")
    assert (kept["value"], kept["bound"]) == (ended.value, ended.bound)
    again = solve(chain(30, 4), **settings, resume=True, incumbent_seconds=0, time_limit=0)
    assert (again.status, again.value, again.bound) == ("limit", ended.value, ended.bound)
    assert solve(chain(30, 4), **settings, resume=True).status == "optimal"


def test_an_assignment_of_rows_is_not_lost_where_elimination_runs_out_of_memory(monkeypatch):
    """The search by rows comes before elimination that needs no bounds, and its assignment is gone on with."""
    problem = clique(5, 3, has_forbidden=False)
    first = (0,) * 5

    def out_of_memory(*_, **__):
        raise ResourceError("no memory")

    def rows(given, searched, options, known):
        known.offer(given.evaluate(first), first, "rows")

    monkeypatch.setattr(Race, "rounds", out_of_memory)
    with pytest.raises(ResourceError, match="no memory"):
        oocbe.solve(problem, order_seconds=0, backend="cpu", incumbent_seconds=0)
    monkeypatch.setattr("oocbe.api.solving.strategies.is_easy", lambda *_: False)
    monkeypatch.setattr("oocbe.api.solving.strategies.presolve", lambda *_: None)
    monkeypatch.setattr("oocbe.api.solving.strategies.opening_result", rows)
    result = oocbe.solve(problem, order_seconds=0, backend="cpu", incumbent_seconds=0)
    assert result.assignment is not None
    assert problem.evaluate(result.assignment) == result.value <= problem.evaluate(first)


def test_local_search_after_an_error_is_within_the_deadline(monkeypatch):
    """Without one it would compile its loop in this process, which neither a limit nor a signal can end."""
    within = []

    def work(search, seconds, deadline):
        within.append(current())
        search._known.raise_lower(0, "constant")

    def out_of_memory(*_):
        raise ResourceError("no memory")

    monkeypatch.setattr(IncumbentSearch, "work", work)
    monkeypatch.setattr(Portfolio, "run", out_of_memory)
    result = solve(clique(5, 3, has_forbidden=False), bounds="constant", incumbent_seconds=5, time_limit=60)
    assert result.value is not None
    assert len(within) == 2 and None not in within


@pytest.mark.parametrize(
    ("semiring", "dtype"),
    [(MIN_SUM, "i8"), (MAX_SUM, "i8"), (MIN_SUM, "f8"), (MAX_SUM, "f8"), (MAX_PRODUCT, "f8")],
    ids=str,
)
def test_a_limit_that_has_come_already_leaves_what_is_known_at_once(semiring, dtype):
    """Also where the problem is put into another form before anything can be known of it."""
    random = np.random.default_rng(3)
    pairs = itertools.combinations(range(9), 2)
    functions = [Function.from_array(pair, random.integers(1, 9, (3, 3)).astype(dtype)) for pair in pairs]
    problem = Problem(tuple(Variable(f"x{v}", 3) for v in range(9)), tuple(functions), semiring=semiring)
    best = solve(problem, bounds="none").value
    result = oocbe.solve(problem, time_limit=1e-9)
    assert result.status == "limit"
    sign = 1 if semiring is MIN_SUM else -1
    assert result.bound is None or sign * result.bound <= sign * best
    assert result.value is None or sign * result.value >= sign * best


@pytest.mark.parametrize("gap", [5e-324, 1.5e-323, 1e-310, 1.0])
def test_thresholds_rise_within_subnormal_gaps(gap):
    """An eighth of such a gap may be 0, with which a search never ended."""
    known = SimpleNamespace(grid=SimpleNamespace(step=0), lower=0.0, upper_bound=gap, value=gap)
    width = bounded.first_width(known)
    assert 0 < width < bounded.next_width(known, width)
