"""A process that solves problems, started by oocbe.api.tasks.solving_processes.

``python -P -m oocbe.api.tasks.worker CONNECTION PARENT``: numbers of the connection and of the process that started it.
"""

from __future__ import annotations

import sys

from oocbe.runtime.parents import connection_to_parent


def main() -> None:
    """Serve the connection until the other side closes it, or the other process has ended."""
    connection = connection_to_parent()
    sys.unraisablehook = _unraisable
    from oocbe.api.tasks.many import solved
    from oocbe.api.tasks.solving_processes import serve

    serve(connection, solved)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Do not print an interruption that Python loses in a destructor, because it is raised again
    (:mod:`oocbe.runtime.interruption`)."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
