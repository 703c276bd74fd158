"""Record answers before files move and names change, and compare afterwards; see :mod:`golden`.

``golden_runs.py record FILE.json`` before the change, ``golden_runs.py compare FILE.json`` after it.
"""

import sys

from golden.main import main

if __name__ == "__main__":
    sys.exit(main())
