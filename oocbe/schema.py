"""The version of what ``--json`` prints, in a module that loads at once: an interrupted start says it, too."""

SCHEMA_VERSION = 1
"""Version of the JSON layout; raised when a field is removed or changes its meaning, not when one is added."""
