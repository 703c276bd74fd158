"""Kernels: the loops of the engine, behind one small interface (:mod:`oocbe.kernels.interface`)."""

from oocbe.kernels.choice import AUTO_ROWS, backend_for, backend_named

__all__ = ["AUTO_ROWS", "backend_for", "backend_named"]
