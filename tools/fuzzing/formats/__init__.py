"""Differential tests: random files of a format, read by the program that defines the format and by oocbe.

Each module is a mode of ``tools/fuzz.py`` (``--what wcsp``; ``--what formats`` runs them all) with ``draw``, ``check``
and ``smaller``. A mode whose reference is not installed raises ``NotAvailableError``.
"""
