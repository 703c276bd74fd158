"""Files of a solve on disk and their lifetime: none beyond its end, or a resumable run.

A solve uses one of two classes of runs with the same methods. A :class:`Run` has messages in memory and, where they
do not fit, in a scratch folder. A :class:`DurableRun` has them in a run directory
(:mod:`oocbe.elimination.runs.run_directory`), where a later process finds what this one published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Self

import oocbe
from oocbe.elimination.buckets.forward import RowCapError
from oocbe.elimination.buckets.messages import MessageStore
from oocbe.elimination.orders.order import OrderChoice
from oocbe.elimination.runs.checkpoint import OrderCheckpoint
from oocbe.elimination.runs.run_directory import RunDirectory, messages_in, no_run_in, record_in
from oocbe.errors import CorruptDataError, DiskError, ResourceError, UnsupportedError, UsageError, amount
from oocbe.model.problem import Problem, problem_digest
from oocbe.model.results.result import UNPROVEN, Result
from oocbe.model.settings.option_values import ORDER_NAMES
from oocbe.model.settings.options import SolveOptions
from oocbe.tables.disk import free_bytes
from oocbe.tables.scratch import default_parent

FREE_OPTIONS = {
    *("memory", "device_memory", "workdir", "max_disk", "resume", "chunk_rows", "backend", "streams", "piece_rows"),
    *("time_limit", "gap", "incumbent_seconds", "bound_seconds", "workers", "cluster", "gpus"),
}
"""Options that may differ between a run and its continuation: limits and effort, which make no message wrong. All
others, also those that are added later, must be the same. (Semirings are compared by themselves.)"""

_FROM_THE_PROBLEM = {"variables", "problem"}
"""Fields of a result that are taken from the problem instead of the record."""


class Run:
    """A run without files after its end; a work folder, if any, holds its scratch folder.

    result : an already published answer; always None here. notes : for the result, about files found on disk.
    keeps_messages : whether messages outlive the process: then a full disk ends the run, to be resumed later.
    known : what a run before this one has kept with :meth:`keep_known`, or None.
    memory : bytes that messages in memory may take.
    """

    result: Result | None = None
    keeps_messages = False
    known: dict[str, Any] | None = None

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self._problem, self._options = problem, options
        self.memory = 0
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    @property
    def disk_available(self) -> int:
        """Bytes that the run may have on disk, with those it has already."""
        free = free_bytes(default_parent())
        return free if self._options.max_disk is None else min(free, self._options.max_disk)

    def orders(self, search: Callable[[], list[OrderChoice]]) -> list[OrderChoice]:
        """Orders to try, the most promising first: those that ``search`` finds, or found when the run began."""
        return search()

    def keep_known(self, content: dict[str, Any]) -> None:
        """Publish ``lower``, ``value``, ``assignment``, ``width``, ``attempt`` and ``running``, as JSON types."""

    def attempt(self, problem: Problem, order: tuple[int, ...], dominance: bool) -> None:
        """Select the attempt to which the methods below refer."""

    def make_store(self) -> MessageStore:
        """A place for the messages of this attempt; those of all others are removed."""
        options = self._options
        return MessageStore(self.memory, options.workdir, options.chunk_rows, max_disk=options.max_disk)

    def ended(self, cap: int | None) -> RowCapError | ResourceError | None:
        """Reason why an earlier run gave up this attempt, or None."""
        return None

    def give_up(self, cap: int | None, error: RowCapError | ResourceError, repeatable: bool) -> None:
        """Remove this attempt's messages; where it is repeatable, remember how it ended."""

    def finish(self, result: Result) -> Result:
        """Called with the answer; returns it, with notes."""
        return result


class DurableRun(Run):
    """A run in a run directory, new or resumed; locked until the end of the ``with`` block.

    Raises UsageError: an unfinished run is there and ``options.resume`` is not set, or another problem's or one with
    other options and it is; besides the errors of :class:`RunDirectory`.
    """

    keeps_messages = True

    def __init__(self, problem: Problem, options: SolveOptions, workdir: Path) -> None:
        super().__init__(problem, options)
        self._directory = RunDirectory(workdir, options.max_disk)
        try:
            self._found = self._directory.read()
            self._identity = ""
            if self._found is not None:
                self._judge(self._found)
            if options.resume and (why := no_run_in(self._directory.path)):
                self.notes.append(why)
            self._is_resumed = self._found is not None
            self._ended: list[dict[str, Any]] = []
            if self._found:
                self._ended += self._read("race", "abandoned orders are tried again").get("attempts", [])
                self.known = self._read("known", "bound and incumbent are computed again").get("known")
        except BaseException:
            self._directory.__exit__(None, None, None)
            raise
        self._checkpoint: OrderCheckpoint | None = None
        self._key = ""
        self._semiring = problem.semiring
        self._damaged: list[str] = []

    def __exit__(self, *error: Any) -> None:
        self._directory.__exit__(*error)

    @property
    def disk_available(self) -> int:
        """Bytes that the run may have on disk, with those it has already: what the run directory has and is left."""
        budget = self._directory.budget
        return budget.used + budget.available

    def orders(self, search: Callable[[], list[OrderChoice]]) -> list[OrderChoice]:
        """The published orders of a run that is resumed, or new ones, which are published."""
        if self._found is not None:
            return read_choices(self._found["orders"], len(self._problem.variables))
        choices = search()
        orders = [asdict(choice) for choice in choices]
        self._identity = self._directory.begin({**self._description(), "orders": orders})
        self._found = {"orders": orders}
        return choices

    def keep_known(self, content: dict[str, Any]) -> None:
        """Publish bounds on the optimum and the incumbent; they replace those published before."""
        self._directory.keep("known", {"identity": self._identity, "known": content})

    def attempt(self, problem: Problem, order: tuple[int, ...], dominance: bool) -> None:
        """Set the attempt's key, made of everything that its messages depend on.

        That is the problem (what bounds left of it, and the threshold, which is its upper bound), the order and
        dominance, but not the bound that rows were held against: a message holds all rows that can be part of something
        below the threshold, and any number of others.
        """
        content = f"{problem_digest(problem)} {order} {dominance}"
        self._key = hashlib.sha256(content.encode()).hexdigest()[:16]
        self._semiring = problem.semiring

    def make_store(self) -> MessageStore:
        """A store that publishes messages; those of other attempts are removed."""
        self._directory.remove_orders(but=self._key)
        budget, rows = self._directory.budget, self._options.chunk_rows
        folder = self._directory.order_folder(self._key)
        found = 0 if self._checkpoint is None else self._checkpoint.found
        checkpoint = OrderCheckpoint(folder, self._identity, self._semiring, budget, rows, self._damaged.append)
        checkpoint.found, self._checkpoint = found, checkpoint
        return MessageStore(self.memory, chunk_rows=rows, checkpoint=checkpoint)

    def ended(self, cap: int | None) -> RowCapError | ResourceError | None:
        """Reason in the run directory why an earlier run gave up this attempt, or None."""
        for attempt in self._ended:
            if (attempt["order"], attempt["cap"]) == (self._key, cap):
                if "resources" in attempt:
                    return ResourceError(attempt["resources"])
                return RowCapError(attempt["position"], attempt["rows_before"], attempt["passed"])
        return None

    def give_up(self, cap: int | None, error: RowCapError | ResourceError, repeatable: bool) -> None:
        """Publish how the attempt ended, then remove its messages."""
        if repeatable:
            attempt: dict[str, Any] = {"order": self._key, "cap": cap}
            if isinstance(error, RowCapError):
                attempt |= {"position": error.position, "rows_before": error.rows_before, "passed": error.cap}
            else:
                attempt["resources"] = str(error)
            self._ended.append(attempt)
            self._directory.keep("race", {"identity": self._identity, "attempts": self._ended})
        self._directory.remove_orders()

    def finish(self, result: Result) -> Result:
        """Publish the answer and remove the messages; where a limit ended the run, leave it to be resumed.

        An answer is not lost because the disk has no room for it: it is returned all the same, with a note.
        """
        notes = [*self.notes, *(f"{text}; it was computed again" for text in self._damaged)]
        if self._is_resumed:
            notes = [*self._went_on(), *notes]
        shown = replace(result, notes=(*result.notes, *notes))
        if result.status in UNPROVEN:
            messages = messages_in(self._directory.path)
            if result.status == "interrupted" and messages:
                left = f"{amount(messages, 'message')} published in {self._directory.path}; --resume goes on from there"
                shown = replace(shown, notes=(*shown.notes, left))
            return shown
        content = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in _FROM_THE_PROBLEM}
        try:
            self._publish_result({"identity": self._identity, "result": content})
            self._directory.remove_orders()
        except DiskError as error:
            left = f"{error}. The run in {self._directory.path} is incomplete; --resume computes the missing parts"
            return replace(shown, notes=(*shown.notes, left))
        return shown

    def _went_on(self) -> Iterator[str]:
        """Notes on the point from which a run was resumed."""
        found, path = 0 if self._checkpoint is None else self._checkpoint.found, self._directory.path
        if self.known:
            yield f"resumed: bound and incumbent were read from {path}"
        if self._ended:
            yield f"resumed: {amount(len(self._ended), 'attempt')} abandoned earlier, skipped"
        if found:
            yield f"resumed: {amount(found, 'message')} found in {path}"
        if not (found or self.known or self._ended):
            yield f"resumed: the run in {path} had published its orders only"

    def _publish_result(self, content: dict[str, Any]) -> None:
        """Publish the answer, where need be in the place of messages: it does not need them any more."""
        try:
            self._directory.keep("result", content)
        except DiskError as error:
            if not error.is_full:
                raise
            self._directory.remove_orders()
            self._directory.keep("result", content)

    def _description(self) -> dict[str, Any]:
        problem = self._problem
        return {
            "program": oocbe.__version__,
            "problem": problem.name,
            "digest": problem_digest(problem),
            "semiring": problem.semiring.name,
            "options": _settings(self._options),
        }

    def _judge(self, found: dict[str, Any]) -> None:
        """Decide whether to resume or replace the existing run, or to raise an error."""
        path, resume = self._directory.path, self._options.resume
        self._identity = str(found.get("identity"))
        result: dict[str, Any] | None = self._read("result", "the answer is computed again").get("result")
        if not resume:
            messages = messages_in(path)
            if result is None and messages:
                raise UsageError(
                    f"{path}: holds an unfinished run of {found.get('problem')} with "
                    f"{amount(messages, 'published message')}; continue it with --resume, or remove the folder (or "
                    "choose another) to start anew"
                )
            self._found = None
            return
        mine = self._description()
        start_anew = "choose another --workdir, or remove this one"
        if found.get("program") != mine["program"]:
            raise UnsupportedError(
                f"{path}: begun by version {found.get('program')} of oocbe, this is {mine['program']}; messages of "
                f"different versions do not mix. Resume with that version, or {start_anew}"
            )
        if found.get("semiring") != mine["semiring"] or found.get("digest") != mine["digest"]:
            if (found.get("problem"), found.get("semiring")) == (mine["problem"], mine["semiring"]):
                # The upper bound is part of the problem, but was given as an option.
                _compare(path, found.get("options"), mine["options"], start_anew)
            what = f"{found.get('problem')} in {found.get('semiring')}"
            raise UsageError(
                f"{path}: holds a run of another problem ({what}; this is {mine['problem']} in {mine['semiring']}), or "
                f"its file has changed; {start_anew}"
            )
        _compare(path, found.get("options"), mine["options"], start_anew)
        if result is not None:
            self._directory.remove_orders()
            values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in result.items()}
            values["notes"] = (*values["notes"], f"the run in {path} had ended already; this is its answer")
            values |= {"variables": self._problem.variables, "problem": self._problem.name}
            self.result = Result(**values)

    def _read(self, what: str, remedy: str) -> dict[str, Any]:
        """A record of this run that only saves time: a damaged one is as good as none."""
        try:
            return record_in(self._directory.path, what, self._identity)
        except CorruptDataError as error:
            self.notes.append(f"{error}; {remedy}")
            return {}


def open_run(problem: Problem, options: SolveOptions) -> Run:
    """The run of a solve, to be used in a ``with`` statement; errors as for :class:`DurableRun`."""
    if options.workdir is None:
        if options.resume:
            raise UsageError("resume: no run directory is given; give its folder with --workdir")
        return Run(problem, options)
    return DurableRun(problem, options, options.workdir)


def _settings(options: SolveOptions) -> dict[str, object]:
    """Options that a continuation must share; an order file by its content."""
    settings = {k: v for k, v in options.to_json().items() if k not in FREE_OPTIONS | {"semiring"}}
    if options.order not in ORDER_NAMES:
        settings["order"] = "file with SHA-256 " + hashlib.sha256(Path(options.order).read_bytes()).hexdigest()
    return settings


def _compare(path: Path, theirs: object, mine: dict[str, object], start_anew: str) -> None:
    theirs = theirs if isinstance(theirs, dict) else {}
    for name in sorted({*theirs, *mine}):
        if theirs.get(name) != mine.get(name):
            raise UsageError(
                f"{path}: its run has {name} = {theirs.get(name)}, this one {mine.get(name)}, which would change the "
                f"messages; resume with the same value, or {start_anew}"
            )


def read_choices(entries: list[dict[str, Any]], variables: int) -> list[OrderChoice]:
    """Orders from a record of a run; CorruptDataError where one is no order of so many variables."""
    choices = []
    for entry in entries:
        separators = tuple(tuple(s) for s in entry["separators"])
        rows = tuple(entry["predicted_rows"])
        costs = tuple(entry["cell_costs"])
        fits = len(separators) == len(rows) == variables and len(costs) in (0, variables)
        if sorted(entry["order"]) != list(range(variables)) or not fits:
            raise CorruptDataError("run.json: an order that is none of this problem; remove the folder to start anew")
        order, heuristic, candidates = tuple(entry["order"]), entry["heuristic"], entry["candidates"]
        choices.append(OrderChoice(order, heuristic, candidates, separators, rows, costs))
    return choices
