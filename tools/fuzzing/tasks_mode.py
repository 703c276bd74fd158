"""Tasks and mini-bucket bounds on random problems, against brute force."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from .brute_force import Truth, logarithm, precise_logarithm, truth_of
from .descriptions import Description, may_leave_floats, problem_of, random_description
from .outcome import Tally
from .solve_mode import may_refuse
from .solve_mode import smaller as smaller
from .solve_options import inside_settings, options_for, random_options

TASKS = ("mpe", "count", "count-optimal", "kbest", "logz", "marginals", "min-marginals", "bound")

TEMPERATURES = (1.0, 0.5, 3.0, 100.0, 0.01, math.inf)


def draw(random: Random) -> Description:
    """A random problem, a task with its settings, and options."""
    task = random.choice((*TASKS, "bound", "kbest"))
    products = ("max-product", "sum-product")
    sums = ("min-sum", "min-sum", "max-sum")
    semirings = {
        "mpe": products,
        "count": (*sums, *products, "counting", "log-sum-exp"),
        "logz": (*sums, *products, "counting", "log-sum-exp"),
        "marginals": (*sums, *products, "counting", "log-sum-exp"),
        "min-marginals": sums,
    }.get(task, (*sums, "max-product"))
    problem = random_description(random, semirings)
    if task != "bound" and random.random() < 0.9:
        problem["upper_bound"] = None
    options = random_options(random, len(problem["sizes"]), bounds=task == "mpe", limits=task in ("mpe", "bound"))
    of_elimination = ("workdir", "dominance", "max_disk", "streams", "piece_rows")  # which bounds have no use for
    for name in ("gap", *(of_elimination if task == "bound" else ())):
        options.pop(name, None)
    case: Description = {"problem": problem, "task": task, "options": options}
    if task == "kbest":
        case["k"] = random.choice((1, 2, 5, 10, 100))
    if task in ("logz", "marginals"):
        case["temperature"] = random.choice(TEMPERATURES)
    if task == "bound":
        case["z"] = random.choice((["auto"], [random.randint(1, 8)], [1, 3, 20], [2, "auto"]))
        case["partition"] = random.choice(("scope", "content"))
        case["cost_shifting"] = options.get("tables") != "incomplete" and random.random() < 0.4
    return case


def check(case: Description, folder: Path, tally: Tally) -> None:
    """Ask for a task and compare its answer."""
    import oocbe
    from oocbe.api.tasks.verbs import run_task
    from oocbe.errors import OocbeError

    description, settings, task = case["problem"], case["options"], case["task"]
    problem = problem_of(description)
    truth = truth_of(description)
    of_task = {name: case[name] for name in ("k", "temperature") if name in case}
    try:
        with inside_settings(settings):
            options = options_for(settings, folder)
            if task == "bound":
                result: Any = oocbe.bound(
                    problem, case["z"], partition=case["partition"], cost_shifting=case["cost_shifting"], **options
                )
            else:
                result = run_task(task, problem, **options, **of_task)
    except OocbeError as error:
        tally.refused(error, may_refuse(error, description, truth, settings) or _may_refuse(error, case))
        return
    if truth.is_doubtful():
        return
    {
        "bound": _check_bound,
        "mpe": _check_mpe,
        "count": _check_count,
        "count-optimal": _check_count_optimal,
        "kbest": _check_best,
        "logz": _check_weights,
        "marginals": _check_weights,
        "min-marginals": _check_min_marginals,
    }[task](result, truth, case, tally)


def _may_refuse(error: Exception, case: Description) -> bool:
    """Refusals of tasks: an upper bound that sums can reach, products that leave the range of floats, and marginals of
    values that floats round."""
    from oocbe.errors import FloatRangeError, UnsupportedError, ValueRangeError

    if isinstance(error, FloatRangeError):
        is_product = case["problem"]["semiring"] == "max-product"
        return is_product and case["task"] in ("kbest", "count-optimal") and may_leave_floats(case["problem"])
    if isinstance(error, ValueRangeError) and case["task"] == "marginals":
        values = [abs(value) for f in case["problem"]["functions"] for value in (*f["values"], f["default"] or 0)]
        return "tell assignments apart" in str(error) and sum(values) >= 2.0**43 * case["temperature"]
    return isinstance(error, UnsupportedError) and case["problem"]["upper_bound"] is not None


def _check_count(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    tally.same("type of a count", int, type(result.value))
    tally.same("count", len(truth.rows), result.value)


def _check_count_optimal(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    if not truth.rows:
        tally.same("infeasible", ("infeasible", 0), (result.status, result.value))
        return
    best = truth.best
    assert best is not None
    margin = truth.margin(best) * 4
    least = sum(value == best for value in truth.values)
    # What rounding cannot tell apart may be counted as equal: the engine's margin is wider than ours.
    wide = max(margin, 0 if truth.integral else Fraction(truth.magnitude if truth.adds else best) / 2**35)
    most = sum(abs(value - best) <= wide for value in truth.values)
    tally.holds("number of optimal assignments", least <= result.value <= most, f"{least} to {most}", result.value)
    if result.optimum is not None:
        tally.near("optimum", best, result.optimum, margin)


def _check_best(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    expected = truth.ordered[: case["k"]]
    found = result.assignments
    if case["problem"]["upper_bound"] is None:
        tally.same("number of assignments", len(expected), len(found))
    tally.same("distinct assignments", len(found), len({a for _, a in found}))
    for (value, assignment), best in zip(found, expected, strict=False):
        own = truth.value_of.get(tuple(assignment))
        tally.holds("a feasible assignment", own is not None, "a feasible assignment", assignment)
        assert own is not None
        tally.near("value of an assignment", own, value, truth.margin(own))
        tally.near("value by rank", best, value, truth.margin(best) * 4)


def _check_weights(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    """Partition functions and marginals, computed with logarithms."""
    if not truth.rows:
        tally.same("infeasible", ("infeasible", -math.inf), (result.status, result.value))
        return
    factor = 1.0 / case["temperature"]
    if truth.semiring == "min-sum":
        factor = -factor
    if truth.semiring == "counting" or factor == 0:
        logs = [0.0] * len(truth.rows)
    elif truth.adds:
        logs = [float(Fraction(value) * Fraction(factor)) for value in truth.values]
    else:
        logs = [logarithm(value) * factor for value in truth.values]
    top = max(logs)
    weights = [math.exp(entry - top) for entry in logs]
    total = math.fsum(weights)
    size = float(truth.magnitude) if truth.adds else max(map(abs, logs)) + _magnitude_of_logs(case["problem"])
    error = size * abs(factor) * 2.0**-49 * (truth.terms + len(truth.sizes))
    tally.near("logarithm of the sum of weights", top + math.log(total), result.value, 1e-9 + 4 * error)
    if error > 1e-8:
        return  # weights of such exponents have no digits left
    for v, marginal in enumerate(result.marginals):
        sums = [0.0] * truth.sizes[v]
        for (assignment, _), weight in zip(truth.rows, weights, strict=True):
            sums[assignment[v]] += weight
        for x, found in enumerate(marginal.tolist()):
            tally.near(f"probability of x{v}={x}", sums[x] / total, found, 1e-9 + 8 * error)


def _magnitude_of_logs(description: Description) -> float:
    """Of factors that are not 0: no partial sum of their logarithms exceeds it by more than 1."""
    factors = [
        abs(v)
        for f in description["functions"]
        for v in [*f["values"], f["default"] or 0, description["constant"] or 1]
    ]
    return 1 + len(description["functions"]) * max((abs(math.log(v)) for v in factors if v), default=0.0)


def _check_min_marginals(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    if not truth.rows:
        tally.same("infeasible", "infeasible", result.status)
        return
    choose = min if truth.semiring == "min-sum" else max
    for v, marginal in enumerate(result.marginals):
        for x, found in enumerate(marginal.tolist()):
            own = [value for assignment, value in truth.rows if assignment[v] == x]
            if own:
                tally.near(f"best value with x{v}={x}", choose(own), found, truth.margin() * 4)
            else:
                tally.holds(f"nothing with x{v}={x}", found is None or found != found, "nan", found)


def _check_mpe(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    if result.status == "limit":
        options = case["options"]
        tally.holds("a limit", "time_limit" in options or bool(case["problem"]["linear"]), "a proof", result.status)
        return
    if not truth.rows:
        tally.same("infeasible", "infeasible", result.status)
        return
    best = max(truth.values)
    tally.same("status", "exact", result.status)
    margin = 1e-9 + (result.tolerance or 0.0)
    tally.near("logarithm", logarithm(best), result.value, margin)
    own = truth.value_of.get(tuple(result.assignments[0][1]))
    tally.holds("a feasible assignment", own is not None, "a feasible assignment", result.assignments)
    assert own is not None
    tally.near("logarithm of the assignment", logarithm(own), result.value, margin)


def _check_bound(result: Any, truth: Truth, case: Description, tally: Tally) -> None:
    """No bound on the wrong side, not even by rounding; incumbents that their assignments have."""
    best = truth.best
    sign = -1 if result.sense == "max" else 1
    for entry in result.entries:
        if best is None:
            tally.holds("an incumbent of what is infeasible", entry.incumbent is None, None, entry.incumbent)
            continue
        tally.holds("infeasible", entry.status != "infeasible", best, entry.status)
        if entry.assignment is not None:
            own = truth.value_of.get(tuple(entry.assignment))
            tally.holds("a feasible assignment", own is not None, "a feasible assignment", entry.assignment)
            assert own is not None
            tally.near("value of the incumbent", own, entry.incumbent, truth.margin(own))
        tally.holds("a bound", entry.bound is not None, best, None)
        if truth.adds or entry.log_bound is None:
            tally.holds("side of the bound", _is_on_side(sign, entry.bound, best), best, entry.bound)
        else:
            exact = precise_logarithm(best)
            tally.holds("side of the logarithm", _is_on_side(sign, entry.log_bound, exact), exact, entry.log_bound)
            if entry.bound is not None:
                tally.holds("side of the bound", _is_on_side(sign, entry.bound, best), best, entry.bound)
        if entry.status == "optimal":
            tally.near("a proven optimum", best, entry.incumbent, truth.margin(best) * 2)


def _is_on_side(sign: int, bound: float, best: Any) -> bool:
    if isinstance(bound, float) and math.isinf(bound):
        return sign * bound < 0
    return sign * Fraction(bound) <= sign * Fraction(best)
