"""The simulation in a process of its own, whose sets of strings have one order."""

from __future__ import annotations

import os
import subprocess
import sys


def run(module: str, *arguments: str, seconds_max: float) -> subprocess.CompletedProcess[str]:
    """What it printed, and how it ended. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
