"""A worker process for agents, started by oocbe.dcop.hosts.

``python -P -m oocbe.dcop.worker CONNECTION PARENT``: numbers of the connection and of the process that started it.
"""

from __future__ import annotations

from oocbe.runtime.parents import connection_to_parent


def main() -> None:
    """Serve the connection until the other side closes it or ends."""
    connection = connection_to_parent()
    from oocbe.dcop.hosts import serve

    serve(connection)


if __name__ == "__main__":
    main()
