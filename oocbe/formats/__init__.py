"""Reading and writing problems: one module a format, one registry."""

from oocbe.formats.registry import (
    Format,
    Model,
    as_problem,
    error_context,
    formats,
    read,
    read_model,
    write,
    writes_systems,
)

__all__ = ["Format", "Model", "as_problem", "error_context", "formats", "read", "read_model", "write", "writes_systems"]
