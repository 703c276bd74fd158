"""Runs on disk: what is published, and how a killed one is resumed."""
