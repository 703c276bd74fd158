"""Tables larger than memory: a budget, sources of rows, partition into pieces, and pieces worked on in streams."""
