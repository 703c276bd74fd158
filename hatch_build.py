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
    """Compiles as ``oocbe warm-up --quick`` does, in the source tree; ``COMPILE_OOCBE=0`` prevents it."""

    def dependencies(self) -> list[str]:
        """The runtime dependencies, in the environment of the build."""
        return list(self.metadata.core.dependencies)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile for an editable install. A failure is no error: a command compiles what is missing."""
        if version != "editable" or os.environ.get("COMPILE_OOCBE") == "0":
            return
        script = "from oocbe.kernels.cpu.signatures import compile_listed; compile_listed(True, 2, print)"
        # Without the front end's own entry, an isolated build has no packages.
        path = [*filter(None, [os.environ.get("PYTHONPATH")]), self.root]
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, errors = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
        if process.returncode != 0:
            last = errors.strip().splitlines()[-1:]
            self.app.display_warning(f"some loops were not compiled: {' '.join(last)}")
