"""Propagation: removal of infeasible values from domains, to a fixpoint.

Two kinds of constraints are propagated. *Linear* ones bound each variable by the least and greatest activity of the
others (:mod:`oocbe.propagation.bounds`, for systems over intervals). *Tables* keep the values that have a support among
the remaining rows (:mod:`oocbe.propagation.tables`). Both remove infeasible values only. Their common fixpoint does not
depend on the order of propagation; it is a smaller problem with the same solutions, for every semiring.
"""
