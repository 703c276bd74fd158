"""Distributed constraint optimisation: agents that each know a part of a problem find its optimum by messages.

      x1        UTIL messages go up: each agent joins its constraints and what its children sent, eliminates its
     /  \\       variable and sends the rest, a table over its separator, to its parent.
    x2   x5     VALUE messages go down: the root sends its best value; each child chooses its own, given
   /  \\         those of its ancestors.
  x3   x4

That is bucket elimination along a pseudo-tree (DPOP; Petcu and Faltings 2005), and mini-bucket elimination where agents
divide what they join (ADPOP); Fioretto et al. (2018) put it on GPUs. Each message here is made by the bucket engine, so
it has feasible rows only where that is smaller. Nothing global is computed but the pseudo-tree and the dtype of values.

* :mod:`oocbe.dcop.pseudo_trees` arranges variables;
* :mod:`oocbe.dcop.agents` is the work of agents, and runs them, in this process or several;
* :mod:`oocbe.dcop.protocol` passes messages on, and computes the simulated runtime.
"""

from oocbe.dcop.protocol import adpop, dpop, read_dcop
from oocbe.dcop.pseudo_trees import PseudoTree, pseudo_tree
from oocbe.model.dcop import Dcop
from oocbe.model.results.dcop_result import DcopMetrics, DcopResult, UtilMessage

__all__ = [
    "Dcop",
    "DcopMetrics",
    "DcopResult",
    "PseudoTree",
    "UtilMessage",
    "adpop",
    "dpop",
    "pseudo_tree",
    "read_dcop",
]
