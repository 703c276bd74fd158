"""A run over two worker processes that the fuzz disturbs: ``python -m tools.fuzzing.workers_run CASE FOLDER``.

It prints the answer, or the error, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from oocbe.errors import OocbeError
from oocbe.execution.cluster.started_workers import LocalWorkers
from oocbe.execution.cluster.workers import use_workers
from oocbe.model.settings.tuning import tuned

from .descriptions import problem_of
from .runs_mode import solved_in

CUTTING = {"segment_rows": 8, "first_segments": 2, "least_segment_seconds": 0.02}
"""Messages of a few rows are given away, in a few segments."""


def main() -> None:
    """Solve the case's problem in the run directory of a folder, and go on with what is there."""
    case, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    problem = problem_of(case["problem"])
    try:
        with LocalWorkers(2) as workers, use_workers(workers), tuned(**CUTTING):
            found = {**solved_in(folder / "run", problem, case["options"]), "started": len(workers.started)}
    except OocbeError as error:
        found = {"error": type(error).__name__, "message": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
