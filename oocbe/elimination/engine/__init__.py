"""The bucket engine: all tables and lookups of one bucket joined at once, its variable eliminated on the way."""
