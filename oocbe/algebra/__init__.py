"""Operators on tables: join sum, maximisation, both fused, and filters by hard constraints."""

from oocbe.algebra.convert import to_complete, to_rows
from oocbe.algebra.drop_forbidden import drop_forbidden
from oocbe.algebra.operators import join_marginalise, join_maximise, join_sum, marginalise, maximise
from oocbe.algebra.semi_join import semi_join

__all__ = [
    "drop_forbidden",
    "join_marginalise",
    "join_maximise",
    "join_sum",
    "marginalise",
    "maximise",
    "semi_join",
    "to_complete",
    "to_rows",
]
