"""Kernels for the GPU."""
