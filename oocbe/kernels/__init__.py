"""Kernels: the loops of the engine, behind one small interface (:mod:`oocbe.kernels.interface`)."""
