"""Small JSON files with their own checksum, accepted only byte for byte as written.

Every changed bit is therefore detected, in the content as in its formatting.
"""

from __future__ import annotations

import json
from typing import Any

from oocbe.errors import CorruptDataError
from oocbe.runtime.checksums import crc32
from oocbe.tables.disk import read_file
from oocbe.tables.object_path import Place


def render_record(content: dict[str, Any]) -> bytes:
    """The canonical bytes of a record."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f'{{"checksum":{crc32(text.encode())},"content":{text}}}\n'.encode()


def read_record(path: Place, largest: int, format_name: str) -> dict[str, Any]:
    """Content of a record with the given ``format``.

    Parameters
    ----------
    largest : maximum size in bytes; larger files are not read.

    Raises
    ------
    FileNotFoundError : no such file. CorruptDataError : unreadable or damaged; the message names the file.
    """
    try:
        data = read_file(path, largest + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise CorruptDataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > largest:
        raise CorruptDataError(f"{path}: larger than any such file, over {largest:,} bytes")
    try:
        content = json.loads(data)["content"]
        damaged = render_record(content) != data or content["format"] != format_name
    except (ValueError, KeyError, TypeError, RecursionError):
        damaged = True
    if damaged:
        raise CorruptDataError(f"{path}: damaged, its checksum does not hold")
    return dict(content)
