"""A process in which agents are at work, started by oocbe.dcop.hosts.

``python -m oocbe.dcop.worker CONNECTION PARENT``: numbers of the connection and of the process that started it.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection

from oocbe.system.parents import end_with


def main() -> None:
    """Serve the connection until the other side closes it, or the process there is no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; whoever started this process ends it
    connection, parent = Connection(int(sys.argv[1])), int(sys.argv[2])
    end_with(parent)
    from oocbe.dcop.hosts import serve

    serve(connection)


if __name__ == "__main__":
    main()
