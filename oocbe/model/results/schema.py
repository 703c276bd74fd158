"""The version of what ``--json`` prints, in a module that loads at once: an interrupted start says it, too."""

SCHEMA_VERSION = 1
"""Version of the JSON layout; raised when a field is removed or changes its meaning, not when one is added."""

BOUND_SCHEMA_VERSION = 2
"""Of ``oocbe bound``: in 1, bounds of products were products, and not their logarithms."""


def schema_version_of(command: str) -> int:
    """Version of the layout that a command prints."""
    return BOUND_SCHEMA_VERSION if command == "bound" else SCHEMA_VERSION
