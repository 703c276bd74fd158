"""The version of the ``--json`` layout, in a module that loads quickly, for use by an interrupted start."""

SCHEMA_VERSION = 1
"""Version of the JSON layout; raised when a field is removed or its meaning changes, not when one is added."""

BOUND_SCHEMA_VERSION = 2
"""Version for ``oocbe bound``: version 1 had products, version 2 has their logarithms."""


def schema_version_of(command: str) -> int:
    """Layout version of a command."""
    return BOUND_SCHEMA_VERSION if command == "bound" else SCHEMA_VERSION
