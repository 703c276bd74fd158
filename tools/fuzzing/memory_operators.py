"""One operator on stored tables, run as a program of its own: its exit code is what a command's would be."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

OPERATORS = ("join_sum", "maximise", "join_maximise", "semi_join", "to_complete", "to_rows")


def main(case: dict[str, Any], folder: Path) -> int:
    """Run the operator on the tables in the folder, and return the exit code."""
    import oocbe
    from oocbe.errors import OocbeError
    from oocbe.model.results.failure import exit_code_of, message_of

    operator, output = case["way"], folder / "out"
    settings: dict[str, Any] = {}
    if case["output"]:
        settings = {"output": output}
        if operator != "semi_join":
            settings |= {"memory": f"{case['memory']}MiB", "scratch": folder}
    try:
        tables: list[Any] = [oocbe.StoredTable.open(path) for path in sorted(folder.glob("in*"))]
        if not case["on_disk"]:
            tables = [table.to_table() for table in tables]
        if operator == "to_rows":
            tables = [oocbe.to_complete(tables[0], **settings | ({"output": folder / "complete"} if settings else {}))]
        first = tables[:2] if operator in ("join_sum", "join_maximise", "semi_join") else tables[:1]
        gone = [case["gone"]] if operator in ("maximise", "join_maximise") else []
        print(repr(getattr(oocbe, operator)(*first, *gone, **settings)))
    except (OocbeError, MemoryError) as error:
        print(f"{type(error).__name__}: {message_of(error)}", file=sys.stderr)
        if output.exists():
            print("internal error: half-written output", file=sys.stderr)
        return exit_code_of(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), Path(sys.argv[2])))
