"""Functions by keyword in ``wcsp`` files: global cost functions that decompose exactly, and relations of two variables.

The keywords and what follows them are in toulbar2's manual; what each means is what toulbar2 computes. Supported are
those in :data:`KEYWORDS`, with the metrics that toulbar2 has for each; others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable

from oocbe.formats import global_counts, global_sums, global_walks
from oocbe.formats.global_reader import GlobalReader

KEYWORDS: dict[str, Callable[[GlobalReader], None]] = {
    "alldiff": global_counts.all_different,
    "salldiff": global_counts.all_different_soft,
    "salldiffdp": global_counts.all_different_network,
    "salldiffkp": global_counts.all_different_hard,
    "walldiff": global_counts.all_different_network,
    "walldifferent": global_counts.all_different_network,
    "samong": global_counts.among_soft,
    "samongdp": global_counts.among_soft,
    "wamong": global_counts.among,
    "wvaramong": global_counts.among_variable,
    "gcc": global_counts.cardinalities_hard,
    "sgcc": global_counts.cardinalities_soft,
    "sgccdp": global_counts.cardinalities,
    "sgcckp": global_counts.cardinalities,
    "wgcc": global_counts.cardinalities,
    "ssame": global_counts.same_soft,
    "wsame": global_counts.same,
    "wsamegcc": global_counts.same,
    "woverlap": global_counts.overlap,
    "wdiverse": global_counts.diverse,
    "whdiverse": global_counts.diverse,
    "wtdiverse": global_counts.diverse,
    "clique": global_sums.clique,
    "knapsack": global_sums.knapsack,
    "knapsackc": global_sums.knapsack_of_values,
    "knapsackp": global_sums.knapsack_of_values,
    "knapsackv": global_sums.knapsack_by_triplets,
    "wsum": global_sums.total,
    "wvarsum": global_sums.total_variable,
    "sregular": global_walks.regular,
    "sregulardp": global_walks.regular,
    "wregular": global_walks.regular_weighted,
    "sgrammar": global_walks.grammar,
    "sgrammardp": global_walks.grammar,
    "max": global_walks.largest,
    "smaxdp": global_walks.largest,
    "MST": global_walks.spanning_tree,
    "smstdp": global_walks.spanning_tree,
    **dict.fromkeys(global_sums.RELATIONS, global_sums.relation),
    "disj": global_sums.disjunction,
    "sdisj": global_sums.disjunction_special,
}
"""Keywords and what reads them."""


def read_global(reader: GlobalReader) -> int:
    """Read what follows a keyword; returns the token after it. UnsupportedError by name for what is not supported."""
    if reader.keyword not in KEYWORDS:
        raise reader.unsupported(f"is not supported; those that are: {', '.join(KEYWORDS)}")
    KEYWORDS[reader.keyword](reader)
    return reader.cursor
