"""Solves: random problems in random semirings under random options, against brute force."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import LEAST_FLOAT, Truth, logarithm, truth_of
from .descriptions import (
    SEMIRINGS,
    Description,
    is_refused_for_range,
    may_leave_floats,
    problem_of,
    random_description,
    smaller_descriptions,
)
from .outcome import Tally
from .solve_options import inside_settings, options_for, random_options, smaller_settings

SMALL_MEMORY = ("1MiB", "16MiB")
"""Memory limits under which running out may be the right answer."""


def draw(random: Random) -> Description:
    """A random problem, and options."""
    problem = random_description(random)
    options = random_options(random, len(problem["sizes"]))
    if random.random() < 0.25:
        options["semiring"] = random.choice(SEMIRINGS)
    if options.get("semiring", problem["semiring"]) == "min-sum" and random.random() < 0.2:
        numbers = [v for f in problem["functions"] for v in f["values"]]
        options["ub"] = sum(random.choice(numbers) for _ in range(random.randint(1, 3))) if numbers else 0
    if problem["semiring"] == options.get("semiring", "min-sum") == "min-sum" and random.random() < 0.1:
        _bound_near_optimum(random, problem, options)
    return {"problem": problem, "options": options}


def _bound_near_optimum(random: Random, problem: Description, options: Description) -> None:
    """Give a problem, or the options, an upper bound so near to the optimum that rounding may decide."""
    problem["upper_bound"] = None
    best = truth_of(problem).best
    if best is None or isinstance(best, int):
        return
    try:
        bound = float(best)
    except OverflowError:
        return
    for _ in range(random.choice((0, 1, 2, 10))):
        bound = math.nextafter(bound, random.choice((-math.inf, math.inf)))
    if not math.isfinite(bound):
        return
    if random.random() < 0.5:
        problem["upper_bound"] = bound
    else:
        options["ub"] = bound


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Solve, and compare status, value, bound and assignment."""
    import oocbe
    from oocbe.errors import OocbeError

    description, settings = case["problem"], case["options"]
    problem = problem_of(description)
    truth = truth_of(description, settings.get("semiring"))
    try:
        with inside_settings(settings):
            result = oocbe.solve(problem, **options_for(settings, folder))
    except OocbeError as error:
        tally.refused(error, may_refuse(error, description, truth, settings))
        return
    _check_agreement(problem, result, settings, tally)
    check_result(result, description, truth, settings, tally)


def _check_agreement(problem: Any, result: Any, settings: Description, tally: Tally) -> None:
    """The result, the problem's own evaluation and the judge say the same, however near a bound is."""
    import oocbe
    from oocbe.model.semiring import SEMIRINGS as KNOWN
    from oocbe.model.semiring import Combination

    if result.assignment is None:
        return
    asked = problem.in_semiring(KNOWN[result.semiring])
    value = asked.evaluate(result.assignment)
    tally.holds("the evaluated assignment", value is not None, "a value", f"{result.status} {result.value}")
    assert value is not None
    ub = settings.get("ub")
    tally.holds("the evaluated value", ub is None or value < ub, f"below {ub}", value)
    if asked.semiring.combination is Combination.ADD and math.isfinite(value):
        tally.same("the evaluated value", value, result.value)
        tally.holds("the judgement", oocbe.verify(problem, result).accepted, "accepted", "refused")


def check_result(result: Any, description: Description, whole: Truth, settings: Description, tally: Tally) -> None:
    """Compare a result with the truth (of the problem without the options' upper bound)."""
    ub = settings.get("ub")
    truth = whole.below(ub)
    status = result.status
    if whole.is_doubtful(ub):
        if status in ("infeasible", "nothing-better"):
            limit = min(bound for bound in (ub, description["upper_bound"]) if bound is not None)
            tally.same("values clearly below the bound", [], whole.clearly_below(limit)[:3])
        return
    limited = "time_limit" in settings or "gap" in settings or result.linear_constraints == "relaxed"
    if status == "limit":
        tally.holds("a limit that nobody set", limited, "a proof", status)
        _check_bounds(result, truth, settings, tally)
        return
    if not truth.rows and not (truth.semiring == "counting" and status == "exact"):
        tally.holds("status", status in ("infeasible", "nothing-better"), "infeasible", f"{status} {result.value}")
        tally.holds("infeasible, with a reason", status != "infeasible" or not truth.rows, "infeasible", status)
        if status == "nothing-better":
            tally.holds("nothing better than ub", ub is not None, "infeasible", status)
            if result.bound is not None and whole.rows:
                tally.holds("bound", result.bound <= whole.best + whole.margin(), whole.best, result.bound)
        elif ub is not None and result.status == "infeasible":
            tally.same("feasible assignments at or above ub", 0, len(whole.rows))
        return
    if truth.selects:
        _check_optimum(result, truth, tally)
    else:
        _check_sum(result, truth, tally)


def _check_optimum(result: Any, truth: Truth, tally: Tally) -> None:
    best = truth.best
    assert best is not None
    tally.same("status", "optimal", result.status)
    margin = truth.margin(best)
    if result.value in (0.0, math.inf, -math.inf) and result.value != best:
        tally.holds("a logarithm", any("natural logarithm" in note for note in result.notes), best, result.notes)
    if truth.integral:
        tally.same("type of the value", int, type(result.value))
    tally.near("value", best, result.value, margin)
    tally.holds("an assignment", result.assignment is not None, "an assignment", None)
    own = truth.value_of.get(tuple(result.assignment))
    tally.holds("a feasible assignment", own is not None, "a feasible assignment", result.assignment)
    assert own is not None
    tally.near("value of the assignment", own, result.value, margin)


def _check_bounds(result: Any, truth: Truth, settings: Description, tally: Tally) -> None:
    """A bound on the right side, and a value that an assignment has."""
    if result.assignment is not None:
        own = truth.value_of.get(tuple(result.assignment))
        tally.holds("a feasible assignment", own is not None, "a feasible assignment", result.assignment)
        assert own is not None
        tally.near("value of the assignment", own, result.value, truth.margin(own))
    best = truth.best
    if best is None or result.bound is None:
        return
    sign = -1 if result.sense == "max" else 1
    margin = truth.margin(best)
    tally.holds("side of the bound", sign * result.bound <= sign * best + margin, best, result.bound)
    if "gap" in settings and "time_limit" not in settings and result.value is not None and truth.adds:
        allowed = _allowed_gap(settings, result.value)
        found = abs(result.value - result.bound)
        tally.holds("gap", result.linear_constraints == "relaxed" or found <= allowed + 2 * margin, allowed, found)


def _allowed_gap(settings: Description, value: Any) -> Any:
    gap = settings.get("gap", 0)
    return abs(value) * float(gap[:-1]) / 100 if isinstance(gap, str) else gap


def _check_sum(result: Any, truth: Truth, tally: Tally) -> None:
    if truth.semiring == "counting":
        tally.same("count", len(truth.rows), result.value or 0)
    elif truth.semiring == "log-sum-exp":
        tally.same("status", "exact", result.status)
        margin = 1e-9 + float(truth.magnitude) * 1e-12
        tally.near("logarithm of the sum", truth.log_sum(), result.value, margin)
    elif truth.total == 0:
        tally.holds("a sum of 0", result.value in (0, None), 0, result.value)
    else:
        tally.same("status", "exact", result.status)
        if result.value is None or result.value in (0.0, math.inf):  # beyond the range of floats
            beyond = not -700 < logarithm(abs(truth.total)) < 700 and (truth.total > 0 or result.value != math.inf)
            tally.holds("a sum beyond floats", beyond and not truth.integral, truth.total, result.value)
            return
        margin = 0 if truth.integral else truth.absolute_total / 10**9 + LEAST_FLOAT
        tally.near("sum", truth.total, result.value, margin)


def may_refuse(error: Exception, description: Description, truth: Truth, settings: Description) -> bool:
    """Whether a refusal has a reason in the case."""
    from oocbe.errors import (
        DiskError,
        FloatRangeError,
        ModelError,
        ResourceError,
        TimeLimitError,
        UnsupportedError,
        ValueRangeError,
    )

    semiring = truth.semiring
    if isinstance(error, TimeLimitError):
        return "time_limit" in settings
    if isinstance(error, DiskError):
        return "max_disk" in settings
    if isinstance(error, ResourceError):
        return settings.get("memory") in SMALL_MEMORY or "message_bytes" in settings["inside"]
    if isinstance(error, FloatRangeError):
        is_product = semiring in ("max-product", "sum-product")
        return is_product and may_leave_floats(description) and ("workdir" in settings or truth.negative)
    if isinstance(error, ValueRangeError):
        return is_refused_for_range({**description, "semiring": semiring})
    if isinstance(error, ModelError | UnsupportedError):
        if "linear constraint" in str(error) or "linear constraints" in str(error):
            return bool(description["linear"])
        if description["upper_bound"] is not None and semiring != "min-sum":
            return True
        return truth.negative and not truth.adds
    return False


def smaller(case: Description) -> Iterator[Description]:
    """Cases with something left out."""
    for options in smaller_settings(case["options"]):
        if not isinstance(options.get("order"), list):
            yield {**case, "options": options}
    for problem in smaller_descriptions(case["problem"]):
        if len(problem["sizes"]) == len(case["problem"]["sizes"]) or not isinstance(case["options"].get("order"), list):
            yield {**case, "problem": problem}
