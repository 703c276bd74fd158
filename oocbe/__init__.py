"""An out-of-core engine for incomplete tables: bucket elimination and its family, exact and at scale.

>>> import oocbe
>>> problem = oocbe.Problem(
...     variables=(oocbe.Variable("a", 2), oocbe.Variable("b", 2)),
...     functions=(oocbe.Function.from_array((0, 1), [[4, 1], [2, 7]]),),
... )
>>> result = oocbe.solve(problem)
>>> result.value, result.labels
(1, {'a': '0', 'b': '1'})

Names are imported when they are first used (PEP 562), so that ``import oocbe`` and ``oocbe --help`` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oocbe.algebra.complete import to_complete as to_complete
    from oocbe.algebra.complete import to_rows as to_rows
    from oocbe.algebra.filters import semi_join as semi_join
    from oocbe.algebra.operators import join_marginalise as join_marginalise
    from oocbe.algebra.operators import join_maximise as join_maximise
    from oocbe.algebra.operators import join_sum as join_sum
    from oocbe.algebra.operators import marginalise as marginalise
    from oocbe.algebra.operators import maximise as maximise
    from oocbe.algebra.result_memory import result_memory as result_memory
    from oocbe.api.aggregation import aggregate as aggregate
    from oocbe.api.einsum import einsum as einsum
    from oocbe.api.einsum import einsum_path as einsum_path
    from oocbe.api.facade import bound as bound
    from oocbe.api.facade import plan as plan
    from oocbe.api.facade import propagate as propagate
    from oocbe.api.facade import solve as solve
    from oocbe.api.facade import verify as verify
    from oocbe.api.tasks.anytime import anytime as anytime
    from oocbe.api.tasks.many import Outcome as Outcome
    from oocbe.api.tasks.many import solve_many as solve_many
    from oocbe.api.tasks.verbs import count as count
    from oocbe.api.tasks.verbs import count_optimal as count_optimal
    from oocbe.api.tasks.verbs import k_best as k_best
    from oocbe.api.tasks.verbs import log_partition as log_partition
    from oocbe.api.tasks.verbs import marginals as marginals
    from oocbe.api.tasks.verbs import min_marginals as min_marginals
    from oocbe.api.tasks.verbs import most_probable_explanation as most_probable_explanation
    from oocbe.elimination.observer import Observer as Observer
    from oocbe.errors import ClusterError as ClusterError
    from oocbe.errors import CorruptDataError as CorruptDataError
    from oocbe.errors import FormatError as FormatError
    from oocbe.errors import LimitError as LimitError
    from oocbe.errors import ModelError as ModelError
    from oocbe.errors import OocbeError as OocbeError
    from oocbe.errors import ResourceError as ResourceError
    from oocbe.errors import UnsupportedError as UnsupportedError
    from oocbe.errors import UsageError as UsageError
    from oocbe.errors import ValueRangeError as ValueRangeError
    from oocbe.formats import read as read
    from oocbe.formats import read_model as read_model
    from oocbe.formats import write as write
    from oocbe.formats.networks import from_pgmpy as from_pgmpy
    from oocbe.formats.networks import from_pyagrum as from_pyagrum
    from oocbe.formats.networks import to_pgmpy as to_pgmpy
    from oocbe.formats.networks import to_pyagrum as to_pyagrum
    from oocbe.formats.solutions import Verdict as Verdict
    from oocbe.junction_trees.fitting import fit_tables as fit_tables
    from oocbe.junction_trees.tree import JunctionTree as JunctionTree
    from oocbe.model.compact_problem import CompactProblem as CompactProblem
    from oocbe.model.compact_problem import ShortTable as ShortTable
    from oocbe.model.linear_system import LinearSystem as LinearSystem
    from oocbe.model.parts import Constraint as Constraint
    from oocbe.model.parts import Function as Function
    from oocbe.model.parts import LinearConstraint as LinearConstraint
    from oocbe.model.parts import Variable as Variable
    from oocbe.model.problem import Problem as Problem
    from oocbe.model.results.anytime_result import AnytimeResult as AnytimeResult
    from oocbe.model.results.bound_result import BoundResult as BoundResult
    from oocbe.model.results.propagation_result import PropagationResult as PropagationResult
    from oocbe.model.results.result import Result as Result
    from oocbe.model.results.task_result import TaskResult as TaskResult
    from oocbe.model.run_verb import Interrupted as Interrupted
    from oocbe.model.semiring import COUNTING as COUNTING
    from oocbe.model.semiring import LOG_SUM_EXP as LOG_SUM_EXP
    from oocbe.model.semiring import MAX_PRODUCT as MAX_PRODUCT
    from oocbe.model.semiring import MAX_SUM as MAX_SUM
    from oocbe.model.semiring import MIN_SUM as MIN_SUM
    from oocbe.model.semiring import SEMIRINGS as SEMIRINGS
    from oocbe.model.semiring import SUM_PRODUCT as SUM_PRODUCT
    from oocbe.model.semiring import Semiring as Semiring
    from oocbe.model.settings.options import SolveOptions as SolveOptions
    from oocbe.runtime.tracing.trace_file import trace as trace
    from oocbe.tables.common_domains import common_domains as common_domains
    from oocbe.tables.complete import CompleteTable as CompleteTable
    from oocbe.tables.layout import Layout as Layout
    from oocbe.tables.packed import PackedTable as PackedTable
    from oocbe.tables.stored import StoredCompleteTable as StoredCompleteTable
    from oocbe.tables.stored import StoredTable as StoredTable
    from oocbe.tables.table import Table as Table

__version__ = "0.1.0"

_HOMES = {
    "oocbe.errors": (
        "ClusterError CorruptDataError FormatError LimitError ModelError OocbeError ResourceError UnsupportedError "
        "UsageError ValueRangeError"
    ),
    "oocbe.model.results.anytime_result": "AnytimeResult",
    "oocbe.model.results.bound_result": "BoundResult",
    "oocbe.api.aggregation": "aggregate",
    "oocbe.api.einsum": "einsum einsum_path",
    "oocbe.api.facade": "bound plan propagate solve verify",
    "oocbe.model.run_verb": "Interrupted",
    "oocbe.formats": "read read_model write",
    "oocbe.formats.networks": "from_pgmpy from_pyagrum to_pgmpy to_pyagrum",
    "oocbe.junction_trees.fitting": "fit_tables",
    "oocbe.junction_trees.tree": "JunctionTree",
    "oocbe.elimination.observer": "Observer",
    "oocbe.algebra.complete": "to_complete to_rows",
    "oocbe.algebra.operators": "join_marginalise join_maximise join_sum marginalise maximise",
    "oocbe.algebra.result_memory": "result_memory",
    "oocbe.algebra.filters": "semi_join",
    "oocbe.model.settings.options": "SolveOptions",
    "oocbe.model.compact_problem": "CompactProblem ShortTable",
    "oocbe.model.linear_system": "LinearSystem",
    "oocbe.model.problem": "Constraint Function LinearConstraint Problem Variable",
    "oocbe.model.results.propagation_result": "PropagationResult",
    "oocbe.model.results.result": "Result",
    "oocbe.model.semiring": "COUNTING LOG_SUM_EXP MAX_PRODUCT MAX_SUM MIN_SUM SEMIRINGS SUM_PRODUCT Semiring",
    "oocbe.tables.complete": "CompleteTable",
    "oocbe.tables.layout": "Layout",
    "oocbe.tables.packed": "PackedTable",
    "oocbe.tables.common_domains": "common_domains",
    "oocbe.tables.stored": "StoredCompleteTable StoredTable",
    "oocbe.tables.table": "Table",
    "oocbe.api.tasks.result": "TaskResult",
    "oocbe.api.tasks.anytime": "anytime",
    "oocbe.api.tasks.many": "Outcome solve_many",
    "oocbe.api.tasks.verbs": "count count_optimal k_best log_partition marginals min_marginals "
    "most_probable_explanation",
    "oocbe.runtime.tracing.trace_file": "trace",
    "oocbe.formats.solutions": "Verdict",
}
"""Public names by the module that has them, each imported at its first use."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
"""The module of each public name."""

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
