"""Forward and backward pass: the message of each bucket, its form and its place, and an assignment from them."""
