"""oocbe: an out-of-core engine for incomplete tables."""
