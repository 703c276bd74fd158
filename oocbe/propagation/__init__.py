"""Propagation: what no assignment can have is removed from domains, until nothing more goes.

Two kinds of constraints are propagated. *Linear* ones bound each variable by what the others take at least and at most
(:mod:`oocbe.propagation.bounds`, for systems over intervals). *Tables* keep the values that some row that is still
possible has (:mod:`oocbe.propagation.tables`). Both only ever remove what is infeasible, so a fixpoint of all, which is
the same in whatever order they work, is a smaller problem with the same solutions, for every semiring.
"""
