"""Check a certificate (docs/certificate.md), alone: ``python check_certificate.py FILE CERTIFICATE``; only integers."""

import gzip
import json
import lzma
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

SCALE, WORK = 2**20, 5_000_000  # what multipliers are counted in; rows and nodes before a certificate is refused


def need(condition: bool, why: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise ValueError(why)


def members(mask: int) -> Iterator[int]:
    """Elements of a bit set, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def read(path: Path) -> tuple[list[int], list[Any], list[Any], float]:
    """Domain sizes, functions (scope, costs by tuple, default; None forbids), linear constraints, and upper bound."""
    text = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(path.read_bytes()).decode()
    functions, linear, words = list[Any](), list[Any](), iter(text.split())
    if ".spot" in path.suffixes[-2:]:  # value 0 leaves a photograph out
        rows = [line.split() for line in text.splitlines() if line.split()]
        photographs, (announced, *body) = rows[1 : 1 + int(rows[0][0])], rows[1 + int(rows[0][0]) :]
        number = {int(row[0]): v for v, row in enumerate(photographs)}
        labels = [[0, *map(int, row[3 : 3 + 2 * int(row[2]) : 2])] for row in photographs]
        uses = [[Fraction(0), *map(Fraction, row[4 : 3 + 2 * int(row[2]) : 2])] for row in photographs]
        need(len(body) == int(announced[0]), "the file has not as many constraints as it says")
        if any(map(any, uses)):  # the published files' capacity of 90000 stands for 200 units of 451
            need(not body or len(body[-1]) > 1 or body.pop() == ["90000"], "the recorder's capacity is not 90000")
            linear.append(({v: [round(use / 451) for use in own] for v, own in enumerate(uses)}, 200))
        functions += [((v,), {(0,): int(row[1])}, 0) for v, row in enumerate(photographs)]
        for arity, *rest in (list(map(int, row)) for row in body):
            scope, values = tuple(number[i] for i in rest[:arity]), iter(rest[arity:])
            tuples = zip(*[values] * arity, strict=True)
            table = {tuple(labels[v].index(x) for v, x in zip(scope, t, strict=True)): None for t in tuples}
            functions.append((scope, table, 0))
        return list(map(len, labels)), functions, linear, math.inf
    need(".wcsp" in path.suffixes[-2:], f"only .spot and .wcsp files can be checked, not {path}")
    _, count, _, announced, top = next(words), *(int(next(words)) for _ in range(4))
    sizes, shared = [int(next(words)) for _ in range(count)], list[Any]()
    for _ in range(announced):
        arity = int(next(words))
        scope, default, word = tuple(int(next(words)) for _ in range(abs(arity))), int(next(words)), next(words)
        if word in ("knapsack", "knapsackp"):  # a sum of at least what follows
            linear.append(({v: [0] * sizes[v] for v in scope}, -int(next(words))))
            for own in linear[-1][0].values():
                weight = int(next(words))
                pairs = [(int(next(words)), int(next(words))) for _ in range(weight if word == "knapsackp" else 0)]
                for a, amount in pairs if word == "knapsackp" else [(a, a * weight) for a in range(len(own))]:
                    own[a] = -amount
            continue
        costs = {tuple(int(next(words)) for _ in scope): int(next(words)) for _ in range(int(word))}
        costs = shared[~int(word)] if int(word) < 0 else costs
        shared += [costs] if arity < 0 <= int(word) else []
        costs = {t: None if cost >= top else cost for t, cost in costs.items()}
        functions.append((scope, costs, None if default >= top and scope else default))
    need(next(words, None) is None, "the file goes on after its last cost function")
    return sizes, functions, linear, top


class Proof:
    """That no assignment of a problem costs less than a limit.

    Literal ``first[v] + a`` is true where variable v has value a. Bit sets of literals: ``alive``, those possible yet;
    ``conflict``, by literal, those that exclude it; ``sets``, by literal, what cannot all be true together.
    """

    def __init__(self, path: Path, dear: int) -> None:
        self.sizes, self.functions, linear, self.top = read(path)
        self.first = [sum(self.sizes[:v]) for v in range(len(self.sizes) + 1)]
        self.owner = [v for v, size in enumerate(self.sizes) for _ in range(size)]
        self.mask = [(1 << end) - (1 << begin) for begin, end in pairwise(self.first)]
        self.alive, self.conflict = (1 << self.first[-1]) - 1, [self.mask[v] ^ 1 << x for x, v in enumerate(self.owner)]
        self.work, self.valid, self.dear, self.sets = 0, dict[int, Any](), dict[int, Any](), defaultdict[int, Any](set)
        for number, (scope, table, default) in enumerate(self.functions):
            cells = [range(self.sizes[v]) for v in scope]
            if (default is None or default > dear) and math.prod(map(len, cells)) <= 2**16:
                table = {**dict.fromkeys(product(*cells), default), **table}
            for t, cost in table.items():
                literals = sum(1 << self.first[v] + a for v, a in zip(scope, t, strict=True))
                for x in members(literals if cost is None else 0):
                    self.alive &= ~literals if len(t) == 1 else -1
                    self.conflict[x] |= literals ^ 1 << x if len(t) == 2 else 0
                    self.sets[x].add(literals)
                if cost is not None and cost > dear and len(t) == 2:
                    self.dear[literals] = number, cost
        self.linear = list[Any]()
        for terms, capacity in linear:  # what the least amounts leave of the capacity is room for the rest
            use = {self.first[v] + a: c - min(own) for v, own in terms.items() for a, c in enumerate(own)}
            self.linear.append((use, capacity - sum(map(min, terms.values()))))

    def set_limit(self, status: str, value: int) -> None:
        """Set what no assignment must cost less than: a value, or what nothing that counts costs."""
        costs = [[c for c in (*table.values(), default) if c is not None] for _, table, default in self.functions]
        self.limit = min(self.top, 1 + sum(max(own, default=0) for own in costs), *([] if status == "infeasible" else [value]))
        # All costs are ``offset`` plus multiples of ``step``: what exceeds ``most`` is the limit at least.
        offset, step = sum(own[0] for own in costs if own), math.gcd(*(c - own[0] for own in costs for c in own)) or 1
        self.most = SCALE * (offset + (self.limit - 1 - offset) // step * step)

    def row(self, row: Any) -> tuple[dict[int, int], int, list[int]]:
        """Coefficients by literal and right side of a row that is valid, and dear pairs that it takes for excluded."""
        if row["kind"] == "capacity":
            return (*self.linear[row["constraint"]], [])
        weights = dict(zip(row["literals"], row["coefficients"], strict=True))
        mask = sum(1 << x for x in weights) & self.alive
        adjacent = {x: self.conflict[x] & mask for x in members(mask)}
        pay = [pair for pair in self.dear if pair & mask == pair and not adjacent[pair.bit_length() - 1] & pair]
        for pair, x in [(p, x) for p in pay for x in members(p)]:
            adjacent[x] |= pair ^ 1 << x
        fixed = sum(own & self.alive for own in self.mask if (own & self.alive).bit_count() == 1)
        need(not self.exceeds(weights, adjacent, mask, fixed, row["right_side"]), f"this does not hold: {row}")
        return weights, row["right_side"], pay

    def exceeds(self, weights: dict[int, int], adjacent: dict[int, int], left: int, chosen: int, limit: int) -> bool:
        """Whether literals of ``left`` that fit together, and to those chosen, weigh more than a limit."""
        self.work, rest, bound = self.work + 1, left, 0
        need(self.work < WORK, "this takes too long to check")
        while rest:
            common, heaviest = rest, 0
            while common:  # of a clique one literal is true at most
                x = (common & -common).bit_length() - 1
                rest, common, heaviest = rest ^ 1 << x, common & adjacent[x], max(heaviest, weights[x])
            bound += heaviest
        if bound <= limit or limit < 0:
            return limit < 0
        x = left.bit_length() - 1
        left, own = left ^ 1 << x, chosen | 1 << x
        fits = all(literals & ~own for literals in self.sets[x])
        fits &= all(sum(use.get(y, 0) for y in members(own)) <= room for use, room in self.linear)
        is_more = fits and self.exceeds(weights, adjacent, left & ~adjacent[x], own, limit - weights[x])
        return is_more or self.exceeds(weights, adjacent, left, chosen, limit)

    def step(self, rows: Any, step: Any) -> bool:
        """Find a constant and sums by literal that together exceed no cost that counts; whether nothing is left."""
        sums, charges, floors = [0] * self.first[-1], Counter[int](), Counter[int]()
        for number, (scope, table, default) in enumerate(self.functions):
            if default != 0 or any(table.values()):
                left = [[x - self.first[v] for x in members(self.mask[v] & self.alive)] for v in scope]
                tuples = product(*left) if math.prod(map(len, left)) <= 2**20 else [*table, None]
                costs = {t: cost for t in tuples for cost in [table.get(t, default)] if cost is not None}
                floors[number] = SCALE * min(costs.values(), default=0)
                for (a,), cost in costs.items() if len(scope) == 1 else ():
                    sums[self.first[scope[0]] + a] += SCALE * cost - floors[number]
        constant = floors.total()
        for number, multiplier in step["multipliers"]:
            need(multiplier >= 0, "found a negative multiplier")
            self.valid[number] = terms, right_side, pay = self.valid.get(number) or self.row(rows[number])
            constant -= multiplier * right_side
            for x, c in terms.items():
                sums[x] += multiplier * c
            charges.update(dict.fromkeys(pay, multiplier * max(0, *terms.values())))
        for pair, charge in charges.items():
            number, cost = self.dear[pair]
            need(charge <= SCALE * cost - floors[number], "two literals pay more than they cost")
        least = [min((sums[x] for x in members(own & self.alive)), default=0) for own in self.mask]
        self.bound, spare = (constant, sums, least), self.most - constant - sum(least)
        need(all(sums[x] - least[self.owner[x]] > spare for x in step["removed"]), "a literal removed may be true")
        self.alive &= ~sum(1 << x for x in set(step["removed"]))
        return spare < 0 or not all(own & self.alive for own in self.mask)

    def tables(self, order: list[int]) -> bool:
        """Assign variables in an order, keeping the least sums of what is alike in all that matters later."""
        need(sorted(order) == list(range(len(self.sizes))), "the order is not one of all variables")
        (constant, sums, least), known, late = self.bound, list[int](), set(order)
        states = {((), (0,) * len(self.linear)): (sum(d for s, _, d in self.functions if not s), constant)}
        for v in order:
            known, before, states, late = [*known, v], states, {}, late - {v}
            rest = self.most - sum(least[u] for u in late)
            due = [([known.index(u) for u in s], t, d) for s, t, d in self.functions if v in s and late.isdisjoint(s)]
            needed = {u for s, _, _ in self.functions if not late.isdisjoint(s) for u in s}
            for ((old, used), (cost, low)), x in product(before.items(), members(self.mask[v] & self.alive)):
                self.work, new = self.work + 1, (*old, x - self.first[v])
                need(self.work < WORK, "this takes too long to check")
                costs = [table.get(tuple(new[j] for j in axes), default) for axes, table, default in due]
                used = tuple(u + use.get(x, 0) for u, (use, _) in zip(used, self.linear, strict=True))
                fits = all(u <= room for u, (_, room) in zip(used, self.linear, strict=True))
                if None not in costs and fits and low + sums[x] <= rest:
                    key = tuple(a for a, u in zip(new, known, strict=True) if u in needed), used
                    now = cost + sum(costs), low + sums[x]
                    states[key] = tuple(map(min, now, states.get(key, now)))
            known = [u for u in known if u in needed]
        return all(cost >= self.limit for cost, _ in states.values())


def check(path: Path, text: str) -> dict[str, Any]:
    """The certificate (JSON) in a text, where it proves what it says of a file; ValueError says why it does not."""
    try:
        found = json.loads(text, parse_float=str, parse_constant=str)
        need((found["format"], found["version"]) == ("oocbe certificate", 1), "this is no certificate of version 1")
        proof, value = Proof(path, found["dear"]), found["value"]
        proof.set_limit(found["status"], value)
        if found["status"] == "optimal":
            chosen = list(zip(found["assignment"], proof.sizes, proof.first[:-1], strict=True))
            need(all(a in range(size) for a, size, _ in chosen), "the assignment has a value that there is not")
            own = [t.get(tuple(found["assignment"][v] for v in s), d) for s, t, d in proof.functions]
            need(None not in own and sum(own) == value < proof.top, f"the assignment is not worth {value}")
            used = [sum(use.get(first + a, 0) for a, _, first in chosen) - room for use, room in proof.linear]
            need(max(used, default=0) <= 0, "the assignment takes more than a capacity")
        need(found["status"] in ("optimal", "infeasible", "nothing-better"), f"unknown status {found['status']!r}")
        if not any(proof.step(found["rows"], step) for step in found["steps"]):
            need(proof.tables(found["order"]), "the steps leave a gap, and the tables something better")
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, StopIteration, TypeError) as error:
        raise ValueError(f"malformed, {type(error).__name__}: {error}") from error
    return found


if __name__ == "__main__":
    try:
        check(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
    except (IndexError, OSError, ValueError) as error:
        sys.exit(f"refused: {error}")
    print("accepted")
