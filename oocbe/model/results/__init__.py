"""What comes out of a solve, and what is told on the way."""
