"""Other solvers behind one function each, ``solve(problem, seconds)``, to stand beside oocbe in benchmarks.

The comparison is only fair if each solver gets the model that its users would write: cliques for the MIP, clauses for
CP-SAT, cost functions for toulbar2. Every value returned has been recomputed from the assignment with
:meth:`oocbe.model.problem.Problem.evaluate`, so none of them is taken on trust; a solver's proof is.
"""
