"""The operators on tables of any size: read, partitioned, computed and written piece by piece."""
