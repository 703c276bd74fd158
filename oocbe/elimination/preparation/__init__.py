"""From a problem to what elimination works on: domains reduced, values in one semiring and dtype, factors packed."""
