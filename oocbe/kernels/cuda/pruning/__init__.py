"""Kernels that drop rows."""
