"""The run directory: what of a run is on disk, so that a killed one can be resumed (``--workdir``, ``--resume``).

    lock             held while a process works there; names the process
    run.json         format version, problem digest, options that change the result, the orders of the race
    race.json        which orders were given up, at which row cap
    known.json       with bounds: the proven bound and the best assignment so far
    order-…/         published messages of one order (:mod:`oocbe.elimination.runs.checkpoint`); named by a digest of
                     the problem (or what bounds left of it) and the order
    result.json      the answer, once there is one; the messages are then removed
    oocbe-…/         scratch tables of the process at work

A run begins with the search for orders; the candidates are published in ``run.json`` before the first bucket, because
the search depends on time. Without bounds, the race between orders (:mod:`oocbe.elimination.race`) is a function
of the candidates and of how each attempt ended. So attempts that were given up are recorded, a resumed race replays
them and comes to the attempt that was running, and that one finds its messages. Messages of orders given up are
removed. An order is not tried again once it was given up, also where more memory is allowed by then.

With bounds (:mod:`oocbe.search.bounded`) the race is one of several, each below another threshold, and both
bounds and orders depend on time. What is proven and found is published before each, and with every order that begins,
what bounds had left of the problem by then (:mod:`oocbe.search.bounded`). A resumed run goes on with that
order, on just what was left, and finds its messages; which other orders were given up in such rounds is not remembered.

Whatever is missing or damaged among the messages is computed again; a damaged ``run.json`` cannot be made up for and is
an error. Nothing is read before its checksum holds, links are not followed, and what was not made by a run is refused.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from oocbe.errors import CorruptDataError, UnsupportedError, UsageError, amount
from oocbe.model.results.numerals import finite
from oocbe.runtime.faults import fault_point
from oocbe.runtime.temporary_names import is_temporary
from oocbe.tables import disk
from oocbe.tables.disk_budget import DiskBudget
from oocbe.tables.manifest import read_record, render_record
from oocbe.tables.scratch import LOCK_NAME, FolderLock, is_scratch, remove_orphans

FORMAT_VERSION = 1
"""Version of a run directory's format."""

RUN_FORMAT = "oocbe-run"
"""Format name in the record of a run."""

ORDER_PREFIX = "order-"
"""Beginning of the names of folders with the messages of one order."""

_ORDER_NAME = re.compile(re.escape(ORDER_PREFIX) + r"[0-9a-f]{16}")

RECORDS = ("run.json", "race.json", "known.json", "result.json")
"""Names of the records of a run."""


def no_run_in(path: Path) -> str:
    """Error message if there is no run to resume in a folder; empty if there is one."""
    is_there = (path / "run.json").exists()
    return "" if is_there else f"resume: there is no run in {path.absolute()}; a new one begins there"


class RunDirectory:
    """A run directory that this process has locked; a context manager that gives the lock back.

    path : made, with mode 0700, where missing. max_disk : bytes that it may grow to; None: what the disk has.
    budget : counts the bytes in it.
    Raises UsageError: it is a file, another process works there, it belongs to another user, or it holds files that are
    not a run's; DiskError: it cannot be made or locked.
    """

    def __init__(self, path: Path, max_disk: int | None = None) -> None:
        self.path = path.absolute()
        self.budget = DiskBudget(self.path, max_disk)
        with self.budget.failing(self.path):
            disk.make_folder_of_user(self.path, 0o700)
            self._refuse_foreign_files()
            self._lock = FolderLock.take(self.path)
            try:
                fault_point("lock:taken")
                self._refuse_foreign_files()
                self.path.chmod(0o700)
                self._clean()
                self.budget.used = disk.size_of(self.path)
            except BaseException:
                self._lock.release()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        messages = 0 if error is None else messages_in(self.path)
        if error is not None and messages:
            error.add_note(f"{amount(messages, 'message')} published in {self.path}; --resume goes on from there")
        self._lock.release()

    def begin(self, content: dict[str, Any]) -> str:
        """Start a new run with this content in ``run.json``, in place of what was there; returns its identity."""
        identity = os.urandom(16).hex()
        # The record of the run before goes last: messages without one are damage and no remains of a new beginning.
        with self.budget.failing(self.path):
            for what in ("result", "known", "race"):
                path = self.path / f"{what}.json"
                if path.exists():
                    disk.remove(path)
                    disk.synchronise(self.path)
        self.remove_orders()
        self.keep("run", {"version": FORMAT_VERSION, "identity": identity, **content})
        return identity

    def read(self) -> dict[str, Any] | None:
        """Content of ``run.json``; None without a run.

        Raises CorruptDataError: damaged; UnsupportedError: written by another version of the format.
        """
        try:
            content = read_record(self.path / "run.json", RUN_FORMAT)
        except FileNotFoundError:
            if messages_in(self.path):
                raise CorruptDataError(
                    f"{self.path / 'run.json'} is missing, and without it the messages beside it cannot be used; "
                    f"remove {self.path} to start anew"
                ) from None
            return None
        except CorruptDataError as error:
            raise CorruptDataError(f"{error}; the run cannot be resumed: remove {self.path} to start anew") from None
        if content.get("version") != FORMAT_VERSION:
            raise UnsupportedError(
                f"{self.path}: a run directory of format version {content.get('version')}; this program goes on with "
                f"version {FORMAT_VERSION} only. Use the program that began it, or remove {self.path} to start anew"
            )
        return content

    def keep(self, what: str, content: dict[str, Any]) -> None:
        """Publish a record ``what``.json (``run``, ``race``, ``known`` or ``result``) of this run, over the last."""
        path = self.path / f"{what}.json"
        data = render_record({"format": RUN_FORMAT, **content})
        with self.budget.failing(path, len(data)):
            self.budget.take(len(data) - (path.stat().st_size if path.exists() else 0), path)
            disk.publish_file(path, data, what)

    def order_folder(self, key: str) -> Path:
        """Folder of the messages of an order."""
        return self.path / f"{ORDER_PREFIX}{key}"

    def remove_orders(self, but: str | None = None) -> None:
        """Remove the messages of all orders (but one)."""
        kept = None if but is None else self.order_folder(but)
        unwanted = [p for p in self.path.glob(f"{ORDER_PREFIX}*") if p != kept]
        if not unwanted:
            return
        fault_point("tables:removing")
        with self.budget.failing(self.path):
            for folder in unwanted:
                disk.remove(folder)
            disk.synchronise(self.path)
        fault_point("tables:removed")
        self.budget.used = disk.size_of(self.path)

    def _refuse_foreign_files(self) -> None:
        if self.path.stat().st_uid != os.geteuid():
            raise UsageError(f"{self.path}: belongs to another user; choose a folder of your own for --workdir")
        foreign = sorted(p.name for p in self.path.iterdir() if not _is_ours(p))
        if not (self.path / RECORDS[0]).exists():  # others may be called like records: a run would remove them
            foreign += [name for name in RECORDS[1:] if (self.path / name).exists() and not self._is_record(name)]
        if foreign:
            raise UsageError(
                f"{self.path}: holds {foreign[0]!r}, which no run has made; give --workdir a folder of its own"
            )

    def _is_record(self, name: str) -> bool:
        try:
            read_record(self.path / name, RUN_FORMAT)
        except CorruptDataError:
            return False
        return True

    def _clean(self) -> None:
        """Remove what killed processes left unfinished: temporary names, and scratch."""
        for path in [*self.path.glob(".*"), *self.path.glob(f"{ORDER_PREFIX}*/.*")]:
            if is_temporary(path.name) and not path.parent.is_symlink():
                disk.remove(path)
        remove_orphans(self.path)


def record_in(folder: Path, what: str, identity: object) -> dict[str, Any]:
    """Content of a record ``what``.json of the run with this identity; nothing where there is none.
    CorruptDataError where it is damaged."""
    with suppress(FileNotFoundError):
        content = read_record(folder / f"{what}.json", RUN_FORMAT)
        if content.get("identity") == identity:
            return content
    return {}


def messages_in(folder: Path) -> int:
    """Messages published in a run directory, also while the process at work there removes orders."""
    count = 0
    for order in folder.glob(f"{ORDER_PREFIX}*"):
        with suppress(FileNotFoundError, NotADirectoryError):
            count += sum(path.match("message-*.json") for path in order.iterdir())
    return count


def _is_ours(path: Path) -> bool:
    """Whether a run may have made a file or folder of this name; never a link."""
    name = path.name
    if path.is_symlink():
        return False
    if path.is_dir():
        return _ORDER_NAME.fullmatch(name) is not None or is_scratch(path)
    return name in (LOCK_NAME, *RECORDS) or is_temporary(name)


_SIGNS = {"min-sum": 1, "max-sum": -1}
"""Semirings that have bounds: what is known is kept in min-sum."""


def describe_run(folder: Path) -> dict[str, object]:
    """Figures about a run, as JSON types: of which problem, how far it has come, and what is known by now.

    They are read without the directory's lock: also while a process works there.

    Raises CorruptDataError: a record is damaged; UnsupportedError: of another version of the format; FileNotFoundError:
    the run was removed meanwhile.
    """
    run = read_record(folder / "run.json", RUN_FORMAT)
    if run.get("version") != FORMAT_VERSION:
        raise UnsupportedError(
            f"{folder}: a run directory of format version {run.get('version')}; this program reads {FORMAT_VERSION}"
        )
    identity = run.get("identity")
    result = record_in(folder, "result", identity).get("result", {})
    known = record_in(folder, "known", identity).get("known", {})
    sign = _SIGNS.get(str(run.get("semiring")))
    lower, value = (None if sign is None or x is None else sign * x for x in (known.get("lower"), known.get("value")))
    return {
        "kind": "run",
        "problem": run.get("problem"),
        "semiring": run.get("semiring"),
        "begun_by": f"oocbe {run.get('program')}",
        "options": run.get("options"),
        "status": result.get("status", "unfinished"),
        "value": finite(result["value"] if result else value),
        "bound": finite(result["bound"] if result else lower),
        "published_messages": messages_in(folder),
        "bytes": disk.size_of(folder),
    }
