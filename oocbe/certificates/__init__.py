"""Proofs that others can check: certificates of optimality, and the checker, which shares nothing with the engine."""
