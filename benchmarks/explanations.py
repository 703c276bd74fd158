"""Most probable explanations of the networks in the shared data beside toulbar2: value, bounds and seconds.

    python benchmarks/explanations.py                                   # all of uai/grid, uai/pedigree, uai/protein
    python benchmarks/explanations.py --seconds 60 --only pedigree33,90-20-5
    python benchmarks/explanations.py --markdown                        # a table for RESULTS.md

Ours is the whole process ``oocbe solve FILE --task mpe``. toulbar2 reads the same file, in its default mode and along a
tree decomposition; its time leaves out starting Python. Values are natural logarithms of the product of all factors.
toulbar2 rounds costs when it reads them, so each of its assignments is evaluated again by oocbe's problem, from the
file's own numbers; its proof is one for the rounded costs. The exit code is 1 where a proven optimum is beaten, or two
proven ones differ by more than that rounding.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import data_folder, describe_run, print_table, run_timed
from peers import toulbar2

import oocbe
from oocbe.elimination.preparation.logarithms import in_logarithms
from oocbe.model.semiring import MAX_PRODUCT

FAMILIES = ("grid", "pedigree", "protein")
ROUNDING = 1e-4
"""How far toulbar2's optimum may be from the true one: thousands of costs rounded to seven digits."""

GRACE_SECONDS = 30.0
"""For the end of a process after its time limit."""


@dataclass(frozen=True)
class Theirs:
    """What one mode of toulbar2 found: a logarithm and whether it is proven, and seconds."""

    value: float | None
    proven: bool
    seconds: float | None

    def shown(self, limit: float) -> str:
        """Seconds, or that there was no proof in time."""
        return f"{self.seconds:.2f}" if self.proven and self.seconds is not None else f"> {limit:g}"


def ours(path: Path, arguments: argparse.Namespace) -> tuple[dict[str, Any], float]:
    """The object that the command prints, and the wall time of its process."""
    command = [sys.executable, "-m", "oocbe", "solve", str(path), "--task", "mpe", "--json", "--quiet"]
    command += ["--time-limit", str(arguments.seconds), "--backend", arguments.backend]
    done, seconds = run_timed(command, arguments.seconds + GRACE_SECONDS)
    if done.returncode not in (0, 20):
        raise RuntimeError(f"{path.name}: ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, seconds


def theirs(path: Path, mode: str, seconds: float) -> Theirs:
    """toulbar2's answer, its assignment evaluated by the file's own numbers."""
    with tempfile.TemporaryDirectory(prefix="oocbe-peer-") as folder:
        plain = Path(folder) / path.name.removesuffix(".gz")
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        answer = toulbar2.run(plain, seconds, mode)
    if answer is None:
        return Theirs(None, False, None)
    problem = in_logarithms(oocbe.read(path).in_semiring(MAX_PRODUCT))
    cost = None if answer["assignment"] is None else problem.evaluate(answer["assignment"])
    return Theirs(None if cost is None else -float(cost), bool(answer["proven"]), answer["seconds"])


def contradiction(own: dict[str, Any], peers: list[Theirs]) -> str | None:
    """What cannot be true of the answers together, or None."""
    tolerance = own["tolerance"]
    for peer in peers:
        if peer.value is None:
            continue
        if own["status"] == "exact" and peer.value > own["log_probability"] + tolerance:
            return f"proven {own['log_probability']}, but toulbar2 has an assignment with {peer.value}"
        if own["bound"] is not None and peer.value > own["bound"] + tolerance:
            return f"bound {own['bound']}, but toulbar2 has an assignment with {peer.value}"
        if peer.proven and own["log_probability"] is not None and own["log_probability"] > peer.value + ROUNDING:
            return f"{own['log_probability']} is better than toulbar2's optimum {peer.value}"
    return None


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit for each system and instance (default 120)")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of instances, separated by commas")
    parser.add_argument("--backend", default="auto", help="of oocbe: auto, cpu or cuda")
    parser.add_argument("--no-peers", action="store_true", help="without toulbar2")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    arguments = parser.parse_args()
    modes = () if arguments.no_peers else toulbar2.MODES
    heading = ["instance", "variables", "w*", "value", "bound", "s", "largest rows", "MiB", "toulbar2", *modes]
    rows = [heading]
    agreed = True
    paths = [p for family in FAMILIES for p in sorted((data_folder() / "uai" / family).glob("*.uai.gz"))]
    for path in paths:
        name = path.name.removesuffix(".uai.gz")
        if arguments.only and name not in arguments.only:
            continue
        own, seconds = ours(path, arguments)
        peers = [theirs(path, mode, arguments.seconds) for mode in modes]
        wrong = contradiction(own, peers)
        if wrong is not None:
            agreed = False
            print(f"answers contradict one another, {name}: {wrong}", file=sys.stderr)
        value, bound, exact = own["log_probability"], own["bound"], own["status"] == "exact"
        best = max((p.value for p in peers if p.value is not None), default=None)
        rows.append(
            [
                name,
                str(len(oocbe.read(path).variables)),
                str(own["width"]) if exact else "",
                "" if value is None else f"{value:.6f}",
                "proven" if exact else "" if bound is None else f"{bound:.6f}",
                f"{seconds:.2f}",
                f"{own['largest_message_rows']:,}",
                f"{own['peak_memory_bytes'] / 2**20:,.0f}",
                "" if best is None else f"{best:.6f}",
                *(p.shown(arguments.seconds) for p in peers),
            ]
        )
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    if len(rows) == 1:
        print(f"no such instance in {data_folder() / 'uai'}", file=sys.stderr)
        return 2
    print_table(rows, arguments.markdown)
    print("\n" + describe_run(("pytoulbar2",)))
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
