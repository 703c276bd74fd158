"""A model of runs on many workers: stages of pieces, and list scheduling of them with stragglers and failures."""
