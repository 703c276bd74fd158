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
    from oocbe.algebra.convert import to_complete, to_rows
    from oocbe.algebra.operators import join_marginalise, join_maximise, join_sum, marginalise, maximise
    from oocbe.algebra.result_memory import result_memory
    from oocbe.algebra.semi_join import semi_join
    from oocbe.api.aggregation import aggregate
    from oocbe.api.einsum import einsum, einsum_path
    from oocbe.api.facade import bound, plan, propagate, solve, verify
    from oocbe.api.tasks.anytime import anytime
    from oocbe.api.tasks.many import Outcome, solve_many
    from oocbe.api.tasks.verbs import (
        count,
        count_optimal,
        k_best,
        log_partition,
        marginals,
        min_marginals,
        most_probable_explanation,
    )
    from oocbe.elimination.observer import Observer
    from oocbe.errors import (
        ClusterError,
        CorruptDataError,
        FormatError,
        LimitError,
        ModelError,
        OocbeError,
        ResourceError,
        UnsupportedError,
        UsageError,
        ValueRangeError,
    )
    from oocbe.formats import read, read_model, write
    from oocbe.formats.networks import from_pgmpy, from_pyagrum
    from oocbe.formats.solutions.verification import Verdict
    from oocbe.junction_trees.tree import JunctionTree
    from oocbe.model.compact_problem import CompactProblem, ShortTable
    from oocbe.model.linear_system import LinearSystem
    from oocbe.model.parts import Constraint, Function, LinearConstraint, Variable
    from oocbe.model.problem import Problem
    from oocbe.model.results.anytime_result import AnytimeResult
    from oocbe.model.results.bound_result import BoundResult
    from oocbe.model.results.propagation_result import PropagationResult
    from oocbe.model.results.result import Result
    from oocbe.model.results.task_result import TaskResult
    from oocbe.model.run_verb import Interrupted
    from oocbe.model.semiring import (
        COUNTING,
        LOG_SUM_EXP,
        MAX_PRODUCT,
        MAX_SUM,
        MIN_SUM,
        SEMIRINGS,
        SUM_PRODUCT,
        Semiring,
    )
    from oocbe.model.settings.options import SolveOptions
    from oocbe.runtime.tracing.session import trace
    from oocbe.tables.common_domains import common_domains
    from oocbe.tables.complete import CompleteTable
    from oocbe.tables.layout import Layout
    from oocbe.tables.packed import PackedTable
    from oocbe.tables.stored import StoredTable
    from oocbe.tables.stored_complete import StoredCompleteTable
    from oocbe.tables.table import Table

__version__ = "0.1.0"

__all__ = [
    "COUNTING",
    "LOG_SUM_EXP",
    "MAX_PRODUCT",
    "MAX_SUM",
    "MIN_SUM",
    "SEMIRINGS",
    "SUM_PRODUCT",
    "AnytimeResult",
    "BoundResult",
    "ClusterError",
    "CompactProblem",
    "CompleteTable",
    "Constraint",
    "CorruptDataError",
    "FormatError",
    "Function",
    "Interrupted",
    "JunctionTree",
    "Layout",
    "LimitError",
    "LinearConstraint",
    "LinearSystem",
    "ModelError",
    "Observer",
    "OocbeError",
    "Outcome",
    "PackedTable",
    "Problem",
    "PropagationResult",
    "ResourceError",
    "Result",
    "Semiring",
    "ShortTable",
    "SolveOptions",
    "StoredCompleteTable",
    "StoredTable",
    "Table",
    "TaskResult",
    "UnsupportedError",
    "UsageError",
    "ValueRangeError",
    "Variable",
    "Verdict",
    "__version__",
    "aggregate",
    "anytime",
    "bound",
    "common_domains",
    "count",
    "count_optimal",
    "einsum",
    "einsum_path",
    "from_pgmpy",
    "from_pyagrum",
    "join_marginalise",
    "join_maximise",
    "join_sum",
    "k_best",
    "log_partition",
    "marginalise",
    "marginals",
    "maximise",
    "min_marginals",
    "most_probable_explanation",
    "plan",
    "propagate",
    "read",
    "read_model",
    "result_memory",
    "semi_join",
    "solve",
    "solve_many",
    "to_complete",
    "to_rows",
    "trace",
    "verify",
    "write",
]

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
    "oocbe.formats.networks": "from_pgmpy from_pyagrum",
    "oocbe.junction_trees.tree": "JunctionTree",
    "oocbe.elimination.observer": "Observer",
    "oocbe.algebra.convert": "to_complete to_rows",
    "oocbe.algebra.operators": "join_marginalise join_maximise join_sum marginalise maximise",
    "oocbe.algebra.result_memory": "result_memory",
    "oocbe.algebra.semi_join": "semi_join",
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
    "oocbe.tables.stored": "StoredTable",
    "oocbe.tables.stored_complete": "StoredCompleteTable",
    "oocbe.tables.table": "Table",
    "oocbe.api.tasks.result": "TaskResult",
    "oocbe.api.tasks.anytime": "anytime",
    "oocbe.api.tasks.many": "Outcome solve_many",
    "oocbe.api.tasks.verbs": "count count_optimal k_best log_partition marginals min_marginals "
    "most_probable_explanation",
    "oocbe.runtime.tracing.session": "trace",
    "oocbe.formats.solutions.verification": "Verdict",
}
"""Public names by the module that has them, each imported when it is first asked for."""

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
"""The module of each public name."""


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value  # the next use finds it without this function
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
