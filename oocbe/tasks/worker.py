"""A process that solves problems, started by oocbe.tasks.solving_processes.

``python -P -m oocbe.tasks.worker CONNECTION PARENT``: numbers of the connection and of the process that started it.
"""

from __future__ import annotations

from oocbe.system.parents import connection_to_parent


def main() -> None:
    """Serve the connection until the other side closes it, or the process there is no more."""
    connection = connection_to_parent()
    from oocbe.tasks.many import solved
    from oocbe.tasks.solving_processes import serve

    serve(connection, solved)


if __name__ == "__main__":
    main()
