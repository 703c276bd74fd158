"""Tables: the bit layout of keys, tables in memory, tables stored on disk."""
