"""Every command of the program once, on small inputs, one after the other in one process.

Run as a program with two folders, inputs and outputs, it prints what :func:`run_all` returns, as JSON, and how many
loops were compiled for it: what :mod:`tests.cli.test_read_only_image` calls where nothing else can be written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from typer.testing import CliRunner

from oocbe.cli.main import app
from oocbe.kernels.cpu import signatures
from oocbe.runtime.compilation import compilation

FAST = ("--order-seconds", "0", "--backend", "cpu")

NETWORK = """network small { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable grass { type discrete [ 2 ] { wet, dry }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( grass | rain ) { (yes) 1.0, 0.0; (no) 0.5, 0.5; }
"""

CYCLE = "cycle 4 2 4 99\n2 2 2 2\n" + "".join(
    f"2 {a} {b} 0 4\n0 0 {a}\n0 1 3\n1 0 2\n1 1 5\n" for a, b in ((0, 1), (1, 2), (2, 3), (0, 3))
)


def write_inputs(folder: Path) -> None:
    """The files that the commands read."""
    (folder / "small.bif").write_text(NETWORK)
    (folder / "cycle.wcsp").write_text(CYCLE)
    (folder / "sales.csv").write_text("shop,day,gain\na,0,5\na,1,9\nb,1,4\n")
    (folder / "rents.csv").write_text("shop,gain\na,-3\nb,-1\n")
    (folder / "cases.csv").write_text("grass\nwet\ndry\n")


def _commands(inputs: Path, out: Path) -> list[list[str]]:
    cycle, network, cases = (str(inputs / name) for name in ("cycle.wcsp", "small.bif", "cases.csv"))
    names = ("sol", "page.html", "run.json", "run.png", "tree", "answers.csv", "table")
    sources = [str(inputs / name) for name in ("sales.csv", "rents.csv")]
    made = {name: str(out / name) for name in names}
    return [
        ["solve", cycle, "--solution", made["sol"], "--report", made["page.html"], "--trace", made["run.json"], *FAST],
        ["solve", cycle, "--workdir", str(out / "workdir"), *FAST],
        ["solve", cycle, "--task", "count", *FAST],
        ["solve", network, "--task", "marginals", *FAST],
        ["verify", cycle, made["sol"]],
        ["bound", cycle, "--z", "2", *FAST],
        ["plan", cycle, "--order-seconds", "0"],
        ["propagate", cycle],
        ["inspect", cycle],
        ["convert", cycle, str(out / "cycle.cfn")],
        ["join", *sources, "--group-by", "day", "--sum", "gain", "--on", "shop", "-o", str(out / "best.parquet")],
        ["compile", network, made["tree"]],
        ["query", made["tree"], "--cases", cases, "-o", made["answers.csv"]],
        ["uai", network, "-", "-", "MAR", "--order-seconds", "0"],
        ["dcop", cycle],
        ["stress", "--rows", "1e3", "--workdir", str(out / "stress")],
        ["trace", made["run.json"], "--png", made["run.png"]],
        ["simulate", "--workers", "4", "--segments", "40"],
        ["synth", "table", made["table"], "--rows", "1e5"],
        ["inspect", made["table"]],
        ["convert", made["table"], str(out / "table.parquet")],
        ["doctor"],
        ["completion", "bash"],
        ["warm-up"],
    ]


def run_all(inputs: Path, out: Path) -> dict[str, list[object]]:
    """Exit code and what went wrong of each command line; ``warm-up`` has no loops to compile, which takes minutes."""
    listed, signatures.listed = signatures.listed, lambda is_quick=False: []
    try:
        done = {" ".join(line): CliRunner().invoke(app, line) for line in _commands(inputs, out)}
    finally:
        signatures.listed = listed
    return {
        line.replace(str(out), "OUT"): [result.exit_code, "" if result.exit_code == 0 else result.output]
        for line, result in done.items()
    }


if __name__ == "__main__":
    print(json.dumps([run_all(Path(sys.argv[1]), Path(sys.argv[2])), compilation.loops]))
