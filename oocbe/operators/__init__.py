"""Operators on tables: join sum, maximisation, both fused, and filters by hard constraints."""

from oocbe.operators.convert import to_complete, to_rows
from oocbe.operators.drop_forbidden import drop_forbidden
from oocbe.operators.join_maximise import join_maximise
from oocbe.operators.join_sum import join_sum
from oocbe.operators.maximise import maximise

__all__ = ["drop_forbidden", "join_maximise", "join_sum", "maximise", "to_complete", "to_rows"]
