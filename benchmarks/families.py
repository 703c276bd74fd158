"""Made problems of many families beside toulbar2: what a solve takes where nothing was tuned to the instance.

    python benchmarks/families.py                                       # all families, three seeds, 20 s for each solve
    python benchmarks/families.py --only clique,warehouse --seeds 5
    python benchmarks/families.py --save before.json                    # and later, with another commit:
    python benchmarks/families.py --before before.json --markdown       # a table for RESULTS.md

Times are processor seconds, as machines are shared: of ``oocbe.solve(backend="cpu")``, all threads together, in a
process that has solved a small problem before and then solves all of a family, and of toulbar2 from the file to the
answer, in a process each. The clock by which a solve divides its time is its processor time here, too, so that other
work on the machine changes nothing but what caches hold; only the limit is wall time, of ten times as many seconds.

The families are those of the field's collections (DIMACS graphs, CELAR-like assignments, UAI networks), drawn anew from
each seed: nothing here is a published instance. The exit code is 1 where two proven optima differ, an assignment is
better than a proven optimum, or an assignment is not worth what was said.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from general import contradictions, run
from measuring import EXAMPLE, describe_run, print_table, run_child

import oocbe
from oocbe.formats import write
from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
from oocbe.model.problem import Problem

Generator = np.random.Generator


def _problem(sizes: list[int], functions: list[Function], constraints: list[Constraint], name: str) -> Problem:
    variables = tuple(Variable(f"x{v}", size) for v, size in enumerate(sizes))
    return Problem(variables, tuple(functions), tuple(constraints), name=name)


def _costs(scope: tuple[int, ...], costs: Any) -> Function:
    return Function.from_array(scope, np.asarray(costs, dtype=np.int64))


def _grid_edges(rows: int, columns: int) -> list[tuple[int, int]]:
    across = [(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)]
    down = [(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)]
    return across + down


def clique(random: Generator, vertices: int, density: float) -> Problem:
    """A largest clique of a random graph: each vertex left out costs 1, and no two without an edge are in."""
    missing = [pair for pair in combinations(range(vertices), 2) if random.random() >= density]
    functions = [_costs((v,), [1, 0]) for v in range(vertices)]
    return _problem([2] * vertices, functions, [Constraint(pair, [[1, 1]]) for pair in missing], "clique")


def warehouse(random: Generator, warehouses: int, stores: int) -> Problem:
    """Which warehouses to open, and from which each store is supplied, by distance; only open ones supply."""
    places, shops = random.random((warehouses, 2)), random.random((stores, 2))
    distance = np.rint(1000 * np.linalg.norm(shops[:, None] - places[None], axis=2)).astype(np.int64)
    functions = [_costs((w,), [0, cost]) for w, cost in enumerate(random.integers(1000, 2000, warehouses).tolist())]
    functions += [_costs((warehouses + s,), distance[s] * random.integers(1, 4)) for s in range(stores)]
    closed = [Constraint((w, warehouses + s), [[0, w]]) for s in range(stores) for w in range(warehouses)]
    return _problem([2] * warehouses + [warehouses] * stores, functions, closed, "warehouse")


def satisfiability(random: Generator, variables: int, clauses: int, arity: int) -> Problem:
    """As few random clauses violated as can be (Max-SAT), each of a cost of 1."""
    functions = []
    for _ in range(clauses):
        scope = tuple(sorted(random.choice(variables, size=arity, replace=False).tolist()))
        functions.append(Function(scope, [random.integers(0, 2, arity).tolist()], [1], 0))
    return _problem([2] * variables, functions, [], "satisfiability")


def circuit(random: Generator, gates: int, near: int, fan_in: int) -> Problem:
    """What the wires of a circuit carry at the least cost: gates of inputs made shortly before; some wires cost."""
    inputs = max(4, gates // 15)
    constraints = []
    for wire in range(inputs, gates):
        count = int(random.integers(1, fan_in + 1))
        scope = [int(u) for u in sorted(random.choice(np.arange(max(0, wire - near), wire), size=count, replace=False))]
        truth = random.integers(0, 2, size=[2] * count)
        constraints.append(Constraint((*scope, wire), np.argwhere(np.stack([truth, 1 - truth], axis=-1) == 1)))
    dear = np.flatnonzero((np.arange(gates) < inputs) | (random.random(gates) < 0.2)).tolist()
    functions = [_costs((v,), random.integers(0, 20, 2)) for v in dear]
    return _problem([2] * gates, functions, constraints, "circuit")


def segmentation(random: Generator, regions: int, labels: int, strength: int) -> Problem:
    """Labels of an image's regions, neighbours in the plane: a noisy measurement of each, a cost where two differ."""
    points = random.random((regions, 2))
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    near = np.argsort(distance, axis=1)[:, 1:6]
    edges = sorted({(min(v, int(u)), max(v, int(u))) for v in range(regions) for u in near[v][: random.integers(3, 6)]})
    truth = (points[:, 0] * 2).astype(int) * 2 + (points[:, 1] * 2).astype(int)
    functions = []
    for v in range(regions):
        costs = random.integers(0, 100, labels)
        costs[truth[v] % labels] //= 2
        functions.append(_costs((v,), costs))
    different = 1 - np.eye(labels, dtype=np.int64)
    functions += [_costs(edge, int(random.integers(1, strength)) * different) for edge in edges]
    return _problem([labels] * regions, functions, [], "segmentation")


def potts(random: Generator, side: int, labels: int, strength: int) -> Problem:
    """A square grid of pixels, a random cost for each label, and one where neighbours differ."""
    functions = [_costs((v,), random.integers(0, 100, labels)) for v in range(side * side)]
    different = 1 - np.eye(labels, dtype=np.int64)
    functions += [_costs(edge, strength * different) for edge in _grid_edges(side, side)]
    return _problem([labels] * (side * side), functions, [], "potts")


def spin_glass(random: Generator, side: int) -> Problem:
    """A square grid of spins, each pair of neighbours alike or not at a random cost."""
    functions = []
    for edge in _grid_edges(side, side):
        alike, unlike = random.integers(0, 1000, 2).tolist()
        functions.append(_costs(edge, [[alike, unlike], [unlike, alike]]))
    functions += [_costs((v,), random.integers(0, 200, 2)) for v in range(side * side)]
    return _problem([2] * (side * side), functions, [], "spin glass")


def cut(random: Generator, vertices: int, density: float) -> Problem:
    """A largest cut of a random graph with weights: an edge within one side costs its weight."""
    pairs = [pair for pair in combinations(range(vertices), 2) if random.random() < density]
    weights = random.integers(1, 20, len(pairs)).tolist()
    functions = [_costs(pair, [[w, 0], [0, w]]) for pair, w in zip(pairs, weights, strict=True)]
    return _problem([2] * vertices, functions, [], "cut")


def colouring(random: Generator, vertices: int, colours: int, degree: float) -> Problem:
    """As few edges of a random graph as can be whose ends have one colour."""
    pairs = [pair for pair in combinations(range(vertices), 2) if random.random() < degree / vertices]
    functions = [_costs(pair, np.eye(colours, dtype=np.int64)) for pair in pairs]
    functions += [_costs((v,), random.integers(0, 2, colours)) for v in range(vertices)]
    return _problem([colours] * vertices, functions, [], "colouring")


def frequencies(random: Generator, links: int, values: int, degree: float) -> Problem:
    """Frequencies of radio links: each pair that disturbs another wants a distance, and pays where it is not kept."""
    band = np.sort(random.choice(np.arange(16, 16 + 7 * values), size=values, replace=False))
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for link in range(0, links - 1, 2):  # there and back, at a fixed distance
        there, back = int(random.integers(values)), int(random.integers(values))
        apart = abs(int(band[there] - band[back])) or 7
        forbidden = np.argwhere(np.abs(band[:, None] - band[None]) != apart)
        constraints.append(Constraint((link, link + 1), forbidden))
    for pair in combinations(range(links), 2):
        if random.random() < degree / links and pair[0] // 2 != pair[1] // 2:
            too_near = np.abs(band[:, None] - band[None]) < int(random.integers(10, 80))
            functions.append(_costs(pair, int(random.choice([1, 10, 100, 1000])) * too_near))
    functions += [_costs((v,), random.integers(0, 3, values)) for v in range(links)]
    return _problem([values] * links, functions, constraints, "frequencies")


def side_chains(random: Generator, residues: int, most: int) -> Problem:
    """Rotamers of a protein's side chains: energies of each, and of pairs near one another, clashes included."""
    sizes = random.integers(2, most + 1, residues).tolist()
    points = random.random((residues, 3)) * residues ** (1 / 3)
    functions = [_costs((v,), random.gamma(1.5, 150, size)) for v, size in enumerate(sizes)]
    for u, v in combinations(range(residues), 2):
        if np.linalg.norm(points[u] - points[v]) < 1.0:
            energy = random.normal(0, 120, (sizes[u], sizes[v]))
            energy += np.where(random.random(energy.shape) < 0.1, random.gamma(2, 2000, energy.shape), 0)
            functions.append(_costs((u, v), np.rint(energy - energy.min())))
    return _problem(sizes, functions, [], "side chains")


def pedigree(random: Generator, people: int, markers: int) -> Problem:
    """Which genes relatives have at linked places, from the types of some: negative logarithms of probabilities."""
    functions: list[Function] = []
    constraints: list[Constraint] = []
    founders = max(4, people // 4)
    alleles, sizes, allele = 3, [], {}
    hidden: dict[tuple[int, int, int], int] = {}
    frequency = [np.rint(-100 * np.log(random.dirichlet([2.0] * alleles))).astype(np.int64) for _ in range(markers)]
    parents = [None] * founders + [
        tuple(sorted(random.choice(child, size=2, replace=False).tolist())) for child in range(founders, people)
    ]
    for person in range(people):
        for marker in range(markers):
            for side in range(2):
                v = len(sizes)
                sizes.append(alleles)
                hidden[person, marker, side] = v
                own = parents[person]
                if own is None:
                    functions.append(_costs((v,), frequency[marker]))
                    allele[v] = int(random.integers(alleles))
                    continue
                one, two = hidden[own[side], marker, 0], hidden[own[side], marker, 1]
                choice = len(sizes)
                sizes.append(2)
                grid = np.indices((alleles, alleles, 2, alleles))
                wrong = np.argwhere(np.where(grid[2] == 0, grid[0], grid[1]) != grid[3])
                constraints.append(Constraint((one, two, choice, v), wrong))
                hidden[person, marker, 2 + side] = choice
                if marker:
                    same = int(-100 * math.log(0.9)), int(-100 * math.log(0.1))
                    functions.append(_costs((hidden[person, marker - 1, 2 + side], choice), [same, same[::-1]]))
                allele[v] = allele[(one, two)[int(random.integers(2))]]
            if person >= people // 3 and random.random() < 0.6:
                pair = hidden[person, marker, 0], hidden[person, marker, 1]
                seen = {allele[pair[0]], allele[pair[1]]}
                grid = np.indices((alleles, alleles))
                matches = np.array([[{a, b} == seen for b in range(alleles)] for a in range(alleles)])
                functions.append(_costs(pair, np.where(matches, 1, 300)))
    return _problem(sizes, functions, constraints, "pedigree")


def chain(random: Generator, steps: int, states: int, looks_back: int) -> Problem:
    """A hidden Markov chain of some order."""
    functions = [_costs((v,), random.integers(0, 200, states)) for v in range(steps)]
    scopes = [tuple(range(v - looks_back, v + 1)) for v in range(looks_back, steps)]
    functions += [_costs(scope, random.integers(0, 300, [states] * len(scope))) for scope in scopes]
    return _problem([states] * steps, functions, [], "chain")


def code(random: Generator, bits: int, checks: int) -> Problem:
    """A word received with noise: sums of four bits are even, each bit costs what was heard of it."""
    patterns = np.indices((2,) * 4).reshape(4, -1).T
    odd = patterns[patterns.sum(axis=1) % 2 == 1]
    heard = np.rint(1000 * random.normal(1, 0.9, bits)).astype(np.int64)
    functions = [_costs((v,), [max(0, -h), max(0, h)]) for v, h in enumerate(heard.tolist())]
    scopes = [tuple(sorted(random.choice(bits, size=4, replace=False).tolist())) for _ in range(checks)]
    return _problem([2] * bits, functions, [Constraint(scope, odd) for scope in scopes], "code")


def diagnosis(random: Generator, causes: int, findings: int) -> Problem:
    """Which causes explain findings (noisy-or of up to four causes each): negative logarithms of probabilities."""
    functions = [_costs((v,), [0, int(cost)]) for v, cost in enumerate(random.integers(150, 500, causes))]
    for _ in range(findings):
        scope = tuple(sorted(random.choice(causes, size=4, replace=False).tolist()))
        fails = 0.999 * np.ones((2,) * 4)
        for axis in range(4):
            shape = [1] * 4
            shape[axis] = 2
            fails = fails * np.array([1.0, random.uniform(0.05, 0.5)]).reshape(shape)
        probability = 1 - fails if random.random() < 0.4 else fails
        functions.append(_costs(scope, np.rint(-100 * np.log(probability))))
    return _problem([2] * causes, functions, [], "diagnosis")


def auction(random: Generator, bids: int, goods: int) -> Problem:
    """Which bids to take for sets of goods, each sold once."""
    wanted = [set(random.choice(goods, size=int(random.integers(2, 6)), replace=False).tolist()) for _ in range(bids)]
    functions = [_costs((b,), [int(100 * len(w) * random.uniform(0.7, 1.3)), 0]) for b, w in enumerate(wanted)]
    both = [(a, b) for a, b in combinations(range(bids), 2) if wanted[a] & wanted[b]]
    return _problem([2] * bids, functions, [Constraint(pair, [[1, 1]]) for pair in both], "auction")


def random_costs(random: Generator, variables: int, values: int, density: float, tightness: float) -> Problem:
    """Random functions over random pairs, a part of their cells at a random cost."""
    functions = []
    for pair in combinations(range(variables), 2):
        if random.random() < density:
            is_dear = random.random((values, values)) < tightness
            functions.append(_costs(pair, np.where(is_dear, random.integers(1, 20, (values, values)), 0)))
    functions += [_costs((v,), random.integers(0, 5, values)) for v in range(variables)]
    return _problem([values] * variables, functions, [], "random")


def assignment(random: Generator, count: int) -> Problem:
    """A quadratic assignment: facilities to different places, flows times distances."""
    places = random.integers(0, 5, (count, 2))
    distance = np.abs(places[:, None] - places[None]).sum(axis=2)
    flow = np.triu(random.integers(0, 10, (count, count)) * (random.random((count, count)) < 0.6), 1)
    functions = [_costs(pair, int(flow[pair]) * distance) for pair in combinations(range(count), 2) if flow[pair]]
    equal = [[a, a] for a in range(count)]
    hard = [Constraint(pair, equal) for pair in combinations(range(count), 2)]
    return _problem([count] * count, functions, hard, "assignment")


def matching(random: Generator, points: int, candidates: int) -> Problem:
    """Points of one image to points of another: different ones, near in looks, distances kept."""
    places = random.random((candidates, 2))
    truth = random.permutation(candidates)[:points]
    seen = places[truth] + random.normal(0, 0.05, (points, 2))
    functions = [_costs((p,), random.integers(0, 60, candidates)) for p in range(points)]
    for u, v in combinations(range(points), 2):
        if random.random() < 0.6:
            here = np.linalg.norm(seen[u] - seen[v])
            there = np.linalg.norm(places[:, None] - places[None], axis=2)
            functions.append(_costs((u, v), np.minimum(100, np.rint(300 * np.abs(there - here)))))
    equal = [[a, a] for a in range(candidates)]
    hard = [Constraint(pair, equal) for pair in combinations(range(points), 2)]
    return _problem([candidates] * points, functions, hard, "matching")


def links(random: Generator, count: int, channels: int, degree: float) -> Problem:
    """Channels of radio links: those near one another must be apart, others better are; some links prefer a channel."""
    places = random.random((count, 2))
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    pairs = sorted(combinations(range(count), 2), key=lambda pair: float(distance[pair]))[: int(degree * count / 2)]
    apart = np.abs(np.arange(channels)[:, None] - np.arange(channels)[None])
    constraints, functions = [], [_costs((v,), random.integers(0, 30, channels)) for v in range(count)]
    for place, pair in enumerate(pairs):
        if place < len(pairs) // 3:
            constraints.append(Constraint(pair, np.argwhere(apart <= int(random.integers(1, 3)))))
        else:
            weight, wanted = int(random.integers(5, 60)), int(random.integers(1, 4))
            functions.append(_costs(pair, weight * np.maximum(0, wanted - apart)))
    return _problem([channels] * count, functions, constraints, "links")


def queens(random: Generator, side: int) -> Problem:
    """Queens on a board whose squares cost something, none of them attacking another."""
    column = np.arange(side)
    functions = [_costs((row,), random.integers(0, 100, side)) for row in range(side)]
    constraints = []
    for one, two in combinations(range(side), 2):
        apart = np.abs(column[:, None] - column[None])
        constraints.append(Constraint((one, two), np.argwhere((apart == 0) | (apart == two - one))))
    return _problem([side] * side, functions, constraints, "queens")


def latin_square(random: Generator, side: int) -> Problem:
    """A Latin square whose cells cost something, each symbol once in each row and column."""
    equal = [[a, a] for a in range(side)]
    functions = [_costs((v,), random.integers(0, 50, side)) for v in range(side * side)]
    pairs = [(u, v) for u, v in combinations(range(side * side), 2) if u // side == v // side or (v - u) % side == 0]
    return _problem([side] * (side * side), functions, [Constraint(pair, equal) for pair in pairs], "latin square")


def stereo(random: Generator, rows: int, columns: int, depths: int, most: int) -> Problem:
    """Depths of an image's pixels: noisy measurements, and what neighbours differ by, up to a limit."""
    truth = np.minimum(depths - 1, (np.add.outer(np.arange(rows), np.arange(columns)) // 3) % depths)
    functions = []
    for v in range(rows * columns):
        seen = np.abs(np.arange(depths) - truth[v // columns, v % columns] - random.normal(0, 1.5))
        functions.append(_costs((v,), np.rint(20 * np.minimum(seen, 3) + random.integers(0, 20, depths))))
    differ = np.abs(np.arange(depths)[:, None] - np.arange(depths)[None])
    functions += [_costs(edge, 15 * np.minimum(differ, most)) for edge in _grid_edges(rows, columns)]
    return _problem([depths] * (rows * columns), functions, [], "stereo")


def belief_network(random: Generator, variables: int, values: int, near: int, certain: float) -> Problem:
    """A Bayesian network, parents made shortly before, some tables deterministic: what explains the leaves best."""
    functions, constraints = [], []
    has_child = np.zeros(variables, dtype=bool)
    for v in range(variables):
        count = min(v, int(random.integers(1, 3)))
        parents = sorted(random.choice(np.arange(max(0, v - near), v), size=count, replace=False).tolist()) if v else []
        has_child[parents] = True
        shape = [values] * len(parents)
        if parents and random.random() < certain:
            result = random.integers(0, values, shape)
            constraints.append(Constraint((*parents, v), np.argwhere(np.arange(values) != result[..., None])))
            functions.append(_costs((v,), random.integers(0, 20, values)))
        else:
            table = random.dirichlet([0.5] * values, size=shape) + 1e-4
            functions.append(_costs((*parents, v), np.minimum(2000, np.rint(-100 * np.log(table)))))
    functions += [_costs((int(v),), random.integers(0, 300, values)) for v in np.flatnonzero(~has_child)]
    return _problem([values] * variables, functions, constraints, "belief network")


def ruler(random: Generator, marks: int, length: int) -> Problem:
    """Marks on a ruler, in order, of which few distances are equal: each equal pair of distances costs."""
    functions: list[Function] = [_costs((v,), random.integers(0, 4, length)) for v in range(marks)]
    place = np.arange(length)
    in_order = np.argwhere(place[:, None] >= place[None])
    constraints = [Constraint((v, v + 1), in_order) for v in range(marks - 1)]
    for one, two, three in combinations(range(marks), 3):
        same = np.argwhere(place[None, :, None] - place[:, None, None] == place[None, None, :] - place[None, :, None])
        functions.append(Function((one, two, three), same, np.full(len(same), int(random.integers(1, 10))), 0))
    return _problem([length] * marks, functions, constraints, "ruler")


def weighted_satisfiability(random: Generator, variables: int, clauses: int, arity: int, hard: float) -> Problem:
    """Clauses of different weights, some of them hard; a hidden assignment keeps the hard ones."""
    truth = random.integers(0, 2, variables)
    functions: list[Function] = []
    constraints: list[Constraint] = []
    for _ in range(clauses):
        scope = tuple(sorted(random.choice(variables, size=arity, replace=False).tolist()))
        wrong = random.integers(0, 2, arity)
        if random.random() < hard:
            if (wrong == truth[list(scope)]).all():
                wrong[0] = 1 - wrong[0]
            constraints.append(Constraint(scope, [wrong.tolist()]))
        else:
            functions.append(Function(scope, [wrong.tolist()], [int(random.integers(1, 100))], 0))
    return _problem([2] * variables, functions, constraints, "weighted satisfiability")


def sparse(random: Generator, variables: int, values: int, degree: float) -> Problem:
    """Many variables, few random costs between each and those made shortly before or after."""
    functions = [_costs((v,), random.integers(0, 40, values)) for v in range(variables)]
    for _ in range(int(degree * variables / 2)):
        one = int(random.integers(0, variables - 1))
        two = min(variables - 1, one + int(random.integers(1, 30)))
        if one != two:
            functions.append(_costs((one, two), random.integers(0, 40, (values, values))))
    return _problem([values] * variables, functions, [], "sparse")


def paid_conflicts(random: Generator, items: int, slots: int, choices: int) -> Problem:
    """Each item takes one of a few slots; two in one slot pay more than slots differ by, which no value avoids."""
    wanted = [random.choice(slots, size=choices, replace=False) for _ in range(items)]
    functions = [_costs((v,), random.integers(0, 100, choices)) for v in range(items)]
    for u, v in combinations(range(items), 2):
        is_same = wanted[u][:, None] == wanted[v][None]
        if is_same.any():
            functions.append(_costs((u, v), 250 * is_same))
    return _problem([choices] * items, functions, [], "paid conflicts")


def _differ(pairs: Iterable[tuple[int, int]], values: int) -> list[Constraint]:
    return [Constraint(pair, [[a, a] for a in range(values)]) for pair in pairs]


def weighted_colouring(random: Generator, vertices: int, colours: int, degree: float) -> Problem:
    """Colours of a random graph's vertices, each at a cost, no two neighbours alike; a hidden colouring is one."""
    hidden = random.integers(0, colours, vertices)
    pairs = [
        (u, v)
        for u, v in combinations(range(vertices), 2)
        if hidden[u] != hidden[v] and random.random() < degree / vertices
    ]
    functions = [_costs((v,), random.integers(0, 100, colours)) for v in range(vertices)]
    return _problem([colours] * vertices, functions, _differ(pairs, colours), "weighted colouring")


def quasigroup(random: Generator, side: int, given: float) -> Problem:
    """A Latin square to be completed from a part of its cells, the others at a cost."""
    rows, columns, symbols = (random.permutation(side) for _ in range(3))
    square = symbols[(rows[:, None] + columns[None]) % side].ravel()
    problem = latin_square(random, side)
    known = np.flatnonzero(random.random(side * side) < given).tolist()
    fixed = [Constraint((v,), [[int(square[v])]], allowed=True) for v in known]
    return _problem([*problem.sizes], [*problem.functions], [*problem.constraints, *fixed], "quasigroup")


def timetable(random: Generator, events: int, slots: int, degree: float) -> Problem:
    """Slots of events: those that share people differ, those of a course are better not side by side."""
    hidden = random.integers(0, slots, events)
    functions = [_costs((v,), random.integers(0, 30, slots)) for v in range(events)]
    apart = np.abs(np.arange(slots)[:, None] - np.arange(slots)[None])
    clashes = []
    for u, v in combinations(range(events), 2):
        if random.random() >= degree / events:
            continue
        if hidden[u] != hidden[v] and random.random() < 0.6:
            clashes.append((u, v))
        else:
            functions.append(_costs((u, v), int(random.integers(5, 40)) * (apart <= 1)))
    return _problem([slots] * events, functions, _differ(clashes, slots), "timetable")


def jobs(random: Generator, count: int, horizon: int) -> Problem:
    """When the jobs of one machine begin, none while another runs, each late one at a cost."""
    lasts = random.integers(1, max(2, 2 * horizon // count), count)
    start = np.arange(horizon)
    functions, constraints = [], []
    for job in range(count):
        late = np.maximum(0, start + lasts[job] - int(random.integers(1, horizon)))
        functions.append(_costs((job,), int(random.integers(1, 10)) * late))
    for one, two in combinations(range(count), 2):
        both = (start[:, None] + lasts[one] > start[None]) & (start[None] + lasts[two] > start[:, None])
        constraints.append(Constraint((one, two), np.argwhere(both)))
    return _problem([horizon] * count, functions, constraints, "jobs")


def cover(random: Generator, sets: int, elements: int, most: int) -> Problem:
    """Which sets to take, each at a cost, so that each element is in one of them."""
    functions = [_costs((s,), [0, int(cost)]) for s, cost in enumerate(random.integers(10, 100, sets))]
    constraints = []
    for _ in range(elements):
        scope = sorted(random.choice(sets, size=int(random.integers(2, most + 1)), replace=False).tolist())
        constraints.append(Constraint(tuple(scope), [[0] * len(scope)]))
    return _problem([2] * sets, functions, constraints, "cover")


def knapsack(random: Generator, items: int, degree: float) -> Problem:
    """Which items to take, of a limited weight in all; some pairs are worth less together."""
    functions = [_costs((v,), [int(gain), 0]) for v, gain in enumerate(random.integers(20, 100, items))]
    pairs = [pair for pair in combinations(range(items), 2) if random.random() < degree / items]
    functions += [Function(pair, [[1, 1]], [int(random.integers(5, 60))], 0) for pair in pairs]
    weights = random.integers(5, 50, items)
    limit = LinearConstraint(tuple(range(items)), tuple(np.array([0, w]) for w in weights), int(weights.sum() // 3))
    problem = _problem([2] * items, functions, [], "knapsack")
    return replace(problem, linear_constraints=(limit,))


def _rows_of_values(count: int, values: int, takes: np.ndarray, capacities: list[int], begin: int) -> list[Any]:
    """A capacity for each of some values, of which each variable from ``begin`` on takes so much: (values, count)."""
    own = [[np.where(np.arange(values) == a, takes[a, v], 0) for v in range(count)] for a in range(values)]
    scope = tuple(range(begin, begin + count))
    return [LinearConstraint(scope, tuple(own[a]), capacities[a]) for a in range(values)]


def capacitated(random: Generator, warehouses: int, stores: int, slack: float) -> Problem:
    """Warehouses to open that each supply so much at most, and from which each store is supplied, by distance."""
    places, shops = random.random((warehouses, 2)), random.random((stores, 2))
    distance = np.rint(1000 * np.linalg.norm(shops[:, None] - places[None], axis=2)).astype(np.int64)
    functions = [_costs((w,), [0, cost]) for w, cost in enumerate(random.integers(800, 1500, warehouses).tolist())]
    functions += [_costs((warehouses + s,), distance[s]) for s in range(stores)]
    closed = [Constraint((w, warehouses + s), [[0, w]]) for s in range(stores) for w in range(warehouses)]
    demand = random.integers(5, 25, stores)
    takes = np.tile(demand, (warehouses, 1))
    rows = _rows_of_values(stores, warehouses, takes, [int(slack * demand.sum() / warehouses)] * warehouses, warehouses)
    sizes = [2] * warehouses + [warehouses] * stores
    return replace(_problem(sizes, functions, closed, "capacitated"), linear_constraints=tuple(rows))


def agents(random: Generator, count: int, tasks: int) -> Problem:
    """A generalised assignment: tasks to agents, each of whom has so much time, and takes her own for each task."""
    functions = [_costs((task,), random.integers(10, 50, count)) for task in range(tasks)]
    takes = random.integers(5, 25, (count, tasks))
    rows = _rows_of_values(tasks, count, takes, [int(0.8 * own.sum() / count) for own in takes], 0)
    return replace(_problem([count] * tasks, functions, [], "agents"), linear_constraints=tuple(rows))


def bins(random: Generator, items: int, count: int) -> Problem:
    """Items into bins, each at a cost, some pairs at a cost in one bin."""
    weights = random.integers(10, 40, items)
    functions = [_costs((item,), random.integers(0, 30, count)) for item in range(items)]
    together = np.eye(count, dtype=np.int64)
    pairs = [pair for pair in combinations(range(items), 2) if random.random() < 4 / items]
    functions += [_costs(pair, int(random.integers(5, 40)) * together) for pair in pairs]
    capacities = [int(1.15 * weights.sum() / count)] * count
    rows = _rows_of_values(items, count, np.tile(weights, (count, 1)), capacities, 0)
    return replace(_problem([count] * items, functions, [], "bins"), linear_constraints=tuple(rows))


def coverage(random: Generator, sensors: int, targets: int, budget: int) -> Problem:
    """So many sensors of a number that can be placed: each target that none of its own sees costs."""
    functions: dict[tuple[int, ...], Function] = {}
    for _ in range(targets):
        scope = tuple(sorted(random.choice(sensors, size=int(random.integers(2, 6)), replace=False).tolist()))
        functions[scope] = Function(scope, [[0] * len(scope)], [int(random.integers(5, 50))], 0)
    row = LinearConstraint(tuple(range(sensors)), (np.array([0, 1]),) * sensors, budget)
    return replace(_problem([2] * sensors, [*functions.values()], [], "coverage"), linear_constraints=(row,))


def knapsacks(random: Generator, items: int, count: int, degree: float) -> Problem:
    """Which items to take under several limits; some pairs are worth less together."""
    problem = knapsack(random, items, degree)
    rows = [*problem.linear_constraints]
    for _ in range(count - 1):
        weights = random.integers(5, 50, items)
        own = tuple(np.array([0, w]) for w in weights)
        rows.append(LinearConstraint(tuple(range(items)), own, int(weights.sum() // 3)))
    return replace(problem, linear_constraints=tuple(rows))


def conflicting(random: Generator, items: int, values: int, limits: int, degree: float) -> Problem:
    """Which items to take, and in which of some ways, under several limits; some ways of two items exclude another."""
    gains = random.integers(20, 100, items)
    functions = [_costs((v,), [int(gain), *[0] * (values - 1)]) for v, gain in enumerate(gains)]
    constraints = []
    for pair in combinations(range(items), 2):
        if random.random() < degree / items:
            is_excluded = random.random((values - 1, values - 1)) < (1 if values == 2 else 0.5)
            constraints.append(Constraint(pair, 1 + np.argwhere(is_excluded)))
    rows = []
    for _ in range(limits):
        own = tuple(np.append(0, random.integers(5, 50, values - 1)) for _ in range(items))
        rows.append(LinearConstraint(tuple(range(items)), own, int(sum(amounts[1:].mean() for amounts in own) / 3)))
    problem = _problem([values] * items, functions, constraints, "conflicting")
    return replace(problem, linear_constraints=tuple(rows))


def shifts(random: Generator, nurses: int, days: int) -> Problem:
    """Shifts of nurses, three a day or none: wishes, what follows on what at a cost, and enough of them in each."""
    functions, rows = [], []
    next_day, lonely = np.zeros((4, 4), dtype=np.int64), np.zeros((4, 4, 4), dtype=np.int64)
    next_day[3, 1] = next_day[3, 2] = 200
    next_day[2, 1] = 30
    lonely[0, 1:, 0], lonely[1:, 0, 1:] = 40, 20
    for nurse in range(nurses):
        days_of = range(nurse * days, (nurse + 1) * days)
        functions += [_costs((v,), random.integers(0, 20, 4)) for v in days_of]
        functions += [_costs((v, v + 1), next_day) for v in days_of[:-1]]
        functions += [_costs((v, v + 1, v + 2), lonely) for v in days_of[:-2]]
    for day, shift in product(range(days), range(1, 4)):
        own = -(np.arange(4) == shift).astype(np.int64)
        scope = tuple(range(day, nurses * days, days))
        rows.append(LinearConstraint(scope, (own,) * nurses, -max(1, nurses // 5)))
    return replace(_problem([4] * (nurses * days), functions, [], "shifts"), linear_constraints=tuple(rows))


def design(random: Generator, residues: int, rotamers: int) -> Problem:
    """A protein to be designed: every pair of residues interacts, of many amino acids and rotamers each."""
    sizes = random.integers(rotamers // 2, rotamers + 1, residues).tolist()
    functions = [_costs((v,), random.gamma(2, 300, size)) for v, size in enumerate(sizes)]
    places = random.random((residues, 3))
    for u, v in combinations(range(residues), 2):
        near = 1 / (0.2 + np.linalg.norm(places[u] - places[v])) ** 2
        energy = random.normal(0, 20 * near, (sizes[u], sizes[v]))
        energy += np.where(random.random(energy.shape) < 0.05 * near, random.gamma(2, 1500, energy.shape), 0)
        functions.append(_costs((u, v), np.rint(energy - energy.min())))
    return _problem(sizes, functions, [], "design")


def goods(random: Generator, count: int, bids: int, least: int, most: int) -> Problem:
    """Which bids to take for sets of goods: a linear constraint for each good, which is sold once."""
    wanted = [
        set(random.choice(count, int(random.integers(least, most + 1)), replace=False).tolist()) for _ in range(bids)
    ]
    functions = [_costs((b,), [int(100 * len(w) * random.uniform(0.7, 1.3)), 0]) for b, w in enumerate(wanted)]
    scopes = [tuple(b for b in range(bids) if good in wanted[b]) for good in range(count)]
    rows = [LinearConstraint(scope, (np.array([0, 1]),) * len(scope), 1) for scope in scopes if len(scope) > 1]
    return replace(_problem([2] * bids, functions, [], "goods"), linear_constraints=tuple(rows))


def dear_warehouse(random: Generator, places: int, near: int) -> Problem:
    """Warehouses of equal cost, of which few are near each store: the linear program leaves a gap of a third."""
    functions = [_costs((w,), [0, 3000]) for w in range(places)]
    for store in range(places):
        costs = np.full(places, 30_000)
        own = random.choice(places, size=near, replace=False)
        costs[own] = random.integers(0, 5, near)
        functions.append(_costs((places + store,), costs))
    closed = [Constraint((w, places + s), [[0, w]]) for s in range(places) for w in range(places)]
    return _problem([2] * places + [places] * places, functions, closed, "dear warehouse")


def fixed_distances(random: Generator, count: int, values: int, degree: float) -> Problem:
    """Radio links there and back at a fixed distance; costs of four magnitudes where near ones disturb one another."""
    band = np.arange(values)
    apart = np.abs(band[:, None] - band[None])
    there = [Constraint((v, v + 1), np.argwhere(apart != values // 2)) for v in range(0, count, 2)]
    places = random.random((count // 2, 2))
    pairs = sorted(combinations(range(count // 2), 2), key=lambda p: float(np.linalg.norm(places[p[0]] - places[p[1]])))
    functions = []
    for one, other in pairs[: int(degree * count / 4)]:
        for u, v in product((2 * one, 2 * one + 1), (2 * other, 2 * other + 1)):
            if random.random() < 0.5:
                weight, wanted = int(random.choice([1, 100, 10_000, 1_000_000])), int(random.integers(1, values // 3))
                functions.append(_costs((u, v), weight * (apart < wanted)))
    return _problem([values] * count, functions, there, "fixed distances")


def certain_grid(random: Generator, side: int, certain: float) -> Problem:
    """A Bayesian network on a square grid, a part of its tables certain; its last variable is observed."""
    functions = []
    for v in range(side * side):
        parents = [u for u, is_there in ((v - side, v >= side), (v - 1, v % side > 0)) if is_there]
        first = random.random([2] * len(parents))
        if random.random() < certain:
            first = np.rint(first)
        table = np.stack([first, 1 - first], axis=-1)
        cells = np.argwhere(table > 0)
        functions.append(Function((*parents, v), cells, np.rint(-1000 * np.log(table[table > 0])).astype(np.int64)))
    functions.append(Function((side * side - 1,), [[1]], [0]))
    return _problem([2] * (side * side), functions, [], "certain grid")


def arrangement(random: Generator, vertices: int, degree: float) -> Problem:
    """Vertices of a random graph in a row, the ends of each edge near one another."""
    place = np.arange(vertices)
    apart = np.abs(place[:, None] - place[None])
    pairs = [pair for pair in combinations(range(vertices), 2) if random.random() < degree / vertices]
    hard = _differ(combinations(range(vertices), 2), vertices)
    return _problem([vertices] * vertices, [_costs(pair, apart) for pair in pairs], hard, "arrangement")


def triples(random: Generator, variables: int, values: int, count: int) -> Problem:
    """Random costs of random triples."""
    scopes = [sorted(random.choice(variables, size=3, replace=False).tolist()) for _ in range(count)]
    functions = [_costs(tuple(scope), random.integers(0, 10, [values] * 3)) for scope in scopes]
    return _problem([values] * variables, functions, [], "triples")


Make = Callable[..., Problem]

FAMILIES: dict[str, tuple[Make, tuple[tuple[Any, ...], ...]]] = {
    "clique": (clique, ((60, 0.7), (100, 0.5), (100, 0.7), (150, 0.6))),
    "warehouse": (warehouse, ((20, 40), (40, 100), (50, 60), (60, 120))),
    "max-2-sat": (
        lambda random, *size: satisfiability(random, *size, 2),
        ((50, 200), (60, 260), (80, 360), (100, 450)),
    ),
    "max-3-sat": (lambda random, *size: satisfiability(random, *size, 3), ((40, 240), (60, 330), (70, 400))),
    "circuit": (circuit, ((500, 30, 3), (1500, 30, 3), (1500, 20, 4))),
    "segmentation": (segmentation, ((300, 4, 60), (500, 4, 40), (800, 3, 60))),
    "potts": (potts, ((15, 4, 30), (22, 4, 30), (30, 3, 40))),
    "spin glass": (spin_glass, ((12,), (16,), (20,))),
    "cut": (cut, ((25, 0.9), (40, 0.3))),
    "colouring": (colouring, ((40, 4, 6.0), (60, 3, 5.0))),
    "frequencies": (frequencies, ((16, 20, 6.0), (24, 30, 6.0), (40, 20, 4.0))),
    "side chains": (side_chains, ((30, 20), (60, 12), (25, 60))),
    "pedigree": (pedigree, ((15, 2), (30, 2), (20, 3))),
    "chain": (chain, ((3000, 4, 1), (1000, 4, 2))),
    "code": (code, ((100, 50), (120, 60))),
    "diagnosis": (diagnosis, ((60, 150), (300, 300))),
    "auction": (auction, ((60, 30), (100, 40), (120, 60))),
    "random": (random_costs, ((20, 8, 0.5, 0.5), (30, 5, 0.3, 0.5), (50, 4, 0.1, 0.6))),
    "assignment": (assignment, ((7,), (8,))),
    "matching": (matching, ((10, 20), (15, 15))),
    "links": (links, ((20, 12, 5.0), (30, 15, 6.0), (60, 10, 5.0))),
    "queens": (queens, ((12,), (20,), (30,))),
    "latin square": (latin_square, ((6,), (8,), (7,))),
    "stereo": (stereo, ((10, 12, 8, 3), (16, 20, 8, 3), (12, 12, 16, 5))),
    "belief network": (belief_network, ((60, 5, 12, 0.3), (120, 4, 25, 0.2), (300, 3, 20, 0.5))),
    "ruler": (ruler, ((5, 20), (6, 25))),
    "weighted 2-sat": (lambda random, *size: weighted_satisfiability(random, *size, 2, 0.3), ((60, 300), (100, 400))),
    "weighted 3-sat": (lambda random, *size: weighted_satisfiability(random, *size, 3, 0.5), ((60, 300), (80, 400))),
    "sparse": (sparse, ((1000, 4, 3.0), (5000, 3, 2.6))),
    "weighted colouring": (weighted_colouring, ((40, 5, 8.0), (60, 4, 7.0), (80, 6, 8.0))),
    "quasigroup": (quasigroup, ((8, 0.4), (10, 0.4), (12, 0.42))),
    "timetable": (timetable, ((25, 8, 8.0), (40, 10, 8.0), (50, 15, 10.0))),
    "jobs": (jobs, ((6, 20), (8, 30), (10, 40))),
    "cover": (cover, ((60, 80, 5), (100, 150, 5), (150, 250, 6))),
    "knapsack": (knapsack, ((30, 4.0), (60, 4.0), (100, 6.0))),
    "capacitated": (capacitated, ((6, 20, 2.0), (10, 30, 2.5))),
    "agents": (agents, ((4, 16), (5, 24))),
    "bins": (bins, ((16, 4), (24, 5))),
    "coverage": (coverage, ((40, 80, 8),)),
    "knapsacks": (knapsacks, ((40, 2, 4.0), (50, 5, 4.0))),
    "conflicting": (conflicting, ((60, 2, 3, 4.0), (100, 2, 1, 6.0), (60, 4, 3, 8.0))),
    "shifts": (shifts, ((8, 7), (10, 10))),
    "design": (design, ((8, 40), (12, 40), (15, 60))),
    "goods": (goods, ((40, 120, 2, 5), (60, 200, 2, 5), (60, 200, 3, 8))),
    "dear warehouse": (dear_warehouse, ((20, 5), (25, 5), (30, 5))),
    "fixed distances": (fixed_distances, ((40, 16, 8.0), (60, 20, 10.0), (100, 24, 12.0))),
    "certain grid": (certain_grid, ((18, 0.5), (20, 0.75), (26, 0.75))),
    "arrangement": (arrangement, ((8, 3.0), (9, 3.0), (10, 3.0))),
    "paid conflicts": (paid_conflicts, ((60, 62, 5),)),
    "triples": (triples, ((15, 4, 40), (20, 3, 60), (25, 3, 70))),
}
"""Of each family what makes it, and its sizes; a size's seeds are 0, 1, …"""


def made(family: str, size: int, seed: int) -> Problem:
    """One problem."""
    make, sizes = FAMILIES[family]
    return make(np.random.default_rng((seed, size)), *sizes[size])


def solve_family(family: str, sizes: str, seeds: str, seconds: str) -> dict[str, Any]:
    """In a child: solves by oocbe of some sizes of a family, after a small one."""
    time.perf_counter = time.monotonic = time.process_time  # type: ignore[assignment]
    oocbe.solve(EXAMPLE)
    answers = {}
    for size, seed in product(map(int, sizes.split(",")), range(int(seeds))):
        problem, begin = made(family, size, seed), time.process_time()
        result = oocbe.solve(problem, time_limit=10 * float(seconds), backend="cpu")
        taken = time.process_time() - begin
        is_proven = result.status in ("optimal", "infeasible") and taken <= float(seconds)
        bound = result.value if result.status == "optimal" else result.bound
        answers[f"{family} {size} {seed}"] = {
            "processor": taken,
            "proven": is_proven,
            "value": result.value,
            "bound": bound,
        }
    return answers


def solve_by_toulbar2(family: str, size: int, seed: int, seconds: float) -> dict[str, Any]:
    """A solve by toulbar2, whose own limit is of processor time."""
    with tempfile.TemporaryDirectory(prefix="oocbe-benchmark-") as folder:
        path = Path(folder) / "problem.wcsp"
        write(made(family, size, seed), path)
        return run("peer", "toulbar2", str(path), str(seconds), seconds=seconds)


def _cell(answers: list[dict[str, Any] | None]) -> str:
    """Processor seconds of each seed's solve."""
    texts = []
    for answer in answers:
        if answer is None:
            texts.append("")
        elif answer["proven"]:
            texts.append(f"{answer.get('processor', math.nan):.2f}")
        else:
            texts.append("failed" if "why" in answer else "limit")
    return ", ".join(texts)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of each solve (default 20)")
    parser.add_argument("--seeds", type=int, default=3, help="problems of each size (default 3)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="families, separated by commas")
    parser.add_argument(
        "--sizes", type=lambda text: [*map(int, text.split(","))], help="places of sizes (default: all)"
    )
    parser.add_argument("--systems", type=lambda text: text.split(","), default=["oocbe", "toulbar2"])
    parser.add_argument("--save", type=Path, help="a file for the answers")
    parser.add_argument("--before", type=Path, help="answers that were saved before: a column of their own")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print("\n" + json.dumps(solve_family(*arguments.child)))
        return 0
    unknown = set(arguments.only or ()) - FAMILIES.keys()
    if unknown:
        parser.error(f"unknown families: {', '.join(sorted(unknown))}; known: {', '.join(FAMILIES)}")
    before = json.loads(arguments.before.read_text()) if arguments.before else {}
    answers: dict[str, dict[str, Any]] = {}
    wrong = []
    columns = [*(["oocbe before"] if before else []), *arguments.systems]
    rows = [["family", "size", *columns]]
    for family in arguments.only or FAMILIES:
        sizes = [size for size in range(len(FAMILIES[family][1])) if not arguments.sizes or size in arguments.sizes]
        own: dict[str, Any] = {}
        if "oocbe" in arguments.systems:
            names = [family, ",".join(map(str, sizes)), str(arguments.seeds), str(arguments.seconds)]
            own = run_child(__file__, names)
        for size in sizes:
            keys = [f"{family} {size} {seed}" for seed in range(arguments.seeds)]
            for seed, key in enumerate(keys):
                answers[key] = {"oocbe": own[key]} if own else {}
                if "toulbar2" in arguments.systems:
                    answers[key]["toulbar2"] = solve_by_toulbar2(family, size, seed, arguments.seconds)
                wrong += [f"{key}: {sentence}" for sentence in contradictions(answers[key], True)]
            cells = [_cell([answers[key].get(name) for key in keys]) for name in arguments.systems]
            if before:
                cells.insert(0, _cell([before.get(key, {}).get("oocbe") for key in keys]))
            rows.append([family, "x".join(f"{part:g}" for part in FAMILIES[family][1][size]), *cells])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        if arguments.save:
            arguments.save.write_text(json.dumps(answers))
    print_table(rows, arguments.markdown)
    print(f"\nProcessor seconds of seeds 0 to {arguments.seeds - 1}; limit {arguments.seconds:g} s.")
    print(describe_run(["pytoulbar2"]))
    for sentence in wrong:
        print(f"answers contradict one another, {sentence}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
