"""Traces: the times of reading, kernels, copies and writing, written during a run.

Any module may record spans here (:mod:`oocbe.runtime.tracing.recorder`): this package is below all others and depends
only on :mod:`oocbe.errors`.
"""
