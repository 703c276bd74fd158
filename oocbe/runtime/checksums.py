"""The checksum of everything on disk: CRC-32 as zlib, gzip and PNG have it.

ISA-L computes it at the speed of memory, several times as fast as zlib: 56 GB/s for 6 where both were measured.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # a processor that ISA-L is not made for
    from zlib import crc32

__all__ = ["crc32"]
