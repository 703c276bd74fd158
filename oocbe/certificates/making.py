"""Make the certificate of a solve: a proof, in exact integers, that nothing is better than the result.

The solve proves its value by bounds, removals and tables of several rounds, with cutoffs that follow the incumbent. The
certificate is a shorter proof for the final value: linear programs over the remaining values, whose multipliers
remove values until none is left, and tables for the rest (docs/certificate.md). The relaxation is a guide only. The
checker's own arithmetic verifies each row, removal and sum; unconfirmed ones are left out.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocbe.bounds.bounds import Conflicts, conflicts_of
from oocbe.bounds.estimators import minimum_terms
from oocbe.bounds.forbidden import COSTLY, CostlyTuples, Row, largest_saving
from oocbe.certificates.check_certificate import SCALE, WORK, Proof, check, members, read
from oocbe.certificates.tables import nothing_better
from oocbe.elimination.orders.order import search_orders
from oocbe.elimination.preparation.listed_factors import starts_of
from oocbe.elimination.row_pruning.row_bounds import FixedPoint
from oocbe.errors import UnsupportedError, ValueRangeError
from oocbe.formats.files import read_bytes, without_compression, write_bytes
from oocbe.model.problem import Problem
from oocbe.model.results.result import Result
from oocbe.model.settings.options import SolveOptions
from oocbe.propagation.value_removal import ReducedProblem, remove_values
from oocbe.runtime.deadline import Deadline
from oocbe.runtime.interruption import listening

ROW_WORK = 4_000
"""Node limit of the check of a row (some 0.05 s); rows beyond it are left out."""

TABLE_ROWS = 1_000_000
"""Limit of table rows, a fifth of the checker's limit."""

ROWS_A_SECOND = 100_000
"""Expected speed of the tables, in rows a second."""

ORDER_SECONDS = 0.5
"""Time limit of the search for an order of elimination, in seconds."""

LITTLE = 0.02
"""Least share of the values that a round must remove for another round to follow."""

FIRST_SHARE = 0.5
"""Share of the time for the first round, which is mostly the last one; later rounds share the rest."""


@dataclass(frozen=True)
class Claim:
    """The claim that a certificate proves.

    status : ``optimal``, ``infeasible`` or ``nothing-better``. value : that nothing is below; None where infeasible.
    assignment : one that has the value, None where there is none.
    """

    status: str
    value: int | None
    assignment: tuple[int, ...] | None


class Maker:
    """Makes the certificate of one claim about one file.

    path : the problem's file; not read if ``parts`` are given. problem : read from it, in min-sum with integer costs.
    claim : to be proven. seed : of tie-breaking. parts : of the problem, as the checker reads them from the file.
    """

    def __init__(self, path: Path, problem: Problem, claim: Claim, seed: int = 0, parts: Any = None) -> None:
        self._path, self._claim, self._seed = path, claim, seed
        self._costly = COSTLY * largest_saving(problem)
        self._proof = Proof(parts or read(path), self._costly, claim.status, claim.value or 0)
        self._problem = problem.below(self._proof.limit)
        self._first = starts_of(problem.sizes)
        self._rows: list[dict[str, Any]] = []
        self._numbers: dict[tuple[str, bytes, bytes, int], int | None] = {}
        self._steps: list[dict[str, Any]] = []

    def make(self, seconds: float) -> str | None:
        """The certificate as JSON text, accepted by the checker; None where the time did not suffice."""
        deadline = time.perf_counter() + seconds
        order: list[int] | None = None
        if not self.rounds(seconds):
            order = self._order(deadline - time.perf_counter())
            if order is None:
                return None
        text = self._written(order)
        try:
            check(self._path, text, nothing_better)
        except ValueError:
            return None
        return text

    def rounds(self, seconds: float) -> bool:
        """Make steps without tables; whether nothing is left."""
        deadline = time.perf_counter() + seconds
        is_closed = self._step({})
        while not is_closed:
            before = self._proof.alive.bit_count()
            is_closed = self._round(FIRST_SHARE * (deadline - time.perf_counter()), self._problem)
            if time.perf_counter() > deadline or self._proof.alive.bit_count() >= (1 - LITTLE) * before:
                break
            self._seed += 1
        if not is_closed:
            # What the limit itself forbids may leave nothing to relax; without it rows say what the checker confirms.
            left = deadline - time.perf_counter()
            is_closed = self._round(FIRST_SHARE * left, self._problem.below(None))
        return is_closed

    def steps(self) -> dict[str, Any]:
        """The keys ``dear``, ``rows`` and ``steps`` of the certificate so far; the last step has the bound."""
        last = [] if self._steps and self._steps[-1] is self._last else [self._last]
        return {"dear": self._costly, "rows": self._rows, "steps": [*self._steps, *last]}

    def _round(self, seconds: float, whole: Problem) -> bool:
        """Relax what is left of a problem, and take over what follows; whether nothing is left."""
        proof = self._proof
        first = self._first
        removed = [(v, x - int(first[v])) for v, own in enumerate(proof.mask) for x in members(own & ~proof.alive)]
        left = remove_values(whole, removed)
        if self._propagate(left):
            return True
        if left.is_infeasible or not left.variables:
            return False
        problem = left.problem
        found: list[tuple[Conflicts, list[Row], NDArray[np.float64], bool]] = []
        try:
            fixed_point = FixedPoint.of(problem)
            options = conflicts_of(problem, fixed_point)
            for conflicts in options:
                if conflicts.forbidden.is_empty:
                    return False
                relaxation = (problem, conflicts, fixed_point, self._seed)
                relax(*relaxation, seconds / len(options), proof.limit, found)
        except (ValueRangeError, ImportError):  # numbers too large for the relaxation, or no solver of linear programs
            return False
        for conflicts, rows, multipliers, is_contradiction in found:
            if self._take(left, conflicts.costly, rows, multipliers, is_contradiction, fixed_point):
                return True
        return False

    def _take(
        self,
        left: ReducedProblem,
        costly: CostlyTuples,
        rows: list[Row],
        multipliers: NDArray[np.float64],
        is_contradiction: bool,
        fixed_point: FixedPoint,
    ) -> bool:
        """Add the consequences of rows with multipliers that the checker confirms."""
        literal = np.concatenate([self._first[v] + left.kept[v] for v in left.variables])
        used = [i for i in np.flatnonzero(multipliers > 0).tolist() if rows[i].kind != "taken"]
        chosen = [rows[i] for i in used]
        numbers = [self._number(row, literal) for row in chosen]
        factor = [round(m * SCALE) for m in multipliers[used].tolist()]
        if costly.sets and chosen:
            scale = int(fixed_point.scale)
            payable, _ = costly.payable(chosen, fixed_point.nearest(multipliers[used]))
            factor = [int(m) * SCALE // scale for m in payable.tolist()]
        if is_contradiction:
            factor = [m * self._large() for m in factor]
        return self._step({n: m for n, m in zip(numbers, factor, strict=True) if n is not None and m > 0})

    def _propagate(self, left: ReducedProblem) -> bool:
        """Remove what propagation has removed from what is left, with cliques and sets that show it."""
        proof = self._proof
        kept = sum(1 << int(self._first[v]) + a for v, values in enumerate(left.kept) for a in values.tolist())
        while True:
            before, multipliers = proof.alive, {}
            alive = [own & before for own in proof.mask]
            fixed = sum(own for own in alive if own.bit_count() == 1)
            for x in members(before if left.is_infeasible else before & ~kept):
                reason = next((own for own in alive if not own & ~proof.conflict[x]), None)
                if reason is None:
                    reason = next((s ^ 1 << x for s in proof.sets[x] if not s & ~fixed & ~(1 << x)), None)
                if reason is None:
                    continue
                literals = sorted([x, *members(reason)])
                limit = 1 if not reason & ~proof.conflict[x] else len(literals) - 1
                row = Row.of(np.array(literals), limit, "clique" if limit == 1 else "local")
                number = self._number(row, np.arange(len(proof.owner)))
                if number is not None:
                    multipliers[number] = self._large()
            if self._step(multipliers):
                return True
            if proof.alive == before:
                return False

    def _large(self) -> int:
        """A multiplier beyond all costs."""
        constant, _, least = self._proof.bound
        return max(1, int(self._proof.most - constant - sum(least) + 1))

    def _number(self, row: Row, literal: NDArray[np.int64]) -> int | None:
        """A row's number in the certificate; None where the checker rejects it or needs too long."""
        literals = literal[row.literals]
        kind = {"linear": "capacity", "set": "local"}.get(row.kind, row.kind)
        key = kind, literals.tobytes(), row.coefficients.tobytes(), row.right_hand_side
        if kind == "capacity":
            key = kind, b"", b"", row.number
        if key in self._numbers and self._numbers[key] is not None:
            return self._numbers[key]
        content: dict[str, Any] = {"kind": kind}
        if kind == "capacity":
            content["constraint"] = row.number
        else:
            content |= {"literals": literals.tolist(), "coefficients": row.coefficients.tolist()}
            content["right_side"] = int(row.right_hand_side)
        self._numbers[key] = None
        self._proof.work = WORK - ROW_WORK
        try:
            self._proof.valid[len(self._rows)] = self._proof.row(content)
        except ValueError:
            return None
        finally:
            self._proof.work = 0
        self._numbers[key] = len(self._rows)
        self._rows.append(content)
        return len(self._rows) - 1

    def _step(self, multipliers: dict[int, int]) -> bool:
        """Add a step with its removals; returns whether nothing is left. A step without removals is dropped."""
        proof = self._proof
        step: dict[str, Any] = {"multipliers": [list(pair) for pair in sorted(multipliers.items())], "removed": []}
        try:
            is_closed = proof.step(self._rows, step)
        except ValueError:
            return False
        constant, sums, least = proof.bound
        spare = proof.most - constant - sum(least)
        if not is_closed:
            step["removed"] = [x for x in members(proof.alive) if sums[x] - least[proof.owner[x]] > spare]
            is_closed = bool(step["removed"]) and proof.step(self._rows, step)
        if is_closed or step["removed"]:
            self._steps.append(step)
        self._last = step
        return is_closed

    def _order(self, seconds: float) -> list[int] | None:
        """An order in which tables prove the rest; None where they are too large for the seconds left."""
        proof, problem = self._proof, self._problem
        end = time.perf_counter() + seconds
        if seconds < ORDER_SECONDS:
            return None
        if not self._steps or self._steps[-1] is not self._last:
            self._steps.append({**self._last, "removed": []})  # the tables use its bound
        proof.step(self._rows, {**self._last, "removed": []})
        sizes = [(own & proof.alive).bit_count() for own in proof.mask]
        scopes = [set(f[0]) for f in proof.functions]
        orders = [list(range(len(sizes)))]
        for choice in search_orders(problem, "auto", ORDER_SECONDS, self._seed, deadline=Deadline(None)):
            orders += [list(choice.order), list(choice.order)[::-1]]
        orders.sort(key=lambda order: _frontier(order, scopes, sizes))
        for order in orders[:3]:
            proof.work = WORK - min(TABLE_ROWS, int(ROWS_A_SECOND * max(0.0, end - time.perf_counter())))
            try:
                return order if nothing_better(proof, order) else None  # something better: the claim is wrong
            except ValueError:
                continue
        return None

    def _written(self, order: list[int] | None) -> str:
        """The certificate as text, with the used rows only."""
        used = sorted({number for step in self._steps for number, _ in step["multipliers"]})
        place = {number: i for i, number in enumerate(used)}
        steps = [
            {"multipliers": [[place[n], m] for n, m in step["multipliers"]], "removed": step["removed"]}
            for step in self._steps
        ]
        claim = self._claim
        head = {"format": "oocbe certificate", "version": 1, "problem": self._problem.name, "status": claim.status}
        lines = [f'"{key}": {json.dumps(content)}' for key, content in head.items()]
        lines += [f'"value": {json.dumps(claim.value)}', f'"assignment": {json.dumps(claim.assignment)}']
        lines += [f'"dear": {self._costly}', f'"rows": {_listed([self._rows[n] for n in used])}']
        lines += [f'"steps": {_listed(steps)}', f'"order": {json.dumps(order)}']
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _listed(items: list[dict[str, Any]]) -> str:
    return "[" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in items) + "]"


def _frontier(order: list[int], scopes: list[set[int]], sizes: list[int]) -> float:
    """Logarithm of the largest possible number of rows of a table along an order."""
    place = {v: i for i, v in enumerate(order)}
    ends = dict.fromkeys(order, -1)
    for scope in scopes:
        last = max((place[v] for v in scope), default=-1)
        for v in scope:
            ends[v] = max(ends[v], last)
    change = np.zeros(len(order) + 1)
    for v in order:
        change[place[v]] += np.log2(max(1, sizes[v]))
        change[max(place[v], ends[v])] -= np.log2(max(1, sizes[v]))
    return float(np.cumsum(change).max(initial=0.0))


def relax(
    problem: Problem,
    conflicts: Conflicts,
    fixed_point: FixedPoint,
    seed: int,
    seconds: float,
    limit: int | float,
    found: list[tuple[Conflicts, list[Row], NDArray[np.float64], bool]],
) -> None:
    """Tighten the linear program of a problem up to a limit; ``found`` gets what it draws conclusions from."""
    from oocbe.bounds.relaxation import Relaxation  # loading the solver of linear programs takes a while

    def record(rows: list[Row], multipliers: NDArray[np.float64], is_contradiction: bool) -> None:
        found.append((conflicts, list(rows), multipliers[: len(rows)].copy(), is_contradiction))

    base = minimum_terms(conflicts.capped, fixed_point)
    relaxation = Relaxation(problem, conflicts.forbidden, fixed_point, base, seed, conflicts.costly, record)
    relaxation.tighten(seconds, limit)


FORMATS = (".spot", ".wcsp")
"""Suffixes of the files that the checker reads by itself."""

KEYWORDS = (b"knapsack", b"knapsackp")
"""Keywords of functions of a weighted CSP that the checker reads."""

PROVEN = ("optimal", "infeasible", "nothing-better")
"""Statuses of a result that a certificate can prove."""

SHARE = 2
"""Time limit of making a certificate, as a multiple of ``--bound-seconds``; mostly a fraction of the solve suffices."""


def check_certifiable(path: Path, problem: Problem, options: SolveOptions, evidence: bool, given_format: bool) -> None:
    """Refuse problems and options without certificates before the solve: UnsupportedError, with reason and remedy."""
    from oocbe.bounds.forbidden import MOST_LITERALS

    suffix = without_compression(path).suffix
    semiring = (options.semiring or problem.semiring).name
    if semiring != "min-sum":
        raise UnsupportedError(
            f"--certificate: only least sums (min-sum) have certificates, not the {semiring} semiring; "
            "where sums are maximised, write their negatives, shifted up to 0, as .wcsp"
        )
    if suffix not in FORMATS or given_format:
        what = "a file whose format is named by --format" if given_format else f"a {suffix or 'nameless'} file"
        raise UnsupportedError(
            f"--certificate: the checker reads .spot and .wcsp files (also .gz, .xz) by itself, not {what}: "
            "write the problem as .wcsp with oocbe convert, and solve that"
        )
    if path.exists() and not path.is_file():
        raise UnsupportedError(f"--certificate: {path} is no regular file, and the checker reads it once more; copy it")
    keyword = _keyword(path) if suffix == ".wcsp" else ""
    if keyword:
        raise UnsupportedError(
            f"--certificate: the checker reads lists of costs and knapsacks, not the {keyword!r} of {path}: write the "
            "problem as .wcsp with oocbe convert, and solve that"
        )
    if evidence:
        raise UnsupportedError(
            "--certificate: the checker reads the file without --evidence; write the fixed problem with oocbe convert"
        )
    if not problem.is_integral:
        raise UnsupportedError(
            f"--certificate: {problem.name} has costs that are no integers, and certificates are exact; scale them"
        )
    if sum(problem.sizes) > MOST_LITERALS:
        raise UnsupportedError(
            f"--certificate: the variables of {problem.name} have {sum(problem.sizes):,} values, and conflicts are "
            f"checked among {MOST_LITERALS:,} at most; solve it without"
        )


def _keyword(path: Path) -> str:
    """The first keyword of a weighted CSP that the checker does not support, or an empty string."""
    for word in read_bytes(path).split()[1:]:
        if not word.lstrip(b"+-").isdigit() and word not in KEYWORDS:
            return word.decode()
    return ""


def write_certificate(
    path: Path, problem: Problem, result: Result, options: SolveOptions, target: Path, seconds: float | None = None
) -> str:
    """Make the certificate of a result, check it, and write it; returns the reason of a failure, empty on success.

    path, problem : the file, and the problem in it. result : of its solve. target : path of the certificate.
    seconds : remaining time limit; None: none.
    Raises UsageError, ResourceError: the file cannot be written.
    """
    if result.status not in PROVEN:
        return f"{result.status}: what is not proven has no certificate"

    if result.status == "infeasible":
        value = None
    else:
        value = int(result.bound if result.status == "nothing-better" else result.value)  # type: ignore[arg-type]
    claim = Claim(result.status, value, result.assignment)
    begin = time.perf_counter()
    share = SHARE * options.bound_seconds
    with listening() as interruption:
        try:
            text = Maker(path, problem, claim, options.seed).make(share if seconds is None else min(share, seconds))
        except BaseException as error:
            if not interruption.caused(error):
                raise
            return f"{interruption.reason} before it was made"
    if text is None:
        return (
            f"the proof was not put into a form that can be checked in {time.perf_counter() - begin:.1f} s; "
            "give it more time with --bound-seconds"
        )
    write_bytes(target, text.encode())
    return ""
