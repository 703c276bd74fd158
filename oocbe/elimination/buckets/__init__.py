"""Forward and backward pass: the message of each bucket, its form and location, and the assignment."""
