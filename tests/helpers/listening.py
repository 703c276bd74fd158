"""Where processes listen, and who is answered there."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

LISTENS = "0A"
"""State of a socket in the system's tables."""


class Port(NamedTuple):
    """A socket that listens: of which process, at which address (as hexadecimal digits of the system) and port."""

    process: int
    address: str
    number: int

    @property
    def is_loopback(self) -> bool:
        """Whether nobody on another host reaches it."""
        return self.address in ("0100007F", "00000000000000000000000001000000")


def descendants(process: int) -> list[int]:
    """A process, and those that it and they have started."""
    found = [process]
    with suppress(OSError):  # it has just ended
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            found += [d for child in children.read_text().split() for d in descendants(int(child))]
    return found


def ports(processes: Iterable[int]) -> set[Port]:
    """All TCP sockets of some processes that listen."""
    owners: dict[str, int] = {}
    for process in processes:
        with suppress(OSError):
            for link in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                        owners[found[1]] = process
    made = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *more = line.split()
            if state == LISTENS and (inode := more[5]) in owners:
                address, _, number = local.partition(":")
                made.add(Port(owners[inode], address, int(number, 16)))
    return made


def code_that_runs(port: Port, scheme: str, security: object = None) -> object:
    """What Dask's function ``run`` answers, which calls any function: the process, or the error."""
    from distributed.core import rpc

    async def call() -> object:
        more = {} if security is None else {"connection_args": security.get_connection_args("client")}
        async with rpc(f"{scheme}://127.0.0.1:{port.number}", timeout=3, **more) as there:
            return await asyncio.wait_for(there.run(function=pickle.dumps(os.getpid)), 5)

    try:
        return asyncio.run(call())
    except Exception as error:
        return error


def answer_of(port: Port, text: bytes, *, encrypted: bool) -> bytes | Exception:
    """What comes back for some bytes, from a client without a certificate."""
    try:
        with socket.create_connection(("127.0.0.1", port.number), 5) as plain:
            if not encrypted:
                plain.sendall(text)
                return plain.recv(100)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(plain) as client:
                client.sendall(text)
                return client.recv(100)
    except OSError as error:
        return error
