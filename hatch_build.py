"""Build hook: an editable install compiles the loops of a first solve, so that the first solve does not wait."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOST_SECONDS = 120
"""Limit of the compilation, in seconds: an installation on a loaded machine ends without it."""


STEPS = ("elimination", "a first solve")
"""Steps of :mod:`oocbe.cli.warm_up_steps`, each in a process."""


class CompileLoops(BuildHookInterface[Any]):
    """Compiles as ``oocbe warm-up --quick`` does, in the source tree; ``COMPILE_OOCBE=0`` prevents it."""

    def dependencies(self) -> list[str]:
        """The runtime dependencies, in the environment of the build."""
        return list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for an editable install. A failure is no error: a command compiles what is missing."""
        if version != "editable" or os.environ.get("COMPILE_OOCBE") == "0":
            return
        script = f"import sys; sys.path.insert(0, {self.root!r}); from oocbe.cli.warm_up_steps import run_step; "
        processes = [
            subprocess.Popen([sys.executable, "-c", f"{script}run_step({name!r})"], stderr=subprocess.PIPE, text=True)
            for name in STEPS
        ]
        end = time.monotonic() + MOST_SECONDS
        for process in processes:
            try:
                _, said = process.communicate(timeout=max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                _, said = process.communicate()
            if process.returncode != 0:
                last = said.strip().splitlines()[-1:]
                self.app.display_warning(f"some loops were not compiled: {' '.join(last)}")
