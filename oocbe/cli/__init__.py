"""The command line: ``oocbe solve``, ``plan``, ``verify``, ``inspect``, ``convert`` and ``synth``.

What a command answers goes to standard output, everything else (progress, notes, errors) to standard error. Modules
here import NumPy, Numba, Zarr and Rich inside the functions that need them: ``oocbe --help`` should not wait for them.
"""

COMPLETION_VARIABLE = "_OOCBE_COMPLETE"
"""Set by the script that a shell has (``oocbe completion``), where it asks what may follow."""
