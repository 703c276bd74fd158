"""Every compiled loop looks at a flag that ends it, or cannot run for longer than about a second; which and why.

A loop that is compiled runs without the interpreter: neither a time limit nor Ctrl-C gets through to it. So whoever
writes one decides here how it ends. What is said to look at the flag, or to be called piece by piece, is checked to do
so; the rest is said in words.
"""

from __future__ import annotations

import ast
import itertools
import re
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import oocbe
from oocbe.errors import TimeLimitError
from oocbe.kernels.cpu import threads
from oocbe.kernels.cpu.buckets.dominance import mark_dominated
from oocbe.kernels.cpu.orders.dissection import dissect
from oocbe.kernels.cpu.orders.estimate import estimate_rows
from oocbe.kernels.cpu.orders.graphs import graph_of_scopes, separators_of
from oocbe.kernels.cpu.orders.greedy_order import MIN_FILL, greedy_order, linear_order
from oocbe.kernels.cpu.orders.sparse_order import sparse_order
from oocbe.kernels.cpu.orders.windows import improve_windows
from oocbe.kernels.cpu.threads import LARGEST_CALL, row_ranges, run_all, tiled_ranges
from oocbe.runtime.deadline import Deadline, check_deadline, current, current_flag, unlimited

FLAG = "looks at the flag"

PIECES = "a piece of so many rows or cells that run_all, which calls it, looks at the deadline often enough"

NODE = "at most sixteen passes over the functions of one node, of at most 2^22 cells; the search of nodes is in calls"
LINEAR = (
    "the entries of the linear constraints at one node, a multiplier's few tries included; rounds of work are limited"
)

WITHIN_PIECE = "works on what the piece that calls it works on"

A_ROW = "one row or one bit set: at most some thousands of steps"

A_TABLE = "one pass over entries of lookups, of which there are at most 2^20 each"

A_CHUNK = "one pass over a chunk of a stored table, about a million rows unless somebody asks for more"

ONE_PASS = "a single pass over rows that are in memory, about a nanosecond each"

NODES = "branch and bound over at most 64 literals, which gives up after some thousand nodes"

SEARCH = "one call has so many iterations that they look at ten million slots, or 2000"

LITERALS = "at most 256 cliques, or greedy attempts from 64 vertices, a call; the time is looked at between calls"

SYNTHETIC = "synthetic tables, made and checked in chunks of a million rows; no time limit applies"

A_CELL = "the tables of one bucket at one joined cell; its caller looks at the flag"

DECISION = "the clauses of one decision or conflict; count_models, which calls it, looks at the flag between two"

COMPONENT = "one pass over the variables and clauses of a component; count_models looks at the flag between two"


LOOPS = {
    "sort.ascent": A_CHUNK,
    "sort.exceeds_domains": A_CHUNK,
    "local_cuts.grow_neighbourhood": NODES,
    "local_cuts.pack_subproblem": NODES,
    "table_rows.build_supports": "the cells of a table whose bit sets have at most 2^29 bytes; its caller looks before",
    "table_rows.update_rows": FLAG,
    "table_rows.filter_values": "the words of bit sets of at most 2^29 bytes, once at most",
    "table_rows.undo": "words that have changed since a trial began",
    "bit_pack._bit_length": A_ROW,
    "bit_pack._turned": A_CHUNK,
    "bit_pack._measure": A_CHUNK,
    "bit_pack.best_rotation": A_CHUNK,
    "bit_pack.measure_blocks": A_CHUNK,
    "bit_pack.pack_blocks": A_CHUNK,
    "bit_pack.check_headers": A_CHUNK,
    "bit_pack.unpack_blocks": A_CHUNK,
    "bit_pack._unpack": A_CHUNK,
    "capped_costs._add": PIECES,
    "capped_costs._lower": PIECES,
    "cliques._common": A_ROW,
    "cliques._take": A_ROW,
    "cliques._best_connected": LITERALS,
    "cliques.covering_cliques": LITERALS,
    "cliques.violated_cliques": LITERALS,
    "clique_rows.trie_children": ONE_PASS,
    "clique_rows.walk": FLAG,
    "clique_rows._moved": FLAG,
    "clique_rows.keep_groups": FLAG,
    "fields._moved": A_CHUNK,
    "fields.narrow": A_CHUNK,
    "fields.widen": A_CHUNK,
    "narrow_buckets._advance": A_CELL,
    "narrow_buckets._joined": A_CELL,
    "narrow_buckets._begun": "the scopes of one bucket's tables; its caller looks at the flag",
    "narrow_buckets._walk": "one pass over the variables",
    "narrow_buckets._scale": "one pass over the cells of one message",
    "narrow_buckets.choose_values": "one pass over the scopes of all messages",
    "narrow_buckets.count_within": FLAG,
    "narrow_buckets.descend": FLAG,
    "narrow_buckets.descend_gaps": FLAG,
    "narrow_buckets.eliminate": FLAG,
    "node_state._is_row": ONE_PASS,
    "node_state._tied_value": ONE_PASS,
    "node_state.near_uses": ONE_PASS,
    "node_state._keep": NODE,
    "node_state.close": NODE,
    "node_state._is_sum": NODE,
    "node_state._weigh": NODE,
    "node_state.go_back": NODE,
    "node_state.begin_root": NODE,
    "clique_rows.number_rows": FLAG,
    "clique_rows.draw_piece": FLAG,
    "complete_cliques._offsets": "a hundred numbers of each table of a clique",
    "complete_cliques._join": "an inner loop of a clique",
    "complete_cliques._sum": "an inner loop of a clique",
    "complete_cliques.add_up_products": FLAG,
    "complete_cliques.weight_ends": "the cells of one factor or message",
    "complete_copy._copy_runs": PIECES,
    "complete_dense._runs": PIECES,
    "complete_dense._join_flat": WITHIN_PIECE,
    "complete_dense._more_dense": WITHIN_PIECE,
    "complete_dense._one_dense": WITHIN_PIECE,
    "complete_dense._two_dense": WITHIN_PIECE,
    "complete_dense.clamp": WITHIN_PIECE,
    "complete._eliminate": PIECES,
    "complete._join": WITHIN_PIECE,
    "complete._accumulate": WITHIN_PIECE,
    "complete._take_logarithm": WITHIN_PIECE,
    "complete_dense.open_one": WITHIN_PIECE,
    "complete_dense.open_two": WITHIN_PIECE,
    "complete_dense.join_into": WITHIN_PIECE,
    "complete_dense.fold_one": WITHIN_PIECE,
    "complete_dense.fold_two": WITHIN_PIECE,
    "complete_dense.fold_four": WITHIN_PIECE,
    "complete_copy._cells": PIECES,
    "complete_copy._list_rows": PIECES,
    "consumption_runs.push": ONE_PASS + "; its caller looks at the flag after each",
    "consumption_runs.merge_short": ONE_PASS + "; its caller looks at the flag after each",
    "consumption_runs.moved_to_stack": ONE_PASS + "; its caller looks at the flag after each",
    "consumption_runs._merge": FLAG,
    "consumption_runs.settle": FLAG,
    "consumption_leaf.join_consumption_leaves": "its leaves look at the flag",
    "consumption_leaf.join_consumptions": FLAG,
    "consumption_leaf.write_rows": ONE_PASS,
    "depth_first._choose": NODE,
    "depth_first._value": NODE,
    "depth_first._middle": NODE,
    "depth_first._decide": NODE,
    "depth_first.search_depth_first": "nodes of one call, for some hundredths of a second; its caller looks after each",
    "depth_first.restore": NODE,
    "dominance.mark_dominated": FLAG,
    "dominance._is_below": A_ROW,
    "dual_ascent._scratch": "one pass over variables and functions",
    "dual_ascent.sweep": FLAG,
    "dual_ascent.least_of_values": A_TABLE,
    "dual_ascent.least_of_functions": "one pass over the cells of all functions, of which there are at most 2^24",
    "dual_ascent.lower_shares": "the cells of each function, once for each of its variables",
    "dual_ascent._reaches": "the variables of one function",
    "estimate.estimate_rows": FLAG,
    "outside_terms._least_entry": A_ROW,
    "outside_terms.sum_outside": "four passes over the terms of a relaxation, as many as the problem's factors",
    "fields._permute_rows": PIECES,
    "fields.moved_word": A_ROW,
    "filters._keep_by_search": PIECES,
    "graphs.list_separators": FLAG,
    "graphs.search_depth_first": FLAG,
    "dissection._reach": "one breadth-first search; its caller looks at the flag",
    "dissection._augment": "one path; its caller looks at the flag",
    "dissection._forget": "one pass over the vertices; its caller looks at the flag",
    "dissection._distances": "one breadth-first search; its caller looks at the flag",
    "dissection._separator": FLAG,
    "dissection.dissect": FLAG,
    "greedy_order.members_of": A_ROW,
    "greedy_order._score": "the neighbours of one vertex; its caller looks at the flag",
    "greedy_order.greedy_order": FLAG,
    "graphs.graph_of_scopes": FLAG,
    "graphs.separators_of": FLAG,
    "graphs.added_up": "one pass over the vertices",
    "graphs.summed": "one pass over the edges of the filled graph",
    "graphs.turned": "two passes over the members of all sets",
    "greedy_order.linear_order": FLAG,
    "greedy_order._peripheral": "three breadth-first searches; its caller looks at the flag",
    "sparse_order._placed": "from a place in a heap to another; its caller looks at the flag",
    "sparse_order._live": "the neighbours of one vertex; its caller looks at the flag",
    "sparse_order._score": "the neighbours of one vertex and of these; its caller looks at the flag",
    "sparse_order.sparse_order": FLAG,
    "windows._window": "a few hundred vertices and their neighbours in a tree; its caller looks at the flag",
    "windows._window_graph": "the neighbours of a few hundred vertices; its caller looks at the flag",
    "windows.improve_windows": FLAG,
    "groups.differs": A_ROW,
    "groups._count_starts": PIECES,
    "groups._fill_starts": PIECES,
    "groups._compare": A_ROW,
    "groups._match": PIECES,
    "join_reduce._gather_join": PIECES,
    "join_reduce._next_run": "to the end of one group of rows",
    "join_reduce._slot": A_ROW,
    "join_reduce._read_values": WITHIN_PIECE,
    "join_reduce._read_changes": WITHIN_PIECE,
    "join_reduce._accumulate_bucket": WITHIN_PIECE,
    "join_reduce._join_reduce": PIECES,
    "depth_first._relaxed": LINEAR,
    "depth_first._multiplier": LINEAR,
    "depth_first._exclude": LINEAR,
    "depth_first._charge": LINEAR,
    "depth_first.ascend_with_linear": LINEAR,
    "linear_rows.activities_of": ONE_PASS,
    "linear_rows.coefficients_of_uses": ONE_PASS,
    "linear_rows._spread": A_ROW,
    "linear_rows._propagate_exact": A_ROW,
    "linear_rows.propagate_probes": FLAG,
    "linear_rows.propagate_round": FLAG,
    "linear_rows.propagate_row": "the entries of one row, twice; its caller looks",
    "linear_rows.tile_rows": ONE_PASS,
    "local_cuts.heaviest": NODES,
    "local_cuts.separate": NODES,
    "local_cuts.lift": NODES,
    "local_search._best_move": SEARCH,
    "local_search._best_kept_move": SEARCH,
    "local_search._move": SEARCH,
    "local_search._balance": SEARCH,
    "local_search._record": SEARCH,
    "local_search._search": FLAG,
    "local_search._kick": SEARCH,
    "join_arrays.merge_constraints": A_TABLE,
    "join_arrays.merge_functions": A_TABLE,
    "join_arrays.mark_free": A_TABLE,
    "join_arrays.merge_bound_tables": A_TABLE,
    "dominance.add_penalties": "pairs of values of one variable, of at most 256, for each factor that mentions it",
    "dominance.collect_substitutions": "pairs of values, at most 256 of each variable, for a separator's variables",
    "join_reduce._reduce": PIECES,
    "projection.project_pair": WITHIN_PIECE,
    "projection.project_triple": WITHIN_PIECE,
    "projection.project_table": WITHIN_PIECE,
    "sort.find_rows": "a binary search for each row of a piece of at most some million",
    "local_search._sparse_entry": SEARCH,
    "local_search._add_costs": SEARCH,
    "local_search.victim_of": SEARCH,
    "local_search._add_shares": SEARCH,
    "local_search.rebuild": SEARCH,
    "local_search.assign": SEARCH,
    "sweeps.collect_one": FLAG,
    "sweeps.distribute_one": FLAG,
    "sweeps.draw_rows": ONE_PASS + ", and a binary search a sample",
    "sweeps.evidence_one": "a number of each clique of a tree",
    "stable_sets._lowest": A_ROW,
    "stable_sets._highest": A_ROW,
    "stable_sets._share_out": "one node, of at most 2048 vertices; the search of nodes is in calls",
    "stable_sets.begin_stable_sets": "one node, of at most 2048 vertices; the search of nodes is in calls",
    "stable_sets.search_stable_sets": "nodes of one call, for some hundredths of a second; its caller looks after each",
    "node_state._project_tie": NODE,
    "node_state._project_small_triple": NODE,
    "node_state._mark_others": NODE,
    "node_state.propagate_removal": NODE,
    "node_state.collect": NODE,
    "node_state._take": NODE,
    "node_state._hand_on_open": NODE,
    "node_state._worst_losses": NODE,
    "node_state._remove_dominated": NODE,
    "node_state.tighten_node": NODE,
    "table_elimination.eliminate_variable": "2^24 joined cells at most, a third of a second; its caller looks after it",
    "sort._differing_bits": PIECES,
    "sort._count_digit": PIECES,
    "sort._scatter_digit": PIECES,
    "sort._gather_rows": PIECES,
    "sort._sort_bucket": PIECES,
    "sweeps._visit": FLAG,
    "sweeps._locate": "the edges of a clique",
    "sweeps.enter_evidence": ONE_PASS + ", for the cases of a block",
    "sweeps.take_shares": ONE_PASS + ", for the cases of a block",
    "sweeps.scale_message": "rows of one message, once",
    "sweeps.finish_shares": "rows of one message, twice",
    "sweeps.collect": FLAG,
    "sweeps.distribute": FLAG,
    "synthetic._class_of": SYNTHETIC,
    "synthetic.best_own": SYNTHETIC,
    "synthetic.digest_rows": SYNTHETIC,
    "synthetic.fill_in_order": SYNTHETIC,
    "synthetic.fill_rows": SYNTHETIC,
    "synthetic.read_rank": SYNTHETIC,
    "synthetic.check_join": SYNTHETIC,
    "synthetic.check_maximum": SYNTHETIC,
    "table_rows._keep_rows": FLAG,
    "table_rows.scan_table": FLAG,
    "table_rows.count_forbidden": FLAG,
    "table_rows.filter_tables": FLAG,
    "table_rows.filter_linear": "the coefficients of one linear constraint: one a value of its variables",
    "limb_leaf.multiplied": "the limbs of two counts",
    "limb_leaf.loaded": "the limbs of a count",
    "limb_leaf.add_product": "the limbs of a count",
    "limb_leaf._begin_row": "the limbs of a count",
    "limb_leaf.combine_counts": FLAG,
    "limb_leaf.merge_counts": "the rows of one leaf, of which the flag is looked at for each product",
    "limb_leaf.write_counts": ONE_PASS,
    "table_elimination.drop_unneeded": FLAG,
    "table_elimination.mark_divisible": "2^18 cells or one function, at most once for each pair of its variables",
    "bucket_join.join_values": A_ROW,
    "bucket_join.join_value_leaves": "the leaves of a frontier; the walk looks at the flag between two",
    "bucket_join.walk_on": FLAG,
    "walk_steps.gather": A_ROW,
    "walk_steps.bound_part": A_ROW,
    "walk_steps.least_value": A_ROW,
    "walk_steps.group_end": A_ROW,
    "walk_steps.seek": A_ROW,
    "walk_steps.rows_of_leaf": A_ROW,
    "visits.list_visits": "two passes over the edges of a tree",
    "visits._list_reads": "the edges of one clique, twice",
    "clause_learning._is_implied": DECISION,
    "clause_learning._learn_reduced": DECISION,
    "clause_learning.analyse": DECISION,
    "clause_learning.forget_clauses": ONE_PASS,
    "clause_learning.learn": DECISION,
    "clause_learning.propagate": DECISION,
    "clause_learning.raise_bump": DECISION,
    "clause_learning.undo": DECISION,
    "clause_learning.watch": DECISION,
    "clause_learning.watch_all": ONE_PASS,
    "count_models._cached": COMPONENT,
    "count_models._drop_pure": COMPONENT,
    "count_models._has_saved_model": COMPONENT,
    "count_models._keep_together": COMPONENT,
    "count_models._sort": COMPONENT,
    "count_models._visit": COMPONENT,
    "count_models._write_key": COMPONENT,
    "count_models.evict": ONE_PASS,
    "count_models.find_components": COMPONENT,
    "count_models.index_entries": ONE_PASS,
    "count_models.remove_latest": ONE_PASS,
    "count_models.store": COMPONENT,
    "count_models._begin_branch": DECISION,
    "count_models._choose": DECISION,
    "count_models._complete": DECISION,
    "count_models._is_zero": DECISION,
    "count_models._resolve": DECISION,
    "count_models.count_models": DECISION,
    "log_tables._log_total": ONE_PASS,
    "log_tables.add_logarithms": ONE_PASS,
    "log_tables.power_sums": ONE_PASS,
    "log_tables._send": FLAG,
    "log_tables.send_beliefs": FLAG,
    "clause_learning._open_literal": A_ROW,
    "clause_learning.define": A_ROW,
    "clause_learning.probe": A_ROW,
}
"""How each compiled loop ends: by module and function."""


@cache
def compiled_loops() -> dict[str, tuple[str, str]]:
    """Source of each compiled function with a loop, and of its module, by the names of both."""
    found = {}
    for path in sorted(Path(oocbe.__file__).parent.glob("**/kernels/cpu/**/*.py")):
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                names = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
                has_loop = any(isinstance(inner, ast.For | ast.While) for inner in ast.walk(node))
                if names & {"jit", "jit_at_once", "inline", "helper", "borrowing", "without_allocation"} and has_loop:
                    source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                    found[f"{path.stem}.{node.name}"] = (source, text)
    return found


def test_every_loop_has_its_reason():
    """A new loop is to be added to LOOPS, with what ends it; one that is gone, to be removed."""
    assert set(compiled_loops()) == set(LOOPS)


def test_what_is_said_to_look_at_the_flag_does():
    loops = compiled_loops()
    for name, reason in LOOPS.items():
        assert (reason == FLAG) == ("stop[0] != 0" in loops[name][0]), name


def test_what_is_said_to_be_called_in_pieces_is():
    loops = compiled_loops()
    for name, reason in LOOPS.items():
        calls = re.search(rf"run_all\(\s*{name.split('.')[1]}\b", loops[name][1])
        assert (reason == PIECES) == bool(calls), name


def test_pieces_are_no_larger_than_a_call_may_be(monkeypatch):
    monkeypatch.setattr(threads, "LARGEST_CALL", 1 << 15)
    for rows in (0, 1, 1 << 15, (1 << 20) + 7):
        ranges = row_ranges(rows)
        assert ranges[0][0] == 0 and ranges[-1][1] == rows
        assert all(b - a < 2 << 15 for a, b in ranges)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    for cells, tile, runs, work in ((1 << 20, 256, 1, 1), (512, 256, 5000, 3), (300, 300, 1 << 12, 10)):
        pieces = tiled_ranges(cells, tile, runs, work)
        assert sum((high - low) * (last - first) for low, high, first, last in pieces) == cells * runs
        largest = max((high - low) * (last - first) * work for low, high, first, last in pieces)
        assert largest <= max(2 << 15, 2 * tile * work * min(runs, 2), 2 * cells * work)
    assert LARGEST_CALL >> 20 > 1


@pytest.mark.parametrize("count", [1, 2, 40])
def test_no_call_begins_after_the_deadline(count, monkeypatch):
    monkeypatch.setenv("OOCBE_THREADS", "2")
    begun = []

    def call(number, deadline):
        begun.append(number)
        deadline.interrupt()  # comes while this one works

    with Deadline(1e9) as deadline:
        if count == 1:
            run_all(call, [(0, deadline)])
        else:
            with pytest.raises(TimeLimitError):
                run_all(call, [(number, deadline) for number in range(count)] + [(count, deadline)] * 2)
        assert 1 <= len(begun) <= 2  # each thread had begun one
        with pytest.raises(TimeLimitError):
            run_all(call, [(0, deadline)])
    run_all(call, [(0, deadline)])  # outside of the block


def test_deadlines_nest():
    assert current() is None
    check_deadline()
    with Deadline(100.0) as outer:
        with Deadline(1000.0) as inner:
            assert current() is inner and inner.remaining <= 100
            assert current_flag() is inner.flag
            inner.interrupt()
            with pytest.raises(TimeLimitError):
                check_deadline()
            with unlimited():
                check_deadline()
                assert current() is None and not current_flag().any()
        assert current() is outer
        check_deadline()
        with Deadline() as unbounded:
            assert unbounded.remaining <= 100
        with Deadline(1.0) as shorter:
            assert shorter.remaining <= 1
        seen = []
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
        assert seen == [None]
    assert current() is None


STOPPED = np.ones(1, dtype=np.int64)


def random_graph(count):
    matrix = np.random.default_rng(0).random((count, count)) < 0.2
    matrix = np.triu(matrix, 1)
    matrix = matrix | matrix.T
    packed = np.zeros((count, -(-count // 64) * 8), dtype=np.uint8)
    bits = np.packbits(matrix, axis=1, bitorder="little")
    packed[:, : bits.shape[1]] = bits
    return packed.view(np.uint64)


def test_stopped_searches_leave_orders_of_all_vertices():
    graph, ones, never = random_graph(70), np.ones(70), np.zeros(1, dtype=np.int64)
    edges = np.argwhere(np.unpackbits(graph.view(np.uint8), axis=1, bitorder="little")).astype(np.int32)
    scopes = (2 * np.arange(len(edges) + 1), edges.ravel())
    starts, neighbours, is_whole = graph_of_scopes(*scopes, 70, 1 << 20, never)
    assert is_whole and not graph_of_scopes(*scopes, 70, 1 << 20, STOPPED)[2]
    greedy, _ = greedy_order(graph.copy(), ones, MIN_FILL, 0, ones, np.inf, never, STOPPED)
    linear = linear_order(starts, neighbours, ones, 0, np.inf, never, STOPPED)[0]
    lists = (starts, neighbours, ones, MIN_FILL, 0, ones, np.inf, 1 << 20, 0.0)
    sparse, _ = sparse_order(*lists, never, never, STOPPED)
    assert all(sorted(order.tolist()) == list(range(70)) for order in (greedy, linear, sparse))
    assert not dissect(starts, neighbours, 4, 2, 0, never, STOPPED).any()
    sets = separators_of(starts, neighbours, greedy, 1 << 20, never)[:2]
    lists = (starts, neighbours, ones)
    same, gain = improve_windows(lists, (greedy, *sets), ones, (20, 8, 8), 0, never, STOPPED)
    assert (same == greedy).all() and gain == 0
    assert separators_of(starts, neighbours, greedy, 1 << 20, never)[2]
    assert not separators_of(starts, neighbours, greedy, 1 << 20, STOPPED)[2]
    none = np.zeros(71, dtype=np.int64)
    limits = (np.full(70, np.inf), np.inf, STOPPED)
    two = np.full(70, 2, dtype=np.int64)
    assert not estimate_rows(
        starts, neighbours, two, none, none[:0], none[:0], np.zeros(1, np.uint64), 8, 0, *limits
    ).any()


def test_stopped_marking_leaves_rows():
    keys, values = np.arange(4, dtype=np.uint64)[None, :], np.array([5, 1, 7, 1])
    field = (0, np.uint64(0), np.uint64(1))
    pairs = (np.array([0, 1, 1]), np.array([1]), np.array([0]))
    for stop, expected in ((np.zeros(1, np.int64), [1, 0, 1, 0]), (STOPPED, [0, 0, 0, 0])):
        marked = np.zeros(4, dtype=np.uint8)
        mark_dominated(keys, values, keys, values, field, *pairs, None, None, 1, marked, stop)
        assert marked.tolist() == expected
