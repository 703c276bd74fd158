"""Traces: what the reader, the kernels, the copies and the writer did when, written while a run goes on.

Any module may record spans here (:mod:`oocbe.runtime.tracing.recorder`): this package stands below all others and needs
none of them but :mod:`oocbe.errors`.
"""
