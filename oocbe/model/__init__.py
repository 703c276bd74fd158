"""The vocabulary: problems, their parts, and semirings."""
