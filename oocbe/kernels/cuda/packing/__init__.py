"""Kernels over the bits of keys and packed columns."""
