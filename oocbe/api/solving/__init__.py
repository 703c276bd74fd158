"""A solve: reformulations, attempts, the result."""
