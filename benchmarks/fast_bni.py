"""Batches of cases beside Faster-BNI (FastPGM): 2,000 cases, a fifth of the variables observed, all posteriors.

    FASTPGM_FOLDER=... python benchmarks/fast_bni.py
    FASTPGM_FOLDER=... python benchmarks/fast_bni.py --networks pigs --markdown

Cases are drawn from the network. A small program over FastPGM's sources, compiled with ``-O3 -march=native``, answers
them one after the other with a tree that it keeps, on one thread, until its time is over. oocbe answers them in one
call. Both: processor seconds a case, from the observations to the posteriors. Those of the first five are compared.
FastPGM takes probabilities as counts of 10,000 and divides by their sums, so distributions that a file rounds differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from measuring import data_folder, describe_run, print_table, run_child

SOURCES = ("inference/Clique", "inference/Inference", "inference/JunctionTree", "inference/JunctionTreeStructure")
SOURCES += ("inference/Separator", "ContinuousNode", "CustomNetwork", "Dataset", "DiscreteNode", "Edge", "Network")
SOURCES += ("Node", "PotentialTableBase", "XMLBIFParser", "common", "ChoiceGenerator")
CASES, SHARE, FIRST = 2_000, 0.2, 5


def compiled(folder: Path, target: Path) -> None:
    """Compile the program over FastPGM, whose folder has tinyxml2 in ``lib``."""
    xml = folder / "lib" / "tinyxml2"
    files = [Path(__file__).parent / "peers" / "fastpgm_trees.cpp", xml / "tinyxml2.cpp"]
    files += [folder / "src" / "fastpgm" / f"{name}.cpp" for name in SOURCES]
    flags = ["-std=c++14", "-O3", "-march=native", "-fopenmp", "-w", f"-I{xml}", f"-I{folder / 'include'}"]
    subprocess.run(["g++", *flags, *map(str, files), "-o", str(target)], check=True)


def written(problem: Any, path: Path) -> None:
    """Write a network as XMLBIF in FastPGM's order of cells: its own variable slowest, the first parent fastest."""
    sizes, names = [v.size for v in problem.variables], [escape(v.name) for v in problem.variables]
    lines = ["<BIF><NETWORK><NAME>network</NAME>"]
    for name, size in zip(names, sizes, strict=True):
        values = "".join(f"<VALUE>v{value}</VALUE>" for value in range(size))
        lines.append(f"<VARIABLE><NAME>{name}</NAME><TYPE>discrete</TYPE>{values}</VARIABLE>")
    for function in problem.functions:
        *parents, child = function.scope
        given, cells = (
            "".join(f"<GIVEN>{names[v]}</GIVEN>" for v in parents),
            np.where(*function.to_array(sizes)[::-1], 0),
        )
        table = " ".join(map(repr, cells.transpose().ravel().tolist()))
        lines.append(f"<PROBABILITY><FOR>{names[child]}</FOR>{given}<TABLE>{table}</TABLE></PROBABILITY>")
    path.write_text("\n".join([*lines, "</NETWORK></BIF>"]))


def child(name: str, program: str, seconds: str) -> None:
    """Answer the cases of one network by both, and print the figures."""
    import oocbe

    problem = oocbe.read(data_folder() / "bif" / f"{name}.bif.gz")
    tree, random = oocbe.JunctionTree(problem, backend="cpu"), np.random.default_rng(0)
    drawn = np.asarray(tree.sample(CASES, seed=0).indices, dtype=np.int64)
    hidden = random.permuted(np.arange(drawn.size).reshape(drawn.shape) % drawn.shape[1], axis=1)
    cases = np.where(hidden < round(SHARE * drawn.shape[1]), drawn, -1)
    tree.batch(cases[:8])
    begin = time.process_time()
    answers = tree.batch(cases)
    own = (time.process_time() - begin) / CASES
    with tempfile.TemporaryDirectory() as folder:
        network, given, out = (Path(folder) / part for part in ("network.xml", "cases", "posteriors"))
        written(problem, network)
        rows = (" ".join(f"{v}:{value}" for v, value in enumerate(case) if value >= 0) for case in cases.tolist())
        given.write_text("\n".join(rows))
        command = [program, str(network), str(given), seconds, str(out)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"})
        found = json.loads(done.stderr.splitlines()[-1])
        worst = 0.0
        for number, line in enumerate(out.read_text().splitlines()[:FIRST]):
            theirs = iter(map(float, line.split()))
            for v, variable in enumerate(problem.variables):
                if cases[number, v] >= 0:  # one number
                    next(theirs)
                    continue
                posterior = np.array([next(theirs) for _ in range(variable.size)])
                worst = max(worst, float(np.abs(posterior - answers.marginals[variable.name][number]).max()))
    print(json.dumps({"own": own, "worst": worst, **found}))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="pigs,munin2,munin3,diabetes,munin4")
    parser.add_argument("--seconds", type=float, default=60.0, help="after so long FastPGM gets no further case")
    parser.add_argument("--markdown", action="store_true", help="rows for RESULTS.md")
    options = parser.parse_args()
    if "FASTPGM_FOLDER" not in os.environ:
        raise SystemExit("FASTPGM_FOLDER has to name FastPGM's folder (see README.md)")
    rows = [["network", "oocbe ms", "FastPGM ms", "its cases", "FastPGM / oocbe", "largest difference"]]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fastpgm_trees"
        compiled(Path(os.environ["FASTPGM_FOLDER"]), program)
        for name in options.networks.split(","):
            found = run_child(__file__, [name, str(program), str(options.seconds)])
            times = [f"{1000 * found['own']:.2f}", f"{1000 * found['case']:,.1f}", f"{found['cases']:,}"]
            rows.append([name, *times, f"{found['case'] / found['own']:.0f}", f"{found['worst']:.0e}"])
    print_table(rows, options.markdown)
    print(describe_run())


if __name__ == "__main__":
    main()
