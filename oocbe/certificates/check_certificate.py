"""Check a certificate (docs/certificate.md), alone: ``python check_certificate.py FILE CERTIFICATE``; only integers."""

import gzip
import json
import lzma
import math
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import accumulate, pairwise, product
from pathlib import Path
from typing import Any

SCALE, WORK = 2**20, 5_000_000  # what multipliers are counted in; rows and nodes before a certificate is refused


def need(condition: bool, why: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise ValueError(why)


def members(mask: int) -> Any:
    """Elements of a bit set, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def read(path: Path) -> tuple[list[int], list[Any], list[Any], float]:
    """Domain sizes, functions (scope, costs by tuple, default; None forbids), linear constraints, and upper bound."""
    text = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix, bytes)(path.read_bytes()).decode()
    functions, linear = list[Any](), list[Any]()
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
            scope, tuples = tuple(number[i] for i in rest[:arity]), zip(*[iter(rest[arity:])] * arity, strict=True)
            table = {tuple(labels[v].index(x) for v, x in zip(scope, t, strict=True)): None for t in tuples}
            functions.append((scope, table, 0))
        return list(map(len, labels)), functions, linear, math.inf
    need(".wcsp" in path.suffixes[-2:], f"only .spot and .wcsp files can be checked, not {path}")
    words: Any = (int(word) if word[-1].isdigit() else word for word in text.split()[1:])
    count, _, announced, top = (next(words) for _ in range(4))
    sizes, shared = [next(words) for _ in range(count)], list[Any]()
    for _ in range(announced):
        arity = next(words)
        scope, default, word = tuple(next(words) for _ in range(abs(arity))), next(words), next(words)
        if word in ("knapsack", "knapsackp"):  # a sum of at least what follows
            linear.append(({v: [0] * sizes[v] for v in scope}, -next(words)))
            for own in linear[-1][0].values():
                count = next(words)  # or the weight of value 1, the only one that counts in a knapsack
                pairs = [(1, count)] if word == "knapsack" else [(next(words), next(words)) for _ in range(count)]
                for a, weight in pairs:
                    own[a : a + 1] = [old - weight for old in own[a : a + 1]]  # none where no such value is
            continue
        costs = {tuple(next(words) for _ in scope): next(words) for _ in range(word)} if word >= 0 else shared[~word][0]
        # A constant may be listed; functions over up to three variables share their default as well.
        default = costs.pop((), default) if word >= 0 or len(scope) > 3 else shared[~word][1]
        shared += [(costs, default)] if arity < 0 <= word and (arity > -4 or default or costs) else []
        costs = {t: None if cost >= top else cost for t, cost in costs.items()}
        functions.append((scope, costs, None if default >= top and scope else default))
    need(next(words, None) is None, "the file goes on after its last cost function")
    return sizes, functions, linear, top


class Proof:
    """The claim that no assignment costs less than a limit. Literal ``first[v] + a``: variable v has value a."""

    def __init__(self, parts: Any, dear: int, status: str, value: int) -> None:
        self.sizes, self.functions, linear, self.top = parts
        self.first = list(accumulate(self.sizes, initial=0))
        self.owner = [v for v, size in enumerate(self.sizes) for _ in range(size)]
        self.mask = [(1 << end) - (1 << begin) for begin, end in pairwise(self.first)]
        self.alive, self.conflict = (1 << self.first[-1]) - 1, [self.mask[v] ^ 1 << x for x, v in enumerate(self.owner)]
        self.work, self.valid, self.dear, self.sets = 0, dict[int, Any](), dict[int, Any](), defaultdict[int, Any](set)
        for number, (scope, table, default) in enumerate(self.functions):
            cells = [range(self.sizes[v]) for v in scope]
            if (default is None or default > dear) and math.prod(map(len, cells)) <= 2**16:
                table = {**dict.fromkeys(product(*cells), default), **table}
            for t, cost in table.items():
                literals = [self.first[v] + a for v, a in zip(scope, t, strict=True)]
                if cost is not None and cost > dear and len(t) == 2:
                    self.dear[sum(1 << x for x in literals)] = number, cost
                for x in literals if cost is None else ():
                    self.alive &= ~(1 << x) if len(t) == 1 else -1
                    self.conflict[x] |= 1 << sum(literals) - x if len(t) == 2 else 0
                    self.sets[x].update([sum(1 << y for y in literals)] if len(t) > 2 else [])
        self.linear = list[Any]()
        for terms, capacity in linear:  # what the least amounts leave of the capacity is room for the rest
            use = {self.first[v] + a: c - min(own) for v, own in terms.items() for a, c in enumerate(own)}
            self.linear.append((use, capacity - sum(map(min, terms.values()))))
        costs = [[c for c in (*table.values(), default) if c is not None] for _, table, default in self.functions]
        every = min(self.top, 1 + sum(max(own, default=0) for own in costs))  # whatever counts costs less
        self.limit = every if status == "infeasible" else min(value, every)
        # All costs are ``offset`` plus multiples of ``step``: what exceeds ``most`` is the limit at least.
        offset, step = sum(own[0] for own in costs if own), math.gcd(*(c - own[0] for own in costs for c in own)) or 1
        self.most = SCALE * (offset + (self.limit - 1 - offset) // step * step)
        self.claim = status, value
        self.fixed = sum(own & self.alive for own in self.mask if (own & self.alive).bit_count() == 1)

    def row(self, row: Any) -> tuple[dict[int, int], int, list[int]]:
        """Coefficients by literal and right side of a row that is valid, and dear pairs that it takes for excluded."""
        if row["kind"] == "capacity":
            return (*self.linear[row["constraint"]], [])
        weights = dict(zip(row["literals"], row["coefficients"], strict=True))
        mask = sum(1 << x for x in weights if x < self.first[-1]) & self.alive
        adjacent = {x: self.conflict[x] & mask for x in members(mask)}
        pay = [pair for pair in self.dear if pair & mask == pair and not adjacent[pair.bit_length() - 1] & pair]
        for pair, x in [(p, x) for p in pay for x in members(p)]:
            adjacent[x] |= pair ^ 1 << x
        need(not self.exceeds(weights, adjacent, mask, 0, row["right_side"]), f"this does not hold: {row}")
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
        fits = all(literals & ~own & ~self.fixed for literals in self.sets[x])
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
        pays = {pair: SCALE * cost - floors[number] for pair, (number, cost) in self.dear.items()}
        need(all(charge <= pays[pair] for pair, charge in charges.items()), "a dear pair pays more than it costs")
        least = [min((sums[x] for x in members(own & self.alive)), default=0) for own in self.mask]
        self.bound, spare = (constant, sums, least), self.most - constant - sum(least)
        need(all(sums[x] - least[self.owner[x]] > spare for x in step["removed"]), "a literal removed may be true")
        self.alive &= ~sum(1 << x for x in set(step["removed"]))
        self.fixed = sum(own & self.alive for own in self.mask if (own & self.alive).bit_count() == 1)
        return spare < 0 or not all(own & self.alive for own in self.mask)


def check(path: Path, text: str, finish: Any = None) -> Proof:
    """Check the certificate (JSON) in a text against a file; ValueError says what is wrong. ``finish`` closes gaps."""
    try:
        found = json.loads(text, parse_float=str, parse_constant=str)
        status, value = found["status"], found["value"]
        need((found["format"], found["version"]) == ("oocbe certificate", 1), "this is no certificate of version 1")
        need(status in ("optimal", "infeasible", "nothing-better"), f"unknown status {status!r}")
        proof = Proof(read(path), found["dear"], status, value)
        if status == "optimal":
            chosen = found["assignment"]
            literals = [x + a for x, a, n in zip(proof.first[:-1], chosen, proof.sizes, strict=True) if a in range(n)]
            costs = [table.get(tuple(chosen[v] for v in scope), default) for scope, table, default in proof.functions]
            fits = all(sum(use.get(x, 0) for x in literals) <= room for use, room in proof.linear)
            need(len(literals) == len(chosen) and fits and None not in costs, "the assignment is forbidden")
            need(sum(costs) == value < proof.top, f"the assignment is worth {sum(costs)}, not {value}")
        if not any(proof.step(found["rows"], step) for step in found["steps"]):
            need(found["order"] is not None, "the steps leave a gap")
            need(finish is not None, "the steps leave a gap, which tables close: check it with oocbe verify")
            need(finish(proof, found["order"]), "the tables hold something better")
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, StopIteration, TypeError) as error:
        raise ValueError(f"malformed, {type(error).__name__}: {error}") from error
    return proof


if __name__ == "__main__":
    try:
        check(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
    except (IndexError, OSError, ValueError) as error:
        sys.exit(f"refused: {error}" if len(sys.argv) == 3 else __doc__)
    print("accepted")
