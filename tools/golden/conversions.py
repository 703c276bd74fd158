"""Every problem in every format that is written: bytes of the file, what it is read back as, or why it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import oocbe

from .canonical import canonical, digest
from .problems import FAMILIES
from .recorder import ROOT, Recorder, file_digest
from .solving import described
from .texts import TEXTS

FORMATS = ("spot", "wcsp", "uai", "bif", "cfn", "cnf", "wcnf", "lp", "mps", "qpbo", "yaml", "xml")
"""Suffixes of formats that are written."""

MADE = (
    *("network-2", "ternary-2", "negative", "upper-bound", "capacities", "sparse-small", "feasible", "decimals"),
    *("maximised-floats", "bayesian-1-sum-product", "bayesian-2-max-product", "clauses", "apart", "lower-bound"),
)
"""Seeded problems that are written."""

INSTANCES = ("spot5/8.spot", "spot5/1502.spot", "bif/alarm.bif.gz", "wcsp/random/3.wcsp", "mps/p0201.mps.gz")
"""Real instances, where there are some."""


def run(recorder: Recorder) -> None:
    """All entries of this module."""
    for name in MADE:
        converted(recorder, f"conversions/{name}", FAMILIES[name]())
    for suffix in ("net", "opb", "lg", "xdsl", "json", "text"):  # read only, or unknown
        target = recorder.place(f"conversions/refused.{suffix}")
        recorder.add(f"conversions/refused-{suffix}", written, FAMILIES["network-2"](), target)
    paths = [recorder.place(f"conversions/texts/{name}") for name in TEXTS]
    for path, text in zip(paths, TEXTS.values(), strict=True):
        path.write_text(text)
    examples = [ROOT / "examples" / name for name in ("daily.spot", "grid.wcsp")]
    for path in (*paths, *examples, *(recorder.data / name for name in INSTANCES)):
        if not path.exists():
            recorder.skip(f"conversions/{path.name}")
            continue
        try:
            model = oocbe.read_model(path)
        except oocbe.OocbeError:
            continue  # the refusal is an entry of another module
        converted(recorder, f"conversions/{path.name}", model)


def converted(recorder: Recorder, key: str, model: Any) -> None:
    """A model in each format."""
    for suffix in FORMATS:
        target = recorder.place(f"{key}/out.{suffix}")
        recorder.add(f"{key}/to-{suffix}", written, model, target)


def written(model: Any, target: Path) -> Any:
    """Digest of the file, and of what is read back."""
    oocbe.write(model, target)
    again = canonical(described(oocbe.read_model(target)))
    return {"file": file_digest(target), "read": digest(json.dumps(again, sort_keys=True).encode())}
