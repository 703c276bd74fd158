"""Work over several processes of this host or of a cluster: workers, and the dispatch of segments to them.

A *segment* is a range of keys of one bucket or table, half a second to five seconds of work. It contains the paths of
its tables and of its result, so that rows pass between processes only through shared files. Callers use workers through
the interface :class:`oocbe.execution.cluster.workers.Workers`: processes managed by Dask distributed
(:mod:`oocbe.execution.cluster.dask_workers`), those that the program starts
(:mod:`oocbe.execution.cluster.started_workers`) or those of an existing cluster. Dask is imported with the first
dispatched segment, since most problems need none.
"""
