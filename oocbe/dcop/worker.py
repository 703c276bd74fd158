"""A process in which agents are at work, started by oocbe.dcop.hosts.

``python -m oocbe.dcop.worker CONNECTION PARENT``: numbers of the connection and of the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

ALONE_SECONDS = 0.2
"""So often a process looks whether the one that started it is still there."""


def main() -> None:
    """Serve the connection until the other side closes it, or the process there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; whoever started this process ends it
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from oocbe.dcop.hosts import serve

    serve(connection)


def _end_with(parent: int) -> None:
    """End this process, in the middle of a join too, when the one that started it was killed."""
    while os.getppid() == parent:
        time.sleep(ALONE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
