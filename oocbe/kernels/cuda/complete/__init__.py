"""Kernels for complete tables."""
