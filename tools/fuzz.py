"""Attack oocbe with random inputs for some minutes, or replay a failure; see ``--help`` and :mod:`fuzzing`."""

import sys

from fuzzing.main import main

if __name__ == "__main__":
    sys.exit(main())
