"""Seeded problems of all families, made through the library; each small enough for every task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, product
from random import Random
from typing import Any

import numpy as np

import oocbe


def variables(sizes: Sequence[int]) -> tuple[oocbe.Variable, ...]:
    """Variables ``v0``, ``v1`` and so on; every third one has labels."""
    return tuple(
        oocbe.Variable(f"v{i}", size, tuple(f"l{i}.{x}" for x in range(size)) if i % 3 == 2 else None)
        for i, size in enumerate(sizes)
    )


def table(
    random: Random, scope: Sequence[int], sizes: Sequence[int], number: Callable[[Random], Any], forbidden: float = 0.0
) -> oocbe.Function:
    """A function with a drawn value for each tuple that is not forbidden."""
    tuples = [t for t in product(*(range(sizes[v]) for v in scope)) if random.random() >= forbidden]
    values = [number(random) for _ in tuples]
    rows = np.array(tuples, dtype=np.int64).reshape(len(tuples), len(scope))
    return oocbe.Function(tuple(scope), rows, np.array(values))


def integer(most: int, least: int = 0) -> Callable[[Random], int]:
    """Draws integers, both ends included."""
    return lambda random: random.randint(least, most)


def decimal(places: int, most: float = 10.0) -> Callable[[Random], float]:
    """Draws decimals."""
    return lambda random: round(random.uniform(0, most), places)


def scopes_of(random: Random, count: int, number: int, arity: int) -> list[tuple[int, ...]]:
    """A chain over all variables and further scopes of an arity, in no order."""
    chain = [(i, i + 1) for i in range(count - 1)]
    more = random.sample(list(combinations(range(count), arity)), number)
    return [*chain, *(tuple(random.sample(scope, arity)) for scope in more)]


def network(
    seed: int,
    count: int,
    domain: int,
    extra: int,
    number: Callable[[Random], Any],
    *,
    arity: int = 2,
    forbidden: float = 0.0,
    unary: bool = True,
    **others: Any,
) -> oocbe.Problem:
    """A connected problem of functions with drawn values."""
    random = Random(seed)
    sizes = [random.randint(max(2, domain - 1), domain) for _ in range(count)]
    scopes = scopes_of(random, count, extra, arity)
    functions = [table(random, scope, sizes, number, forbidden) for scope in scopes]
    if unary:
        functions += [table(random, (v,), sizes, number) for v in range(0, count, 2)]
    return oocbe.Problem(variables(sizes), tuple(functions), name=f"network-{seed}", **others)


def grid(seed: int, side: int, domain: int, forbidden: float) -> oocbe.Problem:
    """A square of variables; neighbours have a function."""
    random, sizes = Random(seed), [domain] * side * side
    right = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    down = [(r * side + c, (r + 1) * side + c) for r in range(side - 1) for c in range(side)]
    functions = tuple(table(random, scope, sizes, integer(10_000), forbidden) for scope in right + down)
    return oocbe.Problem(variables(sizes), functions, name=f"grid-{seed}")


def sparse(seed: int, count: int, domain: int, number: int) -> oocbe.Problem:
    """Functions over three and four variables that list some tuples and have a default for the others."""
    random, sizes = Random(seed), [domain] * count
    functions = []
    for scope in [*scopes_of(random, count, number, 3), tuple(random.sample(range(count), 4))]:
        listed = table(random, scope, sizes, integer(500), forbidden=0.7)
        functions.append(oocbe.Function(listed.scope, listed.tuples, listed.values, default=random.randint(0, 300)))
    return oocbe.Problem(variables(sizes), tuple(functions), name=f"sparse-{seed}")


def satisfaction(seed: int, count: int, domain: int, number: int, tightness: float) -> oocbe.Problem:
    """Constraints alone, of both kinds, with unary costs to choose among solutions."""
    random, sizes = Random(seed), [domain] * count
    constraints = []
    for k, scope in enumerate(scopes_of(random, count, number, 2)):
        share = tightness if k % 2 else 1 - tightness
        tuples = [t for t in product(*(range(sizes[v]) for v in scope)) if random.random() < share]
        rows = np.array(tuples, dtype=np.int64).reshape(len(tuples), 2)
        constraints.append(oocbe.Constraint(scope, rows, allowed=not k % 2))
    costs = tuple(table(random, (v,), sizes, integer(1000)) for v in range(count))
    return oocbe.Problem(variables(sizes), costs, tuple(constraints), name=f"satisfaction-{seed}")


def capacities(seed: int, count: int, capacity: int, semiring: oocbe.Semiring = oocbe.MIN_SUM) -> oocbe.Problem:
    """Costs of leaving things out and linear constraints over all variables, some of which bind."""
    random, sizes = Random(seed), [2 + i % 2 for i in range(count)]
    gains = tuple(table(random, (v,), sizes, integer(900, 1)) for v in range(count))
    pairs = tuple(table(random, (v, v + 1), sizes, integer(200), 0.2) for v in range(0, count - 1, 2))
    linear = []
    for k in range(2):
        amounts = tuple(np.array([random.randint(0, 9) for _ in range(size)], dtype=np.int64) for size in sizes)
        linear.append(oocbe.LinearConstraint(tuple(range(count)), amounts, capacity * (k + 1), f"capacity {k}"))
    return oocbe.Problem(
        variables(sizes), gains + pairs, linear_constraints=tuple(linear), semiring=semiring, name=f"capacities-{seed}"
    )


def bayesian(seed: int, count: int, parents: int, semiring: oocbe.Semiring, zeros: float = 0.0) -> oocbe.Problem:
    """A belief network: a table of conditional probabilities a variable, with zeros."""
    random = Random(seed)
    sizes = [random.randint(2, 4) for _ in range(count)]
    functions = []
    for v in range(count):
        above = sorted(random.sample(range(v), min(v, random.randint(0, parents))))
        shape = [sizes[p] for p in above] + [sizes[v]]
        array = np.array([0.0 if random.random() < zeros else random.random() for _ in range(int(np.prod(shape)))])
        array = array.reshape(-1, sizes[v])
        array[:, 0] += 0.05
        array /= array.sum(axis=1, keepdims=True)
        functions.append(oocbe.Function.from_array((*above, v), array.reshape(shape)))
    return oocbe.Problem(variables(sizes), tuple(functions), semiring=semiring, name=f"bayesian-{seed}")


def clauses(seed: int, count: int, number: int) -> oocbe.Problem:
    """Clauses over three variables to be counted."""
    random, constraints = Random(seed), []
    for _ in range(number):
        scope = tuple(random.sample(range(count), 3))
        refused = np.array([[random.randint(0, 1) for _ in scope]], dtype=np.int64)
        constraints.append(oocbe.Constraint(scope, refused))
    return oocbe.Problem(
        variables([2] * count), constraints=tuple(constraints), semiring=oocbe.COUNTING, name=f"clauses-{seed}"
    )


def apart(seed: int) -> oocbe.Problem:
    """Three parts without a function in common, a variable with one value and one without any function."""
    random, sizes = Random(seed), [3, 2, 4, 1, 2, 3, 3, 2, 5]
    scopes = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (4, 6), (7,)]
    functions = tuple(table(random, scope, sizes, integer(5000)) for scope in scopes)
    return oocbe.Problem(variables(sizes), functions, constant=17, name=f"apart-{seed}")


def _families() -> dict[str, Callable[[], oocbe.Problem]]:
    floats = decimal(12)
    found: dict[str, Callable[[], oocbe.Problem]] = {
        "negative": lambda: network(21, 10, 3, 8, integer(500, -500), constant=-3),
        "upper-bound": lambda: network(22, 10, 3, 8, integer(100), upper_bound=600),
        "upper-bound-too-low": lambda: network(23, 9, 3, 6, integer(100, 10), upper_bound=40),
        "lower-bound": lambda: network(24, 9, 3, 6, integer(100), semiring=oocbe.MAX_SUM, lower_bound=200),
        "long-integers": lambda: network(25, 9, 3, 6, integer(2**40)),
        "longest-integers": lambda: network(26, 8, 3, 4, integer(2**57)),
        "too-long-integers": lambda: network(27, 6, 2, 2, integer(2**62)),
        "floats": lambda: network(28, 10, 3, 8, floats),
        "floats-forbidden": lambda: network(29, 10, 3, 8, floats, forbidden=0.3),
        "decimals": lambda: network(30, 10, 3, 8, decimal(2)),
        "maximised-floats": lambda: network(31, 10, 3, 8, floats, semiring=oocbe.MAX_SUM),
        "products": lambda: network(32, 9, 3, 6, decimal(9, 1.0), semiring=oocbe.MAX_PRODUCT),
        "summed-products": lambda: network(33, 9, 3, 6, decimal(9, 1.0), forbidden=0.2, semiring=oocbe.SUM_PRODUCT),
        "logarithms": lambda: network(34, 9, 3, 6, decimal(9, 3.0), semiring=oocbe.LOG_SUM_EXP),
        "counted": lambda: network(35, 10, 3, 8, integer(3, 1), forbidden=0.3, semiring=oocbe.COUNTING),
        "infeasible": lambda: satisfaction(36, 9, 3, 14, 0.8),
        "feasible": lambda: satisfaction(37, 9, 3, 6, 0.3),
        "nearly-infeasible": lambda: satisfaction(38, 9, 4, 10, 0.45),
        "apart": lambda: apart(39),
        "no-variables": lambda: oocbe.Problem((), constant=5, name="nothing"),
        "no-functions": lambda: oocbe.Problem(variables([3, 2]), name="free"),
        "capacities": lambda: capacities(40, 12, 20),
        "capacities-tight": lambda: capacities(41, 11, 9),
        "capacities-maximised": lambda: capacities(42, 12, 22, oocbe.MAX_SUM),
        "clauses": lambda: clauses(43, 14, 30),
        "clauses-infeasible": lambda: clauses(44, 8, 90),
        "high-arity": lambda: network(45, 9, 3, 2, integer(2000), arity=6),
        "sparse": lambda: sparse(46, 9, 4, 6),
        "sparse-small": lambda: sparse(47, 8, 3, 4),
        "large-domains": lambda: network(48, 6, 40, 3, integer(100_000)),
        "many-variables": lambda: network(49, 120, 3, 10, integer(10_000)),
        "dense": lambda: network(50, 9, 4, 28, integer(1000)),
    }
    for seed, forbidden in ((1, 0.0), (2, 0.2), (3, 0.4)):
        found[f"network-{seed}"] = partial(network, seed, 12, 4, 12, integer(10_000), forbidden=forbidden)
        found[f"ternary-{seed}"] = partial(network, 10 + seed, 10, 3, 5, integer(1000), arity=3, forbidden=forbidden)
        found[f"grid-{seed}"] = partial(grid, seed, 3 + seed, 3, forbidden)
    for seed, zeros in ((1, 0.0), (2, 0.3)):
        for semiring in (oocbe.SUM_PRODUCT, oocbe.MAX_PRODUCT):
            found[f"bayesian-{seed}-{semiring.name}"] = partial(bayesian, seed, 14, 3, semiring, zeros)
    return found


FAMILIES = _families()
"""Problems by name, each made when it is asked for."""
