"""Check a proof of ``oocbe solve --proof``, alone: ``python tools/check_proof.py FILE.opb FILE.pbp``; only integers.

The checker implements the part of VeriPB's proof format 2.0 that oocbe writes: ``f``, ``pol``, ``red`` with one fresh
variable, ``rup`` of what the latest ``pol`` alone implies, ``sol``, ``soli``, ``del id``, ``output NONE`` and
``conclusion``; and of format 3.0, whose lines end with ``;``, for counts: ``f``, ``pol``, ``solx`` and ``del id``. It
shares nothing with oocbe. It refuses everything else, and deletion of the formula's constraints or those of ``solx``.
"""

from __future__ import annotations

import gzip
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TextIO

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)

NEWER = "pseudo-Boolean proof version 3.0"
"""The first line of proofs of counts."""

WORDS = 1 << 16
"""Words whose meaning is kept: a proof repeats its variables, and numbers of its constraints."""

Terms = dict[str, int]
"""Coefficient by variable of ``sum c * x >= degree``; a negated literal ``~x`` is ``1 - x``."""


class RefusedError(ValueError):
    """The proof is not accepted."""


class Line(NamedTuple):
    """A constraint ``sum terms >= degree`` over variables, with coefficients of any sign."""

    terms: Terms
    degree: int

    @property
    def normal_degree(self) -> int:
        """The degree in normal form: over literals with coefficients above 0."""
        return self.degree - sum(c for c in self.terms.values() if c < 0)


class Claim(NamedTuple):
    """The conclusion of an accepted proof: kind (BOUNDS, UNSAT, SAT, ENUMERATION_COMPLETE, NONE), and bounds, None for
    infinity, or the number of solutions twice."""

    kind: str
    lower: int | None = None
    upper: int | None = None


def need(condition: bool, why: str) -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise RefusedError(why)


@lru_cache(WORDS)
def integer(word: str) -> int:
    """An integer in ASCII digits."""
    need(NUMBER.fullmatch(word) is not None, f"found {word!r}, expected an integer")
    return int(word)


@lru_cache(WORDS)
def literal(word: str) -> tuple[str, bool]:
    """The variable of a literal, and whether it is negated."""
    name = word.removeprefix("~")
    need(NAME.fullmatch(name) is not None, f"found {word!r}, expected a literal")
    return name, name != word


def add(terms: Terms, name: str, coefficient: int) -> None:
    """Add a coefficient; a term of coefficient 0 is left out."""
    total = terms.get(name, 0) + coefficient
    if total:
        terms[name] = total
    else:
        terms.pop(name, None)


def linear(words: list[str]) -> tuple[Terms, int]:
    """Terms of pairs of coefficient and literal, and their constant."""
    need(len(words) % 2 == 0, "a coefficient without a literal")
    terms: Terms = {}
    constant = 0
    for c, (name, is_negated) in zip(map(integer, words[::2]), map(literal, words[1::2]), strict=True):
        add(terms, name, -c if is_negated else c)
        constant += c if is_negated else 0
    return terms, constant


def constraints(words: list[str]) -> list[Line]:
    """One constraint ``>=``, or two of an equation."""
    need(len(words) >= 2 and words[-2] in (">=", "="), "expected >= or = and a number at the end of a constraint")
    terms, constant = linear(words[:-2])
    degree = integer(words[-1]) - constant
    made = [Line(terms, degree)]
    if words[-2] == "=":
        made.append(Line({name: -c for name, c in terms.items()}, -degree))
    return made


def saturated(line: Line) -> Line:
    """Coefficients of the normal form at most the degree."""
    most = max(0, line.normal_degree)
    terms = {name: max(-most, min(c, most)) for name, c in line.terms.items() if most}
    return Line(terms, most + sum(c for c in terms.values() if c < 0))


def divided(line: Line, divisor: int) -> Line:
    """The normal form divided, and rounded up."""
    terms = {name: -(-abs(c) // divisor) * (1 if c > 0 else -1) for name, c in line.terms.items()}
    return Line(terms, -(-line.normal_degree // divisor) + sum(c for c in terms.values() if c < 0))


class Checker:
    """Checks the lines of a proof against a formula."""

    def __init__(self, formula: TextIO) -> None:
        self.objective: Terms | None = None
        self.constant = 0
        self.live: dict[int, Line] = {}
        self.names: set[str] = set()  # that are not fresh
        self.fresh, self.defining = "", list[Line]()  # the variable of the latest red, and its constraints
        self.best: int | None = None
        self.is_satisfied = self.is_loaded = False
        self.last = 0
        self.summed, self.most = Line({}, 0), 0  # the latest sum, and what it is at most
        self.preserved: set[str] | None = None
        self.excluded: dict[int, Line] = {}  # by solx
        self.listed: set[frozenset[str]] = set()  # true preserved variables of each solution
        for number, text in enumerate(formula, 1):
            if text.startswith("*") or not text.strip():
                continue
            need(text.rstrip().endswith(";"), f"line {number} of the formula does not end with ;")
            words = text.rstrip()[:-1].split()
            if words and words[0] == "min:":
                need(self.objective is None and not self.live, "an objective that is not at the beginning")
                self.objective, self.constant = linear(words[1:])
                continue
            if words and words[0] == "preserved:":
                need(self.preserved is None and not self.live, "preserved variables that are not at the beginning")
                self.preserved = {literal(word)[0] for word in words[1:]}
                need(not any(word.startswith("~") for word in words), "a negated variable is preserved")
                continue
            for line in constraints(words):
                self.add(line)
        self.count = self.last
        self.names |= {*(self.objective or ()), *(self.preserved or ())}

    def add(self, line: Line) -> None:
        """Add a constraint with the next number."""
        self.last += 1
        self.live[self.last] = line
        self.names.update(line.terms)

    def get(self, word: str) -> Line:
        """A live constraint."""
        number = integer(word)
        found = self.live.get(number) or self.excluded.get(number)
        if found is None:
            raise RefusedError(f"there is no constraint {number}")
        return found

    def polish(self, words: list[str]) -> Line:
        """A constraint in reverse Polish notation."""
        stack: list[tuple[Terms, int, int] | int] = []  # terms, degree, and the factor of both

        def multiple() -> tuple[Terms, int, int]:
            if not stack or isinstance(last := stack.pop(), int):
                raise RefusedError("an operation without its constraint")
            return last

        def top() -> Line:
            terms, degree, factor = multiple()
            return Line(terms if factor == 1 else {name: factor * c for name, c in terms.items()}, factor * degree)

        for place, word in enumerate(words):
            if word == "+":
                (more, degree, factor), (terms, total_degree, times) = multiple(), multiple()
                if times != 1:
                    terms, total_degree = _Own((name, times * c) for name, c in terms.items()), times * total_degree
                elif not isinstance(terms, _Own):
                    terms = _Own(terms)
                for name, c in more.items():  # most of the time of a check
                    total = terms.get(name, 0) + factor * c
                    if total:
                        terms[name] = total
                    else:
                        terms.pop(name, None)
                stack.append((terms, total_degree + factor * degree, 1))
            elif word in ("*", "d", "w"):
                if len(stack) < 2:
                    raise RefusedError(f"{word} without its operands")
                last, own = stack.pop(), multiple()
                if word == "w":
                    raise RefusedError("w is not supported")
                if not isinstance(last, int) or last <= 0:
                    raise RefusedError(f"{word} needs a number above 0")
                stack.append(own if word == "d" else (*own[:2], last * own[2]))
                if word == "d":
                    stack.append((*divided(top(), last), 1))
            elif word == "s":
                stack.append((*saturated(top()), 1))
            elif place + 1 < len(words) and words[place + 1] in ("*", "d"):
                stack.append(integer(word))
            elif word[0].isdigit():
                stack.append((*self.get(word), 1))
            else:
                name, is_negated = literal(word)
                stack.append(({name: -1 if is_negated else 1}, -1 if is_negated else 0, 1))
        line = top()
        need(not stack, "more than one constraint is left")
        return Line(dict(line.terms), line.degree)

    def forced(self, line: Line) -> dict[str, int]:
        """Values that the negation of a constraint, sum <= degree - 1, forces."""
        least = sum(c for c in line.terms.values() if c < 0)
        return {name: int(c < 0) for name, c in line.terms.items() if least + abs(c) > line.degree - 1}

    def propagated(self, text: str) -> Line:
        """A constraint whose negation forces values that violate the latest sum."""
        text, separator, _ = text.partition(";")
        found = constraints(text.split())
        need(bool(separator), "; is missing")
        forced, (terms, degree) = self.forced(found[0]), self.summed
        most = self.most + sum(terms.get(n, 0) * value - max(terms.get(n, 0), 0) for n, value in forced.items())
        need(len(found) == 1 and most < degree, "the latest pol does not imply the constraint")
        return found[0]

    def redundance(self, text: str) -> None:
        """Add a constraint that holds once a variable, which only the lines before may define, has a value."""
        left, separator, right = text.partition(";")
        found = constraints(left.split())
        words = [word for word in right.split() if word not in ("->", ";")]
        need(bool(separator) and len(found) == 1 and len(words) == 2 and words[1] in ("0", "1"), "expected x -> 0 or 1")
        (name, is_negated), value, line = literal(words[0]), int(words[1]), found[0]
        if name != self.fresh:
            self.names.add(self.fresh)
            self.fresh, self.defining = name, []
        need(not is_negated and name not in self.names, f"{name} is not fresh")
        forced = {**self.forced(line), name: value}
        self.defining.append(line)
        for goal in self.defining:
            low = sum(c * forced[n] if n in forced else min(c, 0) for n, c in goal.terms.items())
            need(low >= goal.degree or self.follows(goal, line, name, value), "the witness violates a constraint")
        self.add(line)
        self.names.discard(name)

    def follows(self, goal: Line, line: Line, name: str, value: int) -> bool:
        """Whether a constraint with a value of a variable is the negation of a line and bounds of variables, added."""
        terms = {n: c for n, c in goal.terms.items() if n != name}
        for n, c in line.terms.items():
            add(terms, n, c)
        least = sum(c for c in terms.values() if c < 0)
        return least + value * goal.terms.get(name, 0) + 1 - line.degree >= goal.degree

    def solution(self, words: list[str]) -> Terms:
        """A full assignment that satisfies all live constraints."""
        values = {name: int(not is_negated) for name, is_negated in map(literal, words)}
        need(len(values) == len(words), "a variable occurs twice in a solution")
        for line in self.live.values():
            need(all(name in values for name in line.terms), "a solution without some variable")
            need(sum(c * values[n] for n, c in line.terms.items()) >= line.degree, "a solution violates a constraint")
        self.is_satisfied = True
        return values

    def step(self, rule: str, rest: str) -> None:
        """A line of the proof, up to its output."""
        words = rest.split()
        if rule == "pol":
            self.summed = self.polish(words[:-1] if words and words[-1] == ";" else words)
            self.most = sum(c for c in self.summed.terms.values() if c > 0)
            self.add(self.summed)
        elif rule == "rup":
            self.add(self.propagated(rest))
        elif rule == "red":
            self.redundance(rest)
        elif rule == "del":
            need(bool(words) and words[0] == "id", "expected del id")
            for number in map(integer, words[1:]):
                if number <= self.count or number not in self.live:
                    raise RefusedError(f"constraint {number} cannot be deleted")
                if self.live.pop(number) is self.summed:
                    self.summed, self.most = Line({}, 0), 0
        elif rule == "f":
            need(words == [str(self.count)] and self.last == self.count, f"the formula has {self.count} constraints")
            self.is_loaded = True
        elif rule in ("sol", "soli"):
            values = self.solution(words)
            if rule == "soli":
                need(self.objective is not None, "soli without an objective")
                objective = self.objective or {}
                need(all(name in values for name in objective), "a solution without some variable")
                found = sum(c * values[n] for n, c in objective.items())
                self.best = found if self.best is None else min(self.best, found)
                self.add(Line({n: -c for n, c in objective.items()}, 1 - found))
        elif rule == "solx":
            values, preserved = self.solution(words), self.preserved or set()
            need(self.preserved is not None and preserved <= values.keys(), "solx without its preserved variables")
            true = frozenset(name for name in preserved if values[name])
            need(true not in self.listed, "a solution is listed twice")
            self.listed.add(true)
            self.last += 1
            self.excluded[self.last] = Line({name: -1 if name in true else 1 for name in preserved}, 1 - len(true))
        else:
            raise RefusedError(f"the rule {rule!r} is not supported")

    def hint(self, words: list[str]) -> Line | None:
        """The constraint named after a colon."""
        if not words:
            return None
        need(words[0] == ":" and len(words) == 2, "expected : and a constraint")
        return self.get(words[1])

    def conclude(self, words: list[str]) -> Claim:
        """The conclusion, if it follows."""
        need(bool(words), "a conclusion is missing")
        kind, *rest = words
        if kind == "NONE":
            need(not rest, "NONE has no hint")
            return Claim("NONE")
        if kind == "SAT":
            need(not rest and self.is_satisfied, "no solution was logged")
            return Claim("SAT")
        if kind == "UNSAT":
            need(not self.is_satisfied, "a solution was logged")
            self.contradicts(self.hint(rest))
            return Claim("UNSAT")
        # What follows from constraints of soli holds for better solutions only, and from those of solx for others only.
        if kind == "ENUMERATION_COMPLETE":
            need(self.best is None and rest[:1] == [str(len(self.excluded))], f"found {len(self.excluded)} solutions")
            self.contradicts(self.hint(rest[1:]))
            return Claim(kind, len(self.excluded), len(self.excluded))
        need(not self.excluded, "solutions were excluded")
        need(kind == "BOUNDS" and len(rest) >= 2 and self.objective is not None, f"cannot conclude {words}")
        lower, upper, line = rest[0], rest[-1], self.hint(rest[1:-1])
        best = None if upper == "INF" else integer(upper) - self.constant
        need(best is None or (self.best is not None and self.best <= best), f"no solution has {upper}")
        if lower == "INF":
            need(best is None and self.best is None, "a solution was logged")
            self.contradicts(line)
            return Claim("BOUNDS", None, None)
        need(line is not None, "the lower bound needs its constraint")
        assert line is not None
        objective, bound = self.objective or {}, integer(lower) - self.constant
        # What the objective exceeds the constraint by, at least, is the sum of its negative differences.
        terms = dict(objective)
        for name, c in line.terms.items():
            add(terms, name, -c)
        implied = line.degree + sum(c for c in terms.values() if c < 0)
        need(implied >= bound, f"the constraint proves {implied}, not {bound}")
        # Constraints hold below the best solution only: beyond it they prove anything.
        need(self.best is None or bound <= self.best, f"a solution is below the bound {lower}")
        return Claim("BOUNDS", integer(lower), None if best is None else integer(upper))

    def contradicts(self, line: Line | None) -> None:
        """Refuse unless a constraint cannot be satisfied."""
        need(line is not None and sum(c for c in line.terms.values() if c > 0) < line.degree, "no contradiction")


class _Own(dict[str, int]):
    """Terms of a sum that no other constraint shares."""


def check(formula: TextIO, proof: TextIO) -> Claim:
    """The claim of an accepted proof; :class:`RefusedError` says what is wrong."""
    checker, lines = Checker(formula), _numbered(proof)
    number, text = next(lines, (0, ""))
    need(text in ("pseudo-Boolean proof version 2.0", NEWER), "this is no proof of version 2.0 or 3.0")
    try:
        for number, text in lines:
            rule, _, rest = text.partition(" ")
            need(rule == "f" or checker.is_loaded, "expected f first, with the number of the formula's constraints")
            if rule == "output":
                need(rest.strip() == "NONE", "expected output NONE")
                number, text = next(lines, (number, ""))
                rule, _, rest = text.partition(" ")
                need(rule == "conclusion", "expected a conclusion")
                claim = checker.conclude(rest.split())
                need([line for _, line in lines] == ["end pseudo-Boolean proof"], "the proof does not end there")
                return claim
            checker.step(rule, rest)
    except RefusedError as error:
        raise RefusedError(f"line {number}: {error}") from None
    raise RefusedError("the proof does not end")


def _numbered(proof: TextIO) -> Iterator[tuple[int, str]]:
    is_newer = False
    for number, text in enumerate(proof, 1):
        text = text.strip()
        if text and not text.startswith("*"):
            if is_newer and not text.endswith(";"):
                raise RefusedError(f"line {number} does not end with ;")
            yield number, text[:-1].rstrip() if is_newer else text
            is_newer |= text == NEWER


def opened(path: Path) -> TextIO:
    """A file as text, decompressed by its suffix."""
    # A carriage return ends no line: what follows it in a comment is a comment for other programs.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="ascii", newline="\n")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="ascii", newline="\n")
    return path.open(encoding="ascii", newline="\n")


def main() -> int:
    """Check the files of the command line; the exit code is 1 where the proof is refused."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with opened(Path(sys.argv[1])) as formula, opened(Path(sys.argv[2])) as proof:
            claim = check(formula, proof)
    except (ValueError, OSError, EOFError, MemoryError, lzma.LZMAError, zlib.error) as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    names = "INF" if claim.lower is None else claim.lower, "INF" if claim.upper is None else claim.upper
    print("accepted:", claim.kind, *(names if claim.kind == "BOUNDS" else names[1:] if claim.lower is not None else ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
