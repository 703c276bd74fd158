"""A proven optimum from both sides: orders that race, bounds, incumbents, and what is known in between."""
