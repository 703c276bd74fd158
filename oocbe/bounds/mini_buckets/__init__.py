"""Mini-bucket elimination: bounds when exact messages do not fit."""
