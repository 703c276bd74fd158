"""``oocbe`` and ``python -m oocbe``: the command line."""

import signal
import time


def main() -> None:
    """Load the command line, and run it."""
    begin = time.perf_counter()
    # Signals wait for the command, which answers them: one in the middle of a module would give no message.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from oocbe.cli.main import main as run

    run(begin)


if __name__ == "__main__":
    main()
