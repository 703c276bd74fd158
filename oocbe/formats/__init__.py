"""Reading and writing problems: one module a format, one registry."""

from oocbe.formats.registry import Format, Model, as_problem, formats, naming, read, read_model, write, writes_systems

__all__ = ["Format", "Model", "as_problem", "formats", "naming", "read", "read_model", "write", "writes_systems"]
