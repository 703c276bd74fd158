"""Log what each bucket of a forward pass came to: form, place and pieces of its message, rows, and what went to disk.

Two versions of the code that decide alike write the same lines. Run it with ``PYTHONPATH`` at each and compare::

    python tools/log_decisions.py data/spot5/408.spot data/spot5/412.spot > after

Each problem is eliminated without bounds under three memory limits, on the CPU and with a pretended device, whose
arrays are NumPy's in main memory. With one stream, how many pieces there are does not depend on which of them ends
first.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import oocbe
from oocbe.synth.networks import grid_network, random_network

ROOMS = {
    "bucket_engine": ("bucket_engine", "operators"),
    "bucket_stream": ("bucket_engine", "operators"),
    "complete_stream": ("complete_tables", "operators"),
    "bucket_message": ("elimination.buckets", "elimination"),
    "forward": ("elimination.buckets", "elimination"),
    "messages": ("elimination.buckets", "elimination"),
    "complete_messages": ("elimination.buckets", "elimination"),
    "order": ("elimination.orders", "elimination"),
    "prepare": ("elimination.preparation", "elimination"),
    "residence": ("tables", "operators"),
    "errors": ("",),
}
"""Where a module may be, this version's place first."""

ROW_CAP = 100_000
"""Rows of a message that end a run, which is logged up to there."""

DEVICE_BYTES = 1 << 20
"""Memory of the pretended device."""

DEVICE_CELLS, DEVICE_WORK = 256, 64
"""Sizes from which the pretended device is taken."""


def module(name: str) -> Any:
    """A module, wherever this version has it."""
    for room in ROOMS[name]:
        try:
            return importlib.import_module(".".join(part for part in ("oocbe", room, name) if part))
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"{name}: in none of {', '.join(ROOMS[name])}; add its room to ROOMS")


def varied(**changes: float) -> AbstractContextManager[object]:
    """Decisions with other numbers, where this version has them in one place."""
    try:
        return importlib.import_module("oocbe.settings.tuning").tuned(**changes)
    except ModuleNotFoundError:
        return nullcontext()


class DeviceArray(np.ndarray):
    """An array that is taken to be on a device."""


class PretendedDevice:
    """Stands in for a device: what :mod:`oocbe.tables.residence` and the engine ask of it."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}

    def arrive(self, array: np.ndarray) -> np.ndarray:
        """The array, on the device."""
        import weakref

        there = np.ascontiguousarray(array).view(DeviceArray)
        self.held[id(there)] = weakref.finalize(there, self.held.pop, id(there), None), there.nbytes
        return there

    def used(self) -> int:
        """Bytes of all arrays there."""
        return sum(nbytes for _, nbytes in self.held.values())


def plain(array: Any) -> np.ndarray:
    """The array in main memory."""
    return array.view(np.ndarray) if isinstance(array, DeviceArray) else array


class PretendedKernels:
    """Kernels of complete tables that leave their results on the pretended device."""

    def __init__(self, kernels: Any, device: PretendedDevice) -> None:
        self._kernels, self._device = kernels, device

    def upload(self, values: Any) -> Any:
        """See the backend's."""
        return self._device.arrive(plain(values))

    def download(self, values: Any) -> Any:
        """See the backend's."""
        return plain(values)

    def eliminate_complete(self, functions: Any, *others: Any) -> Any:
        """See the backend's."""
        here = [type(f)(plain(f.values), f.strides) for f in functions]
        return self._device.arrive(self._kernels.eliminate_complete(here, *others))


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    """Within the block every engine has a device."""
    device = PretendedDevice()
    engines, residence = module("bucket_engine"), module("residence")
    errors = module("errors")
    patches: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        patches.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def everywhere(name: str, value: Any) -> None:
        known = getattr(residence, name, None)
        for owner in [m for key, m in sys.modules.items() if key.startswith("oocbe")]:
            if getattr(owner, name, None) is known:
                patch(owner, name, value)

    def is_on_device(table: Any) -> bool:
        return isinstance(table.values, DeviceArray)

    def to_host(table: Any) -> Any:
        if not is_on_device(table):
            return table
        arrays = {name: plain(getattr(table, name)) for name in ("keys", "values") if hasattr(table, name)}
        return residence.replace(table, **arrays)

    def to_device(table: Any) -> Any:
        if is_on_device(table):
            return table
        return residence.replace(table, keys=device.arrive(table.keys), values=device.arrive(table.values))

    def stays_on_device(table: Any, relief: Any) -> bool:
        return is_on_device(table) and device.used() <= 0.5 * DEVICE_BYTES

    def values_at_home(table: Any, most_bytes: int) -> Any:
        yield plain(table.values)

    def rows_at_home(table: Any, most_bytes: int) -> Any:
        yield to_host(table)

    def listed(table: Any, scope: Any) -> Any:
        return to_device(to_host(table).to_table(scope))

    def written_out(table: Any, scope: Any) -> Any:
        made = module_complete.CompleteTable.from_table(to_host(table), scope)
        return residence.replace(made, values=device.arrive(made.values))

    module_complete = importlib.import_module("oocbe.tables.complete")
    in_message = importlib.import_module(module("messages").__name__.replace("messages", "message"))
    real_room = engines.BucketEngine.complete_kernels

    def join_on_device(program: Any, layout: Any, tables: Any, dtype: Any, row_limit: int) -> Any:
        if device.used() > DEVICE_BYTES:
            raise errors.ResourceError("the pretended device is full")
        host = [to_host(t) for t in tables]
        try:
            made = engines.join_and_eliminate(program, layout, host, tables[0].semiring, dtype, row_limit)
        except engines.TooManyRowsError:
            return None
        if device.used() + made.nbytes > DEVICE_BYTES:
            raise errors.ResourceError("the pretended device is full")
        return device.arrive(made.keys), device.arrive(made.values)

    def complete_kernels(engine: Any, joined_cells: int) -> Any:
        uses, engine.uses_device = engine.uses_device, False
        kernels = real_room(engine, 0)
        engine.uses_device = uses
        return PretendedKernels(kernels, device) if joined_cells and engine.takes_complete(joined_cells) else kernels

    def drop_dominated(engine: Any, table: Any, substitutions: Any, sign: int) -> Any:
        keys, values = substitutions.drop_rows(plain(table.keys), plain(table.values), sign)
        made = residence.replace(table, keys=keys, values=values)
        return to_device(made) if is_on_device(table) else made

    def belongs(engine: Any, program: Any, tables: Any) -> bool:
        return (
            bool(tables) and not program.consumes and program.expected_work(max(t.rows for t in tables)) > DEVICE_WORK
        )

    def rows(table: Any) -> int:
        return plain_rows(residence.replace(table, values=plain(table.values)))

    plain_rows = module_complete.CompleteTable.rows.func
    counted = type(module_complete.CompleteTable.__dict__["rows"])(rows)
    counted.__set_name__(module_complete.CompleteTable, "rows")
    for name, value in (("is_on_device", is_on_device), ("to_host", to_host), ("to_device", to_device)):
        everywhere(name, value)
    everywhere("stays_on_device", stays_on_device)
    everywhere("values_at_home", values_at_home)
    everywhere("rows_at_home", rows_at_home)
    patch(in_message, "listed", listed)
    patch(in_message, "written_out", written_out)
    patch(engines, "_join_on_device", join_on_device)
    engine = engines.BucketEngine
    for name, value in (
        ("complete_kernels", complete_kernels),
        ("drop_dominated", drop_dominated),
        ("_belongs_on_device", belongs),
        ("takes_complete", lambda engine, joined_cells: joined_cells >= DEVICE_CELLS),
        ("device_room", lambda engine: DEVICE_BYTES - device.used()),
    ):
        patch(engine, name, value)
    patch(module_complete.CompleteTable, "rows", counted)
    try:
        with varied(device_cells=DEVICE_CELLS):
            yield device
    finally:
        for owner, name, value in reversed(patches):
            setattr(owner, name, value)


class Log:
    """Watches the parts of this version that decide."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._streams: list[Any] = []
        self._written: list[str] = []
        makers = module("bucket_message").MessageMaker
        store = module("messages").MessageStore
        self._wrap(module("bucket_stream").BucketStream, "__init__", lambda s, *_: self._streams.append(s))
        self._wrap(module("complete_stream").CompleteStream, "__init__", lambda s, *_: self._streams.append(s))
        self._wrap(store, "_write", self._note_written, before=True)
        make = makers.make

        def logged(maker: Any, place: int, bucket: Any, subtree: Any) -> Any:
            self._streams, self._written = [], []
            message, exponent = make(maker, place, bucket, subtree)
            self.lines.append(self._line(maker, place, bucket, message))
            return message, exponent

        makers.make = logged

    def _wrap(self, owner: Any, name: str, note: Any, before: bool = False) -> None:
        real = getattr(owner, name)

        def wrapped(this: Any, *arguments: Any, **named: Any) -> Any:
            if before:
                note(this, *arguments)
            made = real(this, *arguments, **named)
            if not before:
                note(this, *arguments)
            return made

        setattr(owner, name, wrapped)

    def _note_written(self, store: Any, message: Any) -> None:
        self._written.append(f"{len(message.scope)}:{message.rows}")

    def _line(self, maker: Any, place: int, bucket: Any, message: Any) -> str:
        form = "complete" if message.is_complete else "rows"
        where = "device" if message.is_on_device else "memory" if message.is_in_memory else "disk"
        pieces = [s.pieces if hasattr(s, "pieces") else s.cuts.pieces for s in self._streams]
        held = maker._store.in_memory
        digest = ""
        if message.is_in_memory:
            values = np.ascontiguousarray(plain(message._table.values))
            digest = hashlib.sha256(values.tobytes()).hexdigest()[:8]
        return (
            f"{place + 1} x{bucket.variable} {form} {where} pieces={pieces or 'whole'} rows={message.rows} "
            f"bytes={message.nbytes} held={held} written={','.join(self._written) or '-'} {digest}"
        )


def forward(
    problem: Any, memory: int, log: Log, tables: str, has_device: bool, piece_rows: int | None, forgets: bool
) -> str:
    """Eliminate a problem in one order, logged; the outcome as text."""
    choice = module("order").search_orders(problem, "min-fill", 0.0, 0)[0]
    prepared = module("prepare").prepare(problem, problem.semiring, choice.order)
    engine = module("bucket_engine").BucketEngine("cpu", streams=1, piece_rows=piece_rows)
    engine.uses_device = has_device
    with module("messages").MessageStore(memory) as store:
        run = module("forward").Forward(prepared, True, store, row_cap=ROW_CAP, engine=engine, tables=tables)
        try:
            outcome = run.run(may_forget=True) if forgets else run.run()
        except oocbe.OocbeError as error:
            return f"{type(error).__name__}: {error}"
        forgotten = sum(getattr(m, "is_forgotten", False) for b in outcome.buckets for m in b.messages)
        return f"{outcome.value} * 2^{outcome.exponent}, {forgotten} forgotten"


def problems(files: list[Path]) -> Iterator[tuple[str, Any, tuple[int, int, int]]]:
    """Names, problems and the memory limits that they are run with."""
    for file in files:
        yield file.stem, oocbe.read(file), (1 << 30, 1 << 22, 1 << 18)
    limits = (1 << 30, 1 << 18, 1 << 13)
    yield "grid of 7, 3 values", grid_network(7, 3, 0.2, seed=1), limits
    yield "grid of 5, 5 values", grid_network(5, 5, 0.2, seed=2), limits
    yield "random, 14 of 3 values", random_network(14, 3, 0.4, 0.2, seed=3), limits
    yield "random, 30 of 2 values", random_network(30, 2, 0.15, 0.1, seed=4), limits


def main() -> int:
    """Print the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="problems besides the synthetic ones")
    parser.add_argument("--forget", action="store_true", help="let messages be forgotten where memory is short")
    given_files, forgets = (options := parser.parse_args()).files, options.forget
    log = Log()
    for name, problem, limits in problems(given_files):
        for memory in limits:
            for tables in ("auto", "incomplete", "complete"):
                for piece_rows in (None, 1000):
                    for has_device in (False, True):
                        log.lines = []
                        given = (problem, memory, log, tables, has_device, piece_rows, forgets)
                        if has_device:
                            with pretended_device():
                                outcome = forward(*given)
                        else:
                            outcome = forward(*given)
                        print(f"# {name}, {memory} bytes, {tables}, {piece_rows} rows a piece, device: {has_device}")
                        print(*log.lines, f"= {outcome}", sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
