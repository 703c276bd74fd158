"""Results of solving, and progress."""
