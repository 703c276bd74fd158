"""Rows that no optimum needs: dominance and bounds."""
