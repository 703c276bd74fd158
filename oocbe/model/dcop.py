"""Distributed constraint optimisation problems (DCOPs): a problem whose variables belong to agents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oocbe.errors import ModelError
from oocbe.model.model_checks import as_integer
from oocbe.model.problem import Problem


@dataclass(frozen=True, eq=False)
class Dcop:
    """A problem whose variables are distributed among agents (Fioretto et al. 2018, section 4).

    Attributes
    ----------
    problem : the variables, functions and constraints.
    agents : names, without repetition; an agent may own any number of variables, and none.
    owner : index in ``agents`` of each variable's owner.

    Raises
    ------
    ModelError : an agent named twice, or a variable without an agent.
    """

    problem: Problem
    agents: tuple[str, ...]
    owner: tuple[int, ...]

    def __post_init__(self) -> None:
        name, variables = self.problem.name, self.problem.variables
        if len(set(self.agents)) != len(self.agents):
            raise ModelError(f"{name}: names of agents must be unique")
        if len(self.owner) != len(variables):
            raise ModelError(f"{name}: {len(self.owner)} owners for {len(variables)} variables; each needs an agent")
        for v, owner in zip(variables, self.owner, strict=True):
            if as_integer(f"{name}: owner of {v.name}, its position among the agents,", owner) not in range(
                len(self.agents)
            ):
                raise ModelError(f"{name}: variable {v.name} belongs to agent {owner}; there are {len(self.agents)}")

    @classmethod
    def of(cls, problem: Problem) -> Dcop:
        """The problem with one agent for each variable, of the same name."""
        return cls(problem, tuple(v.name for v in problem.variables), tuple(range(len(problem.variables))))

    def one_agent_each(self) -> Dcop:
        """The same with each variable at an agent of its own, in order; ModelError: too few agents."""
        return replace(self, owner=tuple(range(len(self.problem.variables))))

    def __repr__(self) -> str:
        return f"<Dcop {self.problem.name}: {len(self.agents)} agents, {self.problem!r}>"
