"""The simulation in a process of its own, whose sets of strings have one order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType


def run(
    module: str, *arguments: str, seconds_max: float, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """What it printed, and how it ended. `environment`: besides. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0", **environment},
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
