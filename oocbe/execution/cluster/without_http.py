"""Dask's scheduler and worker without their HTTP servers, which answer any client and which oocbe does not use."""

from __future__ import annotations

import distributed


class _WithoutHTTP:
    def start_http_server(self, *_: object, **__: object) -> None:
        """Listen nowhere."""


class SchedulerWithoutHTTP(_WithoutHTTP, distributed.Scheduler):  # type: ignore[misc]
    """A scheduler that listens on the port of its address only."""


class WorkerWithoutHTTP(_WithoutHTTP, distributed.Worker):  # type: ignore[misc]
    """A worker that listens on the port of its address only."""
