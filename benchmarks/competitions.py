"""Competition sets by the command line within their limits: one table for each task, with the score of the set's rules.

    python benchmarks/competitions.py                          # UAI 2014, all tasks, 20 s each
    python benchmarks/competitions.py --tasks track1,track3    # counts of 2022 beside Ganak
    python benchmarks/competitions.py --tasks PR --every 3     # every third instance
    python benchmarks/competitions.py --tasks PR --backend cuda,cpu --folder FOLDER  # a device beside the CPU, in turn
    python benchmarks/competitions.py --markdown               # rows for results/competitions.json

Every instance has a process of its own. A folder may also have ``.cnf`` files, whose partition function is their count,
with their published logarithms as ``mc2022`` has them. Scores are between 0 and 1:

* PR, by the rules of 2022, which score every instance: 1 - error / error of a trivial solver, at least 0, of the
  logarithm of the partition function. The rules do not define that solver. Here it takes the factors as independent
  under the uniform distribution: the product of the domain sizes and of each factor's mean.
* MAR, likewise of the mean Hellinger distance over all unobserved variables; the trivial solver answers uniformly.
* MAP and MMAP, by the rules of 2014: the relative gap (leader - value) / |leader| of logarithms, where the leader is
  the better one of the answer and the reference; the score is 1 - gap, at least 0.

* track1 to track4 of the model counting competition 2022: whether the count has the published logarithm (track 4 has
  none), and the seconds of oocbe and of Ganak (pyganak; exact counts, floats for weights), a process each.

References have six digits; a smaller error is none. Files in which a factor without variables is 0 are left out: their
partition function is 0, and their references ignore those factors. So are references of PR above the product of all
domain sizes and the factors' maxima, which no partition function exceeds, and below sums of some of its terms; and
those of MAR with a marginal that its variable's own factors and the marginals of their other variables do not allow.
The exit code is 1 if an answer is called exact and is not, or if a process takes longer than its time limit and one
second.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
from measuring import data_folder, describe_run, print_table, run_timed, run_used
from scipy.optimize import linprog

TASKS, TRACKS = "PR,MAR,MAP,MMAP", "track1,track2,track3,track4"
DIGITS = 1e-5
"""Relative error of references."""

WRONG = 1e-3
"""Error of a marginal that is called wrong."""

DOUBTFUL, MOST_NEIGHBOURS = 0.99, 1 << 11
"""Score of marginals below which their reference is checked, by variables whose factors have at most so many cells."""

INFEASIBLE = 2
"""Status of a linear program in SciPy."""

LATEST = 1.0
"""Seconds that a process may take longer than its time limit."""

UNKNOWN = "-1"
"""The published logarithm of what no competitor counted."""

PARTIAL_SUMS = {"linkage_15.uai": -75.7867}
"""Decimal logarithms of sums of some terms of partition functions, computed by NumPy alone, that exceed references. Of
linkage_15, whose reference is -76.6058: two of 96 assignments to a cut-set, the others eliminated one by one."""

Run = dict[str, Any]


def text_of(path: Path) -> str:
    """The text of a file, or of the same with ``.gz``; empty if there is neither."""
    packed = path.with_name(f"{path.name}.gz")
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode()
    return path.read_text() if path.exists() else ""


def last_sample(text: str) -> list[str]:
    """The words of the last solution in a result file."""
    return text.split("-BEGIN-")[-1].replace("\n", " ").split()[1:]


def marginals_of(words: Sequence[str]) -> list[np.ndarray]:
    """The marginals of a result."""
    found, cursor = [], 1
    for _ in range(int(words[0])):
        size = int(words[cursor])
        found.append(np.array([float(x) for x in words[cursor + 1 : cursor + 1 + size]]))
        cursor += 1 + size
    return found


def solve(task: str, path: Path, seconds: float, memory: str, backend: str) -> Run:
    """The answer of the command line, its JSON, and the seconds of its process."""
    stem = path.name.removesuffix(".gz")
    query = next((str(q) for q in (path.with_name(f"{stem}.query{end}") for end in ("", ".gz")) if q.exists()), "-")
    evidence = path.with_name(f"{stem}.evid")
    command = [sys.executable, "-m", "oocbe", "uai", str(path), str(evidence) if evidence.exists() else "-"]
    command += [query, task, "--time-limit", f"{seconds:g}", "--memory", memory, "--json", "--quiet"]
    command += ["--backend", backend]
    done, wall, cpu = run_used(command, seconds + 60)
    answer = json.loads(done.stdout) if done.stdout else {"status": "error", "error": done.stderr[-200:]}
    return {**answer, "wall": wall, "cpu": cpu}


def is_zero(path: Path) -> bool:
    """Whether a factor without variables is 0, so that every weight is: a fault of a file's conversion."""
    import oocbe

    return any(not f.scope and not f.values.any() for f in oocbe.read(path).functions)


def product_logarithm(path: Path, of_factor: Callable[[np.ndarray], float] = np.mean) -> float:
    """Decimal logarithm of the product of the factors' means (or maxima) and the domain sizes, given the evidence."""
    import oocbe
    from oocbe.formats.uai import evidence_of

    problem = oocbe.read(path)
    evidence = path.with_name(path.name.removesuffix(".gz") + ".evid")
    seen = evidence_of(str(evidence), problem) if evidence.exists() else {}
    total = sum(math.log10(size) for v, size in enumerate(problem.sizes) if v not in seen)
    for f in problem.functions:
        values, _ = f.to_array(problem.sizes)
        share = float(of_factor(values[tuple(seen.get(v, slice(None)) for v in f.scope)]))
        total += math.log10(share) if share > 0 else -math.inf
    return total


def score_of_sum(path: Path, run: Run, reference: float) -> tuple[float, float, bool]:
    """Score, error of the decimal logarithm, and whether an exact answer is wrong."""
    most = abs(product_logarithm(path) - reference)
    margin = DIGITS * max(1.0, abs(reference))
    error = math.inf if run.get("log10") is None else abs(run["log10"] - reference)
    if error <= margin:
        return 1.0, error, False
    score = max(0.0, 1.0 - error / most) if most > margin else 0.0
    return (1.0 if most == math.inf else score), error, run["status"] in ("exact", "infeasible")


def contradicts(path: Path, reference: list[np.ndarray]) -> bool:
    """Whether a marginal is no mixture of its variable's distributions given its neighbours, as all marginals are, for
    any joint distribution of the neighbours that has their own marginals."""
    import oocbe
    from oocbe.formats.uai import evidence_of

    problem, name = oocbe.read(path), path.name.removesuffix(".gz")
    seen, sizes = evidence_of(str(path.with_name(f"{name}.evid")), problem), problem.sizes
    factors: dict[int, list[Any]] = {v: [] for v in range(len(sizes)) if v not in seen}
    for f in problem.functions:
        for v in factors.keys() & set(f.scope):
            factors[v].append(f)
    for v, own in factors.items():
        axes = [*{u for f in own for u in f.scope if u not in seen and u != v}, v]
        if math.prod(sizes[u] for u in axes) > MOST_NEIGHBOURS:
            continue
        weights = np.ones([sizes[u] for u in axes])
        for f in own:
            values, feasible = f.to_array(sizes)
            left = [u for u in f.scope if u not in seen]
            values = np.where(feasible, values, 0.0)[tuple(seen.get(u, slice(None)) for u in f.scope)]
            values = values.transpose([left.index(u) for u in axes if u in left])
            weights *= values.reshape([sizes[u] if u in left else 1 for u in axes])
        rows = weights.reshape(-1, sizes[v])
        possible = np.flatnonzero(rows.any(axis=1))
        shares = rows[possible] / rows[possible].sum(axis=1, keepdims=True)
        values = np.indices(weights.shape[:-1]).reshape(len(axes) - 1, len(rows))[:, possible]
        equal = [values[i] == x for i, u in enumerate(axes[:-1]) for x in range(sizes[u])]
        sums = np.array([*equal, *shares.T, np.ones(len(possible))])
        wanted = np.concatenate([*(reference[u] for u in axes), [1.0]])
        margin = np.repeat([2 * DIGITS, WRONG, 2 * DIGITS], [len(equal), sizes[v], 1])
        limits = np.concatenate([wanted + margin, margin - wanted])
        if linprog(np.zeros(len(possible)), A_ub=np.concatenate([sums, -sums]), b_ub=limits).status == INFEASIBLE:
            return True
    return False


def hellinger(one: np.ndarray, other: np.ndarray) -> float:
    """Hellinger distance of two distributions."""
    return float(np.linalg.norm(np.sqrt(one) - np.sqrt(other)) / math.sqrt(2))


def score_of_marginals(path: Path, run: Run, reference: list[np.ndarray]) -> tuple[float, float, bool]:
    """Score, mean Hellinger distance, and whether an exact answer is wrong."""
    observed = run.get("evidence", {})
    own = [np.array(list(shares.values())) for shares in run.get("marginals", {}).values()]
    free = [v for v, _ in enumerate(reference) if str(v) not in observed]
    if not own:
        return 0.0, 1.0, False
    error = float(np.mean([hellinger(own[v], reference[v]) for v in free]))
    most = float(np.mean([hellinger(np.full(len(reference[v]), 1 / len(reference[v])), reference[v]) for v in free]))
    wrong = max(float(np.abs(own[v] - reference[v]).max()) for v in free) > WRONG
    return max(0.0, 1.0 - error / most), error, wrong and run["status"] == "exact"


def score_of_values(path: Path, task: str, run: Run, reference: list[str], seconds: float) -> tuple[float, float, bool]:
    """Score, relative gap, and whether an exact answer is worse than the reference."""
    import oocbe
    from oocbe.formats.uai import evidence_of

    own = run.get("value")
    if own is None:
        return 0.0, math.inf, run["status"] == "infeasible"
    if not reference:
        return 1.0, 0.0, False
    problem = oocbe.read(path)
    stem = path.name.removesuffix(".gz")
    values = dict(evidence_of(str(path.with_name(f"{stem}.evid")), problem))
    numbers = [int(x) for x in text_of(path.with_name(f"{stem}.query")).split()[1:]]
    given = [int(x) for x in reference[1:]]
    # References of MMAP are in the order of the variables' numbers, not in that of the query.
    values |= dict(zip(sorted(numbers) if task == "MMAP" else range(len(given)), given, strict=True))
    found = oocbe.anytime("PR", problem.with_values(values), time_limit=seconds)
    theirs = found.lower  # exact, or a lower bound
    leader = max(theirs, own)
    gap = 0.0 if leader - own <= DIGITS * abs(leader) else (leader - own) / abs(leader)
    return max(0.0, 1.0 - gap), gap, gap > 0 and run["status"] == "exact"


def ganak(path: Path) -> float:
    """Decimal logarithm of the absolute count by Ganak."""
    import pyganak

    clauses, weights, shown, variables = [], {}, None, 0
    for words in (line.split() for line in gzip.decompress(path.read_bytes()).decode().splitlines()):
        if words[:2] == ["p", "cnf"]:
            variables = int(words[2])
        elif words[:3] == ["c", "p", "weight"]:
            weights[int(words[3])] = float(words[4])
        elif words[:3] == ["c", "p", "show"]:
            shown = [*(shown or ()), *map(int, words[3:-1])]
        elif words and words[0] not in ("c", "p", "%"):
            clauses.append([int(x) for x in words[:-1]])
    counter = pyganak.WeightedCounter() if weights else pyganak.Counter()
    counter.new_vars(variables)
    counter.add_clauses(clauses)
    for literal, weight in weights.items():
        counter.set_lit_weight(literal, weight)
    if shown is not None:
        counter.set_sampling_set(shown)
    count = counter.count()
    return math.log10(abs(count)) if count else -math.inf


def count_both(path: Path, published: dict[str, str], seconds: float, memory: str, core: int | None) -> Run:
    """Answers and seconds of both programs on an instance, one after the other; None: not within the limit.

    core : on which both programs run; None: on any of all.
    """
    place = [] if core is None else ["taskset", "-c", str(core)]
    command = [*place, sys.executable, "-m", "oocbe", "solve", str(path), "--task", "count", "--json", "--quiet"]
    done, wall = run_timed([*command, "--time-limit", f"{seconds:g}", "--memory", memory], seconds + 60)
    answer = json.loads(done.stdout) if done.stdout else {}
    is_done = answer.get("status") in ("exact", "infeasible")
    own = (-math.inf if answer.get("log10") is None else answer["log10"]) if is_done else None
    row: Run = {"instance": path.name, "own": own, "seconds": wall if is_done else None}
    row |= {"ganak": None, "ganak_seconds": None}
    try:
        peer, peer_wall = run_timed([*place, sys.executable, __file__, "--child", str(path)], seconds)
        if peer.returncode == 0:
            row |= {"ganak": float(peer.stdout.split()[-1]), "ganak_seconds": peer_wall}
    except subprocess.TimeoutExpired:
        pass
    text = published.get(path.name) or "-"  # no published answer; nor is -1, of what no competitor counted
    known = row["ganak"] if text == "-" or float(text) == -1 else float(text)
    row["wrong"] = own is not None and known is not None and not math.isclose(own, known, abs_tol=DIGITS)
    print(f"{row}", file=sys.stderr, flush=True)
    return row


def count_track(track: str, folder: Path, names: Sequence[str], settings: argparse.Namespace) -> list[Run]:
    """One row for each instance of a track."""
    published = json.loads((folder / "log10_counts.json").read_text())
    paths = sorted(folder.glob(f"*_{track}_*.cnf.gz"))[:: settings.every]
    wanted = [path for path in paths if not names or any(name in path.name for name in names)]
    cores: Queue[int | None] = Queue()
    for core in sorted(os.sched_getaffinity(0))[: settings.jobs] if settings.jobs > 1 else [None]:
        cores.put(core)

    def counted(path: Path) -> Run:
        core = cores.get()
        try:
            return count_both(path, published, settings.seconds, settings.memory, core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        return list(pool.map(counted, wanted))


def counts(tracks: Sequence[str], names: Sequence[str], settings: argparse.Namespace) -> bool:
    """Measure and print the tracks; whether no count is wrong."""
    table, is_good = [], True
    for track in tracks:
        rows = count_track(track, data_folder() / "mc2022", names, settings)
        solved = [r for r in rows if r["own"] is not None]
        peer = [r for r in rows if r["ganak"] is not None]
        both = [r for r in solved if r["ganak"] is not None]
        wrong = sum(r["wrong"] for r in rows)
        is_good &= not wrong
        median = [f"{np.median([r[key] for r in both]):.2f}" if both else "" for key in ("seconds", "ganak_seconds")]
        alone = [str(len(solved) - len(both)), str(len(peer) - len(both))]
        table.append([track, *map(str, (len(rows), len(solved), len(peer))), *alone, str(wrong), *median])
    header = ["track", "instances", "oocbe", "Ganak", "oocbe alone", "Ganak alone", "wrong"]
    print_table([[*header, "oocbe: median s", "Ganak: median s"], *table], settings.markdown)
    return is_good


def reference_of(task: str, path: Path) -> list[str]:
    """The words of the published answer."""
    if ".cnf" in path.suffixes and ".uai" not in path.suffixes:
        return [json.loads(path.with_name("log10_counts.json").read_text())[path.name]]
    return last_sample(text_of(path.with_name(f"{path.name.removesuffix('.gz')}.{task}")))


def measure(task: str, folder: Path, names: Sequence[str], settings: argparse.Namespace) -> list[Run]:
    """One row for each instance of a task and each backend."""
    rows: list[Run] = []
    paths = [p for p in sorted(folder.iterdir()) if p.name.removesuffix(".gz").endswith((".uai", ".cnf"))]
    seconds, backends = settings.seconds, settings.backend.split(",")
    for path, backend in product(paths[:: settings.every], backends):
        stem = path.name.removesuffix(".gz")
        if names and not any(name in stem for name in names):
            continue
        if is_zero(path):
            print(f"{task} {stem}: left out, its reference ignores factors without variables of 0", file=sys.stderr)
            continue
        reference = reference_of(task, path)
        if task == "PR" and float(reference[-1]) > product_logarithm(path, np.max) + DIGITS * abs(float(reference[-1])):
            print(f"PR {stem}: left out, its reference exceeds the product of maxima and sizes", file=sys.stderr)
            continue
        if task == "PR" and float(reference[-1]) < PARTIAL_SUMS.get(stem, -math.inf):
            print(f"{task} {stem}: left out, its reference is below a sum of some terms", file=sys.stderr)
            continue
        run = solve(task, path, seconds, settings.memory, backend)
        if reference == [UNKNOWN]:
            score, error, wrong = float(run["status"] == "exact"), math.nan, False
        elif task == "PR":
            score, error, wrong = score_of_sum(path, run, float(reference[-1]))
        elif task == "MAR":
            score, error, wrong = score_of_marginals(path, run, marginals_of(reference))
            if score < DOUBTFUL and contradicts(path, marginals_of(reference)):
                print(f"MAR {stem}: left out, marginals of its reference contradict each other", file=sys.stderr)
                continue
        else:
            score, error, wrong = score_of_values(path, task, run, reference, seconds)
        where = f" {backend}" * (len(backends) > 1)
        row = {"instance": stem.removesuffix(".uai") + where, "status": run["status"], "score": score, "error": error}
        row |= {"seconds": run["wall"], "cpu": run["cpu"], "method": run.get("method", run.get("error", ""))}
        rows.append({**row, "wrong": wrong, "late": run["wall"] > seconds + LATEST})
        flags = " WRONG" * wrong + " late" * rows[-1]["late"]
        print(
            f"{task} {row['instance']}: {row['status']} {run.get('log10', '')}, score {score:.4f}, error {error:.3g}, "
            f"{row['seconds']:.1f} s, {row['cpu']:.1f} s of processors, {row['method']}{flags}",
            file=sys.stderr,
            flush=True,
        )
    return rows


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=TASKS, help=f"comma-separated, default {TASKS}; {TRACKS}: counts")
    parser.add_argument("--child", type=Path, metavar="FILE", help="count with Ganak, and print the logarithm")
    parser.add_argument("--instances", default="", help="comma-separated parts of names")
    parser.add_argument("--every", type=int, default=1, help="only each n-th instance")
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of each")
    parser.add_argument("--jobs", type=int, default=1, help="instances of a track at a time, on a core each")
    parser.add_argument("--memory", default="4GiB", help="memory limit of each")
    parser.add_argument("--backend", default="auto", help="of the UAI tasks; several, in turn, with commas")
    parser.add_argument("--folder", type=Path, help="instances of the UAI task, in place of the shared ones")
    parser.add_argument("--markdown", action="store_true", help="print the rows of the table of tasks")
    settings = parser.parse_args()
    if settings.child is not None:
        print(ganak(settings.child))
        return 0
    names = [name for name in settings.instances.split(",") if name]
    tasks = settings.tasks.split(",")
    table, is_good = [], True
    if tracks := [task for task in tasks if task in TRACKS.split(",")]:
        is_good = counts(tracks, names, settings)
    for task in (task for task in tasks if task not in tracks):
        rows = measure(task, settings.folder or data_folder() / "uai2014" / task, names, settings)
        if not rows:
            continue
        count = {status: sum(r["status"] == status for r in rows) for status in ("exact", "bounded", "estimated")}
        wrong, late = sum(r["wrong"] for r in rows), sum(r["late"] for r in rows)
        is_good &= not wrong and not late
        score = float(np.mean([r["score"] for r in rows]))
        table.append([f"UAI 2014 {task}", *map(str, (len(rows), *count.values(), wrong)), f"{score:.3f}", str(late)])
    header = ["set", "instances", "exact", "bounded", "estimated", "wrong", "mean score", "late"]
    if table:
        print_table([header, *table], settings.markdown)
    print(describe_run(["pyganak"]), file=sys.stderr if settings.markdown else sys.stdout)
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
