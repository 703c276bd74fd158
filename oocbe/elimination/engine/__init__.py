"""The bucket engine: joins all tables and lookups of one bucket at once and eliminates its variable during the join."""
