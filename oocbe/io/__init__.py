"""Reading and writing problems: one module a format, one registry."""

from oocbe.io.registry import Format, formats, read, write

__all__ = ["Format", "formats", "read", "write"]
