"""Many cases at once, in blocks of cases that are swept together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocbe.junction_trees.compiled import CompiledTree
from oocbe.junction_trees.evidence import UNOBSERVED, Cases
from oocbe.junction_trees.programs import Program
from oocbe.junction_trees.shares import Shares, shares_of
from oocbe.junction_trees.sweeping import blank, collect, distribute, evidence, prior
from oocbe.kernels.cpu.threads import run_all
from oocbe.kernels.cpu.trees.blocks import enter_evidence
from oocbe.system.deadline import look

EXACT, IMPOSSIBLE = "exact", "impossible"
"""Status of a case: its numbers are right up to rounding; or what it observes has the probability 0."""

BLOCK_CASES = 32
"""Cases swept together at most: a row's cost besides arithmetic is small then, and more only widen the working set."""

BLOCK_BYTES = 1 << 25
"""Bytes of a block's messages that are aimed at: what a processor's last cache holds, or little more."""

LEAST_CASES = 8
"""Cases of a block however large its messages are: a cache line of each row."""


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What a batch found.

    Attributes
    ----------
    marginals : by target, float64 (cases, domain size): posterior probabilities, 0 in impossible cases.
    joints : by pair of variables, float64 (cases, first's size, second's size); likewise.
    log_evidence : float64 (cases,), natural logarithm of the probability of what is observed; -inf where it is 0.
    status : str (cases,), :data:`EXACT` or :data:`IMPOSSIBLE`.
    """

    marginals: Mapping[str, NDArray[np.float64]]
    joints: Mapping[tuple[str, ...], NDArray[np.float64]]
    log_evidence: NDArray[np.float64]
    status: NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class _Sweep:
    """What all blocks have in common.

    Attributes
    ----------
    columns : variables that any case observes, or has a likelihood of. starts : where the rows of their values are.
    out : float64 (cases, values of all targets). logarithms : float64 (cases,). expected : float64 (rows,) or None.
    """

    tree: CompiledTree
    program: Program
    shares: Shares
    cases: Cases
    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    out: NDArray[np.float64]
    logarithms: NDArray[np.float64]


def sweep_cases(
    tree: CompiledTree, cases: Cases, targets: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posteriors of some variables, (cases, values of all of them), and logarithms of evidence, (cases,).

    Raises
    ------
    TimeLimitError : the deadline came.
    """
    if not tree.is_possible:
        return np.zeros((len(cases), sum(tree.problem.sizes[v] for v in targets))), np.full(len(cases), -np.inf)
    soft = np.zeros(cases.observed.shape[1], dtype=bool)
    soft[list(cases.likelihoods)] = True
    columns = np.flatnonzero((cases.observed != UNOBSERVED).any(axis=0) | soft)
    starts = np.stack([tree.variable_start[columns], tree.variable_start[columns + 1]], axis=1)
    shares = shares_of(tree, targets)
    program = tree.shape.program(columns.tolist(), targets)
    out = np.zeros((len(cases), int(shares.out_start[-1])))
    sweep = _Sweep(tree, program, shares, cases, columns, starts, out, np.full(len(cases), -np.inf))
    message_bytes = 2 * 8 * max(1, int(tree.variable_start[-1]))
    width = max(LEAST_CASES, min(BLOCK_CASES, BLOCK_BYTES // message_bytes))
    prior(tree, tree.is_log)  # computed once, and not by each thread
    every = np.arange(len(cases))
    blocks = [every[first : first + width] for first in range(0, len(every), width)]
    trusted = run_all(_sweep_block, [(sweep, block, tree.is_log) for block in blocks])
    doubtful = np.concatenate([np.empty(0, dtype=np.int64), *(b[~t] for b, t in zip(blocks, trusted, strict=True))])
    if len(doubtful):
        look()
        prior(tree, True)
        width = LEAST_CASES
        run_all(_sweep_block, [(sweep, doubtful[i : i + width], True) for i in range(0, len(doubtful), width)])
    out[sweep.logarithms == -np.inf] = 0.0
    return out, sweep.logarithms


def _sweep_block(sweep: _Sweep, block: NDArray[np.int64], is_log: bool) -> NDArray[np.bool_]:
    """Sweep over some cases; for which of them the result can be trusted. Others have none yet."""
    tree = sweep.tree
    before = prior(tree, is_log)
    messages = blank(tree, len(block), is_log)
    messages.peaks[:] = before.peaks
    messages.losses[:] = before.losses
    messages.logs[:] = before.logs
    observed = sweep.cases.observed[np.ix_(block, sweep.columns)]
    constants = (messages.nothing, messages.everything)
    enter_evidence(messages.values, before.values[:, 0], observed, sweep.starts, *constants)
    factors = np.zeros(len(block))
    for v, given in sweep.cases.likelihoods.items():
        own = given[block]
        greatest = own.max(axis=1)
        factors += np.log(greatest)
        scaled = (own / greatest[:, None]).T
        rows = messages.values[tree.variable_start[v] : tree.variable_start[v + 1]]
        if is_log:
            with np.errstate(divide="ignore"):
                rows += np.log(scaled)
        else:
            rows *= scaled
    collect(tree, sweep.program, messages)
    logarithms, trusted = evidence(tree, messages)
    posteriors = np.empty_like(messages.values)
    distribute(tree, sweep.program, messages, posteriors)
    found = np.zeros((len(block), sweep.out.shape[1]))
    sweep.shares.take(posteriors, found)
    sweep.out[block[trusted]] = found[trusted]
    sweep.logarithms[block[trusted]] = logarithms[trusted] + factors[trusted]
    return trusted
