"""Probing: a value is removed where propagating its assignment ends in a contradiction."""

from __future__ import annotations

from dataclasses import dataclass

from oocbe.propagation.bounds import FIXPOINT, INFEASIBLE, INTERRUPTED, LIMIT
from oocbe.propagation.fixpoint import Fixpoint, Network


@dataclass(eq=False)
class Probed:
    """Outcome of probing: the fixpoint reached, assignments tried, and how many of them were contradictions."""

    fixpoint: Fixpoint
    probes: int = 0
    failures: int = 0


def probe(network: Network, found: Fixpoint) -> Probed:
    """Probe all values from a fixpoint on, repeatedly, until none is a contradiction.

    Each failure is propagated at once, and its removals are added to ``found``'s rounds. The domains reached at the
    deadline are valid.
    """
    probed = Probed(found)
    domains = network.domains
    is_changed = True
    while is_changed and found.status == FIXPOINT:
        is_changed = False
        for v in range(len(network.problem.variables)):
            for value in domains.values(v).tolist():
                if domains.counts[v] == 1 or not domains.flags(v)[value]:
                    continue
                tried = network.tried(v, value)
                probed.probes += 1
                if tried.status in (LIMIT, INTERRUPTED):
                    found.status, found.reason = tried.status, tried.reason
                if tried.status == INFEASIBLE:
                    probed.failures += 1
                    is_changed = True
                    network.remove(v, value, found)
                if found.status != FIXPOINT:
                    return probed
    return probed
