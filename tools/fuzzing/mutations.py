"""Damage to files: bytes, words and lines changed, cut, repeated and moved."""

from __future__ import annotations

from random import Random

WORDS = (
    b"-1", b"0", b"1", b"2", b"99999999999999999999", b"9223372036854775807", b"-9223372036854775808", b"1000000000",
    b"4294967296", b"2147483648", b"nan", b"inf", b"-inf", b"1e5", b"1e400", b"1e-400", b"1_000", b"0x10", b"\xd9\xa1",
    b"knapsack", b"knapsackp", b"x", b"-", b"+", b"", b"1\n2", b"\xff", b"\0", b"{", b"}", b"[", b"]", b'"', b"/*",
    b"//", b"#", b";", b"<5", b">5", b"default", b"BAYES", b"true", b"null", b"\r", b"\xef\xbb\xbf", b"9" * 5000,
)  # fmt: skip
"""What readers may stumble over."""


def mutated(random: Random, data: bytes, name: str) -> bytes:
    """A file's bytes with one to four changes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        changed = _changed(random, changed)
    return bytes(changed)


def _changed(random: Random, data: bytearray) -> bytearray:
    end = len(data)
    place = random.randrange(max(1, end))
    kind = random.choice(("byte", "truncate", "delete", "repeat", "word", "word", "word", "line", "lines", "digit"))
    if kind == "byte" and end:
        data[place] = random.randrange(256)
    elif kind == "truncate" and random.random() < 0.5:
        del data[place:]
    elif kind == "delete":
        del data[place : place + random.choice((1, 2, 8, 100))]
    elif kind == "repeat":
        data[place:place] = data[place : place + random.choice((1, 8, 100))]
    elif kind == "digit":
        digits = [i for i in range(place, min(end, place + 50)) if data[i : i + 1].isdigit()]
        for i in digits[:1]:
            data[i] = random.choice(b"0123456789")
    elif kind in ("line", "lines"):
        lines = bytes(data).split(b"\n")
        i, j = random.randrange(len(lines)), random.randrange(len(lines))
        if kind == "line":
            lines[i : i + 1] = random.choice(([], [lines[i]] * 2, [lines[j]], [b""]))
        else:
            lines[i], lines[j] = lines[j], lines[i]
        return bytearray(b"\n".join(lines))
    else:
        start = place
        while start > 0 and data[start - 1] not in b" \n\t,":
            start -= 1
        stop = place
        while stop < end and data[stop] not in b" \n\t,":
            stop += 1
        data[start:stop] = random.choice(WORDS)
    return data
