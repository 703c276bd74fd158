"""Tables larger than memory: a budget, sources of rows, partition into pieces, and streams that process pieces."""
