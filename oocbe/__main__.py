"""``oocbe`` and ``python -m oocbe``: the command line."""

import signal
import time


def main() -> None:
    """Load the command line, and run it."""
    begin = time.perf_counter()
    # A Ctrl-C ends what has not begun like any other program: in the middle of a module it would be a traceback.
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oocbe.cli.main import main as run

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run(begin)


if __name__ == "__main__":
    main()
