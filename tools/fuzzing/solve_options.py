"""Random options of a solve, and the constants that make small problems take the ways of large ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from oocbe.model.settings.tuning import tuned

Settings = dict[str, Any]


@cache
def has_device() -> bool:
    """Whether a CUDA device can be used."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:
        return False


def random_options(random: Random, variables: int, bounds: bool = True, limits: bool = True) -> Settings:
    """Options by name; ``order`` may be a list of variables, for a file. ``bounds``: also those of bounded solves."""
    settings: Settings = {"order_seconds": 0}

    def sometimes(share: float, name: str, draw: Any) -> None:
        if random.random() < share:
            settings[name] = draw()

    shuffled = random.sample(range(variables), variables)
    sometimes(0.5, "order", lambda: random.choice(("min-degree", "min-fill", "weighted-min-fill", "linear", shuffled)))
    sometimes(0.1, "order_seconds", lambda: 0.02)
    sometimes(0.3, "seed", lambda: random.randint(0, 9))
    sometimes(0.4, "dominance", lambda: False)
    sometimes(0.3, "memory", lambda: random.choice(("1MiB", "16MiB", "256MiB", "1GiB")))
    sometimes(0.4, "chunk_rows", lambda: random.choice((1, 2, 5, 100)))
    sometimes(0.3, "streams", lambda: random.randint(1, 4))
    sometimes(0.35, "piece_rows", lambda: random.choice((1, 2, 3, 10, 100)))
    sometimes(0.5, "tables", lambda: random.choice(("incomplete", "complete", "auto")))
    sometimes(0.15, "workdir", lambda: "run")
    sometimes(0.05, "max_disk", lambda: "1MiB")
    settings["backend"] = random.choice(("cpu", "auto", "cuda", "cuda") if has_device() else ("cpu", "auto"))
    settings["incumbent_seconds"] = random.choice((0, 0.02))
    settings["bound_seconds"] = random.choice((0, 0.1))
    if bounds:
        kinds = ("auto", "none", "constant", "lp", "local-polytope")
        settings["bounds"] = random.choice(("auto", "none") if settings.get("tables") == "complete" else kinds)
    if limits:
        sometimes(0.05, "time_limit", lambda: random.choice((0, 0.005, 0.05)))
        sometimes(0.1, "gap", lambda: random.choice((1, 5, 0.5, "10%", "100%")))
    settings["inside"] = _inside(random)
    return settings


def _inside(random: Random) -> Settings:
    """Constants of the engine that are changed, since the tables of small problems never reach them."""
    inside: Settings = {}
    if random.random() < 0.4:
        inside["message_bytes"] = random.choice((64, 1000, 20_000))
    if random.random() < 0.3:
        inside["mixed_forms"] = random.randint(0, 99)
    if random.random() < 0.2:
        inside["many_rows"] = random.choice((1, 8, 50))
    if random.random() < 0.2:
        inside["small_bytes"] = random.choice((1, 150))
    if random.random() < 0.3:
        inside["forgets"] = random.randint(0, 99)
    if random.random() < 0.2:
        inside["threads"] = random.choice((1, 3))
    return inside


def options_for(settings: Settings, folder: Path) -> Settings:
    """Options as the library takes them, for a case that works in a folder."""
    made = {name: value for name, value in settings.items() if name != "inside"}
    if isinstance(made.get("order"), list):
        path = folder / "order.txt"
        path.write_text("".join(f"x{v}\n" for v in made["order"]))
        made["order"] = str(path)
    if "workdir" in made:
        made["workdir"] = folder / made["workdir"]
    if made.get("backend") == "cuda" and not has_device():
        made["backend"] = "cpu"  # a failure of another machine, replayed
    return made


@contextmanager
def inside_settings(settings: Settings) -> Iterator[None]:
    """Within the block, the engine works with the changed constants of a case."""
    inside = settings.get("inside", {})
    with ExitStack() as stack:
        numbers = ("message_bytes", "many_rows", "small_bytes")
        stack.enter_context(tuned(**{name: inside[name] for name in numbers if name in inside}))
        if "mixed_forms" in inside:
            coin = Random(inside["mixed_forms"])
            cheaper = "oocbe.elimination.engine.decision.is_cheaper_complete"
            stack.enter_context(mock.patch(cheaper, lambda *_, **__: coin.random() < 0.5))
        if "forgets" in inside:
            stack.enter_context(_forgetting(Random(inside["forgets"])))
        if "threads" in inside:
            stack.enter_context(mock.patch.dict(os.environ, {"OOCBE_THREADS": str(inside["threads"])}))
        yield


def _forgetting(coin: Random) -> AbstractContextManager[Any]:
    """Most messages in memory that may be forgotten are so once they were joined, as if there were no room for them."""
    from oocbe.elimination.buckets.messages import MessageStore

    original = MessageStore.joined

    def joined(store: Any, message: Any) -> None:
        original(store, message)
        is_kept = any(m is message for m in store.queried)
        if is_kept and coin.random() < 0.8 and store._forget(message):
            store.queried[:] = [m for m in store.queried if m is not message]

    return mock.patch.object(MessageStore, "joined", joined)


def smaller_settings(settings: Settings) -> Iterator[Settings]:
    """Options with one left out."""
    for name in settings:
        if name != "inside":
            yield {key: value for key, value in settings.items() if key != name}
    for name in settings.get("inside", {}):
        yield {**settings, "inside": {key: value for key, value in settings["inside"].items() if key != name}}
