"""Mini-bucket elimination: bounds where exact messages do not fit."""
