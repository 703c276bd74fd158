"""Results of agents; the same content as ``oocbe dcop --json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oocbe.model.parts import Variable
from oocbe.model.results.numerals import SCHEMA_VERSION, Answer, content

UTIL_FIELDS = "sender receiver separator cells complete_bytes tables rows stored_bytes seconds"
"""Attributes of a UTIL message in JSON."""


@dataclass(frozen=True, kw_only=True)
class UtilMessage:
    """Size and cost of one UTIL message.

    Attributes
    ----------
    sender, receiver : variables. separator : variables of the message, the receiver first.
    cells : of its tables in complete form; ``complete_bytes``: their bytes.
    tables, rows, stored_bytes : of its tables as made. seconds : its sender's work for it.
    """

    sender: str
    receiver: str
    separator: tuple[str, ...]
    cells: int
    complete_bytes: int
    tables: int
    rows: int
    stored_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DcopMetrics:
    """Cost of the agents' work, as measured by Fioretto et al. (2018), sections 7 and 8.

    Attributes
    ----------
    agents, variables, trees : their numbers; one tree per connected component of the primal graph.
    heuristic, width, height : of the pseudo-trees.
    util_messages, value_messages : sent so far; finally one of each per tree edge.
    messages_between_agents : UTIL messages whose sender and receiver belong to different agents.
    largest_message : the one with the most cells. messages : all UTIL messages, in order of arrival.
    simulated_seconds : see :mod:`oocbe.dcop.protocol`. work_seconds : all agents' work.
    """

    agents: int
    variables: int
    trees: int
    heuristic: str
    width: int
    height: int
    util_messages: int
    value_messages: int
    messages_between_agents: int
    messages: tuple[UtilMessage, ...] = field(repr=False)
    simulated_seconds: float
    work_seconds: float

    @property
    def largest_message(self) -> UtilMessage | None:
        """The message with the most cells; None without any."""
        return max(self.messages, key=lambda m: m.cells, default=None)

    def to_json(self, with_messages: bool) -> dict[str, object]:
        """Everything as JSON types; with_messages : whether to include every message."""
        numbers = "agents variables trees heuristic width height util_messages value_messages messages_between_agents"
        largest = self.largest_message
        return {
            **content(self, numbers),
            "largest_message": None if largest is None else content(largest, UTIL_FIELDS),
            "total_cells": sum(m.cells for m in self.messages),
            "total_rows": sum(m.rows for m in self.messages),
            "total_stored_bytes": sum(m.stored_bytes for m in self.messages),
            **content(self, "simulated_seconds work_seconds"),
            **({"messages": [content(m, UTIL_FIELDS) for m in self.messages]} if with_messages else {}),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class DcopResult(Answer):
    """Outcome of DPOP or ADPOP.

    Attributes
    ----------
    problem, semiring, sense, variables : of the problem. algorithm : ``dpop`` or ``adpop``. z : of ADPOP, else None.
    status : ``optimal``; ``bounded`` (ADPOP) if bound and value differ; ``infeasible``; ``limit`` or ``interrupted``
        after the time limit or a signal.
    value : of ``assignment``, evaluated by the problem; None without one.
    bound : no assignment is better; None if unknown, or if nothing is feasible.
    assignment : value index of each variable, or None.
    metrics : of the work so far. dtype, backend : of the messages. workers : processes; 0: only this one.
    seconds : wall time by phase: ``read`` if a file was read, ``tree``, ``util``, ``value``, ``total``.
    peak_memory_bytes : largest resident set of this process. notes : sentences for display.
    """

    problem: str
    semiring: str
    sense: str
    variables: tuple[Variable, ...]
    algorithm: str
    z: int | None
    status: str
    value: int | float | None
    bound: int | float | None
    assignment: tuple[int, ...] | None
    metrics: DcopMetrics
    dtype: str
    backend: str
    workers: int
    seconds: Mapping[str, float]
    peak_memory_bytes: int
    notes: tuple[str, ...] = ()

    def to_json(self, with_messages: bool = False) -> dict[str, object]:
        """Everything as JSON types, with ``schema_version``; with_messages : whether to include each message's
        figures."""
        return {
            "schema_version": SCHEMA_VERSION,
            **content(self, "status value bound problem semiring sense algorithm z"),
            "metrics": self.metrics.to_json(with_messages),
            **content(self, "dtype backend workers seconds peak_memory_bytes notes"),
            "assignment": self.labels,
        }
