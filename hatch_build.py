"""Build hook: an editable install compiles the loops of a first solve, so that the first solve does not wait."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOST_SECONDS = 120
"""Limit of the compilation, in seconds: an installation on a loaded machine ends without it."""


class CompileLoops(BuildHookInterface[Any]):
    """Runs ``oocbe warm-up --quick`` in the source tree; ``OOCBE_COMPILE=0`` prevents it."""

    def dependencies(self) -> list[str]:
        """The runtime dependencies, in the environment of the build."""
        return list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for an editable install. A failure is no error: a command compiles what is missing."""
        if version != "editable" or os.environ.get("OOCBE_COMPILE") == "0":
            return
        command = [sys.executable, "-m", "oocbe", "warm-up", "--quick", "--quiet"]
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONPATH": path}, timeout=MOST_SECONDS, capture_output=True, text=True
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.app.display_warning(f"loops were not compiled: {error}")
        else:
            if done.returncode != 0:
                self.app.display_warning(f"loops were not compiled: {done.stderr.strip()}")
