"""Branch and bound: racing orders, bounds, incumbents, and their shared state."""
