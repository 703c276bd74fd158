"""Work over several processes, of this host or of a cluster: who they are, and how segments of work are given to them.

A *segment* is a range of keys of one bucket, or of one table, half a second to five seconds of work. It is told where
its tables lie and where its rows are to go, so that rows never travel between processes but through files that all of
them see. What asks for segments knows workers as :class:`oocbe.execution.cluster.workers.Workers` alone: threads of
this process (:class:`~oocbe.execution.cluster.workers.InThreads`), or processes that Dask distributed looks after
(:mod:`oocbe.execution.cluster.dask_workers`), local ones started here (:mod:`oocbe.execution.cluster.local`) or those
of a cluster that is there. Everything of Dask is imported when the first segment is given away: most problems never
are.
"""
