"""The command line: ``oocbe solve``, ``plan``, ``verify``, ``inspect``, ``convert`` and ``synth``.

Answers are printed on standard output, everything else (progress, notes, errors) on standard error. Modules here import
NumPy, Numba, Zarr and Rich inside the functions that need them, so that ``oocbe --help`` is fast.
"""

COMPLETION_VARIABLE = "_OOCBE_COMPLETE"
"""Environment variable that the shell's script (``oocbe completion``) sets to request completions."""
