"""Operators on tables: join sum, maximisation, both fused, and filters by hard constraints."""
