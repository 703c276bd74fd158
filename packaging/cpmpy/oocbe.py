#!/usr/bin/env python
##
## oocbe.py
##
"""
Interface to oocbe, an exact solver by bucket elimination on incomplete tables.

oocbe finds optima of weighted models of moderate width, and counts and lists all solutions.

Always use :func:`cp.SolverLookup.get("oocbe") <cpmpy.solvers.utils.SolverLookup.get>` to instantiate the solver object.

============
Installation
============

Requires that the 'oocbe' python package is installed, from a copy of its repository:

.. code-block:: console

    $ pip install '.[cpmpy]'

The solver is maintained in that package, as ``oocbe.api.cpmpy``; this file makes it known to CPMpy.

The rest of this documentation is for advanced users.

===============
List of classes
===============

.. autosummary::
    :nosignatures:

    CPM_oocbe
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cpmpy.solvers.solver_interface import SolverInterface


class CPM_oocbe(SolverInterface):
    """
    Makes the solver of oocbe, ``oocbe.api.cpmpy.CPM_oocbe``, which has all methods of the interface, and ``count()``.
    """

    @staticmethod
    def supported() -> bool:
        """
        Whether oocbe is installed. It imports CPMpy, so it is imported where a solver is made.
        """
        return CPM_oocbe.version() is not None

    @classmethod
    def version(cls) -> str | None:
        """
        Returns the installed version of oocbe.
        """
        try:
            return version("oocbe")
        except PackageNotFoundError:
            return None

    def __new__(cls, cpm_model=None, subsolver=None):
        """
        The solver of oocbe.
        """
        if not cls.supported():
            raise ModuleNotFoundError("CPM_oocbe: Install the python package 'oocbe' to use this solver interface.")
        from oocbe.api.cpmpy import CPM_oocbe as Solver

        return Solver(cpm_model, subsolver)
