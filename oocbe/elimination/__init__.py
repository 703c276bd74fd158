"""Bucket elimination: order, plan, forward pass, assignment."""
