"""Independent judgement of assignments, and the files that they are in."""
